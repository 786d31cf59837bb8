//! Reads a drawing as a person does: follows the lines from each box to the heads they end in, to
//! either side where they fork, but never back the way they set out.

use std::collections::HashSet;

/// The characters of a drawing. Names must be of one column per character.
struct Grid(Vec<Vec<char>>);

/// A box on the grid: left, top, right and bottom wall.
struct Walls(usize, usize, usize, usize);

/// A step across the grid.
type Step = (isize, isize);

const LEFT: (isize, isize) = (-1, 0);
const RIGHT: (isize, isize) = (1, 0);
const UP: (isize, isize) = (0, -1);
const DOWN: (isize, isize) = (0, 1);

impl Grid {
    fn at(&self, x: usize, y: usize) -> char {
        self.0.get(y).and_then(|row| row.get(x)).copied().unwrap_or(' ')
    }

    /// The box that says this name.
    fn find(&self, name: &str) -> Walls {
        let said: Vec<char> = format!(" {name} ").chars().collect();
        let (y, x) = (self.0.iter().enumerate())
            .find_map(|(y, row)| {
                let x = row.windows(said.len()).position(|part| part == said)?;
                Some((y, x))
            })
            .unwrap_or_else(|| panic!("{name} is not drawn"));
        let is_wall = |&x: &usize| "│║├┤╟╢".contains(self.at(x, y));
        let left = (0..=x).rev().find(is_wall).expect("a left wall");
        let right = (x + 1..).take(200).find(is_wall).expect("a right wall");
        let top = (0..y).rev().find(|&y| "┌╔╭".contains(self.at(left, y))).expect("a top");
        let bottom = (y..).take(200).find(|&y| "└╚╰".contains(self.at(left, y)));
        Walls(left, top, right, bottom.expect("a bottom"))
    }

    /// A word on a line, or the blank between two.
    fn is_caption(&self, x: usize, y: usize) -> bool {
        let is_word = |x: usize| self.at(x, y).is_alphanumeric();
        is_word(x) || self.at(x, y) == ' ' && is_word(x - 1) && is_word(x + 1)
    }

    /// The boxes that a line leads to.
    fn follow(
        &self,
        start: (usize, usize, Step),
        inside: impl Fn(usize, usize) -> Option<usize>,
    ) -> HashSet<usize> {
        let against = (-start.2.0, -start.2.1);
        let (mut found, mut seen, mut steps) = (HashSet::new(), HashSet::new(), vec![start]);
        while let Some((x, y, step)) = steps.pop() {
            let (x, y) = (x.wrapping_add_signed(step.0), y.wrapping_add_signed(step.1));
            if step == against || inside(x, y).is_some() || !seen.insert((x, y, step)) {
                continue;
            }
            let c = self.at(x, y);
            let arms = arms(c);
            let back = (-step.0, -step.1);
            if head(c) == Some(step) {
                let to = inside(x.wrapping_add_signed(step.0), y.wrapping_add_signed(step.1));
                found.insert(to.expect("a head touches a box"));
            } else if arms.contains(&back) {
                steps.extend(arms.iter().filter(|&&arm| arm != back).map(|&arm| (x, y, arm)));
            } else if step.1 == 0 && ("│╎".contains(c) || self.is_caption(x, y)) {
                // Under an upright line, or through a caption.
                steps.push((x, y, step));
            } else {
                let lines: Vec<String> = self.0.iter().map(|row| row.iter().collect()).collect();
                panic!("a line ends in {c:?} at {x},{y}:\n{}", lines.join("\n"));
            }
        }
        found
    }
}

/// What is drawn: for each pair of boxes that a line joins, in its direction, their numbers.
pub(crate) fn edges(drawing: &str, names: &[String]) -> HashSet<(usize, usize)> {
    let grid = Grid(drawing.lines().map(|line| line.chars().collect()).collect());
    let boxes: Vec<Walls> = names.iter().map(|name| grid.find(name)).collect();
    let inside = |x: usize, y: usize| {
        boxes
            .iter()
            .position(|&Walls(x0, y0, x1, y1)| (x0..=x1).contains(&x) && (y0..=y1).contains(&y))
    };
    let mut found = HashSet::new();
    for (from, &Walls(x0, y0, x1, y1)) in boxes.iter().enumerate() {
        let mut starts = Vec::new();
        for y in y0..=y1 {
            starts.extend("├╟".contains(grid.at(x1, y)).then_some((x1, y, RIGHT)));
            starts.extend("┤╢".contains(grid.at(x0, y)).then_some((x0, y, LEFT)));
        }
        for x in x0..=x1 {
            starts.extend("┬╤".contains(grid.at(x, y1)).then_some((x, y1, DOWN)));
            starts.extend("┴╧".contains(grid.at(x, y0)).then_some((x, y0, UP)));
        }
        for start in starts {
            let ends = grid.follow(start, inside);
            assert!(!ends.is_empty(), "a line leads nowhere:\n{drawing}");
            found.extend(ends.into_iter().map(|to| (from, to)));
        }
    }
    found
}

/// The same for a list.
pub(crate) fn listed(listing: &str, names: &[String]) -> HashSet<(usize, usize)> {
    let mut found = HashSet::new();
    let mut from = None;
    for line in listing.lines() {
        let is_name = |word: &str| names.iter().position(|name| name == word.trim_matches(','));
        let (head, ends) = match line.strip_prefix("    ") {
            None => (line, ""),
            Some(ends) => ("", ends),
        };
        from = head.split(' ').next().and_then(is_name).or(from);
        for to in ends.split([' ', '→']).filter_map(is_name) {
            found.insert((from.expect("a name stands above"), to));
        }
    }
    found
}

fn head(c: char) -> Option<(isize, isize)> {
    match c {
        '►' => Some(RIGHT),
        '◄' => Some(LEFT),
        '▼' => Some(DOWN),
        '▲' => Some(UP),
        _ => None,
    }
}

fn arms(c: char) -> &'static [(isize, isize)] {
    match c {
        '─' | '╌' => &[LEFT, RIGHT],
        '│' | '╎' => &[UP, DOWN],
        '┌' => &[RIGHT, DOWN],
        '┐' => &[LEFT, DOWN],
        '└' => &[RIGHT, UP],
        '┘' => &[LEFT, UP],
        '├' => &[UP, DOWN, RIGHT],
        '┤' => &[UP, DOWN, LEFT],
        '┬' => &[LEFT, RIGHT, DOWN],
        '┴' => &[LEFT, RIGHT, UP],
        '┼' => &[LEFT, RIGHT, UP, DOWN],
        _ => &[],
    }
}
