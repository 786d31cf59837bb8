//! The strategies, a file each. `all` is the list that scenarios and `comporta-sim strategies` go by.
//!
//! 1. [`Adaptive`]: as published; candidates by how much their latency grew.
//! 2. [`Random`]: candidates by chance, targets by the same rule.
//! 3. [`NoMigrations`]: nothing is ever migrated.
//! 4. [`CostAware`]: ours; what a migration gains against what it costs.

mod adaptive;
mod random;
mod none;
mod cost_aware;

pub use adaptive::Adaptive;
pub use cost_aware::CostAware;
pub use none::NoMigrations;
pub use random::Random;

use crate::registry::Entry;

/// Every strategy of the library.
pub(crate) fn all() -> Vec<Entry> {
    vec![adaptive::entry(), random::entry(), none::entry(), cost_aware::entry()]
}

/// What the strategies of the dissertation cite.
const DISSERTATION: &str = "Escalonamento adaptativo para sistemas de processamento contínuo de \
                            eventos, dissertation, sections 3.2.3 and 4.2";
