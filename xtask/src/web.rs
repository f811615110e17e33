//! `cargo xtask web` and `cargo xtask browser`: the dashboard's files, which the service has in it, and its tests.
//!
//! Cargo alone builds the service, so the built files are in the repository. Everything that npm fetches or writes stays
//! in target/web, where the sources are copied to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use crate::cargo;
use crate::tally::Tally;

const SOURCES: &str = "web";
const COMMITTED: &str = "crates/leasehold-server/dist";
const SCREENSHOTS: &str = "docs/images/ui";
/// The oldest Node.js that the build accepts.
const NODE_MIN: (u32, u32) = (20, 19);

/// Builds the files anew, and writes them into the repository or, with `check`, compares them with what is there.
pub(crate) fn build(root: &Path, check: bool, tally: &mut Tally) -> bool {
    match built(root) {
        Err(Unable::Skipped(why)) => {
            tally.skips.add(1, &why);
            println!("skipped: {why}");
            true
        }
        Err(Unable::Failed(why)) => failed(&why),
        Ok(folder) => {
            settle(root, &folder.join("dist"), check).unwrap_or_else(|error| failed(&error.to_string()))
        }
    }
}

/// Runs the browser's tests on the real service; `screenshots` also writes the pictures of the documentation.
pub(crate) fn browser(root: &Path, screenshots: bool, tally: &mut Tally) -> bool {
    let Some(chromium) = ["chromium-headless-shell", "chromium"].into_iter().find(|name| runs(name)) else {
        tally.skips.add(1, "no `chromium-headless-shell` or `chromium` here");
        return true;
    };
    let folder = match installed(root) {
        Err(Unable::Skipped(why)) => {
            tally.skips.add(1, &why);
            return true;
        }
        Err(Unable::Failed(why)) => return failed(&why),
        Ok(folder) => folder,
    };
    if !cargo::succeeds(&mut cargo::command(root, &["build", "--quiet", "-p", "leasehold-cli"])) {
        return false;
    }
    let mut run = Command::new("node");
    run.current_dir(&folder).args(["--test", "--test-reporter=tap", "tests/"]);
    run.env("LEASEHOLD", cargo::target_folder(root).join("debug/leasehold")).env("CHROMIUM", chromium);
    if screenshots {
        run.env("SCREENSHOTS", root.join(SCREENSHOTS));
    }
    let mut counted = false;
    let succeeded = cargo::succeeds_reading(&mut run, |line| {
        println!("{line}");
        counted |= count(line, tally);
    });
    succeeded && counted
}

enum Unable {
    Skipped(String),
    Failed(String),
}

impl From<io::Error> for Unable {
    fn from(error: io::Error) -> Self {
        Unable::Failed(error.to_string())
    }
}

fn built(root: &Path) -> Result<PathBuf, Unable> {
    let folder = installed(root)?;
    let npm = |args: &[&str]| cargo::succeeds(Command::new("npm").current_dir(&folder).args(args));
    if !npm(&["run", "check"]) || !npm(&["run", "build", "--", "--outDir", "dist"]) {
        return Err(Unable::Failed("the dashboard does not build".into()));
    }
    Ok(folder)
}

/// A copy of the sources under target/, with their packages.
fn installed(root: &Path) -> Result<PathBuf, Unable> {
    if !node_is_new_enough() {
        let (major, minor) = NODE_MIN;
        return Err(Unable::Skipped(format!("no Node.js {major}.{minor} or later with npm here")));
    }
    let folder = root.join("target").join(SOURCES);
    let packages = folder.join("node_modules");
    let lock = fs::read(root.join(SOURCES).join("package-lock.json"))?;
    let is_current =
        packages.is_dir() && fs::read(folder.join("package-lock.json")).is_ok_and(|had| had == lock);
    copy_sources(root, &folder)?;
    if !is_current {
        let install = ["ci", "--no-audit", "--no-fund"];
        if !cargo::succeeds(Command::new("npm").current_dir(&folder).args(install)) {
            // The next run must not take half of the packages for all of them.
            fs::remove_dir_all(&packages).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
            return Err(Unable::Failed("npm could not install the packages of the dashboard".into()));
        }
    }
    Ok(folder)
}

fn copy_sources(root: &Path, folder: &Path) -> Result<(), Unable> {
    let listed = Command::new("git").args(["ls-files", "-z", SOURCES]).current_dir(root).output()?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    for old in ["src", "tests"] {
        let old = folder.join(old);
        if old.exists() {
            fs::remove_dir_all(old)?;
        }
    }
    for path in listed.split_terminator('\0') {
        let Ok(bytes) = fs::read(root.join(path)) else { continue };
        let to = root.join("target").join(path);
        fs::create_dir_all(to.parent().expect("a file is in a folder"))?;
        fs::write(to, bytes)?;
    }
    Ok(())
}

fn settle(root: &Path, built: &Path, check: bool) -> io::Result<bool> {
    let (new, committed) = (files(built)?, root.join(COMMITTED));
    if !check {
        if committed.exists() {
            fs::remove_dir_all(&committed)?;
        }
        for (path, bytes) in &new {
            let to = committed.join(path);
            fs::create_dir_all(to.parent().expect("a file is in a folder"))?;
            fs::write(to, bytes)?;
        }
        println!("web: {} files in {COMMITTED}", new.len());
        return Ok(true);
    }
    let old = files(&committed)?;
    if old == new {
        println!("web: {COMMITTED} is what its sources build");
        return Ok(true);
    }
    let all = old.keys().chain(new.keys()).collect::<std::collections::BTreeSet<_>>();
    for path in all.into_iter().filter(|path| old.get(*path) != new.get(*path)) {
        println!("{COMMITTED}/{path}: differs from what the sources build");
    }
    Ok(failed("the committed dashboard is not what its sources build; run `cargo xtask web`"))
}

/// Contents by path.
fn files(folder: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("it is inside").to_string_lossy().into_owned();
                found.insert(name, fs::read(path)?);
            }
        }
    }
    Ok(found)
}

fn node_is_new_enough() -> bool {
    let Ok(version) = Command::new("node").arg("--version").output() else { return false };
    runs("npm") && parse(&String::from_utf8_lossy(&version.stdout)).is_some_and(|version| version >= NODE_MIN)
}

/// The first two numbers of `v20.19.5`.
fn parse(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim().strip_prefix('v')?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn runs(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Adds a line of the summary that Node's runner ends with; true if it was the number of tests that passed.
fn count(line: &str, tally: &mut Tally) -> bool {
    let number = |label: &str| line.strip_prefix(label).and_then(|rest| rest.trim().parse::<u64>().ok());
    if let Some(passed) = number("# pass ") {
        tally.passed += passed;
        return true;
    }
    tally.failed += number("# fail ").or_else(|| number("# cancelled ")).unwrap_or(0);
    if let Some(skipped @ 1..) = number("# skipped ") {
        tally.skips.add(skipped, "a browser test skipped itself");
    }
    false
}

fn failed(why: &str) -> bool {
    eprintln!("error: {why}");
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_node_compare_by_number() {
        assert_eq!(parse("v20.9.0\n"), Some((20, 9)));
        assert!(parse("v22.1.0") >= Some(NODE_MIN));
        assert_eq!(parse("20.19.0"), None);
    }

    #[test]
    fn the_summary_of_the_runner_is_counted() {
        let mut tally = Tally::default();
        let lines =
            ["ok 1 - rows update", "# tests 12", "# pass 9", "# fail 2", "# cancelled 1", "# skipped 0"];
        let counted: Vec<_> = lines.into_iter().map(|line| count(line, &mut tally)).collect();
        assert_eq!(tally.to_string(), "9 passed, 3 failed, 0 skipped");
        assert_eq!(counted, [false, false, true, false, false, false]);
    }

    #[test]
    fn the_lock_file_has_no_address() {
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web/package-lock.json");
        let lock = fs::read_to_string(lock).unwrap();
        assert!(!lock.contains("\"resolved\""));
    }
}
