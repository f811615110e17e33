//! A contestant: a program that runs one workload round by round, when it is told to.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::Value;

use crate::Failure;

/// Ends with this value.
pub(crate) struct Contestant {
    name: String,
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Contestant {
    /// Returns when it is ready; `None` if it does not support the workload.
    pub(crate) fn start(mut command: Command, name: &str) -> Result<Option<Self>, Failure> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take().ok_or("no stdout")?);
        let mut contestant = Self { name: name.to_owned(), child, orders, answers: BufReader::new(answers) };
        let answer = contestant.answer()?;
        if answer == "ready" {
            return Ok(Some(contestant));
        }
        match serde_json::from_str::<Value>(&answer) {
            Ok(answer) if answer["unsupported"].is_string() => Ok(None),
            _ => Err(format!("{name} answered {answer:?} instead of ready").into()),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn round(&mut self) -> Result<Value, Failure> {
        self.order("round")
    }

    fn order(&mut self, order: &str) -> Result<Value, Failure> {
        let orders = self.orders.as_mut().ok_or("it has ended")?;
        writeln!(orders, "{order}")?;
        let answer = self.answer()?;
        Ok(serde_json::from_str(&answer)
            .map_err(|error| format!("{} answered {answer:?}: {error}", self.name))?)
    }

    fn answer(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(format!("{} ended", self.name).into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}
