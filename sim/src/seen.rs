//! The first copy of an event passes, later ones do not: a window of sequence numbers.
//!
//! A mark of the highest number seen would not do: replicas overtake each other, and if the fast one
//! fails event 4 and goes on to 9, the slow one's 4 is the only one there is.
//! Invariant: the front of the window is the oldest number of which a copy is missing.

use std::collections::VecDeque;

/// Numbers that a window holds at most. A copy that is further behind is taken for one that was seen;
/// at 600 events a second that is seven minutes.
const WINDOW_MAX: usize = 1 << 18;

/// What a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    /// The first: it passes.
    First,
    /// Another.
    Again,
    /// The last of as many as there are replicas, where there are several. An only copy is the first.
    Last,
    /// Behind the window.
    Late,
}

/// The copies of one stream that have come.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    copies: u8,
    front: u32,
    counts: VecDeque<u8>,
}

impl Seen {
    /// Of a stream with so many copies of each event.
    pub(crate) fn new(copies: u8) -> Self {
        Seen { copies, front: 0, counts: VecDeque::new() }
    }

    /// Takes note of a copy.
    pub(crate) fn note(&mut self, number: u32) -> Copy {
        let Some(at) = number.checked_sub(self.front) else { return Copy::Late };
        let at = at as usize;
        if at >= self.counts.len() {
            if self.counts.is_empty() && at > WINDOW_MAX {
                self.front = number; // far ahead of all that was: nothing lies between that we know of
                return self.note(number);
            }
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        let count = self.counts[at];
        while self.counts.front() == Some(&self.copies) || self.counts.len() > WINDOW_MAX {
            self.counts.pop_front();
            self.front += 1;
        }
        match count {
            1 => Copy::First,
            count if count >= self.copies => Copy::Last,
            _ => Copy::Again,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_replicas_copy_passes_if_the_fast_one_failed_it() {
        let mut seen = Seen::new(2);
        for number in [0, 1, 2, 3, 5, 6, 7] {
            assert_eq!(seen.note(number), Copy::First);
        }
        for number in [0, 1, 2, 3] {
            assert_eq!(seen.note(number), Copy::Last);
        }
        assert_eq!(seen.note(4), Copy::First);
        assert_eq!(seen.note(5), Copy::Last);
    }

    #[test]
    fn copies_in_any_order_pass_once() {
        let mut seen = Seen::new(2);
        let order = [3, 1, 3, 0, 2, 1, 0, 2];
        let passed: Vec<u32> =
            order.into_iter().filter(|number| seen.note(*number) == Copy::First).collect();
        assert_eq!(passed, [3, 1, 0, 2]);
        assert!(seen.counts.is_empty(), "all copies came: nothing is remembered");
        assert_eq!(seen.note(1), Copy::Late);
    }

    #[test]
    fn of_three_copies_the_third_is_the_last() {
        let mut seen = Seen::new(3);
        assert_eq!(
            [seen.note(0), seen.note(0), seen.note(0)],
            [Copy::First, Copy::Again, Copy::Last]
        );
    }

    #[test]
    fn a_window_is_bounded_even_if_a_copy_never_comes() {
        let mut seen = Seen::new(2);
        for number in 0..2 * WINDOW_MAX as u32 {
            seen.note(number);
        }
        assert!(seen.counts.len() <= WINDOW_MAX);
        assert_eq!(seen.note(0), Copy::Late);
    }

    #[test]
    fn a_number_far_ahead_does_not_fill_memory() {
        let mut seen = Seen::new(2);
        assert_eq!(seen.note(u32::MAX - 1), Copy::First);
        assert_eq!(seen.counts.len(), 1);
    }
}
