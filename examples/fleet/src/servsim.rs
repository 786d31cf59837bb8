//! The communication server, made up from the published figures: accounts on connections are polled in cycles of 80 s; a
//! poll takes at most 300 messages of an account, and a packet takes its connection 40 ms. Messages of an account
//! in a cycle have a mean of 15.74 and a deviation of 9.33; in every second cycle some accounts have hundreds.
//!
//! The same settings give the same packets, whoever asks: `Packets` is a plain iterator.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use comporta::testing::Dice;
use comporta::{Demand, Out, Pull, Result, Source, Time};
use serde::{Deserialize, Serialize};

/// How often an account is polled.
pub const CYCLE: Duration = Duration::from_secs(80);
/// How long a packet takes its connection.
pub const PACKET: Duration = Duration::from_millis(40);
/// Messages that a poll takes of an account at most, so that others have their turn.
pub const POLL_MAX: u64 = 300;
/// Positions in a packet: 32,054 packets carried about 128,000.
pub const POSITIONS: usize = 4;
/// Messages of an account in a cycle.
const MESSAGES_MEAN: f64 = 15.74;
const MESSAGES_DEVIATION: f64 = 9.33;
const MESSAGES_MAX: f64 = 100.0;
/// In every second cycle, one account of so many has a burst of so many messages.
const BURST_ONE_OF: usize = 50;
const BURST: (usize, usize) = (100, 700);

/// What the server is told.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many accounts there are.
    pub accounts: u32,
    /// On how many connections.
    pub connections: u32,
    /// Of how many vehicles.
    pub vehicles: u32,
    /// For how long they are polled.
    pub length: Duration,
    /// Whether some accounts have bursts.
    pub bursts: bool,
    /// From what it is made up.
    pub seed: u64,
}

/// Where a vehicle was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Its number.
    pub vehicle: u32,
    /// Degrees north.
    pub latitude: f64,
    /// Degrees east.
    pub longitude: f64,
}

/// What a connection brings: some positions of vehicles of an account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Packet {
    /// Whose it is.
    pub account: u32,
    /// Its number among those of the account, from 0 on.
    pub number: u64,
    /// The positions.
    pub positions: [Position; POSITIONS],
}

/// A connection, and the account it polls.
struct Connection {
    first: u32,
    end: u32,
    account: u32,
    /// Packets of this poll that are still to come.
    left: u64,
    cycle: u32,
}

/// The packets, in the order in which they come, and when.
pub struct Packets {
    settings: Settings,
    dice: Dice,
    connections: Vec<Connection>,
    /// The connections, by when they bring the next packet.
    due: BinaryHeap<Reverse<(Duration, usize)>>,
    /// Of each account: messages that wait, and packets that have come.
    waiting: Vec<u64>,
    numbers: Vec<u64>,
}

impl Packets {
    /// From the first cycle on, which begins at 0.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let Settings { accounts, connections, seed, .. } = settings;
        let share = |i: u32| (u64::from(accounts) * u64::from(i) / u64::from(connections)) as u32;
        let connection = |i| {
            let (first, end) = (share(i), share(i + 1));
            Connection { first, end, account: first, left: 0, cycle: 0 }
        };
        let mut packets = Packets {
            settings,
            dice: Dice::new(seed),
            connections: (0..connections).map(connection).collect(),
            due: BinaryHeap::new(),
            waiting: vec![0; accounts as usize],
            numbers: vec![0; accounts as usize],
        };
        for at in 0..connections as usize {
            if packets.connections[at].first < packets.connections[at].end {
                packets.poll(at);
                let first = PACKET * at as u32 / connections; // not all at once
                packets.due.push(Reverse((first, at)));
            }
        }
        packets
    }

    /// Messages of an account since it was last polled: a gamma distribution has the published mean and deviation, and
    /// is never below 0.
    fn messages(&mut self, cycle: u32) -> u64 {
        let usual = self.gamma().round().min(MESSAGES_MAX) as u64;
        let bursts = self.settings.bursts && cycle % 2 == 1;
        if bursts && self.dice.below(BURST_ONE_OF) == 0 {
            return usual + (BURST.0 + self.dice.below(BURST.1 - BURST.0)) as u64;
        }
        usual
    }

    /// Marsaglia and Tsang's method, for shapes above 1.
    fn gamma(&mut self) -> f64 {
        let shape = (MESSAGES_MEAN / MESSAGES_DEVIATION).powi(2);
        let d = shape - 1.0 / 3.0;
        loop {
            let normal = self.normal();
            let v = (1.0 + normal / (9.0 * d).sqrt()).powi(3);
            let u = 1.0 - self.dice.unit();
            if v > 0.0 && u.ln() < 0.5 * normal * normal + d - d * v + d * v.ln() {
                return d * v * MESSAGES_MEAN / shape;
            }
        }
    }

    /// Box and Muller's method.
    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.dice.unit(), self.dice.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// A connection begins to poll its account.
    fn poll(&mut self, at: usize) {
        let Connection { account, cycle, .. } = self.connections[at];
        let new = self.messages(cycle);
        let waiting = &mut self.waiting[account as usize];
        let taken = (*waiting + new).min(POLL_MAX);
        *waiting = *waiting + new - taken;
        self.connections[at].left = taken;
    }

    fn packet(&mut self, account: u32) -> Packet {
        let Settings { accounts, vehicles, .. } = self.settings;
        let number = self.numbers[account as usize];
        self.numbers[account as usize] += 1;
        let share = |i: u32| u64::from(vehicles) * u64::from(i) / u64::from(accounts);
        let (first, end) = (share(account), share(account + 1).max(share(account) + 1));
        let positions = std::array::from_fn(|i| {
            let turn = number * POSITIONS as u64 + i as u64;
            position((first + turn % (end - first)) as u32, turn / (end - first))
        });
        Packet { account, number, positions }
    }
}

/// Where a vehicle is at its `step`-th report: it drives around its home.
fn position(vehicle: u32, step: u64) -> Position {
    let mut home = Dice::new(u64::from(vehicle));
    let (latitude, longitude) = (-30.0 + 25.0 * home.unit(), -60.0 + 20.0 * home.unit());
    let (radius, phase) = (0.01 + 0.19 * home.unit(), std::f64::consts::TAU * home.unit());
    let angle = phase + step as f64 / 7.0;
    Position {
        vehicle,
        latitude: latitude + radius * angle.sin(),
        longitude: longitude + radius * angle.cos(),
    }
}

impl Iterator for Packets {
    type Item = (Duration, Packet);

    fn next(&mut self) -> Option<(Duration, Packet)> {
        loop {
            let Reverse((due, at)) = self.due.pop()?;
            if due >= self.settings.length {
                continue; // what is left stays with the server
            }
            let connection = &mut self.connections[at];
            let account = connection.account;
            if connection.left > 0 {
                connection.left -= 1;
                self.due.push(Reverse((due + PACKET, at)));
                return Some((due, self.packet(account)));
            }
            let mut next = due;
            connection.account += 1;
            if connection.account == connection.end {
                connection.account = connection.first;
                connection.cycle += 1;
                next = due.max(CYCLE * connection.cycle); // later, if the accounts had too much
            }
            self.poll(at);
            self.due.push(Reverse((next, at)));
        }
    }
}

impl std::fmt::Debug for Packets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packets").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The packets as a source, each when it is due; time may run faster.
#[derive(Debug)]
pub struct Polls {
    packets: Packets,
    next: Option<(Duration, Packet)>,
    speed: f64,
    start: Option<Time>,
}

impl Polls {
    /// Creates the source of a server.
    #[must_use]
    pub fn new(settings: Settings, speed: f64) -> Self {
        Polls { packets: Packets::new(settings), next: None, speed, start: None }
    }
}

impl Source for Polls {
    type Item = Packet;

    fn pull(&mut self, out: &mut Out<Packet>, demand: Demand) -> Result<Pull> {
        let start = *self.start.get_or_insert(demand.now);
        for _ in 0..demand.events {
            let Some((due, packet)) = self.next.take().or_else(|| self.packets.next()) else {
                return Ok(Pull::End);
            };
            let at = start + due.div_f64(self.speed);
            if at > demand.now {
                self.next = Some((due, packet));
                return Ok(Pull::After(at.duration_since(demand.now)));
            }
            out.send(packet);
        }
        Ok(Pull::More)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn settings(bursts: bool) -> Settings {
        let length = CYCLE * 2;
        Settings { accounts: 4_141, connections: 44, vehicles: 66_103, length, bursts, seed: 3 }
    }

    #[test]
    fn messages_of_an_account_have_the_published_mean_and_deviation() {
        let mut packets = Packets::new(settings(false));
        let drawn: Vec<f64> = (0..200_000).map(|_| packets.messages(0) as f64).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        assert!((mean - 15.74).abs() < 0.1, "{mean}");
        assert!((variance.sqrt() - 9.33).abs() < 0.1, "{}", variance.sqrt());
        assert!(drawn.iter().all(|n| (0.0..=100.0).contains(n)));
    }

    #[test]
    fn packets_come_in_order_40_ms_apart_on_each_connection_and_300_in_a_poll_at_most() {
        let mut last = Duration::ZERO;
        let mut numbers = HashMap::new();
        let mut vehicles = HashMap::new();
        let mut n = 0;
        for (due, packet) in Packets::new(settings(true)) {
            assert!(due >= last && due < CYCLE * 2);
            last = due;
            let next: &mut u64 = numbers.entry(packet.account).or_default();
            assert_eq!(packet.number, *next);
            *next += 1;
            for position in packet.positions {
                assert_eq!(
                    *vehicles.entry(position.vehicle).or_insert(packet.account),
                    packet.account
                );
            }
            n += 1;
        }
        assert!(numbers.values().all(|n| *n <= 2 * POLL_MAX));
        assert!(numbers.values().any(|n| *n > POLL_MAX), "there are bursts");
        // 44 connections bring 25 packets a second each.
        assert!(n <= 44 * 25 * 160 && n > 100_000, "{n}");
        assert!(vehicles.len() > 60_000 && vehicles.keys().all(|vehicle| *vehicle < 66_103));
    }
}
