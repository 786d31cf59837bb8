//! A worker's cache: emptied storage of chunks, by type, kept by the worker that emptied it.
//! The source or stage it visits next fills what is still in its cache instead of memory that
//! another core has written last. What does not fit goes to the free list of the queue it came
//! from, where workers that only send find it.

use std::any::{Any, TypeId};

use comporta_model::chunk::{Slots, chunk_capacity};

/// Storage kept for each type of event.
const SHELF_MAX: usize = 4;
/// Types of events kept in mind.
const TYPES_MAX: usize = 16;

#[derive(Default)]
pub(crate) struct ChunkCache {
    /// For each type, a `Vec<Slots<T>>`.
    types: Vec<(TypeId, Box<dyn Any + Send>)>,
}

impl ChunkCache {
    fn of<T: Send + 'static>(&mut self) -> Option<&mut Vec<Slots<T>>> {
        let wanted = TypeId::of::<T>();
        let (_, kept) = self.types.iter_mut().find(|(kept, _)| *kept == wanted)?;
        kept.downcast_mut()
    }

    #[inline]
    pub(crate) fn is_empty<T: Send + 'static>(&mut self) -> bool {
        self.types.is_empty() || self.of::<T>().is_none_or(|kept| kept.is_empty())
    }

    /// Keeps storage of full size; gives back what it does not keep.
    #[inline]
    pub(crate) fn put<T: Send + 'static>(&mut self, storage: Slots<T>) -> Option<Slots<T>> {
        if storage.capacity() < chunk_capacity::<T>() {
            return Some(storage);
        }
        self.put_full(storage)
    }

    fn put_full<T: Send + 'static>(&mut self, storage: Slots<T>) -> Option<Slots<T>> {
        if self.of::<T>().is_none() && self.types.len() < TYPES_MAX {
            let kept: Vec<Slots<T>> = Vec::with_capacity(SHELF_MAX);
            self.types.push((TypeId::of::<T>(), Box::new(kept)));
        }
        match self.of::<T>() {
            Some(kept) if kept.len() < SHELF_MAX => {
                kept.push(storage);
                None
            }
            _ => Some(storage),
        }
    }

    /// Storage, the last used first; none allocated if there is none.
    pub(crate) fn take<T: Send + 'static>(&mut self) -> Slots<T> {
        self.of::<T>().and_then(Vec::pop).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_used_storage_of_a_type_comes_first_and_only_so_much_is_kept() {
        let mut cache = ChunkCache::default();
        let full = chunk_capacity::<u64>();
        assert_eq!(cache.put(Slots::<u64>::with_capacity(1)).map(|s| s.capacity()), Some(1));
        for extra in 0..SHELF_MAX {
            assert!(cache.put(Slots::<u64>::with_capacity(full + extra)).is_none());
        }
        assert!(cache.put(Slots::<u64>::with_capacity(full)).is_some());
        assert!(cache.is_empty::<u32>() && !cache.is_empty::<u64>());
        assert_eq!(cache.take::<u64>().capacity(), full + SHELF_MAX - 1);
        assert_eq!(cache.take::<u32>().capacity(), 0);
    }
}
