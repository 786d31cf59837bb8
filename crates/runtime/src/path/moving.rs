//! What it costs to have a visit made by another worker than the one that has its events in its cache. Where the handler
//! is quick, that is more than the visit itself: a second thread would make the program slower.
//! A chain of quick stages can be worth it where none of its visits is: one worker makes the visits that follow from a token
//! while another is back at the beginning. That pays if those that follow save more than to move the events once.
//! Used by `assignment`, which `source` and `stage/settle` tell how long a visit takes; `ready` goes by it.
//! The figures are of a virtual machine of two processors: three trivial stages on two threads (`pipeline`, cases
//! `two_threads`), and a keyed stage on one and two threads (`keyed --threads`).

/// What it costs but for the events: the lines of the stage, its locks and its queue are in the cache of the last worker,
/// and somebody has to look, or to be woken.
const HAND_OVER_NS: u64 = 1_000;
/// What it costs to move a cache line from one processor to another, about.
const LINE_NS: u64 = 10;
const LINE: u64 = 64;
/// What it costs to move a key and its state: some five lines that no processor could foresee, each waited for.
pub(crate) const KEY_NS: u64 = 250;

/// What it costs to move an event of this type: the lines it has itself, and one for what it owns elsewhere.
pub(crate) const fn move_ns<T>() -> u64 {
    let own = (size_of::<T>() as u64 * LINE_NS).div_ceil(LINE);
    let owned = if std::mem::needs_drop::<T>() { LINE_NS } else { 0 };
    own + owned
}

/// What is known of the visits to a stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VisitTime {
    /// How long one usually takes.
    pub(crate) takes_ns: u64,
    /// How many instances may be visited at once.
    pub(crate) side_by_side: usize,
    pub(crate) events: usize,
    /// What it costs to move an event, but for its keys.
    pub(crate) event_ns: u64,
    /// What it costs to move the keys of an event.
    pub(crate) keys_ns: u64,
}

/// Everything is weighed twice: the visit that was measured may have been moved itself, and then half of its time was that.
const TWICE: u64 = 2;

/// More than this is saved by nothing: what adds up along a chain stays a number.
const SAVES_MAX_NS: u64 = 1_000_000_000;

impl VisitTime {
    /// Whether it saves more than it costs to have another worker make such a visit.
    #[inline]
    pub(crate) fn pays(self) -> bool {
        let saves_ns =
            self.takes_ns.saturating_mul(self.side_by_side.saturating_sub(1).max(1) as u64);
        saves_ns > TWICE * (HAND_OVER_NS + self.events as u64 * (self.event_ns + self.keys_ns))
    }

    /// What it saves, if its events need not be moved: those that follow from it are in the cache of whoever makes it.
    pub(crate) fn saves_ns(self) -> i64 {
        let costs_ns = TWICE * (HAND_OVER_NS + self.events as u64 * self.keys_ns);
        self.takes_ns.min(SAVES_MAX_NS) as i64 - costs_ns as i64
    }

    /// What it costs to move its events.
    pub(crate) fn moves_ns(self) -> i64 {
        (self.events as u64 * self.event_ns) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_a_batch_pays_if_its_handler_takes_longer_than_its_lines() {
        let of = |takes_ns, events| VisitTime {
            takes_ns,
            side_by_side: 1,
            events,
            event_ns: move_ns::<[u64; 8]>(),
            keys_ns: 0,
        };
        assert!(!of(512 * 3, 512).pays());
        assert!(of(512 * 100, 512).pays());
        assert!(!of(150, 1).pays(), "what comes with the visit costs more");
        assert!(!of(1_000, 1).pays(), "half of that is what any visit costs");
        assert!(of(3_000, 1).pays());
        assert!(!of(512 * 15, 512).pays(), "most of that may have been its lines");
        let keyed = VisitTime { keys_ns: KEY_NS, ..of(512 * 300, 512) };
        assert!(!keyed.pays(), "each has its key's lines");
        let spread = VisitTime { side_by_side: 4, ..of(512 * 10, 512) };
        assert!(spread.pays(), "three more do three quarters of it");
    }

    #[test]
    fn a_chain_of_quick_visits_saves_what_they_take_together() {
        let visit = |each_ns: u64| VisitTime {
            takes_ns: 512 * each_ns,
            side_by_side: 1,
            events: 512,
            event_ns: move_ns::<[u64; 8]>(),
            keys_ns: 0,
        };
        assert!(!visit(20).pays());
        let chain = |each_ns: u64, visits: i64| visits * visit(each_ns).saves_ns();
        assert!(chain(8, 9) > visit(8).moves_ns(), "many of 8 ns");
        assert!(chain(8, 2) < visit(8).moves_ns(), "two of 8 ns");
        assert!(chain(2, 10) < 0, "visits that cost less than to have them made elsewhere");
    }
}
