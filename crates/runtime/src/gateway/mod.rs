//! Gateways: a request enters the graph like an event of an input, and its reply comes back to whoever sent it.
//!
//! 1. here: the ends of a gateway, and its [`Client`], which sends a request by `path::sender`.
//! 2. [`slot`]: what a request waits in.
//! 3. [`requests`]: all open requests of a gateway, and its one alarm.
//! 4. [`replies`]: the reply stage.
//! 5. [`block_on`]: a thread that waits for a reply.
//!
//! The request opens an acknowledgement group, and its slot is what waits for the group: so the correlation
//! travels with the events, through copies, retries, ordered stages, windows and batches. The reply stage finds
//! the slot by the obligation of the event that it is handed. A group that settles without a reply ends its
//! request too, with the reason that the slot was told.
//!
//! Invariants: a slot ends once, by whichever is first: a reply, the group, the deadline, a stop, or the
//! client that drops its future. A slot that has ended holds no waker. Locks here are leaves.

mod slot;
mod requests;
mod replies;
mod block_on;

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::task::Poll;
use std::time::Duration;

use comporta_model::port::Port;

use crate::app::{App, StageRef};
use crate::path::sender::{Full, InputNode, SendError, SendGuard, Sender, Waiting};
use crate::path::work;
use crate::stage::permits::Shed;
use crate::sync::Arc;
use block_on::block_on;
use replies::Replies;
pub(crate) use requests::Requests;
use requests::Shut;
use slot::{Asked, Slot, Why};

/// The ends of a gateway, as [`App::gateway`] returns them.
pub struct Gateway<'a, Q: Send + 'static, R: Send + 'static> {
    /// Sends requests. Clone it for more threads and tasks.
    pub client: Client<Q, R>,
    /// Where the requests come out: connect it to the first stage.
    pub requests: Port<Q>,
    /// Where the replies go in: connect the last stage to it.
    pub replies: StageRef<'a, R, ()>,
}

impl<Q: Send + 'static, R: Send + 'static> fmt::Debug for Gateway<'_, Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("replies", &self.replies).finish_non_exhaustive()
    }
}

/// Why a request has no reply. Where the request was not begun, it is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal<Q> {
    /// A queue that rejects is full, or as many requests are in flight as the plan allows.
    Rejected(Q),
    /// The admission controller of a stage did not let it in: for this reason.
    Refused(Q, Shed),
    /// Waiting here would hold a worker: use [`Client::request`] in handlers.
    WouldBlock(Q),
    /// The program has not been started.
    NotStarted(Q),
    /// The gateway was closed, or the program drains or has ended.
    Closed(Q),
    /// It was shed on its way.
    Shed {
        /// By this stage.
        stage: String,
        /// For this reason.
        reason: Shed,
    },
    /// A handler failed, or dropped what is owed for it.
    Failed {
        /// The stage of the handler, if it is known.
        stage: Option<String>,
        /// Why.
        reason: String,
    },
    /// Everything that it led to was handled, and nothing was a reply.
    NoReply,
    /// There was no reply in time. What is left of it in the graph is shed.
    Deadline,
    /// The program was stopped.
    Cancelled,
}

impl<Q> Refusal<Q> {
    /// The request, where it was given back.
    #[must_use]
    pub fn into_request(self) -> Option<Q> {
        match self {
            Refusal::Rejected(request)
            | Refusal::Refused(request, _)
            | Refusal::WouldBlock(request)
            | Refusal::NotStarted(request)
            | Refusal::Closed(request) => Some(request),
            _ => None,
        }
    }
}

impl<Q> fmt::Display for Refusal<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Rejected(_) => {
                f.write_str("rejected: too many requests wait or are in flight")
            }
            Refusal::Refused(_, by) => write!(f, "not admitted: {by}"),
            Refusal::WouldBlock(_) => f.write_str("waiting for the reply here would hold a worker"),
            Refusal::NotStarted(_) => f.write_str("the program has not been started"),
            Refusal::Closed(_) => f.write_str("the gateway is closed"),
            Refusal::Shed { stage, reason } => write!(f, "shed by `{stage}`: {reason}"),
            Refusal::Failed { stage: Some(stage), reason } => {
                write!(f, "failed in `{stage}`: {reason}")
            }
            Refusal::Failed { stage: None, reason } => write!(f, "failed: {reason}"),
            Refusal::NoReply => f.write_str("it was handled, and nothing replied"),
            Refusal::Deadline => f.write_str("there was no reply in time"),
            Refusal::Cancelled => f.write_str("the program was stopped"),
        }
    }
}

impl<Q: fmt::Debug> std::error::Error for Refusal<Q> {}

impl<Q> From<Why> for Refusal<Q> {
    fn from(why: Why) -> Self {
        match why {
            Why::Shed { stage, reason } => Refusal::Shed { stage, reason },
            Why::Failed { stage, reason } => Refusal::Failed { stage, reason },
            Why::NoReply => Refusal::NoReply,
            Why::Deadline => Refusal::Deadline,
            Why::Cancelled => Refusal::Cancelled,
        }
    }
}

impl<Q> From<SendError<Q>> for Refusal<Q> {
    fn from(refused: SendError<Q>) -> Self {
        match refused {
            SendError::Full(request) => Refusal::Rejected(request),
            SendError::WouldBlock(request) => Refusal::WouldBlock(request),
            SendError::Refused(request, by) => Refusal::Refused(request, by),
            SendError::NotStarted(request) => Refusal::NotStarted(request),
            SendError::Closed(request) => Refusal::Closed(request),
            SendError::Cancelled => Refusal::Cancelled,
            SendError::TimedOut => Refusal::Deadline,
        }
    }
}

/// A handle that sends requests through a gateway, and waits for their replies. Clone it for more threads and
/// tasks; the gateway ends when all clones are dropped, or one of them calls [`close`](Self::close).
pub struct Client<Q: Send + 'static, R: Send + 'static> {
    sender: Sender<Q>,
    requests: Arc<Requests>,
    replies: PhantomData<fn() -> R>,
}

impl<Q: Send + 'static, R: Send + 'static> Client<Q, R> {
    /// Sends a request and waits for its reply, as a future. It waits for room in the queue it goes to, too,
    /// unless that rejects. Dropping the future gives the request up: what is left of it in the graph is shed
    /// where it is taken next, before a handler is called with it.
    ///
    /// # Errors
    /// Why there is no reply; with the request, where it was not begun.
    pub async fn request(&self, request: Q) -> Result<R, Refusal<Q>> {
        let (sending, request) = SendGuard::begin(self.sender.input(), request)?;
        let (asked, waiting) = self.begin(sending, request)?;
        if let Some(waiting) = waiting
            && let Err(stopped) = self.wait_for_room(waiting, &asked.slot).await
        {
            asked.cancel();
            return Err(stopped);
        }
        asked.reply().await
    }

    /// As [`request`](Self::request), waiting on this thread. In a handler, which must not hold its worker, it
    /// gives the request back instead, and so it does in a test runtime.
    ///
    /// # Errors
    /// Why there is no reply; with the request, where it was not begun.
    pub fn request_blocking(&self, request: Q) -> Result<R, Refusal<Q>> {
        if work::must_not_wait() || self.requests.core().is_some_and(|core| core.is_tested()) {
            return Err(Refusal::WouldBlock(request));
        }
        block_on(self.request(request))
    }

    /// How much what this handle sends matters to admission, whatever the plan says of the gateway: the
    /// higher, the longer it is let in.
    #[must_use]
    pub fn tier(mut self, tier: u8) -> Self {
        self.sender = self.sender.tier(tier);
        self
    }

    /// The time within which the requests of this handle are to be answered, whatever the plan says of the
    /// gateway.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Self {
        self.sender = self.sender.within(within);
        self
    }

    /// Closes the gateway: no client can send any more. Requests in flight are still answered.
    pub fn close(&self) {
        self.sender.close();
    }

    /// Opens a request and sends it, as far as there is room.
    fn begin(
        &self,
        sending: SendGuard,
        request: Q,
    ) -> Result<(Asked<R>, Option<Waiting>), Refusal<Q>> {
        let mut meta = self.sender.meta(&sending.core);
        let asked = match Asked::open(&self.requests, &sending.core, meta.duty.deadline) {
            Ok(asked) => asked,
            Err(Shut::Full) => return Err(Refusal::Rejected(request)),
            Err(Shut::Closed) => return Err(Refusal::Closed(request)),
        };
        meta.duty.ack.clone_from(&asked.group);
        match self.sender.enter(sending, request, Full::Waits, &meta) {
            Ok(waiting) => Ok((asked, waiting)),
            Err(refused) => {
                asked.withdraw();
                Err(refused.into())
            }
        }
    }

    /// Waits until the request has entered every queue it goes to, or has ended.
    async fn wait_for_room(&self, mut waiting: Waiting, slot: &Slot<R>) -> Result<(), Refusal<Q>> {
        let place = waiting.links.place().clone();
        while !waiting.is_done() {
            let granted = poll_fn(|cx| {
                if slot.is_ended(cx) {
                    return Poll::Ready(None);
                }
                place.poll(cx.waker()).map(Some)
            });
            match granted.await {
                None => return Ok(()), // dropping the links gives its events up
                Some(true) if waiting.go_on() => {}
                Some(_) => return Err(Refusal::Cancelled),
            }
        }
        self.sender.keep(waiting.links);
        Ok(())
    }
}

impl<Q: Send + 'static, R: Send + 'static> Clone for Client<Q, R> {
    fn clone(&self) -> Self {
        let requests = self.requests.clone();
        Client { sender: self.sender.clone(), requests, replies: PhantomData }
    }
}

impl<Q: Send + 'static, R: Send + 'static> fmt::Debug for Client<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("in_flight", &self.requests.in_flight())
            .finish_non_exhaustive()
    }
}

impl App {
    /// Adds a gateway: requests that its client sends come out of a port, and what is sent to its reply stage is
    /// returned to whoever sent the request that led to it. The reply stage is called `NAME-replies`.
    ///
    /// The first reply is returned; others are counted ([`GatewaySnapshot`](crate::GatewaySnapshot)). A reply made of
    /// several requests, as by a window or a batch, answers all of them. A request that leads to no reply is refused,
    /// with the reason ([`Refusal`]). Plans give it a `deadline`, and bound the requests `in_flight`.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::{App, Refusal}; }
    /// use comporta::{App, Plan, Refusal};
    ///
    /// let app = App::new("roots");
    /// let roots = app.gateway::<f64, f64>("roots");
    /// let real = app.filter("real", |n: &f64| *n >= 0.0);
    /// let root = app.map("root", f64::sqrt);
    /// app.connect(roots.requests, real);
    /// app.connect(real, root);
    /// app.connect(root, roots.replies);
    ///
    /// let client = roots.client; // `client.request(9.0).await` in async code
    /// let running = app.start(&Plan::new())?;
    /// assert_eq!(client.request_blocking(9.0), Ok(3.0));
    /// assert_eq!(client.request_blocking(-1.0), Err(Refusal::NoReply));
    /// drop(client); // the gateway ends, and with it the program
    /// running.wait();
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    pub fn gateway<Q, R>(&self, name: impl Into<String>) -> Gateway<'_, Q, R>
    where
        Q: Send + 'static,
        R: Clone + Send + 'static,
    {
        self.add_gateway(name.into(), Some(R::clone))
    }

    /// As [`gateway`](Self::gateway), for replies that cannot be copied, such as one that holds a socket. A reply
    /// that would answer several requests fails.
    pub fn gateway_local<Q, R>(&self, name: impl Into<String>) -> Gateway<'_, Q, R>
    where
        Q: Send + 'static,
        R: Send + 'static,
    {
        self.add_gateway(name.into(), None)
    }

    fn add_gateway<Q: Send + 'static, R: Send + 'static>(
        &self,
        name: String,
        copy: Option<fn(&R) -> R>,
    ) -> Gateway<'_, Q, R> {
        let replies = format!("{name}-replies");
        let input = self.next_id();
        let requests = Requests::new(input);
        let node = InputNode::new(input, Some(requests.clone()));
        let (sender, port) = self.add_input(name, node);
        self.mark_gateway(port);
        let replies = self.plain(replies, Replies { requests: requests.clone(), copy });
        let _ = requests.replies.set(replies.id());
        let client = Client { sender, requests, replies: PhantomData };
        Gateway { client, requests: port, replies }
    }
}
