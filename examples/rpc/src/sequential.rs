//! The program as coroutines: a shop and its clients, all on one thread.

use crate::peer::Peer;
use crate::protocol::{Call, CallError, Reply};
use crate::{Load, Report, price};
use comporta_scheduler::net::{TcpListener, TcpStream};
use comporta_scheduler::{JoinHandle, Scheduler, spawn};
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

/// Stacks hold no more than frames of JSON here.
const STACK_SIZE: usize = 256 * 1024;

/// Runs a shop and all of its clients.
///
/// # Errors
/// If the system has no sockets or no memory for them.
pub fn run(load: Load) -> io::Result<Report> {
    let mut scheduler = Scheduler::builder().stack_size(STACK_SIZE).build()?;
    scheduler.block_on(move || shop_and_clients(load)).map_err(failed)?
}

fn shop_and_clients(load: Load) -> io::Result<Report> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let shop = spawn(move || shop(&listener, load.clients))?;
    let clients = (0..load.clients).map(|number| spawn(move || client(address, load, number)));
    let clients = clients.collect::<io::Result<Vec<JoinHandle<_>>>>()?;
    let mut report = Report::default();
    for client in clients {
        if let Some(total) = client.join().map_err(failed)?? {
            report.answered += 1;
            report.sum += total;
        }
    }
    report.broken = shop.join().map_err(failed)??;
    Ok(report)
}

/// Serves so many connections to their end; returns how many totals it could not finish.
fn shop(listener: &TcpListener, connections: usize) -> io::Result<usize> {
    let broken = Rc::new(Cell::new(0));
    let mut served = Vec::new();
    for _ in 0..connections {
        let (stream, _) = listener.accept()?;
        let broken = broken.clone();
        let (_, connection) = Peer::start(stream, move |peer, call| serve(peer, call, &broken))?;
        served.push(connection);
    }
    for connection in served {
        // How it ended is the client's affair: a peer that dies resets it.
        let _ = connection.join().map_err(failed)?;
    }
    Ok(broken.get())
}

fn serve(client: &Peer, call: Call, broken: &Cell<usize>) -> Reply {
    match call {
        Call::Total { items } => total(client, items).map_err(|error| {
            broken.set(broken.get() + 1);
            error.to_string()
        }),
        Call::Price { .. } => Err("the shop knows no prices".to_owned()),
    }
}

/// Calls back for each price, while the client's call is suspended: here, and there.
fn total(client: &Peer, items: Vec<String>) -> Result<u64, CallError> {
    let mut total = 0;
    for item in items {
        total += client.call(Call::Price { item })?;
    }
    Ok(total)
}

/// What one client is told; `None` if it dies.
fn client(address: SocketAddr, load: Load, number: usize) -> io::Result<Option<u64>> {
    let dies = load.dies(number);
    let stream = TcpStream::connect(address)?;
    let (shop, connection) = Peer::start(stream, move |shop, call| match call {
        Call::Price { .. } if dies => {
            shop.close();
            Err("dead".to_owned())
        }
        Call::Price { item } => price(&item).ok_or_else(|| format!("`{item}` has no price")),
        Call::Total { .. } => Err("this is not a shop".to_owned()),
    })?;
    let total = shop.call(Call::Total { items: load.basket(number) });
    shop.close();
    let _ = connection.join().map_err(failed)?;
    match total {
        Ok(total) => Ok(Some(total)),
        Err(CallError::Gone) if dies => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

fn failed(failure: comporta_scheduler::Failure) -> io::Error {
    io::Error::other(failure.to_string())
}
