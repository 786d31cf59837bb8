//! Every setting in effect, with its origin: the plan as text, which can be read back once its secrets are filled
//! in, and its differences from another plan.

use std::fmt::{self, Write as _};

use comporta_model::graph::{Graph, Kind, StageSpec};
use comporta_model::plan::{ClusterSettings, Plan, Settings, StagePlan, StageSet, bare, quoted};

use crate::report::Span;
use crate::schema::{self, Field};
use crate::secrets::{in_address, is_secret};
use crate::spec::PlanSpec;
use crate::tree::{Table, Value};

/// A plan validated against a program: every setting, with its origin.
#[derive(Clone, Debug)]
pub struct Effective {
    plan: Plan,
    settings: Settings,
    app: String,
    sections: Vec<Section>,
}

/// A table of the text.
#[derive(Clone, Debug)]
struct Section {
    /// As in its header, quoted where it must be; empty for the top.
    header: String,
    rows: Vec<Row>,
    /// Said of the section as a whole.
    note: Option<String>,
}

#[derive(Clone, Debug)]
struct Row {
    key: String,
    value: String,
    origin: String,
    /// What was masked in the value.
    secret: Hidden,
    /// A policy may choose it while nobody says it. So to say it would say more than that it holds: it
    /// is shown with this, and not read back.
    unless: Option<&'static str>,
}

/// A text that is compared, but never shown.
#[derive(Clone, Default, PartialEq, Eq)]
struct Hidden(String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

/// What is shown in place of a secret.
pub(crate) const MASK: &str = "***";

/// A setting in which two plans differ. If both values look the same, they are masked secrets that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// Its key, with dots.
    pub key: String,
    /// Its value in this plan and its origin, if it is set.
    pub here: Option<(String, String)>,
    /// Its value in the other plan and its origin, if it is set.
    pub there: Option<(String, String)>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |side: &Option<(String, String)>| side.as_ref().map(|(value, _)| value.clone());
        if shown(&self.here) == shown(&self.there) {
            return writeln!(f, "{} differs (not shown)", self.key);
        }
        writeln!(f, "{}", self.key)?;
        for (sign, side) in [('-', &self.here), ('+', &self.there)] {
            if let Some((value, origin)) = side {
                writeln!(f, "  {sign} {value}  # {origin}")?;
            }
        }
        Ok(())
    }
}

const DEFAULT: &str = "default";

impl Row {
    fn new(key: &str, value: String, origin: String) -> Self {
        let key = key.to_owned();
        Row { key, value, origin, secret: Hidden::default(), unless: None }
    }
}

impl Effective {
    pub(crate) fn new(graph: &Graph, plan: Plan, settings: Settings, said: &PlanSpec) -> Self {
        let lister = Lister { graph, plan: &plan, settings: &settings, said };
        let sections = lister.sections();
        let app = graph.name.to_string();
        Effective { plan, settings, app, sections }
    }

    /// Returns the plan, to start the program with.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the validated settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn rows(&self) -> impl Iterator<Item = (String, &Row)> {
        self.sections.iter().flat_map(|section| {
            section.rows.iter().map(|row| match section.header.as_str() {
                "" => (row.key.clone(), row),
                header => (format!("{header}.{}", row.key), row),
            })
        })
    }

    /// Returns every setting in which `other` differs from this, in order.
    #[must_use]
    pub fn differences(&self, other: &Effective) -> Vec<Difference> {
        let pair = |row: &Row| (row.value.clone(), row.origin.clone());
        let theirs: std::collections::BTreeMap<String, &Row> = other.rows().collect();
        let ours: std::collections::BTreeMap<String, &Row> = self.rows().collect();
        let mut found = Vec::new();
        for (key, row) in self.rows() {
            let there = theirs.get(&key);
            let differs = |there: &&Row| there.value != row.value || there.secret != row.secret;
            if there.is_none_or(differs) {
                let (here, there) = (Some(pair(row)), there.map(|row| pair(row)));
                found.push(Difference { key, here, there });
            }
        }
        for (key, row) in other.rows().filter(|(key, _)| !ours.contains_key(key)) {
            found.push(Difference { key, here: None, there: Some(pair(row)) });
        }
        found
    }
}

impl Effective {
    /// Returns the plan as text without defaults, for any machine.
    #[must_use]
    pub fn said(&self) -> String {
        let head = format!("# The plan of `{}`, without defaults.\n", self.app);
        head + &self.text(|row| row.origin != DEFAULT)
    }

    fn text(&self, keep: impl Fn(&Row) -> bool) -> String {
        let mut text = String::new();
        for section in &self.sections {
            let kept: Vec<&Row> = section.rows.iter().filter(|row| keep(row)).collect();
            if kept.is_empty() {
                continue;
            }
            text += &match section.header.as_str() {
                "" => "\n".to_owned(),
                header => format!("\n[{header}]\n"),
            };
            text += &section.note.as_ref().map(|note| format!("# {note}\n")).unwrap_or_default();
            text += &rows(&kept);
        }
        text
    }
}

impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masked = self.rows().any(|(_, row)| row.secret != Hidden::default());
        let reads_back = match masked {
            true => "It reads back as itself once what is not shown is filled in.",
            false => "It reads back as itself.",
        };
        writeln!(f, "# The plan of `{}`, with every default. {reads_back}", self.app)?;
        f.write_str(&self.text(|_| true))
    }
}

fn rows(rows: &[&Row]) -> String {
    let width = |text: &str| text.chars().count();
    let key = |row: &Row| format!("{}{}", if row.unless.is_some() { "# " } else { "" }, row.key);
    let keys = rows.iter().map(|row| width(&key(row))).max().unwrap_or(0);
    let values = rows.iter().map(|row| width(&row.value)).filter(|w| *w <= 40).max().unwrap_or(0);
    let line = |row: &&Row| {
        let Row { value, origin, unless, .. } = row;
        let unless = unless.map_or_else(String::new, |unless| format!(", unless {unless}"));
        format!("{:keys$} = {value:values$}  # {origin}{unless}\n", key(row))
    };
    rows.iter().map(line).collect()
}

/// Lists what is validated.
struct Lister<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    settings: &'a Settings,
    said: &'a PlanSpec,
}

impl Lister<'_> {
    fn sections(&self) -> Vec<Section> {
        let top = fields(schema::PLAN, self.settings, |field| {
            if (field.said)(self.plan) { self.origin(field.key) } else { DEFAULT.to_owned() }
        });
        let mut sections = vec![Section { header: String::new(), rows: top, note: None }];
        let clusters = (0..self.settings.clusters.len()).map(|number| self.cluster(number));
        sections.extend(clusters);
        for (spec, number) in self.graph.stages.iter().zip(0..) {
            sections.extend(self.stage(spec, number));
        }
        sections.extend(self.connectors());
        let mut own = Vec::new();
        self.app("", &self.said.app, &mut own);
        let note = Some("the program's own settings".to_owned());
        let own = Section { header: "app".to_owned(), rows: own, note };
        sections.extend((!own.rows.is_empty()).then_some(own));
        sections
    }

    fn cluster(&self, number: usize) -> Section {
        let cluster = &self.settings.clusters[number];
        if cluster.blocking {
            return self.blocking(number);
        }
        let plan = self.plan.clusters.get(&cluster.name).cloned().unwrap_or_default();
        let prefix = format!("cluster.{}", cluster.name);
        let mut rows = fields(schema::CLUSTER, cluster, |field| {
            let said = (field.said)(&plan);
            if said { self.origin(&format!("{prefix}.{}", field.key)) } else { DEFAULT.to_owned() }
        });
        let names = self.members(number);
        let field = &schema::CLUSTER_STAGES;
        let (value, note) = match &plan.stages {
            // As it was said: what it comes to stands above.
            Some(set) => {
                let shown = set.to_string().parse().is_ok_and(|again: StageSet| again == *set);
                // A stage called `all` can be told from all stages only in a list.
                let value = if shown { (field.show)(set) } else { list(&names) };
                (value, format!("has {}", one_line(&names)))
            }
            None => (String::new(), format!("takes the rest: {}", one_line(&names))),
        };
        if !value.is_empty() {
            let origin = self.origin(&format!("{prefix}.stages"));
            rows.push(Row::new(field.key, value, origin));
        }
        let header = format!("cluster.{}", bare(&cluster.name));
        Section { header, rows, note: Some(note) }
    }

    /// The names of the stages of a cluster.
    fn members(&self, number: usize) -> Vec<&str> {
        let stages = self.graph.stages.iter().zip(&self.settings.stages);
        let of = stages.filter(|(_, settings)| settings.cluster == number);
        of.map(|(spec, _)| &*spec.name).collect()
    }

    /// The cluster of blocking stages, which has a section of its own.
    fn blocking(&self, number: usize) -> Section {
        let ClusterSettings { name, threads, .. } = &self.settings.clusters[number];
        let origin = match self.plan.blocking_threads {
            Some(_) => self.origin(&format!("{name}.threads")),
            None => DEFAULT.to_owned(),
        };
        let rows = vec![Row::new("threads", threads.to_string(), origin)];
        let names = one_line(&self.members(number));
        let note = Some(format!("the cluster `{name}`: {names}, declared blocking by the program"));
        Section { header: name.clone(), rows, note }
    }

    fn stage(&self, spec: &StageSpec, number: usize) -> Option<Section> {
        let name = &*spec.name;
        let own = self.plan.stages.get(name).cloned().unwrap_or_default();
        let applies = |field: &&Field<StagePlan, _>| match spec.kind {
            Kind::Stage => !matches!(field.key, "rate" | "tier" | "deadline" | "in_flight"),
            Kind::Source => {
                matches!(
                    field.key,
                    "batch" | "priority" | "rate" | "tier" | "deadline" | "replicas"
                )
            }
            Kind::Input if field.key == "in_flight" => spec.gateway,
            Kind::Input => matches!(field.key, "tier" | "deadline"),
        };
        let list: Vec<_> = schema::STAGE.iter().filter(applies).collect();
        let validated = &self.settings.stages[number];
        let rows: Vec<Row> = list
            .into_iter()
            .map(|field| {
                let mut value = (field.show)(validated);
                if field.key == "replicas" && (own.replicas.or(self.plan.every.replicas)).is_some()
                {
                    value = validated.replicas.to_string(); // also 1, where something else is said of others
                }
                let origin = if (field.said)(&own) {
                    self.origin(&format!("stage.{name}.{}", field.key))
                } else if (field.said)(&self.plan.every)
                    && !overridden(field.key, &own, self.plan, validated)
                {
                    format!("{}, [every]", self.origin(&format!("every.{}", field.key)))
                } else {
                    DEFAULT.to_owned()
                };
                let row = Row::new(field.key, value, origin);
                let unless = match field.key {
                    "instances" if !validated.instances_said => Some("a policy gives it more"),
                    "queue.capacity" if !validated.capacity_said => Some("a policy sets it"),
                    _ => None,
                };
                Row { unless, ..row }
            })
            .filter(|row| !row.value.is_empty())
            .collect();
        let header = format!("stage.{}", bare(name));
        (!rows.is_empty()).then_some(Section { header, rows, note: None })
    }

    fn connectors(&self) -> impl Iterator<Item = Section> {
        let said = self.plan.connectors.iter();
        said.filter_map(|(name, plan)| {
            let rule = plan.when_full?;
            let rows = fields(schema::CONNECTOR, &rule, |field| {
                self.origin(&format!("connector.{name}.{}", field.key))
            });
            let header = format!("connector.{}", bare(name));
            Some(Section { header, rows, note: None })
        })
    }

    /// The program's own section, as it was written: variables not filled in, secrets masked.
    fn app(&self, prefix: &str, table: &Table, rows: &mut Vec<Row>) {
        for entry in table {
            let key = format!("{prefix}{}", bare(&entry.key));
            if let (Value::Table(inner), false) = (&entry.node.value, is_secret(&entry.key))
                && !inner.is_empty()
            {
                self.app(&format!("{key}."), inner, rows);
                continue;
            }
            let value = masked(&entry.key, &entry.node.value);
            let whole = written(&entry.node.value, false);
            let (secret, hidden) = match value == whole {
                true => (Hidden::default(), ""),
                false => (Hidden(whole), " (not shown)"),
            };
            let origin = format!("{}{hidden}", self.said_at(&entry.node.span));
            rows.push(Row { key, value, origin, secret, unless: None });
        }
    }

    fn origin(&self, key: &str) -> String {
        match self.said.places.get(key) {
            Some(span) => self.said_at(span),
            None => "the program".to_owned(),
        }
    }

    fn said_at(&self, span: &Span) -> String {
        let text = &self.said.texts[span.text];
        if text.is_flag {
            return text.name.clone();
        }
        format!("{}:{}", text.name, text.line(span.range.start))
    }
}

/// A value for every stage does not hold for a stage that cannot have it.
fn overridden(
    key: &str,
    own: &StagePlan,
    plan: &Plan,
    validated: &comporta_model::plan::StageSettings,
) -> bool {
    let said = match key {
        "instances" => (own.instances, plan.every.instances, validated.instances),
        "replicas" => (own.replicas, plan.every.replicas, validated.replicas),
        _ => return false,
    };
    matches!(said, (None, Some(every), validated) if every != validated)
}

/// The settings of these fields that there are.
fn fields<P, S>(
    fields: &[Field<P, S>],
    validated: &S,
    origin: impl Fn(&Field<P, S>) -> String,
) -> Vec<Row> {
    let row = |field: &Field<P, S>| Row::new(field.key, (field.show)(validated), origin(field));
    fields.iter().map(row).filter(|row| !row.value.is_empty()).collect()
}

/// Whether it is a variable and nothing else: no text around it, and no default that could be the
/// secret.
fn is_variable(value: &Value) -> bool {
    let Value::Text(_, Some(raw)) = value else { return false };
    let name = raw.strip_prefix("${").and_then(|raw| raw.strip_suffix('}'));
    let name = name.map(|name| name.strip_suffix(":-").unwrap_or(name));
    name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

/// The value of a setting as it may be shown.
fn masked(key: &str, value: &Value) -> String {
    match is_secret(key) && !is_variable(value) {
        true => quoted(MASK),
        false => written(value, true),
    }
}

/// A value as it was written, with the secrets in it masked or not.
fn written(value: &Value, mask: bool) -> String {
    match value {
        Value::Text(text, raw) => {
            let mut text = raw.as_ref().unwrap_or(text).clone();
            for range in in_address(&text).into_iter().rev().filter(|_| mask) {
                text.replace_range(range, MASK);
            }
            quoted(&text)
        }
        Value::Integer(n) => n.to_string(),
        Value::Float(x) if x.is_nan() => "nan".to_owned(),
        Value::Float(x) if x.is_infinite() => if *x > 0.0 { "inf" } else { "-inf" }.to_owned(),
        Value::Float(x) => format!("{x:?}"),
        Value::Bool(truth) => truth.to_string(),
        Value::Datetime(text) => text.clone(),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(|item| written(&item.value, mask)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(table) => {
            let mut out = String::from("{");
            for (number, entry) in table.iter().enumerate() {
                let comma = if number == 0 { "" } else { "," };
                let value = &entry.node.value;
                let value = if mask { masked(&entry.key, value) } else { written(value, false) };
                let _ = write!(out, "{comma} {} = {value}", bare(&entry.key));
            }
            out + " }"
        }
    }
}

fn list(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| quoted(name)).collect();
    format!("[{}]", names.join(", "))
}

fn one_line(names: &[&str]) -> String {
    const MAX: usize = 12;
    match names.get(..MAX) {
        Some(first) if names.len() > MAX => {
            format!("{} and {} more", first.join(", "), names.len() - MAX)
        }
        _ if names.is_empty() => "no stage".to_owned(),
        _ => names.join(", "),
    }
}
