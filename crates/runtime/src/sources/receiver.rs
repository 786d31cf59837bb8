//! A channel of the standard library as a source. Events that are there are sent at once; if there are none,
//! the pull waits, and another worker stands in for the one that waits.

use std::sync::mpsc::{self, RecvError, TryRecvError};

use comporta_model::error::Result;
use comporta_model::port::Out;
use comporta_model::source::{Demand, Pull, Source};

/// Returns a source of the events sent through a channel of the standard library. The source ends when all
/// senders are gone.
///
/// ```
/// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::{App, sources}; }
/// use comporta::{App, Plan, sources};
///
/// let (sender, jobs) = std::sync::mpsc::channel();
/// let app = App::new("jobs");
/// let jobs = app.source("jobs", move || sources::receiver(jobs));
/// app.connect(jobs, app.sink("do", |job: u32| println!("job {job}")));
/// let running = app.start(&Plan::new())?;
/// sender.send(1)?;
/// sender.send(2)?;
/// drop(sender);
/// let summary = running.wait();
/// # assert_eq!(summary.snapshot.stage("do").unwrap().counts.handled, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn receiver<T: Send + 'static>(receiver: mpsc::Receiver<T>) -> Receiver<T> {
    Receiver(receiver)
}

/// A source that reads from a channel; see [`receiver`].
#[derive(Debug)]
#[must_use = "a source gives nothing until a program pulls it: `app.source(name, || source)`"]
pub struct Receiver<T>(mpsc::Receiver<T>);

impl<T: Send + 'static> Source for Receiver<T> {
    type Item = T;

    fn pull(&mut self, out: &mut Out<T>, demand: Demand) -> Result<Pull> {
        for n in 0..demand.events {
            match self.0.try_recv() {
                Ok(event) => out.send(event),
                Err(TryRecvError::Disconnected) => return Ok(Pull::End),
                Err(TryRecvError::Empty) if n > 0 => break, // nobody has seen what was sent yet
                Err(TryRecvError::Empty) => match self.0.recv() {
                    Ok(event) => out.send(event),
                    Err(RecvError) => return Ok(Pull::End),
                },
            }
        }
        Ok(Pull::More)
    }
}
