//! Event sources of every kind and stackful coroutines, on one thread: a program waits for sockets,
//! timers, callbacks and blocking calls at once, and its handlers read like sequential code.
//!
//! ```
//! use comporta_scheduler::net::{TcpListener, TcpStream};
//! use comporta_scheduler::{Scheduler, spawn};
//! use std::io::{self, BufRead, BufReader, Write};
//!
//! fn serve(stream: TcpStream) -> io::Result<()> {
//!     let mut lines = BufReader::new(&stream).lines();
//!     while let Some(line) = lines.next().transpose()? {
//!         (&stream).write_all(format!("you said: {line}\n").as_bytes())?;
//!     }
//!     Ok(())
//! }
//!
//! let mut scheduler = Scheduler::new()?;
//! let answer = scheduler.block_on(|| -> io::Result<String> {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     spawn(move || -> io::Result<()> {
//!         loop {
//!             let (stream, _) = listener.accept()?;
//!             spawn(|| serve(stream))?;
//!         }
//!     })?;
//!     let mut client = TcpStream::connect(address)?;
//!     client.write_all(b"hello\n")?;
//!     let mut answer = String::new();
//!     BufReader::new(client).read_line(&mut answer)?;
//!     Ok(answer)
//! });
//! assert_eq!(answer.unwrap()?, "you said: hello\n");
//! # Ok::<(), io::Error>(())
//! ```
//!
//! There is no `async`: `BufReader` above knows nothing of this crate, and suspends the coroutine inside its
//! `read`. Nothing is preempted, and nothing is shared between threads: between two operations, a coroutine
//! runs undisturbed by the others.
//!
//! # The parts
//!
//! Three components, as in the model this follows (the *event observer*, the *handler repository* and the
//! *scheduler* of an event-driven runtime with coroutines), a file or folder each:
//!
//! | file | contents |
//! |---|---|
//! | `source` | the [`EventSource`] trait and its kinds: [`sources`] |
//! | `notifier`, `mailbox`, `events` | [`Notifier`] and [`Events`]: how an event reaches a handler |
//! | `observer` | `wait_for_events`: asks the demultiplexers one after the other, each with a bounded wait |
//! | `repository` | identifiers to handler objects; the ready queue |
//! | `scheduler` | [`Scheduler`]: `register_source`, `step`, `run`, `stop` |
//! | `core` | joins them; suspends and resumes handlers, each in its turn |
//! | `coroutine` | stacks, switching, trimming; the one file with `unsafe` |
//! | `task` | a coroutine's life: [`spawn`], [`on_end`], [`JoinHandle`] |
//! | `wait`, `wait_list` | suspension for several reasons; the handlers that wait for one thing |
//! | `channel`, `net`, `blocking` | operations that read like blocking ones |
//! | `fifo`, `table` | a queue that mostly holds one item; a table whose keys are never reused |
//! | `clock`, `sync`, `models` | time and what threads share, replaceable; the inbox under shuttle |
//!
//! # An event's walk
//!
//! 1. A source reports: a callback calls [`Notifier::notify`], or a demultiplexer of the observer finds
//!    a socket ready or a timer due.
//! 2. [`Scheduler::step`] asks the repository for a handler that is ready. Its queue is empty, so the
//!    observer is asked (`Core::get_ready_object`, `Observer::wait_for_events`), which sleeps until then.
//! 3. The observer wakes the handler that waits for the source (`WaitList`): it goes into the
//!    ready queue.
//! 4. The scheduler takes it out and resumes its coroutine (`Core::resume`), right behind the call in
//!    which it was suspended. That call takes the event and returns it.
//! 5. The handler goes on until its next operation that has to wait (`Core::park`), which adds it to the
//!    list of those that wait for that, and switches back to the scheduler.
//!
//! Most steps are shorter (`Core::take_next`): if nothing is ready, only the operating system is to be asked, and it
//! reports one descriptor for which one handler waits, that handler would be the first of the ready queue, and is
//! resumed without it.
//!
//! # What holds
//!
//! | case | what happens |
//! |---|---|
//! | a handler never suspends | it holds the thread; the others go on when it ends. After 128 operations, even if none had to wait, it yields to others |
//! | a source is always ready | its handler is resumed once a turn; the ready queue is first in, first out, and the observer is asked at least every 64 handlers |
//! | a coroutine panics, or the handler of a source or a [`spawn_fallible`] coroutine returns an error | its finalizers see it, then the holder of its handle; if there is neither, [`Builder::on_failure`] and the caller of [`step`](Scheduler::step) or [`run`](Scheduler::run). The loop goes on |
//! | a handler adds finalizers without end | the 1,025th [`on_end`] panics |
//! | a coroutine is cancelled | it unwinds from where it is suspended; the second time, nothing happens |
//! | a cancelled coroutine catches the unwinding | it unwinds again where it suspends next; a loop that catches every panic must look at [`is_cancelled`], or it never ends |
//! | two coroutines join each other | both wait until one is cancelled; one that joins itself panics |
//! | a socket is used by another scheduler | it is at home there; an operation that waits for it in the first one returns an error |
//! | a coroutine suspends in `Drop` | it is suspended, unless it is unwinding: then the operation returns an error at once ([`sleep`] and [`yield_now`] just return) |
//! | a handler registers itself again | that is another coroutine; both run |
//! | a notifier reports to a source that has no listener any more | the event is returned; the loop is not woken |
//! | [`stop`] in a handler | `run` returns when it suspends; it can be run again |
//! | descriptors are exhausted | `accept` and `connect` return the error, and other coroutines go first, which may close some |
//! | a thousand timers are due at once | they fire in the order in which they were set |
//! | a stack overflows | the process ends at the guard page |
//! | the scheduler is dropped | every coroutine is cancelled and unwinds; spawning another is refused |

#[cfg(not(panic = "unwind"))]
compile_error!(
    "comporta-scheduler needs `panic = \"unwind\"`: a coroutine is cancelled by unwinding it, and a panic \
     of a handler must not end the others"
);

mod sync;
mod clock;
mod table;
mod fifo;
mod source;
mod notifier;
mod mailbox;
mod events;
mod observer;
mod repository;
mod scheduler;
mod core;
mod coroutine;
mod failure;
mod task;
mod wait_list;
mod wait;
mod channel;
mod blocking;
pub mod net;

pub use blocking::{BlockingHandle, spawn_blocking};
pub use channel::{Receiver, Sender, channel};
pub use events::{Events, Ready};
pub use failure::{Failure, Outcome};
pub use notifier::{Notifier, NotifyError};
pub use scheduler::{Builder, Handle, Scheduler, Step, Summary, listen, register_source};
pub use source::{EventSource, Registration};
pub use task::{
    JoinHandle, is_cancelled, now, on_end, sleep, spawn, spawn_fallible, stop, yield_now,
};
pub use wait::{Selectable, Wait};

#[cfg(all(test, shuttle))]
mod models;

/// The kinds of sources, each as a constructor.
pub mod sources {
    pub use crate::source::{after, blocking, callback, every, polled, readable, writable};
}
