//! Promise 9, for graphs: a bad one is refused before anything runs, and all that is wrong with it
//! is said at once, in words that tell what to do.

use std::time::Duration;

use comporta::{App, Out, batched};

/// What is said of a graph, a line for each mistake.
fn said(build: impl FnOnce(&App)) -> String {
    let app = App::new("bad");
    build(&app);
    app.check().unwrap_err().to_string()
}

/// What is wrong with it, how it is built, and what is said of it.
type Case = (&'static str, fn(&App), &'static str);

#[test]
// Long because it is a table of cases.
fn bad_graphs_each_get_their_message() {
    let cases: [Case; 11] = [
        ("nothing in it", |_| {}, "the program `bad` has no stages"),
        (
            "nothing to start it",
            |app| {
                let a = app.map("a", |n: u64| n);
                let b = app.map("b", |n: u64| n);
                app.connect(a, b);
                app.connect(b, a);
            },
            "nothing starts the program `bad`: it has no source, no input and no autostart stage",
        ),
        (
            "two of one name",
            |app| {
                let numbers = app.source("a", || 0..3u64);
                let a = app.sink("a", |_: u64| ());
                app.connect(numbers, a);
            },
            "two stages are called `a`: every name is used once",
        ),
        (
            "a name nobody can spell",
            |app| {
                let numbers = app.source("all the numbers", || 0..3u64);
                let a = app.sink("a", |_: u64| ());
                app.connect(numbers, a);
            },
            "`all the numbers` cannot be the name of a stage: use letters, digits, `_`, `-` and `.`, at least one",
        ),
        (
            "a name that means something else in plans",
            |app| {
                let numbers = app.source("all", || 0..3u64);
                let a = app.sink("a", |_: u64| ());
                app.connect(numbers, a);
            },
            "`all` cannot be the name of a stage: in plans it stands for every stage",
        ),
        (
            "a stage that nothing is sent to",
            |app| {
                let numbers = app.source("numbers", || 0..3u64);
                let a = app.sink("a", |_: u64| ());
                app.connect(numbers, a);
                let _ = app.sink("b", |_: u64| ());
            },
            "nothing sends to the stage `b`: connect a port to it, or make it `autostart`",
        ),
        (
            "a connector without an end",
            |app| {
                let numbers = app.source("numbers", || 0..3u64);
                let a = app.sink("a", |_: u64| ()).autostart(1);
                app.round_robin(numbers, [a].into_iter().take(0));
            },
            "a connector from `numbers` has no end: give it at least one stage",
        ),
        (
            "a handle of another program",
            |app| {
                let other = App::new("other");
                let numbers = other.source("numbers", || 0..3u64);
                let a = app.sink("a", |_: u64| ()).autostart(1);
                app.connect(numbers, a);
            },
            "a handle of another app was used in `bad`: connect only stages of one app",
        ),
        (
            "copies of what cannot be copied",
            |app| {
                let numbers = app.source("numbers", || 0..3u64);
                for name in ["a", "b"] {
                    let sink = app.sink(name, |_: u64| ());
                    app.connect_local(numbers, sink);
                }
            },
            "`numbers` is connected 2 times, so its events are copied, but all its connectors are local and none says how: use `connect` for one of them, or one connector with several ends",
        ),
        (
            "stateful and ordered",
            |app| {
                let numbers = app.source("numbers", || 0..3u64);
                let a = app.map("a", |n: u64| n).stateful().ordered();
                app.connect(numbers, a);
            },
            "the stage `a` is stateful and ordered: a stateful stage has one instance and keeps order as it is",
        ),
        (
            "groups of nothing",
            |app| {
                let numbers = app.source("numbers", || 0..3u64);
                let handed = |_: Vec<u64>, _: &mut Out<u64>| ();
                let a = app.stage("a", batched(0, Duration::from_secs(1), handed));
                app.connect(numbers, a);
            },
            "the stage `a` is batched by 0 events: use at least 1",
        ),
    ];
    for (what, build, message) in cases {
        assert_eq!(said(build), format!("the graph: {message}"), "{what}");
    }
}
