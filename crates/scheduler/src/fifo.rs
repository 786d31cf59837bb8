//! A queue, first in, first out, that is cheap while it holds one item: the ready queue and the lists of
//! handlers that wait for one thing mostly do.
//! Invariant: `rest` is empty unless there is a `first`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

pub(crate) struct Fifo<T> {
    first: Cell<Option<T>>,
    rest: RefCell<VecDeque<T>>,
    /// How many `rest` holds.
    more: Cell<usize>,
}

impl<T> Fifo<T> {
    pub(crate) const fn new() -> Fifo<T> {
        Fifo { first: Cell::new(None), rest: RefCell::new(VecDeque::new()), more: Cell::new(0) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let first = self.first.take();
        let empty = first.is_none();
        self.first.set(first);
        empty
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(!self.is_empty()) + self.more.get()
    }

    #[inline]
    pub(crate) fn push(&self, item: T) {
        match self.first.take() {
            None => self.first.set(Some(item)),
            Some(first) => {
                self.first.set(Some(first));
                self.push_more(item);
            }
        }
    }

    #[cold]
    fn push_more(&self, item: T) {
        self.rest.borrow_mut().push_back(item);
        self.more.set(self.more.get() + 1);
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        let first = self.first.take()?;
        if self.more.get() > 0 {
            self.advance();
        }
        Some(first)
    }

    /// Takes the item out if there is only one.
    #[inline]
    pub(crate) fn pop_only(&self) -> Option<T> {
        if self.more.get() == 0 { self.first.take() } else { None }
    }

    /// Makes the next one the first, which was taken out.
    #[cold]
    fn advance(&self) {
        self.first.set(self.rest.borrow_mut().pop_front());
        self.more.set(self.more.get() - 1);
    }

    /// Takes out the first item for which `is_it` returns `true`.
    #[inline]
    pub(crate) fn remove_first(&self, mut is_it: impl FnMut(&T) -> bool) -> Option<T> {
        let first = self.first.take()?;
        if is_it(&first) {
            if self.more.get() > 0 {
                self.advance();
            }
            return Some(first);
        }
        self.first.set(Some(first));
        self.remove_further(is_it)
    }

    fn remove_further(&self, is_it: impl FnMut(&T) -> bool) -> Option<T> {
        let mut rest = self.rest.borrow_mut();
        let place = rest.iter().position(is_it)?;
        self.more.set(self.more.get() - 1);
        rest.remove(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Call {
        Push,
        Pop,
        Remove(usize),
    }

    fn call() -> impl Strategy<Value = Call> {
        prop_oneof![Just(Call::Push), Just(Call::Pop), (0..6_usize).prop_map(Call::Remove)]
    }

    proptest! {
        #[test]
        fn it_does_what_a_plain_queue_does(calls in prop::collection::vec(call(), 0..40)) {
            let (fifo, mut model) = (Fifo::new(), VecDeque::new());
            for (number, call) in calls.into_iter().enumerate() {
                match call {
                    Call::Push => {
                        fifo.push(number);
                        model.push_back(number);
                    }
                    Call::Pop => prop_assert_eq!(fifo.pop(), model.pop_front()),
                    Call::Remove(place) => {
                        let item = model.get(place).copied();
                        prop_assert_eq!(fifo.remove_first(|other| Some(*other) == item), model.remove(place));
                    }
                }
                prop_assert_eq!((fifo.is_empty(), fifo.len()), (model.is_empty(), model.len()));
            }
            prop_assert_eq!(std::iter::from_fn(|| fifo.pop()).collect::<Vec<_>>(), Vec::from(model));
        }
    }
}
