//! A program for the tests of the command line, in several characters: `shown KIND [OPTION]...`.
//! It prints a line when it is where a test wants it; `hold` and `open` wait for a line of standard
//! input (or its end) there. With `COMPORTA_SHOWN` set it is a whole command line.
//! Long because it is one program in the tests' place of many.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use comporta_cli::show::{Exit, Options, When, run};
use comporta_model::error::Error;
use comporta_model::failed::Failed;
use comporta_model::plan::Plan;
use comporta_policy::policies::Single;
use comporta_policy::{Entry, Offer};
use comporta_runtime::App;

/// Ends the program, and with it the wait of a test, should nothing else do so.
fn end_in_time() {
    let compares = std::env::args().any(|arg| arg == "compare");
    let bound = Duration::from_secs(if compares { 300 } else { 30 });
    let watch = move || {
        let (_open, never) = mpsc::channel::<()>();
        let _ = never.recv_timeout(bound);
        std::process::abort();
    };
    thread::Builder::new().spawn(watch).expect("the system has another thread");
}

fn main() -> Exit {
    end_in_time();
    match std::env::var("COMPORTA_SHOWN").as_deref() {
        Ok("plain") => return comporta_cli::main(plain),
        Ok("clash") => return comporta_cli::main(|_: Clash| plain()),
        Ok("short") => return comporta_cli::main(|_: Short| plain()),
        Ok("needy") => return comporta_cli::main(needy),
        Ok("picky") => return comporta_cli::main(picky),
        Ok("dotted") => return comporta_cli::main(dotted),
        Ok("rude") => return comporta_cli::main(rude),
        Ok("caught") => return comporta_cli::main(caught),
        Ok("lines") => return comporta_cli::main(lines),
        Ok("blocking") => return comporta_cli::main(blocking),
        Ok("compared") => return comporta_cli::main(compared),
        Ok(_) => return comporta_cli::main(squares),
        Err(_) => {}
    }
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or_default();
    let (mut options, mut plan) = (Options::default(), Plan::new().threads(2));
    let time = |text: Option<String>| {
        let ms = text.and_then(|text| text.parse().ok());
        Duration::from_millis(ms.expect("a number of milliseconds follows"))
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => options.json = true,
            "--quiet" => options.quiet = true,
            "--always" => options.progress = When::Always,
            "--never" => options.progress = When::Never,
            "--for" => options.limit = Some(time(args.next())),
            "--stuck" => plan = plan.stuck_after(time(args.next())),
            "--drain" => plan = plan.drain(time(args.next())),
            other => panic!("no option {other}"),
        }
    }
    let app = App::new("shown");
    match kind.as_str() {
        "end" => end(&app),
        "flow" => flow(&app),
        "work" => plan = work(&app, plan),
        "hold" => hold(&app),
        "open" => open(&app),
        "reads" => reads(&app),
        "fails" => fails(&app),
        "closed" => closed(&app),
        "misfit" => {
            end(&app);
            plan = plan.stage("shwo", |stage| stage.instances(2));
        }
        other => panic!("no kind {other}"),
    }
    run(app, &plan, &options)
}

fn plain() -> App {
    let app = App::new("plain");
    let numbers = app.source("numbers", || 0..3_u64);
    let show = app.sink("show", |_: u64| ());
    app.connect(numbers, show);
    app
}

/// A program with a blocking stage.
fn blocking() -> App {
    let app = App::new("blocking");
    let numbers = app.source("numbers", || 0..3_u64);
    let store = app.sink("store", |_: u64| ()).blocking();
    app.connect(numbers, store);
    app
}

/// A struct of arguments, each with its declaration and how it is read. Without clap's derive, which would have to be
/// a dependency of every program: see `options`.
macro_rules! arguments {
    ($(#[doc = $about:literal])? $name:ident { $( $field:ident: $type:ty = $read:ident($arg:expr), )* }) => {
        #[allow(dead_code, reason = "some programs only declare what they take")]
        struct $name {
            $( $field: $type, )*
        }

        impl clap::FromArgMatches for $name {
            fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
                Ok($name { $( $field: $read(matches, stringify!($field)), )* })
            }

            fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
                *self = clap::FromArgMatches::from_arg_matches(matches)?;
                Ok(())
            }
        }

        impl clap::Args for $name {
            fn augment_args(command: clap::Command) -> clap::Command {
                $( let command = command.about($about.trim()); )?
                command $( .arg($arg.id(stringify!($field))) )*
            }

            fn augment_args_for_update(command: clap::Command) -> clap::Command {
                Self::augment_args(command)
            }
        }
    };
}

fn option(long: &'static str) -> Arg {
    Arg::new(long).long(long).value_name(long.to_uppercase())
}

fn flag(long: &'static str) -> Arg {
    Arg::new(long).long(long).action(ArgAction::SetTrue)
}

fn one<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> Option<T> {
    matches.get_one(id).cloned()
}

fn given<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> T {
    one(matches, id).expect("it is required, or has a default")
}

fn all<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> Vec<T> {
    matches.get_many(id).into_iter().flatten().cloned().collect()
}

fn is_set(matches: &ArgMatches, id: &str) -> bool {
    matches.get_flag(id)
}

arguments! {
    Clash {
        plan: Option<String> = one(option("plan")),
    }
}

arguments! {
    Short {
        port: Option<u16> = one(option("port").short('p').value_parser(value_parser!(u16))),
    }
}

arguments! {
    /// Prints squares
    Squares {
        count: u64 = given(
            option("count").value_name("N").help("How many").default_value("10").value_parser(value_parser!(u64))
        ),
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    #[serde(default = "once")]
    times: u64,
}

fn once() -> u64 {
    1
}

const MINE: Offer = Offer {
    name: "mine",
    aliases: &[],
    about: "a policy of its own",
    cites: "nobody",
    params: &[],
};

fn squares(args: Squares, own: Own) -> comporta_model::error::Result<App> {
    if args.count == 0 {
        return Err(Error::msg("no squares of nothing"));
    }
    let app = App::new("squares");
    let numbers = app.source("numbers", move || 1..=args.count);
    let square = app.map("square", move |n: u64| n * n * own.times);
    let show = app.sink("show", |n: u64| say(&n.to_string()));
    app.connect(numbers, square);
    app.connect(square, show);
    app.register_policy(Entry::new(MINE, |_| Single));
    if std::env::var_os("COMPORTA_SHOWN_FAST").is_some() {
        app.set_plan(Plan::new().cluster("fast", |fast| fast.threads(1)));
    }
    Ok(app)
}

arguments! {
    Needy {
        file: PathBuf = given(
            Arg::new("file").value_name("FILE").help("What to read").required(true).value_parser(value_parser!(PathBuf))
        ),
        wait: Duration = given(
            option("wait").help("How long to wait for it").required(true).value_parser(seconds)
        ),
        owner: String = given(option("owner").help("Whose it is").required(true)),
        early: bool = is_set(flag("early").help("Read it before anything is built")),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').and_then(|n| n.parse().ok());
    seconds.map(Duration::from_secs).ok_or_else(|| "seconds, as in `3s`".to_owned())
}

/// A program that cannot run without its arguments, but can be drawn.
fn needy(args: Needy) -> comporta_model::error::Result<App> {
    if args.early {
        std::fs::read(&args.file)?;
    }
    let app = App::new("needy");
    let lines = app.source("lines", move || {
        say(&format!("{} {:?}", args.owner, args.wait));
        comporta_runtime::sources::lines(args.file)
    });
    let show = app.sink("show", |_: String| ());
    app.connect(lines, show);
    Ok(app)
}

arguments! {
    Picky {
        mild: bool = is_set(flag("mild").help("Fail nothing")),
    }
}

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Word {
    text: String,
    length: Option<usize>,
}

/// `words -> measure -> count -> show`: `measure` takes its events and fails those with a `!`,
/// `count` changes them in place and fails the long ones, `local` fails what no plan may copy.
/// What fails goes on through the error port.
fn caught() -> App {
    let app = App::new("caught");
    let texts = app.source("texts", || ["1", "two", "3"].map(str::to_owned).into_iter());
    let parse = app.try_map("parse", |text: String| Ok(text.parse::<u64>()?));
    app.connect(texts, parse);
    app.connect(parse, app.sink("show", |n: u64| say(&n.to_string())));
    let dead = app.sink("dead", |failed: Failed<String>| say(&failed.to_string()));
    app.connect(parse.errors(), dead);
    app
}

/// A stage whose name TOML wants in quotes.
fn dotted() -> App {
    let app = App::new("dotted");
    let numbers = app.source("numbers", || 1..=3_u64);
    let take = app.map("take.r", |n: u64| n);
    app.connect(numbers, take);
    app.connect(take, app.sink("show", |_: u64| ()));
    app
}

/// Names that no stage may have, each wrong twice.
fn rude() -> App {
    let app = App::new("rude");
    for name in ["\u{1b}[2J\r\u{7}", &"x".repeat(3_000)] {
        app.sink(name, |_: u64| ());
    }
    app
}

fn picky(args: Picky) -> App {
    let mild = args.mild;
    let app = App::new("picky");
    let words = app.source("words", || {
        ["one", "two!", "three", "four!", "seventeen"].map(str::to_owned).into_iter()
    });
    let measure =
        app.process("measure", move |text: String, out| match text.contains('!') && !mild {
            true => Err(Error::msg("it shouts")),
            false => {
                out.send(Word { text, length: None });
                Ok(())
            }
        });
    let count = app.map_in_place("count", move |word: &mut Word| {
        word.length = Some(word.text.len());
        if word.text.len() > 8 && !mild { Err(Error::msg("too long")) } else { Ok(()) }
    });
    let show = app.process("show", |word: Word, out| {
        say(&word.text);
        out.send(word.text);
    });
    let local = app.sink("local", move |text: String| match text.as_str() {
        "one" if !mild => Err(Error::msg("not one")),
        _ => Ok(()),
    });
    app.connect(words, measure);
    app.connect(measure, count);
    app.connect(count, show);
    app.connect_local(show, local);
    app
}

arguments! {
    Compared {
        count: Option<u64> = one(
            option("count").help("Events; without end if there is none").value_parser(value_parser!(u64))
        ),
        crash: Option<String> = one(
            option("crash").help("Crash under this policy, and fail an event under that")
        ),
        fail: Option<String> = one(option("fail")),
        pid: Option<PathBuf> = one(
            option("pid").help("Write the number of the process there").value_parser(value_parser!(PathBuf))
        ),
        words: Vec<String> = all(
            Arg::new("words").value_name("WORDS").help("What each run is to print before its report").num_args(0..)
        ),
    }
}

/// `numbers -> work -> save`, the last with effects. No program knows its policy; this one looks at
/// how its process was called.
fn compared(args: Compared) -> App {
    let runs_with = |policy: Option<String>| {
        let policy = policy.map(|policy| format!("--policy={policy}"));
        policy.is_some_and(|policy| std::env::args().any(|arg| arg == policy))
    };
    let (crashes, fails) = (runs_with(args.crash), runs_with(args.fail));
    let app = App::new("compared");
    let numbers = app.source("numbers", move || {
        if let Some(path) = &args.pid {
            let _ = std::fs::write(path, std::process::id().to_string());
        }
        say(&args.words.join(" "));
        0..args.count.unwrap_or(u64::MAX)
    });
    let work = app.process("work", move |n: u64, out| {
        if crashes {
            std::process::abort();
        }
        if fails && n == 3 {
            return Err(Error::msg("no threes"));
        }
        out.send(n);
        Ok(())
    });
    let save = app.sink("save", |_: u64| ()).effects();
    app.connect(numbers, work);
    app.connect(work, save);
    app
}

fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Waits for a line of standard input, or for its end; not for ever, so that a test whose signal
/// is not heard fails.
fn wait() {
    let (tell, told) = mpsc::channel();
    let body = move || {
        let _ = io::stdin().read_line(&mut String::new());
        let _ = tell.send(());
    };
    let _reader = thread::Builder::new().spawn(body).expect("there is room for one more thread");
    let _ = told.recv_timeout(Duration::from_secs(30));
}

/// Comes to its end by itself; some events fail.
fn end(app: &App) {
    let numbers = app.source("numbers", || 0..1_000_u64);
    let show = app.sink("show", |n: u64| match n % 100 {
        7 => Err(Error::msg("no sevens")),
        _ => Ok(()),
    });
    app.connect(numbers, show);
}

/// Goes on for ever; says `flows` once it does.
fn flow(app: &App) {
    let numbers = app.source("numbers", || 0..u64::MAX);
    let pass = app.map("pass", |n: u64| n);
    let show = app.sink("show", |n: u64| {
        if n == 1_000 {
            say("flows");
        }
    });
    app.connect(numbers, pass);
    app.connect(pass, show);
}

/// Goes on for ever, with something to look at: one slow stage, one that fails, one that sheds.
fn work(app: &App, plan: Plan) -> Plan {
    let slow = |time| {
        // A sleep stands for work that waits for something else.
        #[expect(clippy::disallowed_methods, reason = "this is a show")]
        thread::sleep(time);
    };
    let numbers = app.source("numbers", || 0..u64::MAX);
    let parse = app.process("parse", |n: u64, out| match n % 1_000 {
        7 => Err(Error::msg("no sevens")),
        _ => {
            out.send(n);
            Ok(())
        }
    });
    let resize = app.map("resize", move |n: u64| {
        slow(Duration::from_micros(500));
        n
    });
    let store = app.sink("store", |n: u64| {
        if n.is_multiple_of(1_000) {
            say(&format!("stored {n}"));
        }
    });
    let log = app.sink("log-everything", move |_: u64| slow(Duration::from_millis(2)));
    app.connect(numbers, parse);
    app.connect(parse, resize);
    app.connect(resize, store);
    app.connect(resize, log);
    plan.threads(4)
        .every(|stage| stage.capacity(10_000))
        .stage("resize", |stage| stage.instances(2))
        .stage("log-everything", |stage| {
            stage.capacity(100).when_full(comporta_model::plan::WhenFull::DropOldest)
        })
}

/// Its first event says `holds` and waits for standard input; others wait behind it.
fn hold(app: &App) {
    let numbers = app.source("numbers", || 0..100_u64);
    let show = app.sink("show", |n: u64| {
        if n == 0 {
            say("holds");
            wait();
        }
    });
    app.connect(numbers, show);
}

/// Its source says `opens` and waits for standard input while it is opened.
fn open(app: &App) {
    let numbers = app.source("numbers", || {
        say("opens");
        wait();
        0..u64::MAX
    });
    let show = app.sink("show", |_: u64| ());
    app.connect(numbers, show);
}

fn lines() -> App {
    let app = App::new("lines");
    reads(&app);
    app
}

/// Handles the lines of standard input, and says each.
fn reads(app: &App) {
    let lines =
        app.source("lines", || comporta_runtime::sources::lines_of("standard input", io::stdin()));
    let show = app.sink("show", |line: String| say(&line));
    app.connect(lines, show);
}

/// Its source breaks after ten events.
fn fails(app: &App) {
    let numbers = app.source("numbers", || {
        let left = Mutex::new(0..10_u64);
        std::iter::from_fn(move || match left.lock().ok()?.next() {
            Some(n) => Some(n),
            None => panic!("the disk is full"),
        })
    });
    let show = app.sink("show", |_: u64| ());
    app.connect(numbers, show);
}

/// Its source cannot be opened.
fn closed(app: &App) {
    let numbers = app.source("numbers", || {
        let file = std::fs::File::open("/no/such/file");
        file.map(|_| 0..10_u64)
    });
    let show = app.sink("show", |_: u64| ());
    app.connect(numbers, show);
}
