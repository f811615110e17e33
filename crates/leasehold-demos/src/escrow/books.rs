//! Deals and accounts in the database: opened under a lock, changed in memory, written with its fence.
//!
//! Opening writes the fence into the row. From then on no earlier holder of the lock can write it, so what was read stays
//! true until this holder writes, or is refused itself because there is a later one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior::Immediate};

use super::state::State;
use crate::{Result, protection::Pass};

/// The shop window of the database for one task.
pub(super) struct Books {
    database: Mutex<Connection>,
    /// Who writes, for the records.
    by: String,
}

pub(super) struct Deal {
    pub(super) id: u64,
    pub(super) buyer: u64,
    pub(super) seller: u64,
    pub(super) amount: i64,
    pub(super) state: State,
    /// The fence of the latest order to pay.
    pub(super) ordered: i64,
    escrow: i64,
    fence: i64,
}

pub(super) struct Account {
    id: u64,
    balance: i64,
    fence: i64,
}

impl Books {
    pub(super) fn new(database: Connection, by: impl Into<String>) -> Self {
        Self { database: Mutex::new(database), by: by.into() }
    }

    pub(super) fn database(&self) -> MutexGuard<'_, Connection> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn by(&self) -> &str {
        &self.by
    }

    pub(super) fn state_of(&self, deal: u64) -> Result<Option<String>> {
        let sql = "select state from deals where id = ?";
        Ok(self.database().query_row(sql, [deal], |row| row.get(0)).optional()?)
    }

    /// Opens a deal under its lock; `None` if there is none, or a later holder.
    pub(super) fn open_deal(&self, id: u64, pass: &Pass) -> Result<Option<Deal>> {
        let fence = pass.fence();
        let sql = "update deals set fence = ?2 where id = ?1 and fence <= ?2
                   returning buyer, seller, amount, state, escrow, ordered";
        let row = |row: &rusqlite::Row<'_>| {
            let state: String = row.get(3)?;
            let (buyer, seller, amount) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let state = State::parse(&state).ok_or(rusqlite::Error::InvalidQuery)?;
            Ok(Deal { id, buyer, seller, amount, state, escrow: row.get(4)?, ordered: row.get(5)?, fence })
        };
        Ok(self.database().query_row(sql, (id, fence), row).optional()?)
    }

    /// Opens an account under its lock.
    pub(super) fn open_account(&self, id: u64, pass: &Pass) -> Result<Account> {
        let fence = pass.fence();
        let sql = "update accounts set fence = ?2 where id = ?1 and fence <= ?2 returning balance";
        let balance = self.database().query_row(sql, (id, fence), |row| row.get(0)).optional()?;
        Ok(Account { id, balance: balance.ok_or(TOO_LATE)?, fence })
    }

    /// Moves a deal on, with all that belongs to it: a crash leaves everything of it or nothing.
    pub(super) fn change(&self, deal: &Deal, to: State, movements: &[Movement<'_>]) -> Result<()> {
        let mut database = self.database();
        let change = database.transaction_with_behavior(Immediate)?;
        let escrow = deal.escrow + movements.iter().map(Movement::into_escrow).sum::<i64>();
        let written = change.execute(
            "update deals set state = ?3, escrow = ?4 where id = ?1 and fence <= ?2",
            (deal.id, deal.fence, to.as_str(), escrow),
        )?;
        if written == 0 {
            return Err(TOO_LATE.into());
        }
        change.execute(
            "insert into history (deal, was, became, by) values (?, ?, ?, ?)",
            (deal.id, deal.state.as_str(), to.as_str(), &self.by),
        )?;
        for movement in movements {
            movement.write(&change, deal, &self.by)?;
        }
        let outbox = "insert into outbox (deal, kind, text, fence) values (?, ?, ?, ?)";
        if to == State::Funded || to.is_final() {
            change.execute(outbox, (deal.id, "notify", format!("deal {}: {to}", deal.id), deal.fence))?;
        }
        let order = match to {
            State::Accepted => Some("payout"),
            State::Disputed => Some("refund"),
            _ => None,
        };
        if let Some(order) = order {
            change.execute("update deals set ordered = ?2 where id = ?1", (deal.id, deal.fence))?;
            change.execute(outbox, (deal.id, order, "", deal.fence))?;
        }
        Ok(change.commit()?)
    }
}

/// What a writer is told whose lock somebody else has had since.
const TOO_LATE: &str = "somebody else has had the lock since";

/// Money on its way.
pub(super) enum Movement<'a> {
    /// From outside into the deal's escrow.
    Deposit(i64),
    /// From escrow into an account, as a payout, a fee or a refund.
    Credit { kind: &'static str, account: &'a Account, amount: i64 },
}

impl Movement<'_> {
    fn into_escrow(&self) -> i64 {
        match self {
            Self::Deposit(amount) => *amount,
            Self::Credit { amount, .. } => -amount,
        }
    }

    fn write(&self, change: &Transaction<'_>, deal: &Deal, by: &str) -> Result<()> {
        let sql = "insert into entries (deal, kind, account, amount, by) values (?, ?, ?, ?, ?)";
        match self {
            Self::Deposit(amount) => change.execute(sql, (deal.id, "deposit", None::<u64>, amount, by))?,
            Self::Credit { kind, account, amount } => {
                let written = change.execute(
                    "update accounts set balance = ?3 where id = ?1 and fence <= ?2",
                    (account.id, account.fence, account.balance + amount),
                )?;
                if written == 0 {
                    return Err(TOO_LATE.into());
                }
                change.execute(sql, (deal.id, kind, account.id, amount, by))?
            }
        };
        Ok(())
    }
}
