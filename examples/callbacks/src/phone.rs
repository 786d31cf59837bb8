//! A simulated phone. Like those of its time it has one thread and one loop of its own, and tells a
//! program everything by calling it back. What happens is written in a [`Script`]; time is a number of
//! milliseconds, and moves when [`Phone::run_next`] is called.
//! Invariant: callbacks are called while nothing of the phone is borrowed, so they may call it.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Milliseconds since the phone was switched on.
pub type Time = u64;

/// A message that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who sent it.
    pub from: String,
    /// What it says.
    pub text: String,
}

/// A position, and how far off it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fix {
    /// Where the phone is, in metres along the coast.
    pub position: u32,
    /// How far off it may be, in metres.
    pub accuracy: u32,
}

/// The radio is in use; try again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// What will happen to the phone.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Messages that come in.
    pub messages: Vec<(Time, Message)>,
    /// The user's answers, in the order of the questions: after how long, and which. None after the
    /// last: the user has gone.
    pub answers: VecDeque<(Time, bool)>,
    /// How accurate the sensor's fixes are, in turn; the last one stays.
    pub accuracies: VecDeque<u32>,
    /// Whether the radio is busy, in turn; free after the last.
    pub busy: VecDeque<bool>,
}

type Callback = Box<dyn FnOnce(&Phone)>;

struct Inside {
    script: Script,
    now: Time,
    number: u64,
    /// What will be called, by time and order.
    due: BTreeMap<(Time, u64), Callback>,
    /// Questions that the user will not answer.
    unanswered: BTreeMap<u64, Callback>,
    on_message: Option<Rc<dyn Fn(Message)>>,
    log: Vec<String>,
}

/// The phone. Clones are the same phone.
#[derive(Clone)]
pub struct Phone(Rc<RefCell<Inside>>);

/// A timer or a question, to be called off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    at: Option<Time>,
    number: u64,
}

/// How long the sensor and the radio take.
const FIX_TAKES: Time = 1_500;
const SENDING_TAKES: Time = 700;

impl Phone {
    /// A phone to which all this will happen.
    #[must_use]
    pub fn new(script: Script) -> Phone {
        let messages = script.messages.clone();
        let phone = Phone(Rc::new(RefCell::new(Inside {
            script,
            now: 0,
            number: 0,
            due: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            on_message: None,
            log: Vec::new(),
        })));
        for (at, message) in messages {
            phone.after(at, move |phone| {
                let handler = phone.0.borrow().on_message.clone();
                if let Some(handler) = handler {
                    handler(message);
                }
            });
        }
        phone
    }

    /// Has every message that comes in handed to `handler`.
    pub fn on_message(&self, handler: impl Fn(Message) + 'static) {
        self.0.borrow_mut().on_message = Some(Rc::new(handler));
    }

    /// Asks the sensor for a fix.
    pub fn locate(&self, then: impl FnOnce(&Phone, Fix) + 'static) {
        self.after(FIX_TAKES, move |phone| {
            let mut inside = phone.0.borrow_mut();
            let accuracies = &mut inside.script.accuracies;
            let accuracy = if accuracies.len() > 1 {
                accuracies.pop_front()
            } else {
                accuracies.front().copied()
            };
            let position = u32::try_from(inside.now / 1_000).unwrap_or(u32::MAX);
            drop(inside);
            then(phone, Fix { position, accuracy: accuracy.unwrap_or(5) });
        });
    }

    /// Asks the user, who may never answer.
    pub fn ask(&self, question: &str, then: impl FnOnce(&Phone, bool) + 'static) -> Pending {
        self.note(format!("asks: {question}"));
        let answer = self.0.borrow_mut().script.answers.pop_front();
        if let Some((takes, yes)) = answer {
            return self.after(takes, move |phone| then(phone, yes));
        }
        let mut inside = self.0.borrow_mut();
        inside.number += 1;
        let number = inside.number;
        inside.unanswered.insert(number, Box::new(move |phone| then(phone, false)));
        Pending { at: None, number }
    }

    /// Sends a message.
    pub fn send(
        &self,
        to: &str,
        text: &str,
        then: impl FnOnce(&Phone, Result<(), Busy>) + 'static,
    ) {
        let line = format!("sends {to}: {text}");
        self.after(SENDING_TAKES, move |phone| {
            let busy = phone.0.borrow_mut().script.busy.pop_front() == Some(true);
            phone.note(if busy { "radio is busy".to_owned() } else { line });
            then(phone, if busy { Err(Busy) } else { Ok(()) });
        });
    }

    /// Calls back so much later.
    pub fn after(&self, time: Time, then: impl FnOnce(&Phone) + 'static) -> Pending {
        let mut inside = self.0.borrow_mut();
        inside.number += 1;
        let (at, number) = (inside.now + time, inside.number);
        inside.due.insert((at, number), Box::new(then));
        Pending { at: Some(at), number }
    }

    /// Calls a timer or a question off.
    pub fn call_off(&self, pending: Pending) {
        let Pending { at, number } = pending;
        let mut inside = self.0.borrow_mut();
        let callback = match at {
            Some(at) => inside.due.remove(&(at, number)),
            None => inside.unanswered.remove(&number),
        };
        drop(inside);
        drop(callback);
    }

    /// Writes a line to the log.
    pub fn note(&self, line: String) {
        let mut inside = self.0.borrow_mut();
        let line = format!("{:6} ms  {line}", inside.now);
        inside.log.push(line);
    }

    /// What happened.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.0.borrow().log.clone()
    }

    /// Lets the next thing happen. Returns `false` if nothing will.
    pub fn run_next(&self) -> bool {
        let first = self.0.borrow_mut().due.pop_first();
        let Some(((at, _), callback)) = first else { return false };
        self.0.borrow_mut().now = at;
        callback(self);
        true
    }
}

impl std::fmt::Debug for Phone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Phone").field("now", &self.0.borrow().now).finish_non_exhaustive()
    }
}
