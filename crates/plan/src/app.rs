//! The section `[app]` belongs to the program and is read into its own struct with serde. A string
//! that came from the environment also reads as a number or a truth value. Every error is marked where
//! it stands.

use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use comporta_model::plan::nearest;

use crate::patches::{NO_TEXT, Patch, Patches};
use crate::report::{Mistake, Report, Span};
use crate::schema::listed;
use crate::secrets::{in_address, is_secret};
use crate::spec::PlanSpec;
use crate::tree::{Entry, Node, Table, Value};

/// Mistakes of one section that are told: a bound against programs that find ever new ones.
const MISTAKES_MAX: usize = 50;

impl PlanSpec {
    /// Reads the section `[app]` into a struct of the program; a missing section counts as empty.
    ///
    /// # Errors
    /// Returns all mistakes of the section with their places, and those found while reading the texts.
    pub fn app<C: DeserializeOwned>(&self) -> Result<C, Report> {
        let mut patches = Patches::default();
        let mut mistakes = Vec::new();
        // serde stops at the first mistake: it is patched, and the section read again.
        loop {
            let section =
                Section { entries: &self.app, secret: false, at: None, patches: &patches };
            let fault = match C::deserialize(section) {
                Ok(own) if mistakes.is_empty() => return Ok(own),
                Ok(_) => break,
                Err(fault) => fault.without_secrets(&self.app),
            };
            let patch = patches.of(&fault, &self.app);
            if patch != Patch::Follows && patch != Patch::FollowsNothing {
                mistakes.push(self.app_mistake(&fault));
            }
            if matches!(patch, Patch::Nothing | Patch::FollowsNothing)
                || mistakes.len() >= MISTAKES_MAX
            {
                break;
            }
        }
        Err(self.report(mistakes))
    }

    fn app_mistake(&self, fault: &Fault) -> Mistake {
        let at = fault.at.clone().or_else(|| self.app.first().map(|entry| entry.key_span.clone()));
        let help = at.is_none().then(|| "it stands in the section `[app]` of a plan".to_owned());
        let names = fault.names();
        if let (Some(name), true) = (fault.unknown("field"), fault.at.is_some()) {
            let label = match (nearest(name, names.iter().copied()), names.as_slice()) {
                (Some(near), _) => format!("did you mean `{near}`?"),
                (None, []) => "the program has no settings of its own".to_owned(),
                (None, _) => "nothing of that name".to_owned(),
            };
            let are = if names.len() == 1 { "is" } else { "are" };
            let help = (!names.is_empty()).then(|| format!("there {are} {}", listed(&names)));
            let title = format!("`[app]` has no setting `{name}`");
            return Mistake::new(title, at).label(label).help(help);
        }
        if let (Some(name), Some(_)) = (fault.missing(), &at) {
            let mistake = Mistake::new(format!("`[app]` lacks the setting `{name}`"), at);
            return mistake.label("it is not in this section").help(help);
        }
        let near = fault.unknown("variant").and_then(|name| nearest(name, names.iter().copied()));
        let help = help.or_else(|| near.map(|near| format!("did you mean `{near}`?")));
        let mistake = Mistake::new("the program cannot use `[app]`", at);
        let mistake = mistake.label(&fault.message).help(help);
        // Without a place a label has nothing to stand at.
        match mistake.at {
            Some(_) => mistake,
            None => Mistake { title: format!("{}: {}", mistake.title, fault.message), ..mistake },
        }
    }
}

/// What does not fit. The innermost place is kept.
#[derive(Debug)]
pub(crate) struct Fault {
    message: String,
    pub(crate) at: Option<Span>,
}

impl Fault {
    fn at(self, span: &Span) -> Self {
        Fault { at: self.at.or_else(|| Some(span.clone())), ..self }
    }

    /// The field that is missing, if that is it.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.message.strip_prefix("missing field `")?.strip_suffix('`')
    }

    /// The field or variant that is not there, if that is it.
    fn unknown(&self, what: &str) -> Option<&str> {
        let rest = self.message.strip_prefix("unknown ")?.strip_prefix(what)?;
        rest.strip_prefix(" `")?.split_once('`').map(|(name, _)| name)
    }

    /// What there could have been, as serde lists it.
    fn names(&self) -> Vec<&str> {
        let expected = self.message.split_once(", expected ").map_or("", |(_, rest)| rest);
        expected.split('`').skip(1).step_by(2).collect()
    }

    /// A struct with a flattened part, or one recognised by a tag, is read in two steps: an error of the
    /// second does not know which value it quotes.
    fn without_secrets(self, table: &Table) -> Self {
        let mut secrets = Vec::new();
        for entry in table {
            secrets_of(&entry.node, is_secret(&entry.key), &mut secrets);
        }
        let letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let quotes = |secret: &String| {
            !secret.is_empty()
                && self.message.match_indices(secret.as_str()).any(|(at, word)| {
                    !letter(self.message[..at].chars().next_back())
                        && !letter(self.message[at + word.len()..].chars().next())
                })
        };
        match secrets.iter().any(quotes) {
            true => Fault { message: "a value does not fit".to_owned(), ..self },
            false => self,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Fault { message: message.to_string(), at: None }
    }
}

/// What must not turn up in a message, as serde's would quote it.
fn secrets_of(node: &Node, secret: bool, found: &mut Vec<String>) {
    match &node.value {
        Value::Table(table) => {
            for entry in table {
                secrets_of(&entry.node, secret || is_secret(&entry.key), found);
            }
        }
        Value::List(items) => items.iter().for_each(|item| secrets_of(item, secret, found)),
        Value::Text(text, variable) if secret || variable.is_some() => {
            found.push(text.clone());
            found.push(text.escape_debug().to_string());
        }
        Value::Text(text, None) => {
            found.extend(in_address(text).into_iter().map(|range| text[range].to_owned()));
        }
        Value::Integer(n) if secret => found.push(n.to_string()),
        Value::Float(x) if secret => found.push(x.to_string()),
        Value::Datetime(text) if secret => found.push(text.clone()),
        _ => {}
    }
}

struct Section<'a> {
    entries: &'a [Entry],
    /// It stands in something that must not turn up in a message.
    secret: bool,
    /// Its place, unless it is all of the section.
    at: Option<&'a Span>,
    patches: &'a Patches,
}

impl<'a> Section<'a> {
    /// The entries, but for those that are left out, and what stands in for others.
    fn entries(&self) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let (patches, at) = (self.patches, self.at);
        let there = self.entries.iter();
        let there = there.filter(|entry| !patches.dropped.contains(&entry.key_span));
        let holes = patches.holes.iter().filter(move |(of, _)| of.as_ref() == at);
        there.chain(holes.map(|(_, entry)| entry))
    }
}

impl<'de> de::Deserializer<'de> for Section<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let (secret, patches) = (self.secret, self.patches);
        visitor.visit_map(MapDeserializer::new(self.entries().map(|entry| {
            let secret = secret || is_secret(&entry.key);
            (Key(entry), Item { node: &entry.node, secret, patches })
        })))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.entries().next() {
            None => visitor.visit_unit(),
            Some(_) => Err(de::Error::custom("the program has no settings of its own")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// A key, which is marked if the struct does not know it.
struct Key<'a>(&'a Entry);

impl<'de> IntoDeserializer<'de, Fault> for Key<'de> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> de::Deserializer<'de> for Key<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let key: StrDeserializer<'_, Fault> = self.0.key.as_str().into_deserializer();
        key.deserialize_any(visitor).map_err(|fault| fault.at(&self.0.key_span))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

/// A value.
struct Item<'a> {
    node: &'a Node,
    /// It must not turn up in a message.
    secret: bool,
    patches: &'a Patches,
}

impl Item<'_> {
    /// Whether it stands in for a value that is not there.
    fn is_hole(&self) -> bool {
        self.node.span.text == NO_TEXT
    }
}

impl<'de> IntoDeserializer<'de, Fault> for Item<'de> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Item<'de> {
    fn fault(&self, fault: Fault) -> Fault {
        let hidden = self.secret || self.node.variable().is_some();
        let message = match fault.at {
            // A message of serde's may quote the value.
            None if hidden => match fault.message.rsplit_once(", expected ") {
                Some((_, expected)) => format!("the value does not fit: expected {expected}"),
                None => "the value does not fit".to_owned(),
            },
            _ => fault.message,
        };
        Fault { message, at: fault.at }.at(&self.node.span)
    }
}

/// Reads what came from the environment as the kind of value that is asked for.
macro_rules! from_text {
    ($($method:ident as $type:ty => $visit:ident or $hole:expr),* $(,)?) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            if self.is_hole() {
                // What fits most: not even a number that must not be 0 refuses it.
                return visitor.$visit($hole).map_err(|fault| self.fault(fault));
            }
            match self.node.variable().and_then(|text| text.parse::<$type>().ok()) {
                Some(value) => visitor.$visit(value).map_err(|fault| self.fault(fault)),
                None => self.deserialize_any(visitor),
            }
        }
    )* };
}

impl<'de> de::Deserializer<'de> for Item<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let (secret, patches) = (self.secret, self.patches);
        let result = match &self.node.value {
            _ if self.is_hole() => visitor.visit_str("1"),
            Value::Text(text, _) => visitor.visit_str(text),
            Value::Datetime(text) => visitor.visit_str(text),
            Value::Integer(n) => visitor.visit_i64(*n),
            Value::Float(x) => visitor.visit_f64(*x),
            Value::Bool(truth) => visitor.visit_bool(*truth),
            Value::List(items) => {
                let items = items.iter().map(|node| Item { node, secret, patches });
                visitor.visit_seq(SeqDeserializer::new(items))
            }
            Value::Table(entries) => {
                let at = Some(&self.node.span);
                Section { entries, secret, at, patches }.deserialize_any(visitor)
            }
        };
        result.map_err(|fault| self.fault(fault))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.is_hole() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.is_hole() {
            true => visitor.visit_seq(SeqDeserializer::new(std::iter::empty::<Item<'de>>())),
            false => self.deserialize_any(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.is_hole() {
            true => {
                let none = std::iter::empty::<(Key<'de>, Item<'de>)>();
                visitor.visit_map(MapDeserializer::new(none))
            }
            false => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        if !self.is_hole() {
            return self.deserialize_any(visitor);
        }
        let Item { node, secret, patches } = self;
        let holes = fields.iter().map(|field| (*field, Item { node, secret, patches }));
        visitor.visit_map(MapDeserializer::new(holes))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let result = match &self.node.value {
            _ if self.is_hole() => {
                let first: StrDeserializer<'_, Fault> =
                    variants.first().copied().unwrap_or_default().into_deserializer();
                first.deserialize_enum(name, variants, visitor)
            }
            Value::Text(text, _) => {
                let text: StrDeserializer<'_, Fault> = text.as_str().into_deserializer();
                text.deserialize_enum(name, variants, visitor)
            }
            Value::Table(entries) if entries.len() == 1 => {
                let Item { secret, patches, .. } = self;
                visitor.visit_enum(Variant { entry: &entries[0], secret, patches })
            }
            _ => Err(de::Error::custom(format!("expected one of {}", variants.join(", ")))),
        };
        result.map_err(|fault| self.fault(fault))
    }

    from_text! {
        deserialize_bool as bool => visit_bool or false,
        deserialize_i8 as i8 => visit_i8 or 1, deserialize_i16 as i16 => visit_i16 or 1,
        deserialize_i32 as i32 => visit_i32 or 1, deserialize_i64 as i64 => visit_i64 or 1,
        deserialize_u8 as u8 => visit_u8 or 1, deserialize_u16 as u16 => visit_u16 or 1,
        deserialize_u32 as u32 => visit_u32 or 1, deserialize_u64 as u64 => visit_u64 or 1,
        deserialize_f32 as f32 => visit_f32 or 1.0, deserialize_f64 as f64 => visit_f64 or 1.0,
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct tuple tuple_struct identifier
        ignored_any
    }
}

/// An enum written as a table of one entry: `{ file = "x" }`.
struct Variant<'a> {
    entry: &'a Entry,
    secret: bool,
    patches: &'a Patches,
}

impl<'de> de::EnumAccess<'de> for Variant<'de> {
    type Error = Fault;
    type Variant = Item<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Item<'de>), Fault> {
        let item = Item { node: &self.entry.node, secret: self.secret, patches: self.patches };
        Ok((seed.deserialize(Key(self.entry))?, item))
    }
}

impl<'de> de::VariantAccess<'de> for Item<'de> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Err(self.fault(de::Error::custom("this choice has no settings of its own: say its name")))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        de::Deserializer::deserialize_any(self, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        de::Deserializer::deserialize_any(self, visitor)
    }
}
