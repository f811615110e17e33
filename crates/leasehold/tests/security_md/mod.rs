//! The rights that SECURITY.md documents, so that tests use them and they cannot drift.

/// The line of the code block after the comment `<!-- NAME -->`.
///
/// # Panics
/// When SECURITY.md has no such block.
#[track_caller]
pub(crate) fn line(name: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../SECURITY.md");
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"));
    let after = text.split(&format!("<!-- {name} -->")).nth(1);
    let block = after.and_then(|text| text.split("```").nth(1)).and_then(|block| block.split_once('\n'));
    match block {
        Some((_, line)) if !line.trim().is_empty() => line.split_whitespace().collect::<Vec<_>>().join(" "),
        _ => panic!("SECURITY.md has no code block after <!-- {name} -->"),
    }
}

/// The line for locks, with the password `pw`; on a server that compares and deletes also with the right to that.
#[track_caller]
pub(crate) fn locks() -> String {
    let locks = line("acl: locks").replace("PASSWORD", "pw");
    let Some(server) = leasehold_testkit::RedisServer::shared_or_skip() else { return locks };
    let is_known = |right: &&str| !server.cli(&["COMMAND", "INFO", &right[1..]]).list()[0].is_nil();
    let natively = line("acl: compare and delete");
    natively.split(' ').filter(is_known).fold(locks, |line, right| format!("{line} {right}"))
}
