//! The command, and its end: SIGTERM while requests are in flight.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};

use crate::client::{BOUND, quote, until};

const ORDER: &str = r#"{"item": "sugar", "quantity": 1}"#;

/// The command, and where it listens. It would end if nobody could read what it prints any more.
struct Api {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    address: SocketAddr,
}

fn api(args: &[&str]) -> Api {
    let mut command = Command::new(env!("CARGO_BIN_EXE_api"));
    command.args(["run", "--listen", "127.0.0.1:0"]).args(args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").expect("it says where");
    let address = address.parse().unwrap();
    until("it answers", || quote(address, ORDER).status == 200); // 503 until its graph has started
    Api { child, _stdout: stdout, address }
}

#[test]
fn requests_in_flight_are_answered_after_a_sigterm() {
    let slow = ["--takes", "400", "--set", "stage.price.timeout=1m"];
    let bounds = ["--set", "stage.quotes.deadline=1m", "--set", "stage.quotes.in_flight=2"];
    let Api { mut child, _stdout, address } = api(&[&slow[..], &bounds].concat());
    let (said, responses) = mpsc::channel();
    // One of three is too many, and hears so at once: the others are in flight. On a slow machine they may come one
    // after the other, and all be answered: then again.
    let in_flight = (0..50).any(|_| {
        for _ in 0..3 {
            let said = said.clone();
            std::thread::spawn(move || said.send(quote(address, ORDER)));
        }
        let first = responses.recv_timeout(BOUND).unwrap();
        if first.status == 503 && first.body.contains("too many requests") {
            return true;
        }
        (0..2).for_each(|_| drop(responses.recv_timeout(BOUND).unwrap()));
        false
    });
    assert!(in_flight, "no three requests at once in fifty tries");
    let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    for _ in 0..2 {
        let answered = responses.recv_timeout(BOUND).unwrap();
        assert_eq!(answered.status, 200, "{answered:?}");
        assert!(answered.body.contains(r#""cents":110"#), "{answered:?}");
    }
    until("the end of the command", || TcpStream::connect(address).is_err());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut summary = String::new();
    child.stderr.take().unwrap().read_to_string(&mut summary).unwrap();
    assert!(summary.contains("api: drained on SIGTERM after "), "{summary}");
}

#[test]
fn an_address_that_is_taken_is_one_sentence_and_exit_code_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_api"))
        .args(["run", "--listen", &address])
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("server") && message.contains("in use"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn the_plan_beside_it_says_what_the_program_does_without_one() {
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/api.toml");
    let output =
        Command::new(env!("CARGO_BIN_EXE_api")).args(["plan", "--diff", plan]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let differs = String::from_utf8(output.stdout).unwrap();
    assert!(!differs.contains("stage."), "{differs}");
}
