//! `leasehold latch show`.

use clap::Args;
use leasehold::{
    Holder, Leasehold,
    engine::latches::Kind,
    latch::{ParticipantInfo, Snapshot, Standing},
};
use serde::Serialize;

use crate::{
    exit::{Exit, Failure},
    output::{self, Output, spoken},
};

/// Show how a latch or a barrier stands, and who takes part
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 shown · 1 there is none of that name · 69 store unreachable

Examples:
  leasehold latch show migration
  leasehold latch show migration --json")]
pub(in crate::command) struct Show {
    /// The latch, or the barrier
    name: String,
}

#[derive(Serialize)]
struct LatchView {
    name: String,
    kind: Kind,
    state: &'static str,
    generation: u64,
    count: u32,
    missing: u32,
    joined: u32,
    broken_by: Option<Holder>,
    participants: Vec<ParticipantInfo>,
}

impl Show {
    pub(super) async fn execute(self, leases: &Leasehold, out: Output) -> Result<Exit, Failure> {
        let Some(found) = leases.latch(&self.name, 1).state().await? else {
            if !out.json {
                output::say(&format!("no latch or barrier is named \"{}\"", output::clean(&self.name)));
            }
            return Ok(Exit::NO);
        };
        let view = LatchView::from(found);
        let facts = view.facts();
        out.print(view, || out.facts(&facts))?;
        Ok(Exit::OK)
    }
}

impl From<Snapshot> for LatchView {
    fn from(found: Snapshot) -> Self {
        let Snapshot { name, kind, count, generation, standing, joined, mut participants } = found;
        let (state, missing, broken_by) = match standing {
            Standing::Armed { missing } => ("armed", missing, None),
            Standing::Opened => ("open", 0, None),
            Standing::Broken { who } => ("broken", 0, who),
        };
        participants.sort_by_cached_key(|participant| participant.holder.to_string());
        let name = name.to_string();
        Self { name, kind, state, generation, count, missing, joined, broken_by, participants }
    }
}

impl LatchView {
    fn facts(&self) -> Vec<(String, String)> {
        let fact = |what: &str, value: String| (what.to_owned(), value);
        let mut facts = vec![
            fact("name", self.name.clone()),
            fact("kind", self.kind.as_str().into()),
            fact("state", self.state.into()),
            fact("generation", self.generation.to_string()),
            fact("parties", self.count.to_string()),
        ];
        if self.state == "armed" {
            facts.push(fact("missing", self.missing.to_string()));
            facts.push(fact("joined", self.joined.to_string()));
        }
        facts.extend(self.broken_by.as_ref().map(|who| fact("broken by", who.to_string())));
        for (place, participant) in self.participants.iter().enumerate() {
            let stands = match (participant.counted, participant.expires_in) {
                (true, None) => "counted down".to_owned(),
                (counted, left) => {
                    let ttl = left.map_or_else(String::new, |left| format!(", ttl {}", spoken(left)));
                    format!("{}{ttl}", if counted { "arrived" } else { "not yet" })
                }
            };
            facts.push(fact(
                &format!("participant {}", place + 1),
                format!("{}, {stands}", participant.holder),
            ));
        }
        let unlisted = self.joined as usize - self.participants.len().min(self.joined as usize);
        if unlisted > 0 {
            facts.push(fact("not shown", unlisted.to_string()));
        }
        facts
    }
}
