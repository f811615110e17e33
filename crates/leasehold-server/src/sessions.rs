//! Sessions: one heartbeat for all that a process holds. A session that is not renewed ends; its locks run out by themselves.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::StatusCode;
use leasehold::{Error, Handle, clock::BootInstant};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{
    problem::{Problem, Result},
    token::{Granted, LockKey},
};

#[derive(Debug)]
pub(crate) struct Sessions {
    state: Mutex<State>,
    most: usize,
    most_locks: usize,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<String, Session>,
    /// The session of each lock.
    by_lock: HashMap<LockKey, String>,
}

#[derive(Debug)]
struct Session {
    secret: [u8; 32],
    caller: String,
    label: String,
    ttl: Duration,
    until: BootInstant,
    held: HashMap<LockKey, Member>,
}

/// A lock of a session.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) granted: Granted,
    pub(crate) is_lost: bool,
    /// Whether the last renewal reached the store.
    pub(crate) is_renewed: bool,
}

/// What people may see of a session.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) id: String,
    pub(crate) label: String,
    pub(crate) ttl: Duration,
    pub(crate) left: Duration,
    pub(crate) held: usize,
    pub(crate) lost: usize,
}

/// Who asks about a session, and the proof that it is theirs.
#[derive(Clone, Copy)]
pub(crate) struct Proof<'a> {
    pub(crate) caller: &'a str,
    pub(crate) id: &'a str,
    pub(crate) secret: &'a str,
    pub(crate) now: BootInstant,
}

impl Sessions {
    pub(crate) fn new(most: usize, most_locks: usize) -> Self {
        Self { state: Mutex::default(), most, most_locks }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(&self, proof: Proof<'_>, label: String, ttl: Duration) -> Result<()> {
        let mut state = self.state();
        if state.sessions.len() >= self.most {
            return Err(Problem::overloaded(format!("the service has {} sessions, its limit", self.most)));
        }
        let session = Session {
            secret: Sha256::digest(proof.secret).into(),
            caller: proof.caller.to_owned(),
            label,
            ttl,
            until: proof.now + ttl,
            held: HashMap::new(),
        };
        state.sessions.insert(proof.id.to_owned(), session);
        Ok(())
    }

    /// The ttl and the label of a session, if the proof is good.
    pub(crate) fn check(&self, proof: Proof<'_>) -> Result<(Duration, String)> {
        let mut state = self.state();
        let session = state.proven(proof)?;
        if session.held.len() >= self.most_locks {
            return Err(Problem::overloaded(format!(
                "the session holds {} locks, its limit",
                self.most_locks
            )));
        }
        Ok((session.ttl, session.label.clone()))
    }

    /// Notes a lock that was granted for a session. False if the session has ended meanwhile.
    pub(crate) fn add(&self, id: &str, granted: &Granted) -> bool {
        let mut state = self.state();
        let key = granted.key();
        let Some(session) = state.sessions.get_mut(id) else { return false };
        let member = Member { granted: granted.clone(), is_lost: false, is_renewed: true };
        session.held.insert(key.clone(), member);
        state.by_lock.insert(key, id.to_owned());
        true
    }

    /// Prolongs a session from now on, and returns its ttl and what it is to renew.
    pub(crate) fn begin_renewal(&self, proof: Proof<'_>) -> Result<(Duration, Vec<Handle>)> {
        let mut state = self.state();
        let session = state.proven(proof)?;
        session.until = proof.now + session.ttl;
        let held = session.held.values().filter(|member| !member.is_lost);
        Ok((session.ttl, held.map(|member| member.granted.handle.clone()).collect()))
    }

    /// Notes how renewals ended that were sent at `asked_at`, and returns all locks of the session.
    pub(crate) fn renewed<'a>(
        &self,
        id: &str,
        results: impl Iterator<Item = (&'a Handle, &'a leasehold::Result<()>)>,
        valid_until: impl Fn(&Handle) -> BootInstant,
    ) -> Vec<Member> {
        let mut state = self.state();
        let Some(session) = state.sessions.get_mut(id) else { return Vec::new() };
        for (handle, result) in results {
            let Some(member) = session.held.get_mut(&LockKey::of(handle)) else { continue };
            member.is_renewed = result.is_ok();
            match result {
                Ok(()) => member.granted.valid_until = member.granted.valid_until.max(valid_until(handle)),
                Err(Error::Lost { .. }) => member.is_lost = true,
                Err(_) => {}
            }
        }
        session.held.values().cloned().collect()
    }

    /// A lock was given back.
    pub(crate) fn forget(&self, key: &LockKey) {
        let mut state = self.state();
        let Some(id) = state.by_lock.remove(key) else { return };
        if let Some(session) = state.sessions.get_mut(&id) {
            session.held.remove(key);
        }
    }

    /// Ends a session and returns its locks.
    pub(crate) fn close(&self, proof: Proof<'_>) -> Result<Vec<Member>> {
        let mut state = self.state();
        state.proven(proof)?;
        Ok(state.remove(proof.id))
    }

    /// Ends the sessions whose time is over; returns how many.
    pub(crate) fn sweep(&self, now: BootInstant) -> usize {
        let mut state = self.state();
        let over: Vec<_> =
            state.sessions.iter().filter(|(_, it)| it.until <= now).map(|(id, _)| id.clone()).collect();
        for id in &over {
            let held = state.remove(id).len();
            tracing::info!(session = %id, held, "a session was not renewed and has ended; its locks run out");
        }
        over.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.state().sessions.len()
    }

    pub(crate) fn shown(&self, now: BootInstant, most: usize) -> Vec<Shown> {
        let state = self.state();
        let mut shown: Vec<_> = state.sessions.iter().map(|(id, session)| session.shown(id, now)).collect();
        shown.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        shown.truncate(most);
        shown
    }
}

impl State {
    fn proven(&mut self, proof: Proof<'_>) -> Result<&mut Session> {
        let hash: [u8; 32] = Sha256::digest(proof.secret).into();
        let session = self.sessions.get_mut(proof.id).filter(|session| session.until > proof.now);
        let session = session.ok_or_else(|| {
            let detail = format!(
                "no session {}: it was not renewed in time, was closed, or another service has it; its locks run out by \
                 themselves",
                proof.id
            );
            Problem::not_found(detail)
        })?;
        if session.caller != proof.caller || !bool::from(session.secret.ct_eq(&hash)) {
            let detail = "the header Leasehold-Secret is missing or is not that of this session";
            return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", "not your session", detail));
        }
        Ok(session)
    }

    fn remove(&mut self, id: &str) -> Vec<Member> {
        let Some(session) = self.sessions.remove(id) else { return Vec::new() };
        for key in session.held.keys() {
            self.by_lock.remove(key);
        }
        session.held.into_values().collect()
    }
}

impl Session {
    fn shown(&self, id: &str, now: BootInstant) -> Shown {
        let lost = self.held.values().filter(|member| member.is_lost).count();
        Shown {
            id: id.to_owned(),
            label: self.label.clone(),
            ttl: self.ttl,
            left: self.until.since(now),
            held: self.held.len() - lost,
            lost,
        }
    }
}
