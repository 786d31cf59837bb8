//! The program with callbacks, on a bare event loop. A call takes a function that is called with its
//! reply; whatever must be known then is moved into it. `Net` owns all connections and is handed to every
//! callback, because a callback that keeps a connection would borrow it twice.

use crate::protocol::{Call, CallError, FRAME_MAX, Frame, Reply, decode, encode};
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
        let over = self.receive(token);
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
        if over {
            self.close(token);
        }
    }

    /// Reads what is there; returns whether the connection is over.
    fn receive(&mut self, token: Token) -> bool {
        let Some(connection) = self.connections.get_mut(&token) else { return true };
        let mut buffer = [0; 512];
        loop {
            match connection.stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(read) => connection.incoming.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return false,
                Err(_) => return true,
            }
            if connection.incoming.len() > FRAME_MAX {
                return true;
            }
        }
    }

    fn next_frame(&mut self, token: Token) -> Option<io::Result<Frame>> {
        let incoming = &mut self.connections.get_mut(&token)?.incoming;
        let end = incoming.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = incoming.drain(..=end).collect();
        Some(decode(&line))
    }

    fn serve(&mut self, token: Token, id: u32, call: Call) {
        let Some(connection) = self.connections.get(&token) else { return };
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

    fn reply(&mut self, token: Token, id: u32, reply: Reply) {
        self.send(token, &Frame::Reply { id, reply });
    }

    fn send(&mut self, token: Token, frame: &Frame) {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.outgoing.extend(encode(frame));
            self.flush(token);
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
