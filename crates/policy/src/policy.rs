//! The trait of policies, and when it is called.

use crate::control::{PolicyControl, Refused, TimerId};

/// Decides what the threads of a cluster do next.
///
/// A policy acts only through its [`PolicyControl`]. Its methods are called one at a time, by any thread of
/// the runtime, and should return soon, since that thread waits for them. A refusal that a method returns is
/// reported, and the policy goes on; a policy that panics is replaced by the default one, and the program
/// goes on.
pub trait Policy: Send {
    /// Called once, before events flow under this policy. The cluster is as the plan has it: one pool with
    /// all stages, one ready queue, and the plan's capacities, priorities and instances.
    ///
    /// # Errors
    /// A policy that returns an error is not used.
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused>;

    /// Called when a timer is due.
    ///
    /// # Errors
    /// An error is reported, and the policy goes on.
    fn on_timer(
        &mut self,
        _timer: TimerId,
        _control: &mut dyn PolicyControl,
    ) -> Result<(), Refused> {
        Ok(())
    }

    /// Called when a thread has reached the last place of the visit order: see
    /// [`set_fire_last_focused`](PolicyControl::set_fire_last_focused).
    ///
    /// # Errors
    /// An error is reported, and the policy goes on.
    fn on_last_focused(&mut self, _control: &mut dyn PolicyControl) -> Result<(), Refused> {
        Ok(())
    }

    /// Called when the threads have made the number of visits that was set: see
    /// [`set_max_visits`](PolicyControl::set_max_visits).
    ///
    /// # Errors
    /// An error is reported, and the policy goes on.
    fn on_max_visits(&mut self, _control: &mut dyn PolicyControl) -> Result<(), Refused> {
        Ok(())
    }
}
