//! Random programs on virtual time: coroutines that share channels, sources and sockets, wait for several of them at
//! once, cancel each other, panic and stop the loop. Every operation costs no more than so many steps, so a program
//! ends within a bound: one that goes on beyond it makes no progress, and the test names its seed.
//!
//! ```text
//! COMPORTA_SEED=17 cargo test -p comporta-scheduler --test it random    # that one alone
//! COMPORTA_PROGRAMS=20000 ...                                           # so many
//! ```

use comporta_scheduler::net::UnixStream;
use comporta_scheduler::{
    Events, Failure, JoinHandle, Notifier, Receiver, Scheduler, Sender, Step, Wait, channel,
    listen, on_end, register_source, sleep, sources, spawn, stop, yield_now,
};
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::panic::resume_unwind;
use std::rc::Rc;
use std::time::Duration;

const PROGRAMS: u64 = 300;
const CHANNELS: u64 = 3;
const SOURCES: u64 = 2;
const SOCKETS: u64 = 2;
const COROUTINES: u64 = 6;
/// Operations of each coroutine that the program begins with; a child has half of what its parent has left.
const OPERATIONS: u32 = 24;
/// After this time those that still wait are cancelled.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Steps that one operation may lead to: it wakes everybody who waits for what it did, and a few more.
const STEPS_EACH: u64 = 64;
const MS: Duration = Duration::from_millis(1);

/// SplitMix64, shared by the coroutines of a program: they run in one order.
struct Random(Cell<u64>);

impl Random {
    fn below(&self, bound: u64) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        let mut word = self.0.get();
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)) % bound
    }

    fn of<'a, T>(&self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    fn time(&self) -> Duration {
        MS * self.below(5) as u32
    }
}

/// What the coroutines of a program share.
struct World {
    random: Random,
    channels: Vec<(Sender<u64>, Receiver<u64>)>,
    sources: Vec<(Notifier<u64>, Events<u64>)>,
    sockets: Vec<(UnixStream, UnixStream)>,
    handles: RefCell<Vec<JoinHandle<()>>>,
    /// Operations begun.
    operations: Cell<u64>,
    /// Coroutines that have begun, and not ended.
    alive: Cell<u64>,
    sent: Cell<u64>,
    received: Cell<u64>,
}

impl World {
    fn new(seed: u64) -> io::Result<World> {
        let random = Random(Cell::new(seed));
        let channels = (0..CHANNELS).map(|_| channel(1 + random.below(3) as usize)).collect();
        let source = |_| -> io::Result<_> {
            let mut kept = None;
            let events = listen(sources::callback(|notifier| {
                kept = Some(notifier);
                Ok(())
            }))?;
            Ok((kept.unwrap(), events))
        };
        Ok(World {
            random,
            channels,
            sources: (0..SOURCES).map(source).collect::<io::Result<_>>()?,
            sockets: (0..SOCKETS).map(|_| UnixStream::pair()).collect::<io::Result<_>>()?,
            handles: RefCell::default(),
            operations: Cell::new(0),
            alive: Cell::new(0),
            sent: Cell::new(0),
            received: Cell::new(0),
        })
    }

    fn received<T>(&self, item: Option<T>) {
        self.received.set(self.received.get() + u64::from(item.is_some()));
    }

    fn sent(&self, taken: bool) {
        self.sent.set(self.sent.get() + u64::from(taken));
    }

    /// Waits for some of what there is, with a limit or without.
    fn wait(&self) {
        let mut wait = Wait::new();
        for _ in 0..=self.random.below(3) {
            wait = if self.random.below(2) == 0 {
                wait.on(&self.random.of(&self.channels).1, Some)
            } else {
                wait.on(&self.random.of(&self.sources).1, Some)
            };
        }
        if self.random.below(2) == 0 {
            wait = wait.after(self.random.time(), None);
        }
        self.received(wait.suspend().unwrap().flatten());
    }

    fn channel(&self) {
        let (sender, receiver) = self.random.of(&self.channels);
        match self.random.below(5) {
            0 => self.sent(sender.try_send(1).is_ok()),
            1 => self.sent(sender.send(1).is_ok()),
            2 => self.received(receiver.try_recv().ok()),
            3 => self.received(receiver.recv().ok()),
            _ => self.received(receiver.recv_timeout(self.random.time()).ok()),
        }
    }

    fn source(&self) {
        let (notifier, events) = self.random.of(&self.sources);
        match self.random.below(3) {
            0 => self.sent(notifier.notify(1).is_ok()),
            1 => self.received(events.next().unwrap()),
            _ => self.received(events.next_timeout(self.random.time()).ok().flatten()),
        }
    }

    fn socket(&self) {
        let (ours, theirs) = self.random.of(&self.sockets);
        let limit = Some(self.random.time() + MS);
        theirs.set_read_timeout(limit).unwrap();
        match self.random.below(2) {
            0 => drop((&*ours).write(&[1; 3]).unwrap()),
            _ => drop((&*theirs).read(&mut [0; 2])),
        }
    }

    fn operate(self: &Rc<World>, left: u32) {
        match self.random.below(16) {
            0 => yield_now(),
            1 => sleep(self.random.time()),
            2..=5 => self.channel(),
            6..=8 => self.wait(),
            9 | 10 => self.source(),
            11 => self.socket(),
            12 => self.child(left / 2),
            13 => match &**self.handles.borrow() {
                [] => {}
                handles => self.random.of(handles).cancel(),
            },
            14 => match self.random.below(4) {
                0 => resume_unwind(Box::new("on purpose")), // a panic without its message
                1 => stop(),
                2 => on_end(|_| yield_now()),
                _ => self.tick(),
            },
            _ => {}
        }
    }

    fn child(self: &Rc<World>, operations: u32) {
        let Ok(handle) = self.spawn(operations) else { return };
        match self.random.below(4) {
            0 => drop(handle),
            1 => self.handles.borrow_mut().push(handle),
            2 => {
                handle.cancel();
                handle.cancel();
                drop(handle.join());
            }
            _ => drop(handle.join_timeout(self.random.time())),
        }
    }

    fn tick(self: &Rc<World>) {
        let mut left = self.random.below(3);
        let tick = move |_| {
            left = left.checked_sub(1).ok_or_else(|| io::Error::other("enough"))?;
            Ok::<(), io::Error>(())
        };
        drop(register_source(sources::every(self.random.time()), tick).unwrap());
    }

    fn spawn(self: &Rc<World>, operations: u32) -> io::Result<JoinHandle<()>> {
        struct Alive(Rc<World>);
        impl Drop for Alive {
            fn drop(&mut self) {
                self.0.alive.set(self.0.alive.get() - 1);
            }
        }
        let world = self.clone();
        spawn(move || {
            world.alive.set(world.alive.get() + 1);
            let alive = Alive(world);
            for left in (0..operations).rev() {
                alive.0.operations.set(alive.0.operations.get() + 1);
                alive.0.operate(left);
            }
        })
    }

    /// The program: all of it, and then those that wait in vain are cancelled.
    fn run(self: &Rc<World>) {
        for _ in 0..COROUTINES {
            let handle = self.spawn(OPERATIONS).unwrap();
            self.handles.borrow_mut().push(handle);
        }
        loop {
            let Some(handle) = self.handles.borrow_mut().pop() else { return };
            if let Err(late) = handle.join_timeout(PATIENCE) {
                late.cancel();
                let ended = late.join();
                assert!(matches!(ended, Err(Failure::Cancelled) | Ok(())), "{ended:?}");
            }
        }
    }
}

fn check(seed: u64) {
    let mut scheduler = Scheduler::builder().virtual_time().build().unwrap();
    let world = Rc::new(RefCell::new(None));
    let made = world.clone();
    let main = scheduler.spawn(move || {
        let world = Rc::new(World::new(seed).unwrap());
        made.replace(Some(world.clone()));
        world.run();
    });
    let main = main.unwrap();
    let mut steps = 0_u64;
    while !main.is_finished() {
        if let Step::Failed(failure) = scheduler.step().unwrap() {
            let expected = ["the coroutine panicked: on purpose", "the handler failed: enough"];
            assert!(expected.contains(&&*failure.to_string()), "seed {seed}: {failure}");
        }
        steps += 1;
        let operations = world.borrow().as_ref().map_or(0, |world| world.operations.get());
        let bound = STEPS_EACH * (operations + COROUTINES);
        assert!(steps < bound, "seed {seed}: {steps} steps, {operations} operations: no progress");
    }
    main.join().unwrap();
    let world = world.take().unwrap();
    let left = |(_, receiver): &(_, Receiver<u64>)| {
        std::iter::from_fn(|| receiver.try_recv().ok()).count() as u64
    };
    let left: u64 = world.channels.iter().map(left).sum();
    let (sent, received) = (world.sent.get(), world.received.get());
    assert!(sent >= received + left, "seed {seed}: {sent} sent, {received} received, {left} left");
    drop(scheduler);
    assert_eq!(world.alive.get(), 0, "seed {seed}: all have unwound");
}

#[test]
fn random_programs_end_within_a_bound_of_steps() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(seed) = number("COMPORTA_SEED") {
        return check(seed);
    }
    (0..number("COMPORTA_PROGRAMS").unwrap_or(PROGRAMS)).for_each(check);
}
