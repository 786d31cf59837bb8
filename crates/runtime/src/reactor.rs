//! tokio's reactor, for handlers that wait with tokio's sockets and timers. Their futures are polled by our
//! workers; the reactor only wakes them. A program that is started inside of a tokio runtime of several threads
//! uses that one; any other gets one of its own, until it has ended; so does one that is started inside of another
//! program's own, which may end before it. (A runtime of one thread drives its timers
//! only while that thread waits for it, which may be what starts the program.)

#[cfg(feature = "tokio")]
pub(crate) use with_tokio::{Entered, Reactor};

#[cfg(feature = "tokio")]
mod with_tokio {
    use std::cell::Cell;
    use std::sync::OnceLock;

    use tokio::runtime::{Builder, EnterGuard, Handle, Runtime, RuntimeFlavor};

    use crate::sync::Mutex;

    thread_local! {
        /// The reactor that this thread finds is that of a program.
        static PROGRAMS_OWN: Cell<bool> = const { Cell::new(false) };
    }

    /// While it lives, futures on this thread find the reactor.
    pub(crate) struct Entered<'a> {
        _guard: EnterGuard<'a>,
        before: bool,
    }

    impl Drop for Entered<'_> {
        fn drop(&mut self) {
            PROGRAMS_OWN.set(self.before);
        }
    }

    #[derive(Default)]
    pub(crate) struct Reactor {
        handle: OnceLock<(Handle, Whose)>,
        own: Mutex<Option<Runtime>>,
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Whose {
        Own,
        /// Of the runtime in which the program was started.
        Outer,
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
            let lasting = |handle: &Handle| {
                handle.runtime_flavor() == RuntimeFlavor::MultiThread && !PROGRAMS_OWN.get()
            };
            if let Some(current) = current.filter(lasting) {
                let _ = self.handle.set((current, Whose::Outer));
                return Ok(());
            }
            let name = format!("{program}-reactor");
            let built = Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name(name)
                .on_thread_start(|| PROGRAMS_OWN.set(true))
                .enable_all()
                .build();
            let runtime =
                built.map_err(|error| format!("tokio's reactor cannot be started: {error}"))?;
            let _ = self.handle.set((runtime.handle().clone(), Whose::Own));
            *self.own.lock() = Some(runtime);
            Ok(())
        }

        pub(crate) fn enter(&self) -> Option<Entered<'_>> {
            self.handle.get().map(|(handle, whose)| Entered {
                _guard: handle.enter(),
                before: PROGRAMS_OWN.replace(*whose == Whose::Own),
            })
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
