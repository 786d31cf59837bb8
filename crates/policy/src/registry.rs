//! Policies by name: those that come with the library, and a program's own.

use std::fmt;
use std::sync::Arc;

use comporta_model::plan::{Choice, Offer};

use crate::policies;
use crate::policy::Policy;

/// How to make a policy from a choice whose parameters are settled.
type Make = Arc<dyn Fn(&Choice) -> Box<dyn Policy> + Send + Sync>;

/// A policy that can be chosen.
#[derive(Clone)]
pub struct Entry {
    /// What a plan may say of it, and what people are told.
    pub offer: Offer,
    make: Make,
}

impl Entry {
    /// A policy under this name, made by `make` from a choice in which every parameter is said.
    pub fn new<P: Policy + 'static>(
        offer: Offer,
        make: impl Fn(&Choice) -> P + Send + Sync + 'static,
    ) -> Self {
        Entry { offer, make: Arc::new(move |choice| Box::new(make(choice))) }
    }

    /// Makes it.
    #[must_use]
    pub fn make(&self, settled: &Choice) -> Box<dyn Policy> {
        (self.make)(settled)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.offer.name).finish()
    }
}

/// The policies of a program, by name. The first is the default.
#[derive(Clone, Debug)]
pub struct Registry(Vec<Entry>);

impl Registry {
    /// Those that come with the library.
    #[must_use]
    pub fn new() -> Self {
        Registry(policies::all())
    }

    /// Adds one; it hides one that was there under its name.
    pub fn add(&mut self, entry: Entry) {
        self.0.retain(|old| old.offer.name != entry.offer.name);
        self.0.push(entry);
    }

    /// What is called that.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Entry> {
        // A program's own go before those of the library, whose other names they may have.
        self.0.iter().rev().find(|entry| entry.offer.is_called(name))
    }

    /// Every one.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// What can be chosen.
    #[must_use]
    pub fn offers(&self) -> Vec<Offer> {
        self.0.iter().map(|entry| entry.offer).collect()
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
    use crate::policies::Single;

    #[test]
    fn no_two_policies_answer_to_one_name_and_every_default_fits() {
        let registry = Registry::new();
        let mut names: Vec<&str> = Vec::new();
        for Entry { offer, .. } in registry.entries() {
            names.push(offer.name);
            names.extend(offer.aliases);
            let settled = offer.settle(&Choice::new(offer.name), "policy").unwrap();
            assert_eq!(
                settled.params.len(),
                offer.params.len(),
                "{}: a default does not fit",
                offer.name
            );
            assert!(!offer.about.is_empty() && !offer.cites.is_empty(), "{}", offer.name);
        }
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_programs_own_policy_hides_one_of_its_name() {
        let mut registry = Registry::new();
        let offer = Offer { about: "mine", ..registry.find("single").unwrap().offer };
        let before = registry.entries().count();
        registry.add(Entry::new(offer, |_| Single));
        assert_eq!(registry.entries().count(), before);
        assert_eq!(registry.find("fifo").unwrap().offer.about, "mine");
    }
}
