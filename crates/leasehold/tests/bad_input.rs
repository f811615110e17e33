//! What a caller is told when the input or the store is bad: one table, every engine.
#![cfg(any(feature = "memory", feature = "sqlite", feature = "redis"))]

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use leasehold::{ErrorKind, Leasehold, Result};

/// Longest answer of the store to one command.
const COMMAND: Duration = Duration::from_millis(300);
/// How long callers wait for the lock.
const WAIT: Duration = Duration::from_millis(600);
/// What a call may take past the caller's limit.
const GRACE: Duration = Duration::from_millis(100);
/// The lock that all rows are about.
const NAME: &str = "deal:42";
/// Stands in every URL that can have one, and in no text.
const PASSWORD: &str = "hunter2";

/// What a row expects.
#[derive(Clone, Copy)]
struct Expect {
    kind: ErrorKind,
    retry: bool,
}

const fn expect(kind: ErrorKind, retry: bool) -> Expect {
    Expect { kind, retry }
}

const INVALID: Expect = expect(ErrorKind::Invalid, false);
const UNSUPPORTED: Expect = expect(ErrorKind::Unsupported, false);

/// The table. A row that fails is noted, so that one run shows all of them.
#[derive(Default)]
struct Table {
    rows: usize,
    wrong: Vec<String>,
}

impl Table {
    /// One row: `call` must fail as expected, in time, with a text that has all of `says` and no secret.
    async fn row<T>(
        &mut self,
        what: &str,
        expected: Expect,
        says: &[&str],
        limit: Duration,
        call: impl Future<Output = Result<T>>,
    ) {
        self.rows += 1;
        let began = Instant::now();
        let outcome = call.await;
        let took = began.elapsed();
        let mut wrong = |why: String| self.wrong.push(format!("{what}: {why}"));
        if took > limit + GRACE {
            wrong(format!("took {took:?} of {limit:?}"));
        }
        let Err(error) = outcome else { return wrong("it worked".into()) };
        let got = (error.kind(), error.is_retryable());
        if got != (expected.kind, expected.retry) {
            wrong(format!("got {got:?}: {error}"));
        }
        let text = error.to_string();
        for part in says.iter().filter(|part| !text.contains(**part)) {
            wrong(format!("{part:?} is not in: {text}"));
        }
        if format!("{error} {error:?}").contains(PASSWORD) {
            wrong(format!("shows the password: {text}"));
        }
        if text.chars().any(char::is_control) {
            wrong(format!("is not one printable line: {text:?}"));
        }
    }
}

async fn connect(url: impl AsRef<str>) -> Result<Leasehold> {
    Leasehold::builder(url).command_timeout(COMMAND).connect().await
}

/// A call of a client that is connected.
type Call = fn(Leasehold) -> BoxFuture<'static, Result<()>>;

macro_rules! call {
    (|$leases:ident| $call:expr) => {
        (|$leases: Leasehold| Box::pin(async move { $call.await.map(drop) })) as Call
    };
}

/// Bad on every engine: what, what the text says, the call.
fn bad_everywhere() -> Vec<(&'static str, &'static [&'static str], Call)> {
    vec![
        ("empty name", &["lock name", "1 to 512 bytes"], call!(|it| it.lock("").acquire())),
        ("empty name to inspect", &["lock name"], call!(|it| it.inspect(""))),
        ("empty name to force", &["lock name"], call!(|it| it.force_release("", leasehold::Fence::new(1)))),
        ("name too long", &["nnnn…", "512 bytes"], call!(|it| it.lock("n".repeat(513)).try_acquire())),
        ("line break in a name", &["deal\\n42", "control"], call!(|it| it.lock("deal\n42").try_acquire())),
        ("zero byte in a name", &["deal\\042", "control"], call!(|it| it.lock("deal\x0042").acquire())),
        ("torn hash tag", &["deal}42", "hash tag"], call!(|it| it.lock("deal}42").acquire())),
        (
            "no ttl",
            &["ttl", NAME, "0ns", "50ms to 300s"],
            call!(|it| it.lock(NAME).ttl(Duration::ZERO).acquire()),
        ),
        (
            "short ttl",
            &["ttl", NAME, "49ms"],
            call!(|it| it.lock(NAME).ttl(Duration::from_millis(49)).acquire()),
        ),
        (
            "long ttl",
            &["ttl", NAME, "301s"],
            call!(|it| it.lock(NAME).ttl(Duration::from_secs(301)).try_acquire()),
        ),
        (
            "long label",
            &["label", NAME, "128 bytes"],
            call!(|it| it.lock(NAME).label("l".repeat(129)).acquire()),
        ),
        ("line break in a label", &["label", NAME], call!(|it| it.lock(NAME).label("a\nb").acquire())),
        ("absurd wait", &["wait", NAME], call!(|it| it.lock(NAME).wait(Duration::MAX).acquire())),
        ("no attempts", &["attempts", NAME], call!(|it| it.lock(NAME).max_attempts(0).acquire())),
        ("empty page", &["page size", "1 to 10000"], call!(|it| it.list_page("", None, 0))),
    ]
}

/// What a closed client answers.
fn after_close() -> Vec<(&'static str, Call)> {
    vec![
        ("lock after close", call!(|it| it.lock(NAME).acquire())),
        ("try after close", call!(|it| it.lock(NAME).try_acquire())),
        ("inspect after close", call!(|it| it.inspect(NAME))),
        ("list after close", call!(|it| it.list_page("", None, 1))),
        ("health after close", call!(|it| it.health())),
    ]
}

async fn any_engine(table: &mut Table, url: &str) {
    let engine = url.split(':').next().unwrap_or_default();
    let leases = connect(url).await.unwrap();
    for (what, says, call) in bad_everywhere() {
        table.row(&format!("{engine}: {what}"), INVALID, says, Duration::ZERO, call(leases.clone())).await;
    }
    leases.close().await.unwrap();
    for (what, call) in after_close() {
        let says = ["after close()", "connect again"];
        table
            .row(&format!("{engine}: {what}"), UNSUPPORTED, &says, Duration::ZERO, call(leases.clone()))
            .await;
    }
}

/// URLs that name no store.
async fn urls(table: &mut Table) {
    for (url, says) in [
        ("", "memory:"),
        ("nonsense", "redis://HOST"),
        ("mysql://u:hunter2@h/db", "redis://HOST"),
        ("u:hunter2@h:6379", "redis://HOST"),
    ] {
        table.row(&format!("URL {url:?}"), INVALID, &["store URL", says], Duration::ZERO, connect(url)).await;
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(table: &mut Table) {
    for (url, says) in [("sqlite:", "store path"), ("sqlite:locks.db?mode=rw", "parameter")] {
        table.row(&format!("URL {url:?}"), INVALID, &[says], Duration::ZERO, connect(url)).await;
    }
}

#[cfg(feature = "redis")]
mod redis {
    use super::*;
    use std::{
        io::{Read, Write},
        net::TcpListener,
    };

    use leasehold_testkit::{FaultProxy, RedisServer, eventually};

    const UNREACHABLE: Expect = expect(ErrorKind::StoreUnreachable, true);
    const REFUSED: Expect = expect(ErrorKind::StoreRefused, false);
    const REFUSED_FOR_NOW: Expect = expect(ErrorKind::StoreRefused, true);
    const WRONG_TYPE: Expect = expect(ErrorKind::WrongType, false);
    const READY: Duration = Duration::from_secs(10);

    pub(super) async fn urls(table: &mut Table) {
        for (url, says) in [
            ("redis://", "a host name"),
            ("redis:/u:hunter2@h", "a host name"),
            ("redis://:hunter2@", "HOST[:PORT]"),
            ("redis://:hunter2@h:99999", "HOST[:PORT]"),
            ("redis://:hunter2@h:x", "HOST[:PORT]"),
            ("redis://:hunter2@h/x", "a database number"),
            ("redis://:hunter2@h/-1", "a database number"),
            ("redis://:hunter2@h/1/2", "a database number"),
            ("redis://:hunter2@h?nope=hunter2", "password-file, ca, cert, key"),
            // Characters that have to be escaped in a password.
            ("redis://u:1/hunter2@h", "a database number"),
            ("redis://u:1?hunter2@h", "password-file, ca, cert, key"),
            ("redis://u:1#hunter2@h", "%23"),
            ("redis://:hunter2@h?password-file=/nowhere", "a readable file"),
            ("redis://:hunter2@h?ca=/nowhere", "only with TLS"),
            ("rediss://:hunter2@h?ca=/nowhere", "a readable file"),
            ("rediss://:hunter2@h?ca=/dev/null", "in PEM form"),
        ] {
            table
                .row(&format!("URL {url:?}"), INVALID, &["invalid", says], Duration::ZERO, connect(url))
                .await;
        }
        // A setting that is out of range.
        let long = Leasehold::builder("redis://h").configure(|config| config.prefix = "p".repeat(129));
        table.row("long prefix", INVALID, &["prefix"], Duration::ZERO, long.connect()).await;
        // In a cluster a lock and its queue would be in two places.
        let torn = Leasehold::builder("redis://h").configure(|config| config.prefix = "a}".into());
        table
            .row("prefix with a brace", INVALID, &["prefix", "hash tag"], Duration::ZERO, torn.connect())
            .await;
    }

    /// The store at `url` is bad from the start: for `connect`, and for a lock of a client that was made before.
    async fn cannot_connect(table: &mut Table, what: &str, expected: Expect, says: &str, url: &str) {
        let connecting = format!("{what}: connect");
        table.row(&connecting, expected, &["connecting", says], COMMAND, connect(url)).await;
        let lazy = || Leasehold::builder(url).command_timeout(COMMAND).connect_lazy().unwrap();
        cannot_lock(table, what, expected, says, &lazy()).await;
        let looking = format!("{what}: inspect");
        table.row(&looking, expected, &["inspecting", NAME, says], COMMAND, lazy().inspect(NAME)).await;
        let health = format!("{what}: health");
        table.row(&health, expected, &["health", says], COMMAND, lazy().health()).await;
    }

    /// Asking once and waiting both fail in the same way.
    async fn cannot_lock(table: &mut Table, what: &str, expected: Expect, says: &str, leases: &Leasehold) {
        let says = [NAME, says];
        let asking = format!("{what}: try");
        table.row(&asking, expected, &says, COMMAND, leases.lock(NAME).try_acquire()).await;
        let waiting = format!("{what}: wait");
        table.row(&waiting, expected, &says, WAIT, leases.lock(NAME).wait(WAIT).acquire()).await;
    }

    pub(super) async fn servers_out_of_reach(table: &mut Table, server: &RedisServer) {
        let login = |addr| format!("redis://u:{PASSWORD}@{addr}");
        let down = RedisServer::start().unwrap();
        down.kill();
        cannot_connect(table, "server down", UNREACHABLE, "refused", &login(down.addr())).await;

        let proxy = FaultProxy::start(server.addr());
        proxy.refuse();
        cannot_connect(table, "closes at once", UNREACHABLE, "reset", &login(proxy.addr())).await;

        let proxy = FaultProxy::start(server.addr());
        proxy.hold();
        cannot_connect(table, "black hole", UNREACHABLE, "no connection", &login(proxy.addr())).await;

        // The same in the middle of a connection, and with less time than one command has.
        let proxy = FaultProxy::start(server.addr());
        let leases = connect(proxy.url()).await.unwrap();
        proxy.hold();
        cannot_lock(table, "black hole later", UNREACHABLE, "no answer in time", &leases).await;
        let short = COMMAND / 2;
        let waiting = leases.lock(NAME).wait(short).acquire();
        table.row("black hole, short wait", UNREACHABLE, &[NAME], short, waiting).await;
    }

    pub(super) async fn servers_that_are_none(table: &mut Table) {
        let http = serve("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        cannot_connect(table, "HTTP server", REFUSED, "does not speak the Redis protocol", &http).await;
        let old = serve(
            "-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `u`, `hunter2`, \r\n",
        );
        cannot_connect(table, "server of old", UNSUPPORTED, "Redis 7.0 or later", &old).await;
    }

    /// Says the same to everybody.
    fn serve(reply: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _anything = stream.read(&mut [0; 1024]);
                let _gone = stream.write_all(reply.as_bytes());
            }
        });
        format!("redis://u:{PASSWORD}@{addr}")
    }

    pub(super) async fn rights(table: &mut Table) {
        let server = RedisServer::builder()
            .password("not that")
            .acl_line("user nobody on >hunter2 resetchannels")
            .acl_line("user reader on >hunter2 ~* &* +@all -set")
            .acl_line("user stranger on >hunter2 ~other:* &* +@all")
            .start()
            .unwrap();
        let url = |user: &str| format!("redis://{user}:{PASSWORD}@{}", server.addr());
        let unknown = "authentication failed";
        cannot_connect(table, "wrong password", REFUSED, unknown, &url("")).await;
        cannot_connect(table, "unknown user", REFUSED, unknown, &url("eve")).await;
        cannot_connect(table, "no password", REFUSED, unknown, &format!("redis://{}", server.addr())).await;
        for user in ["nobody", "reader", "stranger"] {
            let leases = connect(url(user)).await.unwrap();
            cannot_lock(table, user, REFUSED, "permission denied", &leases).await;
        }
        let database = format!("redis://:not%20that@{}/99", server.addr());
        table.row("no such database", REFUSED, &["DB index"], COMMAND, connect(database)).await;
    }

    /// The server is there and does not write: what is held already is told apart.
    pub(super) async fn servers_that_do_not_write(table: &mut Table) {
        let server = RedisServer::start().unwrap();
        let leases = connect(server.url()).await.unwrap();

        server.cli(&["LPUSH", &format!("lock:{NAME}"), "a list"]);
        cannot_lock(table, "another kind of key", WRONG_TYPE, "WRONGTYPE", &leases).await;
        let force = leases.force_release(NAME, leasehold::Fence::new(1));
        table.row("another kind of key: force", WRONG_TYPE, &[NAME], COMMAND, force).await;
        server.cli(&["FLUSHALL"]);

        let held = leases.lock("held before").acquire().await.unwrap();
        fill(&server);
        cannot_lock(table, "out of memory", REFUSED_FOR_NOW, "out of memory", &leases).await;
        held.extend().await.unwrap();
        let _ = held.release().await.unwrap();
        server.cli(&["CONFIG", "SET", "maxmemory", "0"]);

        server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        cannot_lock(table, "no replicas", REFUSED_FOR_NOW, "read-only: NOREPLICAS", &leases).await;
        server.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);

        let replica =
            RedisServer::builder().arg("replicaof", &format!("127.0.0.1 {}", server.port())).start().unwrap();
        eventually(READY, "the replica follows", || {
            replica.cli(&["INFO", "replication"]).text().contains("master_link_status:up")
        });
        let follower = connect(replica.url()).await.unwrap();
        cannot_lock(table, "replica", UNREACHABLE, "READONLY", &follower).await;
        // All is well again.
        let _ = leases.lock(NAME).acquire().await.unwrap().release().await.unwrap();

        let broken = RedisServer::builder().arg("save", "3600 1").start().unwrap();
        std::fs::create_dir(broken.dir().join("dump.rdb")).unwrap();
        broken.cli(&["BGSAVE"]);
        eventually(READY, "the snapshot fails", || {
            broken.cli(&["SET", "x", "1"]).error().is_some_and(|error| error.starts_with("MISCONF"))
        });
        let leases = connect(broken.url()).await.unwrap();
        cannot_lock(table, "failed snapshot", REFUSED_FOR_NOW, "read-only: MISCONF", &leases).await;
    }

    /// Fills one megabyte.
    fn fill(server: &RedisServer) {
        server.cli(&["CONFIG", "SET", "maxmemory", "1mb"]);
        let value = "v".repeat(64 * 1024);
        eventually(READY, "memory is full", || {
            let reply = server.cli(&["RPUSH", "filling", &value]);
            reply.error().is_some_and(|error| error.starts_with("OOM"))
        });
    }

    pub(super) async fn servers_that_are_busy(table: &mut Table) {
        let server = RedisServer::builder()
            .arg("busy-reply-threshold", "50")
            .arg("enable-debug-command", "yes")
            .arg("loading-process-events-interval-bytes", "1024")
            .start()
            .unwrap();
        let leases = connect(server.url()).await.unwrap();
        let answers =
            |code: &str| server.cli(&["GET", "x"]).error().is_some_and(|error| error.starts_with(code));

        let mut looping = server.connect().unwrap();
        looping.send(&["EVAL", "while true do end", "0"]).unwrap();
        eventually(READY, "the server is busy", || answers("BUSY"));
        cannot_lock(table, "busy script", UNREACHABLE, "BUSY", &leases).await;
        server.cli(&["SCRIPT", "KILL"]);
        looping.read_reply().unwrap();
        let _ = leases.lock(NAME).acquire().await.unwrap().release().await.unwrap();

        // Loads 30 s long, and answers in between.
        server.cli(&["DEBUG", "POPULATE", "30000"]);
        server.cli(&["CONFIG", "SET", "key-load-delay", "1000"]);
        let mut loading = server.connect().unwrap();
        loading.send(&["DEBUG", "RELOAD"]).unwrap();
        eventually(READY, "the server is loading", || answers("LOADING"));
        cannot_lock(table, "loading", UNREACHABLE, "LOADING", &leases).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_bad_input_has_its_kind_its_text_and_its_time() {
    let mut table = Table::default();
    urls(&mut table).await;
    #[cfg(feature = "memory")]
    any_engine(&mut table, "memory:").await;
    #[cfg(feature = "sqlite")]
    {
        let folder = tempfile::tempdir().unwrap();
        any_engine(&mut table, &format!("sqlite:{}", folder.path().join("locks.db").display())).await;
        sqlite(&mut table).await;
    }
    #[cfg(feature = "redis")]
    {
        redis::urls(&mut table).await;
        redis::servers_that_are_none(&mut table).await;
        if let Some(server) = leasehold_testkit::RedisServer::shared_or_skip() {
            any_engine(&mut table, &server.url()).await;
            redis::servers_out_of_reach(&mut table, server).await;
            redis::rights(&mut table).await;
            redis::servers_that_do_not_write(&mut table).await;
            redis::servers_that_are_busy(&mut table).await;
        }
    }
    assert!(table.wrong.is_empty(), "{} rows, wrong:\n{}", table.rows, table.wrong.join("\n"));
}
