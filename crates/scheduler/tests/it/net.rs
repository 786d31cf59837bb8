//! Sockets that read like blocking ones, with ordinary libraries on them.

use crate::{Log, scheduler};
use comporta_scheduler::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use comporta_scheduler::{Step, now, sleep, spawn, yield_now};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 512];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n])?,
        }
    }
}

#[test]
fn a_hundred_connections_echo_on_one_thread() {
    let mut scheduler = crate::real_scheduler();
    scheduler
        .block_on(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            spawn(move || {
                loop {
                    let (stream, _) = listener.accept().unwrap();
                    spawn(|| echo(stream)).unwrap();
                }
            })
            .unwrap();
            let clients: Vec<_> = (0..100_u32)
                .map(|n| {
                    let client = move || {
                        let mut stream = TcpStream::connect(address).unwrap();
                        let message: Vec<u8> = (0..2000).map(|i| (n + i) as u8).collect();
                        stream.write_all(&message).unwrap();
                        let mut back = vec![0; message.len()];
                        stream.read_exact(&mut back).unwrap();
                        assert_eq!(back, message);
                    };
                    spawn(client).unwrap()
                })
                .collect();
            clients.into_iter().for_each(|client| client.join().unwrap());
        })
        .unwrap();
}

#[test]
fn megabytes_pass_through_a_socket_that_is_often_full() {
    let mut scheduler = crate::real_scheduler();
    let total = scheduler.block_on(|| {
        let (mut writer, mut reader) = UnixStream::pair().unwrap();
        let sent: Vec<u8> = (0..4_000_000_u32).map(|i| (i * 7) as u8).collect();
        let expected = sent.clone();
        let written = spawn(move || writer.write_all(&sent)).unwrap();
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        written.join().unwrap().unwrap();
        assert!(all == expected);
        all.len()
    });
    assert_eq!(total.unwrap(), 4_000_000);
}

#[test]
fn ordinary_libraries_suspend_the_coroutine_from_inside() {
    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Message {
        number: u32,
        words: Vec<String>,
    }
    let mut scheduler = crate::real_scheduler();
    scheduler
        .block_on(|| {
            let (one, other) = UnixStream::pair().unwrap();
            let reading = spawn(move || {
                let first: Message = serde_json::Deserializer::from_reader(&other)
                    .into_iter()
                    .next()
                    .unwrap()
                    .unwrap();
                let mut line = String::new();
                BufReader::new(&other).read_line(&mut line).unwrap();
                (first, line)
            });
            let text = r#"{"number": 3, "words": ["a", "b"]}"#;
            for byte in text.bytes() {
                (&one).write_all(&[byte]).unwrap();
                yield_now();
            }
            (&one).write_all(b"and a line\n").unwrap();
            let words = vec!["a".to_owned(), "b".to_owned()];
            let expected = (Message { number: 3, words }, "and a line\n".to_owned());
            assert_eq!(reading.unwrap().join().unwrap(), expected);
        })
        .unwrap();
}

#[test]
fn time_limits_end_reads_writes_accepts_and_connects() {
    let kind = |result: io::Result<usize>| result.unwrap_err().kind();
    scheduler()
        .block_on(move || {
            let (mut ours, _theirs) = UnixStream::pair().unwrap();
            ours.set_read_timeout(Some(SECOND)).unwrap();
            ours.set_write_timeout(Some(SECOND)).unwrap();
            assert_eq!(kind(ours.read(&mut [0])), io::ErrorKind::TimedOut);
            let full = ours.write_all(&vec![0; 10_000_000]).unwrap_err();
            assert_eq!(full.kind(), io::ErrorKind::TimedOut);
            assert!(ours.set_read_timeout(Some(Duration::ZERO)).is_err());

            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let refused = listener.accept_timeout(SECOND).map(|_| 0);
            assert_eq!(kind(refused), io::ErrorKind::TimedOut);
            // It is usable after that.
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
            drop(server);
        })
        .unwrap();
}

#[test]
fn connecting_where_nobody_listens_is_an_error() {
    let mut scheduler = crate::real_scheduler();
    let error = scheduler.block_on(|| {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        TcpStream::connect(address).unwrap_err().kind()
    });
    assert_eq!(error.unwrap(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn the_end_of_a_stream_and_a_peer_that_is_gone_are_noticed() {
    let mut scheduler = crate::real_scheduler();
    scheduler
        .block_on(|| {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let reading = spawn(move || {
                let mut all = String::new();
                ours.read_to_string(&mut all).map(|_| (all, ours))
            });
            yield_now();
            (&theirs).write_all(b"last words").unwrap();
            theirs.shutdown(Shutdown::Write).unwrap();
            let (all, mut ours) = reading.unwrap().join().unwrap().unwrap();
            assert_eq!(all, "last words");
            drop(theirs);
            assert_eq!(ours.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        })
        .unwrap();
}

#[test]
fn one_coroutine_reads_while_another_writes_the_same_stream() {
    let mut scheduler = crate::real_scheduler();
    scheduler
        .block_on(|| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (ours, theirs) = (Rc::new(ours), Rc::new(theirs));
            let ends = [(ours.clone(), theirs.clone()), (theirs, ours)];
            let directions: Vec<_> = ends
                .into_iter()
                .map(|(to, from)| {
                    let writing = spawn(move || (&*to).write_all(&vec![1; 1_000_000])).unwrap();
                    let reading =
                        spawn(move || (&*from).read_exact(&mut vec![0; 1_000_000])).unwrap();
                    (writing, reading)
                })
                .collect();
            for (writing, reading) in directions {
                writing.join().unwrap().unwrap();
                reading.join().unwrap().unwrap();
            }
        })
        .unwrap();
}

#[test]
fn two_coroutines_that_read_the_same_stream_both_hear_of_its_end() {
    let mut scheduler = crate::real_scheduler();
    scheduler
        .block_on(|| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let ours = Rc::new(ours);
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let ours = ours.clone();
                    spawn(move || (&*ours).read(&mut [0])).unwrap()
                })
                .collect();
            yield_now();
            drop(theirs);
            readers.into_iter().for_each(|reader| assert_eq!(reader.join().unwrap().unwrap(), 0));
        })
        .unwrap();
}

#[test]
fn outside_of_a_coroutine_a_socket_does_not_wait() {
    let mut scheduler = crate::real_scheduler();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    assert_eq!(ours.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    // And is used inside of one afterwards, with what came before.
    theirs.write_all(b"early").unwrap();
    let read = scheduler.block_on(move || {
        let mut buffer = [0; 5];
        ours.read_exact(&mut buffer).map(|()| buffer)
    });
    assert_eq!(&read.unwrap().unwrap(), b"early");
}

#[test]
fn a_socket_that_comes_to_another_scheduler_is_at_home_there() {
    let (mut first, mut second) = (crate::real_scheduler(), crate::real_scheduler());
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let ours = Rc::new(ours);
    let reading = ours.clone();
    let waits = first.spawn(move || (&*reading).read(&mut [0])).unwrap();
    assert!(matches!(first.step().unwrap(), Step::Resumed));
    let reading = ours.clone();
    let read = second.block_on(move || {
        let late = spawn(move || {
            yield_now();
            theirs.write_all(&[1, 2]).unwrap();
            theirs
        });
        let mut byte = [0];
        let read = (&*reading).read(&mut byte).map(|_| byte[0]);
        (read, late.unwrap().join().unwrap())
    });
    let (read, _theirs) = read.unwrap();
    assert_eq!(read.unwrap(), 1);
    // What waited in the first one has an error: it does not take the socket back.
    while !waits.is_finished() {
        assert!(matches!(first.step().unwrap(), Step::Resumed));
    }
    let refused = waits.join().unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "another scheduler has taken the socket over");
}

#[test]
fn unix_listeners_accept() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("accepts.sock");
    let _ = std::fs::remove_file(&path);
    let mut scheduler = crate::real_scheduler();
    scheduler
        .block_on(move || {
            let listener = UnixListener::bind(&path).unwrap();
            let accepted = spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut all = String::new();
                stream.read_to_string(&mut all).unwrap();
                all
            });
            yield_now();
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(b"hello").unwrap();
            drop(stream);
            assert_eq!(accepted.unwrap().join().unwrap(), "hello");
        })
        .unwrap();
}

#[test]
fn a_drop_that_must_write_while_its_coroutine_unwinds_gets_an_error_and_no_hang() {
    /// Says goodbye, to a peer that does not read.
    struct Goodbye(UnixStream, Log);
    impl Drop for Goodbye {
        fn drop(&mut self) {
            let said = self.0.write_all(&vec![0; 10_000_000]);
            self.1.add(said.map_or_else(|error| error.to_string(), |()| "said".to_owned()));
        }
    }
    let (mut scheduler, log) = (scheduler(), Log::default());
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let goodbye = Goodbye(ours, log.clone());
    let handle = scheduler
        .spawn(move || {
            let _goodbye = goodbye;
            sleep(SECOND);
        })
        .unwrap();
    assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
    handle.cancel();
    scheduler.run().unwrap();
    assert_eq!(log.lines(), ["the coroutine is unwinding, so it cannot wait"]);
}

#[test]
fn a_stream_that_always_has_more_lets_others_go_first_all_the_same() {
    let mut scheduler = crate::real_scheduler();
    let others = Rc::new(Cell::new(0));
    let counted = others.clone();
    scheduler
        .spawn(move || {
            loop {
                counted.set(counted.get() + 1);
                yield_now();
            }
        })
        .unwrap();
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let before = others.clone();
    let turns = scheduler.block_on(move || {
        let began = before.get();
        for _ in 0..1000 {
            theirs.write_all(&[0; 2]).unwrap();
            ours.read_exact(&mut [0; 2]).unwrap(); // never has to wait
        }
        before.get() - began
    });
    assert!(turns.unwrap() >= 2000 / 129);
}

#[test]
fn connecting_outside_of_a_coroutine_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let kind = |connected: io::Result<TcpStream>| connected.unwrap_err().kind();
    assert_eq!(kind(TcpStream::connect(address)), io::ErrorKind::WouldBlock);
    assert_eq!(kind(TcpStream::connect_timeout(&address, SECOND)), io::ErrorKind::WouldBlock);
}

#[test]
fn connecting_to_a_unix_listener_with_a_full_backlog_waits_for_room() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("full.sock");
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    // Outside of a coroutine nothing waits: this is how full it can be.
    let mut backlog = Vec::new();
    let full = loop {
        match UnixStream::connect(&path) {
            Ok(stream) => backlog.push(stream),
            Err(error) => break error,
        }
        assert!(backlog.len() < 10_000, "the backlog has no bound here");
    };
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    scheduler()
        .block_on(move || {
            let late = UnixStream::connect_timeout(&path, SECOND).unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut);
            let began = now();
            let accepting = spawn(move || {
                sleep(SECOND);
                listener.accept().unwrap();
                listener
            });
            UnixStream::connect(&path).unwrap();
            assert!(now() - began >= SECOND, "there was no room before");
            drop(accepting.unwrap().join().unwrap());
        })
        .unwrap();
}
