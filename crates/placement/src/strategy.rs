//! What a strategy is, and how a round of it is held.

use crate::decision::Decision;
use crate::round::Round;
use crate::view::View;

/// Decides which replica runs on which node.
///
/// A strategy acts only through the [`Round`] it is handed, which refuses what must not be. It may
/// remember what it saw. The same views in the same order, and the same seed, give the same decisions.
pub trait Strategy: Send {
    /// Migrations that a round may have at most (`l_mig`).
    fn migrations_max(&self) -> usize;

    /// Called once a period, unless a migration is under way.
    fn decide(&mut self, view: &View, round: &mut Round<'_>);
}

/// Holds a round: what the strategy decides on this view. Nothing while a migration is under way.
pub fn decide(strategy: &mut dyn Strategy, view: &View) -> Vec<Decision> {
    if view.migrating > 0 {
        return Vec::new();
    }
    let mut round = Round::new(view, strategy.migrations_max());
    strategy.decide(view, &mut round);
    round.finish()
}
