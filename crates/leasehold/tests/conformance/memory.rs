//! `memory:` as a ground: a store of its own for every space.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use leasehold::{
    Builder, Leasehold,
    engine::{Engine, memory::Memory},
};
use leasehold_testkit::conformance::{Breakable, Ground, Need, Plot, Wrapped};

#[derive(Default)]
pub(crate) struct MemoryGround {
    switches: Mutex<HashMap<String, Breakable>>,
}

impl MemoryGround {
    fn switch(&self, space: &str) -> Breakable {
        self.switches.lock().unwrap().entry(space.to_owned()).or_default().clone()
    }
}

impl Ground for MemoryGround {
    fn builder(&self, plot: &Plot) -> Builder {
        let builder = Leasehold::builder(format!("memory:{}", plot.space)).clock(plot.clock.clone());
        if plot.breakable {
            builder.engine(Arc::new(Wrapped::new(self.engine(plot), self.switch(&plot.space))))
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

    fn engine(&self, plot: &Plot) -> Arc<dyn Engine> {
        Arc::new(Memory::open(&plot.space, plot.clock.clone()))
    }

    fn cut(&self, space: &str) {
        self.switch(space).cut();
    }

    fn mend(&self, space: &str) {
        self.switch(space).mend();
    }
}
