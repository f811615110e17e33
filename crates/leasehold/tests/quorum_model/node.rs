//! The rules of one node, and what is under way between it and the clients.

use crate::{Flaw, state::KEEPER};

pub(crate) const ATTEMPTS_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mail {
    /// Not sent, lost, or of no interest any more.
    None,
    OnItsWay,
    /// Answered with yes, under this fence.
    Yes(u8),
    /// Nobody holds it there.
    Missing,
}

/// One node, and what is under way between it and every attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) key: Option<u8>,
    pub(crate) fence: u8,
    /// The fence of each attempt that reads there; 0 for none. There is a key or there are readers.
    pub(crate) reading: [u8; ATTEMPTS_MAX],
    /// The highest fence that a writer may have been given.
    pub(crate) written: u8,
    pub(crate) votes: bool,
    /// Attempts whose vote it forgot while they were undecided.
    pub(crate) forgot: u8,
    /// What the others knew when it forgot.
    pub(crate) early: u8,
    pub(crate) vote: [Mail; ATTEMPTS_MAX],
    pub(crate) confirm: [Mail; ATTEMPTS_MAX],
    pub(crate) renew: Mail,
    pub(crate) repair: Mail,
    /// The keeper's withdrawal, and whether it left a tombstone.
    pub(crate) withdrawal: Mail,
    pub(crate) gone: bool,
}

/// Small numbers, one after the other.
#[derive(Default)]
pub(crate) struct Bits(pub(crate) u128);

impl Bits {
    pub(crate) fn put(&mut self, bits: u32, number: u8) -> &mut Self {
        assert!(u32::from(number) < 1 << bits && self.0 >> (128 - bits) == 0, "{number} needs more room");
        self.0 = self.0 << bits | u128::from(number);
        self
    }
}

impl Node {
    pub(crate) fn packed(&self) -> u128 {
        let mut bits = Bits::default();
        let mail = |mail: Mail| match mail {
            Mail::None => 0,
            Mail::OnItsWay => 1,
            Mail::Missing => 2,
            Mail::Yes(fence) => 3 + fence,
        };
        bits.put(3, self.key.map_or(0, |key| key + 1)).put(4, self.fence).put(1, self.votes.into());
        bits.put(4, self.forgot).put(4, self.early).put(4, mail(self.renew)).put(4, mail(self.repair));
        bits.put(1, mail(self.withdrawal)).put(1, self.gone.into());
        for (vote, confirm) in self.vote.into_iter().zip(self.confirm) {
            bits.put(4, mail(vote)).put(4, mail(confirm));
        }
        bits.put(4, self.written);
        for fence in self.reading {
            bits.put(4, fence);
        }
        bits.0
    }

    pub(crate) fn take_vote(
        &mut self,
        attempt: usize,
        reads: bool,
        hint: u8,
        flaw: Option<Flaw>,
    ) -> Option<Mail> {
        if !self.votes {
            return None;
        }
        let last = match flaw {
            Some(Flaw::ReadersPassReaders) if reads => self.written,
            Some(Flaw::WritersPassReaders) if !reads => self.written,
            _ => self.fence,
        };
        let fence = hint.max(last + 1);
        self.put(attempt, reads, fence);
        Some(Mail::Yes(fence))
    }

    /// Whom it excludes has vanished. Other readers may have, too, and nothing depends on it.
    fn put(&mut self, attempt: usize, reads: bool, fence: u8) {
        self.fence = self.fence.max(fence);
        if reads {
            self.key = None;
            self.reading[attempt] = fence;
        } else {
            self.key = Some(attempt as u8);
            self.reading = [0; ATTEMPTS_MAX];
            self.written = self.fence;
        }
    }

    pub(crate) fn take_confirm(&mut self, attempt: usize, fence: u8, flaw: Option<Flaw>) -> Option<()> {
        if (1..=fence).contains(&self.reading[attempt]) {
            self.put(attempt, true, fence);
            return Some(());
        }
        let is_ours = self.key == Some(attempt as u8) || flaw == Some(Flaw::ConfirmsForAnybody);
        let is_above = self.fence <= fence || flaw == Some(Flaw::ConfirmsBelowItsFence);
        self.fence = self.fence.max(fence);
        self.written = self.written.max(fence);
        (is_ours && is_above).then_some(())
    }

    pub(crate) fn take_renewal(&mut self, vanished: bool) -> Option<()> {
        if self.renew != Mail::OnItsWay {
            return None;
        }
        self.key = self.key.filter(|_| !vanished);
        if vanished {
            self.reading[KEEPER] = 0;
        }
        self.renew = match self.key {
            _ if self.reading[KEEPER] > 0 => Mail::Yes(0),
            Some(holder) if holder == KEEPER as u8 => Mail::Yes(0),
            Some(_) => return None,
            None => Mail::Missing,
        };
        Some(())
    }

    /// A repair on its way counts as an unanswered copy of the claim.
    pub(crate) fn take_withdrawal(&mut self, flaw: Option<Flaw>) -> Option<()> {
        if self.withdrawal != Mail::OnItsWay {
            return None;
        }
        self.withdrawal = Mail::None;
        self.gone = self.repair == Mail::OnItsWay && flaw != Some(Flaw::NoTombstone);
        self.key = self.key.filter(|holder| *holder != KEEPER as u8);
        self.reading[KEEPER] = 0;
        Some(())
    }

    pub(crate) fn take_repair(&mut self, reads: bool, fence: u8, flaw: Option<Flaw>) -> Option<()> {
        let is_above = if reads { self.written < fence } else { self.fence <= fence };
        let is_above = is_above || flaw == Some(Flaw::RepairsBelowItsFence);
        let is_asked = self.repair == Mail::OnItsWay;
        if !is_asked || !self.votes || !is_above || self.gone {
            return None;
        }
        self.repair = Mail::None;
        self.put(KEEPER, reads, fence);
        Some(())
    }
}
