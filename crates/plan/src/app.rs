//! The section `[app]` belongs to the program and is read into its own struct with serde. A string
//! that came from the environment also reads as a number or a truth value. An error is marked
//! where it stands.

use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::report::{Mistake, Report, Span};
use crate::secrets::is_secret;
use crate::spec::PlanSpec;
use crate::tree::{Entry, Node, Table, Value};

impl PlanSpec {
    /// The section `[app]`, read into the program's own struct; an empty one if there is none.
    ///
    /// # Errors
    /// What does not fit, and where, beside what was found while reading.
    pub fn app<C: DeserializeOwned>(&self) -> Result<C, Report> {
        C::deserialize(Section { entries: &self.app, secret: false }).map_err(|fault| {
            let fault = fault.without_secrets(&self.app);
            let at = fault.at.or_else(|| self.app.first().map(|entry| entry.key_span.clone()));
            let help =
                at.is_none().then(|| "it stands in the section `[app]` of a plan".to_owned());
            let mistake = Mistake::new("the program cannot use `[app]`", at);
            let mistake = mistake.label(&fault.message).help(help);
            // Without a place a label has nothing to stand at.
            let mistake = match mistake.at {
                Some(_) => mistake,
                None => {
                    Mistake { title: format!("{}: {}", mistake.title, fault.message), ..mistake }
                }
            };
            self.report(vec![mistake])
        })
    }
}

/// What does not fit. The innermost place is kept.
#[derive(Debug)]
struct Fault {
    message: String,
    at: Option<Span>,
}

impl Fault {
    fn at(self, span: &Span) -> Self {
        Fault { at: self.at.or_else(|| Some(span.clone())), ..self }
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
}

impl<'de> de::Deserializer<'de> for Section<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_map(MapDeserializer::new(self.entries.iter().map(|entry| {
            let secret = self.secret || is_secret(&entry.key);
            (Key(entry), Item { node: &entry.node, secret })
        })))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.entries {
            [] => visitor.visit_unit(),
            _ => Err(de::Error::custom("the program has no settings of its own")),
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
    ($($method:ident as $type:ty => $visit:ident),* $(,)?) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
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
        let secret = self.secret;
        let result = match &self.node.value {
            Value::Text(text, _) => visitor.visit_str(text),
            Value::Datetime(text) => visitor.visit_str(text),
            Value::Integer(n) => visitor.visit_i64(*n),
            Value::Float(x) => visitor.visit_f64(*x),
            Value::Bool(truth) => visitor.visit_bool(*truth),
            Value::List(items) => visitor
                .visit_seq(SeqDeserializer::new(items.iter().map(|node| Item { node, secret }))),
            Value::Table(entries) => Section { entries, secret }.deserialize_any(visitor),
        };
        result.map_err(|fault| self.fault(fault))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
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
            Value::Text(text, _) => {
                let text: StrDeserializer<'_, Fault> = text.as_str().into_deserializer();
                text.deserialize_enum(name, variants, visitor)
            }
            Value::Table(entries) if entries.len() == 1 => {
                visitor.visit_enum(Variant { entry: &entries[0], secret: self.secret })
            }
            _ => Err(de::Error::custom(format!("expected one of {}", variants.join(", ")))),
        };
        result.map_err(|fault| self.fault(fault))
    }

    from_text! {
        deserialize_bool as bool => visit_bool,
        deserialize_i8 as i8 => visit_i8, deserialize_i16 as i16 => visit_i16,
        deserialize_i32 as i32 => visit_i32, deserialize_i64 as i64 => visit_i64,
        deserialize_u8 as u8 => visit_u8, deserialize_u16 as u16 => visit_u16,
        deserialize_u32 as u32 => visit_u32, deserialize_u64 as u64 => visit_u64,
        deserialize_f32 as f32 => visit_f32, deserialize_f64 as f64 => visit_f64,
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

/// An enum written as a table of one entry: `{ file = "x" }`.
struct Variant<'a> {
    entry: &'a Entry,
    secret: bool,
}

impl<'de> de::EnumAccess<'de> for Variant<'de> {
    type Error = Fault;
    type Variant = Item<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Item<'de>), Fault> {
        let item = Item { node: &self.entry.node, secret: self.secret };
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
