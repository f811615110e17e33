//! Rights that SECURITY.md documents besides those for locks: all are enough, and none is too many.

use std::fmt::Debug;

use leasehold_testkit::RedisServer;

use crate::security_md;

/// Does everything as the user `leasehold` with the password `pw`: with all rights of a block nothing is denied, and
/// without any of them something fails.
///
/// # Panics
/// When that is not so.
pub(crate) async fn is_needed<E: Debug>(
    block: &str,
    use_everything: impl AsyncFn(&RedisServer) -> Result<(), E>,
) {
    let line = security_md::locks();
    let more = security_md::line(block);
    let builder = RedisServer::builder().acl_line("user default off").acl_line(&format!("{line} {more}"));
    let Some(server) = builder.start_or_skip() else { return };
    use_everything(&server).await.unwrap();
    let denied = server.cli(&["ACL", "LOG"]);
    assert!(denied.list().is_empty(), "{denied:?}");
    for right in more.split(' ') {
        let fewer = more.split(' ').filter(|other| *other != right);
        let rules = line.split(' ').skip(2).chain(fewer);
        let words: Vec<_> = ["ACL", "SETUSER", "leasehold", "reset"].into_iter().chain(rules).collect();
        assert_eq!(server.cli(&words).error(), None);
        server.cli(&["FLUSHALL"]);
        let outcome = use_everything(&server).await;
        assert!(outcome.is_err(), "{right} is not needed: take it out of SECURITY.md");
    }
}
