//! tokio's reactor, for handlers that wait with tokio's sockets and timers. Their futures are polled by our
//! workers; the reactor only wakes them. A program that is started inside of a tokio runtime of several threads
//! uses that one; any other gets one of its own, until it has ended. (A runtime of one thread drives its timers
//! only while that thread waits for it, which may be what starts the program.)

#[cfg(feature = "tokio")]
pub(crate) use with_tokio::{Entered, Reactor};

#[cfg(feature = "tokio")]
mod with_tokio {
    use std::sync::OnceLock;

    use tokio::runtime::{Builder, EnterGuard, Handle, Runtime, RuntimeFlavor};

    use crate::sync::Mutex;

    /// While it lives, futures on this thread find the reactor.
    pub(crate) type Entered<'a> = EnterGuard<'a>;

    #[derive(Default)]
    pub(crate) struct Reactor {
        handle: OnceLock<Handle>,
        own: Mutex<Option<Runtime>>,
    }

    impl Reactor {
        /// Called where the program is started.
        ///
        /// # Errors
        /// The system refuses a thread, or a descriptor.
        pub(crate) fn start(&self, program: &str) -> Result<(), String> {
            if self.handle.get().is_some() {
                return Ok(());
            }
            let current = Handle::try_current().ok();
            let lasting = |handle: &Handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread;
            if let Some(current) = current.filter(lasting) {
                let _ = self.handle.set(current);
                return Ok(());
            }
            let name = format!("{program}-reactor");
            let built = Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name(name)
                .enable_all()
                .build();
            let runtime =
                built.map_err(|error| format!("tokio's reactor cannot be started: {error}"))?;
            let _ = self.handle.set(runtime.handle().clone());
            *self.own.lock() = Some(runtime);
            Ok(())
        }

        pub(crate) fn enter(&self) -> Option<Entered<'_>> {
            self.handle.get().map(Handle::enter)
        }
    }

    impl Reactor {
        /// The program has ended.
        pub(crate) fn stop(&self) {
            let own = self.own.lock().take();
            if let Some(runtime) = own {
                runtime.shutdown_background(); // this may be a thread of another runtime, which must not wait
            }
        }
    }

    impl Drop for Reactor {
        fn drop(&mut self) {
            self.stop();
        }
    }
}

#[cfg(not(feature = "tokio"))]
mod without_tokio {
    use std::marker::PhantomData;

    pub(crate) struct Entered<'a>(PhantomData<&'a ()>);

    #[derive(Default)]
    pub(crate) struct Reactor(PhantomData<()>);

    impl Reactor {
        #[expect(clippy::unnecessary_wraps, reason = "as with tokio")]
        pub(crate) fn start(&self, _: &str) -> Result<(), String> {
            Ok(())
        }

        pub(crate) fn stop(&self) {}

        pub(crate) fn enter(&self) -> Option<Entered<'_>> {
            None
        }
    }
}
#[cfg(not(feature = "tokio"))]
pub(crate) use without_tokio::{Entered, Reactor};
