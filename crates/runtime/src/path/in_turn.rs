//! Hop 7 of a sender two of whose ports lead to one queue, or of which the exact order matters: what its ports hold
//! leaves in the order in which it was sent.
//! Before: `emit`, which does this port by port elsewhere. After: `outlet`.

use comporta_model::ack::Obligation;
use comporta_model::chunk::Slots;
use comporta_model::column::Duty;
use comporta_model::port::{Out, PortVisitor, Ports};

use crate::path::bundle::{AnyBundle, Outlets, PortLink};
use crate::path::emit::{Link, deliver_all};
use crate::path::outlet::Sending;
use crate::user;

/// Sends what several ports hold in the order in which it was sent.
pub(super) fn flush_in_turn<P: Ports>(
    own: &[PortLink],
    bundles: &mut [Box<dyn AnyBundle>],
    ports: &mut P,
    send: &mut Sending<'_>,
) {
    /// So many events in a row were sent through one port.
    struct Run {
        turn: u32,
        port: usize,
        events: usize,
    }
    struct Stage<'a> {
        own: &'a [PortLink],
        bundles: &'a mut [Box<dyn AnyBundle>],
        shared: &'a Duty,
        runs: Vec<Run>,
        held: Vec<(usize, Obligation)>,
    }
    impl PortVisitor for Stage<'_> {
        fn port<T: Send + 'static>(&mut self, port: usize, out: &mut Out<T>) {
            let runs = out.runs().into_iter();
            self.runs.extend(runs.map(|(turn, events)| Run { turn, port, events }));
            let (columns, held) = out.take_duties(self.shared);
            self.held.extend(held);
            let (link, _) = self.own[port].of::<T>(self.bundles);
            link.staged_columns = columns;
            link.staged.extend(out.drain());
        }
    }
    struct SendRun<'a, 'b> {
        own: &'a [PortLink],
        bundles: &'a mut [Box<dyn AnyBundle>],
        send: &'a mut Sending<'b>,
        run: &'a Run,
    }
    impl PortVisitor for SendRun<'_, '_> {
        fn port<T: Send + 'static>(&mut self, index: usize, _: &mut Out<T>) {
            if index == self.run.port {
                let (link, outlets) = self.own[index].of::<T>(self.bundles);
                self.send.waits |= link.send_run(outlets, self.run.events, self.send);
            }
        }
    }
    let shared = &send.meta.duty;
    let mut stage =
        Stage { own, bundles: &mut *bundles, shared, runs: Vec::new(), held: Vec::new() };
    ports.each(&mut stage);
    let Stage { mut runs, held, .. } = stage;
    runs.sort_unstable_by_key(|run| run.turn);
    for run in &runs {
        ports.each(&mut SendRun { own, bundles, send, run });
    }
    held.into_iter().for_each(|(_, carried_on)| carried_on.settle());
}

impl<T: Send + 'static> Link<T> {
    /// Sends the first so many of what is staged here. Returns whether the sender now stands in line.
    fn send_run(
        &mut self,
        outlets: &mut Outlets<T>,
        events: usize,
        send: &mut Sending<'_>,
    ) -> bool {
        send.sent.emitted += events;
        let mut run: Slots<T> = self.staged.drain(..events).map(Some).collect();
        let columns = self.staged_columns.split_front(events);
        if let Some(tap) = &self.tap {
            let _ = user::call(|| run.iter().flatten().for_each(|event| tap(event)));
        }
        if self.wires.is_empty() {
            send.sent.unrouted += events;
            send.visit.effects.discard_events(&mut run);
            return false;
        }
        self.address(outlets, run.into_iter().flatten(), &columns, send);
        deliver_all(outlets, send)
    }
}
