//! An echo server under load: `CONNECTIONS` connections, each with one message on its way, from a
//! thread of plain blocking sockets that is the same for all. Echoes a second; more is better.

use crate::options::Options;
use crate::peers::echo::{EchoPeer, PEERS};
use crate::report::{Better, Report, Table, show_ratio};
use crate::rounds::{Series, interleave};
use crate::stats::{Ratio, median, quantile};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

const CONNECTIONS: usize = 100;
const MESSAGE: [u8; 64] = [7; 64];
/// Messages of each connection before and while it is timed.
const WARM_UP: usize = 100;
const TURNS: usize = 1_000;
const TURNS_QUICK: usize = 300;

pub(super) fn run(options: &Options, report: &mut Report) {
    let turns = if options.quick { TURNS_QUICK } else { TURNS };
    let entrants: Vec<&EchoPeer> =
        PEERS.iter().filter(|peer| options.takes_peer(peer.name)).collect();
    println!(
        "\necho: {} rounds of {CONNECTIONS} connections, {turns} messages of {} bytes each",
        options.rounds,
        MESSAGE.len()
    );
    let series = interleave(&entrants, options.rounds, options.seed, "echo", |peer, _| {
        echoes_per_second(peer, turns)
    });
    tell(&entrants, &series, options, report);
}

fn echoes_per_second(peer: &EchoPeer, turns: usize) -> f64 {
    let server = (peer.up)();
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let stream = TcpStream::connect(server.address()).expect("the server listens");
            stream.set_nodelay(true).expect("it is a TCP socket");
            stream
        })
        .collect();
    send(&mut streams);
    (0..WARM_UP).for_each(|_| turn(&mut streams));
    let began = Instant::now();
    (0..turns).for_each(|_| turn(&mut streams));
    (CONNECTIONS * turns) as f64 / began.elapsed().as_secs_f64()
}

fn send(streams: &mut [TcpStream]) {
    for stream in streams {
        stream.write_all(&MESSAGE).expect("the server reads");
    }
}

/// Takes the echo of each connection, and sends the next.
fn turn(streams: &mut [TcpStream]) {
    let mut echo = [0; MESSAGE.len()];
    for stream in streams {
        stream.read_exact(&mut echo).expect("the server answers");
        assert_eq!(echo, MESSAGE);
        stream.write_all(&MESSAGE).expect("the server reads");
    }
}

fn tell(entrants: &[&EchoPeer], series: &[Series<f64>], options: &Options, report: &mut Report) {
    let ours = entrants.iter().position(|peer| peer.name == options.ours);
    let mut table = Table::new(&["peer", "echoes/s", "p10 .. p90", "ours/peer", "others"]);
    for (place, (peer, samples)) in entrants.iter().zip(series).enumerate() {
        let rates = &samples.samples;
        let ratio = ours.filter(|&ours| ours != place).map(|ours| {
            let ratio = Ratio::paired(&series[ours].samples, rates, options.seed);
            report.ratio(&format!("echo_vs_{}", peer.name), &ratio, Better::More);
            show_ratio(&ratio)
        });
        report.detail("echo", peer.name, &[("echoes_per_second", median(rates))]);
        table.row([
            peer.name.to_owned(),
            format!("{:.0}", median(rates)),
            format!("{:.0} .. {:.0}", quantile(rates, 0.1), quantile(rates, 0.9)),
            ratio.unwrap_or_else(|| "-".into()),
            format!("{:.0} %", samples.others_cpu_percent),
        ]);
    }
    table.print();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_echo_peer_sends_back_what_it_is_sent() {
        for peer in PEERS {
            assert!(echoes_per_second(peer, 3) > 0.0, "{}", peer.name);
        }
    }
}
