//! What is made of the events of a window: count, sum, mean, least, greatest, several of these, or one's own fold.
//! Used by `panes`, which keeps an accumulator for each span of time and merges those of a window.

use std::fmt;
use std::marker::PhantomData;
use std::ops::AddAssign;

/// What is made of the events of a window, event by event.
///
/// The events of a window are gathered in accumulators of parts of it, which are then merged; so `add` and `merge` must
/// lead to the same result in whatever order and grouping they are called, as sums do.
///
/// ```
/// # mod comporta { pub use comporta_model::window as windows; }
/// use comporta::windows::{self, Aggregate};
///
/// /// The greatest and the least reading.
/// #[derive(Clone)]
/// struct Range;
///
/// impl Aggregate<f64> for Range {
///     type Acc = (f64, f64);
///     type Out = f64;
///
///     fn init(&self) -> (f64, f64) {
///         (f64::INFINITY, f64::NEG_INFINITY)
///     }
///     fn add(&self, (least, greatest): &mut (f64, f64), reading: &f64) {
///         (*least, *greatest) = (least.min(*reading), greatest.max(*reading));
///     }
///     fn merge(&self, (least, greatest): &mut (f64, f64), other: &(f64, f64)) {
///         (*least, *greatest) = (least.min(other.0), greatest.max(other.1));
///     }
///     fn result(&self, (least, greatest): &(f64, f64)) -> f64 {
///         greatest - least
///     }
/// }
///
/// // The same in short, and several at once:
/// let range = (windows::min(|reading: &f64| *reading), windows::max(|reading: &f64| *reading));
/// # let acc = &mut Aggregate::<f64>::init(&range);
/// # range.add(acc, &1.5);
/// # assert_eq!(range.result(acc), (1.5, 1.5));
/// ```
pub trait Aggregate<T>: Clone + Send + Sync + 'static {
    /// What is kept of the events so far.
    type Acc: Send + 'static;
    /// What a window sends.
    type Out: Send + 'static;

    /// Returns what is kept of no events.
    fn init(&self) -> Self::Acc;

    /// Adds an event.
    fn add(&self, acc: &mut Self::Acc, event: &T);

    /// Adds the events of another accumulator.
    fn merge(&self, acc: &mut Self::Acc, other: &Self::Acc);

    /// Returns what the events amount to; there is at least one.
    fn result(&self, acc: &Self::Acc) -> Self::Out;
}

/// The number of events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count;

impl<T> Aggregate<T> for Count {
    type Acc = u64;
    type Out = u64;

    fn init(&self) -> u64 {
        0
    }
    #[inline]
    fn add(&self, n: &mut u64, _: &T) {
        *n += 1;
    }
    fn merge(&self, n: &mut u64, more: &u64) {
        *n += more;
    }
    fn result(&self, n: &u64) -> u64 {
        *n
    }
}

/// Implements `Clone` and `Debug` of an aggregate by a function.
macro_rules! by_function {
    ($name:ident) => {
        impl<F: Clone, V> Clone for $name<F, V> {
            fn clone(&self) -> Self {
                $name { of: self.of.clone(), value: PhantomData }
            }
        }
        impl<F, V> fmt::Debug for $name<F, V> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

/// The sum of a value; see [`sum`].
pub struct Sum<F, V> {
    of: F,
    value: PhantomData<fn() -> V>,
}
by_function!(Sum);

/// The sum of what `of` returns for each event.
pub fn sum<T, V, F: Fn(&T) -> V>(of: F) -> Sum<F, V> {
    Sum { of, value: PhantomData }
}

impl<T, V, F> Aggregate<T> for Sum<F, V>
where
    V: AddAssign + Copy + Default + Send + 'static,
    F: Fn(&T) -> V + Clone + Send + Sync + 'static,
{
    type Acc = V;
    type Out = V;

    fn init(&self) -> V {
        V::default()
    }
    #[inline]
    fn add(&self, sum: &mut V, event: &T) {
        *sum += (self.of)(event);
    }
    fn merge(&self, sum: &mut V, more: &V) {
        *sum += *more;
    }
    fn result(&self, sum: &V) -> V {
        *sum
    }
}

/// The mean of a value; see [`mean`].
#[derive(Clone)]
pub struct Mean<F> {
    of: F,
}

/// The mean of what `of` returns for each event.
pub fn mean<T, F: Fn(&T) -> f64>(of: F) -> Mean<F> {
    Mean { of }
}

impl<F> fmt::Debug for Mean<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mean")
    }
}

impl<T, F: Fn(&T) -> f64 + Clone + Send + Sync + 'static> Aggregate<T> for Mean<F> {
    type Acc = (f64, u64);
    type Out = f64;

    fn init(&self) -> (f64, u64) {
        (0.0, 0)
    }
    #[inline]
    fn add(&self, (sum, n): &mut (f64, u64), event: &T) {
        *sum += (self.of)(event);
        *n += 1;
    }
    fn merge(&self, (sum, n): &mut (f64, u64), more: &(f64, u64)) {
        *sum += more.0;
        *n += more.1;
    }
    fn result(&self, (sum, n): &(f64, u64)) -> f64 {
        sum / *n as f64
    }
}

const EVENT: &str = "a window has at least one event";

/// Two aggregates that keep the first or the last of values by their order.
macro_rules! extreme {
    ($name:ident, $function:ident, $beats:tt, $what:literal) => {
        #[doc = concat!("The ", $what, " of a value; see [`", stringify!($function), "`].")]
        pub struct $name<F, V> {
            of: F,
            value: PhantomData<fn() -> V>,
        }
        by_function!($name);

        #[doc = concat!("The ", $what, " of what `of` returns for each event.")]
        pub fn $function<T, V: PartialOrd, F: Fn(&T) -> V>(of: F) -> $name<F, V> {
            $name { of, value: PhantomData }
        }

        impl<T, V, F> Aggregate<T> for $name<F, V>
        where
            V: PartialOrd + Clone + Send + 'static,
            F: Fn(&T) -> V + Clone + Send + Sync + 'static,
        {
            type Acc = Option<V>;
            type Out = V;

            fn init(&self) -> Option<V> {
                None
            }
            #[inline]
            fn add(&self, best: &mut Option<V>, event: &T) {
                let value = (self.of)(event);
                if best.as_ref().is_none_or(|best| value $beats *best) {
                    *best = Some(value);
                }
            }
            fn merge(&self, best: &mut Option<V>, other: &Option<V>) {
                if let Some(value) = other
                    && best.as_ref().is_none_or(|best| *value $beats *best)
                {
                    *best = Some(value.clone());
                }
            }
            fn result(&self, best: &Option<V>) -> V {
                best.clone().expect(EVENT)
            }
        }
    };
}
extreme!(Min, min, <, "least");
extreme!(Max, max, >, "greatest");

/// One's own fold; see [`fold`].
#[derive(Clone)]
pub struct Fold<I, A, M> {
    init: I,
    add: A,
    merge: M,
}

/// A fold of three functions: what is kept of no events, how an event is added, and how two of these are merged.
///
/// ```
/// # mod comporta { pub use comporta_model::window as windows; }
/// use std::collections::BTreeSet;
/// use comporta::windows;
///
/// let words = windows::fold(
///     BTreeSet::new,
///     |words: &mut BTreeSet<String>, word: &String| {
///         words.insert(word.clone());
///     },
///     |words, more| words.extend(more.iter().cloned()),
/// );
/// # let acc = &mut windows::Aggregate::<String>::init(&words);
/// # windows::Aggregate::add(&words, acc, &"a".to_owned());
/// # assert_eq!(windows::Aggregate::<String>::result(&words, acc).len(), 1);
/// ```
pub fn fold<T, S, I, A, M>(init: I, add: A, merge: M) -> Fold<I, A, M>
where
    I: Fn() -> S,
    A: Fn(&mut S, &T),
    M: Fn(&mut S, &S),
{
    Fold { init, add, merge }
}

impl<I, A, M> fmt::Debug for Fold<I, A, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fold")
    }
}

impl<T, S, I, A, M> Aggregate<T> for Fold<I, A, M>
where
    S: Clone + Send + 'static,
    I: Fn() -> S + Clone + Send + Sync + 'static,
    A: Fn(&mut S, &T) + Clone + Send + Sync + 'static,
    M: Fn(&mut S, &S) + Clone + Send + Sync + 'static,
{
    type Acc = S;
    type Out = S;

    fn init(&self) -> S {
        (self.init)()
    }
    #[inline]
    fn add(&self, acc: &mut S, event: &T) {
        (self.add)(acc, event);
    }
    fn merge(&self, acc: &mut S, other: &S) {
        (self.merge)(acc, other);
    }
    fn result(&self, acc: &S) -> S {
        acc.clone()
    }
}

/// Several aggregates of the same events.
macro_rules! several {
    ($($name:ident $at:tt),*) => {
        impl<T, $($name: Aggregate<T>),*> Aggregate<T> for ($($name,)*) {
            type Acc = ($($name::Acc,)*);
            type Out = ($($name::Out,)*);

            fn init(&self) -> Self::Acc {
                ($(self.$at.init(),)*)
            }
            #[inline]
            fn add(&self, acc: &mut Self::Acc, event: &T) {
                $(self.$at.add(&mut acc.$at, event);)*
            }
            fn merge(&self, acc: &mut Self::Acc, other: &Self::Acc) {
                $(self.$at.merge(&mut acc.$at, &other.$at);)*
            }
            fn result(&self, acc: &Self::Acc) -> Self::Out {
                ($(self.$at.result(&acc.$at),)*)
            }
        }
    };
}
several!(A 0, B 1);
several!(A 0, B 1, C 2);
several!(A 0, B 1, C 2, D 3);
