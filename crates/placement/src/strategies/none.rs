//! No strategy: the placement stays as it is. What all others are set against.

use comporta_model::plan::Offer;

use super::DISSERTATION;
use crate::registry::Entry;
use crate::round::Round;
use crate::strategy::Strategy;
use crate::view::View;

/// Migrates nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMigrations;

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "none",
        aliases: &["base"],
        about: "migrates nothing",
        cites: DISSERTATION,
        params: &[],
    };
    Entry::new(offer, |_, _| NoMigrations)
}

impl Strategy for NoMigrations {
    fn migrations_max(&self) -> usize {
        0
    }

    fn decide(&mut self, _: &View, _: &mut Round<'_>) {}
}
