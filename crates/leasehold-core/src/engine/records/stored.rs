//! How a record is written down. Pure; the same text in every store.
//!
//! `leasehold:1 STATE FENCE FINGERPRINT REST`: STATE is `running`, `completed`, `failed` or `quarantined`; FINGERPRINT is in
//! hex or `-`; REST is the owner value of a running record, else the result as it was given. 1 is the layout.

use std::fmt;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{fence::Fence, owner::Owner};

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// How it stands.
    pub state: State,
    /// Under which fence.
    pub fence: Fence,
    /// Of which request.
    pub fingerprint: Option<Fingerprint>,
}

/// How a record stands.
#[derive(Clone, PartialEq, Eq)]
pub enum State {
    /// It is in progress.
    Running(Owner),
    /// It was done, with this result.
    Completed(Bytes),
    /// It failed, with this for everybody.
    Failed(Bytes),
    /// It failed, and nobody tries again; this is why.
    Quarantined(Bytes),
}

const LAYOUT: &[u8] = b"leasehold:1";

impl Stored {
    /// The text of it.
    pub fn write(&self) -> Vec<u8> {
        let rest: &[u8] = match &self.state {
            State::Running(owner) => owner.expose().as_bytes(),
            State::Completed(rest) | State::Failed(rest) | State::Quarantined(rest) => rest,
        };
        let fingerprint = self.fingerprint.as_ref().map_or_else(|| "-".to_owned(), Fingerprint::to_string);
        let mut text = Vec::with_capacity(LAYOUT.len() + 100 + rest.len());
        text.extend_from_slice(LAYOUT);
        let header = format!(" {} {} {fingerprint} ", self.state.as_str(), self.fence);
        text.extend_from_slice(header.as_bytes());
        text.extend_from_slice(rest);
        text
    }

    /// Reads the text of one; `None` if it is something else.
    pub fn read(text: &[u8]) -> Option<Self> {
        let mut parts = text.splitn(5, |byte| *byte == b' ');
        let mut next = || parts.next();
        if next()? != LAYOUT {
            return None;
        }
        let word = next()?;
        let fence = std::str::from_utf8(next()?).ok()?;
        // As written: no sign, no leading zeros, nothing that a script would read differently.
        let fence = fence.parse::<u64>().ok().filter(|number| number.to_string() == fence)?;
        let fingerprint = match next()? {
            b"-" => None,
            hex => Some(Fingerprint::read(hex)?),
        };
        let rest = next()?;
        let state = match word {
            b"running" => State::Running(Owner::from_exposed(std::str::from_utf8(rest).ok()?)?),
            b"completed" => State::Completed(Bytes::copy_from_slice(rest)),
            b"failed" => State::Failed(Bytes::copy_from_slice(rest)),
            b"quarantined" => State::Quarantined(Bytes::copy_from_slice(rest)),
            _ => return None,
        };
        Some(Self { state, fence: Fence::new(fence), fingerprint })
    }
}

impl State {
    /// The word for it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Running(_) => "running",
            Self::Completed(_) => "completed",
            Self::Failed(_) => "failed",
            Self::Quarantined(_) => "quarantined",
        }
    }
}

/// No owner value and no result: both may be secrets.
impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What tells one request from another: a SHA-256 of what the caller gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of some bytes.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Its bytes, for stores that keep it as such.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// What [`Fingerprint::as_bytes`] returned.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    fn read(hex: &[u8]) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let bytes = hex.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?));
        bytes.collect::<Option<Vec<_>>>()?.try_into().ok().map(Self)
    }
}

/// In hex.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Holder;

    fn samples() -> Vec<Stored> {
        let owner = Owner::new(7, &Holder::this_process("a label", 1));
        let bytes = Bytes::from_static(b"a \0\xff result ");
        [
            State::Running(owner),
            State::Completed(bytes.clone()),
            State::Failed(bytes),
            State::Quarantined(Bytes::new()),
        ]
        .into_iter()
        .flat_map(|state| {
            [None, Some(Fingerprint::of("x"))].map(|fingerprint| Stored {
                state: state.clone(),
                fence: Fence::new(1_763_251_200_000_000),
                fingerprint,
            })
        })
        .collect()
    }

    #[test]
    fn what_was_written_is_read_back() {
        for sample in samples() {
            assert!(Stored::read(&sample.write()) == Some(sample));
        }
    }

    #[test]
    fn anything_else_is_not_a_record() {
        for text in ["", "1", "leasehold:1", "leasehold:2 completed 1 - x", "leasehold:1 done 1 - x"] {
            assert!(Stored::read(text.as_bytes()).is_none(), "{text}");
        }
        for text in
            ["leasehold:1 completed 01 - x", "leasehold:1 completed 1 00 x", "leasehold:1 running 1 - x"]
        {
            assert!(Stored::read(text.as_bytes()).is_none(), "{text}");
        }
        // Cut anywhere before its rest, a record is none.
        let whole = samples()[2].write();
        let header = whole.len() - b"a \0\xff result ".len();
        assert!((0..header).all(|end| Stored::read(&whole[..end]).is_none()));
    }

    #[test]
    fn debug_output_tells_no_secret() {
        for sample in samples() {
            let shown = format!("{sample:?}");
            assert!(!shown.contains("result") && !shown.contains("label"), "{shown}");
        }
    }
}
