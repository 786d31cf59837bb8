//! What the inbox is made of: std's and mio's, or shuttle's under `--cfg shuttle`, so that the very code
//! that runs is the code whose interleavings are explored (`models`).

#[cfg(not(shuttle))]
mod imp {
    pub(crate) use mio::Waker;
    pub(crate) use std::sync::Mutex;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
}

#[cfg(shuttle)]
mod imp {
    pub(crate) use crate::models::Waker;
    pub(crate) use shuttle::sync::Mutex;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering};
}

pub(crate) use imp::*;
