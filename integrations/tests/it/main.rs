//! Crates of others inside of handlers that wait, as `docs/waiting.md` lists them: each is woken by tokio's reactor,
//! and polled by the program's workers.
//!
//! | file | what |
//! |---|---|
//! | `program` | a program whose one stage waits, and what its run left behind |
//! | `hyper` | its client and its server, both in handlers |
//! | `reqwest` | its client, as a resource |
//! | `sqlx` | a pool of SQLite, 200 handlers at once |

#![allow(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

mod program;
mod hyper;
mod reqwest;
mod sqlx;
