//! The program: the consumers, how the stages are joined, and the plan.
//!
//! ```text
//!                                ┌──▶ trips ────▶ alarms    highest
//! connections ──▶ coordinator ──┼──▶ vehicles               high
//!   44, polled                   ├──▶ events                 medium high
//!   in cycles                    └──▶ clients                medium
//! ```
//!
//! Every consumer is sent every packet, handles those of an account in order (its key is the account), and keeps what it
//! knows of each vehicle with the account. None of them names a thread: the plan makes each elastic, and says
//! which goes first when threads are scarce.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use comporta::{App, Choice, Error, Out, Plan, Result, StageSet};
use serde::{Deserialize, Serialize};

use crate::servsim::{Packet, Polls, Position, Settings};

/// Who consumes packets.
#[derive(Clone, Copy, Debug)]
pub struct Consumer {
    /// Its stage.
    pub name: &'static str,
    /// The process of Table 3.3 that it stands for, and its priority there.
    pub process: &'static str,
    /// Where threads are scarce, higher goes first.
    pub priority: usize,
    /// How long a packet takes it.
    pub takes: Duration,
    /// Whether it computes meanwhile; else it waits, for its database.
    pub busy: bool,
}

/// The consumers, the most important first.
pub const CONSUMERS: [Consumer; 4] = [
    Consumer {
        name: "trips",
        process: "TripManagement: highest",
        priority: 3,
        takes: Duration::from_micros(1_500),
        busy: true,
    },
    Consumer {
        name: "vehicles",
        process: "VehicleManagement: high",
        priority: 2,
        takes: Duration::from_millis(8),
        busy: false,
    },
    Consumer {
        name: "events",
        process: "EventManager: medium high",
        priority: 1,
        takes: Duration::from_millis(3),
        busy: false,
    },
    Consumer {
        name: "clients",
        process: "C2C: medium",
        priority: 0,
        takes: Duration::from_millis(2),
        busy: false,
    },
];

/// What a handler does for the time that a packet takes it.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// It computes or sleeps, so many times faster.
    Real(f64),
    /// Nothing: a test runtime lets the time pass.
    Virtual,
}

impl Work {
    #[expect(clippy::disallowed_methods, reason = "it stands for work that takes time")]
    fn spend(self, consumer: &Consumer) {
        let Work::Real(speed) = self else { return };
        let time = consumer.takes.div_f64(speed);
        if !consumer.busy {
            return std::thread::sleep(time);
        }
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::hint::spin_loop();
        }
    }
}

/// A vehicle that has left its region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    /// Whose it is.
    pub account: u32,
    /// The vehicle.
    pub vehicle: u32,
}

/// What a consumer knows of an account: which packet is next, and of each vehicle what it needs.
#[derive(Debug)]
struct Account<V> {
    next: u64,
    vehicles: HashMap<u32, V>,
}

impl<V> Default for Account<V> {
    fn default() -> Self {
        Account { next: 0, vehicles: HashMap::new() }
    }
}

impl<V> Account<V> {
    /// A packet of the account is handled.
    ///
    /// # Errors
    /// It is not the next.
    fn take(&mut self, packet: &Packet) -> Result {
        if packet.number != self.next {
            let Packet { account, number, .. } = packet;
            let next = self.next;
            return Err(Error::msg(format!("account {account}: packet {number} came, not {next}")));
        }
        self.next += 1;
        Ok(())
    }
}

/// Where a trip began, and whether its vehicle is outside of its region.
#[derive(Debug)]
struct Trip {
    from: Position,
    outside: bool,
}

/// Where a vehicle was last, and how often it reported.
#[derive(Debug)]
struct Seen {
    last: Position,
    reports: u64,
}

/// A region reaches so far around the place where a trip began, in degrees.
const REGION: f64 = 0.3;

/// Joins the stages.
#[must_use]
pub fn app(settings: Settings, speed: f64, work: Work) -> App {
    let app = App::new("fleet");
    let connections = app.source("connections", move || Polls::new(settings, speed));
    let coordinator = app.map("coordinator", |packet: Packet| packet);
    app.connect(connections, coordinator);
    let [trips, vehicles, events, clients] = CONSUMERS;

    let account = |packet: &Packet| packet.account;
    let watch = move |state: &mut Account<Trip>, packet: Packet, out: &mut Out<Alarm>| -> Result {
        work.spend(&trips);
        state.take(&packet)?;
        for position in packet.positions {
            let vehicle = position.vehicle;
            let begin = || Trip { from: position, outside: false };
            let trip = state.vehicles.entry(vehicle).or_insert_with(begin);
            let was = std::mem::replace(&mut trip.outside, apart(&trip.from, &position) > REGION);
            if trip.outside && !was {
                out.send(Alarm { account: packet.account, vehicle });
            }
        }
        Ok(())
    };
    let locate = move |state: &mut Account<Seen>, packet: Packet, (): &mut ()| -> Result {
        work.spend(&vehicles);
        state.take(&packet)?;
        for last in packet.positions {
            let seen = state.vehicles.entry(last.vehicle).or_insert(Seen { last, reports: 0 });
            (seen.last, seen.reports) = (last, seen.reports + 1);
        }
        Ok(())
    };
    let passing = move |consumer: Consumer| {
        move |state: &mut Account<()>, packet: Packet, (): &mut ()| -> Result {
            work.spend(&consumer);
            state.take(&packet)
        }
    };
    let alarms = app.sink("alarms", |_: Alarm| ());
    let trips = app.keyed("trips", account, watch);
    app.connect(coordinator, trips);
    app.connect(trips, alarms);
    app.connect(coordinator, app.keyed("vehicles", account, locate));
    app.connect(coordinator, app.keyed("events", account, passing(events)));
    app.connect(coordinator, app.keyed("clients", account, passing(clients)));
    app
}

fn apart(a: &Position, b: &Position) -> f64 {
    (a.latitude - b.latitude).hypot(a.longitude - b.longitude)
}

/// Who decides on the threads of the consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Controller {
    /// Nobody: one thread for each consumer
    None,
    /// The published controller
    Elastic,
    /// That of DS2, by the time that packets take
    Ds2,
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Controller::None => "none",
            Controller::Elastic => "elastic",
            Controller::Ds2 => "ds2",
        })
    }
}

/// The most packets that wait for a consumer: more than ever come.
const QUEUE_MAX: usize = 1_000_000;

/// The plan: elastic consumers by their priorities, or one thread for each.
#[must_use]
pub fn plan(controller: Controller, threads: usize, speed: f64) -> Plan {
    let mut plan = Plan::new().cluster("main", |main| match controller {
        Controller::None => main.threads(1),
        _ => main.threads(1).elastic_threads(threads),
    });
    for Consumer { name, priority, .. } in CONSUMERS {
        plan = plan.stage(name, |stage| {
            let stage = stage.capacity(QUEUE_MAX);
            if controller == Controller::None {
                return stage;
            }
            let (deadline, sample) = (Duration::from_secs(80), Duration::from_secs(1));
            let choice = Choice::new(controller.to_string())
                .with("deadline", deadline.div_f64(speed))
                .with("sample", sample.div_f64(speed))
                .with("threads_max", threads)
                .with("priority", priority);
            stage.elastic(choice)
        });
        if controller == Controller::None {
            plan = plan.cluster(name, |one| one.stages(StageSet::of([name])).threads(1));
        }
    }
    plan
}

/// Positions of vehicles, from the connections of a communication server to consumers with elastic threads.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Accounts, which are polled every 80 s
    #[arg(long, value_name = "N", default_value_t = 4_141, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub accounts: u32,

    /// Connections, each of which brings a packet every 40 ms; 94 accounts share one by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub connections: Option<u32>,

    /// For how many seconds accounts are polled
    #[arg(long, value_name = "S", default_value_t = 170, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,

    /// How many times faster time passes: 60 makes a minute a second
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed)]
    pub speed: f64,

    /// Who decides on the threads of the consumers
    #[arg(long, value_enum, default_value_t = Controller::Elastic)]
    pub controller: Controller,

    /// The most threads of all consumers together
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u16).range(4..=256))]
    pub threads: u16,

    /// No account has more messages than usual
    #[arg(long)]
    pub no_bursts: bool,

    /// What to make up messages from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

fn speed(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(speed) if (1.0..=1_000.0).contains(&speed) => Ok(speed),
        _ => Err("expected a number from 1 to 1000".to_owned()),
    }
}

impl Args {
    /// What the communication server is told.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            accounts: self.accounts,
            connections: self.connections.unwrap_or(self.accounts.div_ceil(95)),
            vehicles: (f64::from(self.accounts) * 66_103.0 / 4_141.0).round() as u32,
            length: Duration::from_secs(self.seconds),
            bursts: !self.no_bursts,
            seed: self.seed,
        }
    }

    /// How it runs unless a plan says otherwise.
    #[must_use]
    pub fn plan(&self) -> Plan {
        plan(self.controller, usize::from(self.threads), self.speed)
    }
}

/// The program, as told on the command line, on threads.
#[must_use]
pub fn build(args: Args) -> App {
    let app = app(args.settings(), args.speed, Work::Real(args.speed));
    app.set_plan(args.plan());
    app
}
