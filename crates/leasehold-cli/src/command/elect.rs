//! `leasehold elect`: a command that runs while this process leads.

use std::{ffi::OsString, time::Duration};

use clap::Args;
use leasehold::{Config, Error, Mode, owner::LABEL_MAX_BYTES};

use super::{
    Global,
    run::{Held, Names, Options, Session, Successor, Work},
};
use crate::{
    duration,
    exit::{Exit, Failure},
    hint::word,
    output::{self, spoken},
    store::{self, Store},
    waiting::{self, Wait, Wanted, ending},
};

/// Run a command while leading, on one host at a time
#[derive(Args)]
#[command(
    override_usage = "leasehold elect [OPTIONS] NAME -- CMD [ARGS]...\n       \
                      leasehold elect [OPTIONS] NAME -c STR",
    after_help = "\
Waits to become the leader of NAME, and runs the command for one term: until it ends, or the lead
is lost. The lead is the exclusive lock of that name, so the command is run, stopped and supervised
as by `leasehold run`, and has the same variables: pass LEASEHOLD_FENCE to everything it writes to.
`leasehold leader NAME` shows who leads.

With --forever the candidate campaigns again after each term. INT, TERM, HUP and QUIT are forwarded
to the command, and the term is the last one; so is one whose command cannot be started.

To hand a term on, send TERM to the leasehold that leads: the command gets it too, and the lead is
given back when it has ended, never earlier. It goes to the candidate that has waited longest, or
with --prefer to the first with that label, or with --prefer-highest to the one with the highest
priority, without a moment in which nobody leads. A leader that does not end is removed by
`leasehold force-release NAME`.

Exit codes:
  the command's own; 128+N if signal N ended the command, or leasehold while it waited
  1         not elected (-n, -w); -E sets another code, and -E 0 prints nothing
  64        wrong usage
  69, 77    the store was unreachable, or refused
  70        the store cannot hand the lead to a certain candidate (--prefer, --prefer-highest)
  76        the lead was lost; the command may have done part of its work
  80        the name is in use as another kind of lock
  124       stopped after --max-runtime
  126, 127  the command cannot be executed, or was not found

Examples:
  leasehold elect scheduler -- ./scheduler
  leasehold elect --ttl 10s --forever scheduler -- ./scheduler
  leasehold elect --label v2 --prefer v2 --forever scheduler -- ./scheduler
  leasehold elect -w 5s scheduler -c './rotate && ./report'"
)]
pub(super) struct Elect {
    #[command(flatten)]
    options: Options,

    /// Hand the lead to the first candidate with this label when the term ends, ahead of the others
    #[arg(long, value_name = "LABEL")]
    prefer: Option<String>,

    /// Hand the lead to the candidate with the highest --priority when the term ends, ahead of the others
    #[arg(long, conflicts_with = "prefer")]
    prefer_highest: bool,

    /// How much this candidate is to be preferred by a leader with --prefer-highest; shown behind its label
    #[arg(long, value_name = "N", default_value_t = 0, allow_hyphen_values = true)]
    priority: i32,

    /// Campaign again when the command has ended or the lead was lost
    #[arg(long, conflicts_with_all = ["wait", "nonblock"])]
    forever: bool,

    /// Pause before the next campaign, from 100ms to 1h [default: 1s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true, requires = "forever")]
    pause: Option<Duration>,

    /// The election
    name: String,

    /// The command to run
    #[arg(value_name = "CMD", last = true)]
    command: Vec<OsString>,
}

/// Pause before the next campaign, unless set.
const PAUSE: Duration = Duration::from_secs(1);
/// Shortest pause: a command that fails at once is not started more often.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// A checked `elect`.
struct Candidacy {
    name: String,
    work: Work,
    wait: Wait,
    lock_delay: Duration,
    acks: leasehold::Acks,
    next: Successor,
    priority: i32,
    /// The pause between two terms, if there is to be another.
    again_after: Option<Duration>,
}

impl Elect {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let store = Store::choose(global)?;
        let candidacy = Candidacy::new(self, store.defaults())?;
        store.check_ttl(candidacy.work.ttl)?;
        let mut session = Session::open(&store, global)?;
        let result = match session.leases.reach().await {
            Ok(()) => candidacy.stand(&mut session).await,
            Err(error) => Err(error.into()),
        };
        store::close(&session.leases).await;
        result
    }
}

impl Candidacy {
    fn new(elect: Elect, defaults: &Config) -> Result<Self, Failure> {
        let Elect { options, prefer, prefer_highest, priority, forever, pause, name, command } = elect;
        let pause = pause.unwrap_or(PAUSE);
        if !(PAUSE_MIN..=PAUSE_MAX).contains(&pause) {
            let got = spoken(pause);
            return Err(Failure::usage(format!("--pause of {got} is out of range"), "give 100ms to 1h"));
        }
        let next = match prefer {
            Some(label) if label.is_empty() || label.len() > LABEL_MAX_BYTES => {
                return Err(Failure::usage(
                    "no candidate can have the label that --prefer names",
                    format!("give the label of a candidate, of 1 to {LABEL_MAX_BYTES} bytes"),
                ));
            }
            Some(label) => Successor::Labelled(label),
            None if prefer_highest => Successor::Highest,
            None => Successor::First,
        };
        let ttl = options.ttl.unwrap_or(defaults.ttl);
        let (wait, lock_delay, acks) = (options.wait(None), options.lock_delay, options.acks);
        let names = Names::One(name.clone());
        let work = Work::new(names, Mode::Exclusive, ttl, options, command, defaults)?;
        if work.is_idle() {
            return Err(Failure::usage(
                format!("what is to run while leading \"{name}\"? No command was given"),
                format!("leasehold elect {} -- CMD", word(&name)),
            ));
        }
        Ok(Self {
            name,
            work,
            wait,
            lock_delay: lock_delay.unwrap_or_default(),
            acks: acks.unwrap_or_default(),
            next,
            priority,
            again_after: forever.then_some(pause),
        })
    }

    /// One term after the other, until one is the last.
    async fn stand(&self, session: &mut Session) -> Result<Exit, Failure> {
        let needs_hand_to = !matches!(self.next, Successor::First);
        if let (true, Some(why)) = (needs_hand_to, session.leases.capabilities().no_hand_to) {
            let what = format!("handing \"{}\" to a certain candidate", self.name);
            let hint = "leave --prefer and --prefer-highest out";
            return Err(Failure::from(Error::unsupported(what, why)).hint(hint));
        }
        loop {
            let ended = self.term(session).await;
            let is_last =
                session.signals.asked_to_end() || ended.as_ref().is_err_and(|failure| !failure.is_passing());
            let Some(pause) = self.again_after.filter(|_| !is_last) else { return ended };
            self.tell(&ended, pause, session.out.json);
            tokio::select! {
                biased;
                signal = ending(&mut session.signals) => return Ok(Exit::by_signal(signal.as_raw())),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One campaign, and the term that it leads to.
    async fn term(&self, session: &mut Session) -> Result<Exit, Failure> {
        let election = session.leases.election(&self.name).ttl(self.work.ttl).label(&self.work.label);
        let election = election.priority(self.priority).lock_delay(self.lock_delay).acks(self.acks);
        let (signals, verbose) = (&mut session.signals, session.verbose);
        match waiting::campaign(election, &self.name, self.wait, signals, verbose).await? {
            Wanted::Held(leadership) => {
                let held = Held::Lead { leadership, next: self.next.clone() };
                self.work.under(held, session).await
            }
            Wanted::Unprotected(cause) => Err(cause.into()),
            Wanted::NotAcquired(failure) => Err(self.work.not_acquired(failure)),
            Wanted::Interrupted(signal) => Ok(Exit::by_signal(signal.as_raw())),
        }
    }

    /// Says how a term ended that is not the last one.
    fn tell(&self, ended: &Result<Exit, Failure>, pause: Duration, json: bool) {
        if let Err(failure) = ended {
            let _not_the_last = failure.report(json);
        }
        let how = match ended {
            Ok(Exit(code)) => format!("the command ended with exit code {code}; "),
            Err(_) => String::new(),
        };
        if !json {
            let name = output::clean(&self.name);
            output::mention(&format!("{how}campaigning for \"{name}\" again in {}", spoken(pause)));
        }
    }
}
