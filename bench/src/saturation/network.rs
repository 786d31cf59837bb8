//! The network study for real: in a network namespace of its own, whose loopback is limited to 100 Kbit/s, events of eight bytes go
//! over a TCP connection at their times. It needs `unshare`, `ip` and `tc`, and user namespaces; where one is missing
//! there is no study, and the reason is reported.
//!
//! A namespace is entered by a process as it starts, so this program is started again inside of it, with the case
//! `INSIDE`, and prints a line for each rate.

use super::Point;
use crate::options::Options;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The case of the process inside.
pub(super) const INSIDE: &str = "network inside";
const LIMIT_BITS_PER_S: f64 = 100e3;
const RATES: [f64; 3] = [500.0, 1000.0, 1500.0];
/// Packets must be smaller than the bucket that limits them.
const SET_UP: &str = "ip link set lo mtu 1500 up && \
    tc qdisc add dev lo root tbf rate 100kbit burst 3000 latency 60s && exec \"$@\"";

/// The points of the study, or why there are none.
pub(super) fn points(options: &Options) -> Result<Vec<Point>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new("unshare");
    command.args(["-rn", "sh", "-c", SET_UP, "sh"]).arg(program);
    command.args(["saturation", "--case", INSIDE]);
    if options.quick {
        command.arg("--quick");
    }
    let output = command.output().map_err(|error| format!("unshare: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(text.lines().next().unwrap_or("it failed without a word").to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let points: Vec<Point> = text.lines().filter_map(point).collect();
    if points.len() == RATES.len() { Ok(points) } else { Err("it printed no points".to_owned()) }
}

/// A line of the process inside: rate, mean, p99, share of the link.
fn point(line: &str) -> Option<Point> {
    let numbers: Vec<f64> = line.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [rate, mean_ms, p99_ms, used] = *numbers.as_slice() else { return None };
    let used = [None, None, None, Some(used)];
    Some(Point { study: "network", setting: format!("{rate} events/s"), mean_ms, p99_ms, used })
}

/// What the process inside does.
pub(super) fn run_inside(run: Duration) {
    for rate in RATES {
        match measure(rate, run) {
            Ok((mean_ms, p99_ms, used)) => println!("{rate} {mean_ms} {p99_ms} {used}"),
            Err(error) => eprintln!("{rate} events/s: {error}"),
        }
    }
}

fn measure(rate: f64, run: Duration) -> io::Result<(f64, f64, f64)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let (began, sent_before) = (Instant::now(), sent_bytes()?);
    let count = (rate * run.as_secs_f64()) as u64;
    // An event is the nanosecond it is due at.
    let source = thread::spawn(move || -> io::Result<()> {
        for number in 0..count {
            let due = Duration::from_secs_f64(number as f64 / rate);
            thread::sleep((began + due).saturating_duration_since(Instant::now()));
            sender.write_all(&(due.as_nanos() as u64).to_le_bytes())?;
        }
        Ok(())
    });
    let (mut latencies, mut event) = (Vec::with_capacity(count as usize), [0; 8]);
    for _ in 0..count {
        receiver.read_exact(&mut event)?;
        let due = Duration::from_nanos(u64::from_le_bytes(event));
        latencies.push((began + due).elapsed().as_secs_f64() * 1e3);
    }
    source.join().expect("the source does not panic")?;
    let sent = (sent_bytes()? - sent_before) as f64;
    let used = 8.0 * sent / LIMIT_BITS_PER_S / began.elapsed().as_secs_f64();
    let mean_ms = latencies.iter().sum::<f64>() / latencies.len() as f64;
    Ok((mean_ms, crate::stats::quantile(&latencies, 0.99), used))
}

/// Bytes that the loopback of this namespace has sent, headers included.
fn sent_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/net/dev")?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("lo:"));
    let sent = line.and_then(|line| line.split_whitespace().nth(8)?.parse().ok());
    sent.ok_or_else(|| io::Error::other("the loopback has no counters"))
}
