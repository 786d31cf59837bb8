//! Hop 7 of failed events: the error port of a sender. Only a stage whose error port is connected (or recorded by a
//! test) has one; it is one more link beside those of the output ports, so that room, lines, copies and counts
//! are as theirs. `stage::fail` sends through it, and `emit` hands on what it holds, after what the visit sent.

use std::any::Any;

use comporta_model::event::Meta;
use comporta_model::port::Out;

use crate::core::Core;
use crate::path::bundle::{AnyBundle, PortLink};
use crate::path::emit::Links;
use crate::path::outlet::Sending;

/// See the header.
pub(crate) struct ErrorPort {
    /// Its link among those of the sender.
    link: usize,
    held: Box<dyn HeldErrors>,
}

/// An `Out<T>` of failed events, whatever their type.
pub(crate) trait HeldErrors: Send {
    fn as_any(&mut self) -> &mut dyn Any;
    /// Another of this type.
    fn fresh(&self) -> Box<dyn HeldErrors>;
    fn is_empty(&self) -> bool;
    /// Whether it holds more than there seemed to be room for.
    fn is_over(&self) -> bool;
    /// Notes how much room there seems to be.
    fn look(&mut self, link: &PortLink, bundles: &mut [Box<dyn AnyBundle>], to: (&Core, &Meta));
    fn flush(
        &mut self,
        link: &PortLink,
        bundles: &mut [Box<dyn AnyBundle>],
        send: &mut Sending<'_>,
    );
}

impl<T: Send + 'static> HeldErrors for Out<T> {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn fresh(&self) -> Box<dyn HeldErrors> {
        Box::new(Out::<T>::default())
    }

    fn is_empty(&self) -> bool {
        Out::is_empty(self)
    }

    fn is_over(&self) -> bool {
        Out::is_over(self)
    }

    fn look(
        &mut self,
        link: &PortLink,
        bundles: &mut [Box<dyn AnyBundle>],
        (core, meta): (&Core, &Meta),
    ) {
        let (link, outlets) = link.of::<T>(bundles);
        let (limit, room) = link.room(outlets, core, meta);
        self.allow(limit, room, usize::MAX);
    }

    fn flush(
        &mut self,
        link: &PortLink,
        bundles: &mut [Box<dyn AnyBundle>],
        send: &mut Sending<'_>,
    ) {
        let (link, outlets) = link.of::<T>(bundles);
        send.waits |= link.flush(outlets, self, send);
    }
}

impl ErrorPort {
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn look(
        &mut self,
        ports: &[PortLink],
        bundles: &mut [Box<dyn AnyBundle>],
        to: (&Core, &Meta),
    ) {
        self.held.look(&ports[self.link], bundles, to);
    }

    pub(super) fn flush(
        &mut self,
        ports: &[PortLink],
        bundles: &mut [Box<dyn AnyBundle>],
        send: &mut Sending<'_>,
    ) {
        if !self.held.is_empty() {
            self.held.flush(&ports[self.link], bundles, send);
        }
    }
}

impl Links {
    /// Gives the sender an error port, which carries `T`. Compiled only for stages whose `errors` a program calls.
    pub(crate) fn open_errors<T: Send + 'static>(&mut self, core: &Core, stage: u32, port: usize) {
        self.add::<T>(core, stage, port);
        let held = Box::new(Out::<T>::default());
        self.errors = Some(ErrorPort { link: self.ports.len() - 1, held });
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.errors.is_some()
    }

    /// Whether the error port holds more than there seemed to be room for.
    pub(crate) fn errors_are_over(&self) -> bool {
        self.errors.as_ref().is_some_and(|errors| errors.held.is_over())
    }

    /// What the error port holds, if the sender has one.
    pub(crate) fn errors(&mut self) -> Option<&mut Box<dyn HeldErrors>> {
        self.errors.as_mut().map(|errors| &mut errors.held)
    }

    /// The next flush hands on what another sender of this stage sent through its error port.
    pub(crate) fn put_errors(&mut self, held: Option<Box<dyn HeldErrors>>) {
        if let (Some(errors), Some(held)) = (&mut self.errors, held) {
            errors.held = held;
        }
    }
}
