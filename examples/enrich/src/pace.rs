//! A rate limit: turns that lie at least a certain time apart, in the order asked for. Its clock is the program's, so
//! that it can be tested on virtual time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use comporta::{AsyncCx, Time};

pub(crate) struct Pace {
    apart: Duration,
    /// When the next turn is, if one was asked for before.
    next: Mutex<Option<Time>>,
}

impl Pace {
    pub(crate) fn per_second(rate: f64) -> Self {
        Pace { apart: Duration::from_secs_f64(1.0 / rate), next: Mutex::new(None) }
    }

    /// Waits for the turn of whoever asks.
    pub(crate) async fn turn(&self, cx: &AsyncCx) {
        let now = cx.now();
        let turn = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = next.map_or(now, |next| next.max(now));
            *next = Some(turn + self.apart);
            turn
        };
        cx.sleep(turn.duration_since(now)).await;
    }
}
