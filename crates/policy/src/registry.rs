//! Policies and admission controllers by name: those of the library, and those of a program.

use std::fmt;
use std::sync::Arc;

use comporta_model::plan::{Choice, Offer};

use crate::policies;
use crate::policy::Policy;

/// How to make something from a choice whose parameters are validated.
type Make<T> = Arc<dyn Fn(&Choice) -> Box<T> + Send + Sync>;

/// A policy or an admission controller that can be chosen by name.
pub struct Named<T: ?Sized> {
    /// Its description and parameters.
    pub offer: Offer,
    make: Make<T>,
}

/// A policy that can be chosen.
pub type Entry = Named<dyn Policy>;

impl Entry {
    /// Creates an entry for a policy, which `make` makes from a choice with every parameter set.
    pub fn new<P: Policy + 'static>(
        offer: Offer,
        make: impl Fn(&Choice) -> P + Send + Sync + 'static,
    ) -> Self {
        Self::boxed(offer, move |choice| Box::new(make(choice)))
    }
}

impl<T: ?Sized> Named<T> {
    pub(crate) fn boxed(
        offer: Offer,
        make: impl Fn(&Choice) -> Box<T> + Send + Sync + 'static,
    ) -> Self {
        Named { offer, make: Arc::new(make) }
    }

    /// Makes the policy or controller.
    #[must_use]
    pub fn make(&self, validated: &Choice) -> Box<T> {
        (self.make)(validated)
    }
}

impl<T: ?Sized> Clone for Named<T> {
    fn clone(&self) -> Self {
        Named { offer: self.offer, make: self.make.clone() }
    }
}

impl<T: ?Sized> fmt::Debug for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.offer.name).finish()
    }
}

/// A registry by name.
#[derive(Clone, Debug)]
pub struct Names<T: ?Sized>(Vec<Named<T>>);

/// The policies of a program, by name. The first is the default.
pub type Registry = Names<dyn Policy>;

impl Registry {
    /// Returns the policies of the library.
    #[must_use]
    pub fn new() -> Self {
        Names::of(policies::all())
    }
}

impl Default for Registry {
    fn default() -> Self {
        Registry::new()
    }
}

impl<T: ?Sized> Names<T> {
    pub(crate) fn of(entries: Vec<Named<T>>) -> Self {
        Names(entries)
    }

    /// Adds an entry. It hides an earlier one of the same name.
    pub fn add(&mut self, entry: Named<T>) {
        self.0.retain(|old| old.offer.name != entry.offer.name);
        self.0.push(entry);
    }

    /// Returns the entry with this name or alias.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Named<T>> {
        // A program's own go before those of the library, whose other names they may have.
        self.0.iter().rev().find(|entry| entry.offer.is_called(name))
    }

    /// Returns all entries.
    pub fn entries(&self) -> impl Iterator<Item = &Named<T>> {
        self.0.iter()
    }

    /// Returns the descriptions of all entries.
    #[must_use]
    pub fn offers(&self) -> Vec<Offer> {
        self.0.iter().map(|entry| entry.offer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission;
    use crate::policies::Single;

    /// No two answer to one name, and every default fits.
    fn is_sound<T: ?Sized>(registry: &Names<T>) {
        let mut names: Vec<&str> = Vec::new();
        for Named { offer, .. } in registry.entries() {
            names.push(offer.name);
            names.extend(offer.aliases);
            let validated = offer.validate(&Choice::new(offer.name), "policy").unwrap();
            assert_eq!(
                validated.params.len(),
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
    fn no_two_policies_answer_to_one_name_and_every_default_fits() {
        is_sound(&Registry::new());
    }

    #[test]
    fn no_two_admission_controllers_answer_to_one_name_and_every_default_fits() {
        is_sound(&admission::Registry::new());
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
