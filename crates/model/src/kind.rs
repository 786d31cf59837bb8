//! The kinds of handlers. The runtime is compiled once for each kind, with the types of its events and ports, and knows a
//! handler only as something of that kind: what is compiled for each handler is the loop that calls it.
//! Before: `stage`, whose [`Handler`](crate::stage::Handler)s say what kind they are. After: the runtime.

use std::fmt;
use std::marker::PhantomData;

use crate::port::Ports;

/// What all handlers of a kind have in common.
pub trait Kind: 'static {
    /// What its queue holds.
    type Item: Send + 'static;
    /// Where it sends.
    type Ports: Ports;
    /// Whether it is handed groups.
    const GROUPED: bool = false;
    /// Whether it changes events in place and sends each on: then nothing is copied, and what it
    /// handled is given to [`pass_on`](crate::stage::Handler::pass_on) when the visit ends.
    const IN_PLACE: bool = false;
    /// Whether its events may wait: a call may then leave its event in flight, in a future.
    const WAITS: bool = false;
    /// Whether it is called with the lane of its event, by [`call_in`](crate::stage::Handler::call_in).
    const KEYED: bool = false;
}

/// Declares a kind.
macro_rules! kind {
    ($(#[$doc:meta])* $name:ident: $($flag:ident)*) => {
        $(#[$doc])*
        pub struct $name<T, P>(PhantomData<fn(T) -> P>);

        impl<T: Send + 'static, P: Ports> Kind for $name<T, P> {
            type Item = T;
            type Ports = P;
            $(const $flag: bool = true;)*
        }

        impl<T, P> fmt::Debug for $name<T, P> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

kind! {
    /// Called with one event after the other.
    Plain:
}
kind! {
    /// Called with groups of events.
    Grouped: GROUPED
}
kind! {
    /// Changes events in place.
    InPlace: IN_PLACE
}
kind! {
    /// Has state for each key.
    Keyed: KEYED
}
kind! {
    /// May wait.
    Waiting: WAITS
}
kind! {
    /// May wait, and has state for each key.
    KeyedWaiting: KEYED WAITS
}
