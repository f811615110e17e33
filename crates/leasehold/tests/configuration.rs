//! Settings from a file and an environment. No test touches the environment of this process.

use std::{os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use leasehold::{
    Config, Leasehold, Result, Retry, Settings,
    config::{ChosenBy, Sources},
};
use tempfile::TempDir;

/// A folder with a `leasehold.toml`.
fn folder(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leasehold.toml");
    std::fs::write(&path, text).unwrap();
    // Whatever the umask.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    (folder, path)
}

fn env(set: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> + use<> {
    let set: Vec<_> = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    move |name| set.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

fn load(text: &str, set: &[(&str, &str)]) -> Result<Settings> {
    let (_folder, path) = folder(text);
    Settings::load(&Sources { file: Some(&path), ..Sources::new(&env(set)) })
}

fn refused(text: &str, set: &[(&str, &str)]) -> String {
    let error = load(text, set).expect_err(text);
    assert_eq!(error.kind().as_str(), "invalid", "{error}");
    error.to_string()
}

/// Every setting as text.
fn shown(settings: &Settings) -> Vec<(&'static str, String)> {
    let Config {
        ttl, wait, retry, command_timeout, max_ttl, prefix, connections, max_in_flight, label, ..
    } = &settings.config;
    vec![
        ("store", settings.store.clone().unwrap_or_default()),
        ("prefix", prefix.clone()),
        ("label", label.clone()),
        ("default-ttl", format!("{ttl:?}")),
        ("acquisition-timeout", format!("{wait:?}")),
        ("retry-interval", format!("{:?}", *retry == Retry::fixed(Duration::from_millis(70)))),
        ("command-timeout", format!("{command_timeout:?}")),
        ("max-ttl", format!("{max_ttl:?}")),
        ("connections", connections.to_string()),
        ("max-in-flight", max_in_flight.to_string()),
    ]
}

/// Key, its value in the file, in the environment, and how both and the default are shown.
const LAYERS: [(&str, &str, &str, [&str; 3]); 10] = [
    ("store", "'memory:file'", "memory:env", ["memory:file", "memory:env", ""]),
    ("prefix", "'file:'", "env:", ["file:", "env:", "lock:"]),
    ("label", "'file'", "env", ["file", "env", ""]),
    ("default-ttl", "'7s'", "8s", ["7s", "8s", "30s"]),
    ("acquisition-timeout", "'1m30s'", "0s", ["90s", "0ns", "5s"]),
    ("retry-interval", "'70ms'", "80ms", ["true", "false", "false"]),
    ("command-timeout", "'250ms'", "1s", ["250ms", "1s", "2s"]),
    ("max-ttl", "'10m'", "1h", ["600s", "3600s", "300s"]),
    ("connections", "2", "3", ["2", "3", "1"]),
    ("max-in-flight", "20", "30", ["20", "30", "1000"]),
];

#[test]
fn each_setting_is_taken_from_the_environment_then_the_file_then_the_default() {
    let all = LAYERS.map(|(key, in_file, ..)| format!("{key} = {in_file}")).join("\n");
    let from_file = shown(&load(&all, &[]).unwrap());
    let defaults = shown(&load("", &[]).unwrap());
    for (at, (key, _, in_env, [file_shown, env_shown, default])) in LAYERS.into_iter().enumerate() {
        let variable = format!("LEASEHOLD_{}", key.replace('-', "_").to_uppercase());
        let mut expected = from_file.clone();
        assert_eq!(from_file[at], (key, file_shown.to_owned()));
        assert_eq!(defaults[at], (key, default.to_owned()));
        expected[at].1 = env_shown.to_owned();
        assert_eq!(shown(&load(&all, &[(&variable, in_env)]).unwrap()), expected, "{variable}");
        let alone = load("", &[(&variable, in_env)]).unwrap();
        assert_eq!(shown(&alone)[at].1, env_shown, "{variable}");
        if key != "prefix" && key != "label" {
            assert_eq!(shown(&load(&all, &[(&variable, "")]).unwrap()), from_file, "{variable}");
        }
    }
}

#[test]
fn a_prefix_can_be_set_to_nothing() {
    assert_eq!(load("prefix = 'x'", &[("LEASEHOLD_PREFIX", "")]).unwrap().config.prefix, "");
    assert_eq!(load("prefix = ''", &[]).unwrap().config.prefix, "");
}

#[test]
fn lock_ttl_is_milliseconds_and_comes_after_the_file() {
    let ttl = |text: &str, set: &[(&str, &str)]| load(text, set).unwrap().config.ttl.as_millis();
    let lock_ttl = ("LOCK_TTL", "5000");
    assert_eq!(ttl("", &[lock_ttl]), 5_000);
    assert_eq!(ttl("", &[("LOCK_TTL", "7s")]), 7_000);
    assert_eq!(ttl("default-ttl = '6s'", &[lock_ttl]), 6_000);
    assert_eq!(ttl("", &[lock_ttl, ("LEASEHOLD_DEFAULT_TTL", "4s")]), 4_000);
    assert_eq!(ttl("default-ttl = '6s'", &[("LOCK_TTL", "of another program")]), 6_000);
    assert!(refused("", &[("LOCK_TTL", "0")]).starts_with("invalid LOCK_TTL \"0ns\""));
}

#[test]
fn the_store_is_the_first_that_is_named() {
    let (_folder, path) = folder("store = 'memory:file'");
    let (_none, empty) = folder("");
    let redis = ("REDIS_HOST", "cache");
    let own = ("LEASEHOLD_STORE", "memory:variable");
    let load = |set: &[(&str, &str)], file: &std::path::Path, store: Option<&str>| {
        let settings =
            Settings::load(&Sources { file: Some(file), store, ..Sources::new(&env(set)) }).unwrap();
        (settings.store, settings.chosen_by)
    };
    let chosen = |url: &str, by: ChosenBy| (Some(url.to_owned()), Some(by));
    assert_eq!(load(&[redis, own], &path, Some("memory:code")), chosen("memory:code", ChosenBy::Caller));
    let by_variable = ChosenBy::Variable("LEASEHOLD_STORE");
    assert_eq!(load(&[redis, own], &path, None), chosen("memory:variable", by_variable));
    let by_file = ChosenBy::File(path.display().to_string());
    assert_eq!(load(&[redis], &path, None), chosen("memory:file", by_file));
    assert_eq!(load(&[redis], &empty, None), chosen("redis://cache:6379", ChosenBy::Variable("REDIS_HOST")));
    assert_eq!(load(&[], &empty, None), (None, None));
    let full = [redis, ("REDIS_PORT", "tcp://10.0.0.1:7000"), ("REDIS_PASSWORD", "p@ss/w%rd")];
    assert_eq!(load(&full, &empty, None).0.as_deref(), Some("redis://:p%40ss%2Fw%25rd@cache:7000"));
}

#[test]
fn a_nearer_file_wins_key_by_key_and_policy_by_policy() {
    let (near, _) = folder("label = 'near'\n[locks.a]\nkey = 'near'");
    let (user, _) = folder("");
    std::fs::create_dir(user.path().join("leasehold")).unwrap();
    std::fs::set_permissions(user.path().join("leasehold"), PermissionsExt::from_mode(0o755)).unwrap();
    let text = "label = 'user'\nprefix = 'user:'\n[locks.a]\nkey = 'user'\n[locks.b]\nkey = 'user'";
    let of_user = user.path().join("leasehold/leasehold.toml");
    std::fs::write(&of_user, text).unwrap();
    std::fs::set_permissions(&of_user, PermissionsExt::from_mode(0o644)).unwrap();
    let (_host, of_host) =
        folder("prefix = 'host:'\nconnections = 7\n[markers.m]\nkey = 'm:{id}'\nttl = '1ms'");
    let env = env(&[("XDG_CONFIG_HOME", user.path().to_str().unwrap())]);
    let sources = Sources { directory: near.path(), host_file: &of_host, ..Sources::new(&env) };
    let error = Settings::load(&sources).unwrap_err().to_string();
    assert!(error.contains(&format!("ttl in [markers.m] of {}", of_host.display())), "{error}");
    std::fs::write(&of_host, "prefix = 'host:'\nconnections = 7").unwrap();
    let settings = Settings::load(&sources).unwrap();
    let Config { label, prefix, connections, .. } = &settings.config;
    assert_eq!((label.as_str(), prefix.as_str(), *connections), ("near", "user:", 7));
    let keys: Vec<_> = settings.policies.locks().map(|policy| policy.template()).collect();
    assert_eq!(keys, ["near", "user"]);
    assert_eq!(settings.files, [near.path().join("leasehold.toml"), of_user, of_host.clone()]);
    std::fs::write(&of_host, "connections = 65").unwrap();
    let error = Settings::load(&sources).unwrap_err().to_string();
    assert!(error.starts_with(&format!("invalid connections in {}", of_host.display())), "{error}");
}

#[test]
fn the_file_is_named_or_lies_in_the_directory() {
    let (folder, path) = folder("label = 'by file'");
    let folder = folder.path();
    let other = folder.join("other.toml");
    std::fs::write(&other, "label = 'by variable'").unwrap();
    let label = |sources: Sources<'_>| Settings::load(&sources).map(|settings| settings.config.label);
    let named = env(&[("LEASEHOLD_CONFIG", other.to_str().unwrap())]);
    let unnamed = env(&[]);
    assert_eq!(label(Sources { file: Some(&path), ..Sources::new(&named) }).unwrap(), "by file");
    assert_eq!(label(Sources { directory: folder, ..Sources::new(&named) }).unwrap(), "by variable");
    assert_eq!(label(Sources { directory: folder, ..Sources::new(&unnamed) }).unwrap(), "by file");
    assert_eq!(label(Sources { directory: &folder.join("none"), ..Sources::new(&unnamed) }).unwrap(), "");
    let gone = env(&[("LEASEHOLD_CONFIG", "no/such.toml")]);
    assert!(label(Sources::new(&gone)).unwrap_err().to_string().contains("no/such.toml"));
}

#[test]
fn what_is_wrong_in_a_file_is_told_with_the_file_and_what_is_expected() {
    for (text, why) in [
        (
            "defualt-ttl = '1s'",
            "leasehold.toml \"defualt-ttl\": expected one of acquisition-timeout, command-timeout, connections, default-ttl, idempotency, label, locks, markers, max-in-flight, max-ttl, prefix, retry-interval, store; did you mean \"default-ttl\"?",
        ),
        ("default_ttl = '1s'", "did you mean \"default-ttl\"?"),
        ("default-ttl = 30", "leasehold.toml \"30\": expected a number with a unit, such as 30s or 30ms"),
        ("default-ttl = '10m'", "leasehold.toml \"600s\": expected 50ms to 300s"),
        ("max-ttl = '25h'", "leasehold.toml \"90000s\": expected 50ms to 86400s"),
        ("max-ttl = '10s'", "invalid default-ttl (not set, so the default) \"30s\": expected 50ms to 10s"),
        ("acquisition-timeout = '366d'", "acquisition-timeout in"),
        ("retry-interval = '0s'", "retry-interval in"),
        ("retry-interval = '61s'", "retry-interval in"),
        ("command-timeout = '9ms'", "command-timeout in"),
        ("connections = 0", "expected 1 to 64"),
        ("connections = '2'", "<string>\": expected a whole number"),
        ("max-in-flight = 100001", "max-in-flight in"),
        ("prefix = \"a\\nb\"", "prefix in"),
        ("label = 7", "<integer>\": expected text in quotes"),
        ("store = ", "leasehold.toml line 1"),
        ("[locks.a]\nkey = 'a'\nttl = '301s'", "invalid ttl in [locks.a] of"),
        ("[locks.a]\nkey = 'a'\ncritical = true\non-outage = 'proceed'", "because the lock is critical"),
    ] {
        let error = refused(text, &[]);
        assert!(error.contains(why), "{text}\n{error}");
        assert!(error.contains("leasehold.toml") || error.contains("not set"), "{error}");
    }
}

#[test]
fn what_is_wrong_in_the_environment_is_told_with_the_variable() {
    for (variable, value, why) in [
        ("LEASEHOLD_DEFAULT_TTL", "30", "a number with a unit, such as 30s or 30ms"),
        ("LEASEHOLD_DEFAULT_TTL", "1ms", "expected 50ms to 300s"),
        ("LEASEHOLD_CONNECTIONS", "many", "a whole number"),
        ("LEASEHOLD_CONNECTIONS", "65", "1 to 64"),
        ("LEASEHOLD_MAX_IN_FLIGHT", "-1", "a whole number"),
        ("LEASEHOLD_RETRY_INTERVAL", "often", "250ms"),
    ] {
        let error = refused("", &[(variable, value)]);
        assert!(error.starts_with(&format!("invalid {variable} ")) && error.contains(why), "{error}");
    }
}

#[test]
fn a_policy_over_the_limit_is_allowed_by_either_max_ttl() {
    let policy = "[locks.a]\nkey = 'a'\nttl = '1h'";
    assert!(load(&format!("max-ttl = '1h'\n{policy}"), &[]).is_ok());
    assert!(load(policy, &[("LEASEHOLD_MAX_TTL", "1h")]).is_ok());
    let lowered = refused(&format!("max-ttl = '1h'\n{policy}"), &[("LEASEHOLD_MAX_TTL", "5m")]);
    assert!(lowered.contains("\"3600s\": expected 50ms to 300s"), "{lowered}");
}

#[test]
fn no_password_is_shown() {
    let settings = load("store = 'redis://:hunter2@h'", &[]).unwrap();
    assert!(!format!("{settings:?}").contains("hunter2"));
    let error = refused("store = 'redis://:hunter2@h", &[]);
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn settings_without_a_store_make_no_client() {
    let error = Leasehold::from_settings(Settings::default()).err().unwrap();
    assert!(error.to_string().contains("LEASEHOLD_STORE"), "{error}");
}

#[cfg(feature = "memory")]
#[tokio::test]
async fn a_client_is_made_as_the_settings_say_and_code_has_the_last_word() {
    let text = "store = 'memory:'\ndefault-ttl = '10s'\n[locks.a]\nkey = 'a:{x}'\nttl = '20s'";
    let mut settings = load(text, &[("LEASEHOLD_LABEL", "job")]).unwrap();
    settings.config.ttl = Duration::from_secs(5);
    let leases = Leasehold::from_settings(settings).unwrap().connect().await.unwrap();
    let plain = leases.lock("plain").acquire().await.unwrap();
    assert!(plain.remaining() <= Duration::from_secs(5));
    let policy = leases.lock_policy("a").unwrap().key([("x", 1)]).acquire().await.unwrap();
    assert!(policy.remaining() > Duration::from_secs(10));
    let changed =
        leases.lock_policy("a").unwrap().key([("x", 2)]).ttl(Duration::from_secs(2)).acquire().await.unwrap();
    assert!(changed.remaining() <= Duration::from_secs(2));
    let inspection = leases.inspect("plain").await.unwrap();
    assert!(format!("{inspection:?}").contains("job"), "{inspection:?}");
}

#[cfg(feature = "redis")]
mod in_a_process_of_its_own {
    use leasehold_testkit::{Helper, RedisServer};

    use super::*;

    /// Takes a lock as its environment says, and holds it.
    pub(super) fn play(role: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let leases = Leasehold::from_env().await.unwrap();
            let (policy, parameter) = role.split_once(' ').unwrap();
            let _guard = leases.lock_policy(policy).unwrap().key([(parameter, 7)]).acquire().await.unwrap();
            Helper::say("holding");
            std::future::pending::<()>().await;
        });
    }

    #[test]
    fn the_variables_of_a_redis_with_a_password_and_a_file_of_policies_are_enough() {
        let password = "p@ss:w/o?r#d%41";
        let Some(server) = RedisServer::builder().password(password).start_or_skip() else { return };
        let port = format!("tcp://127.0.0.1:{}", server.port());
        for (file, role, key, ttl_ms) in [
            ("escrow", "payout deal_id", "lock:payout:7", 60_000),
            ("invoices", "process-invoice invoice_id", "process:invoice:7", 10_000),
        ] {
            let file = format!("{}/../../policies/{file}.toml", env!("CARGO_MANIFEST_DIR"));
            let variables = [
                ("LEASEHOLD_CONFIG", file.as_str()),
                ("LEASEHOLD_STORE", ""),
                ("REDIS_HOST", ""),
                ("REDIS_PORT", port.as_str()),
                ("REDIS_PASSWORD", password),
            ];
            // Those of a test run are not settings; an empty one counts as unset.
            let names = std::env::vars().map(|(name, _)| name);
            let of_run: Vec<_> = names.filter(|name| name.starts_with("LEASEHOLD_")).collect();
            let of_run = of_run.iter().map(|name| (name.as_str(), ""));
            let variables: Vec<_> = of_run.chain(variables).collect();
            let holder = Helper::spawn(role, &variables);
            holder.wait_for_line("holding", Duration::from_secs(10));
            let left = server.cli(&["PTTL", key]).int();
            assert!(left > ttl_ms / 2 && left <= ttl_ms, "{key}: {left}");
        }
    }
}

#[cfg(feature = "redis")]
#[test]
fn helper_process() {
    if let Some(role) = leasehold_testkit::Helper::role() {
        in_a_process_of_its_own::play(&role);
    }
}
