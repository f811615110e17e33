//! A `leasehold.toml` that somebody else could have written.

use std::{
    fs,
    io::{self, ErrorKind, Write},
    net::TcpListener,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use crate::sandbox::{Ran, Sandbox};

const NOBODY: u32 = 65534;
const SOMEBODY: u32 = 54321;

/// A folder with a `leasehold.toml`, inside of a sandbox that everybody can enter.
struct Project {
    sandbox: Sandbox,
    folder: PathBuf,
    file: PathBuf,
}

impl Project {
    fn with(text: &str) -> Self {
        let sandbox = Sandbox::new();
        let folder = sandbox.path("project");
        mode(&sandbox.path("."), 0o755);
        fs::create_dir(&folder).unwrap();
        let file = sandbox.write("project/leasehold.toml", text);
        mode(&folder, 0o755);
        let own = sandbox.path(".config/leasehold");
        fs::create_dir_all(&own).unwrap();
        mode(&own, 0o755);
        sandbox.write(".config/leasehold/leasehold.toml", "store = 'memory:own'");
        Self { sandbox, folder, file }
    }

    fn owned_by(self, owner: u32) -> Self {
        chown(&self.folder, Some(owner), Some(owner)).unwrap();
        chown(&self.file, Some(owner), Some(owner)).unwrap();
        self
    }

    /// `leasehold doctor`, which takes any store, in this folder.
    fn command(&self, user: Option<u32>) -> Command {
        let mut command = self.sandbox.storeless_command(&["doctor"]);
        command.current_dir(&self.folder);
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Whether the file decides about the store; if not, the command says why.
    fn is_read(&self, user: Option<u32>) -> bool {
        let said = self.sandbox.run_command(self.command(user));
        assert_eq!(said.code, Some(0), "{said}");
        let is_read = said.stderr.contains("store: memory:project (chosen by leasehold.toml)");
        assert_eq!(said.stderr.starts_with("warning: ignored leasehold.toml: "), !is_read, "{said}");
        is_read
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Only root can give files away; the harness must not hide that others skip.
fn is_root_or_skip() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        io::stderr().write_all(b"skipped: files of other users need root\n").unwrap();
    }
    is_root
}

#[test]
fn a_file_is_read_only_if_nobody_else_can_write_it_or_its_folder() {
    let project = Project::with("store = 'memory:project'");
    for (folder, file, is_read) in [
        (0o755, 0o644, true),
        (0o700, 0o600, true),
        (0o755, 0o664, false),
        (0o755, 0o646, false),
        (0o775, 0o644, false),
        (0o1777, 0o644, false),
    ] {
        mode(&project.folder, folder);
        mode(&project.file, file);
        assert_eq!(project.is_read(None), is_read, "folder {folder:o}, file {file:o}");
    }
}

#[test]
fn a_link_is_trusted_as_little_as_what_it_leads_to() {
    let project = Project::with("");
    let target = project.sandbox.write("elsewhere.toml", "store = 'memory:project'");
    fs::remove_file(&project.file).unwrap();
    std::os::unix::fs::symlink(&target, &project.file).unwrap();
    assert!(project.is_read(None));
    mode(&project.sandbox.path("."), 0o777);
    assert!(!project.is_read(None), "somebody else could have put it there");
}

#[test]
fn a_file_is_read_only_if_it_belongs_to_its_reader_or_to_root() {
    if !is_root_or_skip() {
        return;
    }
    let of = |owner| Project::with("store = 'memory:project'").owned_by(owner);
    for (owner, reader, is_read) in [
        (NOBODY, None, false),
        (NOBODY, Some(NOBODY), true),
        (0, Some(NOBODY), true),
        (SOMEBODY, Some(NOBODY), false),
    ] {
        assert_eq!(of(owner).is_read(reader), is_read, "of {owner}, read by {reader:?}");
    }
    let mixed = of(NOBODY);
    chown(&mixed.file, Some(0), Some(0)).unwrap();
    assert!(!mixed.is_read(None), "the owner of a folder can put any file there");
}

#[test]
fn where_a_foreign_file_is_ignored_the_users_own_one_counts() {
    let project = Project::with("store = 'memory:project'");
    mode(&project.file, 0o666);
    let own = project.sandbox.path(".config/leasehold/leasehold.toml");
    let run = || {
        let mut command = project.command(None);
        command.env("REDIS_PORT", "1");
        project.sandbox.run_command(command)
    };
    assert!(run().stderr.contains("store: memory:own"), "{}", run());
    // A home may be another user's, as under sudo.
    mode(&own, 0o666);
    assert!(run().stderr.contains("(chosen by REDIS_PORT)"), "{}", run());
}

#[test]
fn no_secret_is_sent_where_a_foreign_file_says() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let project = Project::with("");
    let secret = project.sandbox.write("secret", "of root");
    let port = server.local_addr().unwrap().port();
    let url = format!("redis://127.0.0.1:{port}?password-file={}", secret.display());
    fs::write(&project.file, format!("store = '{url}'")).unwrap();
    mode(&project.file, 0o666);
    let ran = |command: Command| -> Ran { project.sandbox.run_command(command) };
    assert_eq!(ran(project.command(None)).code, Some(0));
    // Named, it counts: but not for what a password is read from.
    let mut named = project.command(None);
    named.env("LEASEHOLD_CONFIG", &project.file);
    let named = ran(named);
    assert_eq!(named.code, Some(64), "{named}");
    assert!(named.stderr.contains("expected a URL without password-file"), "{named}");
    assert_eq!(server.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "nobody came");
}
