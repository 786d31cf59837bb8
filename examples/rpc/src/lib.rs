//! Remote calls over sockets: both ends of a connection may call the other, also while a call of
//! their own is under way. One program, written twice:
//!
//! 1. `protocol`   calls, replies, and how they look on the wire; shared by both
//! 2. `peer`       one end of a connection, for coroutines: `call` returns the reply
//! 3. `sequential` the program as coroutines
//! 4. `callbacks`  the same program with callbacks, on a bare event loop
//!
//! The program is a shop that knows no prices. A client asks for the total of its basket, and while it
//! waits the shop asks it for the price of each item. Some clients die when they are asked.

pub mod protocol;
pub mod peer;
pub mod sequential;
pub mod callbacks;

/// What the clients do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many there are, all at once.
    pub clients: usize,
    /// How many of them die when they are asked for a price.
    pub dying: usize,
    /// What is in each basket.
    pub items: usize,
}

/// How it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Clients that were told a total, and the sum of these.
    pub answered: usize,
    /// The sum of the totals.
    pub sum: u64,
    /// Totals that the shop could not finish, because the client was gone.
    pub broken: usize,
}

impl Load {
    /// The items of a client's basket.
    #[must_use]
    pub fn basket(&self, client: usize) -> Vec<String> {
        (0..self.items).map(|item| format!("{}", client + item)).collect()
    }

    /// Whether a client dies.
    #[must_use]
    pub fn dies(&self, client: usize) -> bool {
        client < self.dying
    }

    /// What must come out.
    #[must_use]
    pub fn expected(&self) -> Report {
        let total = |client| self.basket(client).iter().filter_map(|item| price(item)).sum::<u64>();
        let dying = self.dying.min(self.clients);
        Report {
            answered: self.clients - dying,
            sum: (dying..self.clients).map(total).sum(),
            broken: dying,
        }
    }
}

/// What a client says an item costs.
#[must_use]
pub fn price(item: &str) -> Option<u64> {
    item.parse::<u64>().ok().map(|number| number % 100 + 1)
}

/// Raises the limit of descriptors as far as the system lets us: each client takes two.
pub fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // If it cannot be raised, connecting will say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
