//! What is held while a command runs: one lock, several, or the lead of an election.

use leasehold::{Error, Guard, GuardSet, Leadership, Lease, Released, Result, election::Yielded};

use crate::output;

/// What a command runs under. Dropped, it is given back in the background; a lost lock with a lock-delay is left to its
/// delay.
pub(crate) enum Held {
    One(Guard),
    All(GuardSet),
    Lead { leadership: Leadership, next: Successor },
}

/// Who is to lead when a term ends.
#[derive(Clone)]
pub(crate) enum Successor {
    /// Who has waited longest.
    First,
    /// The first with this label, if there is one.
    Labelled(String),
    /// The one with the highest priority.
    Highest,
}

impl Held {
    /// Its leases, in the order of these names.
    pub(super) fn leases(&self, names: &[String]) -> Vec<Lease> {
        let mut leases = match self {
            Self::One(guard) => vec![guard.lease()],
            Self::All(guards) => guards.lease_set().leases().to_vec(),
            Self::Lead { leadership, .. } => vec![leadership.lease()],
        };
        leases.sort_by_key(|lease| names.iter().position(|name| name == lease.name().as_str()));
        leases
    }

    pub(super) fn is_held(&self) -> bool {
        match self {
            Self::One(guard) => guard.is_held(),
            Self::All(guards) => guards.is_held(),
            Self::Lead { leadership, .. } => leadership.is_held(),
        }
    }

    /// The error of its loss. Of several it names the one that was lost first.
    pub(super) fn lost(&self) -> Error {
        match self {
            Self::One(guard) => lost(&guard.lease()),
            Self::All(guards) => {
                let leases = guards.lease_set();
                lost(leases.first_lost().unwrap_or(&leases.leases()[0]))
            }
            Self::Lead { leadership, .. } => lost(&leadership.lease()),
        }
    }

    /// Gives it back. An error means that it was not ours any more according to the store.
    pub(super) async fn give_back(self) -> Result<()> {
        match self {
            Self::One(guard) => {
                let lease = guard.lease();
                was_ours(&lease, guard.release().await)
            }
            Self::All(guards) => {
                let leases = guards.lease_set();
                let outcomes = guards.release().await.outcomes;
                let each = leases.leases().iter().zip(outcomes);
                each.map(|(lease, (_, outcome))| was_ours(lease, outcome)).fold(Ok(()), Result::and)
            }
            Self::Lead { leadership, next } => was_ours(&leadership.lease(), resign(&leadership, next).await),
        }
    }
}

/// Ends the term, by a hand-over if the one that is to be next waits.
async fn resign(leadership: &Leadership, next: Successor) -> Result<Released> {
    let yielded = match next {
        Successor::First => Ok(Yielded::NotWaiting),
        Successor::Labelled(label) => leadership.prefer(|candidate| candidate.label() == label).await,
        Successor::Highest => leadership.prefer_highest().await,
    };
    match yielded {
        Ok(Yielded::Done(outcome)) => return Ok(outcome),
        // It may have been handed over: what the store answers now would look like a loss.
        Err(error) if !leadership.is_held() => return Err(error),
        Err(error) => output::say(&format!("warning: {error}")),
        Ok(_) => {}
    }
    leadership.resign().await
}

fn was_ours(lease: &Lease, outcome: Result<Released>) -> Result<()> {
    match outcome {
        Ok(outcome) if outcome.was_held() => Ok(()),
        Ok(_) => Err(lost(lease)),
        Err(error) => {
            // It was valid until now, and ends with its ttl.
            output::say(&format!("warning: {error}"));
            Ok(())
        }
    }
}

fn lost(lease: &Lease) -> Error {
    Error::Lost { name: lease.name().clone(), fence: lease.fence() }
}
