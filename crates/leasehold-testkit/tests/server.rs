//! The launcher: servers start, break on command, and never stay behind.

use std::env;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::thread;
use std::time::Duration;

use leasehold_testkit::resp::Connection;
use leasehold_testkit::{Helper, RedisServer, RedisServerBuilder, ServerError, eventually, redis_or_skip};

const SOON: Duration = Duration::from_secs(10);

#[test]
fn helper_process() {
    match Helper::role().as_deref() {
        None => {}
        Some("uses the shared server") => {
            let server = RedisServer::shared();
            Helper::say(&format!("serves {}", server.addr()));
            if env::var_os("PARK").is_some() {
                thread::park();
            }
        }
        Some("starts without redis") => {
            Helper::say(&format!("error {}", RedisServer::start().unwrap_err()));
            let skipped =
                panic::catch_unwind(|| redis_or_skip().is_none() && RedisServer::shared_or_skip().is_none());
            Helper::say(&format!("skipped {}", skipped.unwrap_or(false)));
        }
        Some("starts with a locale that nobody has") => {
            let skipped = panic::catch_unwind(|| nowhere().start_or_skip().is_none());
            Helper::say(&format!("skipped {}", skipped.unwrap_or(false)));
        }
        Some(role) => panic!("no such role: {role}"),
    }
}

fn nowhere() -> RedisServerBuilder {
    RedisServer::builder().locale("xx_XX.UTF-8")
}

fn serves(addr: SocketAddr) -> bool {
    Connection::tcp(addr).and_then(|mut connection| connection.ping()).is_ok()
}

#[test]
fn a_started_server_answers_where_it_says() {
    let Some(server) = redis_or_skip() else { return };
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    let mut client = Connection::tcp(server.addr()).unwrap();
    assert_eq!(client.command(&["SET", "k", "a b"]).unwrap().text(), "OK");
    assert_eq!(server.cli(&["GET", "k"]).text(), "a b");
    assert_eq!(server.cli(&["INCR", "n"]).int(), 1);
    assert_eq!(server.cli(&["MGET", "n", "none"]).list().len(), 2);
    assert!(server.cli(&["INCR", "k"]).error().unwrap().contains("not an integer"));
    assert!(server.cli(&["INFO", "server"]).text().contains(&format!("process_id:{}\r", server.pid())));
}

#[test]
fn settings_reach_the_server() {
    let builder = RedisServer::builder().arg("--maxmemory", "3mb").arg("maxmemory-policy", "allkeys-lru");
    let Some(server) = builder.start_or_skip() else { return };
    assert_eq!(server.cli(&["CONFIG", "GET", "maxmemory"]).list()[1].int(), 3 << 20);
    assert_eq!(server.cli(&["CONFIG", "GET", "maxmemory-policy"]).list()[1].text(), "allkeys-lru");
}

#[test]
fn a_password_is_asked_for_and_stands_in_the_url() {
    let Some(server) = RedisServer::builder().password("p w/1").start_or_skip() else { return };
    assert_eq!(server.url(), format!("redis://:p%20w%2F1@{}", server.addr()));
    let mut client = Connection::tcp(server.addr()).unwrap();
    assert!(client.command(&["GET", "k"]).unwrap().error().unwrap().starts_with("NOAUTH"));
    client.auth(None, "p w/1").unwrap();
    assert!(client.command(&["GET", "k"]).unwrap().is_nil());
    assert_eq!(server.cli(&["PING"]).text(), "PONG");
}

#[test]
fn acl_lines_bind_their_users_but_not_the_testkit() {
    let builder = RedisServer::builder().acl_line("user default off").acl_line("user w on >pw ~lock:* +get");
    let Some(server) = builder.start_or_skip() else { return };
    let mut client = Connection::tcp(server.addr()).unwrap();
    client.auth(Some("w"), "pw").unwrap();
    assert!(client.command(&["GET", "lock:a"]).unwrap().is_nil());
    assert!(client.command(&["GET", "other"]).unwrap().error().unwrap().starts_with("NOPERM"));
    assert!(client.auth(Some("w"), "wrong").is_err());
    assert_eq!(server.cli(&["SET", "other", "1"]).text(), "OK");
}

#[test]
fn a_killed_server_comes_back_empty_on_its_port() {
    let Some(server) = redis_or_skip() else { return };
    let (addr, pid) = (server.addr(), server.pid());
    server.cli(&["SET", "k", "v"]);
    server.cli(&["SAVE"]);
    server.kill();
    assert!(TcpStream::connect(addr).is_err());
    server.restart();
    assert_eq!(server.addr(), addr);
    assert_ne!(server.pid(), pid);
    assert!(server.cli(&["GET", "k"]).is_nil());
}

#[test]
fn a_server_can_be_rolled_back_to_its_dump() {
    let Some(server) = redis_or_skip() else { return };
    server.cli(&["SET", "k", "old"]);
    server.cli(&["SAVE"]);
    server.cli(&["SET", "k", "new"]);
    server.restart_with_dump();
    assert_eq!(server.cli(&["GET", "k"]).text(), "old");
}

#[test]
fn a_shut_down_server_is_gone_and_can_be_restarted() {
    let Some(server) = redis_or_skip() else { return };
    server.shutdown();
    assert!(!serves(server.addr()));
    assert!(server.log().contains("Redis is now ready to exit"));
    server.restart();
    assert!(serves(server.addr()));
}

#[test]
fn a_stopped_server_is_silent_until_it_continues() {
    let Some(server) = redis_or_skip() else { return };
    let mut client = Connection::tcp(server.addr()).unwrap();
    server.stop();
    server.stop();
    client.send(&["PING"]).unwrap();
    let answer = thread::spawn(move || client.read_reply().unwrap());
    thread::sleep(Duration::from_millis(100));
    assert!(!answer.is_finished());
    server.cont();
    assert_eq!(answer.join().unwrap().text(), "PONG");
}

#[test]
fn a_stopped_server_can_be_killed() {
    let Some(server) = redis_or_skip() else { return };
    server.stop();
    server.kill();
    assert!(!serves(server.addr()));
}

#[test]
fn a_bad_setting_is_reported_with_the_log() {
    match RedisServer::builder().arg("--loadmodule", "/no/such/module.so").start() {
        Err(ServerError::Missing) => drop(redis_or_skip()),
        Err(error @ ServerError::Ended { .. }) => {
            assert!(error.to_string().contains("/no/such/module.so"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_locale_is_named_and_skipped_only_on_request() {
    assert!(nowhere().start().unwrap_err().to_string().contains("`xx_XX.UTF-8`: install the Debian package"));
    for allowed in ["0", "1"] {
        let allow = [("LEASEHOLD_ALLOW_MISSING", allowed)];
        let helper = Helper::spawn("starts with a locale that nobody has", &allow);
        assert_eq!(helper.wait_for_line("skipped ", SOON), (allowed == "1").to_string());
    }
}

#[test]
fn servers_of_another_version_are_found_before_those_on_the_path() {
    let Some(server) = redis_or_skip() else { return };
    let link = |program: &str, to: &Path| symlink(to, server.dir().join(program)).unwrap();
    link("redis-server", Path::new(&format!("/proc/{}/exe", server.pid())));
    // Without it the server would outlive the helper.
    let path = env::var_os("PATH").unwrap();
    let setpriv = env::split_paths(&path).map(|folder| folder.join("setpriv"));
    setpriv.filter(|file| file.is_file()).take(1).for_each(|file| link("setpriv", &file));
    let folder = server.dir().to_str().unwrap();
    let helper =
        Helper::spawn("uses the shared server", &[("PATH", "/nowhere"), ("LEASEHOLD_SERVERS", folder)]);
    let addr = helper.wait_for_line("serves ", SOON).parse().unwrap();
    helper.kill9();
    eventually(SOON, "the server to end with the helper", || !serves(addr));
}

#[test]
fn a_missing_binary_is_named_and_skipped_only_on_request() {
    let nowhere = [("PATH", "/nowhere"), ("LEASEHOLD_SERVERS", "/nowhere")];
    let helper = Helper::spawn("starts without redis", &nowhere);
    assert!(helper.wait_for_line("error ", SOON).contains("Debian package `redis-server`"));
    assert_eq!(helper.wait_for_line("skipped ", SOON), "false");
    let [path, servers] = nowhere;
    let helper = Helper::spawn("starts without redis", &[path, servers, ("LEASEHOLD_ALLOW_MISSING", "1")]);
    assert_eq!(helper.wait_for_line("skipped ", SOON), "true");
    eventually(SOON, "the skip to be printed", || helper.stderr().contains("skipped: no `redis-server`"));
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let Some(server) = thread::spawn(redis_or_skip).join().unwrap() else { return };
    // The death signal of a finished thread would come at once; a stopped-and-continued process has seen it.
    server.stop();
    server.cont();
    assert_eq!(server.cli(&["PING"]).text(), "PONG");
}

#[test]
fn a_panicking_test_leaves_no_server_behind() {
    let Some(server) = redis_or_skip() else { return };
    let addr = server.addr();
    let outcome = panic::catch_unwind(AssertUnwindSafe(move || {
        assert!(!serves(server.addr()), "fails on purpose");
    }));
    assert!(outcome.is_err());
    assert!(!serves(addr));
}

#[test]
fn the_shared_server_is_one_server() {
    let Some(server) = RedisServer::shared_or_skip() else { return };
    assert_eq!(server.pid(), thread::spawn(|| RedisServer::shared().pid()).join().unwrap());
}

#[test]
fn the_shared_server_dies_with_a_killed_process() {
    if RedisServer::shared_or_skip().is_none() {
        return;
    }
    let helper = Helper::spawn("uses the shared server", &[("PARK", "1")]);
    let addr: SocketAddr = helper.wait_for_line("serves ", SOON).parse().unwrap();
    assert!(serves(addr));
    helper.kill9();
    eventually(SOON, "the server of the killed process to die", || !serves(addr));
}

#[test]
fn the_shared_server_dies_with_a_process_that_ends() {
    if RedisServer::shared_or_skip().is_none() {
        return;
    }
    let helper = Helper::spawn("uses the shared server", &[]);
    let addr: SocketAddr = helper.wait_for_line("serves ", SOON).parse().unwrap();
    assert!(helper.wait(SOON).success());
    eventually(SOON, "the server of the finished process to die", || !serves(addr));
}
