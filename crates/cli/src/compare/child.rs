//! One run, as a process of its own: so that each starts from the same state, and a crash costs
//! one run. What it prints is thrown away but for the last line, which is its report as JSON.
//! It has a process group of its own: Ctrl-C is heard by the comparison, which then ends it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread::{Builder, JoinHandle};

use serde::{Deserialize, Serialize};

use crate::show::signals::Word;

/// A longer line is no report: a bound against programs that print without end.
const LINE_MAX: usize = 16 << 20;

/// Why a run says nothing: most likely the program reads its standard input.
pub(super) const NO_INPUT: &str = "no event came into the program. Each run of a comparison has an \
    empty standard input: a program that reads it cannot be compared, unless it takes the name of a \
    file instead";

/// What a run's report tells, as far as it is compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Numbers {
    pub(crate) elapsed_s: f64,
    pub(crate) events_in: u64,
    pub(crate) events_out: u64,
    /// Of those that left the program.
    pub(crate) events_per_s: f64,
    pub(crate) mean_s: f64,
    pub(crate) deviation_s: f64,
    pub(crate) p50_s: f64,
    pub(crate) p90_s: f64,
    pub(crate) p99_s: f64,
    pub(crate) max_s: f64,
    /// In all stages, for all reasons.
    pub(crate) shed: u64,
    pub(crate) cpu_s: Option<f64>,
}

impl Numbers {
    /// Events that came into the program, a second.
    pub(super) fn input_per_s(&self) -> f64 {
        self.events_in as f64 / self.elapsed_s
    }

    /// Processor time for each event that left the program.
    pub(super) fn cpu_per_event_s(&self) -> f64 {
        self.cpu_s.map_or(f64::NAN, |cpu| cpu / self.events_out as f64)
    }

    /// The share that was shed of all that came to an end.
    pub(super) fn shed_share(&self) -> f64 {
        self.shed as f64 / (self.shed + self.events_out) as f64
    }
}

/// The report: `show/json.rs` has its names.
#[derive(Deserialize)]
struct Report {
    elapsed_s: f64,
    events_in: u64,
    events_out: u64,
    events_out_per_s: f64,
    latency: Taken,
    cpu_s: Option<f64>,
    stages: Vec<Stage>,
    problems: Vec<String>,
    failures: Vec<Failure>,
}

#[derive(Deserialize)]
struct Taken {
    mean_s: f64,
    deviation_s: f64,
    p50_s: f64,
    p90_s: f64,
    p99_s: f64,
    max_s: f64,
}

#[derive(Deserialize)]
struct Stage {
    shed: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Failure {
    stage: String,
    reason: String,
    count: u64,
}

/// A run that has been started.
pub(super) struct Child {
    process: std::process::Child,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
}

impl Child {
    /// Starts the program with these arguments; `tell` hears `Ended` when it has closed its output.
    pub(super) fn start(args: &[OsString], tell: Sender<Word>) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut process = command.spawn()?;
        let streams = (process.stdout.take(), process.stderr.take());
        let read = || -> io::Result<_> {
            let missing = || io::Error::other("its output was not piped");
            let (stdout, stderr) = (streams.0.ok_or_else(missing)?, streams.1.ok_or_else(missing)?);
            let stderr = reader(stderr, || ())?;
            let stdout = reader(stdout, move || {
                let _ = tell.send(Word::Ended);
            })?;
            Ok((stdout, stderr))
        };
        match read() {
            Ok((stdout, stderr)) => Ok(Child { process, stdout, stderr }),
            Err(error) => {
                let _ = process.kill().and_then(|()| process.wait());
                Err(error)
            }
        }
    }

    /// Waits for its end and says what it did, or why it failed.
    pub(super) fn end(mut self) -> Result<Numbers, String> {
        let status = self.process.wait().map_err(|error| error.to_string())?;
        let last = |reader: JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
        outcome(status, &last(self.stdout), &String::from_utf8_lossy(&last(self.stderr)))
    }

    /// Ends it and all it has started, at once.
    pub(super) fn kill(mut self) {
        #[cfg(unix)]
        if let Some(group) = rustix::process::Pid::from_raw(self.process.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.process.kill();
        let _ = self.end();
    }
}

/// Reads a stream to its end and keeps its last line.
fn reader(
    mut stream: impl Read + Send + 'static,
    done: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<Vec<u8>>> {
    let body = move || {
        let (mut last, mut bytes) = (LastLine::default(), vec![0; 1 << 16]);
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => break,
                Ok(n) => last.feed(&bytes[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        done();
        last.line
    };
    Builder::new().name("output".to_owned()).spawn(body)
}

/// The last line of a stream that is not empty.
#[derive(Default)]
struct LastLine {
    line: Vec<u8>,
    ended: bool,
}

impl LastLine {
    fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            if self.ended && !text.is_empty() {
                self.line.clear();
                self.ended = false;
            }
            if self.line.len() + text.len() <= LINE_MAX {
                self.line.extend_from_slice(text);
            }
            self.ended |= text.len() < piece.len();
        }
    }
}

/// What a process that ended so, and said this last, tells.
fn outcome(status: ExitStatus, stdout: &[u8], stderr: &str) -> Result<Numbers, String> {
    let report = serde_json::from_slice::<Report>(stdout);
    let why = || match &report {
        Ok(report) if !report.problems.is_empty() => report.problems[0].clone(),
        Ok(Report { failures, .. }) if !failures.is_empty() => {
            let Failure { stage, reason, count } = &failures[0];
            format!("{count} failed at `{stage}`: {reason}")
        }
        _ => stderr.trim().to_owned(),
    };
    let with = |how: String| match why() {
        why if why.is_empty() => how,
        why => format!("{how}: {why}"),
    };
    match (status.code(), &report) {
        (Some(0), Ok(report)) if report.events_in == 0 => Err(NO_INPUT.to_owned()),
        (Some(0), Ok(report)) if report.events_out == 0 => {
            Err(format!("no event left the program; {} came in", report.events_in))
        }
        (Some(0), Ok(report)) => Ok(numbers(report)),
        (Some(0), Err(_)) => Err("it printed no report: its last line is no JSON".to_owned()),
        (Some(3), _) => {
            Err(with("exit code 3, events were left at the end of its drain".to_owned()))
        }
        (Some(code), _) => Err(with(format!("exit code {code}"))),
        (None, _) => Err(with(format!("ended by {}", signal(status)))),
    }
}

fn numbers(report: &Report) -> Numbers {
    let Taken { mean_s, deviation_s, p50_s, p90_s, p99_s, max_s } = report.latency;
    Numbers {
        elapsed_s: report.elapsed_s,
        events_in: report.events_in,
        events_out: report.events_out,
        events_per_s: report.events_out_per_s,
        mean_s,
        deviation_s,
        p50_s,
        p90_s,
        p99_s,
        max_s,
        shed: report.stages.iter().flat_map(|stage| stage.shed.values()).sum(),
        cpu_s: report.cpu_s,
    }
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
    signal.map_or_else(|| "a signal".to_owned(), crate::show::signals::name)
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> String {
    "the system".to_owned()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn last(pieces: &[&str]) -> String {
        let mut last = LastLine::default();
        pieces.iter().for_each(|piece| last.feed(piece.as_bytes()));
        String::from_utf8(last.line).unwrap()
    }

    #[test]
    fn the_last_line_is_kept_however_it_comes() {
        assert_eq!(last(&[]), "");
        assert_eq!(last(&["one\ntw", "o\n", "{thr", "ee}", "\n"]), "{three}");
        assert_eq!(last(&["one\n", "\n\n"]), "one");
        assert_eq!(last(&["one\ntwo"]), "two");
    }

    const REPORT: &str = r#"{"app":"a","elapsed_s":2.0,"events_in":10,"events_out":8,"#;
    const REST: &str = r#""events_out_per_s":4.0,"latency":{"count":8,"mean_s":1.0,
        "deviation_s":0.5,"p50_s":0.9,"p90_s":1.2,"p99_s":2.0,"p999_s":2.0,"max_s":2.5},
        "cpu_s":4.0,"stages":[{"name":"a","shed":{"rejected":1,"cycle":0}},
        {"name":"b","shed":{"new":1}}],"problems":[],"failures":[]}"#;

    fn exit(code: i32, stdout: &str, stderr: &str) -> Result<Numbers, String> {
        outcome(ExitStatus::from_raw(code << 8), stdout.as_bytes(), stderr)
    }

    #[test]
    fn a_report_is_read_and_what_was_shed_is_added_up_for_all_reasons() {
        let numbers = exit(0, &format!("{REPORT}{REST}"), "").unwrap();
        assert_eq!((numbers.events_per_s, numbers.p99_s, numbers.shed), (4.0, 2.0, 2));
        assert_eq!((numbers.cpu_per_event_s(), numbers.shed_share()), (0.5, 0.2));
    }

    #[test]
    fn a_run_that_failed_says_why_as_far_as_can_be_known() {
        let report = format!("{REPORT}{REST}");
        let reason = |code, stdout: &str, stderr| exit(code, stdout, stderr).unwrap_err();
        assert_eq!(reason(2, "", "error: no such file\n"), "exit code 2: error: no such file");
        assert_eq!(reason(1, "", ""), "exit code 1");
        assert!(reason(0, "hello", "").starts_with("it printed no report"));
        let none = report.replace(r#""events_out":8"#, r#""events_out":0"#);
        assert_eq!(reason(0, &none, ""), "no event left the program; 10 came in");
        let nothing = none.replace(r#""events_in":10"#, r#""events_in":0"#);
        assert!(reason(0, &nothing, "").contains("standard input"));
        let problem = report.replace(r#""problems":[]"#, r#""problems":["the disk is full"]"#);
        assert_eq!(reason(1, &problem, "noise"), "exit code 1: the disk is full");
        let failures = r#""failures":[{"stage":"parse","reason":"no digit","count":7}]"#;
        let failed = report.replace(r#""failures":[]"#, failures);
        assert_eq!(reason(1, &failed, ""), "exit code 1: 7 failed at `parse`: no digit");
        assert!(reason(3, &report, "").contains("events were left"));
        let killed = outcome(ExitStatus::from_raw(6), b"", "thread panicked");
        assert_eq!(killed.unwrap_err(), "ended by SIGABRT: thread panicked");
    }
}
