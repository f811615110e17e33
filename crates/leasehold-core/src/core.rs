//! What all parts of one client share.

use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    client::ClientOptions,
    clock::{BootInstant, Clock, Until},
    config::Config,
    engine::{
        Engine, EngineError, Fault, Hold, Released, Renewed, WakeSink, latches::Latches, records::Records,
    },
    entropy::Entropy,
    error::{Error, Result},
    lease::{Keeper, Reaper},
    lock::Waiting,
    name::Name,
    owner::Owner,
    telemetry::{Event, Telemetry},
};

pub(crate) struct Core {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Clock,
    pub(crate) config: Config,
    /// The store's URL without its password.
    pub(crate) store: String,
    pub(crate) entropy: Entropy,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) reaper: Reaper,
    pub(crate) waiting: Arc<Waiting>,
    closed: CancellationToken,
    _stop_tasks: DropGuard,
}

impl Core {
    /// Wires the parts of a client together and starts its tasks; needs a runtime.
    pub(crate) fn start(engine: Arc<dyn Engine>, options: ClientOptions) -> Self {
        let ClientOptions { config, clock, observer, seed, store, policies } = options;
        let (closed, timeout) = (CancellationToken::new(), config.command_timeout);
        let (entropy, telemetry) = (Entropy::new(seed), Arc::new(Telemetry::new(observer, policies)));
        let reaper = Reaper::new(engine.clone(), clock.clone(), timeout);
        let keeper = Keeper::start(engine.clone(), clock.clone(), timeout, closed.clone());
        let waiting = Arc::new(Waiting::new(reaper.clone(), keeper.clone(), telemetry.clone()));
        let sink: Arc<dyn WakeSink> = waiting.clone();
        engine.set_wake_sink(Arc::downgrade(&sink));
        let _stop_tasks = closed.clone().drop_guard();
        Self {
            engine,
            clock,
            config,
            store,
            entropy,
            telemetry,
            keeper,
            reaper,
            waiting,
            closed,
            _stop_tasks,
        }
    }

    /// A new owner value for an attempt that begins now.
    pub(crate) fn new_owner(&self, label: &str, now: BootInstant) -> Owner {
        let label = if label.is_empty() { &self.config.label } else { label };
        Owner::of_this_process(self.entropy.secret(now), label, self.clock.wall_us())
    }

    /// A new owner value for the same attempt: it still began when it began.
    pub(crate) fn another_owner(&self, spent: &Owner) -> Owner {
        Owner::new(self.entropy.secret(self.clock.now()), &spent.holder())
    }

    /// The limit of one command.
    pub(crate) fn command_until(&self) -> Until {
        self.clock.now() + self.config.command_timeout
    }

    /// The store's records, or an error that says why it keeps none.
    pub(crate) fn records(&self) -> Result<&dyn Records> {
        self.engine.records().map_err(|why| Error::unsupported("idempotency keys and markers", why))
    }

    /// The store's latches, or an error that says why it has none.
    pub(crate) fn latches(&self) -> Result<&dyn Latches> {
        self.engine.latches().map_err(|why| Error::unsupported("a latch or a barrier", why))
    }

    pub(crate) async fn renew(&self, hold: &Hold) -> Result<Renewed, EngineError> {
        self.engine.leases().renew_one(hold, self.command_until()).await
    }

    /// Gives a lease back. A client that has too much under way waits for its turn, as long as the lease may last.
    pub(crate) async fn release(&self, hold: &Hold) -> Result<Released, EngineError> {
        let mut now = self.clock.now();
        let over = now + hold.ttl;
        loop {
            let answer = self.engine.leases().give_back(hold, now + self.config.command_timeout).await;
            if !answer.as_ref().is_err_and(|error| error.fault == Fault::Busy) {
                return answer;
            }
            now = self.clock.now();
            if now >= over {
                return answer;
            }
        }
    }

    /// An engine's failure with the name and the operation, logged and reported to the observer.
    pub(crate) fn failed(&self, error: EngineError, doing: &str, name: &Name) -> Error {
        let error = self.explain(error, doing, name);
        self.report(&error, name);
        error
    }

    pub(crate) fn report(&self, error: &Error, name: &Name) {
        tracing::error!(%name, kind = %error.kind(), %error, "store error");
        self.telemetry.emit(|| Event::Error {
            kind: error.kind(),
            name: Some(name.clone()),
            text: error.to_string(),
        });
    }

    /// The same without a report.
    pub(crate) fn explain(&self, error: EngineError, doing: &str, name: &Name) -> Error {
        self.explain_doing(error, format!("{doing} \"{name}\""), Some(name))
    }

    pub(crate) fn explain_doing(&self, error: EngineError, doing: String, name: Option<&Name>) -> Error {
        let (store, source) = (self.store.clone(), error);
        match (source.fault, name) {
            (Fault::Unreachable | Fault::NoAnswer, _) => Error::StoreUnreachable { store, doing, source },
            (Fault::Refused(refusal), _) => Error::StoreRefused { store, doing, refusal, source },
            (Fault::WrongType, Some(name)) => Error::WrongType { name: name.clone(), source },
            (Fault::Corrupt, Some(name)) => Error::Corrupt { key: name.clone(), source },
            (Fault::OtherMode, Some(name)) => Error::OtherMode { name: name.clone(), source },
            (Fault::OtherLimit { stored, asked }, Some(name)) => {
                Error::OtherLimit { name: name.clone(), stored, asked }
            }
            (Fault::OtherCount { stored, asked }, Some(name)) => {
                Error::OtherCount { name: name.clone(), stored, asked }
            }
            (Fault::AboveLimit { limit, asked }, Some(name)) => {
                Error::invalid("number of permits", asked.to_string(), format!("at most {limit}"))
                    .about(format!("the semaphore \"{name}\""))
            }
            (Fault::Overloaded | Fault::Busy, _) => Error::Overloaded { doing, source },
            (_, _) => Error::unsupported(doing, source.why),
        }
    }

    /// Cancelled when the client is closed.
    pub(crate) fn closing(&self) -> CancellationToken {
        self.closed.child_token()
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.is_cancelled() {
            return Err(Error::unsupported("a call after close()", "this client was closed; connect again"));
        }
        Ok(())
    }

    /// Checks a name against the store's limit.
    pub(crate) fn check_name(&self, name: &Name) -> Result<()> {
        let most = self.engine.capabilities().name_max_bytes;
        if name.as_str().len() > most {
            let got: String = name.as_str().chars().take(24).chain(['…']).collect();
            return Err(Error::invalid("lock name", got, format!("at most {most} bytes in this store")));
        }
        Ok(())
    }

    /// Ends renewals, settles what is owed, then closes the engine.
    pub(crate) async fn close(&self) -> Result<()> {
        self.closed.cancel();
        // While the engine can still reach the store.
        self.waiting.end_all();
        let until = self.clock.now() + self.config.command_timeout * 2;
        let drained = self.clock.bounded(until, self.reaper.drained()).await;
        let closed = self.engine.close(self.command_until()).await;
        let too_late = "some locks could not be released in time; they end with their ttl";
        let drained = drained.ok_or_else(|| EngineError::new(Fault::NoAnswer, too_late));
        drained.and(closed).map_err(|error| self.explain_doing(error, "closing".into(), None))
    }
}
