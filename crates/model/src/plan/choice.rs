//! A choice by name, with parameters: of a policy or an admission controller. `Offer`s describe what can be
//! chosen; they check a choice and fill in its defaults. The code behind an offer is elsewhere.
//! Long because each kind of parameter is read, checked, shown and tested here.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::plan::duration::{parse_duration, show_duration};
use crate::plan::fault::{PlanFault, nearest};
use crate::plan::key::quoted;

/// A policy or an admission controller, by name, with its parameters.
///
/// ```
/// # mod comporta { pub use comporta_model::plan::{Choice, Plan}; }
/// use std::time::Duration;
/// use comporta::{Choice, Plan};
///
/// let plan = Plan::new().policy("srpt");
/// let seda = Choice::new("seda").with("threads", 4).with("every", Duration::from_secs(1));
/// let plan = Plan::new().policy(seda.clone());
/// assert_eq!("seda(every=1s, threads=4)".parse(), Ok(seda)); // as on the command line
/// # let _ = plan;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Choice {
    /// The name.
    pub name: String,
    /// The parameters, by name. In a validated plan, all of them are set.
    pub params: BTreeMap<String, Param>,
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Param {
    /// A number, whole or not.
    Number(f64),
    /// A duration.
    Span(Duration),
    /// A boolean.
    Flag(bool),
    /// A string; also a duration or a number that was written as one.
    Text(String),
    /// A number for each of several stages, by name.
    Stages(BTreeMap<String, i64>),
}

impl Choice {
    /// Creates a choice without parameters.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Choice { name: name.into(), params: BTreeMap::new() }
    }

    /// Sets a parameter.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Param>) -> Self {
        self.params.insert(name.into(), value.into());
        self
    }

    /// Returns a parameter that is a whole number.
    ///
    /// # Panics
    /// Panics if there is no such parameter of this kind. A validated choice has every parameter of its
    /// offer, so the name is misspelt; a program whose policy does that is not started.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        self.number(name) as usize
    }

    /// Returns a parameter that is a number.
    ///
    /// # Panics
    /// Like [`count`](Self::count).
    #[must_use]
    pub fn number(&self, name: &str) -> f64 {
        match self.param(name) {
            Param::Number(n) => *n,
            _ => self.misread(name, "a number"),
        }
    }

    /// Returns a parameter that is a duration.
    ///
    /// # Panics
    /// Like [`count`](Self::count).
    #[must_use]
    pub fn span(&self, name: &str) -> Duration {
        match self.param(name) {
            Param::Span(span) => *span,
            _ => self.misread(name, "a duration"),
        }
    }

    /// Returns a parameter that is a boolean.
    ///
    /// # Panics
    /// Like [`count`](Self::count).
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        match self.param(name) {
            Param::Flag(flag) => *flag,
            _ => self.misread(name, "yes or no"),
        }
    }

    /// Returns a parameter that is one of several words.
    ///
    /// # Panics
    /// Like [`count`](Self::count).
    #[must_use]
    pub fn word(&self, name: &str) -> &str {
        match self.param(name) {
            Param::Text(word) => word,
            _ => self.misread(name, "a word"),
        }
    }

    /// Returns a parameter that is a number for each of several stages, by name.
    ///
    /// # Panics
    /// Like [`count`](Self::count).
    #[must_use]
    pub fn stages(&self, name: &str) -> BTreeMap<String, i64> {
        match self.param(name) {
            Param::Stages(stages) => stages.clone(),
            _ => self.misread(name, "a number for each of some stages"),
        }
    }

    fn param(&self, name: &str) -> &Param {
        self.params.get(name).unwrap_or_else(|| {
            let known: Vec<&str> = self.params.keys().map(String::as_str).collect();
            panic!("`{}` has no parameter `{name}`; it has: {}", self.name, known.join(", "))
        })
    }

    fn misread(&self, name: &str, taken_for: &str) -> ! {
        panic!("`{name}` of `{}` is not {taken_for}", self.name)
    }
}

impl From<&str> for Choice {
    /// As on the command line: a name, or `name(key=value, key=value)`.
    fn from(text: &str) -> Self {
        // What is neither is no name either, and will be refused as one.
        text.parse().unwrap_or_else(|_| Choice::new(text))
    }
}

impl From<String> for Choice {
    /// As from a `&str`.
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&Choice> for Choice {
    fn from(choice: &Choice) -> Self {
        choice.clone()
    }
}

macro_rules! param_from {
    ($($from:ty => $make:expr),* $(,)?) => {
        $(impl From<$from> for Param {
            fn from(value: $from) -> Self {
                let make: fn($from) -> Param = $make;
                make(value)
            }
        })*
    };
}

param_from! {
    f64 => Param::Number,
    i32 => |n| Param::Number(f64::from(n)),
    u32 => |n| Param::Number(f64::from(n)),
    i64 => |n| Param::Number(n as f64),
    u64 => |n| Param::Number(n as f64),
    usize => |n| Param::Number(n as f64),
    Duration => Param::Span,
    bool => Param::Flag,
    &str => |text| Param::Text(text.to_owned()),
    String => Param::Text,
    BTreeMap<String, i64> => Param::Stages,
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Param::Number(n) => write!(f, "{n}"),
            Param::Span(span) => f.write_str(&show_duration(*span)),
            Param::Flag(flag) => write!(f, "{flag}"),
            Param::Text(text) => f.write_str(text),
            Param::Stages(stages) => {
                let one = |(stage, n): (&String, &i64)| format!("{stage}={n}");
                f.write_str(&stages.iter().map(one).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.params.is_empty() {
            return Ok(());
        }
        let params: Vec<_> = self.params.iter().map(|(k, v)| format!("{k}={v}")).collect();
        write!(f, "({})", params.join(", "))
    }
}

impl FromStr for Choice {
    type Err = PlanFault;

    /// Reads `name` or `name(key=value, key=value)`.
    fn from_str(text: &str) -> Result<Self, PlanFault> {
        let wrong = || PlanFault::NotAChoice { text: text.to_owned() };
        let text = text.trim();
        let (name, params) = match text.split_once('(') {
            None => (text, ""),
            Some((name, rest)) => (name.trim(), rest.strip_suffix(')').ok_or_else(wrong)?),
        };
        if name.is_empty() || name.contains([')', '=', ',']) {
            return Err(wrong());
        }
        let mut choice = Choice::new(name);
        for param in params.split(',').filter(|param| !param.trim().is_empty()) {
            let (key, value) = param.split_once('=').ok_or_else(wrong)?;
            if choice.params.contains_key(key.trim()) {
                return Err(wrong()); // said twice
            }
            choice = choice.with(key.trim(), read(value.trim()));
        }
        Ok(choice)
    }
}

/// What a text without quotes most likely is.
fn read(text: &str) -> Param {
    match (text.replace('_', "").parse::<f64>(), text, parse_duration(text)) {
        (Ok(n), ..) => Param::Number(n),
        (_, "true", _) => Param::Flag(true),
        (_, "false", _) => Param::Flag(false),
        (.., Some(span)) => Param::Span(span),
        _ => Param::Text(text.to_owned()),
    }
}

/// Describes a policy or an admission controller that can be chosen by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// Its name.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// A description in one line.
    pub about: &'static str,
    /// Its source: authors, title, year.
    pub cites: &'static str,
    /// Its parameters.
    pub params: &'static [ParamSpec],
}

/// A parameter of an [`Offer`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamSpec {
    /// Its name.
    pub name: &'static str,
    /// Its meaning, in one line.
    pub about: &'static str,
    /// The values that it may have.
    pub kind: ParamKind,
    /// Its default, as it would be written in a plan.
    pub default: &'static str,
}

/// The values that a parameter may have.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ParamKind {
    /// A whole number from the first to the second.
    Count(usize, usize),
    /// A number from the first to the second.
    Number(f64, f64),
    /// A duration that is not zero.
    Span,
    /// A boolean.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number for each of several stages, by name.
    Stages,
}

impl ParamKind {
    /// Describes these values in words.
    #[must_use]
    pub fn expected(self) -> String {
        match self {
            ParamKind::Count(min, usize::MAX) => format!("a whole number, at least {min}"),
            ParamKind::Count(min, max) => format!("a whole number from {min} to {max}"),
            ParamKind::Number(min, f64::INFINITY) => format!("a number, at least {min}"),
            ParamKind::Number(min, max) => format!("a number from {min} to {max}"),
            ParamKind::Span => "a duration such as \"50ms\" or \"2s\"".to_owned(),
            ParamKind::Flag => "true or false".to_owned(),
            ParamKind::Word(words) => format!("one of {}", words.join(", ")),
            ParamKind::Stages => "a table of stages and whole numbers".to_owned(),
        }
    }

    /// The value as this kind, if it is one.
    fn take(self, value: &Param) -> Option<Param> {
        match (self, value) {
            (ParamKind::Count(min, max), Param::Number(n)) => {
                let fits = n.fract() == 0.0 && *n >= min as f64 && *n <= max as f64;
                fits.then_some(Param::Number(*n))
            }
            (ParamKind::Number(min, max), Param::Number(n)) => {
                (min..=max).contains(n).then_some(Param::Number(*n))
            }
            (ParamKind::Span, Param::Span(span)) => (!span.is_zero()).then_some(Param::Span(*span)),
            (ParamKind::Flag, Param::Flag(flag)) => Some(Param::Flag(*flag)),
            (ParamKind::Word(words), Param::Text(text)) => {
                let word = words.iter().find(|word| **word == text.trim())?;
                Some(Param::Text((*word).to_owned()))
            }
            (ParamKind::Stages, Param::Stages(stages)) => Some(Param::Stages(stages.clone())),
            (ParamKind::Stages, Param::Text(text)) => {
                let pairs = text.split_whitespace().map(|pair| {
                    let (stage, n) = pair.split_once('=')?;
                    Some((stage.to_owned(), n.parse().ok()?))
                });
                pairs.collect::<Option<_>>().map(Param::Stages)
            }
            (_, Param::Text(text)) => match read(text.trim()) {
                Param::Text(_) => None,
                value => self.take(&value),
            },
            _ => None,
        }
    }
}

impl Offer {
    /// Returns `true` if this is its name or one of its aliases.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// Checks a choice, which has the key `key` in a plan, and fills in its defaults.
    ///
    /// # Errors
    /// Returns every parameter that does not exist or has a wrong value.
    pub fn validate(&self, choice: &Choice, key: &str) -> Result<Choice, Vec<PlanFault>> {
        let (mut faults, mut said) = (Vec::new(), Vec::new());
        for (name, value) in &choice.params {
            let key = format!("{key}.{name}");
            let Some(spec) = self.params.iter().find(|spec| spec.name == name) else {
                faults.push(PlanFault::NoParam {
                    owner: self.name.to_owned(),
                    name: name.clone(),
                    near: nearest(name, self.params.iter().map(|spec| spec.name)),
                    key,
                });
                continue;
            };
            said.push((spec, value.clone(), key));
        }
        // A default that does not fit is a mistake of whoever made the offer, and reported like one.
        for spec in self.params.iter().filter(|spec| !choice.params.contains_key(spec.name)) {
            said.push((spec, Param::Text(spec.default.to_owned()), format!("{key}.{}", spec.name)));
        }
        let mut validated = Choice::new(self.name);
        for (spec, value, key) in said {
            match spec.kind.take(&value) {
                Some(value) => {
                    validated.params.insert(spec.name.to_owned(), value);
                }
                None => faults.push(PlanFault::BadParam {
                    owner: self.name.to_owned(),
                    name: spec.name.to_owned(),
                    value: match &value {
                        Param::Text(text) => quoted(text),
                        other => other.to_string(),
                    },
                    expected: spec.kind.expected(),
                    key,
                }),
            }
        }
        faults.sort_by_key(PlanFault::key);
        if faults.is_empty() { Ok(validated) } else { Err(faults) }
    }
}

/// Everything that a plan can choose by name.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Catalogue {
    /// Policies. The first is the default.
    pub policies: Vec<Offer>,
    /// Admission controllers.
    pub admissions: Vec<Offer>,
    /// Controllers of the threads of elastic stages. The first is the default.
    pub controllers: Vec<Offer>,
}

/// Finds the offer that a choice names, and validates the choice.
///
/// # Errors
/// Returns a fault if there is no offer of that name, or a parameter has a wrong value.
pub fn validate_choice(
    what: &'static str,
    offers: &[Offer],
    choice: &Choice,
    key: &str,
) -> Result<Choice, Vec<PlanFault>> {
    // A program's own come last, and may have another name of one before.
    match offers.iter().rev().find(|offer| offer.is_called(&choice.name)) {
        Some(offer) => offer.validate(choice, key),
        None => {
            // Not by their other names, which no list shows.
            let names = offers.iter().map(|offer| offer.name);
            Err(vec![PlanFault::NoChoice {
                what,
                name: choice.name.clone(),
                near: nearest(&choice.name, names),
                key: key.to_owned(),
            }])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEDA: Offer = Offer {
        name: "seda",
        aliases: &["staged"],
        about: "",
        cites: "",
        params: &[
            ParamSpec { name: "threads", about: "", kind: ParamKind::Count(1, 64), default: "2" },
            ParamSpec { name: "every", about: "", kind: ParamKind::Span, default: "2s" },
            ParamSpec { name: "colors", about: "", kind: ParamKind::Stages, default: "" },
        ],
    };

    fn validate(text: &str) -> Result<String, Vec<String>> {
        let choice: Choice = text.parse().unwrap();
        let found = validate_choice("policy", &[SEDA], &choice, "cluster.main.policy");
        let tell = |fault: &PlanFault| format!("{}: {fault}", fault.key());
        found.map(|choice| choice.to_string()).map_err(|faults| faults.iter().map(tell).collect())
    }

    #[test]
    fn what_a_choice_leaves_unsaid_is_filled_in() {
        assert_eq!(validate("staged").unwrap(), "seda(colors=, every=2s, threads=2)");
        assert_eq!(
            validate("seda(threads = 8, every=50ms, colors=a=1 b=2)").unwrap(),
            "seda(colors=a=1 b=2, every=50ms, threads=8)"
        );
    }

    #[test]
    fn what_an_offer_does_not_have_or_cannot_take_is_refused_all_at_once() {
        assert_eq!(
            validate("seda(thread=3, every=7, threads=0)").unwrap_err().join("\n"),
            "cluster.main.policy.every: `every` of `seda` is 7: use a duration such as \"50ms\" or \"2s\"\n\
             cluster.main.policy.thread: `seda` has no parameter `thread`: did you mean `threads`?\n\
             cluster.main.policy.threads: `threads` of `seda` is 0: use a whole number from 1 to 64"
        );
        assert_eq!(
            validate("sedda").unwrap_err(),
            ["cluster.main.policy: there is no policy `sedda`: did you mean `seda`?"]
        );
    }

    #[test]
    fn a_default_that_does_not_fit_is_refused_unless_another_is_said() {
        const PARAMS: &[ParamSpec] =
            &[ParamSpec { name: "n", about: "", kind: ParamKind::Count(1, 9), default: "many" }];
        let offer = Offer { name: "own", params: PARAMS, ..SEDA };
        let validate = |choice: Choice| offer.validate(&choice, "policy");
        let faults = validate(Choice::new("own")).unwrap_err();
        let why = "`n` of `own` is \"many\": use a whole number from 1 to 9";
        assert_eq!(faults[0].to_string(), why);
        assert_eq!(validate(Choice::new("own").with("n", 3)).unwrap().count("n"), 3);
    }

    #[test]
    #[should_panic(expected = "`seda` has no parameter `thread`; it has: every, threads")]
    fn a_parameter_that_is_not_there_is_not_read() {
        let seda = Choice::new("seda").with("threads", 2).with("every", Duration::from_secs(2));
        let _ = seda.count("thread");
    }

    #[test]
    #[should_panic(expected = "`threads` of `seda` is not a duration")]
    fn a_parameter_is_read_as_what_it_is() {
        let _ = Choice::new("seda").with("threads", 2).span("threads");
    }

    #[test]
    fn a_text_that_is_no_choice_is_refused() {
        for text in ["", "seda(", "seda(threads)", "seda)", "(threads=1)", "a,b", "a(b=1, b=2)"] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_choice_reads_back_as_itself() {
        let choice = Choice::new("x").with("a", 1.5).with("b", true).with("c", "word");
        assert_eq!(choice.to_string().parse(), Ok(choice));
    }
}
