//! What it costs to have a visit made by another worker than the one that has its events in its cache. Where the handler
//! is quick, that is more than the visit itself: a second thread would make the program slower.
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

/// Whether it saves more than it costs to have another worker make a visit with so many events. Twice as much: the visit
/// that was measured may have been moved itself, and then half of its time was that.
#[inline]
pub(crate) fn pays_to_move(saves_ns: u64, events: usize, move_ns: u64) -> bool {
    saves_ns > 2 * (HAND_OVER_NS + events as u64 * move_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_a_batch_pays_if_its_handler_takes_longer_than_its_lines() {
        let event = move_ns::<[u64; 8]>();
        assert!(!pays_to_move(512 * 3, 512, event));
        assert!(pays_to_move(512 * 100, 512, event));
        assert!(!pays_to_move(150, 1, event), "what comes with the visit costs more");
        assert!(!pays_to_move(1_000, 1, event), "half of that is what any visit costs");
        assert!(pays_to_move(3_000, 1, event));
        assert!(!pays_to_move(512 * 15, 512, event), "most of that may have been its lines");
        assert!(
            !pays_to_move(512 * 300, 512, move_ns::<u64>() + KEY_NS),
            "each has its key's lines"
        );
    }
}
