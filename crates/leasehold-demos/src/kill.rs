//! Kills of workers, and what the locks of a killed worker do about it.

use std::time::Duration;

use leasehold::{Holder, Leasehold};

use crate::{Result, policy, show::Show, supervisor::Supervisor};

/// Names that a line has room for, and their length together.
const NAMED_MAX: usize = 2;
const NAMED_CHARS_MAX: usize = 36;
/// Locks of a run that are looked at.
const LISTED_MAX: u32 = 200;

impl Supervisor {
    /// Kills a random worker of a role with SIGKILL, restarts it, and tells what it left behind.
    pub(crate) async fn kill(&mut self, role: &str) -> Result<()> {
        self.kills += 1;
        let Some(killed) = self.workers.kill_one(role, &mut self.rng)? else { return Ok(()) };
        let run = policy::prefix(&self.workers.template().run);
        let left = match &self.client {
            None => "nothing protects what it was doing".into(),
            Some(leases) => match held_by(leases, &run, killed.pid).await {
                Ok(left) => left,
                Err(error) => format!("its locks cannot be listed: {error}"),
            },
        };
        tell(&self.show, &killed, &left);
        Ok(())
    }
}

/// A worker that was killed and started again.
pub(crate) struct Killed {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) again: u32,
}

fn tell(show: &Show, Killed { name, pid, again }: &Killed, left: &str) {
    show.fault(format!("kill -9 {name} (pid {pid}, again as {again})"), left);
}

/// What a dead process still holds, and how long.
async fn held_by(leases: &Leasehold, run: &str, pid: u32) -> leasehold::Result<String> {
    let page = leases.list_page(run, None, LISTED_MAX).await?;
    let mut names = Vec::new();
    let mut longest = Duration::ZERO;
    for lock in &page.items {
        let is_dead = |holder: &Holder| matches!(holder, Holder::Leasehold { pid: its, .. } if *its == pid);
        if let Some(held) = lock.held().filter(|held| is_dead(&held.holder)) {
            let name = lock.name.as_str();
            names.push(name.strip_prefix(run).unwrap_or(name).to_owned());
            longest = longest.max(held.expires_in.unwrap_or_default());
        }
    }
    if names.is_empty() {
        return Ok("it held no lock".into());
    }
    let chars: usize = names.iter().take(NAMED_MAX).map(|name| name.chars().count()).sum();
    let named = if chars > NAMED_CHARS_MAX { 1 } else { NAMED_MAX };
    let more = names.len().saturating_sub(named);
    names.truncate(named);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Ok(format!("it held {}{more}, free again in {:.1} s at most", names.join(", "), longest.as_secs_f64()))
}
