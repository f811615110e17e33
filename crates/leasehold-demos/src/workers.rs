//! The worker processes of a demo: started, killed without warning, restarted.

use std::{
    collections::BTreeMap,
    fs::File,
    process::{Child, Command, Stdio},
};

use rand::{RngExt, rngs::StdRng};

use crate::{Result, kill::Killed, verdict::Verdict, worker::Worker};

/// The role that only reads the database and checks the invariant.
pub(crate) const JUDGE: &str = "judge";

/// The running workers.
pub(crate) struct Workers {
    /// The configuration that all of them share.
    template: Worker,
    running: Vec<Running>,
}

struct Running {
    worker: Worker,
    process: Child,
}

impl Workers {
    pub(crate) fn new(template: Worker) -> Self {
        Self { template, running: Vec::new() }
    }

    /// The configuration that all of them share.
    pub(crate) fn template(&self) -> &Worker {
        &self.template
    }

    /// Starts one more worker of a role; returns its pid.
    pub(crate) fn start(&mut self, role: &str) -> Result<u32> {
        let number = 1 + self.running.iter().filter(|one| one.worker.role == role).count();
        let worker = Worker { role: role.into(), number, ..self.template.clone() };
        let process = spawn(&worker)?;
        let pid = process.id();
        self.running.push(Running { worker, process });
        Ok(pid)
    }

    /// The workers of a role, by number and life.
    pub(crate) fn lives(&self, role: &str) -> Vec<(usize, u32)> {
        let running = self.running.iter().filter(|one| one.worker.role == role);
        running.map(|one| (one.worker.number, one.worker.life)).collect()
    }

    /// Kills a random worker of a role with SIGKILL and restarts it.
    pub(crate) fn kill_one(&mut self, role: &str, rng: &mut StdRng) -> Result<Option<Killed>> {
        let mut candidates: Vec<_> = self.running.iter_mut().filter(|one| one.worker.role == role).collect();
        if candidates.is_empty() {
            return Ok(None);
        }
        let chosen = rng.random_range(0..candidates.len());
        let one = &mut candidates[chosen];
        let pid = one.process.id();
        one.process.kill()?;
        one.process.wait()?;
        one.worker.life += 1;
        one.process = spawn(&one.worker)?;
        Ok(Some(Killed { name: one.worker.name(), pid, again: one.process.id() }))
    }

    /// Fails if all workers of a role have failed: the others would wait for them for ever.
    pub(crate) fn check(&mut self) -> Result<()> {
        let mut failed: BTreeMap<&str, Option<String>> = BTreeMap::new();
        for Running { worker, process } in &mut self.running {
            let how = match process.try_wait()? {
                Some(status) if !status.success() => Some(format!("{status}: {}", last_line(worker))),
                _ => None,
            };
            let all = failed.entry(&worker.role).or_insert_with(|| how.clone());
            *all = all.take().and(how);
        }
        match failed.into_iter().find_map(|(role, how)| Some((role, how?))) {
            Some((role, how)) => Err(format!("every {role} has failed, the last one with {how}").into()),
            None => Ok(()),
        }
    }

    /// Kills all of them.
    pub(crate) fn kill_all(&mut self) -> Result<()> {
        for mut one in self.running.drain(..) {
            one.process.kill()?;
            one.process.wait()?;
        }
        Ok(())
    }

    /// Has the database judged by a separate process; returns its pid too.
    pub(crate) fn judge(&self) -> Result<(Verdict, u32)> {
        let worker = Worker { role: JUDGE.into(), number: 1, ..self.template.clone() };
        let judge = spawn(&worker)?;
        let pid = judge.id();
        let output = judge.wait_with_output()?;
        if !output.status.success() {
            return Err(format!("the judge failed: {}", last_line(&worker)).into());
        }
        Ok((serde_json::from_slice(&output.stdout)?, pid))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let _gone_already = self.kill_all();
    }
}

fn log_of(worker: &Worker) -> std::path::PathBuf {
    worker.folder.join(format!("{}-{}.log", worker.role, worker.number))
}

/// The last line of a worker's log, which may be deleted with its folder soon.
fn last_line(worker: &Worker) -> String {
    let log = std::fs::read_to_string(log_of(worker)).unwrap_or_default();
    log.lines().next_back().unwrap_or("no output").to_owned()
}

fn spawn(worker: &Worker) -> Result<Child> {
    let log = File::options().create(true).append(true).open(log_of(worker))?;
    let (name, value) = worker.to_env()?;
    let mut program = Command::new(std::env::current_exe()?);
    program.env(name, value).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    Ok(program.spawn()?)
}
