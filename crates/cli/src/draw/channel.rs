//! Tracks between two layers. A wire joins levels on the near side (where it comes in) with levels
//! on the far side (where it goes out): it runs along its level to its track, along the track
//! to its other levels, and along those to the end. Before: `place`. After: `canvas`.
//!
//! Two wires may cross, but never lie on each other. So on one track their spans are apart, and
//! where one comes in at the level at which another goes out, the one that comes in has the earlier track. Where
//! wires ask this of each other in a circle, one of them changes tracks at a level nobody uses.

use std::collections::{HashMap, HashSet};

/// The levels a wire joins. No two wires of a channel share one on the same side.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire {
    pub(super) near: Vec<usize>,
    pub(super) far: Vec<usize>,
}

/// A wire, or one of the two pieces of one that changes tracks.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) wire: usize,
    pub(super) ends: Wire,
    /// The level at which it changes tracks, and the piece it goes on as.
    pub(super) joins: Option<(usize, Option<usize>)>,
    /// None if it runs straight through.
    pub(super) track: Option<usize>,
}

impl Piece {
    /// All its levels, from the least to the greatest.
    pub(super) fn span(&self) -> (usize, usize) {
        let joint = self.joins.map(|(level, _)| level);
        let levels = || self.ends.near.iter().chain(&self.ends.far).copied().chain(joint);
        (levels().min().unwrap_or(0), levels().max().unwrap_or(0))
    }
}

/// Gives every wire its track; also says how many tracks there are.
pub(super) fn route(wires: &[Wire]) -> (Vec<Piece>, usize) {
    let mut pieces: Vec<Piece> = (wires.iter().cloned().enumerate())
        .map(|(wire, ends)| Piece { wire, ends, joins: None, track: None })
        .collect();
    let mut used: HashSet<usize> =
        wires.iter().flat_map(|wire| wire.near.iter().chain(&wire.far)).copied().collect();
    let comes_in: HashMap<usize, usize> = (wires.iter().enumerate())
        .flat_map(|(at, wire)| wire.near.iter().map(move |&level| (level, at)))
        .collect();
    let mut waiting: Vec<usize> = (0..pieces.len())
        .filter(|&at| {
            let (low, high) = pieces[at].span();
            low != high
        })
        .collect();
    sort_by_crossings(&pieces, &mut waiting);
    let mut tracks: Vec<Vec<(usize, usize)>> = Vec::new();
    while !waiting.is_empty() {
        let earlier = |at: usize| -> Vec<usize> {
            let piece: &Piece = &pieces[at];
            let near = piece.ends.far.iter().filter_map(|level| comes_in.get(level).copied());
            let joint = piece.joins.filter(|joint| joint.1.is_none()).map(|_| piece.wire);
            near.filter(|&other| other != at).chain(joint).collect()
        };
        let is_free = |at: usize| earlier(at).iter().all(|other| !waiting.contains(other));
        let Some(nth) = waiting.iter().position(|&at| is_free(at)) else {
            // Nobody waits for the second piece of a wire, so a circle is made of whole ones.
            let whole = waiting.iter().position(|&at| pieces[at].joins.is_none());
            let nth = whole.expect("a circle of wires that wait has a whole one");
            let second = split(&mut pieces, waiting[nth], &mut used);
            waiting.insert(nth + 1, second);
            continue;
        };
        let at = waiting[nth];
        // One that runs straight has no track and is in nobody's way.
        let from = earlier(at).iter().filter_map(|&other| pieces[other].track).max();
        let span = pieces[at].span();
        let is_apart = |track: &Vec<(usize, usize)>| {
            track.iter().all(|&(low, high)| high < span.0 || span.1 < low)
        };
        let from = from.map_or(0, |track| track + 1);
        let track = (from..).find(|&track| tracks.get(track).is_none_or(is_apart)).unwrap_or(from);
        if tracks.len() <= track {
            tracks.resize(track + 1, Vec::new());
        }
        tracks[track].push(span);
        pieces[at].track = Some(track);
        waiting.remove(nth);
    }
    (pieces, tracks.len())
}

/// Splits a piece at a level that nobody uses, near its middle. Its number stays with the first.
fn split(pieces: &mut Vec<Piece>, at: usize, used: &mut HashSet<usize>) -> usize {
    let (low, high) = pieces[at].span();
    let middle = low.midpoint(high);
    let level = (0..)
        .flat_map(|away| [middle + away, middle.saturating_sub(away)])
        .find(|level| !used.contains(level))
        .unwrap_or(middle);
    used.insert(level);
    let second = pieces.len();
    let far = std::mem::take(&mut pieces[at].ends.far);
    pieces[at].joins = Some((level, Some(second)));
    pieces.push(Piece {
        wire: pieces[at].wire,
        ends: Wire { near: Vec::new(), far },
        joins: Some((level, None)),
        track: None,
    });
    second
}

/// Those first that cross less by being first.
fn sort_by_crossings(pieces: &[Piece], waiting: &mut [usize]) {
    let within = |levels: &[usize], (low, high): (usize, usize)| {
        levels.iter().filter(|&&level| low <= level && level <= high).count() as i64
    };
    let crossings = |first: &Piece, second: &Piece| {
        within(&first.ends.far, second.span()) + within(&second.ends.near, first.span())
    };
    let mut cost: HashMap<usize, i64> = HashMap::new();
    for &a in waiting.iter() {
        for &b in waiting.iter().filter(|&&b| b != a) {
            let more = crossings(&pieces[a], &pieces[b]) - crossings(&pieces[b], &pieces[a]);
            *cost.entry(a).or_default() += more;
        }
    }
    waiting.sort_by_key(|at| cost.get(at).copied().unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(near: &[usize], far: &[usize]) -> Wire {
        Wire { near: near.to_vec(), far: far.to_vec() }
    }

    #[test]
    fn a_straight_wire_needs_no_track() {
        assert_eq!(route(&[wire(&[3], &[3])]).1, 0);
    }

    #[test]
    fn wires_that_are_apart_share_a_track() {
        assert_eq!(route(&[wire(&[0], &[2]), wire(&[3], &[5])]).1, 1);
    }

    #[test]
    fn a_wire_that_comes_in_where_another_goes_out_turns_off_first() {
        let (pieces, tracks) = route(&[wire(&[0], &[4]), wire(&[4], &[8])]);
        assert_eq!(tracks, 2);
        assert!(pieces[1].track < pieces[0].track);
    }

    #[test]
    fn circles_behind_one_another_are_all_opened() {
        // The first two wait for each other, the last two too, and the first also for the third.
        for (stride, shift) in (1..7).flat_map(|stride| (0..7).map(move |shift| (stride, shift))) {
            let at = |n: usize| 3 * ((n * stride + shift) % 7);
            let wires = [
                wire(&[at(0)], &[at(1), at(2)]),
                wire(&[at(1)], &[at(0)]),
                wire(&[at(2), at(3)], &[at(4)]),
                wire(&[at(4)], &[at(3)]),
            ];
            let (pieces, _) = route(&wires);
            assert_eq!(pieces.iter().filter(|piece| piece.track.is_none()).count(), 0);
        }
    }

    #[test]
    fn wires_that_change_places_do_not_lie_on_each_other() {
        let (pieces, tracks) = route(&[wire(&[1], &[5]), wire(&[5], &[1])]);
        assert_eq!((pieces.len(), tracks), (3, 3));
        let (level, second) = pieces[0].joins.expect("the first is split");
        assert!(level != 1 && level != 5);
        let second = &pieces[second.expect("and goes on")];
        assert!(pieces[0].track < pieces[1].track && pieces[1].track < second.track);
    }
}
