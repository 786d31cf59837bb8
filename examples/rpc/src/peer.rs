//! One end of a connection, for coroutines. [`Peer::call`] sends a call and returns its reply, however
//! many other calls are under way in either direction meanwhile.
//!
//! Each connection has a coroutine that reads, one that writes, and one for each call it serves. The
//! reader is never kept waiting by a call: what is served beyond `CALLS_MAX` is refused. When the
//! connection ends, every call that waits for a reply is told so.

use crate::protocol::{CALLS_MAX, Call, CallError, Frame, OUTGOING_MAX, Reply, encode, read};
use comporta_scheduler::net::TcpStream;
use comporta_scheduler::{JoinHandle, Receiver, Sender, channel, on_end, spawn};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{self, BufReader, Write};
use std::net::Shutdown;
use std::rc::Rc;

/// One end of a connection.
pub struct Peer {
    stream: Rc<TcpStream>,
    outgoing: Sender<Frame>,
    /// Who waits for which reply; empty, and no more to be filled, when the connection has ended.
    pending: RefCell<Option<HashMap<u32, Sender<Reply>>>>,
    next_id: Cell<u32>,
    /// The calls that are served; some of them may have ended.
    serving: RefCell<Vec<JoinHandle<()>>>,
}

impl Peer {
    /// Begins to read, to write, and to answer calls of the other end with `serve`. The handle is
    /// that of the connection: it ends when the stream has, and every call that was served.
    ///
    /// # Errors
    /// If the scheduler has no coroutine left.
    pub fn start(
        stream: TcpStream,
        serve: impl Fn(&Peer, Call) -> Reply + 'static,
    ) -> io::Result<(Rc<Peer>, JoinHandle<io::Result<()>>)> {
        let stream = Rc::new(stream);
        let (outgoing, frames) = channel(OUTGOING_MAX);
        let peer = Rc::new(Peer {
            stream: stream.clone(),
            outgoing,
            pending: RefCell::new(Some(HashMap::new())),
            next_id: Cell::new(0),
            serving: RefCell::new(Vec::new()),
        });
        let writing = stream.clone();
        spawn(move || write(&writing, &frames))?;
        let reading = peer.clone();
        let reader = spawn(move || {
            let ended = reading.clone();
            on_end(move |_| drop(ended.pending.take()));
            let read = reading.read(&Rc::new(serve));
            reading.end();
            read
        })?;
        Ok((peer, reader))
    }

    /// Calls the other end, and waits for its reply.
    ///
    /// # Errors
    /// If the other end refuses the call, or is gone before it has answered.
    pub fn call(&self, call: Call) -> Result<u64, CallError> {
        let id = self.next_id.get();
        self.next_id.set(id.wrapping_add(1));
        let (sender, reply) = channel(1);
        match &mut *self.pending.borrow_mut() {
            Some(pending) => drop(pending.insert(id, sender)),
            None => return Err(CallError::Gone),
        }
        self.outgoing.send(Frame::Call { id, call }).map_err(|_| CallError::Gone)?;
        match reply.recv() {
            Ok(reply) => reply.map_err(CallError::Refused),
            Err(_) => Err(CallError::Gone),
        }
    }

    /// Ends the connection.
    pub fn close(&self) {
        // It may have been ended by the other side already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn read(
        self: &Rc<Peer>,
        serve: &Rc<impl Fn(&Peer, Call) -> Reply + 'static>,
    ) -> io::Result<()> {
        let mut from = BufReader::with_capacity(512, &*self.stream);
        while let Some(frame) = read(&mut from)? {
            match frame {
                Frame::Call { id, call } => self.serve(id, call, serve.clone())?,
                Frame::Reply { id, reply } => {
                    let waiting =
                        self.pending.borrow_mut().as_mut().and_then(|all| all.remove(&id));
                    // A reply that nobody waits for is the other end's mistake, and does no harm.
                    if let Some(waiting) = waiting {
                        let _ = waiting.try_send(reply);
                    }
                }
            }
        }
        Ok(())
    }

    /// Tells every call that waits for a reply that there will be none, and waits for those served.
    fn end(&self) {
        drop(self.pending.take());
        for call in self.serving.take() {
            // A panic of it has been printed, and concerns nobody else.
            let _ = call.join();
        }
    }

    fn serve(
        self: &Rc<Peer>,
        id: u32,
        call: Call,
        serve: Rc<impl Fn(&Peer, Call) -> Reply + 'static>,
    ) -> io::Result<()> {
        self.serving.borrow_mut().retain(|call| !call.is_finished());
        if self.serving.borrow().len() >= CALLS_MAX {
            // Not from the reader, which must not wait for the writer: it would keep replies from
            // those that the writer may be waiting for.
            let refusal = Frame::Reply { id, reply: Err("too many calls at once".to_owned()) };
            return self
                .outgoing
                .try_send(refusal)
                .map_err(|_| io::ErrorKind::QuotaExceeded.into());
        }
        let peer = self.clone();
        let served = spawn(move || {
            let reply = serve(&peer, call);
            // The other end may be gone, and then nobody wants it.
            let _ = peer.outgoing.send(Frame::Reply { id, reply });
        })?;
        self.serving.borrow_mut().push(served);
        Ok(())
    }
}

fn write(stream: &TcpStream, frames: &Receiver<Frame>) -> io::Result<()> {
    let mut to: &TcpStream = stream;
    for frame in frames.iter() {
        to.write_all(&encode(&frame))?;
    }
    Ok(())
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("stream", &self.stream).finish_non_exhaustive()
    }
}
