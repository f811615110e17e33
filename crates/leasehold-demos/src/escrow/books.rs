//! Deals and accounts in the database: opened under a lock, changed in memory, written with its fence.
//!
//! Opening writes the fence into the row. From then on no earlier holder of the lock can write it, so the values read stay
//! current until this holder writes, or is refused because there is a later holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior::Immediate};

use super::state::State;
use crate::{Result, protection::Pass};

/// The database, as one task uses it.
pub(super) struct Books {
    database: Mutex<Connection>,
    /// The writer, for the records.
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

    /// Advances a deal, atomically with everything that belongs to it.
    pub(super) fn change(&self, deal: &Deal, to: State, movements: &[Movement<'_>]) -> Result<()> {
        let mut database = self.database();
        let change = database.transaction_with_behavior(Immediate)?;
        let escrow = deal.escrow + movements.iter().map(Movement::change_of_escrow).sum::<i64>();
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

/// The error of a writer whose lock has had a later holder.
const TOO_LATE: &str = "the lock has had a later holder";

/// Money on its way.
pub(super) enum Movement<'a> {
    /// From outside into the deal's escrow.
    Deposit(i64),
    /// From escrow into an account, as a payout, a fee or a refund.
    Credit { kind: &'static str, account: &'a Account, amount: i64 },
}

impl Movement<'_> {
    fn change_of_escrow(&self) -> i64 {
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

#[cfg(test)]
mod tests {
    use leasehold::Leasehold;

    use super::*;
    use crate::{database::number, protection::Protection};

    #[tokio::test]
    async fn whoever_had_the_lock_before_can_write_neither_the_deal_nor_the_account() {
        let database = Connection::open_in_memory().unwrap();
        database.execute_batch(include_str!("schema.sql")).unwrap();
        database
            .execute_batch(
                "insert into accounts (id, name, balance) values (2, 'buyer', 0);
                 insert into deals (id, buyer, seller, amount, state, escrow)
                 values (1, 2, 3, 500, 'DISPUTED', 500)",
            )
            .unwrap();
        let books = Books::new(database, "test");
        let protection = Protection::new(Some(Leasehold::connect("memory:").await.unwrap()));
        // Each is held twice, one after the other: the first holder is late.
        let hold = async |name: &str| {
            let first = protection.lock(|leases| Ok(leases.lock(name))).await.unwrap();
            let fence = first.fence();
            first.release().await.unwrap();
            (fence, protection.lock(|leases| Ok(leases.lock(name))).await.unwrap())
        };
        let ((deal_before, deal_now), (account_before, account_now)) =
            (hold("deal").await, hold("account").await);
        let deal = books.open_deal(1, &deal_now).unwrap().unwrap();
        let account = books.open_account(2, &account_now).unwrap();
        let late_deal = Deal { fence: deal_before, ..books.open_deal(1, &deal_now).unwrap().unwrap() };
        let late_account = Account { fence: account_before, ..account };
        let pay = |deal: &Deal, account: &Account| {
            let refund = Movement::Credit { kind: "refund", account, amount: 500 };
            books.change(deal, State::Refunded, &[refund])
        };
        assert!(pay(&late_deal, &account).is_err());
        assert!(pay(&deal, &late_account).is_err());
        let count = |sql| number(&books.database(), sql).unwrap();
        let moved = "select (select count(*) from entries) + (select count(*) from history) + sum(balance) from accounts";
        assert_eq!(count(moved), 0, "half of it was written");
        assert_eq!(count("select escrow from deals"), 500);
        pay(&deal, &account).unwrap();
        assert_eq!(count("select balance from accounts"), 500);
    }
}
