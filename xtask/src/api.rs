//! `cargo xtask api`: the public API of `leasehold` as one text, compared with the one in the repository.
//!
//! What users see is what rustdoc shows: re-exports are resolved, macros are expanded, and nothing private is left. So the
//! text is taken from its pages, and a page that does not build without a warning fails first.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io, process};

use crate::cargo;
use crate::tally::Tally;

const SNAPSHOT: &str = "crates/leasehold/api.txt";
const DOC: [&str; 5] = ["doc", "-p", "leasehold", "--no-deps", "--all-features"];

/// Prints the difference, or writes the text if `update`. A snapshot of another rustdoc is not compared.
pub(crate) fn check(root: &Path, update: bool, tally: &mut Tally) -> bool {
    let target = cargo::target_folder(root);
    // Pages of items that are gone would stay.
    let _absent = fs::remove_dir_all(target.join("doc").join("leasehold"));
    let mut doc = cargo::command(root, &DOC);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    if !cargo::succeeds(&mut doc) {
        return false;
    }
    let (file, version) = (root.join(SNAPSHOT), rustdoc_version());
    let pages = pages(&target.join("doc").join("leasehold"));
    let items = match pages.and_then(|pages| items(&target.join("doc"), &pages)) {
        Ok(items) => items,
        Err(error) => {
            eprintln!("error: cannot read the pages of rustdoc: {error}");
            return false;
        }
    };
    let now = format!("# the public API of leasehold, by rustdoc {version}\n{}", items.concat());
    if update {
        return fs::write(&file, now)
            .map_err(|error| eprintln!("error: cannot write {SNAPSHOT}: {error}"))
            .is_ok();
    }
    let stored = fs::read_to_string(&file).unwrap_or_default();
    if !stored.is_empty() && stored.lines().next() != now.lines().next() {
        let why = format!("{SNAPSHOT} is of another rustdoc than {version}");
        println!("skipped: {why}");
        tally.skips.add(1, &why);
        return true;
    }
    let difference = difference(&stored, &now);
    if difference.is_empty() {
        return true;
    }
    println!(
        "{}\nThe public API has changed. If that is meant: cargo xtask api --update",
        difference.join("\n")
    );
    false
}

fn rustdoc_version() -> String {
    let printed = process::Command::new("rustdoc").arg("--version").output();
    let text = printed.map_or(String::new(), |printed| String::from_utf8_lossy(&printed.stdout).into_owned());
    let number = text.split(' ').nth(1).unwrap_or("unknown");
    number.rsplit_once('.').map_or(number, |(minor, _patch)| minor).to_owned()
}

/// All pages of items below a folder, in the order of their paths.
fn pages(folder: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            found.extend(pages(&path)?);
        } else if name.ends_with(".html") && name.matches('.').count() == 2 {
            found.insert(path);
        }
    }
    Ok(found)
}

fn items(doc: &Path, pages: &BTreeSet<PathBuf>) -> io::Result<Vec<String>> {
    let item = |page: &PathBuf| {
        let module = page.parent().and_then(|folder| folder.strip_prefix(doc).ok()).unwrap_or(Path::new(""));
        let module: Vec<_> = module.iter().map(|part| part.to_string_lossy()).collect();
        Ok(text_of(&module.join("::"), &fs::read_to_string(page)?))
    };
    pages.iter().map(item).collect()
}

/// A page as text: its declaration, then its methods and the traits that it implements, sorted.
fn text_of(module: &str, page: &str) -> String {
    let declared = between(page, "<pre class=\"rust item-decl\"><code>", "</code></pre>");
    let mut text = format!("\n{module}: {}\n", declared.first().map(|html| plain(html)).unwrap_or_default());
    for (list, tag) in [("implementations-list", "h4"), ("trait-implementations-list", "h3")] {
        let Some((_, rest)) = page.split_once(&format!("<div id=\"{list}\">")) else { continue };
        let list = rest.split("<h2 id=").next().unwrap_or(rest);
        let headers = between(list, &format!("<{tag} class=\"code-header\">"), &format!("</{tag}>"));
        let lines: BTreeSet<_> = headers.into_iter().map(plain).collect();
        lines.iter().for_each(|line| text += &format!("  {line}\n"));
    }
    text
}

fn between<'a>(text: &'a str, open: &str, close: &str) -> Vec<&'a str> {
    text.split(open).skip(1).filter_map(|rest| rest.split(close).next()).collect()
}

/// HTML as one line of text.
fn plain(html: &str) -> String {
    let mut text = String::new();
    for part in html.split('<') {
        // A block is a new line.
        text.push_str(if part.starts_with("div") { " " } else { "" });
        text += part.split_once('>').map_or(part, |(_tag, text)| text);
    }
    for (entity, character) in
        [("&lt;", "<"), ("&gt;", ">"), ("&nbsp;", " "), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")]
    {
        text = text.replace(entity, character);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The lines that are in one of the two only, under the item that they belong to.
fn difference(stored: &str, now: &str) -> Vec<String> {
    let (old, new) = (qualified(stored), qualified(now));
    let gone = old.difference(&new).map(|line| format!("- {line}"));
    let added = new.difference(&old).map(|line| format!("+ {line}"));
    let mut lines: Vec<_> = gone.chain(added).collect();
    lines.sort_by(|one, two| one[2..].cmp(&two[2..]));
    lines
}

/// Each line with the item above it.
fn qualified(text: &str) -> BTreeSet<String> {
    let mut item = "";
    let mut lines = BTreeSet::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            Some(member) => lines.insert(format!("{} / {member}", item.split(" {").next().unwrap_or(item))),
            None => {
                item = line;
                lines.insert(line.to_owned())
            }
        };
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<pre class=\"rust item-decl\"><code>pub struct Lock&lt;T&gt; {\n    <span>/* private */</span>\n}</code></pre>\
        <h2 id=\"implementations\">Implementations</h2><div id=\"implementations-list\">\
        <h4 class=\"code-header\">pub fn <a href=\"#x\">ttl</a>(self) -&gt; Self<div class=\"where\">where\n T: Send,</div></h4>\
        <h4 class=\"code-header\">pub const A: u8</h4></div>\
        <h2 id=\"trait-implementations\">x</h2><div id=\"trait-implementations-list\">\
        <h3 class=\"code-header\">impl Clone for <a>Lock</a></h3><h4 class=\"code-header\">fn clone()</h4></div>\
        <h2 id=\"synthetic-implementations\">x</h2><div><h3 class=\"code-header\">impl Send for Lock</h3></div>";

    #[test]
    fn a_page_becomes_its_declaration_its_methods_and_its_traits() {
        assert_eq!(
            text_of("leasehold::lock", PAGE),
            "\nleasehold::lock: pub struct Lock<T> { /* private */ }\n  pub const A: u8\n  \
             pub fn ttl(self) -> Self where T: Send,\n  impl Clone for Lock\n"
        );
    }

    #[test]
    fn a_change_is_shown_with_the_item_that_it_belongs_to() {
        let old = text_of("leasehold", PAGE);
        assert!(difference(&old, &old).is_empty());
        let new = old.replace("ttl(self)", "ttl(self, ttl: Duration)");
        assert_eq!(
            difference(&old, &new),
            [
                "- leasehold: pub struct Lock<T> / pub fn ttl(self) -> Self where T: Send,",
                "+ leasehold: pub struct Lock<T> / pub fn ttl(self, ttl: Duration) -> Self where T: Send,",
            ]
        );
    }
}
