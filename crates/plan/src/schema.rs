//! Every key a plan may have, once: how it is read, whether a plan says it, how it is shown, and
//! what it means. Reading, writing, comparing and explaining all go through these tables.
//! Long because they are one table.

use std::time::Duration;

use comporta_model::plan::{
    Choice, ClusterPlan, ClusterSettings, ConnectorPlan, OnFailure, OnPanic, Param, Plan, SetFault,
    Settings, StagePlan, StageSet, StageSettings, WhenFull, bare, nearest, parse_duration, quoted,
    show_duration,
};

use crate::report::Span;

use crate::tree::{Entry, Node, Value, inside};

/// One key of a part of a plan: `P` is what may say it, `S` where it is validated.
pub(crate) struct Field<P, S> {
    /// As in a file, with dots: `queue.capacity`.
    pub(crate) key: &'static str,
    pub(crate) about: &'static str,
    pub(crate) set: fn(&mut P, &Node, &str) -> Result<(), Wrong>,
    pub(crate) said: fn(&P) -> bool,
    /// Empty where there is nothing to show.
    pub(crate) show: fn(&S) -> String,
}

/// Why a value was not taken.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) message: String,
    pub(crate) label: String,
    pub(crate) help: Option<String>,
    /// Where, if it is only a part of the value.
    pub(crate) at: Option<Span>,
}

impl Wrong {
    /// It is of another kind than expected.
    fn kind(node: &Node, expected: &str) -> Self {
        Wrong {
            message: match node.variable() {
                // Not its value: that may be nobody's business.
                Some(_) => "what the variable holds does not fit here".to_owned(),
                None => format!("{} does not fit here", node.shown()),
            },
            label: format!("expected {expected}"),
            help: None,
            at: None,
        }
    }

    fn at(self, span: &Span) -> Self {
        Wrong { at: Some(span.clone()), ..self }
    }

    fn word(node: &Node, what: &str, word: &str, all: &[&str]) -> Self {
        if node.variable().is_some() {
            return Wrong::kind(node, &format!("one of {}", listed(all)));
        }
        let near = nearest(word, all.iter().copied());
        Wrong {
            message: format!("there is no {what} `{word}`"),
            label: near.map_or_else(
                || "not one of those there are".to_owned(),
                |near| format!("did you mean `{near}`?"),
            ),
            help: Some(format!("there are {}", listed(all))),
            at: None,
        }
    }
}

/// `a`, `b` and `c`.
pub(crate) fn listed(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => format!("`{one}`"),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(|name| format!("`{name}`")).collect();
            format!("{} and `{last}`", first.join(", "))
        }
    }
}

/// A kind of value: how it is read from a file, whose text is at hand, and shown in one.
trait Setting: Sized {
    fn read(node: &Node, text: &str) -> Result<Self, Wrong>;
    fn show(&self) -> String;
}

/// A number too large for TOML: no bound.
const UNLIMITED: &str = "unlimited";

impl Setting for usize {
    fn read(node: &Node, _: &str) -> Result<Self, Wrong> {
        if matches!(&node.value, Value::Text(text, _) if text.trim() == UNLIMITED) {
            return Ok(usize::MAX);
        }
        // Below 1 is out of the range of all but `failures_max`; see `validate`.
        whole(node, "a whole number, at least 1")
    }

    fn show(&self) -> String {
        i64::try_from(*self).map_or_else(|_| quoted(UNLIMITED), |n| n.to_string())
    }
}

impl Setting for u8 {
    fn read(node: &Node, _: &str) -> Result<Self, Wrong> {
        whole(node, "a whole number from 0 to 255")
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for u32 {
    fn read(node: &Node, _: &str) -> Result<Self, Wrong> {
        whole(node, "a whole number, at least 1")
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for i32 {
    fn read(node: &Node, _: &str) -> Result<Self, Wrong> {
        whole(node, "a whole number from -2,147,483,648 to 2,147,483,647")
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// Events a second; no bound is infinite.
impl Setting for f64 {
    fn read(node: &Node, _: &str) -> Result<Self, Wrong> {
        let wrong = || Wrong::kind(node, "a number above 0, or `\"unlimited\"`");
        match &node.value {
            Value::Integer(n) => Ok(*n as f64),
            Value::Float(n) if !n.is_nan() => Ok(*n), // `inf` is no bound
            Value::Text(text, _) if text.trim() == UNLIMITED => Ok(f64::INFINITY),
            Value::Text(text, Some(_)) => {
                let number = text.trim().replace('_', "").parse().ok();
                number.filter(|n: &f64| !n.is_nan()).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }

    fn show(&self) -> String {
        if self.is_finite() { self.to_string() } else { quoted(UNLIMITED) }
    }
}

impl Setting for bool {
    fn read(node: &Node, _: &str) -> Result<Self, Wrong> {
        let read = match (&node.value, node.variable()) {
            (Value::Bool(value), _) => Some(*value),
            (_, Some(text)) => text.trim().parse().ok(),
            _ => None,
        };
        read.ok_or_else(|| Wrong::kind(node, "`true` or `false`"))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for Duration {
    fn read(node: &Node, _: &str) -> Result<Self, Wrong> {
        let wrong = || Wrong::kind(node, "a duration such as \"50ms\", \"10s\" or \"1h 30m\"");
        match &node.value {
            Value::Text(text, _) => parse_duration(text).ok_or_else(wrong),
            Value::Integer(n) => {
                let help = Some(format!("say in which unit: \"{n}s\" or \"{n}ms\""));
                Err(Wrong { help, ..wrong() })
            }
            _ => Err(wrong()),
        }
    }

    fn show(&self) -> String {
        quoted(&show_duration(*self))
    }
}

impl Setting for WhenFull {
    fn read(node: &Node, _: &str) -> Result<Self, Wrong> {
        word(node, WhenFull::ALL)
    }

    fn show(&self) -> String {
        show_word(self, WhenFull::ALL)
    }
}

impl Setting for OnFailure {
    fn read(node: &Node, _: &str) -> Result<Self, Wrong> {
        word(node, OnFailure::ALL)
    }

    fn show(&self) -> String {
        show_word(self, OnFailure::ALL)
    }
}

impl Setting for OnPanic {
    fn read(node: &Node, _: &str) -> Result<Self, Wrong> {
        word(node, OnPanic::ALL)
    }

    fn show(&self) -> String {
        show_word(self, OnPanic::ALL)
    }
}

/// Whether there is something of that name is for the program to say: see `PlanSpec::validate`.
impl Setting for Choice {
    fn read(node: &Node, _: &str) -> Result<Self, Wrong> {
        let entries = match &node.value {
            Value::Text(text, _) => {
                let wrong = || Wrong::kind(node, "a name, or `name(key=value, key=value)`");
                return text.parse().map_err(|_| wrong());
            }
            Value::Table(entries) => entries,
            _ => {
                return Err(Wrong::kind(node, "a name, or a table with a `name` and parameters"));
            }
        };
        let Some(name) = entries.iter().find(|entry| entry.key == "name") else {
            return Err(Wrong::kind(node, "a `name` beside the parameters"));
        };
        let Value::Text(text, _) = &name.node.value else {
            return Err(Wrong::kind(&name.node, "a name").at(&name.node.span));
        };
        with_params(Choice::new(text.trim()), entries)
    }

    fn show(&self) -> String {
        show_choice(self, "name")
    }
}

/// A choice whose name stands under this key.
fn show_choice(choice: &Choice, name: &str) -> String {
    if choice.params.is_empty() {
        return quoted(&choice.name);
    }
    let params = choice.params.iter().map(|(key, value)| {
        let value = match value {
            // Beyond the integers of TOML it reads back only as a float.
            Param::Number(number) if number.abs() >= i64::MAX as f64 => format!("{number:e}"),
            Param::Number(_) | Param::Flag(_) => value.to_string(),
            Param::Stages(stages) => {
                let one = |(stage, n): (&String, &i64)| format!("{} = {n}", bare(stage));
                let all: Vec<_> = stages.iter().map(one).collect();
                if all.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", all.join(", ")) }
            }
            _ => quoted(&value.to_string()),
        };
        format!("{} = {value}", bare(key))
    });
    let name = format!("{name} = {}", quoted(&choice.name));
    format!("{{ {} }}", [name].into_iter().chain(params).collect::<Vec<_>>().join(", "))
}

fn with_params(choice: Choice, entries: &[Entry]) -> Result<Choice, Wrong> {
    with_params_but(choice, entries, "name")
}

fn with_params_but(mut choice: Choice, entries: &[Entry], name: &str) -> Result<Choice, Wrong> {
    for entry in entries.iter().filter(|entry| entry.key != name) {
        choice = choice.with(entry.key.as_str(), param(&entry.node)?);
    }
    Ok(choice)
}

/// Reads a choice over what was said before: parameters without a name are of that.
fn choose(before: &mut Option<Choice>, node: &Node, text: &str) -> Result<(), Wrong> {
    let choice = match (&node.value, before.take()) {
        (Value::Table(entries), Some(before)) if !entries.iter().any(|e| e.key == "name") => {
            with_params(before, entries)?
        }
        _ => Setting::read(node, text)?,
    };
    *before = Some(choice);
    Ok(())
}

/// Reads the controller of an elastic stage over what was said before: its name stands under `controller`, and parameters
/// without it are of what was said, or of the default.
fn control(before: &mut Option<Choice>, node: &Node, text: &str) -> Result<(), Wrong> {
    let Value::Table(entries) = &node.value else {
        *before = Some(Setting::read(node, text)?);
        return Ok(());
    };
    let choice = match entries.iter().find(|entry| entry.key == CONTROLLER) {
        None => before.take().unwrap_or_else(|| Choice::new("elastic")),
        Some(Entry { node, .. }) => match &node.value {
            Value::Text(name, _) => Choice::new(name.trim()),
            _ => return Err(Wrong::kind(node, "the name of a controller").at(&node.span)),
        },
    };
    *before = Some(with_params_but(choice, entries, CONTROLLER)?);
    Ok(())
}

/// Under which the name of a controller stands, beside its parameters.
const CONTROLLER: &str = "controller";

/// A parameter of a choice, as it is written; what it may be is looked at later.
fn param(node: &Node) -> Result<Param, Wrong> {
    let expected = "a number, a text, a duration, true or false, or a table of numbers";
    let wrong = |node: &Node| Wrong::kind(node, expected).at(&node.span);
    Ok(match &node.value {
        Value::Integer(n) => (*n).into(),
        Value::Float(n) => (*n).into(),
        Value::Bool(flag) => (*flag).into(),
        Value::Text(text, _) => text.as_str().into(),
        Value::Table(entries) => {
            let one = |entry: &Entry| {
                let n = integer(&entry.node).ok_or_else(|| wrong(&entry.node))?;
                Ok((entry.key.clone(), n))
            };
            Param::Stages(entries.iter().map(one).collect::<Result<_, _>>()?)
        }
        _ => return Err(wrong(node)),
    })
}

impl Setting for StageSet {
    fn read(node: &Node, text: &str) -> Result<Self, Wrong> {
        match &node.value {
            Value::Text(set, _) => set.parse().map_err(|fault: SetFault| Wrong {
                message: "this is no set of stages".to_owned(),
                label: match node.variable() {
                    Some(_) => "what the variable holds does not fit here".to_owned(),
                    None => fault.message,
                },
                help: Some(
                    "names, `all`, `+`, `-`, `*` and parentheses, with blanks between".to_owned(),
                ),
                at: Some(inside(text, &node.span, set, fault.at)),
            }),
            Value::List(items) => {
                let name = |item: &Node| match &item.value {
                    Value::Text(name, _) => Ok(name.clone()),
                    _ => Err(Wrong::kind(item, "the name of a stage").at(&item.span)),
                };
                Ok(StageSet::of(items.iter().map(name).collect::<Result<Vec<_>, _>>()?))
            }
            _ => Err(Wrong::kind(node, "a set such as \"all - log\", or a list of names")),
        }
    }

    fn show(&self) -> String {
        quoted(&self.to_string())
    }
}

fn whole<T: TryFrom<i64>>(node: &Node, expected: &str) -> Result<T, Wrong> {
    let number = integer(node).and_then(|n| T::try_from(n).ok());
    number.ok_or_else(|| Wrong::kind(node, expected))
}

fn integer(node: &Node) -> Option<i64> {
    match (&node.value, node.variable()) {
        (Value::Integer(n), _) => Some(*n),
        (_, Some(text)) => text.replace('_', "").parse().ok(),
        _ => None,
    }
}

fn word<T: Copy>(node: &Node, all: &[(T, &'static str)]) -> Result<T, Wrong> {
    let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
    let Value::Text(text, _) = &node.value else {
        return Err(Wrong::kind(node, &format!("one of {}", listed(&names))));
    };
    let found = all.iter().find(|(_, name)| *name == text.trim());
    found.map(|(value, _)| *value).ok_or_else(|| Wrong::word(node, "choice", text, &names))
}

fn show_word<T: PartialEq>(value: &T, all: &[(T, &'static str)]) -> String {
    quoted(all.iter().find(|(known, _)| known == value).map_or("?", |(_, name)| name))
}

macro_rules! field {
    ($key:literal, $name:ident from $($validated:ident).+, $about:literal) => {
        Field {
            key: $key,
            about: $about,
            set: |part, node, text| {
                part.$name = Some(Setting::read(node, text)?);
                Ok(())
            },
            said: |part| part.$name.is_some(),
            show: |validated| validated.$($validated).+.show(),
        }
    };
}

pub(crate) const PLAN: &[Field<Plan, Settings>] = &[
    field!("drain", drain from drain, "how long a drain may take before the events left are cancelled"),
    Field {
        key: "blocking.threads",
        about: "threads of the stages that the program declares blocking",
        set: |part, node, text| {
            part.blocking_threads = Some(Setting::read(node, text)?);
            Ok(())
        },
        said: |part| part.blocking_threads.is_some(),
        show: |_| String::new(), // with its cluster
    },
    field!("stuck_after", stuck_after from stuck_after, "the time after which a handler counts as stuck and another worker stands in"),
];

pub(crate) const CLUSTER: &[Field<ClusterPlan, ClusterSettings>] = &[
    field!("threads", threads from threads, "threads of the cluster"),
    Field {
        key: "policy",
        about: "the scheduling policy: a name, or { name = \"...\", parameters }",
        set: |part, node, text| choose(&mut part.policy, node, text),
        said: |part| part.policy.is_some(),
        show: |validated| validated.policy.show(),
    },
    Field {
        key: "elastic_threads",
        about: "the most threads that its elastic stages have together",
        set: |part, node, text| {
            part.elastic_threads = Some(Setting::read(node, text)?);
            Ok(())
        },
        said: |part| part.elastic_threads.is_some(),
        show: |validated| {
            validated.elastic_threads.map(|most| most.get().show()).unwrap_or_default()
        },
    },
];

/// Which stages a cluster has; validated with all clusters together.
pub(crate) const CLUSTER_STAGES: Field<ClusterPlan, StageSet> = Field {
    key: "stages",
    about: "the stages of the cluster: a set such as \"all - log\", or a list of names",
    set: |part, node, text| {
        part.stages = Some(Setting::read(node, text)?);
        Ok(())
    },
    said: |part| part.stages.is_some(),
    show: Setting::show,
};

pub(crate) const STAGE: &[Field<StagePlan, StageSettings>] = &[
    field!("instances", instances from instances, "the most instances that run at once"),
    Field {
        key: "replicas",
        about: "how many there are of the stage, each with a queue and instances of its own",
        set: |part, node, text| {
            part.replicas = Some(Setting::read(node, text)?);
            Ok(())
        },
        said: |part| part.replicas.is_some(),
        show: |validated| {
            if validated.replicas == 1 { String::new() } else { validated.replicas.show() }
        },
    },
    field!("priority", priority from priority, "a higher one is served sooner"),
    field!("batch", batch from batch, "the most events that one visit takes"),
    field!("queue.capacity", capacity from capacity, "events the queue holds"),
    field!("queue.when_full", when_full from when_full, "what happens when it is full"),
    Field {
        key: "queue.lane_max",
        about: "of a keyed stage: events that one key may have in the queue",
        set: |part, node, text| {
            part.lane_max = Some(Setting::read(node, text)?);
            Ok(())
        },
        said: |part| part.lane_max.is_some(),
        show: |validated| validated.lane_max.map(|max| max.get().show()).unwrap_or_default(),
    },
    field!("retry.tries", tries from retry.tries, "how often an event is tried, the first try included"),
    field!("retry.backoff", backoff from retry.backoff, "the wait before the second try; it doubles with each try"),
    field!("retry.backoff_max", backoff_max from retry.backoff_max, "the longest wait"),
    Field {
        key: "retry.jitter",
        about: "whether each wait is shortened at random, to no less than half",
        set: |part, node, text| {
            part.jitter = Some(Setting::read(node, text)?);
            Ok(())
        },
        said: |part| part.jitter.is_some(),
        show: |validated| if validated.retry.jitter { String::new() } else { false.show() },
    },
    field!("emit_max", emit_max from emit_max, "events one event may emit before it fails"),
    Field {
        key: "failures_max",
        about: "failed events kept for inspection",
        set: |part, node, text| {
            let read = usize::read(node, text);
            let label = "expected a whole number, not below 0".to_owned();
            part.failures_max = Some(read.map_err(|wrong| Wrong { label, ..wrong })?);
            Ok(())
        },
        said: |part| part.failures_max.is_some(),
        show: |validated| validated.failures_max.show(),
    },
    Field {
        key: "idle",
        about: "of a keyed stage: how long the state of a key is kept that has no events",
        set: |part, node, text| {
            part.idle = Some(Setting::read(node, text)?);
            Ok(())
        },
        said: |part| part.idle.is_some(),
        show: |validated| validated.idle.as_ref().map(Setting::show).unwrap_or_default(),
    },
    Field {
        key: "keys_max",
        about: "of a keyed stage: keys without events whose state is kept",
        set: |part, node, text| {
            part.keys_max = Some(Setting::read(node, text)?);
            Ok(())
        },
        said: |part| part.keys_max.is_some(),
        show: |validated| validated.keys_max.map(|max| max.get().show()).unwrap_or_default(),
    },
    Field {
        key: "on_failure",
        about: "of a keyed stage: whether the key of an event that failed goes on, or is held",
        set: |part, node, text| {
            part.on_failure = Some(Setting::read(node, text)?);
            Ok(())
        },
        said: |part| part.on_failure.is_some(),
        show: |validated| match validated.on_failure {
            OnFailure::GoOn => String::new(),
            held => held.show(),
        },
    },
    Field {
        key: "timeout",
        about: "of a stage whose handlers wait: how long one try at an event may take",
        set: |part, node, text| {
            part.timeout = Some(Setting::read(node, text)?);
            Ok(())
        },
        said: |part| part.timeout.is_some(),
        show: |validated| validated.timeout.as_ref().map(Setting::show).unwrap_or_default(),
    },
    field!("on_panic", on_panic from on_panic, "what happens to the state of an instance after a panic"),
    Field {
        key: "tier",
        about: "of a source or an input: how important its events are to admission controllers",
        set: |part, node, text| {
            part.tier = Some(Setting::read(node, text)?);
            Ok(())
        },
        said: |part| part.tier.is_some(),
        show: |validated| if validated.tier == 0 { String::new() } else { validated.tier.show() },
    },
    Field {
        key: "deadline",
        about: "of a source or an input: the time within which its events should be handled",
        set: |part, node, text| {
            part.deadline = Some(Setting::read(node, text)?);
            Ok(())
        },
        said: |part| part.deadline.is_some(),
        show: |validated| validated.deadline.as_ref().map(Setting::show).unwrap_or_default(),
    },
    field!("in_flight", in_flight from in_flight, "of a gateway: the most requests that wait for their replies at once"),
    Field {
        key: "admission",
        about: "the admission controller: a name, or { name = \"...\", parameters }",
        set: |part, node, text| choose(&mut part.admission, node, text),
        said: |part| part.admission.is_some(),
        show: |validated| validated.admission.as_ref().map(Setting::show).unwrap_or_default(),
    },
    Field {
        key: "elastic",
        about: "threads that follow the load: a controller, \"elastic\" or \"ds2\", or { controller = \"...\", parameters }",
        set: |part, node, text| control(&mut part.elastic, node, text),
        said: |part| part.elastic.is_some(),
        show: |validated| {
            let shown = |choice| show_choice(choice, CONTROLLER);
            validated.elastic.as_ref().map(shown).unwrap_or_default()
        },
    },
    field!("rate", rate from rate, "of a source: the most events that it sends per second"),
    field!("stub", stub from stub, "whether the stage is replaced by a stub, which drops its events"),
];

/// Of one end of a connector that a plan says something of.
pub(crate) const CONNECTOR: &[Field<ConnectorPlan, WhenFull>] = &[Field {
    key: "when_full",
    about: "what happens to events of this connector when the queue is full",
    set: |part, node, text| {
        part.when_full = Some(Setting::read(node, text)?);
        Ok(())
    },
    said: |part| part.when_full.is_some(),
    show: Setting::show,
}];

/// The sections of a plan, with their contents.
pub(crate) const SECTIONS: &[(&str, &str)] = &[
    ("app", "the program's own settings"),
    ("cluster", "clusters of stages, by name"),
    ("every", "settings of every stage"),
    ("stage", "stages, by name"),
    ("connector", "connectors, by name: \"from -> to\""),
];

/// Every key with its meaning, in the order of a file.
pub(crate) fn keys() -> Vec<(String, &'static str)> {
    fn of<P, S>(prefix: &str, fields: &[Field<P, S>]) -> Vec<(String, &'static str)> {
        fields.iter().map(|field| (format!("{prefix}{}", field.key), field.about)).collect()
    }
    let mut keys = of("", PLAN);
    keys.extend(of("cluster.NAME.", CLUSTER));
    keys.extend(of("cluster.NAME.", std::slice::from_ref(&CLUSTER_STAGES)));
    keys.extend(of("stage.NAME.", STAGE));
    keys.push((
        "every.…".to_owned(),
        "as for a stage, for every stage whose own section does not set it",
    ));
    keys.extend(of("connector.\"FROM -> TO\".", CONNECTOR));
    keys.push(("app.…".to_owned(), "the program's own settings"));
    keys
}
