//! The end of a visit: where the tokens go that it made. Used by `work`.
//! A token goes to the worker that has its events in its cache: mostly this one, which follows its last result at once.

use comporta_model::event::Time;

use super::work::{FOLLOW_MAX, HOME_GROUP_SHIFT, Worker};
use crate::core::Core;
use crate::path::ready::{Entry, Task, Token, When};
use crate::sync::{Acquire, Arc};
use crate::workers::{WorkerGroup, WorkerHandle};

impl Worker {
    /// Puts what a visit made ready where it will be found.
    #[inline(always)]
    pub(super) fn hand_on(&mut self, core: &Core, workers: &WorkerGroup, from: u32) {
        core.resolve(&mut self.visit.effects);
        if !self.keeps_all(core, workers, from) {
            self.hand_on_tokens(core, workers, from);
        }
        if self.visit.effects.wants_user_code() {
            self.run_user_code(core);
        }
    }

    /// Mostly a visit makes one stage ready, which this worker follows, or none. Returns `false` if there is more to
    /// decide, and nothing has been done.
    #[inline(always)]
    fn keeps_all(&mut self, core: &Core, workers: &WorkerGroup, from: u32) -> bool {
        if !core.are_stealing(workers) {
            return false;
        }
        let token = match self.visit.effects.tokens[..] {
            [] => return true,
            [token] => token,
            _ => return false,
        };
        let follows = token.task == Task::Any
            && token.stage != from
            && self.next.is_none()
            && self.followed < FOLLOW_MAX
            && (token.home == 0 || token.home == self.visit.home)
            && core.workers_of(token.stage) == self.workers;
        if follows {
            self.visit.effects.tokens.clear();
            self.next = Some(token);
        }
        follows
    }

    fn hand_on_tokens(&mut self, core: &Core, workers: &WorkerGroup, from: u32) {
        let stealing = core.are_stealing(workers);
        let mut again = None;
        let mut tokens = std::mem::take(&mut self.visit.effects.tokens);
        if !stealing {
            self.put_in_line(core, workers, &mut tokens);
        }
        for token in tokens.drain(..) {
            if core.workers_of(token.stage) != self.workers || !stealing {
                core.make_ready(token);
            } else if let Some(peer) = self.peer(core, token) {
                // The events are in that worker's cache: moving them here would cost more than
                // handling them.
                let pays = core.pays_to_take(token.stage);
                match peer.local.offer(Entry { token, since: self.lately(), pays }) {
                    // It is awake, or whoever is woken takes it from there.
                    Ok(()) if pays => workers.sleep.work_made(),
                    Ok(()) if peer.is_in_visit() => core.timers.hurry(),
                    // It may have gone to sleep, unless it has the token by now.
                    Ok(()) => {
                        peer.local.take_back(token).into_iter().for_each(|it| core.make_ready(it));
                    }
                    Err(token) => core.make_ready(token), // it has just left
                }
            } else if token.task != Task::Any {
                self.put(core, token, When::Fifo);
            } else if token.stage == from {
                if let Some(other) = again.replace(token) {
                    self.put(core, other, When::Fifo);
                }
            } else if self.next.is_none() && self.followed < FOLLOW_MAX {
                self.next = Some(token);
            } else {
                self.put(core, token, When::Lifo);
            }
        }
        self.visit.effects.tokens = tokens;
        if let Some(token) = again {
            let when = if core.is_source(token.stage) { When::Last } else { When::Fifo };
            self.put(core, token, when);
        }
    }

    /// Wakers and the `Drop` of events are user code: nothing may be hidden in this worker's hands meanwhile.
    #[cold]
    fn run_user_code(&mut self, core: &Core) {
        self.put_next_by(core);
        self.visit.effects.wake_callers();
        let _reactor = core.enter_reactor(); // what futures hold may need it when it is dropped
        self.visit.effects.call_and_drop();
    }

    /// Under one queue: puts what is this group's there, and leaves the rest. Nobody is woken for it:
    /// this worker takes from the queue next, and wakes another if more is left, as it does when it
    /// leaves. (To be woken for what the waker takes itself is a switch of threads for nothing.)
    fn put_in_line(&self, core: &Core, workers: &WorkerGroup, tokens: &mut Vec<Token>) {
        workers.shared.push_all(tokens, |token| core.priority_in(workers, token.stage));
        if !self.handle.local.is_empty() {
            workers.sleep.work_made(); // it takes from its own queue first
        }
    }

    /// The worker that should have a token rather than this one, if there is any.
    fn peer(&self, core: &Core, token: Token) -> Option<&Arc<WorkerHandle>> {
        if token.home == 0 || token.home == self.visit.home {
            return None;
        }
        let number = (token.home as usize).checked_sub(1 + (self.workers << HOME_GROUP_SHIFT))?;
        let at = self.peers.binary_search_by_key(&number, |handle| handle.number).ok()?;
        let peer = &self.peers[at];
        // To wake one for little costs more than to have its events moved.
        let comes = peer.is_in_visit() || core.pays_to_move(token.stage);
        (comes && !peer.leaving.load(Acquire) && !peer.is_away()).then_some(peer)
    }

    /// Puts a token into this worker's queue.
    pub(super) fn put(&self, core: &Core, token: Token, when: When) {
        let pays = core.pays_to_take(token.stage);
        self.handle.local.push(Entry { token, since: self.lately(), pays }, when);
    }

    /// When its last visit ended, or began.
    pub(super) fn lately(&self) -> Time {
        self.visit.end.unwrap_or(self.visit.start)
    }
}
