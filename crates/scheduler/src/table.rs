//! A table whose keys are never reused: each names a place and the generation of what stood there,
//! so that a key outlives its entry without ever naming another. Serves the handler repository and
//! the observer's sources.

/// Names an entry of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    place: u32,
    generation: u32,
}

impl Key {
    /// The place alone: enough where an entry that is gone cannot be named.
    #[inline]
    pub(crate) fn place(self) -> usize {
        self.place as usize
    }
}

pub(crate) struct Table<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

struct Place<T> {
    generation: u32,
    entry: Option<T>,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Table<T> {
        Table { places: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, entry: T) -> Key {
        self.insert_with(|_| entry)
    }

    /// Inserts an entry that knows its key.
    pub(crate) fn insert_with(&mut self, entry: impl FnOnce(Key) -> T) -> Key {
        let place = self.free.pop().unwrap_or_else(|| {
            let place = u32::try_from(self.places.len()).expect("tables are bounded far below");
            self.places.push(Place { generation: 0, entry: None });
            place
        });
        let at = &mut self.places[place as usize];
        let key = Key { place, generation: at.generation };
        at.entry = Some(entry(key));
        key
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let at = self.places.get_mut(key.place()).filter(|at| at.generation == key.generation)?;
        let entry = at.entry.take()?;
        at.generation = at.generation.wrapping_add(1);
        self.free.push(key.place);
        Some(entry)
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let at = self.places.get(key.place())?;
        if at.generation == key.generation { at.entry.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let at = self.places.get_mut(key.place())?;
        if at.generation == key.generation { at.entry.as_mut() } else { None }
    }

    /// What stands at a place now, whatever its generation.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> Option<&T> {
        match self.places.get(place) {
            Some(Place { entry: Some(entry), .. }) => Some(entry),
            _ => None,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|at| at.entry.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_never_names_the_successor_of_its_entry() {
        let mut table = Table::new();
        let old = table.insert('a');
        assert_eq!(table.remove(old), Some('a'));
        let new = table.insert('b');
        assert_eq!(old.place(), new.place());
        assert_eq!((table.get(old), table.get(new)), (None, Some(&'b')));
        assert_eq!(table.remove(old), None);
        assert_eq!(table.iter().collect::<Vec<_>>(), [&'b']);
    }
}
