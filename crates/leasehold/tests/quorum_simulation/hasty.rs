//! An engine that counts validity from the answer: wrong, to see that the checks notice.

use std::sync::{Arc, Weak};

use leasehold::{
    Clock, Fence, Name,
    clock::Until,
    engine::{
        Answer, Capabilities, Claim, Engine, EngineError, Fut, Grant, Health, Hold, Inspect, Leases,
        Released, Renewed, WakeSink, quorum::Quorum,
    },
};

pub(crate) struct Hasty {
    quorum: Arc<Quorum>,
    clock: Clock,
}

impl Hasty {
    pub(crate) fn new(quorum: Arc<Quorum>, clock: Clock) -> Self {
        Self { quorum, clock }
    }
}

impl Engine for Hasty {
    fn capabilities(&self) -> &Capabilities {
        self.quorum.capabilities()
    }
    fn leases(&self) -> &dyn Leases {
        self
    }
    fn inspector(&self) -> &dyn Inspect {
        self.quorum.inspector()
    }
    fn set_wake_sink(&self, sink: Weak<dyn WakeSink>) {
        self.quorum.set_wake_sink(sink);
    }
    fn connect(&self, until: Until) -> Fut<'_, ()> {
        self.quorum.connect(until)
    }
    fn health(&self, until: Until) -> Fut<'_, Health> {
        self.quorum.health(until)
    }
    fn close(&self, until: Until) -> Fut<'_, ()> {
        self.quorum.close(until)
    }
}

impl Leases for Hasty {
    fn claim<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        Box::pin(async move {
            Ok(match self.quorum.claim(claim, until).await? {
                Answer::Granted(grant) => Answer::Granted(Grant { since: self.clock.now(), ..grant }),
                other => other,
            })
        })
    }
    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Result<Renewed, EngineError>>> {
        self.quorum.renew(holds, until)
    }
    fn release<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, Released> {
        self.quorum.release(hold, until)
    }
    fn abandon<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, ()> {
        self.quorum.abandon(claim, until)
    }
    fn force_release<'a>(&'a self, name: &'a Name, seen: Fence, until: Until) -> Fut<'a, Released> {
        self.quorum.force_release(name, seen, until)
    }
}
