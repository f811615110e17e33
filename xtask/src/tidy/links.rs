//! Links between documents point to files and headings that exist, and the book has every page.

use super::{Tree, Violation, numbered};

/// Only tracked files count as existing: a link to any other is broken for everybody else.
pub(super) fn relative_links_exist(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.with_extension(&["md"]) {
        let folder = folder_of(path);
        for (number, link) in
            prose(text).flat_map(|(number, line)| links(line).map(move |link| (number, link)))
        {
            let file = match file_of(link) {
                Some(file) => resolve(folder, file).filter(|file| exists(tree, file)),
                None => Some(path.to_owned()),
            };
            let why = match (file, link.split_once('#')) {
                (None, _) => "is not a tracked file",
                (Some(file), Some((_, anchor))) if !is_address(link) && !has_heading(tree, &file, anchor) => {
                    "is not a heading of that page"
                }
                _ => continue,
            };
            violations.push(Violation::new(path, number, "link", format!("`{link}` {why}")));
        }
    }
    violations
}

/// The list of the book's pages.
const SUMMARY: &str = "docs/SUMMARY.md";

pub(super) fn the_book_has_every_page_once(tree: &Tree) -> Vec<Violation> {
    let summary = tree.files.get(SUMMARY).map_or("", String::as_str);
    let listed: Vec<_> = links(summary).filter_map(|link| resolve(folder_of(SUMMARY), link)).collect();
    let pages = tree.with_extension(&["md"]).map(|(path, _)| path);
    let pages = pages.filter(|path| path.starts_with("docs/") && *path != SUMMARY);
    let counted = pages.map(|path| (path, listed.iter().filter(|page| *page == path).count()));
    let wrong = counted.filter(|(_, times)| *times != 1);
    wrong
        .map(|(path, times)| {
            Violation::new(path, 1, "book", format!("is in {SUMMARY} {times} times, not once"))
        })
        .collect()
}

/// Whether GitHub and mdbook give a heading of the page this id.
fn has_heading(tree: &Tree, path: &str, id: &str) -> bool {
    let text = tree.files.get(path).map_or("", String::as_str);
    let headings = prose(text).filter_map(|(_, line)| line.trim_start_matches('#').strip_prefix(' '));
    headings.map(id_of).any(|heading| heading == id)
}

fn id_of(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Lines outside of code blocks.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    numbered(text).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// Targets of `[text](target)` and of `[label]: target`.
pub(crate) fn links(line: &str) -> impl Iterator<Item = &str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let definition = line.starts_with('[').then(|| line.split_once("]: ")).flatten();
    inline.chain(definition.and_then(|(_, target)| target.split_whitespace().next()))
}

/// The part of a link that names a file of this repository.
pub(crate) fn file_of(link: &str) -> Option<&str> {
    let file = link.split(['#', '?']).next().unwrap_or_default();
    (!is_address(link) && !file.is_empty()).then_some(file)
}

fn is_address(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:")
}

pub(crate) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The path from the root of the repository; none if it leads out of it.
pub(crate) fn resolve(folder: &str, file: &str) -> Option<String> {
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

    const GUIDE: (&str, &str) = ("docs/guide/start.md", "# First");

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
        let text = "[a](guide/start.md#first) [b](guide/) [c](/docs/guide/start.md) [d](https://x.org/y) [e](#the-redis-part)\n\
                    [f](../docs/guide/start.md \"title\") [g](mailto:a@b.c)\n```\n[h](gone.md)\n```\n[i]: ./guide\n## The `redis://` part";
        assert!(flagged(relative_links_exist, [GUIDE, ("docs/index.md", text)]).is_empty());
    }

    #[test]
    fn a_heading_that_is_not_there_is_flagged() {
        for line in ["[a](docs/guide/start.md#second)", "[b](#first)", "[c](README.md#gone)"] {
            assert_eq!(
                flagged(relative_links_exist, [GUIDE, ("README.md", line)]),
                ["README.md:1"],
                "{line}"
            );
        }
    }

    #[test]
    fn a_page_that_is_not_in_the_book_once_is_flagged() {
        let book =
            |summary| flagged(the_book_has_every_page_once, [GUIDE, (SUMMARY, summary), ("README.md", "")]);
        assert!(book("- [Start](guide/start.md)\n- [Read me](../README.md)").is_empty());
        assert_eq!(book(""), ["docs/guide/start.md:1"]);
        assert_eq!(book("- [a](guide/start.md)\n- [b](guide/start.md)"), ["docs/guide/start.md:1"]);
    }
}
