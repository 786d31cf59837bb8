//! A group of events for a stage that is handed several at once, taken from its queue as one chunk.

use comporta_model::chunk::{Chunk, ChunkQueue};
use comporta_model::event::{AckGroup, Fate, Meta};

use crate::sync::Arc;

/// Takes up to `size` events as one chunk. Where they belong to different acknowledgement groups,
/// or only some to one, a group of its own stands for them all.
pub(crate) fn gather<T: Send + 'static>(
    queue: &mut ChunkQueue<T>,
    size: usize,
) -> Option<Chunk<T>> {
    let mut gathered = queue.pop(size)?;
    let mut parts: Vec<(Arc<AckGroup>, u64)> = Vec::new();
    let mut mixed = false;
    let mut note = |meta: &Meta, n: usize| match (&meta.ack, parts.last_mut()) {
        (None, _) => mixed = true,
        (Some(group), Some((last, count))) if Arc::ptr_eq(group, last) => *count += n as u64,
        (Some(group), _) => parts.push((group.clone(), n as u64)),
    };
    note(&gathered.meta, gathered.len());
    while gathered.len() < size
        && let Some(more) = queue.pop(size - gathered.len())
    {
        note(&more.meta, more.len());
        gathered.meta.absorb(&more.meta);
        let deadlines = [gathered.meta.deadline, more.meta.deadline];
        gathered.meta.deadline = deadlines.into_iter().flatten().min();
        gathered.meta.tier = gathered.meta.tier.max(more.meta.tier);
        gathered.append(&mut more.into_events());
    }
    let len = gathered.len() as u64;
    if parts.len() > 1 || parts.first().is_some_and(|(_, n)| *n < len) {
        let group = AckGroup::open(0, move |settled| {
            let fate = match settled {
                _ if settled.is_clean() => Fate::Handled,
                _ if settled.failed > 0 => Fate::Failed,
                _ if settled.shed > 0 => Fate::Shed,
                _ => Fate::Cancelled,
            };
            for (group, n) in &parts {
                group.settle(*n, fate);
            }
        });
        group.join(len - 1); // it was opened holding one
        gathered.meta.ack = Some(group);
    }
    Some(gathered)
}
