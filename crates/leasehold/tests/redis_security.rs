//! Who gets in, what they may do, and what nobody gets to see.
#![cfg(feature = "redis")]

mod security_md;

use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use leasehold::{
    Attempt, Error, Guard, Leasehold, Refusal, Result, Retry,
    engine::{Inspection, Released},
};
use leasehold_testkit::RedisServer;

const COMMAND: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);
const SECRET: &str = "correct horse";

async fn connect(url: impl AsRef<str>) -> Result<Leasehold> {
    Leasehold::builder(url).command_timeout(COMMAND).connect().await
}

/// Locks and unlocks once.
async fn works(url: impl AsRef<str>) {
    let leases = connect(url).await.unwrap();
    let guard = leases.lock("works").acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Free);
}

#[track_caller]
fn assert_refused(error: &Error, expected: Refusal) {
    let Error::StoreRefused { refusal, .. } = error else { panic!("not refused: {error}") };
    assert_eq!(*refusal, expected, "{error}");
    assert!(!error.is_retryable(), "{error}");
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;
    use leasehold::ErrorKind;
    use leasehold_testkit::Certificates;

    fn with(server: &RedisServer, files: &[(&str, std::path::PathBuf)]) -> String {
        let parameters: Vec<_> =
            files.iter().map(|(name, path)| format!("{name}={}", path.display())).collect();
        format!("{}?{}", server.url(), parameters.join("&"))
    }

    #[tokio::test]
    async fn a_server_of_our_own_authority_is_trusted_and_any_other_is_not() {
        let certificates = Certificates::generate();
        let Some(server) = RedisServer::builder().tls(&certificates).start_or_skip() else { return };
        works(with(&server, &[("ca", certificates.ca())])).await;
        let wrong = connect(with(&server, &[("ca", certificates.wrong_ca())])).await.unwrap_err();
        assert_refused(&wrong, Refusal::Certificate);
        // The public authorities did not sign it either.
        assert_refused(&connect(server.url()).await.unwrap_err(), Refusal::Certificate);
    }

    #[tokio::test]
    async fn the_certificate_must_be_for_the_host_that_was_dialled() {
        let certificates = Certificates::generate();
        let builder = RedisServer::builder().tls(&certificates).arg("bind", "127.0.0.1 127.0.0.2");
        let Some(server) = builder.start_or_skip() else { return };
        let ca = certificates.ca();
        works(format!("rediss://localhost:{}?ca={}", server.port(), ca.display())).await;
        let other = format!("rediss://127.0.0.2:{}?ca={}", server.port(), ca.display());
        assert_refused(&connect(other).await.unwrap_err(), Refusal::Certificate);
    }

    #[tokio::test]
    async fn a_server_that_asks_for_a_client_certificate_gets_it_or_says_so() {
        let certificates = Certificates::generate();
        let builder = RedisServer::builder().tls(&certificates).require_client_certificate();
        let Some(server) = builder.start_or_skip() else { return };
        let ca = ("ca", certificates.ca());
        works(with(
            &server,
            &[ca.clone(), ("cert", certificates.client_cert()), ("key", certificates.client_key())],
        ))
        .await;
        let without = connect(with(&server, std::slice::from_ref(&ca))).await.unwrap_err();
        assert_refused(&without, Refusal::Certificate);
        assert!(without.to_string().contains("asks for a client certificate"), "{without}");
        let wrong =
            [ca, ("cert", certificates.wrong_client_cert()), ("key", certificates.wrong_client_key())];
        let wrong = connect(with(&server, &wrong)).await.unwrap_err();
        assert_refused(&wrong, Refusal::Certificate);
        assert!(wrong.to_string().contains("refused the client certificate"), "{wrong}");
    }

    #[tokio::test]
    async fn a_plain_url_for_a_tls_port_says_which_scheme_to_use() {
        let certificates = Certificates::generate();
        let Some(server) = RedisServer::builder().tls(&certificates).start_or_skip() else { return };
        let began = Instant::now();
        let error = connect(format!("redis://{}", server.addr())).await.unwrap_err();
        assert!(began.elapsed() < COMMAND + Duration::from_millis(100));
        assert_eq!(error.kind(), ErrorKind::StoreUnreachable);
        assert!(error.to_string().contains("rediss://"), "{error}");
    }

    #[tokio::test]
    async fn a_tls_url_for_a_plain_port_ends_in_time() {
        let Some(server) = RedisServer::shared_or_skip() else { return };
        let began = Instant::now();
        let error = connect(format!("rediss://{}", server.addr())).await.unwrap_err();
        assert!(began.elapsed() < COMMAND + Duration::from_millis(100));
        assert_eq!(error.kind(), ErrorKind::StoreUnreachable);
    }
}

#[tokio::test]
async fn user_and_password_come_from_the_url_or_a_file() {
    let builder = RedisServer::builder().password(SECRET).acl_line("user ann on >a@b:c/d ~* &* +@all");
    let Some(server) = builder.start_or_skip() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    for (user, escaped, password) in [("", "correct%20horse", SECRET), ("ann", "a%40b%3Ac%2Fd", "a@b:c/d")] {
        works(format!("redis://{user}:{escaped}@{}", server.addr())).await;
        std::fs::write(&file, format!("{password}\n")).unwrap();
        works(format!("redis://{user}@{}?password-file={}", server.addr(), file.display())).await;
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_never_shown() {
    let Some(server) = RedisServer::builder().password(SECRET).start_or_skip() else { return };
    for login in [":hunter2hunter2@", "ann:hunter2hunter2@", ""] {
        let url = format!("redis://{login}{}", server.addr());
        let error = connect(&url).await.unwrap_err();
        assert_refused(&error, Refusal::Auth);
        let lazy = Leasehold::connect_lazy(&url).unwrap();
        let later = lazy.lock("deal").try_acquire().await.unwrap_err();
        assert_refused(&later, Refusal::Auth);
        assert!(later.to_string().contains("deal"), "{later}");
        for text in [error.to_string(), format!("{error:?}"), format!("{later:?}"), format!("{lazy:?}")] {
            assert!(!text.contains("hunter2"), "{text}");
        }
        assert!(!lazy.store().contains("hunter2"));
    }
}

#[tokio::test]
async fn a_lock_lies_in_the_database_of_the_url() {
    let Some(server) = RedisServer::shared_or_skip() else { return };
    let leases = connect(format!("{}/3", server.url())).await.unwrap();
    let guard = leases.lock("in three").acquire().await.unwrap();
    let mut admin = server.connect().unwrap();
    assert_eq!(admin.command(&["EXISTS", "lock:in three"]).unwrap().int(), 0);
    admin.command(&["SELECT", "3"]).unwrap();
    assert_eq!(admin.command(&["EXISTS", "lock:in three"]).unwrap().int(), 1);
    let _ = guard.release().await.unwrap();
}

#[tokio::test]
async fn operators_see_who_is_connected() {
    let Some(server) = RedisServer::builder().start_or_skip() else { return };
    let _plain = connect(server.url()).await.unwrap();
    let labelled =
        Leasehold::builder(server.url()).configure(|config| config.label = "nightly report".into());
    let _labelled = labelled.connect().await.unwrap();
    let list = server.cli(&["CLIENT", "LIST"]);
    for name in [" name=leasehold ", " name=leasehold:nightly-report "] {
        assert!(list.text().contains(name), "{name} is not in {}", list.text());
    }
}

/// The ttl of a waiter that must be heard of every half second.
const SHORT: Duration = Duration::from_millis(150);

/// What can go wrong with too few rights.
#[derive(Debug)]
enum Failure {
    /// An error said so.
    Error(Error),
    /// Something did not happen.
    Missed(&'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

fn must(holds: bool, what: &'static str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::Missed(what)) }
}

/// `a` holds, `b` waits, `a` gives it to `b`.
async fn hand_over(a: &Leasehold, b: &Leasehold, patience: Duration) -> Result<Guard, Failure> {
    let held = a.lock("deal").acquire().await?;
    held.extend().await?;
    must(matches!(b.lock("deal").try_acquire().await?, Attempt::Busy { holder: Some(_), .. }), "busy")?;

    // Asks so rarely that only a hand-over can be in time.
    let waiting = b.lock("deal").ttl(SHORT).wait(patience).retry(Retry::fixed(Duration::from_secs(60)));
    let waiter = tokio::spawn(waiting.into_future());
    while a.inspect("deal").await?.waiting == 0 && !waiter.is_finished() {
        tokio::task::yield_now().await;
    }
    if waiter.is_finished() {
        return Err(waiter.await.unwrap().map_or_else(Failure::Error, |_| Failure::Missed("exclusion")));
    }
    // So long that its arrival alone does not show that it lives: it has asked since.
    let asked = Instant::now();
    while asked.elapsed() < Duration::from_millis(700) && !waiter.is_finished() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if waiter.is_finished() {
        return Err(waiter.await.unwrap().map_or_else(Failure::Error, |_| Failure::Missed("exclusion")));
    }
    let listed = a.list_page("", None, 10).await?;
    must(listed.items.iter().any(|Inspection { name, .. }| name.as_str() == "deal"), "listing")?;
    let outcome = held.release().await?;
    must(matches!(outcome, Released::HandedOver { .. }), "hand-over")?;
    Ok(waiter.await.unwrap()?)
}

/// Everything that a client does with locks, as the user of the documented line.
async fn use_everything(server: &RedisServer, label: &str, patience: Duration) -> Result<(), Failure> {
    let client = || {
        let url = format!("redis://leasehold:pw@{}", server.addr());
        Leasehold::builder(url).command_timeout(COMMAND).configure(|config| config.label = label.into())
    };
    let (a, b) = (client().connect().await?, client().connect().await?);
    // Twice: a client that met somebody waiting uses another script for its next release.
    let _ = hand_over(&a, &b, patience).await?.release().await?;
    let mut handed = hand_over(&a, &b, patience).await?;
    // A poll that is under way during the release finds the lock its own before the message does; hardly ever twice.
    for _ in 0..5 {
        if b.stats().handed_over > 0 {
            break;
        }
        let _ = handed.release().await?;
        handed = hand_over(&a, &b, patience).await?;
    }
    must(b.stats().handed_over > 0, "hand-over message")?;
    let _ = handed.release().await?;

    let held = b.lock("deal").acquire().await?;
    // One that gives up leaves the queue.
    let timed_out = a.lock("deal").wait(Duration::from_millis(50)).acquire().await;
    must(matches!(timed_out, Err(Error::TimedOut { .. })), "waiting in vain")?;
    let began = Instant::now();
    while a.inspect("deal").await?.waiting > 0 {
        must(began.elapsed() < patience, "leaving the queue")?;
        tokio::task::yield_now().await;
    }
    must(a.force_release("deal", held.fence()).await? == Released::Free, "force-release")?;
    must(held.release().await? == Released::Expired, "release of a lock that is gone")?;
    // Many at once share calls.
    let many = try_join_all((0..8).map(|number| a.lock(format!("many:{number}")).acquire())).await?;
    for outcome in join_all(many.into_iter().map(Guard::release)).await {
        must(outcome? == Released::Free, "release among others")?;
    }
    let renewed = a.stats().renewed;
    // Renewed once at first, and then not before all patience is over.
    let kept = a.lock("kept").ttl(Duration::from_secs(300)).keep_alive().acquire().await?;
    let began = Instant::now();
    while a.stats().renewed == renewed {
        must(began.elapsed() < PATIENCE, "renewal")?;
        tokio::task::yield_now().await;
    }
    server.cli(&["DEL", "lock:kept"]);
    must(kept.lost_within(patience).await, "report of a loss")?;
    let name = format!(" name=leasehold:{label} ");
    must(server.cli(&["CLIENT", "LIST"]).text().contains(&name), "connection name")
}

#[tokio::test]
async fn the_documented_rights_suffice_for_everything_and_nothing_is_tried_in_vain() {
    let line = security_md::locks();
    let builder = RedisServer::builder().acl_line("user default off").acl_line(&line);
    let Some(server) = builder.start_or_skip() else { return };
    let outcome = use_everything(&server, "all", PATIENCE).await;
    let denied = server.cli(&["ACL", "LOG"]);
    assert!(outcome.is_ok() && denied.list().is_empty(), "{outcome:?}, denied: {denied:?}");
}

#[tokio::test]
async fn without_any_of_the_documented_rights_something_fails() {
    let line = security_md::locks();
    let builder = RedisServer::builder().acl_line("user default off").acl_line(&line);
    let Some(server) = builder.start_or_skip() else { return };
    let rules: Vec<_> = line.split(' ').skip(2).collect();
    let native = security_md::line("acl: compare and delete");
    let mut silent = Vec::new();
    let is_needed = |rule: &&&str| rule.starts_with(['+', '~', '&']) && !native.contains(**rule);
    for right in rules.iter().filter(is_needed) {
        let fewer = rules.iter().filter(|rule| *rule != right);
        let words: Vec<_> = ["ACL", "SETUSER", "leasehold", "reset"].iter().chain(fewer).copied().collect();
        assert_eq!(server.cli(&words).error(), None);
        server.cli(&["FLUSHALL"]);
        server.cli(&["SCRIPT", "FLUSH"]);
        match use_everything(&server, &format!("no{right}"), Duration::from_secs(3)).await {
            Ok(()) => panic!("{right} is not needed: take it out of SECURITY.md"),
            Err(Failure::Error(Error::StoreRefused { refusal: Refusal::Acl, .. })) => {}
            Err(Failure::Error(error)) => silent.push((*right, error.kind().as_str())),
            Err(Failure::Missed(what)) => silent.push((*right, what)),
        }
    }
    // No error for the caller without these: waiters are served by their polls, the connection has no name, and a lock that is
    // gone is found by a renewal.
    let expected = [
        ("&leasehold:wake:*", "hand-over message"),
        ("+subscribe", "hand-over"),
        ("+publish", "hand-over message"),
        ("+client|setname", "connection name"),
        ("+client|tracking", "report of a loss"),
        ("+client|caching", "report of a loss"),
    ];
    assert_eq!(silent, expected);
}

#[tokio::test]
async fn another_database_takes_the_right_to_select_it() {
    let line = security_md::locks();
    let builder = RedisServer::builder().acl_line("user default off").acl_line(&line);
    let Some(server) = builder.start_or_skip() else { return };
    let url = format!("redis://leasehold:pw@{}/3", server.addr());
    assert_refused(&connect(&url).await.unwrap_err(), Refusal::Acl);
    server.cli(&["ACL", "SETUSER", "leasehold", "+select"]);
    works(url).await;
}
