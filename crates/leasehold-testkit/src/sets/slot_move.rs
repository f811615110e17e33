//! A slot on its way from one primary to another, step by step.

use super::cluster::ClusterSet;
use super::cluster_start::{id, ok};
use super::{AGREE_WITHIN, ask};
use crate::poll::eventually;
use crate::server::RedisServer;

const KEYS_AT_ONCE: &str = "100";
const MIGRATE_WITHIN_MS: &str = "10000";

impl ClusterSet {
    /// Moves a slot with all its keys: [`begin_move`](Self::begin_move), [`migrate_slot`](Self::migrate_slot),
    /// [`end_move`](Self::end_move). Does nothing when `to` owns it already.
    #[track_caller]
    pub fn move_slot(&self, slot: u16, to: &RedisServer) {
        let from = self.owner_of(slot);
        if from.port() != to.port() {
            self.begin_move(slot, from, to);
            self.migrate_slot(slot, from, to);
            self.end_move(slot, to);
        }
    }

    /// From now on `from` redirects clients to `to` for keys that it does not have (`ASK`), and `to` serves them only
    /// after `ASKING`.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, from: &RedisServer, to: &RedisServer) {
        let slot = slot.to_string();
        ok(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        ok(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    }

    /// Moves some keys of a slot whose move has begun; a key that is missing is passed over.
    #[track_caller]
    pub fn migrate_keys(&self, from: &RedisServer, to: &RedisServer, keys: &[&str]) {
        let port = to.port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", MIGRATE_WITHIN_MS];
        words.extend(self.password().iter().flat_map(|password| ["AUTH", password]));
        words.push("KEYS");
        words.extend(keys);
        ok(from, &words);
    }

    /// Moves all keys of a slot whose move has begun.
    #[track_caller]
    pub fn migrate_slot(&self, slot: u16, from: &RedisServer, to: &RedisServer) {
        loop {
            let keys = from.cli(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), KEYS_AT_ONCE]);
            let keys: Vec<&str> = keys.list().iter().map(|key| key.text()).collect();
            if keys.is_empty() {
                return;
            }
            self.migrate_keys(from, to, &keys);
        }
    }

    /// Makes `to` the owner and waits until all running nodes have learned of it. Keys that were left behind are lost.
    ///
    /// # Panics
    /// When they do not agree within a minute.
    #[track_caller]
    pub fn end_move(&self, slot: u16, to: &RedisServer) {
        let owner = id(to);
        let words = ["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &owner];
        // The new owner first: while no node claims the slot, clients would be redirected in circles.
        ok(to, &words);
        let others = self.primaries().into_iter().filter(|node| node.port() != to.port() && node.is_up());
        // Valkey does not reply on a node whose writes are paused; it learns the owner from the others.
        others.for_each(|primary| drop(ask(primary, &words)));
        eventually(AGREE_WITHIN, "nodes that agree on the owner of a moved slot", || {
            self.agreed_map().is_some_and(|map| map.owner_of(slot) == Some(to.port()))
        });
    }
}
