//! What is known already. Of events that ask for the same address at once, one asks the directory, and the others
//! wait for its answer; if it fails or is dropped, the next of them asks. Failures are not kept.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use comporta::Result;
use tokio::sync::OnceCell;

pub(crate) struct Cache {
    most: usize,
    known: Mutex<HashMap<Ipv4Addr, Arc<OnceCell<String>>>>,
    asked: AtomicU64,
    hits: AtomicU64,
}

impl Cache {
    /// Keeps at most so many answers.
    pub(crate) fn new(most: usize) -> Self {
        Cache { most, known: Mutex::default(), asked: AtomicU64::new(0), hits: AtomicU64::new(0) }
    }

    /// The answer that is known, or else what `ask` returns.
    pub(crate) async fn get(
        &self,
        address: Ipv4Addr,
        ask: impl Future<Output = Result<String>>,
    ) -> Result<String> {
        let cell = self.cell(address);
        let mut hit = true;
        let asked = async {
            hit = false;
            self.asked.fetch_add(1, Relaxed);
            ask.await
        };
        let country = cell.get_or_try_init(|| asked).await?.clone();
        self.hits.fetch_add(u64::from(hit), Relaxed);
        Ok(country)
    }

    /// How often the directory was asked, and how many events needed no question of their own.
    pub(crate) fn asked_and_hits(&self) -> (u64, u64) {
        (self.asked.load(Relaxed), self.hits.load(Relaxed))
    }

    fn cell(&self, address: Ipv4Addr) -> Arc<OnceCell<String>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= self.most && !known.contains_key(&address) {
            known.clear(); // the simplest bound that holds; events that wait keep their cells
        }
        known.entry(address).or_default().clone()
    }
}
