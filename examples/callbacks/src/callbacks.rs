//! The program with callbacks. What a coroutine keeps in its variables and in its place in the code
//! is kept by hand here: a `Request` that is handed from callback to callback, and a function for each
//! place at which the program waits.

use crate::phone::{Busy, Fix, Message, Pending, Phone};
use crate::{ACCURATE, FIXES_MAX, PATIENCE, PAUSE, TRIES_MAX};
use std::cell::RefCell;
use std::rc::Rc;

/// Runs the program until nothing will happen to the phone any more.
pub fn run(phone: &Phone) {
    let own = phone.clone();
    phone.on_message(move |message| {
        if message.text == "where?" {
            begin(&own, message);
        }
    });
    while phone.run_next() {}
}

/// A request on its way.
struct Request {
    from: String,
    text: String,
    fixes: u32,
    tries: u32,
}

/// A question that waits for the user or for the timer, whichever comes first: whoever comes takes the
/// request, and calls the other off.
struct Asked {
    request: Option<Request>,
    question: Option<Pending>,
    timer: Option<Pending>,
}

fn begin(phone: &Phone, message: Message) {
    let question = format!("tell {} where you are?", message.from);
    let request = Request { from: message.from, text: String::new(), fixes: 0, tries: 0 };
    let asked =
        Rc::new(RefCell::new(Asked { request: Some(request), question: None, timer: None }));
    let (on_answer, on_timer) = (asked.clone(), asked.clone());
    let question = phone.ask(&question, move |phone, yes| answered(phone, &on_answer, yes));
    let timer = phone.after(PATIENCE, move |phone| timed_out(phone, &on_timer));
    let mut asked = asked.borrow_mut();
    asked.question = Some(question);
    asked.timer = Some(timer);
}

fn answered(phone: &Phone, asked: &RefCell<Asked>, yes: bool) {
    let (request, timer) = {
        let mut asked = asked.borrow_mut();
        (asked.request.take(), asked.timer.take())
    };
    if let Some(timer) = timer {
        phone.call_off(timer);
    }
    let Some(mut request) = request else { return };
    if yes {
        locate(phone, request);
    } else {
        request.text = "I'd rather not say".to_owned();
        send(phone, request);
    }
}

fn timed_out(phone: &Phone, asked: &RefCell<Asked>) {
    let (request, question) = {
        let mut asked = asked.borrow_mut();
        (asked.request.take(), asked.question.take())
    };
    if let Some(question) = question {
        phone.call_off(question);
    }
    let Some(mut request) = request else { return };
    request.text = "no answer yet".to_owned();
    send(phone, request);
}

fn locate(phone: &Phone, request: Request) {
    phone.locate(move |phone, fix| located(phone, request, fix));
}

fn located(phone: &Phone, mut request: Request, fix: Fix) {
    request.fixes += 1;
    if fix.accuracy > ACCURATE && request.fixes < FIXES_MAX {
        locate(phone, request);
    } else {
        request.text = format!("I am at {} m", fix.position);
        send(phone, request);
    }
}

fn send(phone: &Phone, request: Request) {
    let (to, text) = (request.from.clone(), request.text.clone());
    phone.send(&to, &text, move |phone, result| sent(phone, request, result));
}

fn sent(phone: &Phone, mut request: Request, result: Result<(), Busy>) {
    if result.is_ok() {
        return;
    }
    request.tries += 1;
    phone.after(PAUSE, move |phone| {
        if request.tries < TRIES_MAX {
            send(phone, request);
        } else {
            phone.note(format!("gives up on {}", request.from));
        }
    });
}
