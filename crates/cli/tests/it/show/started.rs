//! A program that a test has started: what it says is read as it comes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A started program. Its standard input stays open until it is finished or let go.
pub(crate) struct Started {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
}

/// How it went.
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program of the tests, with these arguments.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shown"));
    command.args(args).stdin(Stdio::piped());
    command
}

/// Starts the program, its output in pipes.
pub(crate) fn start(args: &[&str]) -> Started {
    start_with(&mut command(args))
}

/// Starts a command, its input and output in pipes.
pub(crate) fn start_with(command: &mut Command) -> Started {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let stderr = BufReader::new(child.stderr.take().unwrap());
    Started { child, stdout, stderr }
}

/// Sends a signal to a process that has not been waited for.
pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

impl Started {
    /// Reads standard output up to this line.
    pub(crate) fn until_said(&mut self, line: &str) {
        until(&mut self.stdout, line);
    }

    /// Reads standard error up to a line with this in it.
    pub(crate) fn until_told(&mut self, text: &str) -> String {
        until(&mut self.stderr, text)
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(&self.child, which);
    }

    /// Writes a line to its standard input, which stays open.
    pub(crate) fn write(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Ends its standard input.
    pub(crate) fn let_go(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits for its end. Standard input stays open.
    pub(crate) fn end(mut self) -> Outcome {
        let stdin = self.child.stdin.take();
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut stderr).unwrap();
        let status = self.child.wait().unwrap();
        drop(stdin);
        Outcome { status, stdout, stderr }
    }
}

fn until(from: &mut impl BufRead, text: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(from.read_line(&mut line).unwrap() > 0, "it ended before it said `{text}`");
        if line.contains(text) {
            return line;
        }
    }
}

impl Outcome {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The last line of standard output, which must agree with the exit code.
    pub(crate) fn json(&self) -> Value {
        let last = self.stdout.lines().last().unwrap_or_else(|| panic!("nothing: {}", self.stderr));
        let json: Value = serde_json::from_str(last).unwrap();
        assert_eq!(json["exit_code"].as_i64(), self.code().map(i64::from), "{json}");
        json
    }
}

/// The stage of that name.
pub(crate) fn stage<'a>(json: &'a Value, name: &str) -> &'a Value {
    let mut stages = json["stages"].as_array().unwrap().iter();
    stages
        .find(|stage| stage["name"] == name)
        .unwrap_or_else(|| panic!("no stage `{name}`: {json}"))
}
