//! Latches pass through, except for the method of the tamper.

use leasehold::{
    Name,
    clock::Until,
    engine::{
        Engine, Fut,
        latches::{Answer, Latches, Request, Snapshot},
    },
};

use super::{Tamper, Wrapped};

fn of(inner: &dyn Engine) -> &dyn Latches {
    inner.latches().expect("checked before")
}

impl<T: Tamper> Latches for Wrapped<T> {
    fn ask<'a>(&'a self, request: &'a Request, until: Until) -> Fut<'a, Answer> {
        self.pass(|inner| self.tamper.ask(of(inner), request, until))
    }

    fn state<'a>(&'a self, name: &'a Name, until: Until) -> Fut<'a, Option<Snapshot>> {
        self.pass(|inner| of(inner).state(name, until))
    }
}
