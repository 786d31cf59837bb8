//! The program of a case: its sources, its stages of every shape, and the connectors between them.
//! What their handlers do is in `site`.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use comporta::ports::{Ports, StageKey};
use comporta::{
    App, AsInput, Cx, Demand, Ev, Out, Port, Pull, Result, Sender, Settled, Source, Stage,
    StageRef, batched,
};

use crate::case::{Case, Shape, Way};
use crate::dice::{mix, mix2};
use crate::event::{Event, Facts, ForkPorts, UNNUMBERED};
use crate::later::{Later, LaterMut, Waits};
use crate::site::{Ledger, Site};

/// A stage that is handed one event at a time.
struct One<E, P> {
    site: Arc<Site>,
    carries: PhantomData<fn(E, P)>,
}

impl<E, P> One<E, P> {
    fn new(site: &Arc<Site>) -> Self {
        One { site: site.clone(), carries: PhantomData }
    }
}

impl<E, P> Clone for One<E, P> {
    fn clone(&self) -> Self {
        One::new(&self.site)
    }
}

impl<E: Event, P: ForkPorts<E>> Stage for One<E, P> {
    type In = E;
    type Ports = P;
    fn handle(&mut self, event: Ev<'_, E>, out: &mut P, cx: &Cx) -> Result {
        if mix(event.facts().id).is_multiple_of(5) {
            let taken = event.take();
            self.site.handle(std::slice::from_ref(&taken), true, out, cx)
        } else {
            self.site.handle(std::slice::from_ref(&*event), false, out, cx)
        }
    }
    fn finish(&mut self, out: &mut P, _: &Cx) -> Result {
        self.site.finish(out);
        Ok(())
    }
}

/// A stage that is handed groups.
struct Group<E>(One<E, Out<E>>);

impl<E> Clone for Group<E> {
    fn clone(&self) -> Self {
        Group(self.0.clone())
    }
}

impl<E: Event> Stage for Group<E> {
    type In = Vec<E>;
    type Ports = Out<E>;
    fn handle(&mut self, events: Ev<'_, Vec<E>>, out: &mut Out<E>, cx: &Cx) -> Result {
        self.0.site.handle(&events, false, out, cx)
    }
    fn finish(&mut self, out: &mut Out<E>, _: &Cx) -> Result {
        self.0.site.finish(out);
        Ok(())
    }
}

/// A source of so many events.
struct Spring<E, const ACKNOWLEDGED: bool> {
    site: Arc<Site>,
    left: u64,
    paced: bool,
    short: Option<usize>,
    gives: PhantomData<fn(E)>,
}

impl<E: Event, const ACKNOWLEDGED: bool> Source for Spring<E, ACKNOWLEDGED> {
    type Item = E;
    const ACKNOWLEDGED: bool = ACKNOWLEDGED;

    fn pull(&mut self, out: &mut Out<E>, demand: Demand) -> Result<Pull> {
        let dice = mix2(self.left, demand.group);
        if self.paced && dice.is_multiple_of(5) {
            return Ok(Pull::After(Duration::from_micros(dice % 300)));
        }
        for n in 0..self.short.map_or(demand.events, |most| most.min(demand.events)) {
            if self.left == 0 {
                self.site.injector.source_ended();
                return Ok(Pull::End);
            }
            self.site.groups[0].fetch_add(u64::from(n == 0), SeqCst);
            self.left -= 1;
            let facts = self.site.to_give();
            self.site.gave(&facts);
            out.send(self.site.event(facts));
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

impl<E: Event> AsInput<E> for End {
    fn as_input(&self) -> StageKey {
        self.0
    }
}

/// Builds the program of a case.
pub(crate) fn build<E: Event>(case: &Case, on_threads: bool) -> (App, Ledger, Option<Sender<E>>) {
    let ledger = Ledger::new(case, on_threads);
    let app = App::new(format!("case{}", case.seed));
    let mut ports: Vec<Vec<Port<E>>> = Vec::new();
    let mut ends = vec![None; case.heads()];
    for node in 0..case.sources.len() {
        ports.push(vec![if case.sources[node].acknowledged {
            source::<E, true>(&app, case, node, &ledger)
        } else {
            source::<E, false>(&app, case, node, &ledger)
        }]);
    }
    let sender = case.input.as_ref().map(|_| {
        let (sender, port) = app.input::<E>("input");
        ports.push(vec![port]);
        E::lend(&ledger.injector, &sender);
        sender
    });
    for node in case.heads()..case.nodes() {
        ends.push(Some(End(add_stage(&app, case, node, &ledger, &mut ports))));
    }
    for link in &case.links {
        let port = ports[link.from][link.port];
        let to = link.to.iter().filter_map(|to| ends[*to]);
        match link.way {
            Way::One => to.for_each(|to| app.connect_again(port, to)), // by chance, one it has
            Way::RoundRobin => app.round_robin(port, to),
            Way::ByKey => {
                let injector = ledger.injector.clone();
                app.by_key(port, move |event: &E| injector.key(event.facts()), to);
            }
        }
    }
    (app, ledger, sender)
}

fn source<E: Event, const ACKNOWLEDGED: bool>(
    app: &App,
    case: &Case,
    node: usize,
    ledger: &Ledger,
) -> Port<E> {
    let (source, site) = (&case.sources[node], ledger.sites[node].clone());
    let (left, paced, short) = (source.events, source.paced, source.short);
    let gives = PhantomData;
    app.source_parts(case.name(node), move |part| {
        let (site, of) = (site.clone(), part.of(left));
        Spring::<E, ACKNOWLEDGED> { site, left: of.end - of.start, paced, short, gives }
    })
}

fn add_stage<E: Event>(
    app: &App,
    case: &Case,
    node: usize,
    ledger: &Ledger,
    ports: &mut Vec<Vec<Port<E>>>,
) -> StageKey {
    let (name, site) = (case.name(node), &ledger.sites[node]);
    match case.stages[node - case.heads()].shape {
        Shape::OnePort => {
            let made = app.stage(name, One::<E, Out<E>>::new(site));
            ports.push(vec![*made]);
            declare(made, case, node, site)
        }
        Shape::TwoPorts => {
            let made = app.stage(name, One::<E, E::Fork>::new(site));
            ports.push(E::fork_ports(&made).to_vec());
            declare(made, case, node, site)
        }
        Shape::Waiting(Waits { flushes: false, .. }) => {
            waiting::<E, false>(app, case, node, site, ports)
        }
        Shape::Waiting(_) => waiting::<E, true>(app, case, node, site, ports),
        Shape::InPlace => {
            let updated = site.clone();
            // A closure that takes its event, and returns it in its place; what fails in it is gone.
            let takes = site.tries_once() && mix2(case.seed, node as u64).is_multiple_of(2);
            let made = if takes {
                app.map(name, move |event: E| updated.replace(event))
            } else {
                app.map_in_place(name, move |event: &mut E| updated.update(event))
            };
            ports.push(vec![*made]);
            declare(made, case, node, site)
        }
        Shape::Grouped(size, wait) => {
            let made = app.stage(name, batched(size, wait, Group::<E>(One::new(site))));
            ports.push(vec![*made]);
            declare(made, case, node, site)
        }
    }
}

fn waiting<E: Event, const FLUSHES: bool>(
    app: &App,
    case: &Case,
    node: usize,
    site: &Arc<Site>,
    ports: &mut Vec<Vec<Port<E>>>,
) -> StageKey {
    let later = Later::<E, FLUSHES>::new(site);
    let stateful = case.stage(node).is_some_and(|stage| stage.stateful);
    let made = match stateful {
        true => app.stage(case.name(node), LaterMut(later)),
        false => app.stage(case.name(node), later),
    };
    ports.push(vec![*made]);
    declare(made, case, node, site)
}

fn declare<E: Event, P: Ports>(
    made: StageRef<'_, E, P>,
    case: &Case,
    node: usize,
    site: &Site,
) -> StageKey {
    let Some(stage) = case.stage(node) else { return made.as_input() };
    let mut made = made;
    if stage.stateful && !matches!(stage.shape, Shape::Waiting(_)) {
        made = made.stateful();
    }
    if stage.ordered {
        made = made.ordered();
    }
    if let Some(keys) = stage.keys {
        made = made.keyed(move |event: &E| event.facts().key(keys));
    }
    if stage.retain {
        made = made.retain();
    }
    if stage.autostart {
        let id = mix2(case.seed, node as u64);
        made = made.autostart(site.event(Facts::new(id, case.fuel, UNNUMBERED, 0)));
    }
    made.as_input()
}
