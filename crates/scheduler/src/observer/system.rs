//! The operating system (epoll, kqueue, by way of mio): how it is waited for, and what it reported last.
//!
//! The loop waits between any two events while it is not busy, and converting a time limit costs as much as all else that
//! mio does. So a wait that only has to end soon has none on Linux: a timer of the system's ends it ([`Alarm`]).

use crate::sync::Waker;
use mio::{Registry, Token};
use std::io;
use std::time::Duration;

/// What one call to the operating system may report.
const REPORTS_MAX: usize = 1024;
/// How long a short wait takes at most. Short of what is waited for before pages are given back.
const SHORT_WAIT: Duration = Duration::from_millis(10);
// No places in a table.
const WAKE: Token = Token(usize::MAX);
const ALARM: Token = Token(usize::MAX - 1);

pub(super) struct OperatingSystem {
    poll: mio::Poll,
    reports: mio::Events,
    alarm: Alarm,
}

impl OperatingSystem {
    pub(super) fn new() -> io::Result<OperatingSystem> {
        let poll = mio::Poll::new()?;
        let alarm = Alarm::new(poll.registry())?;
        Ok(OperatingSystem { poll, reports: mio::Events::with_capacity(REPORTS_MAX), alarm })
    }

    pub(super) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// What ends a wait, from any thread.
    pub(super) fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.registry(), WAKE)
    }

    /// Waits for reports, no longer than `limit`.
    pub(super) fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        if limit != Some(Duration::ZERO) {
            self.alarm.stop();
        }
        self.poll.poll(&mut self.reports, limit)
    }

    /// Waits for reports, no longer than `SHORT_WAIT`.
    #[inline(always)]
    pub(super) fn wait_shortly(&mut self) -> io::Result<()> {
        let limit = self.alarm.limit();
        self.poll.poll(&mut self.reports, limit)
    }

    /// What the last wait reported: sources, and what ended the wait, whose token is no place in a table and is to be handed
    /// to [`OperatingSystem::note`].
    #[inline(always)]
    pub(super) fn reports(&self) -> &mio::Events {
        &self.reports
    }

    /// Takes note of a report that is about no source.
    pub(super) fn note(&self, token: Token) {
        if token == ALARM {
            self.alarm.is_over();
        }
    }
}

/// A timer that ends a short wait, set by the first of them until it goes off or a longer wait begins: two calls to the
/// system for as many short waits as there are between.
#[cfg(target_os = "linux")]
struct Alarm {
    timer: std::os::fd::OwnedFd,
    is_set: std::cell::Cell<bool>,
}

#[cfg(target_os = "linux")]
impl Alarm {
    fn new(registry: &Registry) -> io::Result<Alarm> {
        use mio::{Interest, unix::SourceFd};
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        use std::os::fd::AsRawFd;

        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        registry.register(&mut SourceFd(&timer.as_raw_fd()), ALARM, Interest::READABLE)?;
        Ok(Alarm { timer, is_set: std::cell::Cell::new(false) })
    }

    /// The limit of a short wait: none, if the alarm is set.
    #[inline(always)]
    fn limit(&self) -> Option<Duration> {
        if !self.is_set.get() {
            self.is_set.set(self.set(SHORT_WAIT));
            return Some(SHORT_WAIT);
        }
        None
    }

    fn stop(&self) {
        if self.is_set.get() {
            self.is_set.set(!self.set(Duration::ZERO));
        }
    }

    /// It went off.
    fn is_over(&self) {
        self.is_set.set(false);
    }

    /// Has the timer go off once, after this time, or not at all. Returns `false` if the system does not do it.
    #[cold]
    fn set(&self, after: Duration) -> bool {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

        let it_value = Timespec { tv_sec: 0, tv_nsec: after.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).is_ok()
    }
}

/// Elsewhere a wait has a limit.
#[cfg(not(target_os = "linux"))]
struct Alarm;

#[cfg(not(target_os = "linux"))]
impl Alarm {
    fn new(_: &Registry) -> io::Result<Alarm> {
        Ok(Alarm)
    }

    fn limit(&self) -> Option<Duration> {
        Some(SHORT_WAIT)
    }

    fn stop(&self) {}

    fn is_over(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits shortly, for nothing, as the observer does.
    fn wait_in_vain(system: &mut OperatingSystem) {
        system.wait_shortly().unwrap();
        note_all(system);
    }

    fn note_all(system: &OperatingSystem) {
        system.reports().iter().for_each(|report| system.note(report.token()));
    }

    #[test]
    fn short_waits_end_although_nothing_is_reported_and_do_not_end_longer_ones() {
        let mut system = OperatingSystem::new().unwrap();
        for _ in 0..3 {
            (0..3).for_each(|_| wait_in_vain(&mut system));
            system.wait(Some(3 * SHORT_WAIT)).unwrap();
            assert!(system.reports().is_empty(), "the alarm is off");
        }
    }

    #[test]
    fn a_look_without_a_wait_leaves_the_alarm_on() {
        let mut system = OperatingSystem::new().unwrap();
        wait_in_vain(&mut system);
        system.wait(Some(Duration::ZERO)).unwrap();
        note_all(&system);
        // Without it, this would have no end.
        wait_in_vain(&mut system);
    }
}
