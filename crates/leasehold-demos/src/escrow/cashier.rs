//! Takes messages from the broker and moves money: deposits, payouts, refunds.
//!
//! A message may come twice, late, or to two cashiers at once. Nothing is paid without its locks: a message whose locks
//! cannot be acquired goes back into the queue.

use std::time::Duration;

use super::{
    PLATFORM, bank,
    books::{Books, Deal, Movement},
    broker::{self, Message, Outcome},
    keys,
    state::State,
};
use crate::{
    Result,
    protection::{Begun, Pass, Protection},
};

/// How long a cashier rests when there is nothing to do.
const REST: Duration = Duration::from_millis(40);

pub(super) struct Cashier {
    pub(super) books: Books,
    pub(super) protection: Protection,
    /// The port of the bank.
    pub(super) bank: u16,
}

impl Cashier {
    pub(super) async fn work(self) {
        loop {
            // A database that is busy for too long counts as nothing to do.
            if !self.next_message().await.unwrap_or(false) {
                tokio::time::sleep(REST).await;
            }
        }
    }

    /// False if there is none.
    async fn next_message(&self) -> Result<bool> {
        let message = broker::take(self.books.database())?;
        let Some(message) = message else { return Ok(false) };
        let outcome = self.deliver(&message).await;
        broker::settle(self.books.database(), message.id, outcome)?;
        Ok(true)
    }

    async fn deliver(&self, message: &Message) -> Outcome {
        // An error is a busy lock, an unreachable store or an outdated fence: try again later.
        self.handle(message).await.unwrap_or(Outcome::Requeue)
    }

    /// Locks the kind of payment of this deal, then asks whether it was done before.
    async fn handle(&self, message: &Message) -> Result<Outcome> {
        let policy = message.kind.as_str();
        let deal = ("deal_id", message.deal);
        let payment = self.protection.lock(|leases| keys::lock(leases, policy, Some(deal))).await?;
        let begun = self.protection.begin(|leases| match policy {
            "deposit" => keys::request(leases, policy, ("tx_hash", &message.tx_hash)),
            _ => keys::request(leases, policy, deal),
        });
        let outcome = match begun.await? {
            Begun::Yours(execution) => {
                let outcome = self.execute(message).await?;
                match outcome {
                    Outcome::Stale => execution.give_back().await?,
                    _ => execution.complete().await?,
                }
                outcome
            }
            Begun::Done => Outcome::Again,
            Begun::Busy => Outcome::Requeue,
        };
        payment.release().await?;
        Ok(outcome)
    }

    async fn execute(&self, message: &Message) -> Result<Outcome> {
        let id = ("deal_id", message.deal);
        let pass = self.protection.lock(|leases| keys::lock(leases, "deal", Some(id))).await?;
        let deal =
            self.books.open_deal(message.deal, &pass)?.ok_or("no such deal, or it has a later holder")?;
        let (from, to) = match message.kind.as_str() {
            "deposit" => (State::Created, State::Funded),
            "payout" => (State::Accepted, State::PaidOut),
            _ => (State::Disputed, State::Refunded),
        };
        let outcome = if message.fence < deal.ordered && message.kind != "deposit" {
            // A later holder of the lock has ordered something else.
            Outcome::Stale
        } else if deal.state != from {
            // Done by a cashier that died before it could record so.
            Outcome::Again
        } else {
            self.pay(&deal, to, &message.tx_hash).await?;
            Outcome::Done
        };
        pass.release().await?;
        Ok(outcome)
    }

    /// Asks the bank between reading and writing: no database transaction spans that, only locks do.
    async fn pay(&self, deal: &Deal, to: State, tx_hash: &str) -> Result<()> {
        match to {
            State::PaidOut => {
                // Sellers before the platform, in every cashier: a fixed order avoids deadlock.
                let seller_lock = self.lock(deal.seller).await?;
                let seller = self.books.open_account(deal.seller, &seller_lock)?;
                let fee = bank::ask(self.bank, &format!("/fees/{}", deal.amount)).await?;
                let platform_lock = self.lock(PLATFORM).await?;
                let platform = self.books.open_account(PLATFORM, &platform_lock)?;
                let payout = Movement::Credit { kind: "payout", account: &seller, amount: deal.amount - fee };
                let fee = Movement::Credit { kind: "fee", account: &platform, amount: fee };
                self.books.change(deal, to, &[payout, fee])?;
                platform_lock.release().await?;
                seller_lock.release().await
            }
            State::Refunded => {
                let lock = self.lock(deal.buyer).await?;
                let buyer = self.books.open_account(deal.buyer, &lock)?;
                let refund = Movement::Credit { kind: "refund", account: &buyer, amount: deal.amount };
                self.books.change(deal, to, &[refund])?;
                lock.release().await
            }
            _ => {
                let amount = bank::ask(self.bank, &format!("/deposits/{tx_hash}")).await?;
                self.books.change(deal, to, &[Movement::Deposit(amount)])
            }
        }
    }

    async fn lock(&self, account: u64) -> Result<Pass> {
        let id = Some(("account_id", account));
        Ok(self.protection.lock(|leases| keys::lock(leases, "balance", id)).await?)
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Leasehold;

    use super::*;
    use crate::escrow::database::{Database, Statements};

    /// The fence of the latest order about the deal.
    const ORDERED: i64 = 7;

    /// A cashier, and a deal that is to be refunded.
    async fn cashier() -> (Cashier, Leasehold) {
        let database = Database::in_memory(&format!(
            "insert into accounts (id, name, balance) values (2, 'buyer', 0);
             insert into deals (id, buyer, seller, amount, state, escrow, ordered)
             values (1, 2, 3, 500, 'DISPUTED', 500, {ORDERED})"
        ));
        let live = super::super::DEMO.policies.live(None, "test", |_| None).unwrap();
        let policies = leasehold::Policies::parse(&live.text, &live.origin).unwrap();
        let leases = Leasehold::builder("memory:").policies(policies).connect().await.unwrap();
        let protection = Protection::new(Some(leases.clone()));
        (Cashier { books: Books::new(database, "test"), protection, bank: 0 }, leases)
    }

    fn refund(fence: i64) -> Message {
        Message { id: 1, kind: "refund".into(), deal: 1, tx_hash: String::new(), fence }
    }

    fn refunded(cashier: &Cashier) -> u64 {
        let sql = "select sum(amount) from entries where kind = 'refund'";
        cashier.books.database().number(sql).unwrap()
    }

    #[tokio::test]
    async fn a_message_with_an_older_fence_than_the_latest_order_is_refused() {
        let (cashier, _leases) = cashier().await;
        assert_eq!(cashier.deliver(&refund(ORDERED - 1)).await, Outcome::Stale);
        assert_eq!(refunded(&cashier), 0);
        assert_eq!(cashier.deliver(&refund(ORDERED)).await, Outcome::Done);
        assert_eq!(refunded(&cashier), 500);
    }

    #[tokio::test]
    async fn a_message_that_is_delivered_again_changes_nothing() {
        let (cashier, leases) = cashier().await;
        assert_eq!(cashier.deliver(&refund(ORDERED)).await, Outcome::Done);
        assert_eq!(cashier.deliver(&refund(ORDERED)).await, Outcome::Again);
        // As after a cashier that had paid and died before it recorded so.
        assert!(keys::request(&leases, "refund", ("deal_id", 1)).unwrap().remove().await.unwrap());
        assert_eq!(cashier.deliver(&refund(ORDERED)).await, Outcome::Again);
        assert_eq!(refunded(&cashier), 500);
    }

    #[tokio::test]
    async fn nothing_is_paid_without_every_lock_and_the_message_goes_back_into_the_queue() {
        let (cashier, leases) = cashier().await;
        for (policy, id) in
            [("refund", ("deal_id", 1)), ("deal", ("deal_id", 1)), ("balance", ("account_id", 2))]
        {
            let lock = leases.lock_policy(policy).unwrap().key([id]);
            let other = lock.keep_alive().acquire().await.unwrap();
            assert_eq!(cashier.deliver(&refund(ORDERED)).await, Outcome::Requeue, "{policy}");
            assert_eq!(refunded(&cashier), 0, "{policy}");
            let _ = other.release().await.unwrap();
        }
        // Abandoned requests are given back in the background.
        leasehold_testkit::eventually_async(Duration::from_secs(30), "the refund is paid", async || {
            cashier.deliver(&refund(ORDERED)).await == Outcome::Done
        })
        .await;
        leases.close().await.unwrap();
        assert_eq!(cashier.deliver(&refund(ORDERED)).await, Outcome::Requeue, "the store is gone");
        assert_eq!(refunded(&cashier), 500);
    }
}
