//! Tiers: the slower the queue, the higher an event's tier must be. A cut lies somewhere between
//! the lowest tier and the highest: events above it enter, those below do not, and of the tier at the cut a
//! share enters. If the events of a window waited longer than the target on average, the cut is moved so that
//! fewer would have entered, otherwise so that a few more would.
//!
//! After DAGOR, without its users: there a tier consists of 128 finer ones by a hash of the user, so that the same
//! users are admitted for an hour and no share is needed. Here an event has no user, and the share of the tier at
//! the cut does not depend on the sender. Nor is the cut reported to senders.

use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use super::gate::ns;
use super::{Admission, Ask, Done, Entry};

const TIERS: usize = 256;

/// A cut through the tiers, by queueing delay.
#[derive(Clone, Debug)]
pub struct Tiers {
    target: Duration,
    window: u64,
    every: Duration,
    shrink: f64,
    grow: f64,
    cut: Cut,
    /// What of the share of the tier at the cut is still owed: less than one event.
    owed: f64,
    seen: Window,
}

/// The tier it goes through, and the share of that one that enters.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cut {
    tier: u8,
    share: f64,
}

const OPEN: Cut = Cut { tier: 0, share: 1.0 };

#[derive(Clone, Debug)]
struct Window {
    began: Time,
    came: [u64; TIERS],
    all: u64,
    entered: u64,
    /// Waiting times of those served, added up, and how many they are.
    waited: f64,
    served: usize,
}

impl Window {
    fn begin(now: Time) -> Self {
        Window { began: now, came: [0; TIERS], all: 0, entered: 0, waited: 0.0, served: 0 }
    }
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "tiers",
        aliases: &["dagor"],
        about: "the slower the queue, the higher the tier of an event must be; DAGOR without its users: of the tier at the cut, a share enters",
        cites: "Zhou et al., Overload Control for Scaling WeChat Microservices (DAGOR), SoCC 2018",
        params: PARAMS,
    };
    Entry::new(offer, Tiers::new)
}

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "target",
        about: "the mean wait above which there is overload",
        kind: ParamKind::Span,
        default: "20ms",
    },
    ParamSpec {
        name: "window",
        about: "events after which the cut is adjusted",
        kind: ParamKind::Count(1, usize::MAX),
        default: "2000",
    },
    ParamSpec {
        name: "every",
        about: "time after which it is adjusted, if there were fewer",
        kind: ParamKind::Span,
        default: "1s",
    },
    ParamSpec {
        name: "shrink",
        about: "the share of admitted events by which admission shrinks, under overload",
        kind: ParamKind::Number(0.001, 1.0),
        default: "0.05",
    },
    ParamSpec {
        name: "grow",
        about: "the share of arrived events by which admission grows, otherwise",
        kind: ParamKind::Number(0.001, 1.0),
        default: "0.01",
    },
];

impl Tiers {
    fn new(choice: &Choice) -> Self {
        Tiers {
            target: choice.span("target"),
            window: choice.count("window") as u64,
            every: choice.span("every"),
            shrink: choice.number("shrink"),
            grow: choice.number("grow"),
            cut: OPEN,
            owed: 0.0,
            seen: Window::begin(Time::ZERO),
        }
    }

    fn move_cut(&mut self, now: Time) {
        let Window { all, entered, waited, served, .. } = self.seen;
        let slow = served > 0 && waited / served as f64 > ns(self.target);
        let wanted = if slow {
            entered as f64 * (1.0 - self.shrink)
        } else {
            entered as f64 + all as f64 * self.grow
        };
        self.cut = self.cut_for(wanted);
        self.seen = Window::begin(now);
    }

    /// The cut that would have let so many in.
    fn cut_for(&self, wanted: f64) -> Cut {
        let mut above = 0.0;
        for (tier, came) in (0..=u8::MAX).zip(self.seen.came).rev() {
            let came = came as f64;
            if above + came > wanted {
                return Cut { tier, share: ((wanted - above) / came).max(0.0) };
            }
            above += came;
        }
        OPEN
    }

    /// How much of `n` events of the tier may enter; not only whole ones.
    fn may(&self, tier: u8, n: usize) -> f64 {
        match tier.cmp(&self.cut.tier) {
            std::cmp::Ordering::Greater => n as f64,
            std::cmp::Ordering::Equal if self.cut.share >= 1.0 => n as f64,
            std::cmp::Ordering::Equal => n as f64 * self.cut.share + self.owed,
            std::cmp::Ordering::Less => 0.0,
        }
    }
}

impl Admission for Tiers {
    fn admit(&mut self, ask: &Ask) -> usize {
        if self.seen.all >= self.window || ask.now.duration_since(self.seen.began) >= self.every {
            self.move_cut(ask.now);
        }
        ask.n.min(self.may(ask.tier, ask.n) as usize)
    }

    fn entered(&mut self, ask: &Ask, n: usize) {
        if ask.tier == self.cut.tier {
            self.owed = (self.may(ask.tier, ask.n) - n as f64).clamp(0.0, 1.0);
        }
        self.seen.came[usize::from(ask.tier)] += ask.n as u64;
        self.seen.all += ask.n as u64;
        self.seen.entered += n as u64;
    }

    /// Each event counts once, when it is done: how long it had waited before it was taken.
    fn settled(&mut self, done: &Done) {
        let n = done.n as f64;
        let waited = (ns(done.response) - ns(done.service) * n).max(0.0);
        self.seen.waited += waited * n;
        self.seen.served += done.n;
    }

    fn describe(&self) -> String {
        match self.cut {
            OPEN => "every tier enters".to_owned(),
            Cut { tier, share } => {
                format!("tiers over {tier} enter, and {:.0} % of it", share * 100.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::gate::tests::{ASK, at};
    use crate::admission::sim::{SIM, Sim, made};

    fn tiers(text: &str) -> Tiers {
        let choice: Choice = text.parse().unwrap();
        Tiers::new(&entry().offer.validate(&choice, "admission").unwrap())
    }

    /// So many events that waited so long, and then took a millisecond each.
    fn waited(millis: u64, n: usize) -> Done {
        let service = Duration::from_millis(1);
        let response = Duration::from_millis(millis) + service * n as u32;
        Done { now: at(0), n, response, service }
    }

    #[test]
    fn an_event_counts_once_and_its_own_work_is_no_wait() {
        let mut gate = tiers("tiers");
        gate.settled(&waited(30, 4));
        gate.settled(&waited(10, 1));
        assert_eq!(gate.seen.served, 5);
        assert!((gate.seen.waited - (4.0 * 30e6 + 10e6)).abs() < 1.0, "{}", gate.seen.waited);
    }

    #[test]
    fn the_cut_is_where_what_came_above_it_is_as_much_as_wanted() {
        let mut gate = tiers("tiers");
        for (tier, came) in [(0, 50), (3, 30), (9, 20)] {
            gate.seen.came[tier] = came;
        }
        assert_eq!(gate.cut_for(100.0), OPEN);
        assert_eq!(gate.cut_for(75.0), Cut { tier: 0, share: 0.5 });
        assert_eq!(gate.cut_for(50.0), Cut { tier: 0, share: 0.0 });
        assert_eq!(gate.cut_for(35.0), Cut { tier: 3, share: 0.5 });
        assert_eq!(gate.cut_for(5.0), Cut { tier: 9, share: 0.25 });
    }

    #[test]
    fn a_slow_window_lets_some_fewer_in_and_a_quick_one_a_few_more() {
        let mut gate = tiers("tiers(target=20ms, window=100)");
        gate.entered(&Ask { n: 100, ..ASK }, 100);
        gate.settled(&waited(30, 1));
        assert_eq!(gate.admit(&Ask { n: 100, ..ASK }), 95);
        gate.entered(&Ask { n: 100, ..ASK }, 95);
        gate.settled(&waited(10, 1));
        assert_eq!(gate.admit(&Ask { n: 100, ..ASK }), 96);
    }

    #[test]
    fn a_window_ends_in_time_where_few_come() {
        let mut gate = tiers("tiers(target=20ms, every=1s)");
        gate.entered(&ASK, 1);
        gate.settled(&waited(30, 1));
        assert_eq!(gate.admit(&Ask { now: at(999), ..ASK }), 1);
        assert_eq!(gate.admit(&Ask { now: at(1000), ..ASK }), 0, "0.95 of one");
    }

    #[test]
    fn the_share_at_the_cut_is_kept_one_by_one_too() {
        let mut gate = tiers("tiers");
        gate.cut = Cut { tier: 2, share: 0.3 };
        let mut entered = 0;
        for _ in 0..100 {
            let ask = Ask { tier: 2, ..ASK };
            let n = gate.admit(&ask);
            gate.entered(&ask, n);
            entered += n;
        }
        assert!((29..=30).contains(&entered), "{entered}");
        assert_eq!(gate.admit(&Ask { tier: 1, n: 50, ..ASK }), 0);
        assert_eq!(gate.admit(&Ask { tier: 3, n: 50, ..ASK }), 50);
    }

    #[test]
    fn under_overload_the_highest_are_served_and_light_load_is_let_in() {
        let sim = Sim { tiers: 4, events: 200_000, ..SIM };
        for (load, shed) in [(0.5, 0.0), (1.1, 0.1), (3.0, 0.68)] {
            let report = sim.run(&mut *made("tiers(target=10ms, window=500)"), load);
            assert!((report.shed() - shed).abs() < 0.08, "{load}: {}", report.shed());
            assert!(report.goodput() > load.min(0.92) - 0.02, "{load}: {}", report.goodput());
            assert!(report.response(0.9) < Duration::from_millis(40), "{load}");
            let served = report.by_tier.iter().map(|(came, done)| *done as f64 / *came as f64);
            let served: Vec<f64> = served.collect();
            assert!(served[3] > 0.999, "{load}: {served:?}");
            if load > 2.0 {
                assert!(served[0] < 0.01 && served[1] < 0.05, "{served:?}");
            }
        }
    }
}
