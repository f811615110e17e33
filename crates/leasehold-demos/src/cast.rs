//! The processes of a demo: started, killed without warning, started again.

use std::{
    collections::BTreeMap,
    fs::File,
    process::{Child, Command, Stdio},
};

use rand::{RngExt, rngs::StdRng};

use crate::{Result, part::Part, verdict::Verdict};

/// The role that only reads the database and says what became of it.
pub(crate) const JUDGE: &str = "judge";

/// Those who play now.
pub(crate) struct Cast {
    /// What all of them are told.
    part: Part,
    actors: Vec<Actor>,
}

struct Actor {
    part: Part,
    process: Child,
}

impl Cast {
    pub(crate) fn new(part: Part) -> Self {
        Self { part, actors: Vec::new() }
    }

    /// What all of them are told.
    pub(crate) fn part(&self) -> &Part {
        &self.part
    }

    /// Starts one more process of a role; answers its pid.
    pub(crate) fn start(&mut self, role: &str) -> Result<u32> {
        let number = 1 + self.actors.iter().filter(|actor| actor.part.role == role).count();
        let part = Part { role: role.into(), number, ..self.part.clone() };
        let process = spawn(&part)?;
        let pid = process.id();
        self.actors.push(Actor { part, process });
        Ok(pid)
    }

    /// Which processes of a role there are, by number and life.
    pub(crate) fn lives(&self, role: &str) -> Vec<(usize, u32)> {
        let actors = self.actors.iter().filter(|actor| actor.part.role == role);
        actors.map(|actor| (actor.part.number, actor.part.life)).collect()
    }

    /// Kills a random process of a role with SIGKILL, and starts another in its place; answers both pids.
    pub(crate) fn kill_one(&mut self, role: &str, chance: &mut StdRng) -> Result<Option<(u32, u32)>> {
        let mut candidates: Vec<_> = self.actors.iter_mut().filter(|actor| actor.part.role == role).collect();
        if candidates.is_empty() {
            return Ok(None);
        }
        let chosen = chance.random_range(0..candidates.len());
        let actor = &mut candidates[chosen];
        let killed = actor.process.id();
        actor.process.kill()?;
        actor.process.wait()?;
        actor.part.life += 1;
        actor.process = spawn(&actor.part)?;
        Ok(Some((killed, actor.process.id())))
    }

    /// Fails if nobody is left of a role, because all failed: the others would wait for them in vain.
    pub(crate) fn check(&mut self) -> Result<()> {
        let mut failed: BTreeMap<&str, Option<String>> = BTreeMap::new();
        for Actor { part, process } in &mut self.actors {
            let how = match process.try_wait()? {
                Some(status) if !status.success() => Some(format!("{status}: {}", last_words(part))),
                _ => None,
            };
            let all = failed.entry(&part.role).or_insert_with(|| how.clone());
            *all = all.take().and(how);
        }
        match failed.into_iter().find_map(|(role, how)| Some((role, how?))) {
            Some((role, how)) => Err(format!("every {role} has failed, the last one with {how}").into()),
            None => Ok(()),
        }
    }

    /// Ends all of them.
    pub(crate) fn leave(&mut self) -> Result<()> {
        for mut actor in self.actors.drain(..) {
            actor.process.kill()?;
            actor.process.wait()?;
        }
        Ok(())
    }

    /// Has the database judged, by a process that took no part; answers its pid too.
    pub(crate) fn judge(&self) -> Result<(Verdict, u32)> {
        let part = Part { role: JUDGE.into(), number: 1, ..self.part.clone() };
        let judge = spawn(&part)?;
        let pid = judge.id();
        let said = judge.wait_with_output()?;
        if !said.status.success() {
            return Err(format!("the judge failed: {}", last_words(&part)).into());
        }
        Ok((serde_json::from_slice(&said.stdout)?, pid))
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        let _gone_already = self.leave();
    }
}

fn log_of(part: &Part) -> std::path::PathBuf {
    part.folder.join(format!("{}-{}.log", part.role, part.number))
}

/// The end of a process's log, which may be gone with its folder soon.
fn last_words(part: &Part) -> String {
    let log = std::fs::read_to_string(log_of(part)).unwrap_or_default();
    log.lines().next_back().unwrap_or("without a word").to_owned()
}

fn spawn(part: &Part) -> Result<Child> {
    let log = File::options().create(true).append(true).open(log_of(part))?;
    let (name, value) = part.to_env()?;
    let mut program = Command::new(std::env::current_exe()?);
    program.env(name, value).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    Ok(program.spawn()?)
}
