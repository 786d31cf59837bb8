//! The boundary between the runtime and user code: while a handler, a source or any other code of
//! the program runs, waits, panics or calls back, nothing that others could do waits for it, and
//! every event is accounted for. A file for each kind of fault; each test failed before its fix.
//!
//! | file | what |
//! |---|---|
//! | `bounded` | waits that end, gates, programs under every policy |
//! | `stuck` | handlers and sources that do not return |
//! | `conservation` | what a stage sent is what its receivers were offered |
//! | `panics` | user code that panics, or calls back, where the runtime does not expect it |
//! | `room` | places in queues that nobody uses |
//! | `priority` | who goes first |
//! | `live` | live change, identity, the end as a future |
//! | `admission` | what counts as queueing |
//! | `rate` | schedules of sources that give less than they were asked for |
//! | `batch` | groups of stages made by a factory |
//! | `stopping` | stops, drains and starts that the system refuses |
//! | `test_runtime` | the test runtime |
//! | `acks` | the fate of every event, reported once |
//! | `errors` | failed events that go on through the graph |
//! | `obligations` | what is owed for an event, wherever it goes and whatever is made of it |
//! | `waiting` | handlers that wait, and events in flight |
//! | `gateway` | requests from outside: one outcome each, and nothing left behind |
//! | `resource` | what handlers share: opened once, and closed once however the run ends |
//! | `blocking` | handlers that wait on threads of their own |
//! | `exits` | the ways out of a visit, a push and a call of a policy |
//! | `found` | what random programs have found |
//! | `found_waiting` | what somebody found who tried to break handlers that wait, and gateways |
//! | `attacks`, `attacks_push` | what somebody found who tried to break it |

#![allow(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

#[path = "../stall/mod.rs"]
mod stall;
mod bounded;
mod stuck;
mod exits;
mod conservation;
mod panics;
mod room;
mod priority;
mod live;
mod admission;
mod rate;
mod batch;
mod stopping;
mod test_runtime;
mod acks;
mod errors;
mod obligations;
mod waiting;
mod gateway;
mod resource;
mod blocking;
mod found;
mod found_waiting;
mod attacks;
mod attacks_push;
