//! The program of a case: handlers whose behaviour is decided by a hash of the event, and a ledger
//! of what they saw and sent, to be compared with what the runtime says.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::ports::{Ports, StageKey};
use comporta::{
    App, AsInput, Cx, Demand, Error, Ev, Out, Ports, Pull, Push, Result, Settled, Source, Stage,
    StageRef, batched,
};

use crate::case::{Case, Ending, Shape, Way};
use crate::dice::{mix, mix2};

/// `(identity, fuel, producer, number, doomed)`: fuel is shared out among what an event leads to;
/// the numbers of one producer ascend in each queue; what is doomed was sent by a failing call and
/// must never arrive. A tuple, because those can be serialised as they are.
pub(crate) type Event = (u64, u64, u64, u64, bool);

/// A producer whose events come in no particular order.
const UNNUMBERED: u64 = u64::MAX;

#[derive(Default)]
pub(crate) struct Tally {
    count: AtomicU64,
    sum: AtomicU64,
}

impl Tally {
    fn add(&self, event: &Event) {
        self.count.fetch_add(1, SeqCst);
        self.sum.fetch_add(mix(event.0), SeqCst);
    }

    /// How many, and a sum that tells one multiset of events from another.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.count.load(SeqCst), self.sum.load(SeqCst))
    }
}

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
    last_seen: Mutex<HashMap<u64, u64>>,
    pub(crate) handled: Tally,
    pub(crate) sent: [Tally; 2],
    /// Of an acknowledged source: groups opened, and settled.
    pub(crate) groups: [AtomicU64; 2],
    wrongs: Arc<Mutex<Vec<String>>>,
}

pub(crate) struct Ledger {
    pub(crate) sites: Vec<Arc<Site>>,
    wrongs: Arc<Mutex<Vec<String>>>,
}

impl Ledger {
    fn new(case: &Case) -> Self {
        let wrongs = Arc::new(Mutex::new(Vec::new()));
        let site = |node: usize| {
            let stage = case.stage(node);
            let single = case.is_single(node);
            Arc::new(Site {
                node: node as u64,
                single,
                checks_order: single
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
                handled: Tally::default(),
                sent: Default::default(),
                groups: Default::default(),
                wrongs: wrongs.clone(),
            })
        };
        Ledger { sites: (0..case.nodes()).map(site).collect(), wrongs }
    }

    /// What handlers found wrong so far.
    pub(crate) fn wrongs(&self) -> Vec<String> {
        self.wrongs.lock().unwrap().clone()
    }
}

/// Marks a site as running, also while a panic unwinds.
struct Busy<'a>(&'a Site);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, SeqCst);
    }
}

/// The ports of a stage, by number.
trait Doors: Ports {
    fn door(&mut self, port: usize) -> (usize, &mut Out<Event>);
}

impl Doors for Out<Event> {
    fn door(&mut self, _: usize) -> (usize, &mut Out<Event>) {
        (0, self)
    }
}

#[derive(Ports)]
struct Fork {
    left: Out<Event>,
    right: Out<Event>,
}

impl Doors for Fork {
    fn door(&mut self, port: usize) -> (usize, &mut Out<Event>) {
        if port == 0 { (0, &mut self.left) } else { (1, &mut self.right) }
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

    fn fresh(&self, fuel: u64) -> Event {
        let number = self.number();
        (mix2(self.node << 32, number), fuel, self.node, number, false)
    }

    /// The event a pusher pushes, and that it was taken.
    pub(crate) fn to_push(&self) -> Event {
        self.fresh(self.fuel)
    }

    pub(crate) fn pushed(&self, event: &Event) {
        self.sent[0].add(event);
    }

    fn enter(&self, events: &[Event], attempt: u32) -> Busy<'_> {
        if self.busy.swap(true, SeqCst) && self.single {
            self.wrong("runs twice at once");
        }
        for event in events {
            if event.4 {
                self.wrong(format_args!("was handed what a failed call had sent: {event:?}"));
            }
        }
        if self.checks_order && attempt == 1 {
            let mut seen = self.last_seen.lock().unwrap();
            for &(_, _, from, number, _) in events.iter().filter(|event| event.2 != UNNUMBERED) {
                let last = seen.insert(from, number);
                if last.is_some_and(|last| last >= number) {
                    self.wrong(format_args!("saw {number} of {from} after {last:?}"));
                }
            }
        }
        Busy(self)
    }

    /// Handles one event, or a group as one.
    fn handle<P: Doors>(&self, events: &[Event], out: &mut P, cx: &Cx) -> Result {
        let _busy = self.enter(events, cx.attempt());
        let Some(first) = events.first() else { return Ok(()) };
        let dice = mix2(first.0, self.node);
        if dice.is_multiple_of(7) {
            std::thread::yield_now(); // others come between
        }
        let fails = dice % 100 < self.fails && u64::from(cx.attempt()) <= 1 + (dice >> 8) % 4;
        let fuel = events.iter().map(|event| event.1).max().unwrap_or(0);
        let emits = if fuel == 0 { 0 } else { (dice >> 16) % (self.emits_max + 1) };
        let emits = if self.emits_max == 1 && fuel > 0 { 1 } else { emits };
        let fuel = fuel.saturating_sub(1) / (emits * self.copies).max(1);
        let mut sent = Vec::new();
        for k in 0..emits {
            let (from, number) = match first.2 {
                _ if self.single => (self.node, self.number()),
                from if self.renumbers && from != UNNUMBERED => (self.node, first.3 * 8 + k),
                _ => (UNNUMBERED, 0),
            };
            let event = (mix2(first.0, self.node << 8 | k), fuel, from, number, fails);
            let (port, door) = out.door(((dice >> (24 + k)) & 1) as usize);
            if self.tries_to_send && k % 2 == 1 {
                if door.try_send(event).is_err() {
                    continue;
                }
            } else {
                door.send(event);
            }
            sent.push((port, event));
        }
        if fails {
            assert!(dice >> 40 & 1 == 0, "a panic was asked for");
            return Err(Error::msg("an error was asked for"));
        }
        sent.iter().for_each(|(port, event)| self.sent[*port].add(event));
        events.iter().for_each(|event| self.handled.add(event));
        if self.quit_after.is_some_and(|after| self.handled.read().0 > after) {
            cx.quit(self.node);
        }
        Ok(())
    }

    fn finish<P: Doors>(&self, out: &mut P) {
        for k in 0..self.finish_emits {
            let mut event = self.fresh(2);
            if !self.single {
                event.2 = UNNUMBERED;
            }
            let (port, door) = out.door((k & 1) as usize);
            door.send(event);
            self.sent[port].add(&event);
        }
    }
}

struct One<P> {
    site: Arc<Site>,
    ports: std::marker::PhantomData<fn(P)>,
}

impl<P> One<P> {
    fn new(site: &Arc<Site>) -> Self {
        One { site: site.clone(), ports: std::marker::PhantomData }
    }
}

impl<P> Clone for One<P> {
    fn clone(&self) -> Self {
        One::new(&self.site)
    }
}

impl<P: Doors> Stage for One<P> {
    type In = Event;
    type Ports = P;
    fn handle(&mut self, event: Ev<'_, Event>, out: &mut P, cx: &Cx) -> Result {
        if mix(event.0).is_multiple_of(5) {
            let taken = event.take();
            self.site.handle(&[taken], out, cx)
        } else {
            self.site.handle(&[*event], out, cx)
        }
    }
    fn finish(&mut self, out: &mut P, _: &Cx) -> Result {
        self.site.finish(out);
        Ok(())
    }
}

#[derive(Clone)]
struct Group(Arc<Site>);

impl Stage for Group {
    type In = Vec<Event>;
    type Ports = Out<Event>;
    fn handle(&mut self, events: Ev<'_, Vec<Event>>, out: &mut Out<Event>, cx: &Cx) -> Result {
        self.0.handle(&events, out, cx)
    }
    fn finish(&mut self, out: &mut Out<Event>, _: &Cx) -> Result {
        self.0.finish(out);
        Ok(())
    }
}

/// A source of so many events.
struct Spring<const ACKNOWLEDGED: bool> {
    site: Arc<Site>,
    left: u64,
    paced: bool,
}

impl<const ACKNOWLEDGED: bool> Source for Spring<ACKNOWLEDGED> {
    type Item = Event;
    const ACKNOWLEDGED: bool = ACKNOWLEDGED;

    fn pull(&mut self, out: &mut Out<Event>, demand: Demand) -> Result<Pull> {
        let dice = mix2(self.left, demand.group);
        if self.paced && dice.is_multiple_of(5) {
            return Ok(Pull::After(Duration::from_micros(dice % 300)));
        }
        for n in 0..demand.events {
            if self.left == 0 {
                return Ok(Pull::End);
            }
            self.site.groups[0].fetch_add(u64::from(n == 0), SeqCst);
            self.left -= 1;
            let event = self.site.fresh(self.site.fuel);
            self.site.sent[0].add(&event);
            out.send(event);
        }
        if ACKNOWLEDGED && dice.is_multiple_of(3) {
            return Ok(Pull::AfterAck);
        }
        Ok(Pull::More)
    }

    fn settled(&mut self, _: Settled) {
        self.site.groups[1].fetch_add(1, SeqCst);
    }
}

/// The end of a connector, whatever the ports of the stage.
#[derive(Clone, Copy)]
struct End(StageKey);

impl AsInput<Event> for End {
    fn as_input(&self) -> StageKey {
        self.0
    }
}

/// Builds the program of a case.
pub(crate) fn build(case: &Case) -> (App, Ledger, Option<Push<Event>>) {
    let ledger = Ledger::new(case);
    let app = App::new(format!("case{}", case.seed));
    let mut ports = Vec::new();
    let mut ends = vec![None; case.heads()];
    for (node, source) in case.sources.iter().enumerate() {
        let (site, left, paced) = (ledger.sites[node].clone(), source.events, source.paced);
        let name = case.name(node);
        ports.push(vec![if source.acknowledged {
            app.source(name, move || Spring::<true> { site, left, paced })
        } else {
            app.source(name, move || Spring::<false> { site, left, paced })
        }]);
    }
    let push = case.input.as_ref().map(|_| {
        let (push, port) = app.input::<Event>("input");
        ports.push(vec![port]);
        push
    });
    for (at, stage) in case.stages.iter().enumerate() {
        let node = case.heads() + at;
        let (name, site) = (case.name(node), &ledger.sites[node]);
        let key = match stage.shape {
            Shape::OnePort => {
                let made = app.stage(name, One::<Out<Event>>::new(site));
                ports.push(vec![*made]);
                declare(made, case, node)
            }
            Shape::TwoPorts => {
                let made = app.stage(name, One::<Fork>::new(site));
                ports.push(vec![made.left, made.right]);
                declare(made, case, node)
            }
            Shape::Grouped(size, wait) => {
                let made = app.stage(name, batched(size, wait, Group(site.clone())));
                ports.push(vec![*made]);
                declare(made, case, node)
            }
        };
        ends.push(Some(End(key)));
    }
    for link in &case.links {
        let port = ports[link.from][link.port];
        let to = link.to.iter().filter_map(|to| ends[*to]);
        match link.way {
            Way::One => to.for_each(|to| app.connect(port, to)),
            Way::RoundRobin => app.round_robin(port, to),
            Way::ByKey => app.by_key(port, |event: &Event| event.0 % 5, to),
        }
    }
    (app, ledger, push)
}

fn declare<P: Ports>(made: StageRef<'_, Event, P>, case: &Case, node: usize) -> StageKey {
    let Some(stage) = case.stage(node) else { return made.as_input() };
    let mut made = made;
    if stage.stateful {
        made = made.stateful();
    }
    if stage.ordered {
        made = made.ordered();
    }
    if stage.retain {
        made = made.retain();
    }
    if stage.autostart {
        made = made.autostart((mix2(case.seed, node as u64), case.fuel, UNNUMBERED, 0, false));
    }
    made.as_input()
}
