//! Where along its layer each cell stands, so that edges run straight: every cell wishes to stand
//! where its links would be level, and a layer's wishes are met as nearly as its order allows.
//! Before: `order`. After: `text` and `svg`, which supply sizes in their own unit.

use super::layers::Layers;

/// Sweeps there and back; a large picture has less to gain from each.
const SWEEPS: usize = 8;
const SWEEPS_LARGE: usize = 3;
const LARGE: usize = 1_000;
/// How much further than a box a bend may be moved to be level.
const BEND_REACH: f64 = 3.0;

/// What `place` needs to know of a drawing.
pub(super) struct Sizes<'a> {
    /// For each cell its extent along the layer.
    pub(super) extent: &'a [f64],
    /// For each link where it leaves its first cell and enters its second, from their beginning.
    pub(super) pins: &'a [(f64, f64)],
    /// What is left free between two boxes, and beside a bend.
    pub(super) gap: f64,
    pub(super) bend_gap: f64,
}

/// The beginning of each cell. Lanes are stacked: `lane_gap` lies between two.
pub(super) fn place(layers: &Layers, sizes: &Sizes<'_>, lane: &[usize], lane_gap: f64) -> Vec<f64> {
    let mut at = vec![0.0; layers.cells()];
    let lanes = lane.iter().max().map_or(0, |last| last + 1);
    let mut rows = vec![Vec::new(); lanes];
    for row in &layers.rows {
        for part in row.chunk_by(|&a, &b| lane[a] == lane[b]) {
            rows[lane[part[0]]].push(part);
        }
    }
    let mut start = 0.0;
    for rows in rows {
        place_lane(layers, sizes, lane, &rows, &mut at);
        let cells = || rows.iter().copied().flatten().copied();
        let low = cells().map(|cell| at[cell]).fold(f64::INFINITY, f64::min);
        let high = cells().map(|cell| at[cell] + sizes.extent[cell]).fold(low, f64::max);
        if low.is_finite() {
            cells().for_each(|cell| at[cell] += start - low);
            start += high - low + lane_gap;
        }
    }
    at
}

fn place_lane(
    layers: &Layers,
    sizes: &Sizes<'_>,
    lane: &[usize],
    rows: &[&[usize]],
    at: &mut [f64],
) {
    for row in rows {
        settle(layers, sizes, row, at, |_| (0.0, 1.0));
    }
    let sweeps = if layers.cells() > LARGE { SWEEPS_LARGE } else { SWEEPS };
    for sweep in 0..=sweeps {
        // The last sweep hears both sides.
        let (hear_before, hear_after) = (true, sweep == sweeps);
        for row in rows {
            let wishes = wishes(layers, sizes, lane, row, at, (hear_before, hear_after));
            settle(layers, sizes, row, at, |nth| wishes[nth]);
        }
        for row in rows.iter().rev() {
            let wishes = wishes(layers, sizes, lane, row, at, (hear_after, true));
            settle(layers, sizes, row, at, |nth| wishes[nth]);
        }
    }
}

/// Where each cell of a row would like to begin, and how much it wants it.
fn wishes(
    layers: &Layers,
    sizes: &Sizes<'_>,
    lane: &[usize],
    row: &[usize],
    at: &[f64],
    (hear_before, hear_after): (bool, bool),
) -> Vec<(f64, f64)> {
    row.iter()
        .map(|&cell| {
            let (mut sum, mut weight) = (0.0, 0.0);
            let mut hear = |other: usize, level: f64| {
                if lane[other] == lane[cell] {
                    // A kink within a long edge is worse than one at its end.
                    let w = match (layers.is_bend(cell), layers.is_bend(other)) {
                        (true, true) => 8.0,
                        (false, false) => 1.0,
                        _ => 2.0,
                    };
                    sum += w * level;
                    weight += w;
                }
            };
            for &link in layers.before[cell].iter().filter(|_| hear_before) {
                let from = layers.links[link].from;
                hear(from, at[from] + sizes.pins[link].0 - sizes.pins[link].1);
            }
            for &link in layers.after[cell].iter().filter(|_| hear_after) {
                let to = layers.links[link].to;
                hear(to, at[to] + sizes.pins[link].1 - sizes.pins[link].0);
            }
            match weight {
                0.0 => (at[cell], 0.01),
                _ => (sum / weight, weight),
            }
        })
        .collect()
}

/// Meets the wishes of a row with the least squared distance, keeping order and gaps:
/// neighbours that would overlap are pooled and moved as one.
fn settle(
    layers: &Layers,
    sizes: &Sizes<'_>,
    row: &[usize],
    at: &mut [f64],
    wish: impl Fn(usize) -> (f64, f64),
) {
    let mut pools: Vec<(f64, f64, usize)> = Vec::new();
    let offsets = offsets(layers, sizes, row);
    for (nth, offset) in offsets.iter().enumerate() {
        let (wished, weight) = wish(nth);
        let mut pool = (wished - offset, weight, 1);
        while let Some(last) = pools.pop_if(|last| last.0 > pool.0) {
            let weight = last.1 + pool.1;
            pool = ((last.0 * last.1 + pool.0 * pool.1) / weight, weight, last.2 + pool.2);
        }
        pools.push(pool);
    }
    let bases = pools.iter().flat_map(|&(base, _, cells)| std::iter::repeat_n(base, cells));
    for ((base, offset), &cell) in bases.zip(offsets).zip(row) {
        at[cell] = base + offset;
    }
}

/// Where each cell of a row begins if all stand as close as they may.
fn offsets(layers: &Layers, sizes: &Sizes<'_>, row: &[usize]) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(row.len());
    let mut next = 0.0;
    for (nth, &cell) in row.iter().enumerate() {
        offsets.push(next);
        next += sizes.extent[cell];
        if let Some(&after) = row.get(nth + 1) {
            next += gap(layers, sizes, cell, after);
        }
    }
    offsets
}

fn gap(layers: &Layers, sizes: &Sizes<'_>, cell: usize, after: usize) -> f64 {
    match layers.is_bend(cell) || layers.is_bend(after) {
        true => sizes.bend_gap,
        false => sizes.gap,
    }
}

/// The same on a grid of whole numbers.
pub(super) fn snap(layers: &Layers, sizes: &Sizes<'_>, at: &[f64]) -> Vec<usize> {
    let least = at.iter().copied().fold(f64::INFINITY, f64::min);
    let at: Vec<f64> = at.iter().map(|at| at - least).collect();
    let level = level(layers, sizes, &at, 1.0);
    let round: Vec<f64> = level.iter().map(|at| at.round()).collect();
    // Rounding may push neighbours together, and what was level stays so.
    let apart = level_from(layers, sizes, &at, round, 1.0);
    apart.into_iter().map(|at| at as usize).collect()
}

/// Moves cells by at most `reach` if that makes one of the links before them level; bends further,
/// because a long edge should be one line.
pub(super) fn level(layers: &Layers, sizes: &Sizes<'_>, at: &[f64], reach: f64) -> Vec<f64> {
    level_from(layers, sizes, at, at.to_vec(), reach)
}

/// The same, beginning with `now`, and keeping gaps that are not kept there.
fn level_from(
    layers: &Layers,
    sizes: &Sizes<'_>,
    exact: &[f64],
    mut now: Vec<f64>,
    reach: f64,
) -> Vec<f64> {
    for row in &layers.rows {
        let mut free = f64::NEG_INFINITY;
        for (nth, &cell) in row.iter().enumerate() {
            let at = now[cell].max(free);
            let after = row.get(nth + 1);
            let room = after.map_or(f64::INFINITY, |&after| {
                now[after] - gap(layers, sizes, cell, after) - sizes.extent[cell]
            });
            let levels = layers.before[cell].iter().map(|&link| {
                now[layers.links[link].from] + sizes.pins[link].0 - sizes.pins[link].1
            });
            let nearest = levels.min_by(|a, b| (a - at).abs().total_cmp(&(b - at).abs()));
            let reach = if layers.is_bend(cell) { BEND_REACH * reach } else { reach };
            let fits = |to: &f64| {
                (0.0f64.max(free)..=room.max(at)).contains(to) && (to - exact[cell]).abs() <= reach
            };
            now[cell] = nearest.filter(fits).unwrap_or(at);
            let gap = after.map_or(0.0, |&after| gap(layers, sizes, cell, after));
            free = now[cell] + sizes.extent[cell] + gap;
        }
    }
    now
}
