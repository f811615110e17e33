//! Deals and accounts in the database: opened under a lock, changed in memory, written under the same lock.
//!
//! Nothing that was read can change until it is written, or the write is refused because the lock was lost meanwhile.

use super::{
    database::{Database, Statements, values},
    state::State,
};
use crate::{
    Result,
    protection::{Held, Pass},
};

/// The database, as one task uses it.
pub(super) struct Books {
    database: Database,
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
    held: Held,
}

pub(super) struct Account {
    id: u64,
    balance: i64,
    held: Held,
}

impl Books {
    pub(super) fn new(database: Database, by: impl Into<String>) -> Self {
        Self { database, by: by.into() }
    }

    pub(super) fn database(&self) -> &Database {
        &self.database
    }

    pub(super) fn by(&self) -> &str {
        &self.by
    }

    pub(super) fn state_of(&self, deal: u64) -> Result<Option<String>> {
        let found = self.database.row("select state from deals where id = ?1", &values![deal])?;
        found.map(|row| row.text(0)).transpose()
    }

    /// Opens a deal under its lock; `None` if there is none, or a later holder.
    pub(super) fn open_deal(&self, id: u64, pass: &Pass) -> Result<Option<Deal>> {
        let (held, columns) = (pass.held(), "buyer, seller, amount, state, escrow, ordered");
        let Some(row) = self.database.open("deals", columns, id, &held)? else { return Ok(None) };
        let (buyer, seller, amount) = (row.count(0)?, row.count(1)?, row.number(2)?);
        let state = State::parse(&row.text(3)?).ok_or("there is no such state")?;
        let (escrow, ordered) = (row.number(4)?, row.number(5)?);
        Ok(Some(Deal { id, buyer, seller, amount, state, ordered, escrow, held }))
    }

    /// Opens an account under its lock.
    pub(super) fn open_account(&self, id: u64, pass: &Pass) -> Result<Account> {
        let held = pass.held();
        let row = self.database.open("accounts", "balance", id, &held)?.ok_or(TOO_LATE)?;
        Ok(Account { id, balance: row.number(0)?, held })
    }

    /// Advances a deal, atomically with everything that belongs to it.
    pub(super) fn change(&self, deal: &Deal, to: State, movements: &[Movement<'_>]) -> Result<()> {
        let escrow = deal.escrow + movements.iter().map(Movement::change_of_escrow).sum::<i64>();
        let held: Vec<_> =
            std::iter::once(&deal.held).chain(movements.iter().filter_map(Movement::held)).collect();
        self.database.transaction(&held, |change| {
            let fence = deal.held.fence;
            let written = change.execute(
                "update deals set state = ?3, escrow = ?4 where id = ?1 and fence <= ?2",
                &values![deal.id, fence, to.as_str(), escrow],
            )?;
            if written == 0 {
                return Err(TOO_LATE.into());
            }
            change.execute(
                "insert into history (deal, was, became, by) values (?1, ?2, ?3, ?4)",
                &values![deal.id, deal.state.as_str(), to.as_str(), &*self.by],
            )?;
            for movement in movements {
                movement.write(change, deal, &self.by)?;
            }
            let outbox = "insert into outbox (deal, kind, text, fence) values (?1, ?2, ?3, ?4)";
            if to == State::Funded || to.is_final() {
                let text = format!("deal {}: {to}", deal.id);
                change.execute(outbox, &values![deal.id, "notify", &*text, fence])?;
            }
            let order = match to {
                State::Accepted => Some("payout"),
                State::Disputed => Some("refund"),
                _ => None,
            };
            if let Some(order) = order {
                change.execute("update deals set ordered = ?2 where id = ?1", &values![deal.id, fence])?;
                change.execute(outbox, &values![deal.id, order, "", fence])?;
            }
            Ok(())
        })
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
    fn held(&self) -> Option<&Held> {
        match self {
            Self::Deposit(_) => None,
            Self::Credit { account, .. } => Some(&account.held),
        }
    }

    fn change_of_escrow(&self) -> i64 {
        match self {
            Self::Deposit(amount) => *amount,
            Self::Credit { amount, .. } => -amount,
        }
    }

    fn write(&self, change: &dyn Statements, deal: &Deal, by: &str) -> Result<()> {
        let sql = "insert into entries (deal, kind, account, amount, by) values (?1, ?2, ?3, ?4, ?5)";
        match self {
            Self::Deposit(amount) => {
                change.execute(sql, &values![deal.id, "deposit", None::<u64>, *amount, by])?;
            }
            Self::Credit { kind, account, amount } => {
                let written = change.execute(
                    "update accounts set balance = ?3 where id = ?1 and fence <= ?2",
                    &values![account.id, account.held.fence, account.balance + amount],
                )?;
                if written == 0 {
                    return Err(TOO_LATE.into());
                }
                change.execute(sql, &values![deal.id, *kind, account.id, *amount, by])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Leasehold;
    use leasehold_testkit::PostgresServer;

    use super::*;
    use crate::protection::Protection;

    const ROWS: &str = "insert into accounts (id, name, balance) values (2, 'buyer', 0);
                        insert into deals (id, buyer, seller, amount, state, escrow)
                        values (1, 2, 3, 500, 'DISPUTED', 500)";

    fn refund(books: &Books, deal: &Deal, account: &Account) -> Result<()> {
        let refund = Movement::Credit { kind: "refund", account, amount: deal.amount };
        books.change(deal, State::Refunded, &[refund])
    }

    /// Fails if anything has been written.
    fn assert_untouched(books: &Books) {
        let count = |sql| books.database().number(sql).unwrap();
        let moved = "select (select count(*) from entries) + (select count(*) from history)
                          + (select sum(balance) from accounts)";
        assert_eq!(count(moved), 0, "half of it was written");
        assert_eq!(count("select escrow from deals"), 500);
    }

    #[tokio::test]
    async fn whoever_had_the_lock_before_can_write_neither_the_deal_nor_the_account() {
        let books = Books::new(Database::in_memory(ROWS), "test");
        let protection = Protection::new(Some(Leasehold::connect("memory:").await.unwrap()));
        // Each is held twice, one after the other: the first holder is late.
        let hold = async |name: &str| {
            let first = protection.lock(|leases| Ok(leases.lock(name))).await.unwrap();
            let held = first.held();
            first.release().await.unwrap();
            (held, protection.lock(|leases| Ok(leases.lock(name))).await.unwrap())
        };
        let ((deal_before, deal_now), (account_before, account_now)) =
            (hold("deal").await, hold("account").await);
        let deal = books.open_deal(1, &deal_now).unwrap().unwrap();
        let account = books.open_account(2, &account_now).unwrap();
        let late_deal = Deal { held: deal_before, ..books.open_deal(1, &deal_now).unwrap().unwrap() };
        let late_account = Account { held: account_before, ..account };
        assert!(refund(&books, &late_deal, &account).is_err());
        assert!(refund(&books, &deal, &late_account).is_err());
        assert_untouched(&books);
        refund(&books, &deal, &account).unwrap();
        assert_eq!(books.database().number("select balance from accounts").unwrap(), 500);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn postgres_refuses_a_write_whose_lock_is_lost_although_nobody_has_it_now() {
        let Some(server) = PostgresServer::start_or_skip() else { return };
        let url = server.url("postgres");
        let leases = Leasehold::builder(&*url).connect_lazy().unwrap();
        leases.schema().unwrap().install().await.unwrap();
        let database = Database::in_schema(&url, "demo_1".into()).unwrap();
        database
            .create(|tables| ROWS.split(';').try_for_each(|row| tables.execute(row, &[]).map(drop)))
            .unwrap();
        let (books, protection) = (Books::new(database, "test"), Protection::new(Some(leases.clone())));
        for lost in ["deal", "account"] {
            let deal_lock = protection.lock(|leases| Ok(leases.lock("deal"))).await.unwrap();
            let account_lock = protection.lock(|leases| Ok(leases.lock("account"))).await.unwrap();
            let deal = books.open_deal(1, &deal_lock).unwrap().unwrap();
            let account = books.open_account(2, &account_lock).unwrap();
            // As after a pause that was longer than the lease.
            let now = leases.inspect(lost).await.unwrap().held().unwrap().fence;
            assert!(leases.force_release(lost, now).await.unwrap().was_held());
            let refused = refund(&books, &deal, &account).unwrap_err().to_string();
            assert!(refused.contains(&format!("the lock \"{lost}\" is no longer held")), "{refused}");
            assert_untouched(&books);
        }
        let deal_lock = protection.lock(|leases| Ok(leases.lock("deal"))).await.unwrap();
        let account_lock = protection.lock(|leases| Ok(leases.lock("account"))).await.unwrap();
        let deal = books.open_deal(1, &deal_lock).unwrap().unwrap();
        // What is open when the server ends every connection is dialled again.
        server.terminate_backends("postgres");
        let account = books.open_account(2, &account_lock).unwrap();
        refund(&books, &deal, &account).unwrap();
        assert_eq!(books.database().number("select balance from accounts").unwrap(), 500);
        books.database().remove().unwrap();
        let left = "select count(*) from information_schema.schemata where schema_name = 'demo_1'";
        assert_eq!(server.sql("postgres", left), "0");
    }
}
