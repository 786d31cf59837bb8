//! One event's walk, a hop per file, with [`stage`](crate::stage) in the middle:
//!
//! 1. [`source`] is pulled for events, as [`schedule`] says if it has a rate, and as many as
//!    [`pull_size`] says; [`sender`] lets a program hand them in from outside, by
//!    way of [`caller`].
//! 2. [`stage::inlet`](crate::stage::inlet) decides what may enter a queue,
//! 3. and puts it there.
//! 4. [`ready`] holds the tokens that say which stage has work, and [`moving`] says which of them others may steal;
//!    [`shared`] has those that any worker may take; [`visit_order`] is the order in which workers visit stages, where a policy has one.
//! 5. [`work`] is the worker: it takes a token and makes a visit, or sleeps; [`hand_on`] is where the tokens go that the
//!    visit made.
//! 6. [`stage::handle`](crate::stage::handle) runs the handler over a batch.
//! 7. [`emit`] hands what was sent to its outlets ([`bundle`]), or straight to a queue ([`direct`]), as [`route`] says, and [`in_turn`] where the order of ports matters;
//!    [`spread`] copies it, if all of it goes to several; [`error_port`] does it with failed events. [`outlet`] is one way
//!    to one queue, with what found no room there; [`parcel`] is what it hands over at once; [`room`] is what it sees of that
//!    queue before; [`line`] is how a sender waits for room.
//! 8. `stage::settle` counts how each event ended.

pub(crate) mod source;
pub(crate) mod schedule;
pub(crate) mod pull_size;
pub(crate) mod sender;
pub(crate) mod caller;
pub(crate) mod ready;
pub(crate) mod moving;
pub(crate) mod shared;
pub(crate) mod visit_order;
pub(crate) mod work;
mod hand_on;
pub(crate) mod emit;
pub(crate) mod bundle;
mod direct;
pub(crate) mod in_turn;
pub(crate) mod error_port;
pub(crate) mod route;
mod spread;
pub(crate) mod outlet;
pub(crate) mod parcel;
pub(crate) mod line;
pub(crate) mod room;
#[cfg(all(test, not(shuttle)))]
mod link;
