//! Builds the programs of a language with its own tools, in a folder beside our build.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use leasehold_testkit::poll;

use super::sources::{self, Source};

/// For one step of a build; most of it is spent on downloads.
const PATIENCE: Duration = Duration::from_secs(600);
const LOG_LINES_MAX: usize = 15;

type Words = &'static [&'static str];

/// How the program of one language is made. Words with a slash are files of its folder.
#[derive(Debug)]
pub(super) struct Toolchain {
    language: &'static str,
    sources: &'static [Source],
    /// Commands that only report a version: the tools that must be there.
    needs: &'static [Words],
    /// Commands that install and build.
    steps: &'static [Words],
    /// The program.
    pub(super) run: Words,
}

pub(super) static GO: Toolchain = Toolchain {
    language: "go",
    sources: sources::GO,
    needs: &[&["go", "version"]],
    steps: &[&["go", "build", "-o", "contestant", "."]],
    run: &["./contestant"],
};

pub(super) static JAVA: Toolchain = Toolchain {
    language: "java",
    sources: sources::JAVA,
    needs: &[&["javac", "-version"], &["mvn", "-version"]],
    steps: &[&["mvn", "--quiet", "--batch-mode", "compile"]],
    run: &["java", "-cp", "target/classes:target/dependency/*", "Contestant"],
};

pub(super) static NODE: Toolchain = Toolchain {
    language: "node",
    sources: sources::NODE,
    needs: &[&["node", "--version"], &["npm", "--version"]],
    steps: &[&["npm", "ci", "--no-audit", "--no-fund"]],
    run: &["node", "contestant.js"],
};

pub(super) static PYTHON: Toolchain = Toolchain {
    language: "python",
    sources: sources::PYTHON,
    needs: &[&["python3", "--version"]],
    steps: &[
        &["python3", "-m", "venv", "venv"],
        &["./venv/bin/python", "-m", "pip", "install", "--quiet", "--requirement", "requirements.txt"],
    ],
    run: &["./venv/bin/python", "contestant.py"],
};

impl Toolchain {
    /// The folder of the built program inside of `folder`. Done once per process, also if it fails, and again only after a
    /// change of the sources or of the tools.
    pub(super) fn build_in(&self, folder: &Path) -> Result<PathBuf, String> {
        static DONE: Mutex<BTreeMap<PathBuf, Result<(), String>>> = Mutex::new(BTreeMap::new());
        let place = folder.join(self.language);
        let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
        done.entry(place.clone()).or_insert_with(|| self.build(folder, &place)).clone().map(|()| place)
    }

    fn build(&self, folder: &Path, place: &Path) -> Result<(), String> {
        let io = |error: io::Error| format!("cannot build in {}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(io)?;
        // Another program may be at it.
        let turn = File::create(folder.join(format!("{}.lock", self.language))).map_err(io)?;
        turn.lock().map_err(io)?;
        let log = folder.join(format!("{}.log", self.language));
        let fingerprint = self.fingerprint(folder, &log)?;
        let ready = folder.join(format!("{}.ready", self.language));
        if fs::read_to_string(&ready).is_ok_and(|built| built == fingerprint) {
            return Ok(());
        }
        let _ = fs::remove_file(&ready);
        self.copy_sources(place).map_err(io)?;
        for step in self.steps {
            output_of(&mut command_in(place, step), &log)?;
        }
        fs::write(ready, fingerprint).map_err(io)
    }

    /// Changes with the sources and with the versions of the tools; an error names the tool that is missing.
    fn fingerprint(&self, folder: &Path, log: &Path) -> Result<String, String> {
        let mut hasher = DefaultHasher::new();
        (self.sources, self.steps).hash(&mut hasher);
        for words in self.needs {
            output_of(&mut command_in(folder, words), log)?.hash(&mut hasher);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }

    fn copy_sources(&self, place: &Path) -> io::Result<()> {
        if place.exists() {
            fs::remove_dir_all(place)?;
        }
        for (path, text) in self.sources {
            let file = place.join(path);
            file.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(file, text)?;
        }
        Ok(())
    }
}

/// A command that runs in a folder: whatever a tool leaves in its working directory stays out of the source tree.
pub(super) fn command_in(folder: &Path, words: &[&str]) -> Command {
    let program = match words[0].strip_prefix("./") {
        Some(file) => folder.join(file),
        None => words[0].into(),
    };
    let mut command = Command::new(program);
    command.args(&words[1..]).current_dir(folder);
    command
}

/// Runs a command to its end; returns what it printed.
pub(super) fn output_of(command: &mut Command, log: &Path) -> Result<String, String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let shown = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let failed = |why: String| format!("`{shown}` {why}");
    let output = File::create(log).and_then(|file| Ok((file.try_clone()?, file)));
    let (stdout, stderr) = output.map_err(|error| failed(format!("has no log: {error}")))?;
    let spawned = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn();
    let mut child = spawned.map_err(|error| failed(format!("does not start: {error}")))?;
    let Some(status) = poll(PATIENCE, || child.try_wait().transpose()) else {
        // Fails only if it has ended already.
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed(format!("took more than {PATIENCE:?}")));
    };
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    match status {
        Ok(status) if status.success() => Ok(text.into_owned()),
        Ok(status) => Err(failed(format!("failed ({status}): {}", tail(&text)))),
        Err(error) => Err(failed(format!("is lost: {error}"))),
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Toolchain = Toolchain {
        language: "plain",
        sources: &[("a/text", "one\n")],
        needs: &[&["true"]],
        steps: &[&["sh", "-c", "cat a/text >> ../built"]],
        run: &["true"],
    };

    #[test]
    fn a_program_is_built_once_and_again_after_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let build = |toolchain: &Toolchain| {
            toolchain.build(folder.path(), &folder.path().join("plain")).unwrap();
            fs::read_to_string(folder.path().join("built")).unwrap()
        };
        assert_eq!(build(&PLAIN), "one\n");
        assert_eq!(build(&PLAIN), "one\n");
        let changed = Toolchain { sources: &[("a/text", "two\n")], ..PLAIN };
        assert_eq!(build(&changed), "one\ntwo\n");
    }

    #[test]
    fn what_tools_leave_in_their_working_directory_is_not_in_the_source_tree() {
        let folder = tempfile::tempdir().unwrap();
        let leaves: Words = &["sh", "-c", "echo > fetched.whl"];
        let untidy =
            Toolchain { needs: Box::leak(Box::new([leaves])), steps: Box::leak(Box::new([leaves])), ..PLAIN };
        let place = folder.path().join("plain");
        untidy.build(folder.path(), &place).unwrap();
        assert!(folder.path().join("fetched.whl").exists() && place.join("fetched.whl").exists());
        assert!(!Path::new("fetched.whl").exists());
    }

    #[test]
    fn a_missing_tool_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Toolchain { needs: &[&["true"], &["no-such-tool", "-v"]], ..PLAIN };
        let why = missing.build_in(folder.path()).unwrap_err();
        assert!(why.starts_with("`no-such-tool -v` does not start: No such file"), "{why}");
        assert!(!folder.path().join("plain").exists());
    }

    #[test]
    fn a_failed_step_is_shown_with_its_output_and_tried_once() {
        let folder = tempfile::tempdir().unwrap();
        let step: Words = &["sh", "-c", "echo again >> ../tries; echo 'no such package' >&2; exit 4"];
        let broken = Toolchain { steps: Box::leak(Box::new([step])), ..PLAIN };
        let why = broken.build_in(folder.path()).unwrap_err();
        assert!(why.ends_with("failed (exit status: 4): no such package"), "{why}");
        assert_eq!(broken.build_in(folder.path()).unwrap_err(), why);
        assert_eq!(fs::read_to_string(folder.path().join("tries")).unwrap(), "again\n");
        // Another process tries again.
        broken.build(folder.path(), &folder.path().join("plain")).unwrap_err();
        assert_eq!(fs::read_to_string(folder.path().join("tries")).unwrap(), "again\nagain\n");
    }
}
