//! Mistakes in a scenario file, shown as a compiler shows them.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// What is wrong.
    pub title: String,
    /// Where, in bytes.
    pub at: Option<Range<usize>>,
    /// What was expected, or the nearest valid name.
    pub label: String,
}

/// Everything that is wrong with a file.
#[derive(Clone, Debug)]
pub struct Mistakes {
    file: String,
    text: String,
    all: Vec<Mistake>,
}

impl Mistakes {
    pub(super) fn new(file: &str, text: &str) -> Self {
        Mistakes { file: file.to_owned(), text: text.to_owned(), all: Vec::new() }
    }

    pub(super) fn add(&mut self, title: impl Into<String>, at: Option<Range<usize>>) {
        self.all.push(Mistake { title: title.into(), at, label: String::new() });
    }

    pub(super) fn label(&mut self, title: impl Into<String>, at: Range<usize>, label: String) {
        self.all.push(Mistake { title: title.into(), at: Some(at), label });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// One mistake each; there is at least one.
    #[must_use]
    pub fn all(&self) -> &[Mistake] {
        &self.all
    }

    /// For a terminal, in colours if wanted.
    #[must_use]
    pub fn render(&self, colours: bool) -> String {
        let renderer = if colours { Renderer::styled() } else { Renderer::plain() };
        let one = |mistake: &Mistake| {
            let title = Level::ERROR.primary_title(mistake.title.as_str());
            let Some(at) = &mistake.at else {
                let group = title.element(Level::NOTE.message(format!("in {}", self.file)));
                return renderer.render(&[group]).to_string();
            };
            let start = at.start.min(self.text.len());
            let span = start..at.end.clamp(start, self.text.len());
            let mark = AnnotationKind::Primary.span(span).label(mistake.label.as_str());
            let source = Snippet::source(self.text.as_str()).path(self.file.as_str());
            renderer.render(&[title.element(source.annotation(mark))]).to_string()
        };
        self.all.iter().map(one).collect::<Vec<_>>().join("\n\n")
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Mistakes {}
