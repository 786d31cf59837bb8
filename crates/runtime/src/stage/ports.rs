//! What hops 6 and 8 ask of each port of a stage, whatever its type: used by `handle` and `settle`.

use comporta_model::column::{Column, Duty};
use comporta_model::port::{Out, PortVisitor};

/// Before an event: what was sent so far stays.
pub(crate) struct Mark;
impl PortVisitor for Mark {
    #[inline(always)]
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        out.set_mark();
    }
}

/// More was sent than there is room for.
pub(super) struct Over(pub(super) bool);
impl PortVisitor for Over {
    #[inline(always)]
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        self.0 |= out.is_over();
    }
}

/// One event sent more than it may.
pub(super) struct Flooded(pub(super) bool);
impl PortVisitor for Flooded {
    #[inline(always)]
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        self.0 |= out.is_flooded();
    }
}

/// What is sent from now on is for an event that owes this.
pub(super) struct Owes<'a>(pub(super) &'a Duty);
impl PortVisitor for Owes<'_> {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        out.set_duty(self.0);
    }
}

/// What is passed on next owes this, event by event.
pub(super) struct OwesEach<'a>(pub(super) &'a Column<Duty>);
impl PortVisitor for OwesEach<'_> {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        out.set_duties(self.0);
    }
}

/// The event failed: what it sent is taken back.
pub(crate) struct Withdraw;
impl PortVisitor for Withdraw {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        out.withdraw(crate::user::discard);
    }
}

/// Room without end, but for what one event may send.
pub(super) struct Unbounded(pub(super) usize);
impl PortVisitor for Unbounded {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        out.allow(usize::MAX, usize::MAX, self.0);
    }
}
