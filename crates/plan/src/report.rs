//! Mistakes in plan texts, shown as a compiler shows them: file, line and column, the line with
//! the place marked, what was expected, and the nearest valid name.
//! What looks like a secret is masked in the lines that are shown.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::escape::escaped;

/// A text that was read: a file, or a flag.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) name: String,
    pub(crate) text: String,
    /// Byte ranges not to be shown.
    pub(crate) hidden: Vec<Range<usize>>,
    pub(crate) is_flag: bool,
}

impl Text {
    /// The line of a place, from 1.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.text.get(..at).unwrap_or(&self.text).matches('\n').count() + 1
    }

    /// As it may be shown: of the same length, so that places stay where they are.
    fn shown(&self) -> String {
        let mut bytes = self.text.clone().into_bytes();
        for range in &self.hidden {
            let bytes = bytes.get_mut(range.clone()).into_iter().flatten();
            bytes.filter(|byte| **byte != b'\n').for_each(|byte| *byte = b'*');
        }
        String::from_utf8(bytes).unwrap_or_default()
    }
}

/// What a message quotes may hold anything. (The lines themselves are the renderer's, which escapes them, too.)
fn shown(text: impl Into<String>) -> String {
    escaped(&text.into()).into_owned()
}

/// A place in one of the texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) text: usize,
    pub(crate) range: Range<usize>,
}

/// A mistake.
#[derive(Clone, Debug)]
pub struct Mistake {
    pub(crate) title: String,
    pub(crate) at: Option<Span>,
    pub(crate) label: String,
    pub(crate) help: Option<String>,
}

impl Mistake {
    pub(crate) fn new(title: impl Into<String>, at: impl Into<Option<Span>>) -> Self {
        let title = shown(title);
        Mistake { title, at: at.into(), label: String::new(), help: None }
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = shown(label);
        self
    }

    pub(crate) fn help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into().map(shown);
        self
    }

    /// Whether it is about the same place.
    pub(crate) fn touches(&self, span: &Span) -> bool {
        let (range, text) = (&span.range, span.text);
        self.at.as_ref().is_some_and(|at| {
            at.text == text && at.range.start <= range.end && range.start <= at.range.end
        })
    }

    /// Returns the message, in one line.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }
}

/// Every mistake that was found, with the texts they are in. There is at least one.
#[derive(Clone, Debug)]
#[must_use]
pub struct Report {
    pub(crate) texts: Vec<Text>,
    pub(crate) mistakes: Vec<Mistake>,
}

impl Report {
    /// Returns the mistakes.
    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }

    /// Renders the report for a terminal of `width` columns, optionally in colours.
    #[must_use]
    pub fn render(&self, width: usize, colours: bool) -> String {
        let renderer = if colours { Renderer::styled() } else { Renderer::plain() };
        let renderer = renderer.term_width(width);
        let shown: Vec<String> = self.texts.iter().map(Text::shown).collect();
        let mut out = String::new();
        for mistake in &self.mistakes {
            out += &renderer.render(&[self.group(mistake, &shown)]);
            out += "\n\n";
        }
        out.truncate(out.trim_end().len());
        out
    }

    fn group<'a>(&'a self, mistake: &'a Mistake, shown: &'a [String]) -> Group<'a> {
        let title = Level::ERROR.primary_title(mistake.title.as_str());
        let mut group = match &mistake.at {
            Some(at) => {
                let text = &self.texts[at.text];
                let length = text.text.len();
                // What ends before it starts, or past the text, would not be drawn.
                let start = at.range.start.min(length);
                let span = start..at.range.end.clamp(start, length);
                let mark = AnnotationKind::Primary.span(span).label(mistake.label.as_str());
                let snippet = Snippet::source(shown[at.text].as_str())
                    .line_numbering(!text.is_flag)
                    .path(text.name.as_str())
                    .annotation(mark);
                title.element(snippet)
            }
            None => Group::with_title(title),
        };
        if let Some(help) = &mistake.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        group
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(100, false))
    }
}

impl std::error::Error for Report {}
