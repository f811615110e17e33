//! Exclusive, shared, or some of a limited number of permits.

use std::num::NonZeroU32;

use crate::{
    engine::Mode,
    error::{Error, Result},
};

/// How a lock is to be held, as the caller said it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Exclusive,
    Shared,
    Permits {
        take: u32,
        of: u32,
    },
}

impl From<Mode> for Kind {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::Exclusive,
            Mode::Shared => Self::Shared,
            Mode::Permits { take, of } => Self::Permits { take: take.get(), of: of.get() },
        }
    }
}

impl Kind {
    /// The same with another number of permits.
    pub(crate) fn taking(self, permits: u32) -> Self {
        let of = if let Self::Permits { of, .. } = self { of } else { 0 };
        Self::Permits { take: permits, of }
    }

    /// # Errors
    /// `invalid` for a number of permits that can never be granted.
    pub(crate) fn mode(self) -> Result<Mode> {
        let Self::Permits { take, of } = self else {
            return Ok(if self == Self::Shared { Mode::Shared } else { Mode::Exclusive });
        };
        let Some(limit) = NonZeroU32::new(of) else {
            return Err(Error::invalid("limit", "0", "a semaphore with 1 permit or more"));
        };
        match NonZeroU32::new(take) {
            Some(take) if take <= limit => Ok(Mode::Permits { take, of: limit }),
            _ => Err(Error::invalid("number of permits", take.to_string(), format!("1 to {limit}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_at_least_one_and_at_most_all() {
        let mode = |take, of| Kind::Permits { take, of }.mode();
        assert!(mode(1, 1).is_ok() && mode(3, 5).is_ok());
        for (take, of) in [(0, 5), (6, 5), (1, 0), (0, 0)] {
            assert_eq!(mode(take, of).unwrap_err().kind(), crate::ErrorKind::Invalid, "{take} of {of}");
        }
        assert!(Kind::Shared.taking(2).mode().is_err(), "no semaphore");
    }
}
