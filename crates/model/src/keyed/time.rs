//! How event time goes on in a stage: what a program says of it. Before: `mod.rs`. After: the runtime, which keeps the
//! watermark of each stage.

use std::time::Duration;

/// How the event time of a keyed stage goes on: what
/// [`KeyedStage::event_time`](crate::keyed::KeyedStage::event_time) returns.
///
/// The **watermark** of a stage says how far event time has come: events of earlier times are not expected any more,
/// and are *late* if they come. It is the least over the inputs of the stage (the stages that send to it; handles
/// outside of the program together are one) of the greatest event time that came from there, less the
/// [`lateness`](Self::lateness). It never goes back. An input that has ended does not count; when all have, the
/// watermark is [`Time::MAX`](crate::event::Time::MAX).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTime {
    lateness: Duration,
    idle: Option<Duration>,
}

impl EventTime {
    /// Event time of events that come in order, from inputs that all go on sending.
    #[must_use]
    pub const fn new() -> Self {
        EventTime { lateness: Duration::ZERO, idle: None }
    }

    /// Sets how far behind the greatest event time of its input an event may be without being late. Zero at first.
    #[must_use]
    pub const fn lateness(self, lateness: Duration) -> Self {
        EventTime { lateness, ..self }
    }

    /// Sets after how long without an event, on the program's clock, an input is idle, and does not hold the watermark
    /// back. When all inputs are idle, the watermark goes on with the clock. Without this, an input that sends nothing
    /// holds the watermark until it ends.
    #[must_use]
    pub const fn idle(self, after: Duration) -> Self {
        EventTime { idle: Some(after), ..self }
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn lateness_allowed(&self) -> Duration {
        self.lateness
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn idle_after(&self) -> Option<Duration> {
        self.idle
    }
}
