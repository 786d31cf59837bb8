//! Copies of what a port sends, for a test to look at.

use std::fmt;

use comporta_model::port::AsPort;

use crate::app::App;
use crate::sync::{Arc, Mutex};

/// Copies of the events that a port sent, in order.
#[derive(Clone)]
pub struct Recorder<T>(Arc<Mutex<Vec<T>>>);

/// Records the events that a port sends. Call it before the app becomes a
/// [`TestRuntime`](super::TestRuntime).
pub fn record<T: Clone + Send + 'static>(app: &App, port: impl AsPort<T>) -> Recorder<T> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let recorder = Recorder(seen.clone());
    app.watch(port.as_port(), Arc::new(move |event: &T| seen.lock().push(event.clone())));
    recorder
}

impl<T> Recorder<T> {
    /// Takes the events that were recorded since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl<T> fmt::Debug for Recorder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("events", &self.0.lock().len()).finish()
    }
}
