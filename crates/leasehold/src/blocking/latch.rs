//! Latches and barriers.

use std::time::Duration;

use super::mirror::{mirror, wait};
use crate::{
    Name, Result,
    latch::{Arrived, Awaited, CountedDown, Join, Rearmed, Snapshot},
};

mirror! {
    /// Builder of a latch, without `async`; see [`crate::Latch`].
    #[derive(Clone)]
    #[must_use = "a latch does nothing until somebody joins or waits"]
    pub struct Latch(crate::Latch) {
        set ttl(ttl: Duration);
        set label(label: impl Into<String>);
        wait wait(timeout: Duration) -> Awaited;
        wait rearm(generation: u64) -> Rearmed;
        wait state() -> Option<Snapshot>;
    }
}

impl Latch {
    /// As [`crate::Latch::join`]; `unsupported` in async code.
    pub fn join(&self) -> Result<Join<Participant>> {
        Ok(wait(self.inner.join())??.map(Participant::new))
    }
}

mirror! {
    /// One that has to count down before the latch opens; see [`crate::Participant`].
    #[derive(Debug)]
    #[must_use = "a participant that is dropped breaks the latch"]
    pub struct Participant(crate::Participant) {
        get name() -> &Name;
        get generation() -> u64;
        get is_held() -> bool;
        wait count_down() -> CountedDown;
        wait wait(timeout: Duration) -> Awaited;
        end leave() -> ();
        end fail() -> ();
    }
}

mirror! {
    /// Builder of a barrier, without `async`; see [`crate::Barrier`].
    #[derive(Clone)]
    #[must_use = "a barrier does nothing until somebody joins"]
    pub struct Barrier(crate::Barrier) {
        set ttl(ttl: Duration);
        set label(label: impl Into<String>);
        wait rearm(generation: u64) -> Rearmed;
        wait state() -> Option<Snapshot>;
    }
}

impl Barrier {
    /// As [`crate::Barrier::join`]; `unsupported` in async code.
    pub fn join(&self) -> Result<Join<Party>> {
        Ok(wait(self.inner.join())??.map(Party::new))
    }
}

mirror! {
    /// A party of a barrier; see [`crate::Party`].
    #[derive(Debug)]
    #[must_use = "a party that is dropped breaks the barrier"]
    pub struct Party(crate::Party) {
        get name() -> &Name;
        get generation() -> u64;
        get is_held() -> bool;
        wait arrive() -> Arrived;
        wait arrive_within(timeout: Duration) -> Arrived;
        end leave() -> ();
        end fail() -> ();
    }
}
