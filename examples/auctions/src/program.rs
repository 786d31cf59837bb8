//! The program: how the stages are joined, and its command line.
//!
//! ```text
//! bids ──▶ count ────────────────▶ hottest ──────────────▶ show
//!          key: auction            the five with the
//!          windows of 10 s,        most bids, window
//!          one every 2 s           by window
//! ```
//!
//! `hottest` gathers what `count` sends for one window. It allows no lateness: `count` hands event time on, so `hottest`
//! knows when it has been sent the counts of all auctions, however far apart these are.

use std::fmt;
use std::io::IsTerminal;
use std::time::Duration;

use comporta::windows::{self, Count, Windowed, Windows};
use comporta::{App, Error, Plan, Result, Time, sources};
use serde::{Deserialize, Serialize};

use crate::generate::{self, Bid, DELAY};
use crate::show::Show;

/// So many auctions are shown.
pub const TOP: usize = 5;

/// The auctions with the most bids of a window: bids and number, the first first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Top(pub Vec<(u64, u64)>);

impl Top {
    /// Adds an auction, if it has more bids than the last, or as many and a lower number.
    pub fn add(&mut self, bids: u64, auction: u64) {
        let rank = |(bids, auction): &(u64, u64)| (std::cmp::Reverse(*bids), *auction);
        let at = self.0.partition_point(|other| rank(other) < rank(&(bids, auction)));
        self.0.insert(at, (bids, auction));
        self.0.truncate(TOP);
    }
}

/// What the program is told.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many bids there are.
    pub bids: usize,
    /// How many in a second of their time.
    pub per_second: u64,
    /// From what they are made up.
    pub seed: u64,
    /// Whether they come as fast as they were made, and not as fast as they can be handled.
    pub pace: bool,
    /// How long a window is, and after how long the next begins.
    pub window: (Duration, Duration),
}

/// The bids of one auction in one window.
pub type Counted = Windowed<u64, u64>;

/// The end of a window of `count`, and its hottest auctions.
pub type Hottest = Windowed<(), (Time, Top)>;

/// Joins the stages.
pub fn app(settings: Settings, show: Show) -> App {
    let Settings { bids: n, per_second, seed, pace, window: (size, step) } = settings;
    let app = App::new("auctions");
    let made = move || generate::bids(seed, per_second).take(n);
    let bids = if pace {
        app.source("bids", move || sources::paced(per_second as f64, made()))
    } else {
        app.source("bids", made)
    };
    let count = app.window(
        "count",
        |bid: &Bid| bid.auction,
        |bid: &Bid| bid.time,
        Windows::sliding(size, step).lateness(DELAY),
        Count,
    );
    let hottest = app.window(
        "hottest",
        |_: &Counted| (), // one key: windows leave in order
        Counted::time,
        Windows::tumbling(step),
        (
            windows::max(|counted: &Counted| counted.end),
            windows::fold(
                Top::default,
                |top: &mut Top, counted: &Counted| top.add(counted.value, counted.key),
                |top, more| more.0.iter().for_each(|(bids, auction)| top.add(*bids, *auction)),
            ),
        ),
    );
    let show = app.stage("show", show);
    // There is none: bids come no later than is allowed for, and `count` says when its results are complete.
    let late_bid = app.sink("late-bid", |bid: Bid| late(&bid));
    let late_count = app.sink("late-count", |counted: Counted| late(&counted));
    app.connect(bids, count);
    app.connect(count.windows, hottest);
    app.connect(count.late, late_bid);
    app.connect(hottest.late, late_count);
    app.connect(hottest.windows, show);
    app
}

fn late(event: &dyn fmt::Debug) -> Result {
    Err(Error::msg(format!("{event:?} is late")))
}

/// Shows the auctions with the most bids of the last ten seconds, every two seconds (query 5 of Nexmark).
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// How many bids to make up
    #[arg(long, value_name = "N", default_value_t = 600_000)]
    bids: usize,

    /// How many of them in a second of their time
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    per_second: u64,

    /// What to make them up from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Let them come as fast as they were made: a second in a second
    #[arg(long)]
    pace: bool,

    /// How long a window is, in seconds
    #[arg(long, value_name = "S", default_value_t = 10)]
    size: u64,

    /// After how long the next window begins, in seconds
    #[arg(long, value_name = "S", default_value_t = 2)]
    step: u64,

    /// Compare all that is shown with what one plain loop finds
    #[arg(long)]
    verify: bool,
}

/// The program, as told on the command line.
#[must_use]
pub fn build(args: Args) -> App {
    let Args { bids, per_second, seed, pace, size, step, verify } = args;
    let window = (Duration::from_secs(size), Duration::from_secs(step));
    let settings = Settings { bids, per_second, seed, pace, window };
    let show = Show::new(verify.then_some(settings), std::io::stdout().is_terminal());
    let app = app(settings, show);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    app.set_plan(Plan::new().stage("count", |count| count.instances(cpus)));
    app
}
