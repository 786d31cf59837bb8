//! The order within each layer, with few crossings: sweeps that put every cell at the mean of its
//! neighbours, the best order seen is kept, and small pictures also try every swap of neighbours.
//! Before: `layers`. After: `place`.
//! Invariant: cells of a lower lane stand before those of a higher one, in every layer.

use super::layers::Layers;

/// Sweeps there and back, each; more changed nothing in the pictures looked at.
const SWEEPS: usize = 12;
/// For pictures of many cells, where a sweep costs.
const SWEEPS_LARGE: usize = 3;
/// A picture of more cells than this is large.
const LARGE: usize = 1_000;

/// Orders the rows of `layers`. `lane` gives each cell its lane.
pub(super) fn order(layers: &mut Layers, lane: &[usize]) {
    first(layers, lane);
    let large = layers.cells() > LARGE;
    let mut best = (crossings(layers), layers.rows.clone());
    for sweep in 0..if large { SWEEPS_LARGE } else { SWEEPS } {
        if best.0 == 0 {
            break;
        }
        sweep_once(layers, lane, sweep % 2 == 0);
        if !large {
            swap_neighbours(layers, lane);
        }
        let now = crossings(layers);
        if now < best.0 {
            best = (now, layers.rows.clone());
        }
    }
    layers.rows = best.1;
}

/// The place of each cell in its row.
pub(super) fn positions(layers: &Layers) -> Vec<usize> {
    let mut position = vec![0; layers.cells()];
    for row in &layers.rows {
        row.iter().enumerate().for_each(|(at, &cell)| position[cell] = at);
    }
    position
}

/// In the order in which a walk along the links meets them.
fn first(layers: &mut Layers, lane: &[usize]) {
    let n = layers.cells();
    let mut met = vec![usize::MAX; n];
    let mut count = 0;
    let mut starts: Vec<usize> = (0..n).collect();
    starts.sort_by_key(|&cell| (layers.layer[cell], cell));
    for start in starts {
        let mut stack = vec![start];
        while let Some(cell) = stack.pop() {
            if met[cell] == usize::MAX {
                met[cell] = count;
                count += 1;
                stack.extend(layers.after[cell].iter().rev().map(|&link| layers.links[link].to));
            }
        }
    }
    for row in &mut layers.rows {
        row.sort_by_key(|&cell| (lane[cell], met[cell]));
    }
}

fn sweep_once(layers: &mut Layers, lane: &[usize], forwards: bool) {
    let mut position: Vec<f64> = positions(layers).into_iter().map(|at| at as f64).collect();
    let count = layers.rows.len();
    for step in 1..count {
        let row = if forwards { step } else { count - 1 - step };
        let mut keyed: Vec<(usize, f64, usize)> = layers.rows[row]
            .iter()
            .map(|&cell| {
                let links = if forwards { &layers.before[cell] } else { &layers.after[cell] };
                let other = |&link: &usize| {
                    position[if forwards { layers.links[link].from } else { layers.links[link].to }]
                };
                let mean = match links.len() {
                    0 => position[cell],
                    n => links.iter().map(other).sum::<f64>() / n as f64,
                };
                (lane[cell], mean, cell)
            })
            .collect();
        keyed.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for (at, &(_, _, cell)) in keyed.iter().enumerate() {
            position[cell] = at as f64;
            layers.rows[row][at] = cell;
        }
    }
}

/// Swaps neighbours as long as it saves a crossing, a few times through.
fn swap_neighbours(layers: &mut Layers, lane: &[usize]) {
    let mut position = positions(layers);
    for _ in 0..4 {
        let mut changed = false;
        for row in 0..layers.rows.len() {
            for at in 1..layers.rows[row].len() {
                let (a, b) = (layers.rows[row][at - 1], layers.rows[row][at]);
                let cost = |a, b| between(layers, &position, a, b);
                if lane[a] == lane[b] && cost(b, a) < cost(a, b) {
                    layers.rows[row].swap(at - 1, at);
                    position.swap(a, b);
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
}

/// How often the links of two cells cross if the first stands before the second.
fn between(layers: &Layers, position: &[usize], first: usize, second: usize) -> usize {
    let cross = |a: Vec<usize>, b: Vec<usize>| -> usize {
        a.iter().map(|x| b.iter().filter(|y| *y < x).count()).sum()
    };
    let to = |cell: usize| -> Vec<usize> {
        layers.after[cell].iter().map(|&l| position[layers.links[l].to]).collect()
    };
    let from = |cell: usize| -> Vec<usize> {
        layers.before[cell].iter().map(|&l| position[layers.links[l].from]).collect()
    };
    cross(to(first), to(second)) + cross(from(first), from(second))
}

/// How often links cross, counted with a tree of sums: n log n.
fn crossings(layers: &Layers) -> usize {
    let position = positions(layers);
    let mut count = 0;
    for (row, next) in layers.rows.iter().zip(layers.rows.iter().skip(1)) {
        let mut tree = vec![0usize; next.len() + 1];
        let mut before = 0;
        for &cell in row {
            let ends: Vec<usize> =
                layers.after[cell].iter().map(|&link| position[layers.links[link].to]).collect();
            for &end in &ends {
                let (mut at, mut up_to) = (end + 1, 0);
                while at > 0 {
                    up_to += tree[at];
                    at &= at - 1;
                }
                count += before - up_to;
            }
            for end in ends {
                before += 1;
                let mut at = end + 1;
                while at < tree.len() {
                    tree[at] += 1;
                    at += at & at.wrapping_neg();
                }
            }
        }
    }
    count
}
