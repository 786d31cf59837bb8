//! What happens next: moments in order, and of one moment in the order in which they were set.
//!
//! A moment is one number, `time | order | slot`, so that the heap compares and moves 16 bytes; what
//! happens then lies in a slot beside it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const SLOT_BITS: u32 = 24;
const ORDER_BITS: u32 = 40;
/// What may be under way at once.
pub(crate) const SLOTS_MAX: usize = 1 << SLOT_BITS;

#[derive(Debug)]
pub(crate) struct Calendar<T> {
    heap: BinaryHeap<Reverse<u128>>,
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    order: u64,
    most: usize,
    is_overfull: bool,
}

impl<T> Calendar<T> {
    pub(crate) fn new() -> Self {
        Calendar::with_bound(SLOTS_MAX)
    }

    fn with_bound(most: usize) -> Self {
        Calendar {
            heap: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            order: 0,
            most,
            is_overfull: false,
        }
    }

    /// Returns `true` if something did not find room, and will not happen: the run is not to be trusted.
    pub(crate) fn is_overfull(&self) -> bool {
        self.is_overfull
    }

    /// Something will happen at that time, unless `SLOTS_MAX` things are under way.
    pub(crate) fn set(&mut self, time: u64, what: T) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(what);
                slot
            }
            None if self.slots.len() == self.most => {
                self.is_overfull = true;
                return;
            }
            None => {
                self.slots.push(Some(what));
                (self.slots.len() - 1) as u32
            }
        };
        let order = self.order & ((1 << ORDER_BITS) - 1);
        self.order += 1;
        let key = u128::from(time) << 64 | u128::from(order) << SLOT_BITS | u128::from(slot);
        self.heap.push(Reverse(key));
    }

    /// Takes what happens next, if it does before `end` or then.
    pub(crate) fn next(&mut self, end: u64) -> Option<(u64, T)> {
        let Reverse(key) = *self.heap.peek()?;
        let time = (key >> 64) as u64;
        if time > end {
            return None;
        }
        self.heap.pop();
        let slot = (key as u32) & (SLOTS_MAX as u32 - 1);
        self.free.push(slot);
        let what = self.slots[slot as usize].take();
        Some((time, what.expect("a slot is full while its moment is in the heap")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_in_order_and_equal_ones_in_the_order_they_were_set() {
        let mut calendar = Calendar::new();
        for (time, what) in [(5, 'c'), (3, 'a'), (5, 'd'), (4, 'b'), (u64::MAX, 'z')] {
            calendar.set(time, what);
        }
        let all: String = std::iter::from_fn(|| calendar.next(5)).map(|(_, what)| what).collect();
        assert_eq!(all, "abcd");
        assert_eq!(calendar.next(u64::MAX), Some((u64::MAX, 'z')));
        assert_eq!(calendar.next(u64::MAX), None);
    }

    #[test]
    fn what_finds_no_room_is_reported_and_does_not_happen() {
        let mut calendar = Calendar::with_bound(2);
        calendar.set(1, 'a');
        calendar.set(2, 'b');
        assert!(!calendar.is_overfull());
        calendar.set(0, 'c');
        assert!(calendar.is_overfull());
        assert_eq!((calendar.next(9), calendar.next(9)), (Some((1, 'a')), Some((2, 'b'))));
        assert_eq!(calendar.next(9), None);
    }

    #[test]
    fn slots_are_used_again() {
        let mut calendar = Calendar::new();
        for time in 0..1000 {
            calendar.set(time, time);
            assert_eq!(calendar.next(time), Some((time, time)));
        }
        assert_eq!(calendar.slots.len(), 1);
    }
}
