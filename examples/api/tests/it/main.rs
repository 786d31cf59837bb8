//! The endpoint as its clients meet it, and under overload.
//!
//! | file | what |
//! |---|---|
//! | `client` | an HTTP client of a few lines |
//! | `responses` | what is answered to which request |
//! | `overload` | three times as many requests as it can serve |
//! | `shutdown` | the command, and its end |

#![allow(clippy::disallowed_methods, reason = "the clients have threads of their own")]
#![allow(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

mod client;
mod responses;
mod overload;
mod shutdown;
