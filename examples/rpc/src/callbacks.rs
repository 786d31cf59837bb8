//! The program with callbacks, on a bare event loop. A call takes a function that is called with its
//! reply; whatever must be known then is moved into it. `Net` owns all connections and is handed to every
//! callback, because a callback that keeps a connection would borrow it twice.

use crate::protocol::{
    CALLS_MAX, Call, CallError, FRAME_MAX, Frame, OUTGOING_MAX, Reply, decode, encode,
};
use crate::{Load, Report, price};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::SocketAddr;

type OnReply = Box<dyn FnOnce(&mut Net, Result<u64, CallError>)>;

#[derive(Clone, Copy)]
enum Role {
    Shop,
    Client { number: usize },
}

struct Connection {
    stream: TcpStream,
    role: Role,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    pending: HashMap<u32, OnReply>,
    next_id: u32,
    /// Calls of the other end that are not answered yet.
    serving: usize,
}

/// What one read came to.
enum Received {
    Bytes,
    Nothing,
    Over,
}

struct Net {
    poll: Poll,
    load: Load,
    connections: HashMap<Token, Connection>,
    next: usize,
    open_clients: usize,
    report: Report,
    /// The first thing that went wrong.
    error: Option<io::Error>,
}

const LISTENER: Token = Token(0);
/// Bytes that wait to be written. A coroutine that sends more waits for room; a callback cannot, and the
/// connection ends.
const OUTGOING_BYTES_MAX: usize = OUTGOING_MAX * FRAME_MAX;

/// Runs a shop and all of its clients.
///
/// # Errors
/// If the system has no sockets or no memory for them.
pub fn run(load: Load) -> io::Result<Report> {
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.local_addr()?;
    let poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut net = Net {
        poll,
        load,
        connections: HashMap::new(),
        next: 1,
        open_clients: load.clients,
        report: Report::default(),
        error: None,
    };
    for number in 0..load.clients {
        net.add(TcpStream::connect(address)?, Role::Client { number })?;
    }
    let mut events = Events::with_capacity(1024);
    while net.error.is_none() && (net.open_clients > 0 || !net.connections.is_empty()) {
        net.poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                net.accept(&listener)?;
            } else {
                net.ready(event.token());
            }
        }
    }
    net.error.map_or(Ok(net.report), Err)
}

impl Net {
    fn add(&mut self, mut stream: TcpStream, role: Role) -> io::Result<()> {
        let token = Token(self.next);
        self.next += 1;
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut stream, token, both)?;
        let connection = Connection {
            stream,
            role,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            pending: HashMap::new(),
            next_id: 0,
            serving: 0,
        };
        self.connections.insert(token, connection);
        if let Role::Client { number } = role {
            let items = self.load.basket(number);
            self.call(token, Call::Total { items }, move |net, total| {
                net.told(token, number, total);
            });
        }
        Ok(())
    }

    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            match listener.accept() {
                Ok((stream, _)) => self.add(stream, Role::Shop)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// A client has its total, or not.
    fn told(&mut self, token: Token, number: usize, total: Result<u64, CallError>) {
        match total {
            Ok(total) => {
                self.report.answered += 1;
                self.report.sum += total;
            }
            Err(CallError::Gone) if self.load.dies(number) => {}
            Err(error) => self.error = Some(io::Error::other(error)),
        }
        self.open_clients -= 1;
        self.close(token);
    }

    fn ready(&mut self, token: Token) {
        self.flush(token);
        loop {
            match self.receive(token) {
                Received::Bytes => self.handle_frames(token),
                Received::Nothing => return,
                Received::Over => return self.close(token),
            }
        }
    }

    /// Reads some of what is there.
    fn receive(&mut self, token: Token) -> Received {
        let Some(connection) = self.connections.get_mut(&token) else { return Received::Nothing };
        let mut buffer = [0; 512];
        match connection.stream.read(&mut buffer) {
            Ok(0) => Received::Over,
            Ok(read) => {
                connection.incoming.extend_from_slice(&buffer[..read]);
                Received::Bytes
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => Received::Nothing,
                io::ErrorKind::Interrupted => Received::Bytes,
                _ => Received::Over,
            },
        }
    }

    /// Handles the frames that are complete; what is left of the next must not be too long.
    fn handle_frames(&mut self, token: Token) {
        while let Some(frame) = self.next_frame(token) {
            match frame {
                Ok(Frame::Call { id, call }) => self.serve(token, id, call),
                Ok(Frame::Reply { id, reply }) => {
                    let connection = self.connections.get_mut(&token);
                    if let Some(then) = connection.and_then(|one| one.pending.remove(&id)) {
                        then(self, reply.map_err(CallError::Refused));
                    }
                }
                Err(_) => return self.close(token),
            }
        }
        let left = self.connections.get(&token).map_or(0, |one| one.incoming.len());
        if left >= FRAME_MAX {
            self.close(token);
        }
    }

    fn next_frame(&mut self, token: Token) -> Option<io::Result<Frame>> {
        let incoming = &mut self.connections.get_mut(&token)?.incoming;
        let end = incoming.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = incoming.drain(..=end).collect();
        Some(decode(&line))
    }

    fn serve(&mut self, token: Token, id: u32, call: Call) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if connection.serving >= CALLS_MAX {
            return self.send(
                token,
                &Frame::Reply { id, reply: Err("too many calls at once".to_owned()) },
            );
        }
        connection.serving += 1;
        match (connection.role, call) {
            (Role::Shop, Call::Total { items }) => self.total(token, id, items.into_iter(), 0),
            (Role::Shop, Call::Price { .. }) => {
                self.reply(token, id, Err("the shop knows no prices".to_owned()));
            }
            (Role::Client { number }, Call::Price { .. }) if self.load.dies(number) => {
                self.close(token);
            }
            (Role::Client { .. }, Call::Price { item }) => {
                let reply = price(&item).ok_or_else(|| format!("`{item}` has no price"));
                self.reply(token, id, reply);
            }
            (Role::Client { .. }, Call::Total { .. }) => {
                self.reply(token, id, Err("this is not a shop".to_owned()));
            }
        }
    }

    /// The loop over the items, turned inside out: each turn is a callback of the one before.
    fn total(&mut self, token: Token, id: u32, mut items: std::vec::IntoIter<String>, so_far: u64) {
        let Some(item) = items.next() else { return self.reply(token, id, Ok(so_far)) };
        self.call(token, Call::Price { item }, move |net, price| match price {
            Ok(price) => net.total(token, id, items, so_far + price),
            Err(error) => {
                net.report.broken += 1;
                net.reply(token, id, Err(error.to_string()));
            }
        });
    }

    fn call(
        &mut self,
        token: Token,
        call: Call,
        then: impl FnOnce(&mut Net, Result<u64, CallError>) + 'static,
    ) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return then(self, Err(CallError::Gone));
        };
        let id = connection.next_id;
        connection.next_id = id.wrapping_add(1);
        connection.pending.insert(id, Box::new(then));
        self.send(token, &Frame::Call { id, call });
    }

    /// Answers a call that was served.
    fn reply(&mut self, token: Token, id: u32, reply: Reply) {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.serving -= 1;
        }
        self.send(token, &Frame::Reply { id, reply });
    }

    fn send(&mut self, token: Token, frame: &Frame) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        connection.outgoing.extend(encode(frame));
        let full = connection.outgoing.len() > OUTGOING_BYTES_MAX;
        self.flush(token);
        if full {
            self.close(token);
        }
    }

    fn flush(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        while !connection.outgoing.is_empty() {
            match connection.stream.write(&connection.outgoing) {
                Ok(written) => drop(connection.outgoing.drain(..written)),
                // Not yet connected, full, or over: the next event tells.
                Err(_) => return,
            }
        }
    }

    /// Forgets a connection; whoever waits for a reply is told.
    fn close(&mut self, token: Token) {
        let Some(mut connection) = self.connections.remove(&token) else { return };
        let _ = self.poll.registry().deregister(&mut connection.stream);
        for (_, then) in connection.pending {
            then(self, Err(CallError::Gone));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net;

    /// A shop with one connection; the test is the client.
    fn shop() -> (Net, net::TcpStream) {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut net = Net {
            poll: Poll::new().unwrap(),
            load: Load { clients: 0, dying: 0, items: 0 },
            connections: HashMap::new(),
            next: 1,
            open_clients: 0,
            report: Report::default(),
            error: None,
        };
        net.add(TcpStream::from_std(server), Role::Shop).unwrap();
        (net, client)
    }

    /// Lets the shop do what it does until `done`, or its connection has ended.
    fn run_until(net: &mut Net, mut done: impl FnMut(&Net) -> bool) {
        let mut events = Events::with_capacity(8);
        while !net.connections.is_empty() && !done(net) {
            net.poll.poll(&mut events, None).unwrap();
            events.iter().for_each(|event| net.ready(event.token()));
        }
    }

    fn total(id: u32, items: usize) -> Vec<u8> {
        encode(&Frame::Call { id, call: Call::Total { items: vec!["1".to_owned(); items] } })
    }

    #[test]
    fn calls_beyond_the_bound_are_refused_and_the_others_served() {
        let (mut net, mut client) = shop();
        for id in 0..CALLS_MAX as u32 + 3 {
            client.write_all(&total(id, 1)).unwrap();
        }
        let mut from = BufReader::new(client.try_clone().unwrap());
        let (mut asked, mut refused) = (0, 0);
        let mut line = Vec::new();
        run_until(&mut net, |net| net.connections[&Token(1)].serving == CALLS_MAX);
        // The last three come with the others, or after them.
        net.ready(Token(1));
        while asked + refused < CALLS_MAX + 3 {
            line.clear();
            from.read_until(b'\n', &mut line).unwrap();
            match decode(&line).unwrap() {
                Frame::Call { call: Call::Price { .. }, .. } => asked += 1,
                Frame::Reply { reply, .. } => {
                    assert_eq!(reply, Err("too many calls at once".to_owned()));
                    refused += 1;
                }
                Frame::Call { .. } => panic!("a shop asks for prices only"),
            }
        }
        assert_eq!((asked, refused), (CALLS_MAX, 3));
    }

    #[test]
    fn many_short_frames_are_served_and_one_that_is_too_long_ends_the_connection() {
        let (mut net, mut client) = shop();
        // More in all than a frame may be long, as fast as it goes.
        let frames: Vec<u8> = (0..2_000).flat_map(|id| total(id, 0)).collect();
        assert!(frames.len() > FRAME_MAX);
        let talking = std::thread::Builder::new();
        let talk = move || {
            client.write_all(&frames).unwrap();
            let (mut from, mut line) = (BufReader::new(client.try_clone().unwrap()), Vec::new());
            for id in 0..2_000 {
                line.clear();
                from.read_until(b'\n', &mut line).unwrap();
                assert_eq!(decode(&line).unwrap(), Frame::Reply { id, reply: Ok(0) });
            }
            client.write_all(&vec![b'x'; FRAME_MAX]).unwrap();
            client
        };
        let talking = talking.spawn(talk).unwrap();
        run_until(&mut net, |_| false);
        talking.join().unwrap();
        assert!(net.connections.is_empty());
    }
}
