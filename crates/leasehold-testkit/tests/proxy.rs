//! The fault proxy, in front of a real server.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::resp::{Connection, Reply};
use leasehold_testkit::{FaultProxy, RedisServer, eventually, redis_or_skip};

const SOON: Duration = Duration::from_secs(10);
/// Long enough for a loopback round trip that was not prevented.
const A_WHILE: Duration = Duration::from_millis(100);

fn setup() -> Option<(RedisServer, FaultProxy, Connection)> {
    let server = redis_or_skip()?;
    let proxy = FaultProxy::start(server.addr());
    let client = Connection::tcp(proxy.addr()).unwrap();
    Some((server, proxy, client))
}

fn answer_in_background(mut client: Connection) -> thread::JoinHandle<std::io::Result<Reply>> {
    thread::spawn(move || client.read_reply())
}

#[test]
fn without_faults_everything_passes_and_is_counted() {
    let Some((_server, proxy, mut client)) = setup() else { return };
    assert_eq!(proxy.url(), format!("redis://{}", proxy.addr()));
    let value = "x".repeat(1 << 20);
    assert_eq!(client.command(&["SET", "k", &value]).unwrap().text(), "OK");
    assert_eq!(client.command(&["GET", "k"]).unwrap().text(), value);
    assert_eq!(proxy.connections(), 1);
    assert!(proxy.requests_bytes() > 1 << 20 && proxy.replies_bytes() > 1 << 20);
}

#[test]
fn a_delay_applies_to_each_direction_and_does_not_add_up() {
    let Some((_server, proxy, mut client)) = setup() else { return };
    client.command(&["PING"]).unwrap();
    proxy.delay(Duration::from_millis(50));
    let started = Instant::now();
    for _ in 0..20 {
        client.send(&["PING"]).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(client.read_reply().unwrap().text(), "PONG");
    assert!(started.elapsed() >= Duration::from_millis(100), "{:?}", started.elapsed());
    for _ in 1..20 {
        client.read_reply().unwrap();
    }
    assert!(started.elapsed() < Duration::from_millis(1000), "{:?}", started.elapsed());
}

#[test]
fn held_bytes_arrive_after_all() {
    let Some((server, proxy, mut client)) = setup() else { return };
    client.command(&["PING"]).unwrap();
    proxy.hold();
    client.send(&["INCR", "n"]).unwrap();
    client.send(&["INCR", "n"]).unwrap();
    let mut newcomer = Connection::tcp(proxy.addr()).unwrap();
    newcomer.send(&["PING"]).unwrap();
    thread::sleep(A_WHILE);
    assert!(server.cli(&["GET", "n"]).is_nil());
    proxy.pass();
    assert_eq!(client.read_reply().unwrap().int(), 1);
    assert_eq!(client.read_reply().unwrap().int(), 2);
    assert_eq!(newcomer.read_reply().unwrap().text(), "PONG");
}

#[test]
fn dropped_replies_are_lost_while_requests_take_effect() {
    let Some((server, proxy, mut client)) = setup() else { return };
    client.command(&["PING"]).unwrap();
    proxy.drop_replies();
    let before = proxy.replies_bytes();
    client.send(&["INCR", "n"]).unwrap();
    eventually(SOON, "the server to answer", || proxy.replies_bytes() > before);
    assert_eq!(server.cli(&["GET", "n"]).int(), 1);
    thread::sleep(A_WHILE);
    proxy.pass();
    assert_eq!(client.command(&["INCR", "n"]).unwrap().int(), 2, "the reply 1 must not come late");
}

#[test]
fn held_replies_come_late_and_in_order() {
    let Some((server, proxy, mut client)) = setup() else { return };
    client.command(&["PING"]).unwrap();
    proxy.hold_replies();
    client.send(&["INCR", "n"]).unwrap();
    client.send(&["INCR", "n"]).unwrap();
    eventually(SOON, "the server to act", || server.cli(&["GET", "n"]) == Reply::Text("2".into()));
    let answer = answer_in_background(client);
    thread::sleep(A_WHILE);
    assert!(!answer.is_finished());
    proxy.release_replies();
    assert_eq!(answer.join().unwrap().unwrap().int(), 1);
}

#[test]
fn a_cut_resets_open_connections_and_lets_new_ones_pass() {
    let Some((server, proxy, mut client)) = setup() else { return };
    client.command(&["PING"]).unwrap();
    proxy.cut();
    assert_eq!(client.read_reply().unwrap_err().kind(), ErrorKind::ConnectionReset);
    let mut client = Connection::tcp(proxy.addr()).unwrap();
    assert_eq!(client.command(&["PING"]).unwrap().text(), "PONG");
    assert_eq!(server.cli(&["CLIENT", "LIST", "TYPE", "NORMAL"]).text().lines().count(), 2);
}

#[test]
fn a_cut_also_frees_connections_in_the_black_hole() {
    let Some((_server, proxy, client)) = setup() else { return };
    proxy.hold();
    let answer = answer_in_background(client);
    let mut newcomer = Connection::tcp(proxy.addr()).unwrap();
    eventually(SOON, "both to be accepted", || proxy.connections() == 2);
    proxy.cut();
    assert_eq!(answer.join().unwrap().unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(newcomer.read_reply().is_err());
}

#[test]
fn refused_connections_end_at_once_while_open_ones_live() {
    let Some((_server, proxy, mut client)) = setup() else { return };
    client.command(&["PING"]).unwrap();
    proxy.refuse();
    assert!(Connection::tcp(proxy.addr()).and_then(|mut client| client.ping()).is_err());
    assert_eq!(client.command(&["PING"]).unwrap().text(), "PONG");
    proxy.pass();
    assert!(Connection::tcp(proxy.addr()).and_then(|mut client| client.ping()).is_ok());
}

#[test]
fn a_server_that_is_down_is_visible_unless_held() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let proxy = FaultProxy::start(free);
    assert!(Connection::tcp(proxy.addr()).and_then(|mut client| client.ping()).is_err());
    proxy.hold();
    let answer = answer_in_background(Connection::tcp(proxy.addr()).unwrap());
    thread::sleep(A_WHILE);
    assert!(!answer.is_finished());
    proxy.pass();
    assert!(answer.join().unwrap().is_err());
}

#[test]
fn an_end_of_stream_is_passed_on() {
    let Some((server, _proxy, mut client)) = setup() else { return };
    client.command(&["PING"]).unwrap();
    server.kill();
    assert!(client.read_reply().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_paused_and_blocked_runtime_does_not_matter() {
    let Some((_server, proxy, mut client)) = setup() else { return };
    proxy.delay(Duration::from_millis(1));
    assert_eq!(client.command(&["PING"]).unwrap().text(), "PONG");
}

#[test]
fn a_dropped_proxy_closes_everything() {
    let Some((_server, proxy, mut client)) = setup() else { return };
    let addr: SocketAddr = proxy.addr();
    proxy.hold();
    drop(proxy);
    assert!(client.read_reply().is_err());
    assert!(Connection::tcp(addr).is_err());
}
