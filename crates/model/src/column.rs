//! Data that travels with each event of a chunk: columns, present only where they are needed. Most chunks have
//! none: data that all their events share stands in their `Meta`.
//! Invariant: a column is empty, which means the default for every event, or as long as its chunk.
//! Chunks are cut and joined in many places: `Columns` cuts and joins all columns of a chunk at once.
//! Long because of its tests.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::ack::{AckGroup, Because, Fate, Obligation};
use crate::event::Time;
use crate::keyed::LaneRef;

/// The deadline of an event, and the acknowledgement group that waits for it.
#[derive(Clone, Debug, Default)]
pub struct Duty {
    /// The deadline, if there is one.
    pub deadline: Option<Time>,
    /// The group that waits until everything that the event leads to has settled.
    pub ack: Option<Arc<AckGroup>>,
}

impl PartialEq for Duty {
    #[inline]
    fn eq(&self, other: &Duty) -> bool {
        let same_group = match (&self.ack, &other.ack) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        same_group && self.deadline == other.deadline
    }
}

impl Duty {
    /// `n` events of it have come into being.
    #[inline]
    pub fn join(&self, n: usize) {
        if let Some(group) = &self.ack {
            group.join(n as u64);
        }
    }

    /// Tells whoever waits why an event of it is about to end badly.
    pub fn because(&self, why: &Because<'_>) {
        if let Some(group) = &self.ack {
            group.each_waiting(|waiting| waiting.because(why));
        }
    }

    /// Whether somebody waited for its events, and nobody does any more.
    #[must_use]
    pub fn is_over(&self, now: Time) -> bool {
        self.ack.as_ref().is_some_and(|group| group.is_over(now))
    }

    /// Forgets the deadline, if it has passed.
    pub fn forget_passed(&mut self, now: Time) {
        self.deadline.take_if(|deadline| *deadline <= now);
    }

    /// `n` events of it have ended.
    #[inline]
    pub fn settle(&self, n: usize, fate: Fate) {
        if let Some(group) = &self.ack {
            group.settle(n as u64, fate);
        }
    }
}

/// Identifies an event wherever it is: in a log, at the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// The producer that made it.
    pub producer: u32,
    /// The incarnation of the producer.
    pub incarnation: u32,
    /// Its number in that incarnation.
    pub seq: u64,
}

/// One value for each event of a row, as runs of equal values. Empty: the default for every event.
#[derive(Clone, Debug, PartialEq)]
pub struct Column<V> {
    runs: VecDeque<Run<V>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Run<V> {
    value: V,
    n: usize,
}

impl<V> Default for Column<V> {
    fn default() -> Self {
        Column { runs: VecDeque::new() }
    }
}

impl<V: Clone + Default + PartialEq> Column<V> {
    /// The same value for `n` events.
    #[must_use]
    pub fn same(value: V, n: usize) -> Self {
        let mut column = Column::default();
        column.extend(value, n);
        column
    }

    /// Whether every event has the default.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// `n` more events with this value.
    #[inline]
    pub fn extend(&mut self, value: V, n: usize) {
        match self.runs.back_mut() {
            _ if n == 0 => {}
            Some(last) if last.value == value => last.n += n,
            _ => self.runs.push_back(Run { value, n }),
        }
    }

    /// Takes the values out, each with how many events in a row have it, and keeps the storage.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = (V, usize)> {
        self.runs.drain(..).map(|run| (run.value, run.n))
    }

    /// The values, each with how many events in a row have it.
    pub fn runs(&self) -> impl Iterator<Item = (&V, usize)> {
        self.runs.iter().map(|run| (&run.value, run.n))
    }

    /// The value of the first event, and how many in a row have it.
    #[must_use]
    pub fn first(&self) -> Option<(&V, usize)> {
        self.runs.front().map(|run| (&run.value, run.n))
    }

    /// The value of the event at `at`, and where the run ends that it belongs to. The cursor goes forward.
    #[must_use]
    pub fn at(&self, at: usize, cursor: &mut Cursor) -> Option<(&V, usize)> {
        while let Some(run) = self.runs.get(cursor.run) {
            let end = cursor.start + run.n;
            if at < end {
                return Some((&run.value, end));
            }
            *cursor = Cursor { run: cursor.run + 1, start: end };
        }
        None
    }

    /// Removes the first `n` values and returns them.
    pub fn split_front(&mut self, mut n: usize) -> Self {
        let mut front = Column::default();
        while n > 0
            && let Some(run) = self.runs.front_mut()
        {
            if run.n <= n {
                n -= run.n;
                front.runs.extend(self.runs.pop_front());
            } else {
                run.n -= n;
                front.runs.push_back(Run { value: run.value.clone(), n });
                n = 0;
            }
        }
        front
    }

    /// Adds the values of `more` events to those of `len`.
    fn append(&mut self, len: usize, more: Self, more_len: usize) {
        if self.is_empty() && more.is_empty() {
            return;
        }
        if self.is_empty() {
            self.extend(V::default(), len);
        }
        if more.is_empty() {
            self.extend(V::default(), more_len);
        }
        for Run { value, n } in more.runs {
            self.extend(value, n);
        }
    }
}

/// A place in a column: the run it has come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    run: usize,
    start: usize,
}

/// The lane of each event of a row, if it has one; empty: of none. No runs: neighbours seldom have the same.
pub type Lanes = Vec<Option<LaneRef>>;

/// The columns of a chunk.
#[derive(Clone, Debug, Default)]
pub struct Columns(Option<Box<Table>>);

/// One column for each thing that an event may carry.
#[derive(Clone, Debug, Default)]
struct Table {
    duty: Column<Duty>,
    lane: Lanes,
    time: Column<Option<Time>>,
    id: Column<Option<Id>>,
}

impl Columns {
    /// What is owed for each event, where that differs from event to event.
    #[inline]
    #[must_use]
    pub fn of_duties(duty: Column<Duty>) -> Self {
        if duty.is_empty() {
            Columns::default()
        } else {
            Columns::default().with(|t| t.duty = duty)
        }
    }

    fn with(mut self, set: impl FnOnce(&mut Table)) -> Self {
        set(self.0.get_or_insert_default());
        self
    }

    /// Sets which lane the one event belongs to, if it belongs to one.
    pub fn set_lane(&mut self, lane: Option<LaneRef>) {
        if lane.is_some() || self.0.is_some() {
            self.0.get_or_insert_default().lane = lane.map(Some).into_iter().collect();
        }
    }

    /// Which lanes the events belong to, and when they happened.
    #[inline]
    pub fn lanes_and_times_mut(&mut self) -> (&mut Lanes, &mut Column<Option<Time>>) {
        let table = self.0.get_or_insert_default();
        (&mut table.lane, &mut table.time)
    }

    /// Takes out which lanes the events belong to.
    #[must_use]
    pub fn take_lanes(&mut self) -> Vec<LaneRef> {
        self.0.iter_mut().flat_map(|table| table.lane.drain(..)).flatten().collect()
    }

    /// Takes out when the events happened, one by one; nothing if nobody said.
    pub fn take_times(&mut self) -> impl Iterator<Item = Option<Time>> + use<> {
        let column = self.0.as_mut().map(|table| std::mem::take(&mut table.time));
        let runs = column.unwrap_or_default().runs.into_iter();
        runs.flat_map(|Run { value, n }| std::iter::repeat_n(value, n))
    }

    /// Whether events carry anything of their own beside their lanes and times.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|table| table.duty.is_empty() && table.id.is_empty())
    }

    /// Adds by what the events are known.
    pub fn set_ids(&mut self, ids: impl IntoIterator<Item = Id>) {
        let mut column = Column::default();
        ids.into_iter().for_each(|id| column.extend(Some(id), 1));
        self.0.get_or_insert_default().id = column;
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// What is owed for each event, if that differs from event to event.
    #[inline]
    #[must_use]
    pub fn duties(&self) -> Option<&Column<Duty>> {
        self.0.as_ref().map(|table| &table.duty).filter(|duty| !duty.is_empty())
    }

    /// Shows what is owed for each of `n` events, where it is `shared` unless a column says otherwise.
    #[inline]
    pub fn for_duties(&self, shared: &Duty, n: usize, mut see: impl FnMut(&Duty, usize)) {
        match self.duties() {
            None => see(shared, n),
            Some(duties) => duties.runs().for_each(|(duty, n)| see(duty, n)),
        }
    }

    /// The lane of each of `n` events.
    pub fn lanes(&self, n: usize) -> impl Iterator<Item = Option<LaneRef>> {
        let each = self.0.iter().flat_map(|table| table.lane.iter().cloned());
        each.chain(std::iter::repeat(None)).take(n)
    }

    /// By what each of `n` events is known.
    pub fn ids(&self, n: usize) -> impl Iterator<Item = Option<Id>> {
        values(self.0.iter().flat_map(|table| table.id.runs()), n)
    }

    /// What the event at `at` carries of its own, but for who waits for it.
    #[must_use]
    pub fn row(&self, at: usize) -> Self {
        let Some(table) = &self.0 else { return Columns::default() };
        let duty = table.duty.at(at, &mut Cursor::default()).map(|(duty, _)| duty.deadline);
        let lane = table.lane.get(at).cloned().flatten();
        let id = table.id.at(at, &mut Cursor::default()).and_then(|(id, _)| *id);
        if duty.is_none() && lane.is_none() && id.is_none() {
            return Columns::default();
        }
        let duty = duty.map(|deadline| Column::same(Duty { deadline, ack: None }, 1));
        let (lane, id) = (vec![lane], Column::same(id, 1));
        let (duty, time) = (duty.unwrap_or_default(), Column::default());
        Columns(Some(Box::new(Table { duty, lane, time, id })))
    }

    /// Forgets deadlines that have passed.
    pub fn forget_passed(&mut self, now: Time) {
        for run in self.0.iter_mut().flat_map(|table| &mut table.duty.runs) {
            run.value.forget_passed(now);
        }
    }

    /// What each event carries of its own, but for what is owed for it.
    #[must_use]
    pub fn without_duties(mut self) -> Self {
        if let Some(table) = &mut self.0 {
            table.duty = Column::default();
        }
        self
    }

    /// Removes the first `n` rows and returns them.
    #[inline]
    #[must_use]
    pub fn split_front(&mut self, n: usize) -> Self {
        if self.0.is_none() { Columns::default() } else { self.split_table(n) }
    }

    #[cold]
    fn split_table(&mut self, n: usize) -> Self {
        let Some(table) = &mut self.0 else { return Columns::default() };
        Columns(Some(Box::new(Table {
            duty: table.duty.split_front(n),
            lane: split_lanes(&mut table.lane, n),
            time: table.time.split_front(n),
            id: table.id.split_front(n),
        })))
    }

    /// The first `n` events are spent.
    #[inline]
    pub fn skip(&mut self, n: usize) {
        if self.0.is_some() {
            let _ = self.split_front(n);
        }
    }

    /// These events have ended: nothing is owed for them any more.
    pub(crate) fn settle_some(&mut self, ended: Range<usize>, fate: Fate) {
        let Some(table) = &mut self.0 else { return };
        let before = table.duty.split_front(ended.start);
        let settled = table.duty.split_front(ended.len());
        let after = std::mem::replace(&mut table.duty, before);
        settled.runs().for_each(|(duty, n)| duty.settle(n, fate));
        table.duty.extend(Duty::default(), ended.len());
        after.runs.into_iter().for_each(|run| table.duty.extend(run.value, run.n));
    }

    /// Adds the rows of `more` events to those of `len`.
    #[inline]
    pub fn append(&mut self, len: usize, more: Columns, more_len: usize) {
        if self.0.is_none() && more.0.is_none() {
            return;
        }
        let own = self.0.get_or_insert_default();
        let more = more.0.unwrap_or_default();
        own.duty.append(len, more.duty, more_len);
        append_lanes(&mut own.lane, len, more.lane, more_len);
        own.time.append(len, more.time, more_len);
        own.id.append(len, more.id, more_len);
    }

    /// Puts what all of `len` events owe into a column, so that others may join them.
    pub(crate) fn spread(&mut self, duty: Duty, len: usize) {
        let own = self.0.get_or_insert_default();
        if own.duty.is_empty() {
            own.duty.extend(duty, len);
        }
    }
}

/// Removes the first `n` lanes and returns them.
fn split_lanes(lanes: &mut Lanes, n: usize) -> Lanes {
    let rest = lanes.split_off(n.min(lanes.len()));
    std::mem::replace(lanes, rest)
}

/// Adds the lanes of `more_len` events to those of `len`.
fn append_lanes(lanes: &mut Lanes, len: usize, mut more: Lanes, more_len: usize) {
    if lanes.is_empty() && more.is_empty() {
        return;
    }
    lanes.resize(len, None);
    more.resize(more_len, None);
    lanes.append(&mut more);
}

/// The values of a column of `n` events; the default where it is empty.
fn values<'a, V: Clone + Default + 'a>(
    runs: impl Iterator<Item = (&'a V, usize)>,
    n: usize,
) -> impl Iterator<Item = V> {
    let each = runs.flat_map(|(value, n)| std::iter::repeat_n(value, n).cloned());
    each.chain(std::iter::repeat(V::default())).take(n)
}

/// What is owed for each of so many events, without the events.
#[derive(Clone, Debug, Default)]
pub struct Duties {
    shared: Duty,
    columns: Columns,
    n: usize,
}

impl Duties {
    #[inline]
    pub(crate) fn new(shared: Duty, columns: Columns, n: usize) -> Self {
        Duties { shared, columns, n }
    }

    /// For how many events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.n
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Adds those of other events.
    #[inline]
    pub fn append(&mut self, more: Duties) {
        if self.n == 0 {
            *self = more;
        } else {
            self.append_to_some(more);
        }
    }

    fn append_to_some(&mut self, more: Duties) {
        let (mut columns, n) = (more.columns, more.n);
        join(&mut self.shared, &mut self.columns, self.n, more.shared, &mut columns, n);
        self.columns.append(self.n, columns, n);
        self.n += n;
    }

    /// The events have ended.
    #[inline]
    pub fn settle(&self, fate: Fate) {
        self.columns.for_duties(&self.shared, self.n, |duty, n| duty.settle(n, fate));
    }

    /// What is owed for each, if that differs from event to event.
    #[inline]
    #[must_use]
    pub fn each(&self) -> Option<&Column<Duty>> {
        self.columns.duties()
    }

    /// As [`each`](Self::each), of those events alone that are `present`.
    #[inline]
    #[must_use]
    pub fn each_present(&self, present: impl IntoIterator<Item = bool>) -> Option<Column<Duty>> {
        let each = self.each()?.runs().flat_map(|(duty, n)| std::iter::repeat_n(duty, n));
        let mut kept = Column::default();
        for (duty, _) in each.zip(present).filter(|(_, present)| *present) {
            kept.extend(duty.clone(), 1);
        }
        Some(kept)
    }
}

/// Before the events of two rows are joined: what all of one row owe goes into a column where the two
/// differ.
pub(crate) fn join(
    own: &mut Duty,
    own_columns: &mut Columns,
    own_len: usize,
    more: Duty,
    more_columns: &mut Columns,
    more_len: usize,
) {
    let differ = own_columns.duties().is_some() || more_columns.duties().is_some() || *own != more;
    if differ {
        own_columns.spread(std::mem::take(own), own_len);
        more_columns.spread(more, more_len);
    }
}

/// What is owed for several events together: the earliest deadline, and all who wait.
pub fn all_of(duties: &Column<Duty>) -> (Option<Time>, Obligation) {
    let deadline = duties.runs().filter_map(|(duty, _)| duty.deadline).min();
    let owed = duties.runs().map(|(duty, _)| Obligation::of(duty.ack.as_ref()));
    (deadline, Obligation::all(owed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ack::Settled;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    fn values(column: &Column<u32>) -> Vec<u32> {
        column.runs().flat_map(|(value, n)| vec![*value; n]).collect()
    }

    #[test]
    fn rows_stay_in_line_with_their_events_however_a_chunk_is_cut_and_joined() {
        let mut column = Column::same(1, 2);
        column.append(2, Column::default(), 3);
        column.append(5, Column::same(7, 1), 1);
        assert_eq!(values(&column), [1, 1, 0, 0, 0, 7]);
        let front = column.split_front(3);
        assert_eq!((values(&front), values(&column)), (vec![1, 1, 0], vec![0, 0, 7]));
        let mut none = Column::<u32>::default();
        none.append(4, Column::default(), 9);
        assert!(none.is_empty(), "columns that nobody wants stay away");
        none.append(2, front, 3);
        assert_eq!(values(&none), [0, 0, 1, 1, 0]);
    }

    #[test]
    fn what_has_ended_is_owed_no_more_and_the_rest_still_is() {
        let told = Arc::new(AtomicU64::new(0));
        let see = told.clone();
        let group = AckGroup::open(1, move |settled: Settled| see.store(settled.failed, SeqCst));
        let duty = Duty { ack: Some(group), deadline: None };
        duty.join(4);
        duty.settle(1, Fate::Handled); // the creator lets go
        let mut columns = Columns::of_duties(Column::same(duty, 4));
        columns.settle_some(1..3, Fate::Failed);
        let owed: Vec<_> =
            columns.duties().unwrap().runs().map(|(duty, n)| (duty.ack.is_some(), n)).collect();
        assert_eq!(owed, [(true, 1), (false, 2), (true, 1)]);
        assert_eq!(told.load(SeqCst), 0);
        columns.for_duties(&Duty::default(), 4, |duty, n| duty.settle(n, Fate::Handled));
        assert_eq!(told.load(SeqCst), 2);
    }

    #[test]
    fn columns_are_cut_together() {
        use crate::keyed::{Keys, ordered_by};
        let keys = ordered_by(|n: &u64| *n);
        let [five, six] = [5, 6].map(|n| keys.lane_of(&n));
        let mut columns = Columns::default();
        for lane in [&five, &six, &six] {
            columns.lanes_and_times_mut().0.push(Some(lane.clone()));
        }
        columns.set_ids((0..3).map(|seq| Id { producer: 1, incarnation: 1, seq }));
        let lanes = |columns: &Columns, n| columns.lanes(n).collect::<Vec<_>>();
        let mut front = columns.split_front(1);
        assert_eq!(lanes(&front, 1), [Some(five.clone())]);
        assert_eq!(lanes(&columns, 2), [Some(six.clone()), Some(six.clone())]);
        front.append(1, columns, 2);
        front.append(3, Columns::default(), 1);
        assert_eq!(
            lanes(&front, 4),
            [Some(five.clone()), Some(six.clone()), Some(six.clone()), None]
        );
        let ids = |columns: &Columns, n| {
            columns.ids(n).map(|id| id.map(|id| id.seq)).collect::<Vec<Option<u64>>>()
        };
        assert_eq!(ids(&front, 4), [Some(0), Some(1), Some(2), None]);
        let row = front.row(2);
        assert_eq!((lanes(&row, 1), ids(&row, 1)), (vec![Some(six.clone())], vec![Some(2)]));
        assert!(front.row(3).is_none());
        assert_eq!(front.take_lanes(), [five, six.clone(), six]);
        assert_eq!(lanes(&front, 2), [None, None]);
    }
}
