//! A contestant: a program that runs one workload, a round for each line that it is sent.
//!
//! It prints `ready`, or why it does not support the workload; then it answers each order with one JSON object.

use std::{process::Command, time::Duration};

use leasehold_peers::Process;
use serde_json::Value;

use crate::Failure;

/// For one step: to become ready, to answer, to end. The longest is to take 100,000 locks on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A running contestant, killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Contestant {
    process: Process,
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
        let mut contestant = Self { process: Process::start(command, name, PATIENCE)? };
        let first = contestant.process.answer("it was ready")?;
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
        self.process.pid()
    }

    /// From now on one step may take so long.
    pub(crate) fn wait_at_most(&mut self, patience: Duration) {
        self.process.wait_at_most(patience);
    }

    /// Runs one round; returns its figures.
    pub(crate) fn round(&mut self) -> Result<Value, Failure> {
        self.order("round")
    }

    /// Begins a round that is not waited for.
    pub(crate) fn begin_round(&mut self) {
        self.process.tell("round");
    }

    /// Closes its input, as the end of the benchmark would; returns when it has ended.
    pub(crate) fn hang_up(mut self) -> Result<(), Failure> {
        Ok(self.process.hang_up()?)
    }

    /// Releases what it holds; returns how many locks that were.
    pub(crate) fn release(&mut self) -> Result<u64, Failure> {
        let answer = self.order("release")?;
        let released = answer["released"].as_u64();
        released.ok_or_else(|| self.failure(&format!("answered {answer} instead of what it released")))
    }

    /// Ends it in good order.
    pub(crate) fn quit(self) -> Result<(), Failure> {
        Ok(self.process.quit()?)
    }

    fn order(&mut self, order: &str) -> Result<Value, Failure> {
        let answer = self.process.ask(order)?;
        serde_json::from_str(&answer)
            .map_err(|error| self.failure(&format!("answered {answer:?} to `{order}`: {error}")))
    }

    fn failure(&mut self, what: &str) -> Failure {
        self.process.failure(what).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str) -> Result<Started, Failure> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Contestant::start(command, "redsync")
    }

    fn started(script: &str) -> Contestant {
        match start(script).unwrap() {
            Started::Ready(contestant) => contestant,
            Started::Unsupported(reason) => panic!("{reason}"),
        }
    }

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
        let started = start(r#"echo '{"unsupported":"no watchdog"}'"#).unwrap();
        assert!(matches!(&started, Started::Unsupported(reason) if reason == "no watchdog"), "{started:?}");
    }

    #[test]
    fn one_that_dies_before_it_is_ready_is_named() {
        let error = start("echo 'connection refused' >&2; exit 3").unwrap_err();
        let text = "redsync ended (exit status: 3) before it was ready\nconnection refused";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn an_answer_of_another_form_is_shown() {
        let error = start("echo hello; exec sleep 1000").unwrap_err().to_string();
        assert_eq!(error, "redsync answered \"hello\" instead of `ready`");
        let error = started("echo ready; echo oops; exec sleep 1000").round().unwrap_err().to_string();
        assert!(error.starts_with("redsync answered \"oops\" to `round`: expected value"), "{error}");
        let error = started("echo ready; echo '{}'; exec sleep 1000").release().unwrap_err().to_string();
        assert_eq!(error, "redsync answered {} instead of what it released");
    }
}
