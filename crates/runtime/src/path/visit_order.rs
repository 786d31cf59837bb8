//! The visit order: which stage a worker comes to next. Part of hop 4, under the lock of the
//! pool's shared queue.
//!
//! A worker stands at a place of the order, its *focus*. It stays while events last (at most as many
//! as the policy allows; at a source, for one batch), then goes to the next place, from the last to
//! the first, or, if its visit processed an event and the policy says so, to the restart index. Places
//! without events are passed over at once, with the help of a map of those that have some; coming to
//! the last place fires once for a round of all workers. A round without an event is over at once.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use crate::sync::Arc;

/// The visit order and its rules; replaced as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct VisitOrder {
    /// Tells workers that the order is a new one, and their cursors are not.
    pub(crate) epoch: u64,
    order: Vec<u32>,
    /// For each stage, in the order of first mention: its places.
    places: Vec<Vec<usize>>,
    /// The number of each stage in `places`.
    numbers: HashMap<u32, usize>,
    /// Where a worker goes after a visit that processed an event.
    pub(crate) restart: Option<usize>,
    /// The most events of one visit, for stages that have a bound of their own.
    most: HashMap<u32, usize>,
    /// The most events of one visit elsewhere, if that has a bound.
    pub(crate) most_else: Option<usize>,
    /// Sources: they never run out, and are visited for a batch.
    pub(crate) sources: Vec<u32>,
    pub(crate) fires_last_focused: bool,
    /// After how many places come to it fires, if ever.
    pub(crate) max_visits: Option<NonZeroUsize>,
}

impl VisitOrder {
    pub(crate) fn new(order: Vec<u32>) -> Self {
        let mut visit_order = VisitOrder::default();
        visit_order.set_order(order);
        visit_order
    }

    pub(crate) fn set_order(&mut self, order: Vec<u32>) {
        self.places.clear();
        self.numbers.clear();
        for (place, stage) in order.iter().enumerate() {
            let next = self.places.len();
            let number = *self.numbers.entry(*stage).or_insert(next);
            if number == next {
                self.places.push(Vec::new());
            }
            self.places[number].push(place);
        }
        self.order = order;
    }

    /// Whether this is the order.
    pub(crate) fn is(&self, order: &[u32]) -> bool {
        self.order == order
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn set_most(&mut self, stage: u32, events: usize) {
        self.most.insert(stage, events);
    }

    pub(crate) fn set_most_everywhere(&mut self, events: usize) {
        self.most.clear();
        self.most_else = Some(events);
    }

    /// The most events of one visit, if there is a bound.
    fn most(&self, stage: u32) -> Option<usize> {
        self.most.get(&stage).copied().or(self.most_else)
    }
}

/// Where a worker stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    /// Of the order it is on; 0 before the first.
    epoch: u64,
    at: usize,
    /// It has been sent to the place, rather than being about to look there.
    focused: bool,
    /// Events it has processed at this place.
    pub(crate) spent: usize,
}

/// What a step along the order reports to the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fired {
    pub(crate) last_focused: bool,
    /// So often.
    pub(crate) max_visits: usize,
}

impl Fired {
    pub(crate) fn add(&mut self, more: Fired) {
        self.last_focused |= more.last_focused;
        self.max_visits += more.max_visits;
    }

    pub(crate) fn any(self) -> bool {
        self.last_focused || self.max_visits > 0
    }
}

/// The visit order of a group, and what waits along it.
pub(crate) struct OrderedTokens {
    visit_order: Arc<VisitOrder>,
    /// Tokens of each stage, by its number.
    tokens: Vec<usize>,
    /// A bit for each place: whether its stage has tokens.
    map: Vec<u64>,
    /// Arrivals at the last place in this round of all workers.
    arrivals: usize,
    /// Places come to since this last fired.
    visits: usize,
}

impl OrderedTokens {
    /// On this visit_order. What the workers have come to so far counts on, but if the order is a new
    /// one they all begin a new round.
    pub(crate) fn new(visit_order: Arc<VisitOrder>, before: Option<OrderedTokens>) -> Self {
        let same =
            before.as_ref().is_some_and(|before| before.visit_order.order == visit_order.order);
        OrderedTokens {
            tokens: vec![0; visit_order.places.len()],
            map: vec![0; visit_order.order.len().div_ceil(64)],
            arrivals: before.as_ref().filter(|_| same).map_or(0, |before| before.arrivals),
            visits: before.map_or(0, |before| before.visits),
            visit_order,
        }
    }

    /// Adds a token of a stage; returns whether the stage is on this visit_order.
    pub(crate) fn add(&mut self, stage: u32) -> bool {
        let Some(&number) = self.visit_order.numbers.get(&stage) else { return false };
        self.tokens[number] += 1;
        if self.tokens[number] == 1 {
            for place in &self.visit_order.places[number] {
                self.map[place / 64] |= 1 << (place % 64);
            }
        }
        true
    }

    fn take(&mut self, number: usize) {
        self.tokens[number] -= 1;
        if self.tokens[number] == 0 {
            for place in &self.visit_order.places[number] {
                self.map[place / 64] &= !(1 << (place % 64));
            }
        }
    }

    /// Takes out the tokens of a stage; returns how many there were.
    pub(crate) fn take_stage(&mut self, stage: u32) -> usize {
        let Some(&number) = self.visit_order.numbers.get(&stage) else { return 0 };
        let tokens = self.tokens[number];
        (0..tokens).for_each(|_| self.take(number));
        tokens
    }

    /// The stage of every token.
    pub(crate) fn drain(&mut self) -> Vec<u32> {
        let stages = self.visit_order.numbers.iter().map(|(stage, number)| (*number, *stage));
        let mut stages: Vec<_> = stages.collect();
        stages.sort_unstable();
        self.map.fill(0);
        let mut all = Vec::new();
        for (number, stage) in stages {
            let tokens = std::mem::take(&mut self.tokens[number]);
            all.extend(std::iter::repeat_n(stage, tokens));
        }
        all
    }

    /// The first place from `from` on that has tokens, turning back to the first at the end.
    fn next_from(&self, from: usize) -> Option<usize> {
        let word = |at: usize| self.map.get(at).copied().unwrap_or(0);
        let words = self.map.len();
        let (first, bit) = (from / 64, from % 64);
        let rest = word(first) & (u64::MAX << bit);
        if rest != 0 {
            return Some(first * 64 + rest.trailing_zeros() as usize);
        }
        (1..=words).map(|i| (first + i) % words.max(1)).find_map(|at| {
            let bits = word(at);
            (bits != 0).then(|| at * 64 + bits.trailing_zeros() as usize)
        })
    }

    /// A worker's next stage, if any has events, and how many it may take there, if that is bounded.
    pub(crate) fn step(
        &mut self,
        cursor: &mut Cursor,
        workers: usize,
        fired: &mut Fired,
    ) -> Option<(u32, Option<NonZeroUsize>)> {
        let visit_order = self.visit_order.clone();
        if visit_order.len() == 0 {
            return None; // a cluster without stages
        }
        if cursor.epoch != visit_order.epoch {
            *cursor = Cursor { epoch: visit_order.epoch, ..Cursor::default() };
        }
        let from = if cursor.focused {
            let stage = visit_order.order[cursor.at];
            let number = visit_order.numbers[&stage];
            let most = visit_order.most(stage);
            let left = most.map(|most| most.saturating_sub(cursor.spent));
            let stays =
                self.tokens[number] > 0 && left != Some(0) && !visit_order.sources.contains(&stage);
            if stays {
                self.take(number);
                return Some((stage, left.and_then(NonZeroUsize::new)));
            }
            match visit_order.restart {
                Some(index) if cursor.spent > 0 => index,
                _ => (cursor.at + 1) % visit_order.len(),
            }
        } else {
            cursor.at
        };
        let place = self.next_from(from);
        let last = visit_order.len() - 1;
        let passed = match place {
            Some(place) => (place + visit_order.len() - from) % visit_order.len() + 1,
            None => visit_order.len(),
        };
        self.visits += passed;
        if let Some(max_visits) = visit_order.max_visits {
            fired.max_visits += self.visits / max_visits;
            self.visits %= max_visits;
        }
        if from + passed > last {
            fired.last_focused |= visit_order.fires_last_focused && self.arrivals == 0;
            self.arrivals = (self.arrivals + 1) % workers.max(1);
        }
        let Some(place) = place else {
            *cursor = Cursor { epoch: visit_order.epoch, ..Cursor::default() };
            return None;
        };
        let stage = visit_order.order[place];
        *cursor = Cursor { epoch: visit_order.epoch, at: place, focused: true, spent: 0 };
        self.take(visit_order.numbers[&stage]);
        Some((stage, visit_order.most(stage).and_then(NonZeroUsize::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A walk by one worker, whose visits each process what their token stands for: one event.
    struct Alone {
        by_order: OrderedTokens,
        cursor: Cursor,
        fired: Fired,
    }

    impl Alone {
        fn new(order: &[u32], rule: impl FnOnce(&mut VisitOrder)) -> Self {
            let mut visit_order = VisitOrder { epoch: 1, ..VisitOrder::new(order.to_vec()) };
            rule(&mut visit_order);
            let by_order = OrderedTokens::new(Arc::new(visit_order), None);
            Alone { by_order, cursor: Cursor::default(), fired: Fired::default() }
        }

        fn with(mut self, tokens: &[(u32, usize)]) -> Self {
            for (stage, n) in tokens {
                (0..*n).for_each(|_| assert!(self.by_order.add(*stage)));
            }
            self
        }

        fn step(&mut self) -> Option<u32> {
            self.fired = Fired::default();
            let (stage, _) = self.by_order.step(&mut self.cursor, 1, &mut self.fired)?;
            self.cursor.spent += 1;
            Some(stage)
        }

        fn steps(&mut self) -> Vec<u32> {
            std::iter::from_fn(|| self.step()).collect()
        }
    }

    #[test]
    fn a_worker_stays_while_events_last_and_goes_on_in_order() {
        let mut alone = Alone::new(&[1, 2, 3, 2], |_| ()).with(&[(3, 2), (1, 2), (2, 1)]);
        assert_eq!(alone.steps(), [1, 1, 2, 3, 3]);
        let mut alone = alone.with(&[(2, 1), (1, 1)]);
        assert_eq!(alone.steps(), [1, 2]); // after an empty round it begins at the first place
    }

    #[test]
    fn a_bound_on_events_ends_a_visit() {
        let mut alone = Alone::new(&[1, 2], |visit_order| {
            visit_order.most_else = Some(1);
            visit_order.set_most(2, 2);
        })
        .with(&[(1, 3), (2, 3)]);
        assert_eq!(alone.steps(), [1, 2, 2, 1, 2, 1]);
    }

    #[test]
    fn a_source_is_visited_for_one_batch() {
        let mut alone = Alone::new(&[1, 2], |visit_order| visit_order.sources = vec![1])
            .with(&[(1, 2), (2, 2)]);
        assert_eq!(alone.steps(), [1, 2, 2, 1]);
    }

    #[test]
    fn after_a_success_a_worker_restarts_where_it_is_told() {
        let mut alone = Alone::new(&[3, 2, 1], |visit_order| visit_order.restart = Some(0))
            .with(&[(1, 1), (2, 1)]);
        assert_eq!(alone.step(), Some(2));
        let mut alone = alone.with(&[(3, 1)]);
        assert_eq!(alone.steps(), [3, 1]);
    }

    #[test]
    fn the_last_place_fires_when_it_is_come_to_or_passed() {
        let rule = |visit_order: &mut VisitOrder| visit_order.fires_last_focused = true;
        let mut alone = Alone::new(&[1, 2, 3], rule).with(&[(2, 1), (3, 1)]);
        assert_eq!((alone.step(), alone.fired.last_focused), (Some(2), false));
        assert_eq!((alone.step(), alone.fired.last_focused), (Some(3), true));
        let mut alone = alone.with(&[(2, 1)]);
        assert_eq!((alone.step(), alone.fired.last_focused), (Some(2), false));
        let mut alone = alone.with(&[(1, 1)]);
        assert_eq!((alone.step(), alone.fired.last_focused), (Some(1), true)); // past 3
        assert_eq!((alone.step(), alone.fired.last_focused), (None, true)); // an empty round
    }

    #[test]
    fn the_last_place_fires_once_for_a_round_of_all_workers() {
        let mut visit_order = VisitOrder { epoch: 1, ..VisitOrder::new(vec![1, 2]) };
        visit_order.fires_last_focused = true;
        let mut by_order = OrderedTokens::new(Arc::new(visit_order), None);
        let mut cursors = [Cursor::default(); 3];
        let mut fires = Vec::new();
        for round in 0..2 {
            for cursor in &mut cursors {
                let mut fired = Fired::default();
                assert_eq!(by_order.step(cursor, 3, &mut fired), None);
                fires.push((round, fired.last_focused));
            }
        }
        let expected = [(0, true), (0, false), (0, false), (1, true), (1, false), (1, false)];
        assert_eq!(fires, expected);
    }

    #[test]
    fn places_come_to_are_counted_empty_ones_too() {
        let mut alone =
            Alone::new(&[1, 2, 3, 4], |visit_order| visit_order.max_visits = NonZeroUsize::new(5))
                .with(&[(3, 1)]);
        assert_eq!((alone.step(), alone.fired.max_visits), (Some(3), 0)); // 1, 2, 3
        assert_eq!((alone.step(), alone.fired.max_visits), (None, 1)); // and a round of 4
    }

    #[test]
    fn a_step_past_several_multiples_fires_for_each() {
        let mut alone = Alone::new(&[1, 2, 3, 4, 5], |visit_order| {
            visit_order.max_visits = NonZeroUsize::new(2);
        })
        .with(&[(5, 1)]);
        assert_eq!((alone.step(), alone.fired.max_visits), (Some(5), 2)); // 1 2, 3 4, and 5
        assert_eq!((alone.step(), alone.fired.max_visits), (None, 3)); // 1, 2 3, 4 5
    }

    #[test]
    fn the_map_finds_the_next_place_among_many() {
        let order: Vec<u32> = (0..1000).collect();
        let mut alone = Alone::new(&order, |_| ()).with(&[(999, 1), (64, 1), (63, 1), (500, 1)]);
        assert_eq!(alone.steps(), [63, 64, 500, 999]);
        assert!(alone.by_order.map.iter().all(|word| *word == 0));
    }
}
