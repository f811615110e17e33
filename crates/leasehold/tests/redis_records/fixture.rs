//! What the tests of records share.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use leasehold::{
    engine::{
        Engine, EngineError, Grant, Leases, LinkChange, Wake, WakeSink,
        records::{Begin, Begun, Fingerprint, Outcome, Records, Settle},
    },
    fence::Fence,
    name::Name,
    owner::{Holder, Owner, OwnerId},
};

pub(crate) use crate::every_server::{LONG, Servers, open, soon};

/// An engine, and the wake-ups it told.
pub(crate) struct Client {
    engine: Arc<dyn Engine>,
    heard: Arc<Heard>,
}

#[derive(Default)]
struct Heard(Mutex<Vec<OwnerId>>);

impl WakeSink for Heard {
    fn wake(&self, wake: Wake) {
        if let Wake::LookAgain { owner } = wake {
            self.0.lock().unwrap().push(owner);
        }
    }

    fn link(&self, _: LinkChange) {}
}

impl Servers {
    pub(crate) fn client(&self) -> Client {
        Client::open(self.url())
    }
}

impl Client {
    pub(crate) fn open(url: impl AsRef<str>) -> Self {
        let engine = open(url);
        let heard = Arc::new(Heard::default());
        let sink: Arc<dyn WakeSink> = heard.clone();
        engine.set_wake_sink(Arc::downgrade(&sink));
        Self { engine, heard }
    }

    pub(crate) fn leases(&self) -> &dyn Leases {
        self.engine.leases()
    }

    pub(crate) fn records(&self) -> &dyn Records {
        self.engine.records().unwrap()
    }

    pub(crate) async fn begin(&self, begin: &Begin) -> Begun {
        self.try_begin(begin).await.unwrap()
    }

    pub(crate) async fn try_begin(&self, begin: &Begin) -> Result<Begun, EngineError> {
        self.records().begin(begin, soon()).await
    }

    /// Begins what nobody else has begun.
    pub(crate) async fn begun(&self, begin: &Begin) -> Grant {
        match self.begin(begin).await {
            Begun::Yours(grant) => grant,
            other => panic!("not ours: {other:?}"),
        }
    }

    /// How often an attempt was told to look again.
    pub(crate) fn told(&self, begin: &Begin) -> usize {
        self.heard.0.lock().unwrap().iter().filter(|owner| **owner == begin.owner.id()).count()
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// An attempt to begin, with an owner of its own.
pub(crate) fn attempt(key: &str, fingerprint: Option<&str>) -> Begin {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let random = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Begin {
        key: name(key),
        owner: Owner::new(u128::from(random) << 64 | 7, &Holder::this_process("a test", 1)),
        fingerprint: fingerprint.map(Fingerprint::of),
        lease: LONG,
        wake: false,
    }
}

pub(crate) fn end(begin: &Begin, fence: Fence, outcome: Outcome) -> Settle {
    Settle { hold: begin.hold(fence), fingerprint: begin.fingerprint.clone(), outcome, keep: LONG }
}

pub(crate) fn paid() -> Outcome {
    Outcome::Completed(Bytes::from_static(b"paid \0\xff"))
}
