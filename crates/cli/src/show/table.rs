//! Columns that fit: a table as lines no wider than asked, aligned; the least important columns go
//! first when there is no room for all.

use anstyle::Style;
use comporta_plan::escaped;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Between two columns.
const GAP: usize = 2;
/// A first column is not made narrower than this for others' sake.
const NAME_MIN: usize = 8;

/// What is known of a column.
pub(crate) struct Column {
    pub(crate) head: &'static str,
    pub(crate) right: bool,
    /// It is at least this wide, so that it does not jump when its numbers grow.
    pub(crate) least: usize,
    /// The greater, the sooner it goes when there is no room; 0 stays.
    pub(crate) rank: u8,
}

/// What stands in one place.
#[derive(Clone, Default)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) style: Style,
}

impl Cell {
    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        Cell { text: escaped(&text.into()).into_owned(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::styled(text, Style::new())
    }
}

/// How many columns of a terminal a text takes: some characters take two, and some none.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The text, with `…` for what does not fit.
pub(crate) fn clip(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut left = room.saturating_sub(1);
    let fits = |c: &char| {
        let wide = c.width().unwrap_or(0);
        let fits = wide <= left;
        left = left.saturating_sub(wide);
        fits
    };
    let mut short: String = text.chars().take_while(fits).collect();
    if room > 0 {
        short.push('…');
    }
    short
}

/// The text as lines that are no wider, broken between words; a word that is wider is clipped.
pub(crate) fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = clip(word, room);
        match lines.last_mut().filter(|line| width(line) + 1 + width(&word) <= room) {
            Some(line) => {
                line.push(' ');
                line.push_str(&word);
            }
            None => lines.push(word),
        }
    }
    lines
}

/// The text in a style, if it has one, without control characters of its own.
pub(crate) fn paint(text: &str, style: Style) -> String {
    let text = escaped(text);
    if style == Style::new() { text.into_owned() } else { format!("{style}{text}{style:#}") }
}

/// A line of heads, and one for each row. A column in which nothing stands is left out.
pub(crate) fn table(
    columns: &[Column],
    rows: &[Vec<Cell>],
    head: Style,
    room: usize,
) -> Vec<String> {
    let mut shown: Vec<(usize, usize)> = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let widest = rows.iter().map(|row| width(&row[at].text)).max().unwrap_or(0);
        if widest > 0 || at == 0 {
            shown.push((at, widest.max(width(column.head)).max(column.least)));
        }
    }
    let total = |shown: &[(usize, usize)]| -> usize {
        shown.iter().map(|(_, wide)| wide + GAP).sum::<usize>().saturating_sub(GAP)
    };
    while total(&shown) > room {
        let over = total(&shown) - room;
        if shown[0].1.saturating_sub(over) >= NAME_MIN.max(room / 4) {
            shown[0].1 -= over;
            break;
        }
        let Some(last) = (1..shown.len()).max_by_key(|i| columns[shown[*i].0].rank) else {
            shown[0].1 = room;
            break;
        };
        shown.remove(last);
    }
    let line = |cells: &dyn Fn(usize) -> Cell| -> String {
        let mut line = String::new();
        for (nth, (at, wide)) in shown.iter().enumerate() {
            let cell = cells(*at);
            let text = clip(&cell.text, *wide);
            let pad = " ".repeat(wide - width(&text));
            let painted = paint(&text, cell.style);
            let gap = if nth == 0 { "" } else { "  " };
            line += &if columns[*at].right {
                format!("{gap}{pad}{painted}")
            } else {
                format!("{gap}{painted}{pad}")
            };
        }
        line.trim_end().to_owned()
    };
    let heads = line(&|at| Cell::styled(columns[at].head, head));
    let body = rows.iter().map(|row| line(&|at| row[at].clone()));
    std::iter::once(heads).chain(body).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(room: usize) -> Vec<String> {
        let column = |head, right, rank| Column { head, right, least: 0, rank };
        let columns = [
            column("stage", false, 0),
            column("n", true, 1),
            column("none", true, 3),
            column("note", false, 2),
        ];
        let row = |cells: [&str; 4]| cells.map(Cell::from).to_vec();
        let rows = [row(["split", "1,024", "", "fine"]), row(["a-long-name", "7", "", ""])];
        table(&columns, &rows, Style::new(), room)
    }

    #[test]
    fn what_takes_two_columns_is_counted_and_clipped_as_two() {
        assert_eq!((width("解析"), width("e\u{301}"), width("abc")), (4, 1, 3));
        assert_eq!((clip("解析器", 5), clip("解析器", 4)), ("解析…".to_owned(), "解…".to_owned()));
        let columns = [("stage", false), ("n", true)].map(|(head, right)| Column {
            head,
            right,
            least: 0,
            rank: 0,
        });
        let rows = [["解析器", "1"], ["b", "20"]].map(|row| row.map(Cell::from).to_vec());
        let lines = table(&columns, &rows, Style::new(), 80);
        assert_eq!(lines, ["stage    n", "解析器   1", "b       20"]);
    }

    #[test]
    fn a_text_is_broken_between_words_and_loses_none() {
        assert_eq!(wrapped("take either, or give more", 11), ["take", "either, or", "give more"]);
        assert_eq!(wrapped("解析 a toolong b", 5), ["解析", "a", "tool…", "b"]);
        assert!(wrapped("", 5).is_empty());
    }

    #[test]
    fn columns_are_aligned_and_an_empty_one_is_left_out() {
        assert_eq!(
            drawn(80),
            [
                "stage            n  note", //
                "split        1,024  fine",
                "a-long-name      7",
            ]
        );
    }

    #[test]
    fn a_long_name_is_clipped_before_a_column_goes_and_no_line_is_too_wide() {
        assert_eq!(
            drawn(22),
            [
                "stage          n  note", //
                "split      1,024  fine",
                "a-long-n…      7",
            ]
        );
        assert_eq!(drawn(16), ["stage          n", "split      1,024", "a-long-n…      7"]);
        assert_eq!(drawn(4), ["sta…", "spl…", "a-l…"]);
        for room in 0..40 {
            assert!(drawn(room).iter().all(|line| width(line) <= room), "{room}");
        }
    }
}
