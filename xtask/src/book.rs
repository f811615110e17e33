//! `cargo xtask book`: the pages that docs/SUMMARY.md lists, as a book in target/book.
//!
//! The book has the folders of the repository, so a link between two of its pages is the same in both. A link to a file
//! that is not in the book becomes one to the repository's web page.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::cargo;
use crate::tidy::links::{file_of, folder_of, links, prose, resolve};

/// Installed only if there is no `mdbook` yet; its books may differ from version to version.
const MDBOOK: &str = "0.5.4";
const SUMMARY: &str = "docs/SUMMARY.md";
const IMAGES: [&str; 3] = ["docs/images", "docs/images/ui", "docs/benchmarks"];

pub(crate) fn build(root: &Path) -> bool {
    let source = root.join("target/book-src");
    if let Err(error) = collect(root, &source) {
        eprintln!("error: cannot collect the pages of the book: {error}");
        return false;
    }
    let Some(mdbook) = mdbook(root) else { return false };
    let built = cargo::succeeds(
        Command::new(mdbook).arg("build").arg(&source).arg("--dest-dir").arg(root.join("target/book")),
    );
    if built {
        println!("book: target/book/index.html");
    }
    built
}

/// The program: an installed one, or one that is compiled into target/tools first.
fn mdbook(root: &Path) -> Option<PathBuf> {
    let tools = root.join("target/tools");
    let own = tools.join("bin/mdbook");
    let runs = |program: &Path| {
        Command::new(program).arg("--version").output().is_ok_and(|ran| ran.status.success())
    };
    if let Some(found) = [PathBuf::from("mdbook"), own.clone()].into_iter().find(|program| runs(program)) {
        return Some(found);
    }
    eprintln!("mdbook is not installed: compiling it into target/tools, once, for some minutes");
    let mut install = cargo::command(root, &["install", "--locked", "mdbook", "--version", MDBOOK, "--root"]);
    cargo::succeeds(install.arg(tools)).then_some(own)
}

/// Copies the pages and their images to `source`, as mdbook wants them.
fn collect(root: &Path, source: &Path) -> io::Result<()> {
    if source.exists() {
        fs::remove_dir_all(source)?;
    }
    let manifest: toml::Table =
        fs::read_to_string(root.join("Cargo.toml"))?.parse().map_err(io::Error::other)?;
    let repository = manifest["workspace"]["package"]["repository"].as_str().unwrap_or_default().to_owned();
    let summary = fs::read_to_string(root.join(SUMMARY))?;
    let page_of = |link: &str| resolve("docs", link).filter(|page| root.join(page).exists());
    // A page that is not there yet is one that `cargo xtask bench` writes.
    let listed: Vec<_> =
        summary.lines().filter(|line| links(line).all(|link| page_of(link).is_some())).collect();
    let pages: BTreeSet<_> = listed.iter().flat_map(|line| links(line)).filter_map(page_of).collect();

    let write = |path: &str, text: &str| {
        let file = source.join(path);
        fs::create_dir_all(file.parent().expect("a file is in a folder"))?;
        fs::write(file, text)
    };
    write("book.toml", &fs::read_to_string(root.join("docs/book.toml"))?)?;
    write(
        "src/SUMMARY.md",
        &rewritten(&listed.join("\n"), |link| page_of(link).map(|page| book_path(&page))),
    )?;
    for page in &pages {
        let text = fs::read_to_string(root.join(page))?;
        let text = rewritten(&text, |link| target(&pages, &repository, folder_of(page), link));
        write(&format!("src/{}", book_path(page)), &text)?;
    }
    for folder in IMAGES.into_iter().filter(|folder| root.join(folder).exists()) {
        fs::create_dir_all(source.join("src").join(folder))?;
        for image in fs::read_dir(root.join(folder))? {
            let image = image?;
            if image.file_type()?.is_file() {
                fs::copy(image.path(), source.join("src").join(folder).join(image.file_name()))?;
            }
        }
    }
    Ok(())
}

/// mdbook has an `index.html` for the page that GitHub shows for a folder.
fn book_path(path: &str) -> String {
    path.replace("README.md", "index.md")
}

/// Where a link on a page in `folder` leads to in the book, if that is elsewhere.
fn target(pages: &BTreeSet<String>, repository: &str, folder: &str, link: &str) -> Option<String> {
    let file = file_of(link)?;
    let path = resolve(folder, file)?;
    if pages.contains(&path) {
        return Some(book_path(link));
    }
    let is_image = IMAGES.iter().any(|folder| path.starts_with(folder));
    (!is_image).then(|| format!("{repository}/blob/HEAD/{path}{}", &link[file.len()..]))
}

/// The text with other targets of its links.
fn rewritten(text: &str, target: impl Fn(&str) -> Option<String>) -> String {
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    for (number, line) in prose(text) {
        for (link, new) in links(line).filter_map(|link| Some((link, target(link)?))) {
            let rewritten = lines[number - 1]
                .replace(&format!("]({link})"), &format!("]({new})"))
                .replace(&format!("]: {link}"), &format!("]: {new}"));
            lines[number - 1] = rewritten;
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_book(folder: &str, text: &str) -> String {
        let pages = ["README.md", "docs/names.md"].map(str::to_owned).into();
        rewritten(text, |link| target(&pages, "https://host/repo", folder, link))
    }

    #[test]
    fn links_between_pages_stay_and_others_lead_to_the_repository() {
        let text = "[a](names.md#x) [b](../README.md#demos) ![c](images/c.svg) [d](#here) [e](https://x.org)\n\
                    [f](../crates/a/src/lib.rs), [g](../policies/)\n```\n[h](../gone.rs)\n```\n[i]: ../LICENSE\n";
        let expected = "[a](names.md#x) [b](../index.md#demos) ![c](images/c.svg) [d](#here) [e](https://x.org)\n\
                        [f](https://host/repo/blob/HEAD/crates/a/src/lib.rs), [g](https://host/repo/blob/HEAD/policies)\n\
                        ```\n[h](../gone.rs)\n```\n[i]: https://host/repo/blob/HEAD/LICENSE\n";
        assert_eq!(in_book("docs", text), expected);
    }

    #[test]
    fn the_readme_is_the_first_page() {
        assert_eq!(in_book("", "[a](docs/names.md), [b](README.md)"), "[a](docs/names.md), [b](index.md)\n");
    }
}
