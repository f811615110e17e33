//! The store and the files of the host, in a mount namespace where `/var/lib` and `/etc` are folders of the sandbox.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use crate::sandbox::{BINARY, Ran, Sandbox, skip};

const USER: u32 = 50_001;
const GROUP: u32 = 50_000;

/// A host on which nothing was configured.
struct Host {
    sandbox: Sandbox,
}

impl Host {
    fn new_or_skip() -> Option<Self> {
        let sandbox = Sandbox::new();
        let mut mount = sandbox.program("unshare");
        mount.args(["-m", "mount", "--bind", ".", "/var/lib"]);
        if !rustix::process::geteuid().is_root() || !mount.output().is_ok_and(|ran| ran.status.success()) {
            skip("another /var/lib needs root and a mount namespace");
            return None;
        }
        let host = Self { sandbox };
        mode(&host.sandbox.path(""), 0o755);
        for folder in ["etc", "var-lib", "home"] {
            fs::create_dir(host.sandbox.path(folder)).unwrap();
            mode(&host.sandbox.path(folder), 0o755);
        }
        chown(host.sandbox.path("home"), Some(USER), Some(USER)).unwrap();
        Some(host)
    }

    /// The folder of the default store, as an administrator makes it.
    fn folder(&self, owner: u32, group: u32, bits: u32) -> PathBuf {
        let folder = self.sandbox.path("var-lib/leasehold");
        let _is_there = fs::create_dir(&folder);
        chown(&folder, Some(owner), Some(group)).unwrap();
        mode(&folder, bits);
        folder
    }

    fn run(&self, user: u32, words: &[&str]) -> Ran {
        let mounts = "mount --bind var-lib /var/lib && mount --bind etc /etc";
        let as_user = format!("exec setpriv --reuid {user} --regid {user} --groups {GROUP}");
        let mut command = self.sandbox.program("unshare");
        command
            .args(["-m", "sh", "-c", &format!(r#"{mounts} && {as_user} "$0" "$@""#), BINARY])
            .args(words)
            .env_remove("LEASEHOLD_STORE")
            .env_remove("XDG_STATE_HOME")
            .env("HOME", self.sandbox.path("home"));
        self.sandbox.run_command(command)
    }

    /// What the command says about its store.
    fn said(&self, user: u32) -> String {
        let ran = self.run(user, &["-v", "ls"]);
        assert_eq!(ran.code, Some(0), "{ran}");
        ran.stderr.trim_end().to_owned()
    }
}

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
}

const OF_HOST: &str = "sqlite:/var/lib/leasehold/leasehold.db";
const OF_USER: &str = "sqlite:[FOLDER]/home/.local/state/leasehold/leasehold.db";

#[test]
fn root_keeps_its_locks_to_itself_until_a_group_shares_them() {
    let Some(host) = Host::new_or_skip() else { return };
    assert_eq!(host.said(USER), format!("store: {OF_USER} (chosen by default)"));
    assert_eq!(
        host.said(0),
        format!(
            "store: {OF_HOST} (chosen by default; [FOLDER]/home/.local/state/leasehold/leasehold.db exists too)"
        )
    );
    let made = fs::metadata(host.sandbox.path("var-lib/leasehold")).unwrap();
    assert_eq!((made.uid(), made.mode() & 0o7777), (0, 0o700));
    // Also without -v, because their locks exclude nobody's but their own.
    let split = format!(
        "store: {OF_USER} (chosen by default; not /var/lib/leasehold, which this user cannot write)\n"
    );
    assert_eq!(host.run(USER, &["ls"]).stderr, split);
}

#[test]
fn a_group_shares_the_store_of_the_host() {
    let Some(host) = Host::new_or_skip() else { return };
    host.folder(0, GROUP, 0o2770);
    let handle = host.sandbox.path("handle").display().to_string();
    let taken = host.run(0, &["lock", "acquire", "x", "--handle", &handle]);
    assert_eq!((taken.code, taken.stderr.as_str()), (Some(0), ""), "{taken}");
    let busy = host.run(USER, &["run", "-n", "x", "--", "true"]);
    assert_eq!(busy.code, Some(1), "{busy}");
    assert_eq!(host.said(USER), format!("store: {OF_HOST} (chosen by default)"));
}

#[test]
fn a_folder_that_others_control_is_not_the_store_of_the_host() {
    let Some(host) = Host::new_or_skip() else { return };
    for (owner, bits, why) in
        [(0, 0o1777, "every user can write (chmod o-w)"), (4_711, 0o755, "belongs to user 4711")]
    {
        host.folder(owner, GROUP, bits);
        let besides = format!("not /var/lib/leasehold, which {why}");
        assert_eq!(host.said(USER), format!("store: {OF_USER} (chosen by default; {besides})"));
        let root = host.run(0, &["ls"]);
        assert_eq!(root.code, Some(64), "{root}");
        assert!(root.stderr.contains(&format!("/var/lib/leasehold, which {why}")), "{root}");
    }
}

#[test]
fn a_nearer_file_wins_over_that_of_the_host_key_by_key() {
    let Some(host) = Host::new_or_skip() else { return };
    host.sandbox.write(
        "etc/leasehold.toml",
        "store = 'memory:host'\ndefault-ttl = '7s'\n[locks.a]\nkey = 'a'\nttl = '2ms'",
    );
    let wrong = host.run(USER, &["doctor"]);
    assert_eq!(wrong.code, Some(64), "{wrong}");
    assert!(wrong.stderr.contains("ttl in [locks.a] of /etc/leasehold.toml"), "{wrong}");
    host.sandbox.write("leasehold.toml", "default-ttl = '8s'\n[locks.a]\nkey = 'b'");
    let shown = host.run(USER, &["doctor"]);
    assert_eq!(shown.stderr, "store: memory:host (chosen by /etc/leasehold.toml)\n", "{shown}");
    // It may name the store that all others use.
    mode(&host.sandbox.path("etc/leasehold.toml"), 0o600);
    let unread = host.run(USER, &["doctor"]);
    assert_eq!(unread.code, Some(64), "{unread}");
    let named = host.run(USER, &["doctor", "--store", "memory:"]);
    assert_eq!(named.code, Some(0), "{named}");
    assert!(named.stderr.starts_with("warning: ignored /etc/leasehold.toml: it cannot be read"), "{named}");
    mode(&host.sandbox.path("etc/leasehold.toml"), 0o644);
    host.sandbox.write("leasehold.toml", "store = 'memory:here'\n[locks.a]\nkey = 'b'");
    let shown = host.run(USER, &["run", "x", "--", "true"]);
    assert!(shown.stderr.contains("(chosen by leasehold.toml)"), "{shown}");
}
