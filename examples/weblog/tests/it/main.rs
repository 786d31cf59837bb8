//! What `weblog` promises: the same findings under every plan, and a command that says what is
//! wrong.

#![expect(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

mod findings;
mod command;
