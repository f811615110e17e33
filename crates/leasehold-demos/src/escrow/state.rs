//! The states of a deal, and which may follow which.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Created,
    /// The buyer's money is in escrow.
    Funded,
    Delivered,
    /// The buyer is content: a payout is ordered.
    Accepted,
    /// The buyer is not: a refund is ordered. Possible until the payout is done.
    Disputed,
    PaidOut,
    Refunded,
}

impl State {
    const ALL: [Self; 7] = [
        Self::Created,
        Self::Funded,
        Self::Delivered,
        Self::Accepted,
        Self::Disputed,
        Self::PaidOut,
        Self::Refunded,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Funded => "FUNDED",
            Self::Delivered => "DELIVERED",
            Self::Accepted => "ACCEPTED",
            Self::Disputed => "DISPUTED",
            Self::PaidOut => "PAID_OUT",
            Self::Refunded => "REFUNDED",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    pub(super) const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Created, Self::Funded)
                | (Self::Funded, Self::Delivered)
                | (Self::Delivered, Self::Accepted | Self::Disputed)
                | (Self::Accepted, Self::Disputed | Self::PaidOut)
                | (Self::Disputed, Self::Refunded)
        )
    }

    pub(super) const fn is_final(self) -> bool {
        matches!(self, Self::PaidOut | Self::Refunded)
    }

    /// Whether these steps, each as what it was and what it became, lead from the first state to a final one.
    pub(super) fn is_whole_path(steps: &[(Self, Self)]) -> bool {
        let mut at = Self::Created;
        for &(was, became) in steps {
            if was != at || !was.may_become(became) {
                return false;
            }
            at = became;
        }
        at.is_final()
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::State::{Accepted, Created, Delivered, Disputed, Funded, PaidOut, Refunded};
    use super::*;

    #[test]
    fn a_path_has_no_gap_no_step_twice_and_an_end() {
        let begin = [(Created, Funded), (Funded, Delivered)];
        let path = |rest: &[(State, State)]| State::is_whole_path(&[&begin, rest].concat());
        assert!(path(&[(Delivered, Accepted), (Accepted, PaidOut)]));
        assert!(path(&[(Delivered, Accepted), (Accepted, Disputed), (Disputed, Refunded)]));
        assert!(!path(&[(Delivered, Accepted)]), "it has not ended");
        assert!(!path(&[(Delivered, Accepted), (Accepted, PaidOut), (Accepted, PaidOut)]), "paid twice");
        assert!(!path(&[(Delivered, PaidOut)]), "nobody accepted");
        assert!(!path(&[(Delivered, Accepted), (Disputed, Refunded)]), "there is a gap");
    }

    #[test]
    fn every_state_is_read_back_from_its_word() {
        assert!(State::ALL.iter().all(|state| State::parse(state.as_str()) == Some(*state)));
        assert_eq!(State::parse("SOLD"), None);
    }
}
