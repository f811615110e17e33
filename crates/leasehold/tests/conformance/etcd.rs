//! An etcd of its own as a fixture: a prefix for every namespace.

use std::{sync::Arc, time::Duration};

use leasehold::{Builder, Leasehold, engine::Engine};
use leasehold_testkit::{
    EtcdSet,
    conformance::{Fixture, Namespace, Need},
};

pub(crate) struct EtcdFixture {
    etcd: EtcdSet,
}

impl EtcdFixture {
    pub(crate) fn start_or_skip(members: usize) -> Option<Self> {
        EtcdSet::builder(members).start_or_skip().map(|etcd| Self { etcd })
    }
}

impl Fixture for EtcdFixture {
    fn builder(&self, namespace: &Namespace) -> Builder {
        let prefix = format!("{}:", namespace.name);
        let builder = Leasehold::builder(self.etcd.url()).clock(namespace.clock.clone());
        // All members share a busy machine.
        builder.command_timeout(Duration::from_secs(20)).configure(|config| config.prefix = prefix)
    }

    fn offers(&self) -> &[Need] {
        &[Need::Contract, Need::Outage, Need::Wipe]
    }

    fn engine(&self, namespace: &Namespace) -> Arc<dyn Engine> {
        self.builder(namespace).into_engine().unwrap()
    }

    fn leftovers(&self, namespace: &str) -> Vec<String> {
        let keys = self.etcd.ctl(&["get", "--prefix", "--keys-only", &format!("{namespace}:")]);
        keys.lines().filter(|key| !key.is_empty()).map(str::to_owned).collect()
    }

    fn wipe(&self) {
        self.etcd.ctl(&["del", "--prefix", ""]);
    }

    /// Stopped processes: connections stay open and nothing answers.
    fn cut(&self, _: &str) {
        self.etcd.members().iter().for_each(leasehold_testkit::EtcdMember::stop);
    }

    fn mend(&self, _: &str) {
        self.etcd.members().iter().for_each(leasehold_testkit::EtcdMember::cont);
        self.etcd.members().iter().for_each(leasehold_testkit::EtcdMember::wait);
    }
}
