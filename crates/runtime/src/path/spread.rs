//! Part of hop 7, for a port all of whose events go to the same several queues: whole chunks are copied. Where
//! the way of an event depends on it, `emit` addresses them one by one, which costs three times as much.

use comporta_model::chunk::Slots;
use comporta_model::column::Columns;

use crate::path::bundle::Outlets;
use crate::path::outlet::{Outlet, Sending};
use crate::path::route::{End, Route, Wire};

/// Whether every event goes to the same outlets, each another.
pub(super) fn is_fixed<T>(wires: &[Wire<T>]) -> bool {
    let mut to: Vec<usize> = wires.iter().map(|wire| wire.ends[0].outlet).collect();
    to.sort_unstable();
    to.is_sorted_by(|a, b| a < b) && wires.iter().all(|wire| matches!(wire.route, Route::First))
}

/// Where each event of a port goes, if that is the same for all: the last outlet gets the events themselves,
/// the others a copy each.
pub(super) struct Spread<'a, T> {
    pub(super) copy: fn(&T) -> T,
    pub(super) others: &'a [Wire<T>],
    pub(super) end: &'a Wire<T>,
}

impl<T: Send + 'static> Spread<'_, T> {
    /// Sends chunks. `Clone` is user code: one that panics costs that copy.
    pub(super) fn deliver(
        &self,
        outlets: &mut Outlets<T>,
        filled: &mut Vec<Slots<T>>,
        last: &mut Slots<T>,
        send: &mut Sending<'_>,
    ) -> bool {
        let user = send.visit.effects.hand_over(send.core);
        for wire in self.others {
            let outlet = wire.only(outlets);
            outlet.use_storage(&mut send.visit.cache);
            for slots in filled.iter().chain([&*last]) {
                let mut events = slots.iter();
                while let Err(reason) = user.call(|| outlet.stage_copies(&mut events, self.copy)) {
                    send.sent.lose(send.core, &send.meta.duty, &reason);
                }
            }
        }
        let mut waits = false;
        for wire in self.others {
            waits |= wire.only(outlets).deliver(send);
            send.waits |= waits;
        }
        waits | self.end.only(outlets).deliver_from(filled, last, Columns::default(), send)
    }
}

impl<T: Send + 'static> Wire<T> {
    /// The one outlet that it leads to.
    pub(super) fn only<'a>(&self, outlets: &'a mut Outlets<T>) -> &'a mut Outlet<T> {
        let End { outlet, rule } = self.ends[0];
        let outlet = &mut outlets[outlet];
        outlet.rule = rule;
        outlet
    }
}
