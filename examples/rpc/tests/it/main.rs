//! Remote calls in both styles: the same result, nested calls, and peers that die.

#![expect(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

use comporta_scheduler::net::{TcpListener, TcpStream};
use comporta_scheduler::{Scheduler, spawn, yield_now};
use rpc::peer::Peer;
use rpc::protocol::{CALLS_MAX, Call, CallError, Reply};
use rpc::{Load, Report, callbacks, raise_descriptors, sequential};
use std::cell::Cell;
use std::io::Write;
use std::process::Command;
use std::rc::Rc;

fn total(items: &[&str]) -> Call {
    Call::Total { items: items.iter().map(|item| (*item).to_owned()).collect() }
}

/// Two ends of a connection; the second answers calls with `serve`.
fn connected(
    serve: impl Fn(&Peer, Call) -> Reply + 'static,
    serve_other: impl Fn(&Peer, Call) -> Reply + 'static,
) -> (Rc<Peer>, Rc<Peer>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    (Peer::start(one, serve).unwrap().0, Peer::start(other, serve_other).unwrap().0)
}

fn refuses(_: &Peer, _: Call) -> Reply {
    Err("not now".to_owned())
}

#[test]
fn a_thousand_clients_are_served_on_one_thread_in_both_styles() {
    raise_descriptors();
    for load in [
        Load { clients: 1_000, dying: 10, items: 3 },
        Load { clients: 1, dying: 0, items: 0 },
        Load { clients: 5, dying: 5, items: 2 },
        Load { clients: 0, dying: 0, items: 1 },
    ] {
        assert_eq!(sequential::run(load).unwrap(), load.expected(), "{load:?}");
        assert_eq!(callbacks::run(load).unwrap(), load.expected(), "{load:?}");
    }
    let few = Load { clients: 3, dying: 1, items: 2 }.expected();
    assert_eq!(few, Report { answered: 2, sum: (2 + 3) + (3 + 4), broken: 1 });
}

#[test]
fn calls_nest_as_deep_as_both_ends_like() {
    /// Calls back with one item less, until there is none.
    fn nested(peer: &Peer, call: Call) -> Reply {
        let Call::Total { mut items } = call else { return Err("no".to_owned()) };
        match items.pop() {
            None => Ok(0),
            Some(_) => peer
                .call(Call::Total { items })
                .map(|below| below + 1)
                .map_err(|error| error.to_string()),
        }
    }
    let depth = Scheduler::new().unwrap().block_on(|| {
        let (one, other) = connected(nested, nested);
        let depth = one.call(total(&["item"; 2 * CALLS_MAX - 1]));
        other.close();
        depth
    });
    assert_eq!(depth.unwrap(), Ok(2 * CALLS_MAX as u64 - 1));
}

#[test]
fn calls_beyond_the_bound_are_refused_and_the_others_served() {
    let answers = Scheduler::new().unwrap().block_on(|| {
        let open = Rc::new(Cell::new(false));
        let gate = open.clone();
        let slow = move |_: &Peer, _: Call| {
            while !gate.get() {
                yield_now();
            }
            Ok(1)
        };
        let (caller, _served) = connected(refuses, slow);
        let calls: Vec<_> = (0..CALLS_MAX + 3)
            .map(|_| {
                let (caller, open) = (caller.clone(), open.clone());
                spawn(move || {
                    let answer = caller.call(total(&[]));
                    open.set(true); // a refusal comes first
                    answer
                })
                .unwrap()
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect::<Vec<_>>()
    });
    let answers = answers.unwrap();
    let refused = CallError::Refused("too many calls at once".to_owned());
    assert_eq!(answers.iter().filter(|answer| **answer == Ok(1)).count(), CALLS_MAX);
    assert_eq!(answers.iter().filter(|answer| **answer == Err(refused.clone())).count(), 3);
}

#[test]
fn every_call_that_waits_is_told_when_the_peer_dies() {
    Scheduler::new()
        .unwrap()
        .block_on(|| {
            let dies = |peer: &Peer, _: Call| {
                peer.close();
                Ok(0)
            };
            let (caller, _other) = connected(refuses, dies);
            let calls: Vec<_> = (0..5)
                .map(|_| {
                    let caller = caller.clone();
                    spawn(move || caller.call(total(&[]))).unwrap()
                })
                .collect();
            for call in calls {
                assert_eq!(call.join().unwrap(), Err(CallError::Gone));
            }
            assert_eq!(caller.call(total(&[])), Err(CallError::Gone));
        })
        .unwrap();
}

#[test]
fn a_stranger_on_the_socket_ends_only_its_own_connection() {
    Scheduler::new()
        .unwrap()
        .block_on(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let mut stranger = TcpStream::connect(address).unwrap();
            let (stream, _) = listener.accept().unwrap();
            let (peer, connection) = Peer::start(stream, refuses).unwrap();
            stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            assert!(connection.join().unwrap().is_err());
            assert_eq!(peer.call(total(&[])), Err(CallError::Gone));
        })
        .unwrap();
}

#[test]
fn the_command_runs_both_styles() {
    for style in ["sequential", "callbacks"] {
        let output = Command::new(env!("CARGO_BIN_EXE_rpc"))
            .args(["--style", style, "--clients", "20", "--dying", "2"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        assert!(text.starts_with("18 clients were told a total"), "{text}");
        assert!(text.contains("2 died, and the shop noticed 2"), "{text}");
    }
}
