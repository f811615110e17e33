//! What each sentinel tells, for whoever looks at the health of the set.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::Value;

use super::{Address, Circle, LEARNT_MAX, Sentinels, View, at, field, lock};
use crate::engine::{
    EngineError,
    redis::{
        answer,
        node::{Node, NodeOptions},
        place::{self, Place},
    },
};

/// One sentinel and its answer.
pub(in crate::engine::redis) struct Account {
    pub(in crate::engine::redis) at: Address,
    pub(in crate::engine::redis) told: Result<Told, EngineError>,
}

/// What a sentinel told.
pub(in crate::engine::redis) struct Told {
    pub(in crate::engine::redis) primary: Address,
    pub(in crate::engine::redis) epoch: u64,
    /// How many sentinels must miss a primary.
    pub(in crate::engine::redis) quorum: Option<usize>,
    /// How many sentinels it knows besides itself.
    pub(in crate::engine::redis) others: usize,
    /// `None` if this user may not see them.
    pub(in crate::engine::redis) replicas: Option<Vec<Address>>,
    id: Option<String>,
    /// Where the others are, and their ids.
    peers: Vec<(Address, Option<String>)>,
}

impl Sentinels {
    /// What all sentinels tell, those that others told of included, and the primary that counts.
    pub(in crate::engine::redis) async fn accounts(&self) -> Result<(Vec<Account>, Address), EngineError> {
        let circle = &self.circle;
        let mut all = circle.ask_each(circle.named.clone()).await;
        let mut more = peers(&all);
        if all.iter().all(|account| account.told.is_err()) {
            more = lock(&circle.learnt).clone();
        }
        all.extend(circle.ask_each(more).await);
        let views = all.iter().filter_map(|account| account.told.as_ref().ok());
        let views: Vec<_> =
            views.map(|told| View { epoch: told.epoch, primary: told.primary.clone() }).collect();
        match choose(&views) {
            Some(primary) => Ok((all, primary)),
            None => {
                let silent = all.into_iter().filter_map(|account| Some((account.at, account.told.err()?)));
                Err(circle.nobody_knows(&silent.collect::<Vec<_>>()))
            }
        }
    }

    /// A connection of its own to a primary or a replica, whatever it is at the moment.
    pub(in crate::engine::redis) fn node_at(&self, address: &Address) -> Result<Arc<Node>, EngineError> {
        let circle = &self.circle;
        Ok(Node::new(NodeOptions {
            place: Place::Fixed(Box::new(at(&circle.primary, address)?)),
            client_name: circle.client_name.clone(),
            channel: String::new(),
            clock: circle.clock.clone(),
            command_timeout: circle.command_timeout,
            identify: false,
        }))
    }

    /// Whether sentinels are shown a password, or may be shown a certificate.
    pub(in crate::engine::redis) fn has_login(&self) -> bool {
        let sentinel = &self.circle.sentinel;
        let has_password = sentinel.get_connection_info().redis_settings().password().is_some();
        has_password || place::speaks_tls(sentinel)
    }
}

/// The primary that more than half name; otherwise that of the latest fail-over.
fn choose(views: &[View]) -> Option<Address> {
    let equal = |view: &View| views.iter().filter(|other| other.primary == view.primary).count();
    let by_most = views.iter().find(|view| equal(view) * 2 > views.len());
    by_most.or_else(|| views.iter().max_by_key(|view| view.epoch)).map(|view| view.primary.clone())
}

/// Sentinels that others tell of and that were not asked, not under another name either.
fn peers(asked: &[Account]) -> Vec<Address> {
    let told = || asked.iter().filter_map(|account| account.told.as_ref().ok());
    let mut found = Vec::new();
    for (address, id) in told().flat_map(|told| &told.peers) {
        let is_asked = asked.iter().any(|account| account.at == *address)
            || id.is_some() && told().any(|told| told.id == *id);
        if !is_asked && !found.contains(address) && found.len() < LEARNT_MAX {
            found.push(address.clone());
        }
    }
    found
}

impl Circle {
    async fn ask_each(&self, sentinels: Vec<Address>) -> Vec<Account> {
        let each = sentinels.into_iter().map(async |at| {
            let told = self.in_time(self.ask_one(&at)).await;
            Account { at, told }
        });
        join_all(each).await
    }

    async fn ask_one(&self, at: &Address) -> Result<Told, EngineError> {
        let mut connection = self.connect(at, None).await?;
        let View { epoch, primary } = self.view(&mut connection).await?;
        let mut ask = async |what: &str| place::asked(&mut connection, &self.command(what)).await;
        // What is refused is not known; the rest still is.
        let details = ask("MASTER").await.unwrap_or(Value::Nil);
        let replicas = ask("REPLICAS").await.ok();
        let others = ask("SENTINELS").await.unwrap_or(Value::Nil);
        let mut who = redis::cmd("SENTINEL");
        who.arg("MYID");
        let id = place::asked(&mut connection, &who).await.ok();
        let number = |name: &str| field(&details, name).and_then(|number| number.parse().ok());
        Ok(Told {
            primary,
            epoch,
            quorum: number("quorum"),
            others: number("num-other-sentinels").unwrap_or(0),
            replicas: replicas.map(|told| listed(&told).into_iter().map(|(address, _)| address).collect()),
            id: id.as_ref().and_then(answer::text).map(str::to_owned),
            peers: listed(&others),
        })
    }
}

/// Addresses and ids in a list of servers.
fn listed(told: &Value) -> Vec<(Address, Option<String>)> {
    let Value::Array(servers) = told else { return Vec::new() };
    let server = |server: &Value| {
        let address = Address::new(field(server, "ip")?, field(server, "port")?.parse().ok()?);
        Some((address, field(server, "runid").map(str::to_owned)))
    };
    servers.iter().filter_map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(epoch: u64, port: u16) -> View {
        View { epoch, primary: Address::new("h", port) }
    }

    #[test]
    fn most_sentinels_decide_and_otherwise_the_latest_fail_over() {
        let chosen = |views: &[View]| choose(views).map(|address| address.port);
        assert_eq!(chosen(&[view(0, 1), view(9, 2), view(0, 1)]), Some(1));
        assert_eq!(chosen(&[view(3, 1), view(4, 2)]), Some(2));
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn a_sentinel_with_two_names_is_asked_once() {
        let account = |host: &str, id: &str, peers: &[(&str, &str)]| Account {
            at: Address::new(host, 1),
            told: Ok(Told {
                primary: Address::new("p", 1),
                epoch: 0,
                quorum: None,
                others: 0,
                replicas: None,
                id: Some(id.into()),
                peers: peers.iter().map(|(at, id)| (Address::new(at, 1), Some((*id).to_owned()))).collect(),
            }),
        };
        let asked =
            [account("a.example", "1", &[("10.0.0.2", "2")]), account("10.0.0.2", "2", &[("10.0.0.1", "1")])];
        assert_eq!(peers(&asked), []);
        let asked = [account("a.example", "1", &[("10.0.0.2", "2"), ("10.0.0.3", "3")])];
        assert_eq!(peers(&asked), [Address::new("10.0.0.2", 1), Address::new("10.0.0.3", 1)]);
    }
}
