//! Resources, and how much of each a replica or a node uses.
//! Amounts are absolute (cores, bytes, bytes per second), as control messages report them; the
//! [`Capacity`](crate::Capacity) of a node gives the share.

use std::fmt;
use std::ops::{Add, AddAssign, Index, IndexMut, Sub, SubAssign};

/// A limited resource of a node (section 3.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Cores that compute.
    Cpu,
    /// Cores that wait for a disk.
    IoWait,
    /// Bytes of memory held.
    Memory,
    /// Bytes a second read from disks.
    DiskRead,
    /// Bytes a second written to disks.
    DiskWritten,
    /// Bytes a second that came over the network.
    Received,
    /// Bytes a second that were sent over the network.
    Sent,
}

impl Resource {
    /// Every resource.
    pub const ALL: [Resource; 7] = [
        Resource::Cpu,
        Resource::IoWait,
        Resource::Memory,
        Resource::DiskRead,
        Resource::DiskWritten,
        Resource::Received,
        Resource::Sent,
    ];

    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Resource::Cpu => "CPU",
            Resource::IoWait => "I/O wait",
            Resource::Memory => "memory",
            Resource::DiskRead => "disk reads",
            Resource::DiskWritten => "disk writes",
            Resource::Received => "network in",
            Resource::Sent => "network out",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How much of every resource is used.
///
/// ```
/// use comporta_placement::{Resource, Usage};
///
/// let replica = Usage::new().with(Resource::Cpu, 0.5);
/// let node = Usage::new().with(Resource::Cpu, 1.0).with(Resource::Memory, 4e6);
/// assert_eq!((node + replica)[Resource::Cpu], 1.5);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage([f64; Resource::ALL.len()]);

impl Usage {
    /// Returns a usage of zero.
    #[must_use]
    pub const fn new() -> Self {
        Usage([0.0; Resource::ALL.len()])
    }

    /// Sets the amount of one resource.
    #[must_use]
    pub fn with(mut self, resource: Resource, amount: f64) -> Self {
        self[resource] = amount;
        self
    }

    /// Multiplies every amount by `factor`.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.0.iter_mut().for_each(|amount| *amount *= factor);
        self
    }

    /// Sets memory to zero, for sums over time: memory is held, not spent.
    #[must_use]
    pub fn without_memory(self) -> Self {
        self.with(Resource::Memory, 0.0)
    }

    /// Returns `true` if every amount is a finite number that is not negative.
    #[must_use]
    pub fn is_sane(&self) -> bool {
        self.0.iter().all(|amount| amount.is_finite() && *amount >= 0.0)
    }
}

impl Index<Resource> for Usage {
    type Output = f64;
    fn index(&self, resource: Resource) -> &f64 {
        &self.0[resource as usize]
    }
}

impl IndexMut<Resource> for Usage {
    fn index_mut(&mut self, resource: Resource) -> &mut f64 {
        &mut self.0[resource as usize]
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours += theirs);
    }
}

impl SubAssign for Usage {
    /// Takes away, down to nothing: a node uses at least what its replicas use, but the two are
    /// measured a moment apart.
    fn sub_assign(&mut self, other: Usage) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours = (*ours - theirs).max(0.0));
    }
}

impl Add for Usage {
    type Output = Usage;
    fn add(mut self, other: Usage) -> Usage {
        self += other;
        self
    }
}

impl Sub for Usage {
    type Output = Usage;
    fn sub(mut self, other: Usage) -> Usage {
        self -= other;
        self
    }
}
