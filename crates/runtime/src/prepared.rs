//! Prepared keyed stages: `App::prepared` and `App::keyed_prepared` add two stages, an ordered one that prepares events
//! side by side, and the keyed one that handles them. Before: `app`. The step itself is in `comporta_model::keyed`.
//! Invariant: the first passes every event on, in the order in which they came.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;

use comporta_model::error::{Outcome, Result};
use comporta_model::event::Event;
use comporta_model::failed::Failed;
use comporta_model::keyed::{Ahead, KeyedFn, KeyedStage, Prepared, Preparing};
use comporta_model::port::{AsInput, AsPort, Out, Port, Ports, StageKey};

use crate::app::{App, StageRef};
use crate::env::cpus;

/// A handle to a keyed stage whose events are prepared. A connector ends at the stage that prepares, and starts at the
/// keyed one, whose ports are fields of the handle.
pub struct PreparedRef<'a, I: Send + 'static, V: Send + 'static, P: Ports> {
    first: StageRef<'a, I, Out<Prepared<I, V>>>,
    then: StageRef<'a, Prepared<I, V>, P>,
}

impl<I: Send + 'static, V: Send + 'static, P: Ports> Clone for PreparedRef<'_, I, V, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<I: Send + 'static, V: Send + 'static, P: Ports> Copy for PreparedRef<'_, I, V, P> {}

impl<I: Send + 'static, V: Send + 'static, P: Ports> fmt::Debug for PreparedRef<'_, I, V, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PreparedRef").field(&self.then).finish()
    }
}

impl<I: Send + 'static, V: Send + 'static, P: Ports> Deref for PreparedRef<'_, I, V, P> {
    type Target = P::Refs;
    fn deref(&self) -> &P::Refs {
        &self.then
    }
}

impl<I: Send + 'static, V: Send + 'static, T: Send + 'static> AsPort<T>
    for PreparedRef<'_, I, V, Out<T>>
{
    fn as_port(&self) -> Port<T> {
        self.then.as_port()
    }
}

impl<I: Send + 'static, V: Send + 'static, P: Ports> AsInput<I> for PreparedRef<'_, I, V, P> {
    fn as_input(&self) -> StageKey {
        self.first.as_input()
    }
}

impl<'a, I: Send + 'static, V: Send + 'static, P: Ports> PreparedRef<'a, I, V, P> {
    /// Returns the handle of the stage that prepares.
    #[must_use]
    pub fn prepare_stage(&self) -> StageRef<'a, I, Out<Prepared<I, V>>> {
        self.first
    }

    /// Returns the handle of the keyed stage.
    #[must_use]
    pub fn keyed_stage(&self) -> StageRef<'a, Prepared<I, V>, P> {
        self.then
    }

    /// Returns the error port of the keyed stage: see [`StageRef::errors`]. Events whose step fails leave there too.
    #[must_use]
    pub fn errors(&self) -> Port<Failed<Prepared<I, V>>> {
        self.then.errors()
    }
}

impl App {
    /// Adds a keyed stage whose events are prepared side by side, also those of one key, before each is handled in its
    /// turn: `prepare` does what needs no order and no state, such as decoding. Its value is the event that `stage`
    /// handles.
    ///
    /// `key` returns the key of an event as it comes, in place of the key of `stage`, so that an event that cannot be
    /// prepared has a key too. Such an event fails in its turn, as one that `stage` fails to handle: it is retried, held
    /// and reported as the plan says of the stage. `prepare` may be called several times for an event: again in the turn
    /// of an event for which it failed ahead, and at each retry.
    ///
    /// Two stages are added: `NAME-prepare`, with as many instances as there are processors unless the plan says
    /// otherwise, and `NAME`. The first is [ordered](StageRef::ordered): a call of `prepare` that takes longer than others
    /// delays the events behind it, of whichever key.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::{plan::Plan, port::Out}; pub use comporta_runtime::App; }
    /// use comporta::{App, Out, Plan};
    ///
    /// let app = App::new("sums");
    /// let lines = app.source("lines", || ["a 1", "b 2", "a 3", "a x"].map(String::from).into_iter());
    /// let sums = app.keyed_prepared(
    ///     "sums",
    ///     |line: &String| line.chars().next(),
    ///     |line: &String| Ok(line[2..].parse::<u64>()?), // side by side
    ///     |sum: &mut u64, n: u64, out: &mut Out<u64>| {
    ///         *sum += n;
    ///         out.send(*sum); // in order
    ///     },
    /// );
    /// let show = app.sink("show", |sum: u64| println!("{sum}"));
    /// app.connect(lines, sums);
    /// app.connect(sums, show);
    /// let summary = app.run(&Plan::new().stage("sums", |sums| sums.instances(4)))?;
    /// let counts = summary.snapshot.stage("sums").unwrap().counts;
    /// assert_eq!((counts.handled, counts.failed), (3, 1)); // "a x"
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    pub fn prepared<I, S, KF, PF>(
        &self,
        name: impl Into<String>,
        key: KF,
        prepare: PF,
        stage: S,
    ) -> PreparedRef<'_, I, S::In, S::Ports>
    where
        I: Event,
        S: KeyedStage,
        KF: Fn(&I) -> S::Key + Clone + Send + Sync + 'static,
        PF: Fn(&I) -> Result<S::In> + Clone + Send + Sync + 'static,
    {
        let name = name.into();
        let first = self.stage(format!("{name}-prepare"), Ahead::new(prepare.clone()));
        let first = first.ordered().with_instances(cpus());
        let then = self.stage(name, Preparing::new(stage, key, prepare));
        self.connect(first, then);
        PreparedRef { first, then }
    }

    /// As [`prepared`](Self::prepared), of a closure that handles an event with the state of its key, as that of
    /// [`keyed`](Self::keyed) does.
    pub fn keyed_prepared<I, K, V, S, P, R, KF, PF, F>(
        &self,
        name: impl Into<String>,
        key: KF,
        prepare: PF,
        call: F,
    ) -> PreparedRef<'_, I, V, P>
    where
        I: Event,
        K: Hash + Eq + Send + Sync + 'static,
        V: Send + 'static,
        S: Default + Send + 'static,
        P: Ports,
        R: Outcome + 'static,
        KF: Fn(&I) -> K + Clone + Send + Sync + 'static,
        PF: Fn(&I) -> Result<V> + Clone + Send + Sync + 'static,
        F: FnMut(&mut S, V, &mut P) -> R + Clone + Send + Sync + 'static,
    {
        let stage = KeyedFn::<fn(&V) -> K, F, V, K, S, P, R>::new(no_key, call);
        self.prepared(name, key, prepare, stage)
    }
}

fn no_key<V, K>(_: &V) -> K {
    unreachable!("the key is that of the event as it came")
}
