//! What a caller outside does with the one port of an input: an event is addressed once, and then sent, or
//! taken back. Only callers reserve places, for the moment between asking every queue and sending.
//! Used by `sender`. After: `outlet`.

use comporta_model::event::Meta;

use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::path::emit::{Links, deliver_all};
use crate::path::outlet::{Refusal, Sending, Sent};

impl Links {
    /// Stages an event with the outlets it goes to. A panic of a key function or a `Clone` is the
    /// caller's.
    pub(crate) fn address<T: Send + 'static>(&mut self, event: T) {
        let (link, outlets) = self.port::<T>(0);
        link.address_one(outlets, event, None);
    }

    /// Reserves a place in every queue the event goes to.
    pub(crate) fn reserve<T: Send + 'static>(
        &mut self,
        core: &Core,
        meta: &Meta,
        visit: &mut Visit,
    ) -> Result<(), Refused> {
        let (_, outlets) = self.port::<T>(0);
        let mut refused: Option<Refused> = None;
        for (by, outlet) in outlets.iter_mut().enumerate() {
            // One that gives the event back goes before one that can be waited for.
            if let Err(refusal) = outlet.reserve(core, meta)
                && refused.is_none_or(|before| before.refusal == Refusal::Full)
            {
                refused = Some(Refused { refusal, by });
            }
        }
        let Some(refused) = refused else { return Ok(()) };
        for outlet in outlets {
            outlet.unreserve(core, &mut visit.effects);
        }
        Err(refused)
    }

    /// Sends what is addressed; what finds no room waits, and the caller stands in line.
    pub(crate) fn send<T: Send + 'static>(
        &mut self,
        core: &Core,
        meta: &Meta,
        visit: &mut Visit,
    ) -> Sent {
        let place = self.place().clone();
        let (link, outlets) = self.port::<T>(0);
        let unrouted = usize::from(link.wires.is_empty());
        let sent = Sent { emitted: 1, unrouted, lost: 0 };
        let mut send =
            Sending { core, meta, place: &place, visit, fills: true, waits: false, sent };
        deliver_all(outlets, &mut send);
        let Sending { waits, sent, .. } = send;
        self.may_stand |= waits;
        sent
    }

    /// Takes the event back; copies are dropped later. The queue that refused it counts that.
    pub(crate) fn take_back<T: Send + 'static>(
        &mut self,
        refused: &Refused,
        effects: &mut Effects,
    ) -> T {
        let (link, outlets) = self.port::<T>(0);
        outlets[refused.by].refuse();
        let own = link.wires.last().into_iter().flat_map(|wire| &wire.ends);
        let mut event = None;
        for end in own {
            event = event.or_else(|| outlets[end.outlet].unstage());
        }
        for outlet in outlets {
            effects.discard_events(&mut outlet.take_staged());
        }
        event.expect("an event that was refused had been addressed to an outlet")
    }
}

/// Why an event was refused, and by which outlet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    by: usize,
}
