//! Takes messages from the broker and moves money: deposits, payouts, refunds.
//!
//! A message may come twice, late, or to two cashiers at once. Nothing is paid without its locks: a message whose locks are
//! not to be had goes back into the queue.

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
    pub(super) async fn work(self) -> Result<()> {
        loop {
            let message = broker::take(&self.books.database())?;
            let Some(message) = message else {
                tokio::time::sleep(REST).await;
                continue;
            };
            // An error is a lock that is busy, a store out of reach or a fence that came too late: not now.
            let outcome = self.handle(&message).await.unwrap_or(Outcome::Requeue);
            broker::settle(&self.books.database(), message.id, outcome)?;
        }
    }

    /// Locks the kind of payment of this deal, then asks whether it was done before.
    async fn handle(&self, message: &Message) -> Result<Outcome> {
        let policy = message.kind.as_str();
        let deal = ("deal_id", message.deal);
        let payment = self.protection.lock_of_policy(|leases| keys::lock(leases, policy, Some(deal))).await?;
        let begun = self.protection.begin(|leases| match policy {
            "deposit" => keys::request(leases, policy, ("tx_hash", &message.tx_hash)),
            _ => keys::request(leases, policy, deal),
        });
        let outcome = match begun.await? {
            Begun::Yours(execution) => {
                let outcome = self.execute(message).await?;
                if outcome != Outcome::Stale {
                    execution.complete().await?;
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
        let pass = self.protection.lock_of_policy(|leases| keys::lock(leases, "deal", Some(id))).await?;
        let deal =
            self.books.open_deal(message.deal, &pass)?.ok_or("no such deal, or somebody else has it")?;
        let (from, to) = match message.kind.as_str() {
            "deposit" => (State::Created, State::Funded),
            "payout" => (State::Accepted, State::PaidOut),
            _ => (State::Disputed, State::Refunded),
        };
        let outcome = if message.fence < deal.ordered && message.kind != "deposit" {
            // Its sender has had a successor, who ordered something else.
            Outcome::Stale
        } else if deal.state != from {
            // Done by a cashier who died before it could say so.
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
                // Sellers before the platform, in every cashier: nobody waits for somebody who waits for him.
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
        Ok(self.protection.lock_of_policy(|leases| keys::lock(leases, "balance", id)).await?)
    }
}
