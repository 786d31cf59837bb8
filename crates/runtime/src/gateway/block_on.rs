//! A thread that waits for a future.

use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::{Arc, Condvar, Mutex, wait};

/// Waits on this thread for a future, which must not be one that this thread has to bring on.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(signal.clone());
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
        let mut woken = signal.woken.lock();
        while !std::mem::take(&mut *woken) {
            woken = wait(&signal.changed, woken, None);
        }
    }
}

#[derive(Default)]
struct Signal {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.woken.lock() = true;
        self.changed.notify_one();
    }
}
