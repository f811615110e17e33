//! One library and leasehold on the same servers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use leasehold::{
    Format, Retry,
    blocking::{Guard, Leasehold, Lock},
    engine::Inspection,
};
use leasehold_peers::{Process, Program};
use leasehold_testkit::{RedisServer, poll};

use crate::{Failure, library::Library, servers::Servers};

/// A lease that does not end while a case runs, on the busiest machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// A lease whose end a case waits for. It is the shortest that python-redis-lock knows.
pub(crate) const SHORT: Duration = Duration::from_secs(1);
/// For anything that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// For a wait of theirs that begins while the lock is held. Without a message python-redis-lock asks again when it is over.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

pub(crate) struct Pair<'a> {
    pub(crate) servers: &'a Servers,
    pub(crate) library: &'static Library,
    pub(crate) ours: Leasehold,
    theirs: Process,
    /// A lock of this case alone.
    name: String,
    /// Whether they are told another key than ours.
    is_misled: bool,
}

impl<'a> Pair<'a> {
    pub(crate) fn new(
        servers: &'a Servers,
        library: &'static Library,
        program: &Program,
        case: &str,
    ) -> Result<Self, Failure> {
        let theirs = start(program, servers, "")?;
        let ours = connect(servers, library.prefix())?;
        let mut pair = Self { servers, library, ours, theirs, name: String::new(), is_misled: false };
        pair.begin(case);
        Ok(pair)
    }

    pub(crate) fn begin(&mut self, case: &str) {
        let case: String = case.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        self.rename(format!("{}:{case}", self.library.name()));
    }

    /// Another lock from here on.
    pub(crate) fn rename(&mut self, name: String) {
        self.name = name;
    }

    /// From here on they are told another key than ours, or the same again.
    pub(crate) fn mislead(&mut self, is_misled: bool) {
        self.is_misled = is_misled;
    }

    /// The server that has the lock.
    pub(crate) fn server(&self) -> &'a RedisServer {
        self.servers.of(&self.key())
    }

    /// The name that leasehold is given.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Leasehold's lock, never renewed: what renews is the case.
    pub(crate) fn lock(&self, ttl: Duration) -> Lock {
        self.plain_lock(ttl).format(self.library.format)
    }

    /// The same as a plain string, whatever the library has.
    pub(crate) fn plain_lock(&self, ttl: Duration) -> Lock {
        self.ours.lock(&self.name).ttl(ttl).without_keep_alive()
    }

    /// A guard that must be granted, at once or after a wait.
    pub(crate) fn acquire(&self, ttl: Duration) -> Result<Guard, Failure> {
        Ok(self.lock(ttl).wait(PATIENCE).acquire()?)
    }

    /// The same in a thread; returns when it was told to wait. In Redisson's format only a message wakes it in time.
    pub(crate) fn wait_in_queue(&self) -> Result<thread::JoinHandle<leasehold::Result<Guard>>, Failure> {
        let waits = Arc::new(AtomicBool::new(false));
        let told = waits.clone();
        let lock = self.lock(LONG).wait(PATIENCE).on_wait(move |_| told.store(true, Ordering::Release));
        let lock = match self.library.format {
            Format::Redisson => lock.retry(Retry::fixed(PATIENCE)),
            _ => lock,
        };
        let waiter = thread::spawn(|| lock.acquire());
        self.until("leasehold waits", || Ok(waits.load(Ordering::Acquire)))?;
        Ok(waiter)
    }

    pub(crate) fn inspect(&self) -> Result<Inspection, Failure> {
        Ok(self.ours.inspect(&self.name)?)
    }

    /// What Redis has under the key.
    pub(crate) fn value(&self) -> Option<String> {
        value_of(self.server(), &self.key())
    }

    /// Milliseconds until the key goes.
    pub(crate) fn pttl(&self) -> i64 {
        self.server().cli(&["PTTL", &self.key()]).int()
    }

    /// Deletes the key behind everybody's back.
    pub(crate) fn delete(&self) {
        self.server().cli(&["DEL", &self.key()]);
    }

    fn key(&self) -> String {
        format!("{}{}", self.library.prefix(), self.name)
    }

    /// How many clients hear of a release in Redisson's format.
    pub(crate) fn listeners(&self) -> i64 {
        let key = self.key();
        let channel = match key.contains('{') {
            true => format!("redisson_lock__channel:{key}"),
            false => format!("redisson_lock__channel:{{{key}}}"),
        };
        let count = if self.servers.is_cluster() { "SHARDNUMSUB" } else { "NUMSUB" };
        self.server().cli(&["PUBSUB", count, &channel]).list()[1].int()
    }

    /// How often clients have asked this server for a lock.
    pub(crate) fn questions(&self) -> u64 {
        let stats = self.server().cli(&["INFO", "commandstats"]);
        let asks = ["cmdstat_set:", "cmdstat_eval:", "cmdstat_evalsha:", "cmdstat_blpop:"];
        let asked = stats.text().lines().filter(|line| asks.iter().any(|ask| line.starts_with(ask)));
        asked.filter_map(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok()).sum()
    }

    /// Polls until it holds.
    pub(crate) fn until(
        &self,
        what: &str,
        mut holds: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let held = poll(PATIENCE, || match holds() {
            Ok(false) => None,
            other => Some(other),
        });
        held.unwrap_or_else(|| Err(format!("not within {PATIENCE:?}: {what}").into())).map(drop)
    }

    /// A command of the library about this lock, with milliseconds; returns the answer.
    pub(crate) fn ask(&mut self, command: &str, times: &[Duration]) -> Result<String, Failure> {
        self.tell(command, times);
        self.answer()
    }

    /// Like [`ask`](Self::ask), with the only answer that is right.
    pub(crate) fn must(&mut self, command: &str, times: &[Duration], right: &str) -> Result<(), Failure> {
        let answer = self.ask(command, times)?;
        same(&format!("their answer to `{command}`"), answer.as_str(), right)
    }

    /// A command that must fail; returns how.
    pub(crate) fn must_fail(&mut self, command: &str, times: &[Duration]) -> Result<String, Failure> {
        self.tell(command, times);
        let answer = self.theirs.answer("it had answered")?;
        let error = answer.strip_prefix("error ").map(str::to_owned);
        error.ok_or_else(|| format!("their answer to `{command}` is {answer:?}, not an error").into())
    }

    pub(crate) fn tell(&mut self, command: &str, times: &[Duration]) {
        let times: String = times.iter().map(|time| format!(" {}", time.as_millis())).collect();
        let key = self.key() + if self.is_misled { ":other" } else { "" };
        let (_, told) = self.library.told(&key);
        self.theirs.tell(&format!("{command} {told}{times}"));
    }

    pub(crate) fn answer(&mut self) -> Result<String, Failure> {
        let answer = self.theirs.answer("it had answered")?;
        match answer.strip_prefix("error ") {
            Some(error) => Err(format!("{}: {error}", self.library.name()).into()),
            None => Ok(answer),
        }
    }

    /// The answer, if it has come already.
    pub(crate) fn answered(&mut self) -> Option<String> {
        self.theirs.answered()
    }

    /// Closes the input of their process; returns when it has ended.
    pub(crate) fn hang_up(&mut self) -> Result<(), Failure> {
        Ok(self.theirs.hang_up()?)
    }

    /// Has the library wait for the lock, which somebody must hold; returns when it has asked for it.
    pub(crate) fn they_wait(&mut self, ttl: Duration) -> Result<(), Failure> {
        let before = self.questions();
        self.tell("wait", &[ttl, WAIT]);
        self.until("they ask for the lock", || Ok(self.questions() > before))?;
        match self.answered() {
            None => Ok(()),
            Some(answer) => Err(format!("they did not wait, but answered {answer:?}").into()),
        }
    }

    /// Takes their lock away, as an operator would, so that they still believe in it.
    pub(crate) fn take_away(&self) -> Result<(), Failure> {
        let seen = self.inspect()?.held().map(|held| held.fence).ok_or("nobody holds it")?;
        let released = self.ours.force_release(&self.name, seen)?;
        same("the forced release", released, leasehold::engine::Released::Free)
    }
}

/// What a server has under the key of a lock, if it is held: a string, or the only field of a hash.
pub(crate) fn value_of(server: &RedisServer, key: &str) -> Option<String> {
    let value = server.cli(&["GET", key]);
    if value.error().is_some_and(|error| error.starts_with("WRONGTYPE")) {
        return server.cli(&["HKEYS", key]).list().first().map(|field| field.text().to_owned());
    }
    (!value.is_nil()).then(|| value.text().to_owned())
}

/// Starts the program of a library; it is connected when this returns.
pub(crate) fn start(program: &Program, servers: &Servers, key_prefix: &str) -> Result<Process, Failure> {
    let mut command = program.command("interop");
    command.args(servers.arguments()).arg(format!("key_prefix={key_prefix}"));
    let mut theirs = Process::start(command, program.name, PATIENCE)?;
    match theirs.answer("it was ready")?.as_str() {
        "ready" => Ok(theirs),
        other => Err(theirs.failure(&format!("answered {other:?} instead of `ready`")).into()),
    }
}

fn connect(servers: &Servers, prefix: &str) -> Result<Leasehold, Failure> {
    let builder = leasehold::Leasehold::builder(servers.url());
    Ok(Leasehold::build(builder.configure(|config| config.prefix = prefix.into()))?)
}

/// An error that says what differs.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: T, right: T) -> Result<(), Failure> {
    if is == right { Ok(()) } else { Err(format!("{what} is {is:?}, not {right:?}").into()) }
}
