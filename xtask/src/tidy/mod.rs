//! `cargo xtask tidy`: the house rules that neither rustc nor clippy knows.
//!
//! A rule is a function from the tracked files to its violations. To add one, write it in the file whose
//! subject it shares, list it in [`RULES`], and show in a test that it flags a bad snippet.

mod headers;
mod layers;
mod layout;
pub(crate) mod links;
mod lua;
mod names;
mod wording;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

type Rule = fn(&Tree) -> Vec<Violation>;

const RULES: &[Rule] = &[
    wording::no_unfinished_work,
    wording::no_silenced_checks,
    wording::no_machine_paths,
    wording::no_stray_whitespace,
    wording::no_long_files,
    wording::no_conflicts,
    layers::core_knows_no_store,
    layers::engines_do_not_know_each_other,
    headers::lua_says_its_arguments,
    headers::sql_says_its_purpose,
    lua::lua_orders_numbers_only,
    layout::no_vague_names,
    layout::lints_are_shared,
    layout::modules_are_on_the_map,
    layout::no_fetched_packages,
    links::relative_links_exist,
    links::the_book_has_every_page_once,
    names::code_in_prose_exists,
];

/// Prints every violation; true if there is none.
pub(crate) fn run(root: &Path) -> bool {
    let tree = match Tree::tracked(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("error: cannot list the tracked files: {error}");
            return false;
        }
    };
    let violations: Vec<_> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    for violation in &violations {
        println!("{violation}");
    }
    println!("tidy: {} files, {} rules, {} violations", tree.files.len(), RULES.len(), violations.len());
    violations.is_empty()
}

/// Text of all files by path, with `/` between folders; empty where a file is not text.
struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    fn tracked(root: &Path) -> std::io::Result<Self> {
        let list = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output()?;
        if !list.status.success() {
            return Err(std::io::Error::other(String::from_utf8_lossy(&list.stderr).trim().to_owned()));
        }
        let list = String::from_utf8_lossy(&list.stdout);
        let mut files = BTreeMap::new();
        for path in list.split_terminator('\0') {
            // Tracked, but deleted from the work tree.
            if let Ok(bytes) = std::fs::read(root.join(path)) {
                files.insert(path.to_owned(), String::from_utf8(bytes).unwrap_or_default());
            }
        }
        Ok(Self { files })
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    fn with_extension(&self, extensions: &[&str]) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(move |(path, _)| extensions.contains(&extension(path)))
    }

    #[cfg(test)]
    fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        Self { files: files.map(|(path, text)| (path.to_owned(), text.to_owned())).into() }
    }
}

fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// Lines with their numbers, counted from one.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

/// Whether `word` stands in `line` with no letter, digit or underscore next to it.
fn has_word(line: &str, word: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(in_word) && !line[at + word.len()..].starts_with(in_word))
}

#[derive(Debug, PartialEq, Eq)]
struct Violation {
    file: String,
    line: usize,
    rule: &'static str,
    why: String,
}

impl Violation {
    fn new(file: &str, line: usize, rule: &'static str, why: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, rule, why: why.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The violations of a rule, as `file:line`.
    pub(super) fn flagged<const N: usize>(rule: Rule, files: [(&str, &str); N]) -> Vec<String> {
        rule(&Tree::of(files)).iter().map(|found| format!("{}:{}", found.file, found.line)).collect()
    }

    #[test]
    fn a_violation_reads_as_place_rule_and_reason() {
        let violation = Violation::new("src/lib.rs", 7, "length", "too long");
        assert_eq!(violation.to_string(), "src/lib.rs:7: length: too long");
    }

    #[test]
    fn words_end_where_letters_end() {
        assert!(has_word("use redis;", "redis"));
        assert!(!has_word("use credis;", "redis"));
        assert!(!has_word("use redis_test;", "redis"));
    }
}
