//! What a sender hands over at once: chunks for one queue, with what each event carries. Made by `outlet`, taken
//! apart by the inlet it is offered to.

use comporta_model::ack::{Because, Fate};
use comporta_model::chunk::{ChunkQueue, Slots};
use comporta_model::column::Columns;
use comporta_model::event::Meta;
use comporta_model::keyed::LaneRef;
use comporta_model::plan::WhenFull;

use crate::effects::Effects;
use crate::path::line::Place;
use crate::path::outlet::Reserved;
use crate::sync::Arc;

/// What a sender hands over at once.
pub(crate) struct Parcel<'a, T> {
    /// What its events share, with when they came to the queue.
    pub(crate) meta: &'a Meta,
    /// What each carries of its own.
    pub(crate) columns: Columns,
    pub(crate) filled: &'a mut Vec<Slots<T>>,
    /// The last, not quite filled chunk; what comes back in it is storage to go on with.
    pub(crate) last: &'a mut Slots<T>,
    /// The sender has no storage of its own to go on with.
    pub(crate) short: bool,
    /// Places that a caller has reserved; for others there are none.
    pub(crate) reserved: Option<Reserved>,
    pub(crate) outbox: &'a mut ChunkQueue<T>,
    /// What happens when there is no room, if that is not as the queue has it.
    pub(crate) rule: Option<WhenFull>,
    pub(crate) place: &'a Arc<Place>,
    /// The sender waits for another queue already, and does not stand in line here too.
    pub(crate) waits_elsewhere: bool,
}

impl<T: Send + 'static> Parcel<'_, T> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        let last = self.last.len();
        if self.filled.is_empty() {
            last
        } else {
            self.filled.iter().map(Vec::len).sum::<usize>() + last
        }
    }

    /// Its events belong to those who wait for them.
    #[inline]
    pub(crate) fn join(&self) {
        self.columns.for_duties(&self.meta.duty, self.len(), |duty, n| duty.join(n));
    }

    /// Moves the first `max` events out with `enter`, chunk by chunk.
    #[inline]
    pub(crate) fn take(
        &mut self,
        mut max: usize,
        mut enter: impl FnMut(Slots<T>, Columns) -> Slots<T>,
    ) {
        if !self.filled.is_empty() {
            let mut whole = 0;
            while let Some(chunk) = self.filled.get(whole).filter(|chunk| chunk.len() <= max) {
                max -= chunk.len();
                whole += 1;
            }
            for chunk in self.filled.drain(..whole) {
                let columns = self.columns.split_front(chunk.len());
                let _ = enter(chunk, columns);
            }
        }
        if max == 0 {
            return;
        }
        if self.filled.is_empty() && max >= self.last.len() {
            if !self.last.is_empty() {
                let columns = std::mem::take(&mut self.columns);
                *self.last = enter(std::mem::take(self.last), columns);
            }
            return;
        }
        let chunk = self.filled.first_mut().unwrap_or(self.last);
        let columns = self.columns.split_front(max.min(chunk.len()));
        if max < chunk.len() {
            let rest = chunk.split_off(max);
            let _ = enter(std::mem::replace(chunk, rest), columns);
        } else if !chunk.is_empty() {
            *chunk = enter(std::mem::take(chunk), columns);
        }
    }

    /// Takes out the first `n` events, with what each carries of its own.
    pub(crate) fn take_apart(&mut self, n: usize) -> (Vec<Slots<T>>, Columns) {
        let (mut filled, mut columns, mut taken) = (Vec::new(), Columns::default(), 0);
        self.take(n, |slots, own| {
            columns.append(taken, own, slots.len());
            taken += slots.len();
            filled.push(slots);
            Slots::new()
        });
        (filled, columns)
    }

    /// Takes out the lanes of its events.
    pub(crate) fn take_lanes(&mut self) -> Vec<LaneRef> {
        self.columns.take_lanes()
    }

    /// Keeps what is left in the outbox.
    pub(crate) fn keep(&mut self) {
        let mut rest = std::mem::take(self.filled);
        for slots in rest.drain(..) {
            let columns = self.columns.split_front(slots.len());
            let _ = self.outbox.push(self.meta, columns, slots, false);
        }
        *self.filled = rest;
        if !self.last.is_empty() {
            let columns = std::mem::take(&mut self.columns);
            let last = std::mem::take(self.last);
            *self.last = self.outbox.push(self.meta, columns, last, self.short);
        }
    }

    /// Sheds all but the first `n` events, which have not come in yet. Returns how many that were.
    pub(crate) fn shed_all_but(
        &mut self,
        n: usize,
        because: &Because<'_>,
        effects: &mut Effects,
    ) -> usize {
        let shed = self.len() - n;
        self.meta.duty.join(shed);
        self.meta.duty.because(because);
        self.meta.duty.settle(shed, Fate::Shed);
        let (kept, columns) = self.take_apart(n);
        self.discard(effects);
        *self.filled = kept;
        self.columns = columns;
        shed
    }

    /// Its events are shed here.
    pub(crate) fn shed(&mut self, because: &Because<'_>, effects: &mut Effects) {
        self.columns.for_duties(&self.meta.duty, self.len(), |duty, _| duty.because(because));
        self.end(Fate::Shed, effects);
    }

    /// Its events end here.
    pub(crate) fn end(&mut self, fate: Fate, effects: &mut Effects) {
        self.columns.for_duties(&self.meta.duty, self.len(), |duty, n| duty.settle(n, fate));
        self.columns = Columns::default();
        self.discard(effects);
    }

    fn discard(&mut self, effects: &mut Effects) {
        for slots in self.filled.iter_mut().chain([&mut *self.last]) {
            effects.discard_events(slots);
        }
        self.filled.clear();
    }
}
