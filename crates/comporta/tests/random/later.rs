//! Stages of a random program whose handlers wait: on a timer, for themselves, for another thread. What they do
//! when they have waited is in `site`; what becomes of a future that is dropped is told here.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use comporta::{AsyncCx, AsyncStage, AsyncStageMut, Emissions, Out, Result};

use crate::case::Case;
use crate::dice::{Dice, mix2};
use crate::event::{Event, Facts};
use crate::site::Site;

/// How the handlers of a stage wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// It moves on what it has sent before it returns.
    pub(crate) flushes: bool,
    /// Longer than most wait, and shorter than some.
    pub(crate) timeout: Option<Duration>,
}

impl Case {
    /// Makes stages of one port wait, in some cases: by dice of their own, as faults are.
    pub(crate) fn wait(&mut self, dice: &mut Dice) {
        use crate::case::Shape;
        // A handler whose event's deadline passes is dropped: it would not be known which.
        if self.sources.iter().any(|source| source.deadline.is_some()) || dice.chance(50) {
            return;
        }
        for stage in &mut self.stages {
            if stage.shape != Shape::OnePort || dice.chance(40) {
                continue;
            }
            let flushes = !stage.ordered && dice.chance(25);
            let timeout = Duration::from_micros(dice.pick(&[20, 200]));
            // What was flushed is not taken back, and would be sent again by another try.
            let timeout = (!flushes && dice.chance(30)).then_some(timeout);
            stage.shape = Shape::Waiting(Waits { flushes, timeout });
            stage.retain |= stage.retry.tries > 1; // its handlers take their events
            stage.finish_emits = 0;
            stage.on_panic = comporta::OnPanic::Keep;
        }
    }
}

/// A stage whose handlers wait; `FLUSHES` some of them.
pub(crate) struct Later<E, const FLUSHES: bool> {
    site: Arc<Site>,
    takes: PhantomData<fn(E)>,
}

impl<E, const FLUSHES: bool> Later<E, FLUSHES> {
    pub(crate) fn new(site: &Arc<Site>) -> Self {
        Later { site: site.clone(), takes: PhantomData }
    }
}

/// The same with state.
pub(crate) struct LaterMut<E, const FLUSHES: bool>(pub(crate) Later<E, FLUSHES>);

/// An event in flight: if it is dropped before it has waited, its try has failed.
struct Flying<'a> {
    site: &'a Site,
    facts: Facts,
    attempt: u32,
    waits: bool,
}

impl Drop for Flying<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.site.dropped(&self.facts, self.attempt);
        }
    }
}

async fn handle<E: Event, const FLUSHES: bool>(
    site: &Site,
    event: E,
    out: &mut Emissions<Out<E>>,
    cx: &AsyncCx,
) -> Result {
    let (facts, attempt) = (*event.facts(), cx.attempt());
    let _busy = site.enter(std::slice::from_ref(&event), attempt);
    let mut flying = Flying { site, facts, attempt, waits: true };
    wait(site, mix2(facts.id, u64::from(attempt)), cx).await;
    flying.waits = false;
    site.handle_entered(std::slice::from_ref(&event), true, &mut **out, cx)?;
    drop(event);
    if FLUSHES {
        out.flush().await?;
        wait(site, facts.id, cx).await;
    }
    Ok(())
}

async fn wait(site: &Site, dice: u64, cx: &AsyncCx) {
    for turn in 0..dice % 4 {
        match dice >> (8 * (turn + 1)) & 7 {
            0..3 => cx.sleep(Duration::from_micros((dice >> 32) % 50)).await,
            3 => cx.sleep(Duration::from_micros(300)).await,
            4 if site.injector.is_on_threads() => woken_elsewhere().await,
            _ => itself().await,
        }
    }
}

/// Wakes itself at once.
async fn itself() {
    let mut polled = false;
    poll_fn(|cx| match std::mem::replace(&mut polled, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// Is woken by another thread, again and again or once, whenever that comes to it.
async fn woken_elsewhere() {
    let woken = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut begun = false;
    poll_fn(|cx| {
        use std::sync::atomic::Ordering::SeqCst;
        if woken.load(SeqCst) {
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut begun, true) {
            let (woken, waker) = (woken.clone(), cx.waker().clone());
            let wakes = move || {
                waker.wake_by_ref(); // too early
                woken.store(true, SeqCst);
                waker.wake();
            };
            std::thread::Builder::new().name("wakes".into()).spawn(wakes).expect("a thread");
        }
        Poll::Pending
    })
    .await;
}

impl<E: Event, const FLUSHES: bool> AsyncStage for Later<E, FLUSHES> {
    type In = E;
    type Ports = Out<E>;
    const FLUSHES: bool = FLUSHES;
    async fn handle(&self, event: E, out: &mut Emissions<Out<E>>, cx: &AsyncCx) -> Result {
        handle::<E, FLUSHES>(&self.site, event, out, cx).await
    }
}

impl<E: Event, const FLUSHES: bool> AsyncStageMut for LaterMut<E, FLUSHES> {
    type In = E;
    type Ports = Out<E>;
    const FLUSHES: bool = FLUSHES;
    async fn handle(&mut self, event: E, out: &mut Emissions<Out<E>>, cx: &AsyncCx) -> Result {
        handle::<E, FLUSHES>(&self.0.site, event, out, cx).await
    }
}
