//! Rules about single lines: unfinished work, whitespace, and the number of lines.
//!
//! The words searched for are put together by `concat!`, or this file would flag itself.

use super::{Tree, Violation, has_word, numbered};

const LINES_MAX: usize = 500;
const CODE: [&str; 3] = ["rs", "lua", "sql"];
/// Of clients, peers and the dashboard.
const OTHER_CODE: [&str; 8] = ["css", "go", "java", "js", "mjs", "py", "ts", "tsx"];

pub(super) fn no_unfinished_work(tree: &Tree) -> Vec<Violation> {
    let calls = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!(")];
    let marks = [concat!("FIX", "ME"), concat!("XX", "X")];
    lines_where(tree, &CODE, "unfinished", |line| {
        let call = calls.into_iter().find(|call| line.contains(call));
        let found = call.or_else(|| marks.into_iter().find(|mark| has_word(line, mark)))?;
        Some(format!("`{found}` marks work that is not done"))
    })
}

pub(super) fn no_silenced_checks(tree: &Tree) -> Vec<Violation> {
    let ignored = concat!("#[", "ignore");
    let allowed = [concat!("#[", "allow("), concat!("#![", "allow(")];
    lines_where(tree, &["rs"], "silenced", |line| {
        if line.contains(ignored) {
            return Some("a test that never runs proves nothing; make it run, or delete it".into());
        }
        allowed
            .into_iter()
            .any(|attribute| line.contains(attribute))
            .then(|| "an exception is `expect` with a reason, so that it goes away with its cause".into())
    })
}

pub(super) fn no_machine_paths(tree: &Tree) -> Vec<Violation> {
    let folders = [concat!("/wo", "rk/"), concat!("/fa", "rm/"), concat!("/ro", "ot/")];
    let outside = concat!("../", "shared");
    let violations = tree.iter().flat_map(|(path, text)| {
        numbered(text).filter_map(move |(number, line)| {
            let folder = folders.into_iter().find(|folder| has_absolute(line, folder));
            let found = folder.or_else(|| line.contains(outside).then_some(outside))?;
            Some(Violation::new(
                path,
                number,
                "machine-path",
                format!("`{found}` exists on one machine only"),
            ))
        })
    });
    violations.collect()
}

/// `docs/x/` contains `/x/`, but does not start at the root of a machine.
fn has_absolute(line: &str, folder: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    line.match_indices(folder).any(|(at, _)| !line[..at].ends_with(in_name))
}

pub(super) fn no_stray_whitespace(tree: &Tree) -> Vec<Violation> {
    lines_where(tree, &["rs", "lua", "sql", "md", "toml"], "whitespace", |line| {
        if line.contains('\t') {
            Some("a tab; indent with spaces".into())
        } else {
            line.ends_with(char::is_whitespace).then(|| "whitespace at the end of the line".into())
        }
    })
}

pub(super) fn no_long_files(tree: &Tree) -> Vec<Violation> {
    let code = tree.with_extension(&CODE).chain(tree.with_extension(&OTHER_CODE));
    let lengths = code.map(|(path, text)| (path, text.lines().count()));
    let too_long = lengths.filter(|(_, lines)| *lines > LINES_MAX).map(|(path, lines)| {
        Violation::new(
            path,
            LINES_MAX + 1,
            "length",
            format!("{lines} lines, at most {LINES_MAX}; split it by subject"),
        )
    });
    too_long.collect()
}

/// What a merge leaves where two changes met.
pub(super) fn no_conflicts(tree: &Tree) -> Vec<Violation> {
    let marks = [concat!("<<<<", "<<< "), concat!(">>>>", ">>> ")];
    let lines =
        tree.iter().flat_map(|(path, text)| numbered(text).map(move |(number, line)| (path, number, line)));
    let marked = lines.filter(|(_, _, line)| marks.into_iter().any(|mark| line.starts_with(mark)));
    let why = "a merge was not finished here";
    marked.map(|(path, number, _)| Violation::new(path, number, "conflict", why)).collect()
}

fn lines_where(
    tree: &Tree,
    extensions: &[&str],
    rule: &'static str,
    why: impl Fn(&str) -> Option<String>,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.with_extension(extensions) {
        for (number, line) in numbered(text) {
            violations.extend(why(line).map(|why| Violation::new(path, number, rule, why)));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::tests::flagged;
    use super::*;

    #[test]
    fn unfinished_work_is_flagged() {
        for left in ["todo@!()", "unimplemented@!()", "dbg@!(x)", "// FIX@ME", "-- XX@X later"] {
            let line = left.replace('@', "");
            assert_eq!(flagged(no_unfinished_work, [("a.rs", &line)]), ["a.rs:1"], "{line}");
            assert_eq!(flagged(no_unfinished_work, [("a.lua", &line)]), ["a.lua:1"], "{line}");
        }
        let template = format!("lock.{}", "X".repeat(6));
        assert!(
            flagged(no_unfinished_work, [("a.rs", &template), ("notes.md", concat!("dbg", "!(x)"))])
                .is_empty()
        );
    }

    #[test]
    fn silenced_checks_are_flagged() {
        for silenced in
            ["#[@ignore]", "#[@ignore = \"slow\"]", "#[@allow(dead_code)]", "#![@allow(warnings)]"]
        {
            let line = silenced.replace('@', "");
            assert_eq!(flagged(no_silenced_checks, [("a.rs", &line)]), ["a.rs:1"], "{line}");
        }
        assert!(flagged(no_silenced_checks, [("a.rs", "#[expect(dead_code, reason = \"x\")]")]).is_empty());
    }

    #[test]
    fn paths_of_a_machine_are_flagged_in_any_file() {
        for private in ["cd /wo@rk/x", "\"/fa@rm/y\"", "file:///ro@ot/z", "see ../@shared/notes"] {
            let line = private.replace('@', "");
            assert_eq!(flagged(no_machine_paths, [("any", &format!("fine\n{line}"))]), ["any:2"], "{line}");
        }
        assert!(flagged(no_machine_paths, [("a.md", concat!("docs/wo", "rk/plan.md"))]).is_empty());
    }

    #[test]
    fn stray_whitespace_is_flagged() {
        assert_eq!(flagged(no_stray_whitespace, [("a.md", "one\ntwo ")]), ["a.md:2"]);
        assert_eq!(flagged(no_stray_whitespace, [("a.toml", "\tx = 1")]), ["a.toml:1"]);
        assert_eq!(flagged(no_stray_whitespace, [("a.sql", "SELECT 1\r\r\n")]), ["a.sql:1"]);
        assert!(flagged(no_stray_whitespace, [("Makefile", "\tx"), ("a.rs", "x\n\ny\n")]).is_empty());
    }

    #[test]
    fn what_a_merge_left_is_flagged() {
        let left = concat!("one\n<<<<", "<<< HEAD\ntwo\n=======\nthree\n>>>>", ">>> other\n");
        assert_eq!(flagged(no_conflicts, [("docs/a.md", left)]), ["docs/a.md:2", "docs/a.md:6"]);
        assert!(flagged(no_conflicts, [("a.md", "a << b\n=======\n")]).is_empty());
    }

    #[test]
    fn long_files_are_flagged() {
        let longest = "x\n".repeat(LINES_MAX);
        assert!(flagged(no_long_files, [("a.rs", &longest)]).is_empty());
        let too_long = longest + "x";
        let files = [("a.rs", &*too_long), ("b.css", &*too_long), ("c.md", &*too_long)];
        assert_eq!(flagged(no_long_files, files), ["a.rs:501", "b.css:501"]);
    }
}
