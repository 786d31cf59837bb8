//! Sets of stages, for clusters: names, `all`, union `+`, difference `-`,
//! intersection `*`, and parentheses. `*` binds closer than the other two.
//! A name may hold `-`, so operators stand apart from names: `all - read-file`.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Add, Mul, Range, Sub};
use std::str::FromStr;

use crate::graph::{Graph, StageId};
use crate::plan::fault::{PlanFault, no_stage};

/// A set of the stages of a program, by name.
///
/// ```
/// # mod comporta { pub use comporta_model::plan::StageSet; }
/// use comporta::StageSet;
///
/// let rest = StageSet::all() - "correlate" - "persist";
/// assert_eq!(rest, "all - correlate - persist".parse()?);
/// assert_eq!((StageSet::of(["a", "b"]) * StageSet::all()).to_string(), "(a + b) * all");
/// # Ok::<(), comporta_model::plan::SetFault>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct StageSet(Term);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    All,
    None,
    Name(String),
    Union(Box<Term>, Box<Term>),
    Minus(Box<Term>, Box<Term>),
    Both(Box<Term>, Box<Term>),
}

impl StageSet {
    /// Returns the set of all stages.
    pub fn all() -> Self {
        StageSet(Term::All)
    }

    /// Returns the empty set, for a cluster to which stages are moved while the program runs.
    pub fn none() -> Self {
        StageSet(Term::None)
    }

    /// Returns the set of these stages.
    pub fn of<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        let terms = names.into_iter().map(|name| Term::Name(name.into()));
        StageSet(terms.reduce(|a, b| Term::Union(a.into(), b.into())).unwrap_or(Term::None))
    }

    /// The stages of `graph` that are in it.
    ///
    /// # Errors
    /// Every name that is no stage's.
    pub(crate) fn members(
        &self,
        graph: &Graph,
        key: &str,
    ) -> Result<BTreeSet<StageId>, Vec<PlanFault>> {
        let mut faults = Vec::new();
        let members = self.0.members(graph, &mut |name| faults.push(no_stage(graph, name, key)));
        if faults.is_empty() { Ok(members) } else { Err(faults) }
    }
}

impl Term {
    // Recursive: `FromStr` bounds the depth of what is parsed, and a union of names leans left.
    fn members(&self, graph: &Graph, unknown: &mut dyn FnMut(&str)) -> BTreeSet<StageId> {
        match self {
            Term::All => (0..).map(StageId).take(graph.stages.len()).collect(),
            Term::None => BTreeSet::new(),
            Term::Name(name) => match graph.find(name) {
                Some(id) => BTreeSet::from([id]),
                None => {
                    unknown(name);
                    BTreeSet::new()
                }
            },
            Term::Union(a, b) => &a.members(graph, unknown) | &b.members(graph, unknown),
            Term::Minus(a, b) => &a.members(graph, unknown) - &b.members(graph, unknown),
            Term::Both(a, b) => &a.members(graph, unknown) & &b.members(graph, unknown),
        }
    }
}

impl<S: Into<String>> From<S> for StageSet {
    fn from(name: S) -> Self {
        StageSet(Term::Name(name.into()))
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $term:ident) => {
        impl<S: Into<StageSet>> $trait<S> for StageSet {
            type Output = StageSet;
            fn $method(self, other: S) -> StageSet {
                StageSet(Term::$term(self.0.into(), other.into().0.into()))
            }
        }
    };
}

operator!(Add, add, Union);
operator!(Sub, sub, Minus);
operator!(Mul, mul, Both);

impl fmt::Display for StageSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn show(term: &Term, closer: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let (a, sign, b) = match term {
                Term::All => return f.write_str("all"),
                Term::None => return f.write_str("none"),
                Term::Name(name) => return f.write_str(name),
                Term::Union(a, b) => (a, "+", b),
                Term::Minus(a, b) => (a, "-", b),
                Term::Both(a, b) => (a, "*", b),
            };
            let both = sign == "*";
            let bracket = closer && !both;
            f.write_str(if bracket { "(" } else { "" })?;
            show(a, both, f)?;
            write!(f, " {sign} ")?;
            // What stands on the right was bracketed, unless it is a single word.
            let single = matches!(**b, Term::All | Term::None | Term::Name(_));
            let inner = !single && (both || !matches!(**b, Term::Both(..)));
            f.write_str(if inner { "(" } else { "" })?;
            show(b, false, f)?;
            f.write_str(if inner { ")" } else { "" })?;
            f.write_str(if bracket { ")" } else { "" })
        }
        show(&self.0, false, f)
    }
}

/// A mistake in the text of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetFault {
    /// The message.
    pub message: String,
    /// The bytes of the text that it is about.
    pub at: Range<usize>,
}

impl fmt::Display for SetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SetFault {}

/// How deep parentheses may nest: far above any use, and no danger to the stack.
const DEPTH_MAX: usize = 100;
/// How many words a set may have, likewise.
const WORDS_MAX: usize = 10_000;

impl FromStr for StageSet {
    type Err = SetFault;

    fn from_str(text: &str) -> Result<Self, SetFault> {
        let mut reader = Reader { text, words: words(text), at: 0 };
        if reader.words.len() > WORDS_MAX {
            return Err(reader.fault(format!("a set of more than {WORDS_MAX} words")));
        }
        let term = reader.sum(0)?;
        match reader.peek() {
            None => Ok(StageSet(term)),
            Some(")") => Err(reader.fault("`)` closes nothing")),
            Some(word) => Err(reader.fault(format!("expected `+`, `-` or `*` before `{word}`"))),
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    words: Vec<Range<usize>>,
    at: usize,
}

/// Parentheses, and what stands between them and blanks.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut open = false;
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        if c.is_whitespace() {
            open = false;
        } else if matches!(c, '(' | ')') {
            words.push(at..end);
            open = false;
        } else if let Some(word) = words.last_mut().filter(|_| open) {
            word.end = end;
        } else {
            words.push(at..end);
            open = true;
        }
    }
    words
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(|word| &self.text[word.clone()])
    }

    fn fault(&self, message: impl Into<String>) -> SetFault {
        let end = self.text.len()..self.text.len();
        SetFault { message: message.into(), at: self.words.get(self.at).cloned().unwrap_or(end) }
    }

    fn sum(&mut self, depth: usize) -> Result<Term, SetFault> {
        let mut left = self.product(depth)?;
        while let Some(sign @ ("+" | "-")) = self.peek() {
            self.at += 1;
            let right = self.product(depth)?;
            left = match sign {
                "+" => Term::Union(left.into(), right.into()),
                _ => Term::Minus(left.into(), right.into()),
            };
        }
        Ok(left)
    }

    fn product(&mut self, depth: usize) -> Result<Term, SetFault> {
        let mut left = self.word(depth)?;
        while self.peek() == Some("*") {
            self.at += 1;
            left = Term::Both(left.into(), self.word(depth)?.into());
        }
        Ok(left)
    }

    fn word(&mut self, depth: usize) -> Result<Term, SetFault> {
        let Some(word) = self.peek() else {
            return Err(self.fault("expected the name of a stage, `all`, or `(`"));
        };
        let term = match word {
            "(" if depth == DEPTH_MAX => return Err(self.fault("too many parentheses")),
            "(" => {
                self.at += 1;
                let inner = self.sum(depth + 1)?;
                if self.peek() != Some(")") {
                    return Err(self.fault("expected `)`"));
                }
                inner
            }
            ")" | "+" | "-" | "*" => {
                let expected = "expected the name of a stage, `all`, or `(`";
                return Err(self.fault(format!("{expected} before `{word}`")));
            }
            "all" => Term::All,
            "none" => Term::None,
            _ if word.starts_with(['+', '-', '*']) => {
                return Err(self.fault("put a blank after the operator"));
            }
            name => Term::Name(name.to_owned()),
        };
        self.at += 1;
        Ok(term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Kind, StageSpec};

    fn graph(names: &[&str]) -> Graph {
        let spec = |name: &&str| StageSpec::new(*name, Kind::Stage, "u8", &[]);
        let stages = names.iter().map(spec);
        Graph { stages: stages.collect(), ..Graph::default() }
    }

    fn members(text: &str) -> Vec<u32> {
        let set: StageSet = text.parse().unwrap();
        let shown: StageSet = set.to_string().parse().unwrap();
        let graph = graph(&["a", "b", "c-d", "e"]);
        assert_eq!(shown.members(&graph, ""), set.members(&graph, ""), "{text} as {set}");
        set.members(&graph, "").unwrap().into_iter().map(|id| id.0).collect()
    }

    #[test]
    fn the_algebra_of_sets_holds() {
        assert_eq!(members("all"), [0, 1, 2, 3]);
        assert_eq!(members("all - c-d"), [0, 1, 3]);
        assert_eq!(members("a + b * all - b"), [0]);
        assert_eq!(members("(a + b) * (b + e)"), [1]);
        assert_eq!(members("all - (all - a)"), [0]);
        assert_eq!(members("all - all - a"), [0u32; 0]);
        assert_eq!(members("none"), [0u32; 0]);
    }

    #[test]
    fn a_slip_is_told_with_its_place() {
        let fault = |text: &str| {
            let fault = text.parse::<StageSet>().unwrap_err();
            (fault.at, fault.message)
        };
        let name = "expected the name of a stage, `all`, or `(`";
        assert_eq!(fault(""), (0..0, name.to_owned()));
        assert_eq!(fault("all -"), (5..5, name.to_owned()));
        assert_eq!(fault("all -b"), (4..6, "expected `+`, `-` or `*` before `-b`".to_owned()));
        assert_eq!(fault("a b"), (2..3, "expected `+`, `-` or `*` before `b`".to_owned()));
        assert_eq!(fault("(a"), (2..2, "expected `)`".to_owned()));
        assert_eq!(fault("a)"), (1..2, "`)` closes nothing".to_owned()));
        assert_eq!(fault("a + * b").0, 4..5);
        assert_eq!(fault(&"(".repeat(200)).1, "too many parentheses");
    }
}
