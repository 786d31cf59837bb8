//! The command `callbacks`: a day of the phone, under the program in sequence or with callbacks.

use phone::phone::{Message, Phone, Script};
use phone::{callbacks, sequential};
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let phone = Phone::new(day());
    let ran = match std::env::args().nth(1).as_deref() {
        None | Some("sequential") => sequential::run(&phone),
        Some("callbacks") => {
            callbacks::run(&phone);
            Ok(())
        }
        Some(_) => {
            let _ = writeln!(io::stderr(), "usage: callbacks [sequential|callbacks]");
            return ExitCode::from(2);
        }
    };
    let told =
        ran.and_then(|()| phone.log().iter().try_for_each(|line| writeln!(io::stdout(), "{line}")));
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "callbacks: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Four people ask, two of them at once; the radio is busy at times, and the user goes away.
fn day() -> Script {
    let asks = |at, from: &str| (at, Message { from: from.to_owned(), text: "where?".to_owned() });
    Script {
        messages: vec![
            asks(1_000, "Ana"),
            asks(1_200, "Bento"),
            (5_000, Message { from: "Carla".to_owned(), text: "hello".to_owned() }),
            asks(40_000, "Davi"),
            asks(60_000, "Eva"),
        ],
        answers: [(4_000, true), (2_000, false), (3_000, true)].into(),
        accuracies: [90, 40, 15, 8].into(),
        busy: [true, false, false, true, true, true].into(),
    }
}
