//! One Redis, two libraries: locks shared with Python's `redis` package.
#![cfg(feature = "redis")]

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use leasehold::{Attempt, Fence, Holder, Leasehold, engine::Released};
use leasehold_testkit::{RedisServer, eventually, eventually_async, resp::Reply};

const PATIENCE: Duration = Duration::from_secs(20);

/// A Python process with locks of its own on the same server.
struct Python {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Python {
    /// `None` where Python is missing and that is allowed.
    fn start(server: &RedisServer) -> Option<Self> {
        let python = interpreter()?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/lock.py");
        let mut child = Command::new(python)
            .args([script, &server.port().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Some(Self { child, to, from: BufReader::new(from) })
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.to, "{command}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "Python ended: see its error above");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Python with the package `redis`, in an environment that is made once and kept beside the build.
fn interpreter() -> Option<&'static Path> {
    static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match PYTHON.get_or_init(install) {
        Ok(python) => Some(python),
        Err(why) if std::env::var_os("LEASEHOLD_ALLOW_MISSING").is_some_and(|value| value == "1") => {
            // The macros would be captured, and a skip nobody sees is a pass.
            let _ = io::stderr().write_all(format!("skipped: {why}\n").as_bytes());
            None
        }
        Err(why) => panic!("{why}"),
    }
}

fn install() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (environment, ready) = (folder.join("python"), folder.join("python/ready"));
    // Another test process may be at it.
    let turn = File::create(folder.join("python.lock")).map_err(|error| error.to_string())?;
    turn.lock().map_err(|error| error.to_string())?;
    let python = environment.join("bin/python");
    if !ready.exists() {
        let missing = "cannot make a Python environment: install the Debian package `python3-venv`";
        // Not in the source tree, where they might leave what they fetch.
        let mut python3 = Command::new("python3");
        python3.args(["-m", "venv", "--clear"]).arg(&environment).current_dir(folder);
        run(&mut python3, missing)?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "redis"];
        let mut install = Command::new(&python);
        install.args(pip).current_dir(folder);
        run(&mut install, "cannot install the Python package `redis` from PyPI")?;
        File::create(ready).map_err(|error| error.to_string())?;
    }
    Ok(python)
}

fn run(command: &mut Command, what: &str) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{what}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{what}: {}", String::from_utf8_lossy(&said).trim_end()))
}

/// A client of each library on the same server.
async fn both() -> Option<(&'static RedisServer, Leasehold, Python)> {
    let server = RedisServer::shared_or_skip()?;
    let python = Python::start(server)?;
    Some((server, Leasehold::connect(server.url()).await.unwrap(), python))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_python_holds_is_busy_until_python_releases_it() {
    let Some((server, leases, mut python)) = both().await else { return };
    assert_eq!(python.ask("take lock:theirs 30"), "True");
    let attempt = leases.lock("theirs").try_acquire().await.unwrap();
    assert!(matches!(attempt, Attempt::Busy { holder: Some(Holder::Foreign), .. }), "{attempt:?}");

    let seen = leases.inspect("theirs").await.unwrap();
    let held = seen.held().unwrap();
    assert_eq!((&held.holder, held.fence), (&Holder::Foreign, Fence::new(0)));
    assert!(held.expires_in.is_some_and(|left| left <= Duration::from_secs(30)));
    let secret = server.cli(&["GET", "lock:theirs"]).text().to_owned();
    assert!(!format!("{seen:?} {attempt:?}").contains(&secret));

    let waiter = tokio::spawn(leases.lock("theirs").wait(PATIENCE).into_future());
    eventually_async(PATIENCE, "a waiter", || async { leases.inspect("theirs").await.unwrap().waiting == 1 })
        .await;
    assert_eq!(python.ask("release lock:theirs"), "True");
    let ours = waiter.await.unwrap().unwrap();
    // Python tells nobody that it released: asking again did it.
    assert_eq!(leases.stats().handed_over, 0);
    assert_eq!(python.ask("take lock:theirs 30"), "False");
    assert_eq!(ours.release().await.unwrap(), Released::Free);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_we_hold_is_busy_for_python_until_we_release_it() {
    // Alone on its server, so that Python's questions can be counted.
    let Some(server) = RedisServer::builder().start_or_skip() else { return };
    let Some(mut python) = Python::start(&server) else { return };
    let leases = Leasehold::connect(server.url()).await.unwrap();
    let ours = leases.lock("ours").acquire().await.unwrap();
    assert_eq!(python.ask("take lock:ours 30"), "False");
    let asked = || questions(&server.cli(&["INFO", "commandstats"]));
    let before = asked();
    python.tell("wait lock:ours 30 20");
    eventually(PATIENCE, "Python asks again and again", || asked() >= before + 2);
    assert_eq!(ours.release().await.unwrap(), Released::Free);
    assert_eq!(python.answer(), "True");
    assert!(matches!(leases.lock("ours").try_acquire().await.unwrap(), Attempt::Busy { .. }));
    assert_eq!(python.ask("release lock:ours"), "True");
    let _ = leases.lock("ours").acquire().await.unwrap().release().await.unwrap();
}

/// How often the server was asked to SET.
fn questions(stats: &Reply) -> u64 {
    let calls = stats.text().split("cmdstat_set:calls=").nth(1).and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_ran_out_becomes_ours_and_python_cannot_release_it() {
    let Some((server, leases, mut python)) = both().await else { return };
    assert_eq!(python.ask("take lock:late 0.3"), "True");
    let ours = leases.lock("late").wait(PATIENCE).acquire().await.unwrap();
    let value = server.cli(&["GET", "lock:late"]);
    assert_eq!(python.ask("release lock:late"), "LockNotOwnedError");
    assert_eq!(server.cli(&["GET", "lock:late"]), value);
    ours.extend().await.unwrap();
    assert_eq!(ours.release().await.unwrap(), Released::Free);
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_grow_across_tenures_of_python() {
    let Some((_, leases, mut python)) = both().await else { return };
    let mut last = Fence::new(0);
    for round in 0..5 {
        let ours = leases.lock("turns").wait(PATIENCE).acquire().await.unwrap();
        assert!(ours.fence() > last, "round {round}: {} after {last}", ours.fence());
        last = ours.fence();
        assert_eq!(ours.release().await.unwrap(), Released::Free);
        // Odd rounds end by themselves.
        assert_eq!(python.ask("take lock:turns 0.1"), "True");
        if round % 2 == 0 {
            python.ask("release lock:turns");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_python_took_for_ever_can_be_taken_away() {
    let Some((_, leases, mut python)) = both().await else { return };
    assert_eq!(python.ask("take lock:stuck 0"), "True");
    let seen = leases.inspect("stuck").await.unwrap().held().cloned().unwrap();
    assert_eq!((seen.expires_in, seen.holder), (None, Holder::Foreign));
    assert_eq!(leases.force_release("stuck", seen.fence).await.unwrap(), Released::Free);
    assert_eq!(python.ask("release lock:stuck"), "LockNotOwnedError");
    let _ = leases.lock("stuck").acquire().await.unwrap().release().await.unwrap();
}
