//! How the nodes of a case are connected: every stage is fed, by chance.

use crate::case::{LinkCase, Shape, StageCase, Way};
use crate::dice::Dice;

/// Feeds every stage, and adds some connectors, forwards and (in some cases) backwards.
pub(crate) fn links(dice: &mut Dice, heads: usize, stages: &mut [StageCase]) -> Vec<LinkCase> {
    let mut links: Vec<LinkCase> = Vec::new();
    let cyclic = dice.chance(50);
    let last = heads + stages.len() - 1;
    let two_ports: Vec<bool> = stages.iter().map(|s| s.shape == Shape::TwoPorts).collect();
    let mut join = |dice: &mut Dice, from: usize, to: usize| {
        let ports = if from >= heads && two_ports[from - heads] { 2 } else { 1 };
        let port = dice.below(ports);
        let of_port = |link: &&mut LinkCase| link.from == from && link.port == port;
        // One queue gets an event of a port once: copies would come in no order worth checking.
        if links.iter_mut().filter(of_port).any(|link| link.to.contains(&to)) {
            return;
        }
        let grow = dice.chance(60);
        match links.iter_mut().find(of_port).filter(|_| grow) {
            Some(link) => {
                link.to.push(to);
                if link.way == Way::One {
                    link.way = dice.pick(&[Way::RoundRobin, Way::ByKey]);
                }
            }
            None => links.push(LinkCase { from, port, way: Way::One, to: vec![to], rule: None }),
        }
    };
    for head in 0..heads {
        let to = dice.between(heads, last);
        join(dice, head, to);
    }
    for (at, stage) in stages.iter().enumerate() {
        if stage.autostart && dice.chance(50) {
            continue;
        }
        let from = dice.below(heads + at);
        join(dice, from, heads + at);
    }
    for _ in 0..dice.below(stages.len() + 2) {
        let (from, to) = (dice.below(last + 1), dice.between(heads, last));
        if from < to || cyclic {
            join(dice, from, to);
        }
    }
    links
}
