//! The trait of strategies, and how a round is held.

use crate::decision::Decision;
use crate::round::Round;
use crate::view::View;

/// Decides which replica runs on which node.
///
/// A strategy acts only through its [`Round`], which refuses invalid migrations. It may keep state. The same
/// views in the same order, and the same seed, give the same decisions.
pub trait Strategy: Send {
    /// Returns the most migrations of a round (`l_mig`).
    fn migrations_max(&self) -> usize;

    /// Called once a period, unless a migration is under way.
    fn decide(&mut self, view: &View, round: &mut Round<'_>);
}

/// Holds a round: returns what the strategy decides on this view. Returns nothing while a migration is under way.
pub fn decide(strategy: &mut dyn Strategy, view: &View) -> Vec<Decision> {
    if view.migrating > 0 {
        return Vec::new();
    }
    let mut round = Round::new(view, strategy.migrations_max());
    strategy.decide(view, &mut round);
    round.finish()
}
