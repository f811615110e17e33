//! `memory:` as a fixture: a store of its own for every namespace.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use leasehold::{
    Builder, Leasehold,
    engine::{Engine, memory::Memory},
};
use leasehold_testkit::conformance::{Breakable, Fixture, Namespace, Need, Wrapped};

#[derive(Default)]
pub(crate) struct MemoryFixture {
    switches: Mutex<HashMap<String, Breakable>>,
}

impl MemoryFixture {
    fn switch(&self, namespace: &str) -> Breakable {
        self.switches.lock().unwrap().entry(namespace.to_owned()).or_default().clone()
    }
}

impl Fixture for MemoryFixture {
    fn builder(&self, namespace: &Namespace) -> Builder {
        let builder = Leasehold::builder(format!("memory:{}", namespace.name)).clock(namespace.clock.clone());
        if namespace.breakable {
            builder.engine(Arc::new(Wrapped::new(self.engine(namespace), self.switch(&namespace.name))))
        } else {
            builder
        }
    }

    fn offers(&self) -> &[Need] {
        &[Need::Contract, Need::PausedTime, Need::Outage]
    }

    fn disturbs(&self, _: Need) -> bool {
        false
    }

    fn engine(&self, namespace: &Namespace) -> Arc<dyn Engine> {
        Arc::new(Memory::open(&namespace.name, namespace.clock.clone()))
    }

    fn cut(&self, namespace: &str) {
        self.switch(namespace).cut();
    }

    fn mend(&self, namespace: &str) {
        self.switch(namespace).mend();
    }
}
