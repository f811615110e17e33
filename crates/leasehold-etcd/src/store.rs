//! The calls that this engine makes.

use std::sync::PoisonError;

use leasehold_core::{clock::Until, owner::OwnerId};
use rand::RngExt;

use super::{
    Etcd, Result,
    channel::Again,
    proto::{
        Compare, LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeRequest, LeaseRevokeResponse,
        LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeRequest, RangeResponse, RequestOp, TxnRequest,
        TxnResponse,
    },
    reply::{Replies, is_no_lease},
    spare::{StoreLease, seconds},
};

/// Most operations of one transaction that every member takes.
pub(crate) const OPS_MAX: usize = 100;
/// Leases of attempts that are remembered; one that is not is looked up.
const KNOWN_MAX: usize = 200_000;

impl Etcd {
    pub(crate) async fn txn(
        &self,
        compare: Vec<Compare>,
        success: Vec<RequestOp>,
        failure: Vec<RequestOp>,
        again: Again<'_>,
        until: Until,
    ) -> Result<Replies> {
        let request = TxnRequest { compare, success, failure };
        let response: TxnResponse = self.members.call("/etcdserverpb.KV/Txn", request, again, until).await?;
        Ok(response.into())
    }

    pub(crate) async fn read(&self, range: RangeRequest, until: Until) -> Result<RangeResponse> {
        self.members.call("/etcdserverpb.KV/Range", range, Again::Same, until).await
    }

    /// A new lease for so many seconds. Its id is known before it is granted, so that it can be revoked in any case.
    pub(crate) async fn grant(
        &self,
        wanted: i64,
        until: Until,
        known: impl FnOnce(StoreLease),
    ) -> Result<StoreLease> {
        let lease = StoreLease {
            id: rand::rng().random_range(1..=i64::MAX),
            seconds: wanted,
            since: self.clock.now(),
        };
        known(lease);
        let request = LeaseGrantRequest { ttl: wanted, id: lease.id };
        let path = "/etcdserverpb.Lease/LeaseGrant";
        let granted: Result<LeaseGrantResponse> = self.members.call(path, request, Again::Same, until).await;
        match granted {
            Ok(_) => Ok(lease),
            // The first copy was not answered.
            Err(error) if error.why.contains("lease already exists") => Ok(lease),
            Err(error) => Err(error),
        }
    }

    /// Ends a lease and everything that is attached to it, also what is still on its way.
    pub(crate) async fn revoke(&self, id: i64, until: Until) -> Result<()> {
        let path = "/etcdserverpb.Lease/LeaseRevoke";
        let revoked: Result<LeaseRevokeResponse> =
            self.members.call(path, LeaseRevokeRequest { id }, Again::Same, until).await;
        match revoked {
            Err(error) if !is_no_lease(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// How long a lease has left in the store, if it is not over.
    pub(crate) async fn time_left(&self, id: i64, until: Until) -> Result<Option<std::time::Duration>> {
        let path = "/etcdserverpb.Lease/LeaseTimeToLive";
        let answer: LeaseTimeToLiveResponse =
            self.members.call(path, LeaseTimeToLiveRequest { id }, Again::Same, until).await?;
        Ok((answer.ttl >= 0).then(|| seconds(answer.ttl)))
    }

    /// The lease of an attempt, as far as this client knows it.
    pub(crate) fn lease_of(&self, owner: OwnerId) -> Option<StoreLease> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).get(&owner).copied()
    }

    pub(crate) fn set_lease(&self, owner: OwnerId, lease: StoreLease) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        if leases.len() >= KNOWN_MAX && !leases.contains_key(&owner) {
            // Those that nobody gave back.
            let now = self.clock.now();
            leases.retain(|_, lease| now.since(lease.since) < seconds(lease.seconds) * 2);
        }
        leases.insert(owner, lease);
    }

    pub(crate) fn forget_lease(&self, owner: OwnerId) -> Option<StoreLease> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).remove(&owner)
    }
}
