//! What threads share: locks and atomics of std and the waker of mio, or shuttle's under `--cfg shuttle`, so that
//! the very code that runs is the code whose interleavings are explored (`models`).

#[cfg(not(shuttle))]
mod imp {
    pub(crate) use mio::Waker;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
}

#[cfg(shuttle)]
mod imp {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    use std::io;

    /// Stands for mio's waker and for the wait that it ends: a wake-up is kept until a wait takes it.
    #[derive(Default)]
    pub(crate) struct Waker {
        woken: Mutex<bool>,
        changed: Condvar,
    }

    impl Waker {
        pub(crate) fn new(_: &mio::Registry, _: mio::Token) -> io::Result<Waker> {
            Ok(Waker::default())
        }

        pub(crate) fn wake(&self) -> io::Result<()> {
            *self.woken.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
            self.changed.notify_one();
            Ok(())
        }

        #[cfg(test)]
        pub(crate) fn wait(&self) {
            let woken = self.woken.lock().unwrap();
            *self.changed.wait_while(woken, |woken| !*woken).unwrap() = false;
        }
    }
}

pub(crate) use imp::*;
