//! A contestant: a program that runs one workload, a round for each line that it is sent.
//!
//! It prints `ready`, or why it does not support the workload; then it answers each order with one JSON object.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use leasehold_testkit::poll;
use serde_json::Value;

use crate::Failure;

/// For one step: to become ready, to answer, to end. The longest is to take 100,000 locks on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// For the status and the last lines of a process that ends.
const LAST_WORDS: Duration = Duration::from_secs(2);
const STDERR_LINES_MAX: usize = 20;

/// A running contestant, killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Contestant {
    name: String,
    patience: Duration,
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    stderr: Receiver<String>,
}

/// What became of the start of a contestant.
#[derive(Debug)]
pub(crate) enum Started {
    Ready(Contestant),
    /// It cannot run the workload, for this reason.
    Unsupported(String),
}

impl Contestant {
    /// Returns when it is ready. The name is that of the errors.
    pub(crate) fn start(command: Command, name: &str) -> Result<Started, Failure> {
        Self::start_within(command, name, PATIENCE)
    }

    fn start_within(mut command: Command, name: &str, patience: Duration) -> Result<Started, Failure> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
        let orders = child.stdin.take().expect("stdin is piped");
        let answers = lines(child.stdout.take().expect("stdout is piped"));
        let stderr = lines(child.stderr.take().expect("stderr is piped"));
        let mut contestant = Self { name: name.to_owned(), patience, child, orders, answers, stderr };
        let first = contestant.answer("it was ready")?;
        if first == "ready" {
            return Ok(Started::Ready(contestant));
        }
        let reason = serde_json::from_str::<Value>(&first).ok();
        let reason = reason.as_ref().and_then(|answer| answer["unsupported"].as_str());
        match reason {
            Some(reason) => Ok(Started::Unsupported(reason.to_owned())),
            None => Err(contestant.failure(&format!("answered {first:?} instead of `ready`"))),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// From now on one step may take so long.
    pub(crate) fn wait_at_most(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Runs one round; returns its figures.
    pub(crate) fn round(&mut self) -> Result<Value, Failure> {
        self.order("round")
    }

    /// Releases what it holds; returns how many locks that were.
    pub(crate) fn release(&mut self) -> Result<u64, Failure> {
        let answer = self.order("release")?;
        let released = answer["released"].as_u64();
        released.ok_or_else(|| self.failure(&format!("answered {answer} instead of what it released")))
    }

    /// Ends it in good order.
    pub(crate) fn quit(mut self) -> Result<(), Failure> {
        // It may have ended, which the status shows.
        let _ = writeln!(self.orders, "quit");
        match self.end(self.patience) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.failure(&format!("failed at its end: {status}"))),
            None => Err(self.failure(&format!("did not end within {:?}", self.patience))),
        }
    }

    fn order(&mut self, order: &str) -> Result<Value, Failure> {
        // If it has ended, then reading the answer finds out.
        let _ = writeln!(self.orders, "{order}");
        let answer = self.answer(&format!("it had answered `{order}`"))?;
        serde_json::from_str(&answer)
            .map_err(|error| self.failure(&format!("answered {answer:?} to `{order}`: {error}")))
    }

    fn answer(&mut self, before: &str) -> Result<String, Failure> {
        self.answers.recv_timeout(self.patience).map_err(|missing| {
            let what = match missing {
                RecvTimeoutError::Timeout => format!("was silent for {:?}", self.patience),
                RecvTimeoutError::Disconnected => match self.end(LAST_WORDS) {
                    Some(status) => format!("ended ({status})"),
                    None => "closed its output".to_owned(),
                },
            };
            self.failure(&format!("{what} before {before}"))
        })
    }

    /// How it has ended, if it does in time.
    fn end(&mut self, limit: Duration) -> Option<ExitStatus> {
        poll(limit, || self.child.try_wait().ok().flatten())
    }

    /// Ends it, and shows what it wrote to standard error.
    fn failure(&mut self, what: &str) -> Failure {
        self.kill();
        let mut stderr = Vec::new();
        // What it has started itself may still have the other end.
        while let Ok(line) = self.stderr.recv_timeout(LAST_WORDS) {
            stderr.push(line);
        }
        let shown = &stderr[stderr.len().saturating_sub(STDERR_LINES_MAX)..];
        format!("{} {what}\n{}", self.name, shown.join("\n")).trim_end().into()
    }

    fn kill(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        self.kill();
    }
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.map(|line| sender.send(line)).take_while(Result::is_ok).for_each(drop);
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str, patience: Duration) -> Result<Started, Failure> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Contestant::start_within(command, "redsync", patience)
    }

    fn started(script: &str) -> Contestant {
        match start(script, PATIENCE).unwrap() {
            Started::Ready(contestant) => contestant,
            Started::Unsupported(reason) => panic!("{reason}"),
        }
    }

    /// For what never comes.
    const SHORT: Duration = Duration::from_millis(100);

    #[test]
    fn a_round_is_answered_by_its_figures() {
        let mut contestant = started(
            r#"echo ready; while read order; do case $order in
                round) echo '{"cycles":7}' ;;
                release) echo '{"released":3}' ;;
                quit) exit 0 ;;
            esac; done"#,
        );
        assert!(std::path::Path::new(&format!("/proc/{}", contestant.pid())).exists());
        assert_eq!(contestant.round().unwrap()["cycles"], 7);
        assert_eq!(contestant.round().unwrap()["cycles"], 7);
        assert_eq!(contestant.release().unwrap(), 3);
        contestant.quit().unwrap();
    }

    #[test]
    fn an_unsupported_workload_comes_with_its_reason() {
        let started = start(r#"echo '{"unsupported":"no watchdog"}'"#, PATIENCE).unwrap();
        assert!(matches!(&started, Started::Unsupported(reason) if reason == "no watchdog"), "{started:?}");
    }

    #[test]
    fn one_that_dies_is_named_with_its_status_and_stderr() {
        let error = start("echo 'connection refused' >&2; exit 3", PATIENCE).unwrap_err();
        let text = "redsync ended (exit status: 3) before it was ready\nconnection refused";
        assert_eq!(error.to_string(), text);

        let error = started("echo ready; read order; kill -KILL $$").round().unwrap_err().to_string();
        assert_eq!(error, "redsync ended (signal: 9 (SIGKILL)) before it had answered `round`");

        let error =
            started("echo ready; read order; echo 'still held' >&2; exit 1").quit().unwrap_err().to_string();
        assert_eq!(error, "redsync failed at its end: exit status: 1\nstill held");
    }

    #[test]
    fn one_that_is_silent_is_given_up() {
        let error = start("exec sleep 1000", SHORT).unwrap_err().to_string();
        assert_eq!(error, "redsync was silent for 100ms before it was ready");

        let mut contestant = started("echo 'cannot connect' >&2; echo ready; exec sleep 1000");
        contestant.patience = SHORT;
        let error = contestant.round().unwrap_err().to_string();
        assert_eq!(error, "redsync was silent for 100ms before it had answered `round`\ncannot connect");
    }

    #[test]
    fn one_that_does_not_end_is_killed() {
        let mut contestant = started("echo ready; exec sleep 1000");
        contestant.patience = SHORT;
        let process = format!("/proc/{}", contestant.pid());
        let error = contestant.quit().unwrap_err().to_string();
        assert_eq!(error, "redsync did not end within 100ms");
        assert!(!std::path::Path::new(&process).exists());

        let dropped = started("echo ready; exec sleep 1000");
        let process = format!("/proc/{}", dropped.pid());
        drop(dropped);
        assert!(!std::path::Path::new(&process).exists());
    }

    #[test]
    fn an_answer_of_another_form_is_shown() {
        let error = start("echo hello; exec sleep 1000", PATIENCE).unwrap_err().to_string();
        assert_eq!(error, "redsync answered \"hello\" instead of `ready`");
        let error = started("echo ready; echo oops; exec sleep 1000").round().unwrap_err().to_string();
        assert!(error.starts_with("redsync answered \"oops\" to `round`: expected value"), "{error}");
        let error = started("echo ready; echo '{}'; exec sleep 1000").release().unwrap_err().to_string();
        assert_eq!(error, "redsync answered {} instead of what it released");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = Contestant::start(Command::new("no-such-program-anywhere"), "redsync").unwrap_err();
        assert!(error.to_string().starts_with("cannot start redsync: "), "{error}");
    }
}
