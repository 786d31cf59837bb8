//! Messages on their way and in queues, all in one place. The place that was left last is taken first, so that most messages
//! are in the cache, however many replicas there are; a queue of each replica's own would be a ring that goes
//! through memory of its own. A queue is a chain of places.

use std::num::NonZeroU32;

use super::parts::Message;

/// The place of a message: one more than its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(NonZeroU32);

impl Place {
    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A message and the place behind it: in a queue, or among those that are free. It fills a line of the cache.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    message: Message,
    next: Option<Place>,
}

/// Every message.
#[derive(Debug, Default)]
pub(super) struct Mail {
    entries: Vec<Entry>,
    /// The place that was left last.
    free: Option<Place>,
}

impl Mail {
    pub(super) fn put(&mut self, message: Message) -> Place {
        let Some(place) = self.free else {
            self.entries.push(Entry { message, next: None });
            let last = u32::try_from(self.entries.len()).ok().and_then(NonZeroU32::new);
            return Place(last.expect("memory ends before the places do"));
        };
        let entry = &mut self.entries[place.index()];
        self.free = entry.next.take();
        entry.message = message;
        place
    }

    pub(super) fn take(&mut self, place: Place) -> Message {
        let entry = &mut self.entries[place.index()];
        entry.next = self.free.replace(place);
        entry.message
    }
}

/// Messages in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ends: Option<(Place, Place)>,
    len: u32,
}

impl Queue {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push(&mut self, mail: &mut Mail, message: Message) {
        let place = mail.put(message);
        self.ends = match self.ends {
            None => Some((place, place)),
            Some((first, last)) => {
                mail.entries[last.index()].next = Some(place);
                Some((first, place))
            }
        };
        self.len += 1;
    }

    pub(super) fn pop(&mut self, mail: &mut Mail) -> Option<Message> {
        let (first, last) = self.ends?;
        let next = mail.entries[first.index()].next;
        self.ends = next.map(|next| (next, last));
        self.len -= 1;
        Some(mail.take(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn message(number: u32) -> Message {
        let (entered, before, sent) = (0, (0, 0), (0, 0));
        Message { number, stream: 0, sender: 0, ticket: 0, entered, before, sent }
    }

    #[test]
    fn queues_that_share_places_do_what_queues_of_their_own_do() {
        let mut dice = comporta_stats::Dice::new(1);
        let mut mail = Mail::default();
        let mut queues: [(Queue, VecDeque<u32>); 3] = Default::default();
        for number in 0..10_000 {
            let (queue, model) = &mut queues[(dice.next() % 3) as usize];
            if dice.next().is_multiple_of(2) {
                queue.push(&mut mail, message(number));
                model.push_back(number);
            } else {
                let popped = queue.pop(&mut mail).map(|message| message.number);
                assert_eq!(popped, model.pop_front());
            }
            assert_eq!((queue.len() as usize, queue.is_empty()), (model.len(), model.is_empty()));
        }
        let left: usize = queues.iter().map(|(_, model)| model.len()).sum();
        assert!(mail.entries.len() < 1_000, "{left} messages are left");
    }

    #[test]
    fn the_place_that_was_left_last_is_taken_first() {
        let mut mail = Mail::default();
        let places = [0, 1, 2].map(|number| mail.put(message(number)));
        assert_eq!(mail.take(places[0]).number, 0);
        assert_eq!(mail.take(places[2]).number, 2);
        assert_eq!([mail.put(message(3)), mail.put(message(4))], [places[2], places[0]]);
        assert_eq!(mail.entries.len(), 3);
    }
}
