//! Sources that are polled: a `futures::Stream`, a channel of tokio. Events that are ready are sent at once;
//! if there are none, the pull waits to be woken, and another worker stands in for the one that waits.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use comporta_model::error::Result;
use comporta_model::port::Out;
use comporta_model::source::{Demand, Pull, Source};

use crate::sync::{Condvar, Mutex, wait};

/// Polls for the next event.
type Next<T> = Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<T>> + Send>;

/// A source that is polled; see `stream` and `tokio_receiver`.
#[must_use = "a source gives nothing until a program pulls it: `app.source(name, || source)`"]
pub struct Polled<T> {
    next: Next<T>,
    signal: Arc<Signal>,
}

impl<T> Polled<T> {
    fn new(next: Next<T>) -> Self {
        Polled { next, signal: Arc::default() }
    }
}

/// Returns a source of the items of a stream. The source ends with the stream.
///
/// ```
/// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::{App, sources}; }
/// use comporta::{App, Plan, sources};
///
/// # struct Three(u32);
/// # impl futures_core::Stream for Three {
/// #     type Item = u32;
/// #     fn poll_next(mut self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Option<u32>> {
/// #         self.0 += 1;
/// #         std::task::Poll::Ready((self.0 <= 3).then_some(self.0))
/// #     }
/// # }
/// # let numbers = Three(0);
/// let app = App::new("streamed");
/// let numbers = app.source("numbers", move || sources::stream(numbers));
/// app.connect(numbers, app.sink("show", |n: u32| println!("{n}")));
/// let summary = app.run(&Plan::new())?;
/// # assert_eq!(summary.snapshot.stage("show").unwrap().counts.handled, 3);
/// # Ok::<(), comporta_runtime::StartError>(())
/// ```
#[cfg(feature = "stream")]
pub fn stream<S>(stream: S) -> Polled<S::Item>
where
    S: futures_core::Stream + Send + 'static,
    S::Item: Send + 'static,
{
    let mut stream = Box::pin(stream);
    Polled::new(Box::new(move |cx| stream.as_mut().poll_next(cx)))
}

/// Returns a source of the events sent through a channel of tokio. The source ends when all senders are
/// gone. It needs no tokio runtime.
#[cfg(feature = "tokio")]
pub fn tokio_receiver<T: Send + 'static>(
    mut receiver: tokio::sync::mpsc::Receiver<T>,
) -> Polled<T> {
    Polled::new(Box::new(move |cx| receiver.poll_recv(cx)))
}

/// Where a pull waits to be woken.
#[derive(Default)]
struct Signal {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Waits until it was woken since the last call.
    fn wait(&self) {
        let mut woken = self.woken.lock();
        while !*woken {
            woken = wait(&self.changed, woken, None);
        }
        *woken = false;
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.woken.lock() = true;
        self.changed.notify_one();
    }
}

impl<T: Send + 'static> Source for Polled<T> {
    type Item = T;

    fn pull(&mut self, out: &mut Out<T>, demand: Demand) -> Result<Pull> {
        let waker = Waker::from(self.signal.clone());
        let mut cx = Context::from_waker(&waker);
        let mut sent = 0;
        while sent < demand.events {
            match (self.next)(&mut cx) {
                Poll::Ready(Some(event)) => {
                    out.send(event);
                    sent += 1;
                }
                Poll::Ready(None) => return Ok(Pull::End),
                Poll::Pending if sent > 0 => break, // nobody has seen what was sent yet
                Poll::Pending => self.signal.wait(),
            }
        }
        Ok(Pull::More)
    }
}

impl<T> fmt::Debug for Polled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Polled")
    }
}

#[cfg(all(test, not(shuttle), feature = "stream", feature = "tokio"))]
mod tests {
    use std::pin::Pin;

    use comporta_model::event::Time;

    use super::*;

    /// Pulls until the end; returns what each pull sent.
    fn pulled<T: Send + 'static>(mut source: Polled<T>, events: usize) -> Vec<Vec<T>> {
        let mut pulls = Vec::new();
        let mut out = Out::default();
        loop {
            let left = source.pull(&mut out, Demand::new(events, Time::ZERO, 1));
            let left = left.expect("what is polled never fails");
            pulls.push(out.drain().collect());
            if left == Pull::End {
                return pulls;
            }
        }
    }

    /// Ready, pending and woken at once, ready.
    struct Falters(u32);

    impl futures_core::Stream for Falters {
        type Item = u32;
        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<u32>> {
            self.0 += 1;
            match self.0 {
                1 | 3 | 4 => Poll::Ready(Some(self.0)),
                2 | 5 | 6 => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                _ => Poll::Ready(None),
            }
        }
    }

    #[test]
    fn a_stream_is_handed_on_as_far_as_it_is_ready() {
        assert_eq!(pulled(stream(Falters(0)), 10), [vec![1], vec![3, 4], vec![]]);
        assert_eq!(pulled(stream(Falters(0)), 1), [vec![1], vec![3], vec![4], vec![]]);
    }

    #[test]
    fn a_channel_of_tokio_is_read_to_its_end_without_a_runtime_of_tokio() {
        let (sender, receiver) = tokio::sync::mpsc::channel(2);
        let sends = move || (0..100).for_each(|n| sender.blocking_send(n).unwrap());
        let sends = crate::sync::spawn("sends".to_owned(), sends).unwrap();
        let all: Vec<u32> = pulled(tokio_receiver(receiver), 7).into_iter().flatten().collect();
        sends.join().unwrap();
        assert!(all.into_iter().eq(0..100));
    }
}
