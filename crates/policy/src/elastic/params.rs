//! The parameters of the controllers: of a stage in a plan, and of the policies, which have two more for all stages together.

use std::time::Duration;

use comporta_model::plan::defaults::{THREADS_MAX, TIMER_MIN};
use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use super::averages::Average;
use super::bounds::{Monitor, Skew};
use super::published::Published;
use super::sample::Rules;
use super::true_rates::TrueRates;
use crate::control::Refused;

const DEADLINE: ParamSpec = ParamSpec {
    name: "deadline",
    about: "the time within which a queue is to be worked off",
    kind: ParamKind::Span,
    default: "80s", // schTIME
};
const SAMPLE: ParamSpec = ParamSpec {
    name: "sample",
    about: "how often a stage is looked at",
    kind: ParamKind::Span,
    default: "1s",
};
const MIN: ParamSpec = ParamSpec {
    name: "threads_min",
    about: "the least threads of a stage, with which it starts",
    kind: ParamKind::Count(1, THREADS_MAX),
    default: "1",
};
const MAX: ParamSpec = ParamSpec {
    name: "threads_max",
    about: "the most threads of a stage",
    kind: ParamKind::Count(1, THREADS_MAX),
    default: "16",
};
const CPU: ParamSpec = ParamSpec {
    name: "cpu_max",
    about: "no thread is added that would take the CPUs above this, in percent; above 100, also on a busy host",
    kind: ParamKind::Number(1.0, 100_000.0),
    default: "100",
};
const SKEW: ParamSpec = ParamSpec {
    name: "skew",
    about: "no more threads than hot keys: by output, above 2 deviations, or by input, above 3; or none",
    kind: ParamKind::Word(&["output", "input", "none"]),
    default: "output",
};
const AVERAGE: ParamSpec = ParamSpec {
    name: "average",
    about: "mean: of all samples since growth began; halving: (average + new) / 2",
    kind: ParamKind::Word(&["mean", "halving"]),
    default: "mean",
};
const UTILIZATION: ParamSpec = ParamSpec {
    name: "utilization",
    about: "the part of its time that a thread should be busy",
    kind: ParamKind::Number(0.1, 1.0),
    default: "0.8",
};
const ENERGY: ParamSpec = ParamSpec {
    name: "energy",
    about: "the fewest threads that keep the deadline",
    kind: ParamKind::Flag,
    default: "false",
};
const PRIORITY: ParamSpec = ParamSpec {
    name: "priority",
    about: "where threads are scarce, a stage takes them from those of lower priority, down to their least",
    kind: ParamKind::Count(0, 255),
    default: "0",
};
const THREADS: ParamSpec = ParamSpec {
    name: "threads",
    about: "the most threads of all stages together; 0: no bound but theirs",
    kind: ParamKind::Count(0, THREADS_MAX),
    default: "0",
};
const PRIORITIES: ParamSpec = ParamSpec {
    name: "priorities",
    about: "of stages by name: where threads are scarce, a stage takes them from those of lower priority; 0 of the others",
    kind: ParamKind::Stages,
    default: "",
};

/// The parameters of the policy `elastic`.
pub(crate) const PARAMS_ELASTIC: &[ParamSpec] =
    &[DEADLINE, SAMPLE, MIN, MAX, CPU, SKEW, AVERAGE, ENERGY, THREADS, PRIORITIES];
/// The parameters of the policy `ds2`.
pub(crate) const PARAMS_DS2: &[ParamSpec] =
    &[DEADLINE, SAMPLE, MIN, MAX, CPU, SKEW, UTILIZATION, ENERGY, THREADS, PRIORITIES];

/// Returns the controllers that a plan can choose for a stage. The first is the default.
#[must_use]
pub fn offers() -> Vec<Offer> {
    vec![
        Offer {
            name: "elastic",
            aliases: &[],
            about: "threads by the published rules: entry point, exit point",
            cites: cites::ELASTIC,
            params: &[DEADLINE, SAMPLE, MIN, MAX, CPU, SKEW, AVERAGE, ENERGY, PRIORITY],
        },
        Offer {
            name: "ds2",
            aliases: &[],
            about: "threads by the time that events take, in one step",
            cites: cites::DS2,
            params: &[DEADLINE, SAMPLE, MIN, MAX, CPU, SKEW, UTILIZATION, ENERGY, PRIORITY],
        },
    ]
}

/// Where the controllers come from.
pub(crate) mod cites {
    pub(crate) const ELASTIC: &str = "Mendes Teixeira, Middleware para coordenar tolerância a falhas e elasticidade em \
                                      clusters de alto desempenho com produtores e consumidores baseados em filas \
                                      de mensagens, UnB 2014";
    pub(crate) const DS2: &str = "Kalavri et al., Three steps is all you need: fast, accurate, automatic scaling \
                                  decisions for distributed streaming dataflows, OSDI 2018";
}

/// How many threads a stage may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) least: usize,
    pub(crate) most: usize,
}

/// A controller with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    rules: Form,
    deadline: Duration,
    energy: bool,
    cpu_max: f64,
    skew: Skew,
    pub(crate) every: Duration,
    pub(crate) limits: Limits,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Published(Average),
    TrueRates { utilization: f64 },
}

impl Controller {
    /// From its parameters, which are validated.
    pub(crate) fn of(validated: &Choice) -> Self {
        let rules = if validated.name == "ds2" {
            Form::TrueRates { utilization: validated.number(UTILIZATION.name) }
        } else {
            let halving = validated.word(AVERAGE.name) == "halving";
            Form::Published(if halving { Average::Halving } else { Average::Mean })
        };
        let skew = match validated.word(SKEW.name) {
            "output" => Skew::Output,
            "input" => Skew::Input,
            _ => Skew::None,
        };
        let (least, most) = (validated.count(MIN.name), validated.count(MAX.name));
        Controller {
            rules,
            deadline: validated.span(DEADLINE.name),
            energy: validated.flag(ENERGY.name),
            cpu_max: validated.number(CPU.name),
            skew,
            every: validated.span(SAMPLE.name),
            limits: Limits { least, most },
        }
    }

    /// Checks parameters against each other.
    ///
    /// # Errors
    /// Refused if they do not fit.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        let Limits { least, most } = self.limits;
        if most < least {
            let (what, expected) =
                ("`threads_max`".to_owned(), format!("`threads_min`, {least}, or more"));
            return Err(Refused::OutOfRange { what, given: most, expected });
        }
        let (every, most) = (self.every, self.deadline / 10);
        let expected = match every {
            _ if every < TIMER_MIN => format!("{TIMER_MIN:?} or more"),
            _ if every > most => format!("a tenth of `deadline`, {most:?}, or less"),
            _ => return Ok(()),
        };
        Err(Refused::Failed(format!("`sample` is {every:?}: use {expected}")))
    }

    pub(super) fn rules(&self) -> Box<dyn Rules> {
        match self.rules {
            Form::Published(average) => {
                Box::new(Published::new(self.deadline, average, self.energy))
            }
            Form::TrueRates { utilization } => {
                Box::new(TrueRates::new(self.deadline, utilization, self.energy))
            }
        }
    }

    pub(super) fn monitor(&self) -> Monitor {
        Monitor::new(self.cpu_max, self.skew)
    }

    pub(super) fn name(&self) -> &'static str {
        match self.rules {
            Form::Published(_) => "elastic",
            Form::TrueRates { .. } => "ds2",
        }
    }
}
