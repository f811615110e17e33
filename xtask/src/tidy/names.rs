//! Names of functions, types and settings in the documentation exist in the code.

use std::collections::BTreeSet;

use super::links::prose;
use super::{Tree, Violation};

/// Code that documentation may name.
const SOURCES: [&str; 8] = ["conf", "json", "lua", "py", "rs", "sql", "toml", "yaml"];
/// Names that Prometheus and Kubernetes give.
const FOREIGN: [&str; 2] = ["rule_files", "LEASEHOLD_REDIS_SERVICE_HOST"];

/// Only spans that cannot be anything else than a name are compared: `with_underscore`, `called()`, `Type::member`.
pub(super) fn code_in_prose_exists(tree: &Tree) -> Vec<Violation> {
    // The tests below name what does not exist.
    let sources = tree.with_extension(&SOURCES).filter(|(path, _)| !path.starts_with("xtask/"));
    let known: BTreeSet<_> = sources.flat_map(|(_, text)| words(text)).chain(FOREIGN).collect();
    // The beginning of a name is enough: those of metrics are put together.
    let exists = |name: &str| known.range(name..).next().is_some_and(|known| known.starts_with(name));
    let mut violations = Vec::new();
    // What a changelog names may have been removed since.
    for (path, text) in tree.with_extension(&["md"]).filter(|(path, _)| *path != "CHANGELOG.md") {
        for (number, line) in prose(text) {
            for span in line.split('`').skip(1).step_by(2) {
                if let Some(unknown) = path_of(span).and_then(|mut names| names.find(|name| !exists(name))) {
                    let why = format!("`{unknown}` of `{span}` is nowhere in the code");
                    violations.push(Violation::new(path, number, "name", why));
                }
            }
        }
    }
    violations
}

/// The names that a span of code consists of, without arguments.
fn path_of(span: &str) -> Option<impl Iterator<Item = &str>> {
    let path = span.split('(').next().unwrap_or_default().trim_start_matches('.');
    let is_path = path
        .split("::")
        .all(|name| words(name).eq([name]) && !name.starts_with(|c: char| c.is_ascii_digit()));
    let is_name = span.contains("::") || path.contains('_') || span.ends_with(')');
    (is_path && is_name).then(|| path.split("::"))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::tests::flagged;
    use super::*;

    const CODE: (&str, &str) = ("lib.rs", "impl Lock { fn try_acquire(&self) {} fn lost(&self) {} }");

    #[test]
    fn a_name_that_is_gone_is_flagged() {
        for span in ["check_and_set()", "gone(1, 2)", "Lock::gone", ".gone(x)", "Gone::lost", "is_gone"] {
            assert_eq!(
                flagged(code_in_prose_exists, [CODE, ("a.md", &format!("- `{span}`"))]),
                ["a.md:1"],
                "{span}"
            );
        }
    }

    #[test]
    fn names_that_exist_and_spans_that_are_no_names_are_fine() {
        let text = "`try_acquire`, `Lock::lost`, `.lost()`, `lost(..)`, `lock:NAME`, `gone`, `sqlite:PATH`, `a_b/c`, `x = f(1)`\n\
                    ```\n`is_gone`\n```";
        assert!(
            flagged(code_in_prose_exists, [CODE, ("a.md", text), ("CHANGELOG.md", "`is_gone`")]).is_empty()
        );
    }
}
