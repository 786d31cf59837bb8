//! The program in sequence. Each request is a coroutine; a callback is a source of one event, and
//! whoever needs its result waits for it, as if the phone's functions returned.

use crate::phone::{Busy, Fix, Message, Pending, Phone, Time};
use crate::{ACCURATE, FIXES_MAX, PATIENCE, PAUSE, TRIES_MAX};
use comporta_scheduler::{
    Events, Notifier, Scheduler, Step, Wait, listen, sources, spawn_fallible,
};
use std::io;
use std::time::Duration;

/// Runs the program until nothing will happen to the phone any more. The loop is the phone's, as a
/// phone wants it; between two of its callbacks the scheduler does whatever has become ready.
///
/// # Errors
/// If the scheduler cannot be made, or the program fails.
pub fn run(phone: &Phone) -> io::Result<()> {
    let mut scheduler = Scheduler::new()?;
    let own = phone.clone();
    drop(scheduler.spawn_fallible(move || answer_messages(&own))?);
    loop {
        loop {
            match scheduler.step_within(Duration::ZERO)? {
                Step::Resumed => {}
                Step::Failed(failure) => return Err(io::Error::other(failure.to_string())),
                Step::Idle | Step::Stopped | Step::Complete => break,
            }
        }
        if !phone.run_next() {
            return Ok(());
        }
    }
}

fn answer_messages(phone: &Phone) -> io::Result<()> {
    let messages = listen(sources::callback(|notifier| {
        phone.on_message(move |message| report(&notifier, message));
        Ok(())
    }))?;
    while let Some(message) = messages.next()? {
        if message.text == "where?" {
            let phone = phone.clone();
            spawn_fallible(move || answer(&phone, &message))?;
        }
    }
    Ok(())
}

/// The whole of a request, from top to bottom.
fn answer(phone: &Phone, message: &Message) -> io::Result<()> {
    let text = match ask(phone, &format!("tell {} where you are?", message.from))? {
        Some(true) => format!("I am at {} m", good_fix(phone)?.position),
        Some(false) => "I'd rather not say".to_owned(),
        None => "no answer yet".to_owned(),
    };
    for _ in 0..TRIES_MAX {
        if send(phone, &message.from, &text)?.is_ok() {
            return Ok(());
        }
        pause(phone, PAUSE)?;
    }
    phone.note(format!("gives up on {}", message.from));
    Ok(())
}

/// The first fix that is accurate enough, or the last of several.
fn good_fix(phone: &Phone) -> io::Result<Fix> {
    let mut fix = locate(phone)?;
    for _ in 1..FIXES_MAX {
        if fix.accuracy <= ACCURATE {
            break;
        }
        fix = locate(phone)?;
    }
    Ok(fix)
}

/// Asks the user; `None` if there is no answer in time, and then the question is withdrawn.
fn ask(phone: &Phone, question: &str) -> io::Result<Option<bool>> {
    let (answer, asked) =
        called_back(|tell| phone.ask(question, move |_, yes| report(&tell, yes)))?;
    let (late, timer) = called_back(|tell| phone.after(PATIENCE, move |_| report(&tell, ())))?;
    let first = Wait::new().on(&answer, Some).on(&late, |()| None).suspend()?;
    let other: Pending = if first.flatten().is_some() { timer } else { asked };
    phone.call_off(other);
    Ok(first.flatten())
}

fn locate(phone: &Phone) -> io::Result<Fix> {
    wait_for(|tell| phone.locate(move |_, fix| report(&tell, fix)))
}

fn send(phone: &Phone, to: &str, text: &str) -> io::Result<Result<(), Busy>> {
    wait_for(|tell| phone.send(to, text, move |_, sent| report(&tell, sent)))
}

fn pause(phone: &Phone, time: Time) -> io::Result<()> {
    let (over, _timer) = called_back(|tell| phone.after(time, move |_| report(&tell, ())))?;
    over.next().map(|_| ())
}

/// Begins something that calls back, and waits for that.
fn wait_for<T: 'static>(begin: impl FnOnce(Notifier<T>)) -> io::Result<T> {
    let (events, ()) = called_back(begin)?;
    // It ends without an event if the phone forgets the callback.
    events.next()?.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
}

/// Begins something that calls back; its events, and what beginning returned.
fn called_back<T: 'static, R>(begin: impl FnOnce(Notifier<T>) -> R) -> io::Result<(Events<T>, R)> {
    let mut begun = None;
    let events = listen(sources::callback(|tell| {
        begun = Some(begin(tell));
        Ok(())
    }))?;
    let begun = begun.ok_or(io::ErrorKind::Other)?;
    Ok((events, begun))
}

/// Nobody waits any more for what was called off; more than a mailbox holds is lost, as on a phone.
fn report<T>(notifier: &Notifier<T>, event: T) {
    let _ = notifier.notify(event);
}
