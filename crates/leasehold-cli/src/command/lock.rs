//! `leasehold lock`: a lock that outlives one command, for scripts.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand};
use leasehold::{Acks, Error, Fence, Format, Handle, Leasehold, Mode, OnOutage, engine::Released};
use serde::Serialize;

use super::Global;
use crate::{
    duration,
    exit::{Exit, Failure},
    hint,
    output::Output,
    sharing::Sharing,
    signals::{FORWARDED, Signals},
    store::{self, Store},
    view::{ModeView, millis},
    waiting::{self, Wait, Wanted},
};

/// Acquire a lock in one command and release it in another
#[derive(Subcommand)]
#[command(after_help = "\
The handle file holds the secret that proves ownership: only its user can read it, and it is
never printed. The lock is not renewed between the commands: choose a ttl that is long enough,
or extend it. Prefer `leasehold run` to wrap a single command.

Example:
  export LEASEHOLD_HANDLE=$(mktemp -u)
  leasehold lock acquire deploy --ttl 2m -w 30s
  ./first-step && leasehold lock extend && ./second-step
  leasehold lock release")]
pub(super) enum Lock {
    Acquire(Acquire),
    Extend(Extend),
    Release(Release),
}

/// Acquire a lock that outlives this command
#[derive(Args)]
#[command(after_help = "\
Prints name, fence and the path of the handle.

Exit codes: 0 acquired · 1 not acquired · 69 store unreachable · 74 handle cannot be written ·
80 the name is in use as another kind of lock · 81 the semaphore has another number of permits

Examples:
  leasehold lock acquire deploy --ttl 2m --handle /run/deploy.lock
  leasehold lock acquire catalogue --shared --ttl 2m --handle /run/export.lock
  leasehold lock acquire gpu --permits 2 --of 8 --ttl 2m --handle /run/render.lock")]
pub(super) struct Acquire {
    /// The lock
    name: String,

    #[command(flatten)]
    sharing: Sharing,

    /// How long the lock is held unless extended [default: 30s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    ttl: Option<Duration>,

    /// Fail at once if the lock is held
    #[arg(short, long, conflicts_with = "wait")]
    nonblock: bool,

    /// Wait at most this long, in seconds if there is no unit; 0 means do not wait [default: for ever]
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse_wait, allow_hyphen_values = true)]
    wait: Option<Duration>,

    /// Description of the holder, shown by inspect
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    label: String,

    /// Replicas that must acknowledge the lock: a number, or majority
    #[arg(long, value_name = "N")]
    acks: Option<Acks>,

    /// Share the lock with RLock and RFencedLock of Redisson, whose name for it is the store's prefix and NAME
    #[arg(long)]
    redisson: bool,

    /// File to write the handle to; it must not exist [env: LEASEHOLD_HANDLE] [default: a new file]
    #[arg(long, value_name = "FILE")]
    handle: Option<PathBuf>,
}

/// Extend a lock by its ttl
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 extended · 76 the lock was lost

Example:
  leasehold lock extend --handle /run/deploy.lock --ttl 5m")]
pub(super) struct Extend {
    /// The handle that acquire wrote [env: LEASEHOLD_HANDLE]
    #[arg(long, value_name = "FILE")]
    handle: Option<PathBuf>,

    /// New ttl, until the next extension [default: as acquired]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    ttl: Option<Duration>,
}

/// Release a lock and remove its handle
#[derive(Args)]
#[command(after_help = "\
The handle is removed once the store has answered, and kept otherwise.

Exit codes: 0 released · 76 the lock had been lost

Example:
  leasehold lock release --handle /run/deploy.lock")]
pub(super) struct Release {
    /// The handle that acquire wrote [env: LEASEHOLD_HANDLE]
    #[arg(long, value_name = "FILE")]
    handle: Option<PathBuf>,
}

impl Lock {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        match self {
            Self::Acquire(acquire) => acquire.execute(global).await,
            Self::Extend(extend) => extend.execute(global).await,
            Self::Release(release) => release.execute(global).await,
        }
    }
}

#[derive(Serialize)]
struct Taken {
    name: String,
    fence: Fence,
    ttl_ms: u64,
    acks: u8,
    #[serde(flatten)]
    mode: ModeView,
    handle: PathBuf,
}

#[derive(Serialize)]
struct Extended {
    name: String,
    fence: Fence,
    ttl_ms: u64,
}

#[derive(Serialize)]
struct Returned {
    name: String,
    fence: Fence,
    #[serde(flatten)]
    outcome: Released,
}

impl Acquire {
    async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let mut signals = Signals::listen(&FORWARDED)?;
        let store = Store::choose(global)?;
        let mode = self.sharing.mode(&self.name, None)?;
        let ttl = self.ttl.unwrap_or(store.defaults().ttl);
        store.check_ttl(ttl)?;
        // Before the lock is taken, so that a path that cannot be written leaves no lock behind.
        let file = HandleFile::create(self.handle.clone().or_else(from_env))?;
        let leases = store.connect().await?;
        let wait = Wait::from_flags(self.nonblock, self.wait).unwrap_or(Wait::Forever);
        let lock = leases.lock(&self.name).mode(mode).ttl(ttl).label(&self.label);
        let lock = lock.acks(self.acks.unwrap_or_default());
        let lock = if self.redisson { lock.format(Format::Redisson) } else { lock };
        let (wanted, verbose) = ((self.name.as_str(), mode), global.verbose > 0);
        let wanted = waiting::acquire(lock, wanted, wait, OnOutage::Deny, &mut signals, verbose).await;
        let mut acks = 0;
        let result = match wanted {
            Ok(Wanted::Held(guard)) => {
                acks = guard.acks();
                file.keep(guard.detach(), &leases).await
            }
            Ok(Wanted::Unprotected(cause)) => Err(cause.into()),
            Ok(Wanted::NotAcquired(failure)) | Err(failure) => Err(failure),
            Ok(Wanted::Interrupted(signal)) => {
                store::close(&leases).await;
                return Ok(Exit::by_signal(signal.as_raw()));
            }
        };
        store::close(&leases).await;
        let (handle, path) = result?;
        print_taken(global.output(), &handle, (acks, mode), path)?;
        Ok(Exit::OK)
    }
}

fn print_taken(out: Output, handle: &Handle, (acks, mode): (u8, Mode), path: PathBuf) -> Result<(), Failure> {
    let (name, fence) = (handle.name().to_string(), handle.fence());
    let row = vec![name.clone(), fence.to_string(), path.display().to_string()];
    let (ttl_ms, mode) = (millis(handle.ttl()), mode.into());
    let taken = Taken { name, fence, ttl_ms, acks, mode, handle: path };
    Ok(out.print(taken, || out.table(&["NAME", "FENCE", "HANDLE"], &[row]))?)
}

impl Extend {
    async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let path = path(self.handle)?;
        let (handle, store) = read(&path)?;
        let leases = Store::choose(global)?.connect().await?;
        let extended = handle.extend(&leases, self.ttl).await;
        store::close(&leases).await;
        if let Err(Error::Lost { .. }) = extended {
            check_store(store, &leases, &path)?;
        }
        extended?;
        let (name, fence) = (handle.name().to_string(), handle.fence());
        let text = format!("{name}\t{fence}\n");
        let ttl_ms = millis(self.ttl.unwrap_or(handle.ttl()));
        global.output().print(Extended { name, fence, ttl_ms }, || text)?;
        Ok(Exit::OK)
    }
}

impl Release {
    async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let path = path(self.handle)?;
        let (handle, store) = read(&path)?;
        let leases = Store::choose(global)?.connect().await?;
        let released = handle.release(&leases).await;
        store::close(&leases).await;
        let outcome = released?;
        let is_lost = matches!(outcome, Released::Expired | Released::Taken { .. });
        if is_lost {
            check_store(store, &leases, &path)?;
        }
        fs::remove_file(&path)
            .map_err(|error| Failure::file(format!("cannot remove {}", path.display()), &error))?;
        if is_lost {
            let lost = Error::Lost { name: handle.name().clone(), fence: handle.fence() };
            return Err(lost.into());
        }
        let (name, fence) = (handle.name().to_string(), handle.fence());
        let text = format!("{name}\t{fence}\n");
        global.output().print(Returned { name, fence, outcome }, || text)?;
        Ok(Exit::OK)
    }
}

fn from_env() -> Option<PathBuf> {
    std::env::var_os("LEASEHOLD_HANDLE").filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn path(flag: Option<PathBuf>) -> Result<PathBuf, Failure> {
    flag.or_else(from_env)
        .ok_or_else(|| Failure::usage("no handle was given", "give --handle FILE or set LEASEHOLD_HANDLE"))
}

/// Longest handle that is read: a name, an owner value and some numbers.
const HANDLE_MAX_BYTES: u64 = 16 * 1024;

/// A handle, and the store that it is of.
fn read(path: &Path) -> Result<(Handle, Option<String>), Failure> {
    let failed =
        |error: io::Error| Failure::file(format!("cannot read the handle {}", path.display()), &error);
    let mut text = String::new();
    let file = fs::File::open(path).map_err(failed)?;
    io::Read::read_to_string(&mut io::Read::take(file, HANDLE_MAX_BYTES), &mut text).map_err(failed)?;
    let handle: Handle = text.parse()?;
    let store = text.lines().skip(handle.expose().lines().count()).find_map(|line| line.strip_prefix(STORE));
    Ok((handle, store.map(str::to_owned)))
}

/// What comes before the store, on the line after the handle.
const STORE: &str = "store ";

/// Refuses a store that is not the handle's. Its locks would seem lost, and the handle would go although the lock is held.
fn check_store(of_handle: Option<String>, leases: &Leasehold, path: &Path) -> Result<(), Failure> {
    let used = name_of(leases);
    match of_handle.filter(|store| *store != used) {
        None => Ok(()),
        Some(store) => Err(Failure::usage(
            format!("the handle {} is of the store {store}, not of {used}", path.display()),
            format!("choose that store, for example with --store {}", hint::word(&store)),
        )),
    }
}

/// The store of a client, wherever the next command is run.
fn name_of(leases: &Leasehold) -> String {
    let store = leases.store();
    let path = store.strip_prefix("sqlite:").and_then(|path| std::path::absolute(path).ok());
    path.map_or_else(|| store.to_owned(), |path| format!("sqlite:{}", path.display()))
}

/// A new file for a handle; removed unless it is kept.
struct HandleFile {
    path: PathBuf,
    file: fs::File,
    kept: bool,
}

impl HandleFile {
    fn create(path: Option<PathBuf>) -> Result<Self, Failure> {
        let path = match path {
            Some(path) => path,
            None => new_path()?,
        };
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match made {
            Ok(file) => Ok(Self { path, file, kept: false }),
            Err(error) => {
                let failure = Failure::file(format!("cannot create the handle {}", path.display()), &error);
                Err(if error.kind() == io::ErrorKind::AlreadyExists {
                    failure.hint("another lock may use it: release that lock, or choose another file")
                } else {
                    failure
                })
            }
        }
    }

    /// Writes the handle; if that fails, the lock is released.
    async fn keep(mut self, handle: Handle, leases: &Leasehold) -> Result<(Handle, PathBuf), Failure> {
        let text = format!("{}{STORE}{}\n", handle.expose(), name_of(leases));
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_all());
        if let Err(error) = written {
            let _ends_with_its_ttl = handle.release(leases).await;
            return Err(Failure::file(format!("cannot write the handle {}", self.path.display()), &error));
        }
        self.kept = true;
        Ok((handle, std::mem::take(&mut self.path)))
    }
}

impl Drop for HandleFile {
    fn drop(&mut self) {
        if !self.kept {
            let _gone = fs::remove_file(&self.path);
        }
    }
}

/// A path in a folder that only this user can enter.
fn new_path() -> Result<PathBuf, Failure> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = match runtime {
        Some(runtime) => runtime.join("leasehold"),
        None => store::state_folder()?.join("handles"),
    };
    store::make_private(&folder)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(folder.join(format!("{}-{}", std::process::id(), now.as_micros())))
}
