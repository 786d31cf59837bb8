//! A sheet of characters: lines that know where they join, and text on top.
//! Before: `channel`. After: `text`, which prints the lines.
//!
//! Lines of one wire join where they meet; those of two wires pass: the upright one is
//! drawn through, so that a crossing is never taken for a junction.

use super::measure::columns;

const LEFT: u8 = 1;
const RIGHT: u8 = 2;
const UP: u8 = 4;
const DOWN: u8 = 8;
/// The characters for each set of arms.
const LINES: [char; 16] =
    [' ', '─', '─', '─', '│', '┘', '└', '┴', '│', '┐', '┌', '┬', '│', '┤', '├', '┼'];

#[derive(Clone, Debug, Default)]
enum Cell {
    #[default]
    Blank,
    /// The arms of at most two wires.
    Line([Arms; 2]),
    Text(String),
    /// The right half of a wide character.
    Covered,
}

#[derive(Clone, Copy, Debug, Default)]
struct Arms {
    wire: usize,
    arms: u8,
    dashed: bool,
}

/// A sheet that grows as it is drawn on.
#[derive(Debug)]
pub(super) struct Canvas {
    rows: Vec<Vec<Cell>>,
    ascii: bool,
}

impl Canvas {
    pub(super) fn new(ascii: bool) -> Self {
        Self { rows: Vec::new(), ascii }
    }

    fn cell(&mut self, x: usize, y: usize) -> &mut Cell {
        if self.rows.len() <= y {
            self.rows.resize_with(y + 1, Vec::new);
        }
        let row = &mut self.rows[y];
        if row.len() <= x {
            row.resize_with(x + 1, Cell::default);
        }
        &mut row[x]
    }

    /// A level or upright line, both ends included.
    pub(super) fn line(
        &mut self,
        wire: usize,
        dashed: bool,
        (x0, y0): (usize, usize),
        (x1, y1): (usize, usize),
    ) {
        let (x0, x1, y0, y1) = (x0.min(x1), x0.max(x1), y0.min(y1), y0.max(y1));
        for x in x0..x1 {
            self.arms(wire, dashed, x, y0, RIGHT);
            self.arms(wire, dashed, x + 1, y0, LEFT);
        }
        for y in y0..y1 {
            self.arms(wire, dashed, x0, y, DOWN);
            self.arms(wire, dashed, x0, y + 1, UP);
        }
    }

    fn arms(&mut self, wire: usize, dashed: bool, x: usize, y: usize, arms: u8) {
        let cell = self.cell(x, y);
        if matches!(cell, Cell::Blank) {
            *cell = Cell::Line([Arms { wire, arms: 0, dashed }, Arms::default()]);
        }
        if let Cell::Line([first, second]) = cell {
            if first.wire == wire {
                first.arms |= arms;
                first.dashed &= dashed;
            } else {
                *second = Arms { wire, arms: second.arms | arms, dashed };
            }
        }
    }

    /// Text over whatever is there.
    pub(super) fn text(&mut self, x: usize, y: usize, text: &str) {
        let mut at = x;
        for c in text.chars() {
            match columns(c) {
                0 => {
                    if let Some(Cell::Text(before)) =
                        at.checked_sub(1).map(|last| self.cell(last, y))
                    {
                        before.push(c);
                    }
                }
                wide => {
                    *self.cell(at, y) = Cell::Text(c.to_string());
                    for covered in 1..wide {
                        *self.cell(at + covered, y) = Cell::Covered;
                    }
                    at += wide;
                }
            }
        }
    }

    pub(super) fn width(&self) -> usize {
        self.rows.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The sheet's lines, without blanks at their ends.
    pub(super) fn lines(&self) -> Vec<String> {
        self.rows
            .iter()
            .map(|row| {
                let mut line = String::new();
                for cell in row {
                    match cell {
                        Cell::Blank => line.push(' '),
                        Cell::Line(arms) => line.push(self.glyph(*arms)),
                        Cell::Text(text) => line.push_str(text),
                        Cell::Covered => {}
                    }
                }
                line.truncate(line.trim_end().len());
                line
            })
            .collect()
    }

    fn glyph(&self, [first, second]: [Arms; 2]) -> char {
        const LEVEL: u8 = LEFT | RIGHT;
        const UPRIGHT: u8 = UP | DOWN;
        let (arms, dashed) = match (first.arms, second.arms) {
            (LEVEL, UPRIGHT) => (UPRIGHT, second.dashed),
            (UPRIGHT, LEVEL) => (UPRIGHT, first.dashed),
            (a, b) => (a | b, first.dashed && (b == 0 || second.dashed)),
        };
        match (self.ascii, dashed) {
            (true, _) if arms & LEVEL != 0 && arms & UPRIGHT != 0 => '+',
            (true, dashed) if arms & LEVEL != 0 => {
                if dashed {
                    '.'
                } else {
                    '-'
                }
            }
            (true, dashed) => {
                if dashed {
                    ':'
                } else {
                    '|'
                }
            }
            (false, true) if arms & UPRIGHT == 0 => '╌',
            (false, true) if arms & LEVEL == 0 => '╎',
            (false, _) => LINES[usize::from(arms)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crossing(second: usize) -> Vec<String> {
        let mut canvas = Canvas::new(false);
        canvas.line(1, false, (0, 1), (2, 1));
        canvas.line(second, false, (1, 0), (1, 2));
        canvas.lines()
    }

    #[test]
    fn lines_of_one_wire_join_and_those_of_two_pass() {
        assert_eq!(crossing(1)[1], "─┼─");
        assert_eq!(crossing(2)[1], "─│─");
    }

    #[test]
    fn wide_text_covers_two_columns() {
        let mut canvas = Canvas::new(false);
        canvas.text(0, 0, "日e\u{301}x");
        assert_eq!((canvas.width(), canvas.lines()), (4, vec!["日e\u{301}x".to_owned()]));
    }
}
