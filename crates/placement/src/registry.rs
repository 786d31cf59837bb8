//! Strategies by name: those of the library, and those of a program.

use std::fmt;
use std::sync::Arc;

use comporta_model::plan::{Choice, Offer, PlanFault, validate_choice};

use crate::strategies;
use crate::strategy::Strategy;

type Make = Arc<dyn Fn(&Choice, u64) -> Box<dyn Strategy> + Send + Sync>;

/// A strategy that can be chosen by name.
#[derive(Clone)]
pub struct Entry {
    /// Its description and parameters.
    pub offer: Offer,
    make: Make,
}

impl Entry {
    /// Creates an entry for a strategy, which `make` makes from a choice with every parameter set, and a seed.
    pub fn new<S: Strategy + 'static>(
        offer: Offer,
        make: impl Fn(&Choice, u64) -> S + Send + Sync + 'static,
    ) -> Self {
        Entry { offer, make: Arc::new(move |choice, seed| Box::new(make(choice, seed))) }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.offer.name).finish()
    }
}

/// The mistakes of a choice that names no strategy, or has a parameter with a wrong value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Unknown(pub Vec<PlanFault>);

/// The strategies of a program, by name.
#[derive(Clone, Debug)]
pub struct Registry(Vec<Entry>);

impl Registry {
    /// Returns the strategies of the library.
    #[must_use]
    pub fn new() -> Self {
        Registry(strategies::all())
    }

    /// Adds an entry. It hides an earlier one of the same name.
    pub fn add(&mut self, entry: Entry) {
        self.0.retain(|old| old.offer.name != entry.offer.name);
        self.0.push(entry);
    }

    /// Returns all entries.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// Makes the strategy that a choice names, such as `adaptive(d=0.5)`.
    ///
    /// # Errors
    /// Returns the mistakes if there is no strategy of that name, or a parameter has a wrong value.
    pub fn make(&self, choice: &Choice, seed: u64) -> Result<Box<dyn Strategy>, Unknown> {
        let offers: Vec<Offer> = self.0.iter().map(|entry| entry.offer).collect();
        let full = validate_choice("strategy", &offers, choice, "strategy").map_err(Unknown)?;
        let entry = self.0.iter().rev().find(|entry| entry.offer.is_called(&full.name));
        let entry = entry.expect("the choice was found among the offers of these entries");
        Ok((entry.make)(&full, seed))
    }
}

impl Default for Registry {
    fn default() -> Self {
        Registry::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_is_made_with_its_defaults() {
        let registry = Registry::new();
        for entry in registry.entries() {
            assert!(registry.make(&Choice::new(entry.offer.name), 1).is_ok(), "{entry:?}");
            assert!(!entry.offer.about.is_empty() && !entry.offer.cites.is_empty());
        }
    }

    #[test]
    fn a_wrong_name_or_parameter_is_reported_with_the_nearest() {
        let message = |choice: &str| match Registry::new().make(&choice.into(), 1) {
            Ok(_) => "made".to_owned(),
            Err(unknown) => unknown.to_string(),
        };
        assert_eq!(message("adaptive(d=0.5, l_mig=2)"), "made");
        assert!(message("adaptiv").contains("adaptive"), "{}", message("adaptiv"));
        assert!(message("adaptive(l_mog=1)").contains("l_mig"), "{}", message("adaptive(l_mog=1)"));
        assert!(message("adaptive(l_mig=0)").contains("l_mig"), "{}", message("adaptive(l_mig=0)"));
    }

    #[test]
    fn a_programs_own_strategy_hides_one_of_its_name() {
        let mut registry = Registry::new();
        let offer = registry.entries().find(|entry| entry.offer.name == "none").unwrap().offer;
        let before = registry.entries().count();
        registry.add(Entry::new(Offer { about: "mine", ..offer }, |_, _| strategies::NoMigrations));
        assert_eq!(registry.entries().count(), before);
        assert!(registry.entries().any(|entry| entry.offer.about == "mine"));
    }
}
