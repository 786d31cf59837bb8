//! The reply stage: hands each reply to the requests that led to it.
//! Before: the stages of the program. After: the client, which is woken here: a handler holds no lock.

use comporta_model::error::{Error, Result};
use comporta_model::event::{Ev, Held};
use comporta_model::stage::{Cx, Stage};

use super::requests::Requests;
use super::slot::{Slot, Waits};
use crate::sync::Arc;

/// The reply stage.
pub(super) struct Replies<R> {
    pub(super) requests: Arc<Requests>,
    /// How to copy a reply that answers several requests.
    pub(super) copy: Option<fn(&R) -> R>,
}

impl<R> Clone for Replies<R> {
    fn clone(&self) -> Self {
        Replies { requests: self.requests.clone(), copy: self.copy }
    }
}

impl<R: Send + 'static> Stage for Replies<R> {
    type In = R;
    type Ports = ();

    fn handle(&mut self, reply: Ev<'_, R>, (): &mut (), _: &Cx) -> Result {
        let Held { event: reply, obligation } = reply.hold();
        let mut waiting: Vec<Arc<Slot<R>>> = Vec::new();
        if let Some(group) = obligation.group() {
            group.each_waiting(|awaits| {
                let slot = awaits.as_any().and_then(|any| any.downcast_ref::<Waits<R>>());
                let own = slot.filter(|slot| Arc::ptr_eq(&slot.0.requests, &self.requests));
                waiting.extend(own.filter(|slot| slot.0.is_open()).map(|slot| slot.0.clone()));
            });
        }
        let last = waiting.pop();
        let mut first = false;
        if !waiting.is_empty() {
            let Some(copy) = self.copy else {
                let n = waiting.len() + 1;
                return Err(Error::msg(format!(
                    "the reply answers {n} requests, and cannot be copied: use `App::gateway`"
                )));
            };
            for slot in waiting {
                first |= slot.reply(copy(&reply));
            }
        }
        if let Some(last) = last {
            first |= last.reply(reply);
        }
        if !first {
            self.requests.unclaimed();
        }
        obligation.settle();
        Ok(())
    }
}
