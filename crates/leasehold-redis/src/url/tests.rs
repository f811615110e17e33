use super::*;

fn login(client: &Client) -> (Option<&str>, Option<&str>, i64) {
    let settings = client.get_connection_info().redis_settings();
    (settings.username(), settings.password(), settings.db())
}

fn servers(text: &str) -> Result<Vec<Client>> {
    let url = StoreUrl::parse(text)?;
    let login = url.login()?;
    Ok(url.hosts.iter().map(|host| host.client(&login)).collect())
}

fn address(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}

fn shown(clients: &[Client]) -> Vec<String> {
    clients.iter().map(address).collect()
}

#[test]
fn a_url_gives_user_password_and_database() {
    let client = servers("redis://ann:p%40ss@[::1]:7000/3").unwrap().remove(0);
    assert_eq!(address(&client), "::1:7000");
    assert_eq!(login(&client), (Some("ann"), Some("p@ss"), 3));
    assert!(client.get_connection_info().tcp_settings().nodelay());
}

#[test]
fn a_cluster_url_gives_a_client_for_each_node_and_for_those_it_names() {
    let seeds = servers("redis-cluster://ann:p%40ss@a,[::1]:7000,b:1/").unwrap();
    assert_eq!(shown(&seeds), ["a:6379", "::1:7000", "b:1"]);
    let other = Endpoint::new("c", 2).client(&seeds[0]);
    assert_eq!(address(&other), "c:2");
    assert_eq!(login(&other), (Some("ann"), Some("p@ss"), 0));
    assert!(other.get_connection_info().tcp_settings().nodelay());
}

#[test]
#[cfg(feature = "tls")]
fn every_node_of_a_cluster_with_tls_is_spoken_to_with_tls() {
    let seeds = servers("rediss-cluster://a,b").unwrap();
    let other = Endpoint::new("c", 2).client(&seeds[0]);
    assert!(matches!(
        other.get_connection_info().addr(),
        redis::ConnectionAddr::TcpTls { host, port: 2, insecure: false, .. } if host == "c"
    ));
}

#[test]
fn a_sentinel_url_names_sentinels_primary_and_two_logins() {
    let text = "redis-sentinel://ann:p%40s,s@a,b:7000,[::1]:7001,a:26379/my%20primary/3\
                ?sentinel-user=sam&sentinel-password=x+%2By&grace=on";
    let url = StoreUrl::parse(text).unwrap();
    let sentinels: Vec<_> = url.hosts.iter().map(ToString::to_string).collect();
    assert_eq!(sentinels, ["a:26379", "b:7000", "[::1]:7001"]);
    assert_eq!((url.primary.as_str(), url.grace), ("my primary", true));
    assert_eq!(login(&url.login().unwrap()), (Some("ann"), Some("p@s,s"), 3));
    assert_eq!(login(&url.sentinel_login().unwrap()), (Some("sam"), Some("x++y"), 0));
}

#[test]
fn a_login_for_the_primary_is_not_one_for_sentinels() {
    let url = StoreUrl::parse("redis-sentinel://ann:secret@a/primary").unwrap();
    assert_eq!(login(&url.sentinel_login().unwrap()), (None, None, 0));
    assert!(!url.grace);
}

#[test]
fn a_quorum_url_names_every_node_and_what_they_share() {
    let nodes = servers("redlock://ann:p%40,s@a,b:7000,[::1]/3").unwrap();
    assert_eq!(shown(&nodes), ["a:6379", "b:7000", "::1:6379"]);
    assert!(nodes.iter().all(|node| login(node) == (Some("ann"), Some("p@,s"), 3)));
    assert_eq!(servers("redlock://a,b,c,d").unwrap().len(), 4);
}

#[test]
fn every_node_gets_the_password_of_the_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "from a file\n").unwrap();
    let url = format!("redlock://a,b,c?password-file={}", file.path().display());
    for node in servers(&url).unwrap() {
        assert_eq!(login(&node).1, Some("from a file"));
    }
}

#[test]
fn bad_urls_say_what_is_allowed_and_hide_the_password() {
    for (bad, expected) in [
        ("redis://", "a host name"),
        ("redis://a,b", "a host name"),
        ("redis://:secret@h/x", "a database number"),
        ("redis://:secret@h?what=1", "password-file, ca"),
        ("redis://:secret@h?ca=/nowhere", "rediss://"),
        ("rediss://:secret@h?ca=/nowhere", "a readable file"),
        ("redis://h?password-file=/dev/zero", "a file of at most 1 MiB"),
        ("rediss://:secret@h?ca=/etc/hostname", "PEM"),
        ("redis://u:1?secret@h", "…"),
        ("redis://u:1#secret@h", "%23"),
        ("redis-cluster:", "redis-cluster://"),
        ("redis-cluster://", "redis-cluster://"),
        ("redis-cluster://:secret@", "redis-cluster://"),
        ("redis-cluster://:secret@a,,b", "redis-cluster://"),
        ("redis-cluster://:secret@a:x,b", "redis-cluster://"),
        ("redis-cluster://:secret@a,b/1", "no database"),
        ("redis-cluster://:secret@a,b?what=1", "password-file"),
        ("redis-sentinel:///primary", "redis-sentinel://"),
        ("redis-sentinel://a", "the name of the primary"),
        ("redis-sentinel://a/", "the name of the primary"),
        ("redis-sentinel://a,,b/primary", "redis-sentinel://"),
        ("redis-sentinel://a:x/primary", "redis-sentinel://"),
        ("redis-sentinel://:secret@a/primary/x", "a database number"),
        ("redis-sentinel://:secret@a/primary?what=1", "sentinel-user"),
        ("redis-sentinel://a/primary?sentinel-password=secret&grace=yes", "on or off"),
        ("redis-sentinel://a/primary?sentinel-password=secret&ca=/nowhere", "rediss-sentinel://"),
        ("redis-sentinel://a/primary?tls=on&ca=/nowhere", "a readable file"),
        ("redis-sentinel://a/primary?sentinel-password=se@secret&what=1", "grace"),
        ("redis-sentinel://u:1?secret@a/primary", "…"),
        ("redis-sentinel://u:1#secret@a/primary", "%23"),
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
        ("redlock://:secret@a,b,c?what=1", "password-file"),
        ("redlock://:secret@a,b,c?admit=new", "password-file"),
        ("redlock://:secret@a,b,c?ca=x", "redlocks://"),
        ("redlock://:1#secret@a,b,c", "%23"),
        ("redlock://u:1?secret@a,b,c", "hosts"),
        ("redlock:u:secret@a,b,c", "redlock://"),
    ] {
        if bad.contains("ca=/") && cfg!(not(feature = "tls")) {
            continue;
        }
        let Some(error) = servers(bad).err() else { panic!("{bad} was taken") };
        let text = error.to_string();
        assert!(text.contains(expected) && !text.contains("secret"), "{bad}: {text}");
    }
    let many = (0..16).map(|n| format!("h{n}")).collect::<Vec<_>>().join(",");
    assert!(servers(&format!("redlock://{many}")).is_err());
}
