//! What a `redlock://` or `redlocks://` URL says.

use redis::Client;

use super::super::{super::connect::redact, url};
use crate::error::{Error, Result};

const FORM: &str = "redlock://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT],HOST[:PORT][/DB]";
const PARAMETERS: &str = "password-file, admit, ca, cert, key";
/// A majority of fewer is all of them.
const NODES_MIN: usize = 3;
/// Every operation asks all of them.
const NODES_MAX: usize = 15;

/// What the URL says about the quorum as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// A set of nodes without any record may be admitted as a new quorum.
    pub(crate) admit_new: bool,
}

/// The nodes of a quorum, each with what people call it. Nothing is dialled.
///
/// `redlock[s]://[USER[:PASSWORD]@]HOST[:PORT],…[/DB][?password-file=F&admit=new&ca=F&cert=F&key=F]`
pub(super) fn parse(text: &str) -> Result<(Vec<(String, Client)>, Parameters)> {
    let shown = redact(text);
    let refuse = |allowed: &str| Error::invalid("store URL", shown.clone(), allowed);
    let (scheme, rest) = text.split_once("://").ok_or_else(|| refuse(FORM))?;
    let scheme = match scheme {
        "redlock" => "redis",
        "redlocks" => "rediss",
        _ => return Err(refuse(FORM)),
    };
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if tail.contains('#') {
        return Err(refuse("no '#'; in a password it is written %23"));
    }
    let (login, hosts) = authority
        .rsplit_once('@')
        .map_or(("", authority), |(_, hosts)| authority.split_at(authority.len() - hosts.len()));
    let hosts: Vec<&str> = hosts.split(',').collect();
    // The rest of a password that had one.
    let slash = if tail.contains('@') { "; a '/' in a password is written %2F" } else { "" };
    if !(NODES_MIN..=NODES_MAX).contains(&hosts.len()) || hosts.contains(&"") {
        return Err(refuse(&format!("{NODES_MIN} to {NODES_MAX} hosts, each HOST[:PORT]{slash}")));
    }
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let (query, parameters) = read_query(query, scheme, &shown)?;
    let mut nodes: Vec<(String, Client)> = Vec::with_capacity(hosts.len());
    for host in hosts {
        let client = match url::open(&format!("{scheme}://{login}{host}{path}{query}")) {
            // In terms of the URL that was written, not of the one for this node.
            Err(Error::Invalid { what, expected, .. }) if what == "store URL" => {
                let of_all = if expected.starts_with("redis") { FORM.to_owned() } else { expected };
                return Err(refuse(&format!("{of_all}{slash}")));
            }
            client => client?,
        };
        let label = client.get_connection_info().addr().to_string();
        if nodes.iter().any(|(other, _)| other.eq_ignore_ascii_case(&label)) {
            return Err(refuse(&format!("each host once; {label} would vote twice")));
        }
        nodes.push((label, client));
    }
    Ok((nodes, parameters))
}

/// What concerns the quorum, and the rest for its nodes.
fn read_query(query: &str, scheme: &str, shown: &str) -> Result<(String, Parameters)> {
    let mut parameters = Parameters { admit_new: false };
    let mut of_nodes = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (parameter, value) = pair.split_once('=').unwrap_or((pair, ""));
        match parameter {
            "admit" if value == "new" => parameters.admit_new = true,
            "admit" => return Err(Error::invalid("parameter admit of the store URL", shown, "new")),
            "ca" | "cert" | "key" if scheme != "rediss" => {
                return Err(Error::invalid("store URL", shown, "ca, cert and key only with redlocks://"));
            }
            "password-file" | "ca" | "cert" | "key" => of_nodes.push(pair),
            _ => {
                // With an `@` in it, it is the rest of a password that had a `?`.
                let got = if pair.contains('@') { "…" } else { parameter };
                let what = format!("parameter of the store URL {shown}");
                return Err(Error::invalid(what, got, PARAMETERS));
            }
        }
    }
    let separator = if of_nodes.is_empty() { "" } else { "?" };
    Ok((format!("{separator}{}", of_nodes.join("&")), parameters))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(url: &str) -> Vec<String> {
        parse(url).unwrap().0.into_iter().map(|(label, _)| label).collect()
    }

    #[test]
    fn a_url_names_every_node_and_what_they_share() {
        let (nodes, parameters) = parse("redlock://ann:p%40,s@a,b:7000,[::1]/3?admit=new").unwrap();
        assert!(parameters.admit_new);
        for ((label, client), expected) in nodes.iter().zip(["a:6379", "b:7000", "::1:6379"]) {
            let settings = client.get_connection_info().redis_settings();
            assert_eq!(label, expected);
            assert_eq!(
                (settings.username(), settings.password(), settings.db()),
                (Some("ann"), Some("p@,s"), 3)
            );
        }
        assert_eq!(labels("redlock://a,b,c,d"), ["a:6379", "b:6379", "c:6379", "d:6379"]);
        assert!(!parse("redlock://a,b,c").unwrap().1.admit_new);
    }

    #[test]
    fn every_node_gets_the_password_of_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "from a file\n").unwrap();
        let url = format!("redlock://a,b,c?admit=new&password-file={}", file.path().display());
        for (_, client) in parse(&url).unwrap().0 {
            assert_eq!(client.get_connection_info().redis_settings().password(), Some("from a file"));
        }
    }

    #[test]
    fn bad_urls_say_what_is_allowed_and_hide_the_password() {
        for (bad, allowed) in [
            ("redlock://", "3 to 15 hosts"),
            ("redlock://:secret@a,b", "3 to 15 hosts"),
            ("redlock://u:secret@a,u:secret@b,u:secret@c", "3 to 15 hosts"),
            ("redlock://:secret@a,,c", "3 to 15 hosts"),
            ("redlock://:secret@a,b,c:x", "redlock://"),
            ("redlock://:secret@a,b,c/1/2", "a database number"),
            ("redlock://u:1/secret@a,b,c", "%2F"),
            ("redlock://:secret@a,b,a:6379", "a:6379 would vote twice"),
            ("redlock://:secret@a,b,A", "A:6379 would vote twice"),
            ("redlock://:secret@a,b,c/x", "a database number"),
            ("redlock://:secret@a,b,c?what=1", "admit"),
            ("redlock://:secret@a,b,c?admit=old", "new"),
            ("redlock://:secret@a,b,c?ca=x", "redlocks://"),
            ("redlock://:1#secret@a,b,c", "%23"),
            ("redlock://u:1?secret@a,b,c", "hosts"),
            ("redlock:u:secret@a,b,c", "redlock://"),
        ] {
            let text = parse(bad).err().unwrap().to_string();
            assert!(text.contains("expected") && text.contains(allowed), "{bad}: {text}");
            assert!(!text.contains("secret"), "{text}");
            assert!(!text.contains("redis:"), "a URL that nobody wrote: {text}");
        }
        let many = (0..16).map(|n| format!("h{n}")).collect::<Vec<_>>().join(",");
        assert!(parse(&format!("redlock://{many}")).is_err());
        assert_eq!(redact("redlock://u:secret@a:1,b,c/2?ca=x"), "redlock://a:1,b,c/2");
    }
}
