//! One event's by_order, a hop per file:
//!
//! 1. [`source`] is pulled for events, as [`schedule`] says if it has a rate, and as many as
//!    [`pull_size`] says; [`push`] lets a program hand them in from outside, and [`caller`] is who
//!    waits there.
//! 2. [`admit`] decides at the queue's door: enter, wait, be refused or shed; [`gate`] asks the
//!    stage's admission controller first, if it has one.
//! 3. [`enqueue`] is the stage's queue and its instances, under the one lock a visit pays.
//! 4. [`ready`] holds the tokens that say which stage has work; [`visit_order`] is the visit order.
//! 5. [`work`] is the worker: it takes a token and makes a visit, or sleeps.
//! 6. [`handle`] runs the handler over a chunk, in a loop that knows its types; [`pace`] says for
//!    how long, [`ports`] what is asked of its ports.
//! 7. [`emit`] hands what was sent to the next queues, or keeps it in an outbox.
//! 8. [`settle`] counts how each event ended and says what the instance does next; [`release`] lets
//!    the results of an ordered stage out in order.

pub(crate) mod source;
pub(crate) mod schedule;
pub(crate) mod pull_size;
pub(crate) mod push;
pub(crate) mod caller;
pub(crate) mod gate;
pub(crate) mod admit;
pub(crate) mod enqueue;
pub(crate) mod ready;
pub(crate) mod visit_order;
pub(crate) mod work;
pub(crate) mod handle;
pub(crate) mod group;
pub(crate) mod pace;
pub(crate) mod ports;
pub(crate) mod emit;
pub(crate) mod settle;
pub(crate) mod release;
