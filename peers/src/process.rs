//! A program that answers each line on its standard input with one line on its standard output.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use leasehold_testkit::poll;

/// For the status and the last lines of a process that ends.
const LAST_WORDS: Duration = Duration::from_secs(2);
const STDERR_LINES_MAX: usize = 20;

/// A running program, killed when this is dropped. Errors are texts that name it and show its standard error; it has been
/// killed by then.
#[derive(Debug)]
pub struct Process {
    name: String,
    patience: Duration,
    child: Child,
    /// None once it was hung up on.
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    stderr: Receiver<String>,
}

impl Process {
    /// Returns when it runs. The name is that of the errors; one step, as an answer, may take as long as `patience`.
    pub fn start(mut command: Command, name: &str, patience: Duration) -> Result<Self, String> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
        let orders = child.stdin.take();
        let answers = lines(child.stdout.take().expect("stdout is piped"));
        let stderr = lines(child.stderr.take().expect("stderr is piped"));
        Ok(Self { name: name.to_owned(), patience, child, orders, answers, stderr })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// From now on one step may take so long.
    pub fn wait_at_most(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Sends a line, and waits for the answer.
    pub fn ask(&mut self, order: &str) -> Result<String, String> {
        self.tell(order);
        self.answer(&format!("it had answered `{order}`"))
    }

    /// Sends a line. If the process has ended, then reading the answer finds out.
    pub fn tell(&mut self, order: &str) {
        let _ = self.orders.as_mut().map(|orders| writeln!(orders, "{order}"));
    }

    /// Waits for a line; the error ends with «before» and the text.
    pub fn answer(&mut self, before: &str) -> Result<String, String> {
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

    /// The answer, if it has come already.
    pub fn answered(&mut self) -> Option<String> {
        self.answers.try_recv().ok()
    }

    /// Ends it in good order.
    pub fn quit(mut self) -> Result<(), String> {
        self.tell("quit");
        match self.end(self.patience) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.failure(&format!("failed at its end: {status}"))),
            None => Err(self.failure(&format!("did not end within {:?}", self.patience))),
        }
    }

    /// Closes its input, as the end of this process would; returns when it has ended by itself.
    pub fn hang_up(&mut self) -> Result<(), String> {
        self.orders = None;
        match self.end(self.patience) {
            Some(_) => Ok(()),
            None => {
                Err(self.failure(&format!("ran on for {:?} without anybody at its input", self.patience)))
            }
        }
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill9(mut self) {
        self.kill();
    }

    /// Ends it, and shows what it wrote to standard error.
    pub fn failure(&mut self, what: &str) -> String {
        self.kill();
        let mut stderr = Vec::new();
        // What it has started itself may still have the other end.
        while let Ok(line) = self.stderr.recv_timeout(LAST_WORDS) {
            stderr.push(line);
        }
        let shown = &stderr[stderr.len().saturating_sub(STDERR_LINES_MAX)..];
        format!("{} {what}\n{}", self.name, shown.join("\n")).trim_end().to_owned()
    }

    /// How it has ended, if it does in time.
    fn end(&mut self, limit: Duration) -> Option<ExitStatus> {
        poll(limit, || self.child.try_wait().ok().flatten())
    }

    fn kill(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
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

    const PATIENCE: Duration = Duration::from_secs(60);
    /// For what never comes.
    const SHORT: Duration = Duration::from_millis(100);

    fn start(script: &str, patience: Duration) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command, "redsync", patience).unwrap()
    }

    #[test]
    fn every_line_has_its_answer() {
        let mut process =
            start("while read order; do [ $order = quit ] && exit; echo did $order; done", PATIENCE);
        assert_eq!(process.answered(), None);
        assert_eq!(process.ask("one").unwrap(), "did one");
        process.tell("two");
        assert_eq!(process.answer("two").unwrap(), "did two");
        process.quit().unwrap();
    }

    #[test]
    fn one_that_dies_is_named_with_its_status_and_stderr() {
        let error =
            start("echo 'connection refused' >&2; exit 3", PATIENCE).answer("it was ready").unwrap_err();
        assert_eq!(error, "redsync ended (exit status: 3) before it was ready\nconnection refused");

        let error = start("read order; kill -KILL $$", PATIENCE).ask("round").unwrap_err();
        assert_eq!(error, "redsync ended (signal: 9 (SIGKILL)) before it had answered `round`");

        let error = start("read order; echo 'still held' >&2; exit 1", PATIENCE).quit().unwrap_err();
        assert_eq!(error, "redsync failed at its end: exit status: 1\nstill held");
    }

    #[test]
    fn one_that_is_silent_is_given_up() {
        let mut process = start("echo 'cannot connect' >&2; echo ready; exec sleep 1000", PATIENCE);
        assert_eq!(process.answer("it was ready").unwrap(), "ready");
        process.wait_at_most(SHORT);
        let error = process.ask("round").unwrap_err();
        assert_eq!(error, "redsync was silent for 100ms before it had answered `round`\ncannot connect");
    }

    #[test]
    fn one_that_does_not_end_is_killed() {
        let runs = |pid: u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
        let process = start("exec sleep 1000", SHORT);
        let pid = process.pid();
        assert!(runs(pid));
        assert_eq!(process.quit().unwrap_err(), "redsync did not end within 100ms");
        assert!(!runs(pid));

        for end in [drop, Process::kill9] {
            let process = start("exec sleep 1000", PATIENCE);
            let pid = process.pid();
            end(process);
            assert!(!runs(pid));
        }
    }

    #[test]
    fn one_that_reads_its_input_ends_with_it() {
        start("while read order; do :; done", PATIENCE).hang_up().unwrap();
        let error = start("exec sleep 1000", SHORT).hang_up().unwrap_err();
        assert_eq!(error, "redsync ran on for 100ms without anybody at its input");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error =
            Process::start(Command::new("no-such-program-anywhere"), "redsync", PATIENCE).unwrap_err();
        assert!(error.starts_with("cannot start redsync: "), "{error}");
    }
}
