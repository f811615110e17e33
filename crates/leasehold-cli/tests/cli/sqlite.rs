//! Database files that processes share only seemingly, and files that another user controls.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown, symlink},
        process::CommandExt,
    },
    path::Path,
};

use crate::sandbox::{BINARY, Ran, Sandbox, skip};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const NOBODY: u32 = 65534;

/// Whether a mount namespace can be made here, and something mounted in it.
fn can_mount(sandbox: &Sandbox, mount: &str) -> bool {
    let mut command = sandbox.program("unshare");
    command.args(["-m", "sh", "-c", mount]);
    let able = command.output().is_ok_and(|ran| ran.status.success());
    if !able {
        skip(&format!("`{mount}` in a mount namespace is not possible here"));
    }
    able
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("only root can give a file to another user");
    }
    is_root
}

/// Runs `leasehold` in a mount namespace of its own, after a command that mounts something there.
fn run_with_mount(sandbox: &Sandbox, mount: &str, words: &[&str]) -> Ran {
    let mut command = sandbox.program("unshare");
    command.args(["-m", "sh", "-c", &format!(r#"{mount} && exec "$0" "$@""#), BINARY]).args(words);
    sandbox.run_command(command)
}

/// The words that take a lock for two minutes, or fail at once.
fn take<'a>(store: &'a str, handle: &'a str) -> [&'a str; 9] {
    ["--store", store, "lock", "acquire", "x", "--nonblock", "--ttl=2m", "--handle", handle]
}

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

fn assert_refused(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, Some(code), "{ran}");
    for word in words {
        assert!(ran.stderr.contains(word), "{word:?} is missing: {ran}");
    }
}

#[test]
fn containers_with_a_boot_id_of_their_own_do_not_share_a_file() {
    let sandbox = Sandbox::new();
    if !can_mount(&sandbox, "mount --bind . .") {
        return;
    }
    for (file, id) in [("one", "11111111"), ("other", "22222222")] {
        fs::write(sandbox.path(file), format!("{id}-0000-4000-8000-000000000000\n")).unwrap();
    }
    let in_container = |boot_id: &str, words: &[&str]| {
        run_with_mount(&sandbox, &format!("mount --bind {boot_id} {BOOT_ID}"), words)
    };
    let first = in_container("one", &take(sandbox.store(), "first"));
    let second = in_container("other", &take(sandbox.store(), "second"));
    assert!([first.code, second.code] != [Some(0); 2], "two holders:\n{first}\n{second}");
    assert_refused(&first, 70, &["boot id", "?shared-by=container", "redis://"]);
    assert_refused(&in_container("other", &["doctor"]), 70, &["boot id"]);

    // Inside of one container its own boot id is as good as the kernel's.
    let own = format!("{}?shared-by=container", sandbox.store());
    assert_eq!(in_container("one", &take(&own, "third")).code, Some(0));
    assert_eq!(in_container("one", &take(&own, "fourth")).code, Some(1));
    let doctor = in_container("one", &["doctor", "--store", &own]);
    assert!(doctor.stdout.contains("shared by\tthe processes of this container"), "{doctor}");
}

#[test]
fn a_database_file_that_is_mounted_alone_is_refused() {
    let sandbox = Sandbox::new();
    if !can_mount(&sandbox, "mount --bind . .") {
        return;
    }
    let _holder = sandbox.start_script(&[], "x", "sleep 60");
    fs::create_dir(sandbox.path("container")).unwrap();
    let seen = sandbox.path("container/locks.db");
    fs::write(&seen, "").unwrap();
    let store = url(&seen);
    let alone = "mount --bind locks.db container/locks.db";
    let second = run_with_mount(&sandbox, alone, &take(&store, "second"));
    assert_refused(&second, 77, &["container/locks.db is a mount point", "mount its directory"]);
    let doctor = run_with_mount(&sandbox, alone, &["doctor", "--store", &store]);
    assert_refused(&doctor, 77, &["mount point"]);
    // The directory may be mounted.
    let busy = run_with_mount(&sandbox, "mount --bind . container", &take(&store, "third"));
    assert_eq!(busy.code, Some(1), "{busy}");
}

#[test]
fn a_log_that_is_mounted_beside_the_database_is_refused() {
    let sandbox = Sandbox::new();
    if !can_mount(&sandbox, "mount --bind . .") {
        return;
    }
    for suffix in ["-wal", "-shm"] {
        let log = sandbox.path(&format!("locks.db{suffix}"));
        fs::write(sandbox.path("other"), "").unwrap();
        fs::write(&log, "").unwrap();
        let mount = format!("mount --bind other locks.db{suffix}");
        let ran = run_with_mount(&sandbox, &mount, &take(sandbox.store(), "handle"));
        assert_refused(&ran, 77, &[&format!("locks.db{suffix} is a mount point")]);
        fs::remove_file(&log).unwrap();
    }
}

#[test]
fn only_a_file_system_that_is_known_to_be_local_is_taken_without_a_word() {
    let sandbox = Sandbox::new();
    for folder in ["at", "lower", "upper", "work"] {
        fs::create_dir(sandbox.path(folder)).unwrap();
    }
    let store = url(&sandbox.path("at/x.db"));
    let overlay = "mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none at";
    for (mount, name) in [("mount -t tmpfs none at", "tmpfs"), (overlay, "overlay")] {
        if !can_mount(&sandbox, mount) {
            continue;
        }
        let doctor = run_with_mount(&sandbox, mount, &["doctor", "--store", &store]);
        assert_eq!(doctor.code, Some(0), "{doctor}");
        assert!(doctor.stdout.contains(&format!("file system\t{name}\n")), "{doctor}");
    }
    let unlisted = "mount -t hugetlbfs none at";
    if can_mount(&sandbox, unlisted) {
        let doctor = run_with_mount(&sandbox, unlisted, &["doctor", "--store", &store]);
        assert_refused(&doctor, 77, &["(hugetlbfs) that other hosts may share", "?shared-by=host"]);
    }
}

#[test]
fn a_database_file_with_a_second_name_is_refused_under_both() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&[], "x", "sleep 60");
    fs::create_dir(sandbox.path("other")).unwrap();
    let other = sandbox.path("other/locks.db");
    fs::hard_link(sandbox.path("locks.db"), &other).unwrap();
    let second = sandbox.run(&take(&url(&other), "second"));
    assert_refused(&second, 77, &["2 hard links", "remove"]);
    assert_refused(&sandbox.run(&["doctor"]), 77, &["2 hard links"]);
    fs::remove_file(&other).unwrap();
    assert_eq!(sandbox.run(&["doctor"]).code, Some(0));
}

#[test]
fn a_symbolic_link_is_no_database_file_but_may_lead_to_its_directory() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["ls"]).code, Some(0));
    symlink("locks.db", sandbox.path("link.db")).unwrap();
    let refused = sandbox.run(&["ls", "--store", &url(&sandbox.path("link.db"))]);
    assert_refused(&refused, 64, &["symbolic link"]);
    symlink(".", sandbox.path("here")).unwrap();
    assert_eq!(sandbox.run(&take(sandbox.store(), "first")).code, Some(0));
    assert_eq!(sandbox.run(&take(&url(&sandbox.path("here/locks.db")), "second")).code, Some(1));
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn run_as(sandbox: &Sandbox, user: u32, group: u32, words: &[&str]) -> Ran {
    let mut command = sandbox.command(words);
    command.uid(user).gid(group);
    sandbox.run_command(command)
}

/// A directory in which everybody may create files, and only owners may remove them.
fn sticky(sandbox: &Sandbox) -> std::path::PathBuf {
    let directory = sandbox.path("sticky");
    fs::create_dir(&directory).unwrap();
    chmod(&directory, 0o1777);
    directory
}

#[test]
fn what_another_user_planted_in_a_directory_of_all_is_refused() {
    if !is_root() {
        return;
    }
    for planted in ["x.db", "x.db-wal", "x.db-shm", "x.db-journal"] {
        let sandbox = Sandbox::new();
        let directory = sticky(&sandbox);
        fs::write(directory.join(planted), "").unwrap();
        chown(directory.join(planted), Some(NOBODY), None).unwrap();
        let ran = sandbox.run(&take(&url(&directory.join("x.db")), "handle"));
        assert_refused(&ran, 77, &[&format!("{planted} belongs to user {NOBODY}"), "another directory"]);
    }
    // Nor is a whole directory of theirs.
    let sandbox = Sandbox::new();
    let theirs = sticky(&sandbox).join("theirs");
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(NOBODY), None).unwrap();
    let ran = sandbox.run(&["doctor", "--store", &url(&theirs.join("x.db"))]);
    assert_refused(&ran, 77, &[&format!("theirs belongs to user {NOBODY}")]);
}

#[test]
fn files_of_ours_and_of_root_are_trusted_in_a_directory_of_all() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let directory = sticky(&sandbox);
    chmod(&sandbox.path(""), 0o755);
    let as_nobody = |words: &[&str]| run_as(&sandbox, NOBODY, NOBODY, words);
    let own = url(&directory.join("own.db"));
    let ran = as_nobody(&["--store", &own, "run", "x", "--", "true"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    assert_refused(&sandbox.run(&["ls", "--store", &own]), 77, &["own.db belongs to user"]);

    let roots = url(&directory.join("roots.db"));
    assert_eq!(sandbox.run(&["ls", "--store", &roots]).code, Some(0));
    chmod(&directory.join("roots.db"), 0o666);
    let ran = as_nobody(&["--store", &roots, "run", "x", "--", "true"]);
    assert_eq!(ran.code, Some(0), "{ran}");
}

#[test]
fn users_share_a_file_in_a_directory_of_their_group() {
    if !is_root() {
        return;
    }
    let (one, other, group) = (50_001, 50_002, 50_000);
    let sandbox = Sandbox::new();
    chmod(&sandbox.path(""), 0o755);
    let directory = sandbox.path("group");
    fs::create_dir(&directory).unwrap();
    chown(&directory, None, Some(group)).unwrap();
    chmod(&directory, 0o2770);
    let (store, handle) = (url(&directory.join("x.db")), directory.join("handle").display().to_string());
    let first = run_as(&sandbox, one, group, &take(&store, &handle));
    assert_eq!(first.code, Some(0), "{first}");
    chmod(&directory.join("x.db"), 0o660);
    let second = run_as(&sandbox, other, group, &["--store", &store, "run", "-n", "x", "--", "true"]);
    assert_eq!(second.code, Some(1), "{second}");
}

#[test]
fn doctor_warns_of_a_directory_that_everybody_can_replace() {
    let sandbox = Sandbox::new();
    let directory = sticky(&sandbox);
    fs::create_dir(directory.join("inner")).unwrap();
    let doctor = || sandbox.run(&["doctor", "--store", &url(&directory.join("inner/x.db"))]);
    assert_eq!(doctor().code, Some(0));
    chmod(&directory, 0o777);
    let ran = doctor();
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(
        ran.stdout.contains("warning replaceable\tevery user can replace [FOLDER]/sticky/inner"),
        "{ran}"
    );
}
