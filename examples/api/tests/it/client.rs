//! An HTTP client of a few lines, on threads; and waits with a bound.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long anything here may take.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

/// `POST /quotes`, on a connection of its own.
pub(crate) fn quote(server: SocketAddr, body: &str) -> Response {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /quotes HTTP/1.1\r\nHost: api\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head: head.to_owned(), body: body.to_owned() }
}

/// So many orders at once, each on a thread of its own.
pub(crate) fn quotes(server: SocketAddr, n: usize) -> Vec<JoinHandle<Response>> {
    let order = r#"{"item": "tea", "quantity": 1}"#;
    (0..n).map(|_| std::thread::spawn(move || quote(server, order))).collect()
}

pub(crate) fn all(asked: Vec<JoinHandle<Response>>) -> Vec<Response> {
    asked.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Waits until it holds, and no longer than the bound.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let (_open, never) = std::sync::mpsc::channel::<()>();
    let tick = Duration::from_millis(1);
    let held = (0..BOUND.as_millis()).any(|_| holds() || never.recv_timeout(tick).is_ok());
    assert!(held, "{what}: not within {BOUND:?}");
}
