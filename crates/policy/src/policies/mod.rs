//! The policies, a file each. `all` is the list that plans, `policies` and completion go by.

mod stealing;
mod single;
mod srpt;

pub use single::Single;
pub use srpt::Srpt;
pub use stealing::Stealing;

use crate::registry::Entry;

/// Every policy of the library; the first is the default.
pub(crate) fn all() -> Vec<Entry> {
    vec![stealing::entry(), single::entry(), srpt::entry()]
}
