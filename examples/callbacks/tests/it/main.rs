//! The two programs do the same, whatever happens to the phone; and the command prints it.

#![expect(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

use phone::phone::{Message, Phone, Script};
use phone::{PATIENCE, callbacks, sequential};
use proptest::prelude::*;
use std::process::Command;

fn sequentially(script: &Script) -> Vec<String> {
    let phone = Phone::new(script.clone());
    sequential::run(&phone).unwrap();
    phone.log()
}

fn by_callbacks(script: &Script) -> Vec<String> {
    let phone = Phone::new(script.clone());
    callbacks::run(&phone);
    phone.log()
}

fn where_at(at: u64) -> (u64, Message) {
    (at, Message { from: format!("n{at}"), text: "where?".to_owned() })
}

#[test]
fn a_request_asks_locates_and_sends() {
    let script = Script {
        messages: vec![where_at(100)],
        answers: [(1_000, true)].into(),
        accuracies: [50, 10].into(),
        busy: [true].into(),
    };
    let expected = [
        "   100 ms  asks: tell n100 where you are?",
        "  4800 ms  radio is busy",
        "  7500 ms  sends n100: I am at 4 m",
    ];
    assert_eq!(sequentially(&script), expected);
    assert_eq!(by_callbacks(&script), expected);
}

#[test]
fn a_user_who_does_not_answer_in_time_is_not_waited_for() {
    let late = Script {
        messages: vec![where_at(0)],
        answers: [(PATIENCE + 1, true)].into(),
        ..Script::default()
    };
    let gone = Script { messages: vec![where_at(0)], ..Script::default() };
    let expected =
        ["     0 ms  asks: tell n0 where you are?", " 30700 ms  sends n0: no answer yet"];
    for script in [late, gone] {
        assert_eq!(sequentially(&script), expected);
        assert_eq!(by_callbacks(&script), expected);
    }
}

proptest! {
    #[test]
    fn both_programs_do_the_same_whatever_happens(
        messages in prop::collection::vec((0_u64..100_000, any::<bool>()), 0..8),
        answers in prop::collection::vec((0_u64..2 * PATIENCE, any::<bool>()), 0..8),
        accuracies in prop::collection::vec(0_u32..60, 0..12),
        busy in prop::collection::vec(any::<bool>(), 0..20),
    ) {
        let message = |(number, (at, asks)): (usize, (u64, bool))| {
            let text = if asks { "where?" } else { "hello" };
            (at, Message { from: number.to_string(), text: text.to_owned() })
        };
        let script = Script {
            messages: messages.into_iter().enumerate().map(message).collect(),
            answers: answers.into(),
            accuracies: accuracies.into(),
            busy: busy.into(),
        };
        prop_assert_eq!(sequentially(&script), by_callbacks(&script));
    }
}

#[test]
fn the_command_prints_the_same_day_in_both_styles() {
    let run = |style: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_callbacks")).arg(style).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let day = run("sequential");
    assert_eq!(day, run("callbacks"));
    assert!(day.contains("gives up on") && day.contains("no answer yet"), "{day}");
    let bad = Command::new(env!("CARGO_BIN_EXE_callbacks")).arg("async").output().unwrap();
    assert_eq!(bad.status.code(), Some(2));
}
