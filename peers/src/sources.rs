//! The source files of the peers' programs, carried inside of this one.
//!
//! Package managers write beside what they read, so they never see the source tree.

/// A file by its path inside the language's folder, and its text.
pub(super) type Source = (&'static str, &'static str);

macro_rules! sources {
    ($language:literal: $($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../", $language, "/", $path)))),+]
    };
}

pub(super) static GO: &[Source] =
    sources!("go": "go.mod", "go.sum", "interop.go", "libraries.go", "main.go", "orders.go", "workloads.go");

pub(super) static JAVA: &[Source] = sources!(
    "java": "pom.xml",
    "src/main/java/Contestant.java",
    "src/main/java/Interop.java",
    "src/main/java/Library.java",
    "src/main/java/Options.java",
    "src/main/java/Orders.java",
    "src/main/java/Tally.java",
    "src/main/java/Workloads.java",
);

pub(super) static NODE: &[Source] = sources!(
    "node": ".npmrc",
    "contestant.js",
    "interop.js",
    "libraries.js",
    "orders.js",
    "package-lock.json",
    "package.json",
);

pub(super) static PYTHON: &[Source] =
    sources!("python": "contestant.py", "interop.py", "orders.py", "requirements.txt");

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path, process::Command};

    use super::*;

    #[test]
    fn every_tracked_file_of_a_peer_is_carried() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let listed = Command::new("git").args(["ls-files"]).current_dir(folder).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let in_folders = listed.lines().filter(|path| path.contains('/') && !path.starts_with("src/"));
        let tracked: BTreeSet<_> = in_folders.map(str::to_owned).collect();
        let languages = [("go", GO), ("java", JAVA), ("node", NODE), ("python", PYTHON)];
        let carried = languages.into_iter().flat_map(|(language, sources)| {
            sources.iter().map(move |(path, _)| format!("{language}/{path}"))
        });
        assert_eq!(tracked, carried.collect());
    }

    #[test]
    fn no_lock_file_has_an_address() {
        for (language, file) in [(NODE, "package-lock.json"), (GO, "go.sum"), (PYTHON, "requirements.txt")] {
            let (_, lock) = language.iter().find(|(path, _)| *path == file).unwrap();
            assert!(!lock.contains("://") && !lock.contains("\"resolved\""), "{file}");
        }
    }
}
