//! What to do about an error of the library: the setting, the command or the file that helps in this case. Where the error
//! says it already, there is no hint.

use leasehold::{Error, Refusal};

/// What to do about it, as one sentence.
pub(crate) fn hint(error: &Error) -> Option<String> {
    match error {
        Error::TimedOut { name, .. } => {
            let name = word(name.as_str());
            Some(format!("`leasehold inspect {name}` shows who holds it and who waits; a longer -w waits longer"))
        }
        Error::Lost { .. } => Some(
            "check what the work has done; a longer --ttl survives longer outages, and a resource that checks the fence \
             refuses late writes"
                .into(),
        ),
        Error::StoreUnreachable { store, source, .. } => Some(unreachable(store, &source.to_string())),
        Error::StoreRefused { store, refusal, .. } => refused(store, *refusal).map(str::to_owned),
        Error::Invalid { what, got, .. } => invalid(what, got),
        Error::WrongType { .. } => Some(
            "another program uses this key; choose another name, or another prefix with prefix in leasehold.toml or \
             LEASEHOLD_PREFIX"
                .into(),
        ),
        Error::OtherMode { name, .. } => Some(format!(
            "`leasehold inspect {}` shows who uses it; choose another name for the other kind of lock",
            word(name.as_str())
        )),
        Error::OtherLimit { name, stored, asked } => Some(format!(
            "give --of {stored} (of = {stored} in a policy), or change it for all with `leasehold semaphore set-limit {} {asked}`",
            word(name.as_str())
        )),
        Error::OtherCount { name, stored, asked } => Some(format!(
            "give --of {stored}; once it is over, `leasehold latch rearm {} --of {asked}` arms it for {asked}",
            word(name.as_str())
        )),
        Error::Corrupt { key, .. } => Some(corrupt(key.as_str())),
        Error::Overloaded { source, .. } if source.to_string().contains("operations") => {
            Some("run fewer at once, or raise max-in-flight in leasehold.toml or LEASEHOLD_MAX_IN_FLIGHT".into())
        }
        _ => None,
    }
}

fn unreachable(store: &str, why: &str) -> String {
    let says = |words: &[&str]| words.iter().any(|word| why.to_lowercase().contains(word));
    if store.starts_with("sqlite:") {
        let file = store.trim_start_matches("sqlite:").trim_start_matches("//");
        return format!("`fuser -v {}` shows the processes that use the file", word(file));
    }
    if store.starts_with("redlock") {
        return format!("`leasehold quorum status --store {}` shows each node", word(store));
    }
    if says(&["connection refused"]) {
        format!("nothing listens there: start the server, or correct the address in {store}")
    } else if says(&["lookup", "resolve", "name or service"]) {
        format!("this host does not know the name: correct it in {store}, or check the DNS")
    } else if says(&["no connection in time"]) && store.starts_with("rediss") {
        format!("check that the server speaks TLS on that port, and that no firewall is in between: {store}")
    } else if says(&["no answer", "no connection in time", "timed out"]) {
        "check that it is running and that no firewall is in between; command-timeout in leasehold.toml and \
         LEASEHOLD_COMMAND_TIMEOUT say how long an answer may take"
            .into()
    } else {
        format!("`leasehold doctor --store {}` examines it", word(store))
    }
}

fn refused(store: &str, refusal: Refusal) -> Option<&'static str> {
    let is_file = store.starts_with("sqlite:");
    Some(match refusal {
        Refusal::ReadOnly if is_file => {
            "give this user the right to write the file and its directory, on a file system that is not mounted read-only"
        }
        Refusal::OutOfMemory if is_file => "free space on the disk of the file",
        Refusal::Auth => {
            "correct the password: redis://:PASSWORD@HOST, redis://HOST?password-file=FILE or REDIS_PASSWORD"
        }
        Refusal::Acl => "give the user of the store the rights of the ACL line in SECURITY.md",
        Refusal::ReadOnly => "connect to the primary, or wait until the failover is over",
        Refusal::OutOfMemory => "raise maxmemory of the server, or free space on its disk",
        Refusal::Certificate => {
            "name the authority with ?ca=FILE and a client certificate with ?cert=FILE&key=FILE, and check the host name"
        }
        Refusal::TooFewAcks => "bring the replicas back, or ask for fewer with --acks",
        Refusal::Abstention => {
            "`leasehold quorum status` shows when each node votes again; if too many lost their data, `leasehold quorum \
             admit` readmits them after the longest ttl"
        }
        _ => return None,
    })
}

/// By what is invalid: a variable, a key of a file, or an argument.
fn invalid(what: &str, got: &str) -> Option<String> {
    let is_variable = ["LEASEHOLD_", "REDIS_", "LOCK_TTL"].iter().any(|prefix| what.starts_with(prefix));
    let file = what.rsplit([' ']).next().filter(|word| word.ends_with(".toml"));
    Some(match (what, file) {
        ("variable", _) => format!("correct or unset {got}; leasehold(1) lists the variables"),
        ("store URL", _) => {
            "for example --store redis://HOST, or --store sqlite:/var/lib/NAME/locks.db".into()
        }
        ("file", _) => "name a store with --store or LEASEHOLD_STORE, or a file with LEASEHOLD_CONFIG".into(),
        ("ttl" | "lock delay", _) => {
            "raise max-ttl in leasehold.toml or LEASEHOLD_MAX_TTL for a longer one".into()
        }
        _ if is_variable => {
            format!("correct or unset {what}; docs/settings.md lists all settings with their ranges")
        }
        (_, Some(file)) => {
            format!("correct it in {file}; docs/settings.md lists all settings with their ranges")
        }
        _ if what.starts_with("lock delay of") => {
            "raise max-ttl in leasehold.toml or LEASEHOLD_MAX_TTL for a longer one".into()
        }
        _ if what.ends_with(" policy") => {
            "policies are tables such as [locks.NAME] in leasehold.toml; LEASEHOLD_CONFIG names another file"
                .into()
        }
        _ if what.contains("(not set, so the default)") => {
            "set it too: it must fit the other settings; docs/settings.md lists them with their ranges".into()
        }
        _ => return None,
    })
}

fn corrupt(key: &str) -> String {
    match key.strip_prefix("idempotency:").and_then(|rest| rest.split_once(':')) {
        Some((operation, id)) => format!(
            "find out who wrote it; `leasehold idem rm {} {}` removes it, and the next call executes again",
            word(operation),
            word(id)
        ),
        None => "find out who wrote it, and remove the key if nobody needs it".into(),
    }
}

/// A word as a shell reads it.
pub(crate) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:,@%+=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", crate::output::clean(text).replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_what_helps_in_this_case() {
        for (what, got, says) in [
            ("variable", "LEASEHOLD_STOER", Some("unset LEASEHOLD_STOER")),
            ("LEASEHOLD_MAX_TTL", "1d", Some("unset LEASEHOLD_MAX_TTL")),
            ("max-ttl in /etc/leasehold.toml", "1d", Some("in /etc/leasehold.toml")),
            ("ttl in [locks.a] of app/leasehold.toml", "1d", Some("in app/leasehold.toml")),
            ("lock policy", "x", Some("[locks.NAME]")),
            ("lock name", "", None),
        ] {
            let hint = invalid(what, got);
            assert_eq!(hint.is_some(), says.is_some(), "{what}: {hint:?}");
            assert!(hint.unwrap_or_default().contains(says.unwrap_or_default()), "{what}");
        }
    }

    #[test]
    fn an_unreachable_store_is_told_by_how_it_failed() {
        for (store, why, says) in [
            ("redis://h:1", "Connection refused (os error 111)", "nothing listens there"),
            ("redis://h:1", "failed to lookup address information", "does not know the name"),
            ("redis://h:1", "no answer in time", "LEASEHOLD_COMMAND_TIMEOUT"),
            ("redis://h:1", "no connection in time", "firewall"),
            ("rediss://h:1", "no connection in time", "speaks TLS"),
            ("redis://h:1", "LOADING", "`leasehold doctor --store redis://h:1`"),
            ("sqlite:/a b.db", "the database is locked", "`fuser -v '/a b.db'`"),
            ("redlock://a,b,c", "1 of 3", "`leasehold quorum status --store redlock://a,b,c`"),
        ] {
            assert!(unreachable(store, why).contains(says), "{}", unreachable(store, why));
        }
    }

    #[test]
    fn a_command_in_a_hint_can_be_pasted() {
        assert_eq!(word("deal:42"), "deal:42");
        assert_eq!(word("it's; rm"), r"'it'\''s; rm'");
        assert_eq!(
            corrupt("idempotency:payout:a b"),
            "find out who wrote it; `leasehold idem rm payout 'a b'` removes it, and the next call executes again"
        );
    }
}
