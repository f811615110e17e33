//! Links between documents point to files that exist.

use super::{Tree, Violation, numbered};

/// Only tracked files count as existing: a link to any other is broken for everybody else.
pub(super) fn relative_links_exist(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.with_extension(&["md"]) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, link) in
            prose(text).flat_map(|(number, line)| links(line).map(move |link| (number, link)))
        {
            let found =
                file_of(link).is_none_or(|file| resolve(folder, file).is_some_and(|it| exists(tree, &it)));
            if !found {
                violations.push(Violation::new(
                    path,
                    number,
                    "link",
                    format!("`{link}` is not a tracked file"),
                ));
            }
        }
    }
    violations
}

/// Lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    numbered(text).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// Targets of `[text](target)` and of `[label]: target`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let definition = line.starts_with('[').then(|| line.split_once("]: ")).flatten();
    inline.chain(definition.and_then(|(_, target)| target.split_whitespace().next()))
}

/// The part of a link that names a file of this repository.
fn file_of(link: &str) -> Option<&str> {
    let is_address = link.contains("://") || link.starts_with("mailto:");
    let file = link.split(['#', '?']).next().unwrap_or_default();
    (!is_address && !file.is_empty()).then_some(file)
}

/// The path from the root of the repository; none if it leads out of it.
fn resolve(folder: &str, file: &str) -> Option<String> {
    let (folder, file) = file.strip_prefix('/').map_or((folder, file), |from_root| ("", from_root));
    let mut parts = Vec::new();
    for part in folder.split('/').chain(file.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn exists(tree: &Tree, path: &str) -> bool {
    let inside = format!("{path}/");
    path.is_empty() || tree.files.contains_key(path) || tree.iter().any(|(file, _)| file.starts_with(&inside))
}

#[cfg(test)]
mod tests {
    use super::super::tests::flagged;
    use super::*;

    const GUIDE: (&str, &str) = ("docs/guide/start.md", "");

    #[test]
    fn a_link_to_nowhere_is_flagged() {
        for line in ["see [it](docs/gone.md)", "![p](gone.png)", "[it]: gone.md", "[up](../outside.md)"] {
            assert_eq!(
                flagged(relative_links_exist, [GUIDE, ("README.md", line)]),
                ["README.md:1"],
                "{line}"
            );
        }
    }

    #[test]
    fn every_link_of_a_line_is_followed() {
        let line = "[a](docs/guide/start.md), [b](gone.md), [c](lost.md)";
        assert_eq!(
            flagged(relative_links_exist, [GUIDE, ("README.md", line)]),
            ["README.md:1", "README.md:1"]
        );
    }

    #[test]
    fn links_to_files_folders_and_addresses_are_fine() {
        let text = "[a](guide/start.md#first) [b](guide/) [c](/docs/guide/start.md) [d](https://x.org/y) [e](#here)\n\
                    [f](../docs/guide/start.md \"title\") [g](mailto:a@b.c)\n```\n[h](gone.md)\n```\n[i]: ./guide";
        assert!(flagged(relative_links_exist, [GUIDE, ("docs/index.md", text)]).is_empty());
    }
}
