//! What the handlers of one node do, decided by a hash of the event, and the ledger of what they saw
//! and sent, to be compared with what the runtime says.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use comporta::{AsyncCx, Cx, Error, Result, Retry};

use crate::case::{Case, Ending};
use crate::dice::mix2;
use crate::event::{Event, Facts, ForkPorts, Tally, UNNUMBERED};
use crate::faults::Fault;
use crate::injector::Injector;

/// Sent by a call that floods, beyond what it may: no storage of a port holds so many.
const FLOOD: usize = 1_024;

/// What is known of one node.
pub(crate) struct Site {
    node: u64,
    single: bool,
    /// It sees the events of each producer in the order sent.
    checks_order: bool,
    /// Its many instances number what they send by what they were handed.
    renumbers: bool,
    fails: u64,
    emits_max: u64,
    copies: u64,
    tries_to_send: bool,
    finish_emits: u64,
    quit_after: Option<u64>,
    fuel: u64,
    busy: AtomicBool,
    next: AtomicU64,
    /// How many keys its events have, if it is keyed, and those that it handles.
    keys: Option<u64>,
    inside: Mutex<HashSet<u64>>,
    /// By key and sender.
    last_seen: Mutex<HashMap<(Option<u64>, u64), u64>>,
    retry: Retry,
    retain: bool,
    /// What one event may emit, where it sometimes floods.
    emit_max: Option<usize>,
    pub(crate) handled: Tally,
    /// Failed for good, as far as the handler sees that.
    pub(crate) failed: Tally,
    sent: [Tally; 2],
    /// Of an acknowledged source: groups opened, and settled.
    pub(crate) groups: [AtomicU64; 2],
    /// It is the input, into which events push when they are dropped.
    echoed: bool,
    pub(crate) injector: Arc<Injector>,
    wrongs: Arc<Mutex<Vec<String>>>,
}

pub(crate) struct Ledger {
    pub(crate) sites: Vec<Arc<Site>>,
    pub(crate) injector: Arc<Injector>,
    wrongs: Arc<Mutex<Vec<String>>>,
}

impl Ledger {
    pub(crate) fn new(case: &Case, on_threads: bool) -> Self {
        let wrongs = Arc::new(Mutex::new(Vec::new()));
        let injector = Injector::new(case.faults, on_threads);
        let site = |node: usize| {
            let stage = case.stage(node);
            let single = case.is_single(node);
            Arc::new(Site {
                node: node as u64,
                single,
                keys: stage.and_then(|stage| stage.keys),
                inside: Mutex::default(),
                checks_order: (single || stage.is_some_and(|stage| stage.keys.is_some()))
                    && !case.may_turn(node)
                    && stage.is_none_or(|stage| !stage.replayed),
                renumbers: !single && case.is_numbered(node),
                fails: stage.map_or(0, |stage| stage.fails),
                emits_max: stage.map_or(1, |stage| stage.emits_max),
                copies: case.copies(node),
                tries_to_send: stage.is_some_and(|stage| stage.tries_to_send),
                finish_emits: stage.map_or(0, |stage| stage.finish_emits),
                quit_after: match case.ending {
                    Ending::Quit { stage, after } if stage == node => Some(after),
                    _ => None,
                },
                fuel: case.fuel,
                busy: AtomicBool::new(false),
                next: AtomicU64::new(0),
                last_seen: Mutex::default(),
                retry: stage.map_or(Retry::default(), |stage| stage.retry),
                retain: stage.is_some_and(|stage| stage.retain),
                emit_max: stage.and_then(|stage| stage.emit_max),
                handled: Tally::default(),
                failed: Tally::default(),
                sent: Default::default(),
                groups: Default::default(),
                echoed: (case.sources.len()..case.heads()).contains(&node),
                injector: injector.clone(),
                wrongs: wrongs.clone(),
            })
        };
        Ledger { sites: (0..case.nodes()).map(site).collect(), injector, wrongs }
    }

    /// What handlers found wrong so far.
    pub(crate) fn wrongs(&self) -> Vec<String> {
        self.wrongs.lock().unwrap().clone()
    }
}

/// Marks a site as running, and the key of its event, also while a panic unwinds.
pub(crate) struct Busy<'a> {
    site: &'a Site,
    key: Option<u64>,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.site.busy.store(false, SeqCst);
        if let Some(key) = self.key {
            self.site.inside.lock().unwrap().remove(&key);
        }
    }
}

/// An error that cannot always be shown.
#[derive(Debug)]
struct Failure {
    speechless: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        assert!(!self.speechless, "an error that cannot be shown");
        f.write_str("an error was asked for")
    }
}

impl std::error::Error for Failure {}

/// How a call fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failing {
    Error,
    Panic,
    /// It sends more than one event may.
    Flood,
    /// An event cannot be dropped, once it is handled.
    Drop,
}

/// What a handler is told of its call, whether or not it waits.
pub(crate) trait Called {
    fn attempt(&self) -> u32;
    fn quit(&self, result: u64);
}

impl Called for Cx {
    fn attempt(&self) -> u32 {
        Cx::attempt(self)
    }
    fn quit(&self, result: u64) {
        Cx::quit(self, result);
    }
}

impl Called for AsyncCx {
    fn attempt(&self) -> u32 {
        AsyncCx::attempt(self)
    }
    fn quit(&self, result: u64) {
        AsyncCx::quit(self, result);
    }
}

impl Site {
    fn wrong(&self, what: impl std::fmt::Display) {
        let mut wrongs = self.wrongs.lock().unwrap();
        if wrongs.len() < 20 {
            wrongs.push(format!("node {}: {what}", self.node));
        }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, SeqCst)
    }

    fn fresh(&self, fuel: u64) -> Facts {
        let number = self.number();
        Facts::new(mix2(self.node << 32, number), fuel, self.node, number)
    }

    pub(crate) fn event<E: Event>(&self, facts: Facts) -> E {
        E::new(facts, &self.injector)
    }

    /// What a source or a pusher gives next.
    pub(crate) fn to_give(&self) -> Facts {
        let facts = self.fresh(self.fuel);
        // Its parts number what they give together, and know nothing of each other.
        if self.single { facts } else { Facts { from: UNNUMBERED, ..facts } }
    }

    /// It was sent through the one port of a source or an input.
    pub(crate) fn gave(&self, facts: &Facts) {
        self.sent[0].add(facts);
    }

    /// How many events were sent through a port, and their sum.
    pub(crate) fn sent(&self, port: usize) -> (u64, u64) {
        let (count, sum) = self.sent[port].read();
        let echoed = self.echoed && port == 0;
        let (echoes, of_echoes) = if echoed { self.injector.echoes.read() } else { (0, 0) };
        (count + echoes, sum.wrapping_add(of_echoes))
    }

    pub(crate) fn enter<E: Event>(&self, events: &[E], attempt: u32) -> Busy<'_> {
        if self.busy.swap(true, SeqCst) && self.single {
            self.wrong("runs twice at once");
        }
        let key_of = |facts: &Facts| self.keys.map(|keys| facts.key(keys));
        let key = events.first().and_then(|event| key_of(event.facts()));
        if let Some(key) = key
            && !self.inside.lock().unwrap().insert(key)
        {
            self.wrong(format_args!("handles two events of key {key} at once"));
        }
        if attempt > self.retry.tries {
            self.wrong(format_args!("try {attempt} of {}", self.retry.tries));
        }
        for event in events {
            if event.facts().doomed {
                self.wrong(format_args!("was handed what a failed call had sent: {event:?}"));
            }
        }
        if self.checks_order && attempt == 1 {
            let mut seen = self.last_seen.lock().unwrap();
            let numbered = events.iter().map(E::facts).filter(|facts| facts.from != UNNUMBERED);
            for facts in numbered {
                let (from, number) = (facts.from, facts.number);
                let last = seen.insert((key_of(facts), from), number);
                if last.is_some_and(|last| last >= number) {
                    self.wrong(format_args!("saw {number} of {from} after {last:?}, key {key:?}"));
                }
            }
        }
        Busy { site: self, key }
    }

    /// Whether and how the call for this event fails.
    fn failing(&self, dice: u64, attempt: u32) -> Option<Failing> {
        let fails = dice % 100 < self.fails && u64::from(attempt) <= 1 + (dice >> 8) % 4;
        fails.then_some(match dice >> 40 & 3 {
            0 if self.emit_max.is_some() => Failing::Flood,
            1 | 3 => Failing::Panic,
            _ => Failing::Error,
        })
    }

    fn fail(&self, failing: Failing, first: &Facts) -> Result {
        match failing {
            Failing::Panic => panic!("a panic was asked for"),
            Failing::Error if self.injector.strikes(Fault::Display, first) => {
                Err(Failure { speechless: true }.into())
            }
            Failing::Error if first.id.is_multiple_of(2) => {
                Err(Error::msg("an error was asked for"))
            }
            Failing::Error => Err(Failure { speechless: false }.into()),
            Failing::Flood | Failing::Drop => Ok(()),
        }
    }

    /// Whose event it is that is sent as the `k`-th for another, and its number.
    fn numbered(&self, first: &Facts, k: u64) -> (u64, u64) {
        match first.from {
            _ if self.single => (self.node, self.number()),
            from if self.renumbers && from != UNNUMBERED => (self.node, first.number * 8 + k),
            _ => (UNNUMBERED, 0),
        }
    }

    /// Handles one event, or a group as one. What was taken is not there for another try.
    pub(crate) fn handle<E: Event, P: ForkPorts<E>>(
        &self,
        events: &[E],
        taken: bool,
        out: &mut P,
        cx: &Cx,
    ) -> Result {
        let _busy = self.enter(events, cx.attempt());
        self.handle_entered(events, taken, out, cx)
    }

    /// As [`handle`](Self::handle), by a handler that has waited since it entered.
    pub(crate) fn handle_entered<E: Event, P: ForkPorts<E>>(
        &self,
        events: &[E],
        taken: bool,
        out: &mut P,
        cx: &impl Called,
    ) -> Result {
        let attempt = cx.attempt();
        let Some(first) = events.first().map(E::facts) else { return Ok(()) };
        let dice = mix2(first.id, self.node);
        if dice.is_multiple_of(7) {
            std::thread::yield_now(); // others come between
        }
        self.injector.called(first);
        let failing = self.failing(dice, attempt);
        let armed = events.iter().any(E::is_armed).then_some(Failing::Drop);
        let failing = failing.or(armed);
        let fuel = events.iter().map(|event| event.facts().fuel).max().unwrap_or(0);
        let emits = if fuel == 0 { 0 } else { (dice >> 16) % (self.emits_max + 1) };
        let emits = if self.emits_max == 1 && fuel > 0 { 1 } else { emits };
        let fuel = fuel.saturating_sub(1) / (emits * self.copies).max(1);
        let mut sent = Vec::new();
        for k in 0..emits {
            let (from, number) = self.numbered(first, k);
            let id = mix2(first.id, self.node << 8 | k);
            let facts = Facts { doomed: failing.is_some(), ..Facts::new(id, fuel, from, number) };
            let (port, sends) = out.out(((dice >> (24 + k)) & 1) as usize);
            if self.tries_to_send && k % 2 == 1 {
                if let Err(refused) = sends.try_send(self.event::<E>(facts)) {
                    if refused.is_armed() {
                        // The call would fail, and what it has sent is not marked as doomed.
                        std::mem::forget(refused);
                    }
                    continue;
                }
            } else {
                sends.send(self.event(facts));
            }
            sent.push((port, facts));
        }
        if let Some(failing) = failing {
            let gone = taken || failing == Failing::Drop;
            if attempt >= self.retry.tries || gone && !self.retain {
                events.iter().for_each(|event| self.failed.add(event.facts()));
            }
            if let Some(most) = self.emit_max.filter(|_| failing == Failing::Flood) {
                let (_, sends) = out.out((dice >> 24 & 1) as usize);
                let facts = Facts { doomed: true, ..Facts::new(dice, 0, UNNUMBERED, 0) };
                (0..most + FLOOD).for_each(|_| sends.send(self.event(facts)));
            }
            return self.fail(failing, first);
        }
        sent.iter().for_each(|(port, facts)| self.sent[*port].add(facts));
        events.iter().for_each(|event| self.handled.add(event.facts()));
        if self.quit_after.is_some_and(|after| self.handled.read().0 > after) {
            cx.quit(self.node);
        }
        Ok(())
    }

    /// A try was given up while its handler waited.
    pub(crate) fn dropped(&self, facts: &Facts, attempt: u32) {
        if attempt >= self.retry.tries {
            self.failed.add(facts);
        }
    }

    /// Changes an event in place.
    pub(crate) fn update<E: Event>(&self, event: &mut E) -> Result {
        event.facts_mut().tries += 1;
        let facts = *event.facts();
        let _busy = self.enter(std::slice::from_ref(event), facts.tries);
        self.injector.called(&facts);
        let dice = mix2(facts.id, self.node);
        let failing = self.failing(dice, facts.tries).filter(|how| *how != Failing::Flood);
        if let Some(failing) = failing {
            if facts.tries >= self.retry.tries {
                event.facts_mut().tries = 0; // it may be replayed
                self.failed.add(&facts);
            }
            return self.fail(failing, &facts);
        }
        let (from, number) = self.numbered(&facts, 0);
        let fuel = facts.fuel.saturating_sub(1) / self.copies;
        let changed = Facts::new(mix2(facts.id, self.node << 8), fuel, from, number);
        *event.facts_mut() = Facts { echo: facts.echo, ..changed };
        self.sent[0].add(&changed);
        self.handled.add(&facts);
        Ok(())
    }

    /// Whether an event that fails is not tried again.
    pub(crate) fn tries_once(&self) -> bool {
        self.retry.tries == 1
    }

    /// As [`update`](Self::update), of an event that it was given; what fails panics.
    pub(crate) fn replace<E: Event>(&self, mut event: E) -> E {
        let updated = catch_unwind(AssertUnwindSafe(|| self.update(&mut event)));
        if let Ok(Ok(())) = updated {
            return event;
        }
        drop(event); // its `Drop` may panic too, which is too much while another panic unwinds
        match updated {
            Err(panic) => resume_unwind(panic),
            error => {
                std::mem::forget(error); // as may that of the error
                panic!("it fails")
            }
        }
    }

    pub(crate) fn finish<E: Event, P: ForkPorts<E>>(&self, out: &mut P) {
        for k in 0..self.finish_emits {
            let mut facts = self.fresh(2);
            if !self.single {
                facts.from = UNNUMBERED;
            }
            let (port, sends) = out.out((k & 1) as usize);
            sends.send(self.event(facts));
            self.sent[port].add(&facts);
        }
    }
}
