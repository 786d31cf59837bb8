//! How the section `[app]` is read past its mistakes: serde stops at the first, so what it stopped at is
//! left out, or stood in for, and the section is read again. Used by `app`.

use crate::app::Fault;
use crate::report::Span;
use crate::tree::{Entry, Node, Table, Value};

/// What is changed of a section, so that it can be read past its mistakes.
#[derive(Default)]
pub(crate) struct Patches {
    /// The keys of entries that are left out.
    pub(crate) dropped: Vec<Span>,
    /// Of which table, and what was left out of it.
    names: Vec<(Option<Span>, String)>,
    /// Of which table, and what stands in for an entry that it lacks.
    pub(crate) holes: Vec<(Option<Span>, Entry)>,
}

/// What came of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patch {
    /// It is patched.
    Made,
    /// It follows from another, and is patched.
    Follows,
    /// It follows from another, and cannot be.
    FollowsNothing,
    /// It cannot be patched: what comes after it is not known.
    Nothing,
}

/// No text has this number: the place of what stands in for an entry that is not there.
pub(crate) const NO_TEXT: usize = usize::MAX;

impl Patches {
    pub(crate) fn of(&mut self, fault: &Fault, table: &Table) -> Patch {
        if let Some(name) = fault.missing() {
            let of = (fault.at.clone(), name.to_owned());
            if self.holes.iter().any(|(table, entry)| *table == of.0 && entry.key == of.1) {
                return Patch::Nothing;
            }
            let follows = self.names.contains(&of);
            let at = Span { text: NO_TEXT, range: self.holes.len()..self.holes.len() };
            let node = Node { value: Value::Bool(false), span: at.clone() };
            self.holes.push((of.0, Entry { key: of.1, key_span: at, node }));
            return if follows { Patch::Follows } else { Patch::Made };
        }
        let Some(at) = &fault.at else { return Patch::Nothing };
        if at.text == NO_TEXT {
            return Patch::FollowsNothing;
        }
        match owner(table, at, None) {
            Some((parent, entry)) if !self.dropped.contains(&entry.key_span) => {
                self.dropped.push(entry.key_span.clone());
                self.names.push((parent.cloned(), entry.key.clone()));
                Patch::Made
            }
            _ => Patch::Nothing,
        }
    }
}

/// The innermost entry that a place belongs to, and the place of the table it is in.
fn owner<'a>(
    table: &'a Table,
    at: &Span,
    parent: Option<&'a Span>,
) -> Option<(Option<&'a Span>, &'a Entry)> {
    fn within<'a>(node: &'a Node, at: &Span) -> Option<Option<(Option<&'a Span>, &'a Entry)>> {
        match &node.value {
            Value::Table(inner) => owner(inner, at, Some(&node.span)).map(Some),
            Value::List(items) => items.iter().find_map(|item| match item.span == *at {
                true => Some(None),
                false => within(item, at),
            }),
            _ => None,
        }
    }
    table.iter().find_map(|entry| {
        if entry.key_span == *at {
            return Some((parent, entry));
        }
        match within(&entry.node, at) {
            Some(Some(deeper)) => Some(deeper),
            Some(None) => Some((parent, entry)),
            None if entry.node.span == *at => Some((parent, entry)),
            None => None,
        }
    })
}
