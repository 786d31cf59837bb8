//! Files and flags become a `Plan`; later ones override earlier ones. The place of each setting is remembered, so
//! that a mistake found later can be shown where it was made.
//! Long because reading, remembering and marking share one table of places.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use comporta_model::graph::Graph;
use comporta_model::plan::{
    Catalogue, Plan, PlanFault, StageSet, bare, defaults, nearest, quoted, spaced,
};

use crate::effective::{Effective, MASK};
use crate::escape::escaped;
use crate::report::{Mistake, Report, Span, Text};
use crate::schema::{self, Field, Wrong, listed};
use crate::secrets::{hidden_unread, hide_secrets, in_address, is_secret, without_hidden_keys};
use crate::tree::{self, Entry, Node, Table, Value};

/// The texts of a plan, of which later ones override earlier ones, before they are validated against a program.
/// Mistakes are collected and reported together.
///
/// ```
/// use comporta_plan::PlanSpec;
///
/// let mut spec = PlanSpec::new();
/// spec.text("words.toml", "[stage.split]\ninstances = 4\nqueue.when_full = 'blok'");
/// spec.set("--set", "cluster.main.threads=2");
/// let report = spec.check().unwrap_err().to_string();
/// assert!(report.contains("words.toml:3:19"), "{report}");
/// assert!(report.contains("did you mean `block`?"));
/// ```
#[derive(Clone, Debug)]
pub struct PlanSpec {
    env: fn(&str) -> Option<String>,
    pub(crate) texts: Vec<Text>,
    plan: Plan,
    /// The value of each setting, and the key of each part, by dotted key.
    pub(crate) places: BTreeMap<String, Span>,
    pub(crate) app: Table,
    mistakes: Vec<Mistake>,
    /// A text could not be read, or not all of it, or not a value of the program's own.
    unread: bool,
    /// Which stages a cluster has could not be read: where they are is not known.
    sets_unread: bool,
}

impl Default for PlanSpec {
    fn default() -> Self {
        PlanSpec::new()
    }
}

/// The largest plan that is read: a bound against slips, far above any use.
const BYTES_MAX: u64 = 16 << 20;

impl PlanSpec {
    /// Creates an empty plan.
    #[must_use]
    pub fn new() -> Self {
        PlanSpec::with_env(|name| std::env::var(name).ok())
    }

    /// Creates an empty plan whose variables are looked up with `env`.
    #[must_use]
    pub fn with_env(env: fn(&str) -> Option<String>) -> Self {
        PlanSpec {
            env,
            texts: Vec::new(),
            plan: Plan::new(),
            places: BTreeMap::new(),
            app: Table::new(),
            mistakes: Vec::new(),
            unread: false,
            sets_unread: false,
        }
    }

    /// Reads a file, which overrides what was read before.
    pub fn file(&mut self, path: &Path) {
        let name = escaped(&path.display().to_string()).into_owned();
        match File::open(path) {
            Ok(file) => self.reader(name, file),
            Err(error) => self.unreadable(&name, &error),
        }
    }

    /// Reads a file that is open, such as standard input, to its end; it overrides what was read before. `name` is
    /// used in messages.
    pub fn reader(&mut self, name: impl Into<String>, reader: impl Read) {
        let name = name.into();
        let mut bytes = Vec::new();
        // One more shows that there are too many.
        let read =
            reader.take(BYTES_MAX + 1).read_to_end(&mut bytes).and_then(
                |read| match u64::try_from(read).is_ok_and(|read| read <= BYTES_MAX) {
                    true => Ok(bytes),
                    false => Err(io::Error::other("it has more than 16 MiB")),
                },
            );
        match read.map(String::from_utf8) {
            Ok(Ok(text)) => self.text(name, text),
            Ok(Err(error)) => self.not_text(name, &error),
            Err(error) => self.unreadable(&name, &error),
        }
    }

    fn unreadable(&mut self, name: &str, error: &io::Error) {
        self.unread = true;
        let title = format!("the plan `{name}` cannot be read: {error}");
        self.mistakes.push(Mistake::new(title, None));
    }

    /// Marks the first byte of a file that is no text.
    fn not_text(&mut self, name: String, error: &std::string::FromUtf8Error) {
        self.unread = true;
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes().get(at).copied().unwrap_or_default();
        // In its place stands a character that says so, which ends one that is valid.
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        let range = at..at + char::REPLACEMENT_CHARACTER.len_utf8();
        let span = Span { text: self.texts.len(), range };
        let mistake = Mistake::new("a plan is UTF-8 text, and this is none", span);
        let help = "it may be Latin-1 or UTF-16: save it as UTF-8".to_owned();
        self.mistakes.push(mistake.label(format!("the byte 0x{byte:02x}")).help(help));
        let hidden = hidden_unread(&text);
        self.texts.push(Text { name, text, hidden, is_flag: false });
    }

    /// Reads a text, which overrides what was read before. `name` is used in messages.
    pub fn text(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.layer(name.into(), text.into(), false);
    }

    /// Reads a flag of the form `key=value`, which overrides what was read before. A value that is not TOML is
    /// taken as a string, so that strings need no quotes.
    pub fn set(&mut self, flag: &str, said: &str) {
        let Some((key, value)) = key_and_value(said) else {
            // It may hold what should have stood after the `=`.
            let title = match is_secret(said) {
                true => format!("`{flag}` sets nothing"),
                false => format!("`{flag} {said}` sets nothing"),
            };
            let mistake = Mistake::new(title, None);
            self.mistakes
                .push(mistake.help("say `key=value`, as in `stage.split.instances=4`".to_owned()));
            return;
        };
        let key = spelt(key.trim());
        let is_toml = |text: &str| toml::de::DeTable::parse(text).is_ok();
        let whole = format!("{key}={}", value.trim());
        let text = match (is_toml(&format!("{key}=1")), is_toml(said), is_toml(&whole)) {
            // What is wrong is the key, and not that the value has no quotes.
            (false, ..) | (_, true, _) => said.to_owned(),
            (_, _, true) => whole,
            _ => format!("{key}={}", quoted(value.trim())),
        };
        self.layer(flag.to_owned(), text, true);
    }

    /// Returns the name of the cluster that names no stages, by the texts or else by the plan of the program.
    #[must_use]
    pub fn rest(&self, program: &Plan) -> String {
        let clusters = self.plan.clone().over(program).clusters;
        let mut rests = clusters.into_iter().filter(|(_, plan)| plan.stages.is_none());
        rests.next().map_or_else(|| defaults::CLUSTER.to_owned(), |(name, _)| name)
    }

    fn layer(&mut self, name: String, mut text: String, is_flag: bool) {
        if text.starts_with('\u{feff}') {
            text.remove(0); // a mark of some editors, in no column
        }
        let number = self.texts.len();
        let before = self.mistakes.len();
        let mut table = tree::read(number, &text, &self.env, &mut self.mistakes);
        let mut hidden = Vec::new();
        if self.mistakes.len() > before {
            let found = &self.mistakes[before..];
            // A value that is left out elsewhere does not keep a program from being built.
            let of_app = |at: &Span| {
                table.iter().filter(|entry| entry.key == "app").any(|entry| entry.node.holds(at))
            };
            self.unread |= found.iter().any(|mistake| {
                mistake.title() == tree::NOT_TOML || mistake.at.as_ref().is_none_or(of_app)
            });
            if is_flag && self.mistakes[before].title() == tree::NOT_TOML {
                self.mistakes.truncate(before + 1); // the others follow from it
            }
            hidden = hidden_unread(&text);
            without_hidden_keys(&mut table, &hidden);
        }
        hide_secrets(&text, &table, &mut hidden);
        self.refuse_masks(&table);
        self.texts.push(Text { name, text, hidden, is_flag });
        for entry in table {
            self.section(entry);
        }
    }

    /// `***` is what the effective plan shows in place of a secret: read back, it would be one.
    fn refuse_masks(&mut self, table: &Table) {
        for Entry { key, node, .. } in table {
            self.refuse_mask(key, node);
        }
    }

    fn refuse_mask(&mut self, key: &str, node: &Node) {
        match &node.value {
            Value::Table(inner) => self.refuse_masks(inner),
            Value::List(items) => items.iter().for_each(|item| self.refuse_mask(key, item)),
            Value::Text(text, _) if is_masked(text) => {
                let title = format!("`{key}` stands for a secret that was not printed");
                let mistake = Mistake::new(title, node.span.clone());
                let label = "expected the secret, or a variable that holds it: `${NAME}`";
                self.mistakes.push(mistake.label(label));
                self.unread = true;
            }
            _ => {}
        }
    }

    fn section(&mut self, entry: Entry) {
        let Entry { key, key_span, node } = entry;
        match (key.as_str(), node.value) {
            ("app", Value::Table(table)) => {
                merge(&mut self.app, table);
            }
            ("every", Value::Table(table)) => {
                let mut every = std::mem::take(&mut self.plan.every);
                self.part(table, schema::STAGE, "every", &mut every);
                self.plan.every = every;
            }
            ("stage", Value::Table(parts)) => {
                for (name, table) in self.named(parts, "stage") {
                    let mut stage = self.plan.stages.remove(&name).unwrap_or_default();
                    self.part(table, schema::STAGE, &format!("stage.{name}"), &mut stage);
                    self.plan.stages.insert(name, stage);
                }
            }
            ("cluster", Value::Table(parts)) => {
                for (name, mut table) in self.named(parts, "cluster") {
                    let mut cluster = self.plan.clusters.remove(&name).unwrap_or_default();
                    let prefix = format!("cluster.{name}");
                    let field = &schema::CLUSTER_STAGES;
                    if let Some(at) = table.iter().position(|entry| entry.key == field.key) {
                        let entry = table.remove(at);
                        let key = format!("{prefix}.stages");
                        if !self.apply(field, &key, &entry.node, &mut cluster) {
                            self.sets_unread = true;
                            // Whatever it names, it does not take the rest.
                            cluster.stages.get_or_insert_with(StageSet::none);
                        }
                    }
                    self.part_beside(table, schema::CLUSTER, &prefix, &mut cluster, &[field.key]);
                    self.plan.clusters.insert(name, cluster);
                }
            }
            ("connector", Value::Table(parts)) => {
                for (name, table) in self.named(parts, "connector") {
                    let name = spaced(&name);
                    let mut way = self.plan.connectors.remove(&name).unwrap_or_default();
                    self.part(table, schema::CONNECTOR, &format!("connector.{name}"), &mut way);
                    self.plan.connectors.insert(name, way);
                }
            }
            ("app" | "every" | "stage" | "cluster" | "connector", value) => {
                let kind = Node { value, span: node.span.clone() }.kind();
                let mistake = Mistake::new(format!("`{key}` is a section, not {kind}"), node.span);
                self.mistakes.push(mistake.label(format!("expected `[{key}]` and its settings")));
            }
            (_, value) => {
                let mut plan = std::mem::take(&mut self.plan);
                let node = Node { value, span: node.span };
                let entry = Entry { key, key_span, node };
                let sections: Vec<&str> = schema::SECTIONS.iter().map(|(name, _)| *name).collect();
                self.part_beside(vec![entry], schema::PLAN, "", &mut plan, &sections);
                self.plan = plan;
            }
        }
    }

    /// The parts of a section, each with its name, which is noted.
    fn named(&mut self, parts: Table, section: &str) -> Vec<(String, Table)> {
        let mut named = Vec::new();
        for Entry { key, key_span, node } in parts {
            let part = if section == "connector" { spaced(&key) } else { key.clone() };
            self.places.insert(format!("{section}.{part}"), key_span);
            match node.value {
                Value::Table(table) => named.push((key, table)),
                value => {
                    let kind = Node { value, span: node.span.clone() }.kind();
                    let title = format!("`{section}.{key}` is a part of the plan, not {kind}");
                    let label = format!("expected a table: the settings of the {section} `{key}`");
                    self.mistakes.push(Mistake::new(title, node.span).label(label));
                }
            }
        }
        named
    }

    fn part<P, S>(&mut self, table: Table, fields: &[Field<P, S>], prefix: &str, part: &mut P) {
        self.part_beside(table, fields, prefix, part, &[]);
    }

    /// Reads the settings of a part; `beside` are keys it could also have had.
    fn part_beside<P, S>(
        &mut self,
        table: Table,
        fields: &[Field<P, S>],
        prefix: &str,
        part: &mut P,
        beside: &[&str],
    ) {
        let mut todo: Vec<(String, Entry)> =
            table.into_iter().rev().map(|entry| (entry.key.clone(), entry)).collect();
        while let Some((key, entry)) = todo.pop() {
            let dotted = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            if let Some(field) = fields.iter().find(|field| field.key == key) {
                self.apply(field, &dotted, &entry.node, part);
                continue;
            }
            let group = format!("{key}.");
            let inner: Vec<&str> =
                fields.iter().filter_map(|field| field.key.strip_prefix(&group)).collect();
            match entry.node.value {
                Value::Table(table) if !inner.is_empty() => {
                    let deeper = table.into_iter().rev();
                    todo.extend(deeper.map(|entry| (format!("{group}{}", entry.key), entry)));
                }
                value if !inner.is_empty() => {
                    let node = Node { value, span: entry.node.span };
                    let title = format!("`{dotted}` is a table, not {}", node.kind());
                    let label = format!("expected a table with {}", listed(&inner));
                    self.mistakes.push(Mistake::new(title, node.span).label(label));
                }
                _ => {
                    let unknown = unknown_key(&key, &dotted, fields, beside);
                    self.mistakes.push(Mistake { at: Some(entry.key_span), ..unknown });
                }
            }
        }
    }

    /// Reads a setting; returns whether it could be read.
    fn apply<P, S>(&mut self, field: &Field<P, S>, key: &str, node: &Node, part: &mut P) -> bool {
        let text = &self.texts[node.span.text].text;
        match (field.set)(part, node, text) {
            Ok(()) => {
                self.places.insert(key.to_owned(), node.span.clone());
                // The parameters of a choice.
                let Value::Table(entries) = &node.value else { return true };
                for Entry { key: name, key_span, node } in entries {
                    let range = key_span.range.start..node.span.range.end;
                    let span = Span { text: key_span.text, range };
                    self.places.insert(format!("{key}.{name}"), span);
                }
                true
            }
            Err(Wrong { message, label, help, at }) => {
                let at = at.unwrap_or_else(|| node.span.clone());
                if self.mistakes.iter().any(|other| other.touches(&at)) {
                    return false; // it was reported before
                }
                let title = format!("`{key}`: {message}");
                self.mistakes.push(Mistake::new(title, at).label(label).help(help));
                false
            }
        }
    }

    /// Returns `true` if every text could be read to its end, and every variable of [`app`](Self::app) substituted.
    /// Only then can a program be built from it.
    #[must_use]
    pub fn is_read(&self) -> bool {
        !self.unread
    }

    /// Checks the texts by themselves.
    ///
    /// # Errors
    /// Returns every mistake that can be found without a program.
    pub fn check(&self) -> Result<(), Report> {
        if self.mistakes.is_empty() { Ok(()) } else { Err(self.report(Vec::new())) }
    }

    /// What was found while reading, and what was found since.
    pub(crate) fn report(&self, found: Vec<Mistake>) -> Report {
        self.report_beside(found, &[])
    }

    /// The same without mistakes of these titles, which others explain.
    fn report_beside(&self, found: Vec<Mistake>, explained: &[String]) -> Report {
        let read = self.mistakes.iter().filter(|mistake| !explained.contains(&mistake.title));
        let mut mistakes: Vec<_> = read.cloned().chain(found).collect();
        mistakes.sort_by_key(|mistake| mistake.at.as_ref().map(|at| (at.text, at.range.start)));
        Report { texts: self.texts.clone(), mistakes }
    }
}

/// Whether the mask stands for a secret in a text.
fn is_masked(text: &str) -> bool {
    text == MASK || in_address(text).into_iter().any(|range| &text[range] == MASK)
}

/// What could have been chosen.
fn there_are(what: &str, catalogue: &Catalogue) -> String {
    let offers = match what {
        "policy" => &catalogue.policies,
        "controller of threads" => &catalogue.controllers,
        _ => &catalogue.admissions,
    };
    let names: Vec<&str> = offers.iter().map(|offer| offer.name).collect();
    format!("there are {}", listed(&names))
}

/// The parameters of what was chosen.
fn parameters(owner: &str, key: &str, catalogue: &Catalogue) -> String {
    // A policy and an admission controller may have the same name.
    let of_a_stage = key.starts_with("stage.") || key.starts_with("every.");
    let offers = match of_a_stage {
        true if key.contains(".elastic.") => &catalogue.controllers,
        true => &catalogue.admissions,
        false => &catalogue.policies,
    };
    let params =
        offers.iter().find(|offer| offer.name == owner).map_or(&[][..], |offer| offer.params);
    let names: Vec<&str> = params.iter().map(|param| param.name).collect();
    match names.as_slice() {
        [] => "it has none".to_owned(),
        names => format!("it has {}", listed(names)),
    }
}

/// What stands before and after the first `=` that is in no quotes.
fn key_and_value(said: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    let equals = said.char_indices().find(|(_, c)| {
        match (quote, *c) {
            (None, '"' | '\'') => quote = Some(*c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
        quote.is_none() && *c == '='
    });
    let (at, _) = equals?;
    Some((&said[..at], &said[at + 1..]))
}

/// The longest name that is searched for operators: a bound, since it takes the square of its length.
const SUGGESTED_MAX: usize = 1_000;

/// The set that was meant where operators were taken for a part of a name, if it names only what there is.
fn operators_apart(fault: &PlanFault, graph: &Graph) -> Option<String> {
    let PlanFault::NoStage { name, key, .. } = fault else { return None };
    if !key.ends_with(".stages") || name.len() > SUGGESTED_MAX {
        return None;
    }
    let known = |name: &str| matches!(name, "all" | "none") || graph.find(name).is_some();
    // A name may hold `-`: the longest names that are there count.
    let (mut terms, mut rest) = (Vec::new(), name.as_str());
    loop {
        let operator = |at: &(usize, char)| "+-*".contains(at.1);
        let mut ends = rest.char_indices().filter(operator).map(|(at, _)| at).chain([rest.len()]);
        let end = ends.rfind(|end| known(&rest[..*end]))?;
        terms.push(&rest[..end]);
        if end == rest.len() {
            break;
        }
        terms.push(&rest[end..end + 1]);
        rest = &rest[end + 1..];
    }
    (terms.len() > 1).then(|| terms.join(" "))
}

/// A key, of which the names that TOML wants in quotes have got them if it has none at all.
fn spelt(key: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    match key.chars().all(plain) && !key.split('.').any(str::is_empty) {
        true => key.split('.').map(bare).collect::<Vec<_>>().join("."),
        false => key.to_owned(),
    }
}

fn unknown_key<P, S>(key: &str, dotted: &str, fields: &[Field<P, S>], beside: &[&str]) -> Mistake {
    let group = key.rsplit_once('.').map_or("", |(group, _)| group);
    let level = fields.iter().filter_map(|field| match group {
        "" => field.key.split('.').next(),
        group => field.key.strip_prefix(group)?.strip_prefix('.'),
    });
    let beside = beside.iter().copied().filter(|_| group.is_empty());
    let mut level: Vec<&str> = level.chain(beside).collect();
    level.dedup();
    let last = key.rsplit('.').next().unwrap_or(key);
    // `capacity` may have been written beside `queue`, or the other way round.
    let deeper = fields.iter().find(|field| field.key.rsplit('.').next() == Some(last));
    let label = match (nearest(last, level.iter().copied()), deeper) {
        (_, Some(field)) => format!("did you mean `{}`?", field.key),
        (Some(near), None) => format!("did you mean `{near}`?"),
        (None, None) => "nothing of that name".to_owned(),
    };
    let help = format!("there are {}", listed(&level));
    Mistake::new(no_setting(dotted), None).label(label).help(help)
}

fn no_setting(key: &str) -> String {
    escaped(&format!("there is no setting `{key}`")).into_owned()
}

/// Lays `over` on `base`: tables are merged, anything else is replaced.
fn merge(base: &mut Table, over: Table) {
    for entry in over {
        match base.iter_mut().find(|below| below.key == entry.key) {
            None => base.push(entry),
            Some(below) => match (&mut below.node.value, entry.node.value) {
                (Value::Table(below), Value::Table(over)) => merge(below, over),
                (_, value) => {
                    below.node = Node { value, span: entry.node.span };
                    below.key_span = entry.key_span;
                }
            },
        }
    }
}

impl PlanSpec {
    /// Validates the texts, which override the plan of the program, against the graph and the catalogue of the
    /// program, on a machine with `cpus` CPUs.
    ///
    /// # Errors
    /// Returns every mistake, including those found while reading.
    pub fn validate(
        &self,
        graph: &Graph,
        program: &Plan,
        catalogue: &Catalogue,
        cpus: usize,
    ) -> Result<Effective, Report> {
        let plan = self.plan.clone().over(program);
        let (settings, faults) = match plan.validate(graph, catalogue, cpus) {
            Ok(settings) => (Some(settings), Vec::new()),
            Err(faults) => (None, faults),
        };
        let mut mistakes: Vec<Mistake> = Vec::new();
        let sure = faults.iter().filter(|fault| !self.is_doubtful(fault));
        let mut explained = Vec::new();
        for fault in sure {
            let mut mistake = self.mistake(fault, catalogue);
            if mistake
                .at
                .as_ref()
                .is_some_and(|at| self.mistakes.iter().any(|read| read.touches(at)))
            {
                continue; // what could not be read cannot fit, either
            }
            if let Some((name, title)) = self.unquoted(fault, graph) {
                mistake = mistake.label(format!("did you mean `{}`?", bare(name)));
                explained.push(title);
            } else if let Some(apart) = operators_apart(fault, graph) {
                mistake = mistake.label(format!("operators have blanks around them: `{apart}`"));
            }
            let twice = |other: &Mistake| other.at.is_some() && other.at == mistake.at;
            // What is said of every stage is wrong once, not once for every stage.
            if !mistakes.iter().any(|other| twice(other) && other.label == mistake.label) {
                mistakes.push(mistake);
            }
        }
        match settings.filter(|_| self.mistakes.is_empty()) {
            Some(settings) => Ok(Effective::new(graph, plan, settings, self)),
            None => Err(self.report_beside(mistakes, &explained)),
        }
    }

    /// The stage that is meant where a name with a dot was given without its quotes, and the title of the mistake
    /// that is no other: the rest of the name was taken for a setting.
    fn unquoted<'a>(&self, fault: &PlanFault, graph: &'a Graph) -> Option<(&'a str, String)> {
        let PlanFault::NoStage { name, key, .. } = fault else { return None };
        let names = graph.stages.iter().map(|spec| &*spec.name);
        let mut meant = names.filter_map(|stage| {
            let rest = stage.strip_prefix(name.as_str())?.strip_prefix('.')?;
            let title = no_setting(&format!("{key}.{}", rest.split('.').next()?));
            self.mistakes.iter().any(|mistake| mistake.title == title).then_some((stage, title))
        });
        meant.next()
    }

    /// Whether it may only follow from another mistake.
    fn is_doubtful(&self, fault: &PlanFault) -> bool {
        let of_sets = matches!(fault, PlanFault::NoCluster { .. } | PlanFault::LocalApart { .. });
        of_sets && self.sets_unread
    }

    fn mistake(&self, fault: &PlanFault, catalogue: &Catalogue) -> Mistake {
        let key = fault.key();
        let text = fault.to_string();
        let (title, hint) = match text.split_once(": did you mean") {
            Some((title, hint)) => (title.to_owned(), format!("did you mean{hint}")),
            None => match text.split_once(": use ") {
                Some((title, range)) => (title.to_owned(), format!("expected {range}")),
                None => (text, String::new()),
            },
        };
        let at = self.place(&key).map(|span| match fault {
            PlanFault::NoStage { name, .. } | PlanFault::NoChoice { name, .. } => {
                self.word(&span, name)
            }
            _ => span,
        });
        let help = match fault {
            _ if at.is_none() => Some("the program says so itself".to_owned()),
            PlanFault::NoChoice { what, .. } => Some(there_are(what, catalogue)),
            PlanFault::NoParam { owner, .. } => Some(parameters(owner, &key, catalogue)),
            _ => None,
        };
        // What a variable holds may be nobody's business.
        let held = at.as_ref().is_some_and(|at| {
            self.texts[at.text].text.get(at.range.clone()).is_some_and(|text| text.contains("${"))
        });
        match fault {
            PlanFault::NoStage { .. }
            | PlanFault::NoChoice { .. }
            | PlanFault::NoParam { .. }
            | PlanFault::BadParam { .. }
                if held =>
            {
                let title = format!("`{key}`: what the variable holds does not fit here");
                Mistake::new(title, at).help(help)
            }
            // Its name is part of a key, in which TOML may want quotes.
            PlanFault::NoStage { near: Some(near), key, .. } if key.starts_with("stage.") => {
                let near = bare(near);
                Mistake::new(title, at).label(format!("did you mean `{near}`?")).help(help)
            }
            PlanFault::UnknownCluster { near: Some(near), .. } => {
                let near = bare(near);
                Mistake::new(title, at).label(format!("did you mean `{near}`?")).help(help)
            }
            _ => Mistake::new(title, at).label(hint).help(help),
        }
    }

    /// Where a setting was said: itself, as one of every stage, or some setting of the same part.
    fn place(&self, key: &str) -> Option<Span> {
        let places = &self.places;
        if let Some(span) = places.get(key) {
            return Some(span.clone());
        }
        let fields = schema::STAGE.iter().map(|field| field.key);
        let every =
            fields.filter(|field| key.ends_with(&format!(".{field}"))).max_by_key(|f| f.len());
        let of_every = every.and_then(|field| places.get(&format!("every.{field}")));
        let within = || {
            let prefix = format!("{key}.");
            places.iter().find(|(place, _)| place.starts_with(&prefix)).map(|(_, span)| span)
        };
        let around = || {
            let mut parents = key.char_indices().rev().filter(|(_, c)| *c == '.');
            parents.find_map(|(at, _)| places.get(&key[..at]))
        };
        of_every.or_else(within).or_else(around).cloned()
    }

    /// The place of a word inside of a value, if it stands there.
    fn word(&self, span: &Span, word: &str) -> Span {
        let text = &self.texts[span.text].text;
        let value = text.get(span.range.clone()).unwrap_or_default();
        let is_end = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && !"_-.".contains(c));
        let mut found = value.match_indices(word).filter(|(at, _)| {
            is_end(value[..*at].chars().next_back())
                && is_end(value[at + word.len()..].chars().next())
        });
        let range: Range<usize> = match found.next() {
            Some((at, _)) => span.range.start + at..span.range.start + at + word.len(),
            None => span.range.clone(),
        };
        Span { text: span.text, range }
    }
}
