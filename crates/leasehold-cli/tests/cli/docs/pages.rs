//! The pages of the documentation, and the blocks of code in them.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) struct Page {
    /// From the root of the repository.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// What stands between two lines of backticks.
pub(crate) struct Block<'a> {
    pub(crate) place: String,
    pub(crate) kind: &'a str,
    pub(crate) lines: Vec<&'a str>,
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every page of the repository, in a fixed order.
pub(crate) fn pages() -> Vec<Page> {
    let root = root();
    let mut folders = vec![root.clone()];
    let mut pages = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                folders.extend((!name.starts_with('.') && name != "target").then_some(path));
            } else if name.ends_with(".md") {
                let text = fs::read_to_string(&path).unwrap();
                pages.push(Page { path: path.strip_prefix(&root).unwrap().to_str().unwrap().into(), text });
            }
        }
    }
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    pages
}

impl Page {
    pub(crate) fn blocks(&self) -> Vec<Block<'_>> {
        let mut blocks: Vec<Block<'_>> = Vec::new();
        let mut is_open = false;
        for (index, line) in self.text.lines().enumerate() {
            match line.trim_start().strip_prefix("```") {
                Some(kind) if !is_open => {
                    let place = format!("{}:{}", self.path, index + 1);
                    blocks.push(Block { place, kind, lines: Vec::new() });
                    is_open = true;
                }
                Some(_) => is_open = false,
                None if is_open => blocks.last_mut().expect("a block is open").lines.push(line),
                None => {}
            }
        }
        assert!(!is_open, "{}: a block without an end", self.path);
        blocks
    }

    /// Code between backticks inside of sentences.
    pub(crate) fn spans(&self) -> Vec<&str> {
        let mut is_code = false;
        let prose = self.text.lines().filter(|line| {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            !is_code && !is_fence
        });
        prose.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
    }
}

/// A command of a block `console`, and the output below it.
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) output: String,
}

impl Block<'_> {
    /// A command begins with `$ `, or `# ` if it is one for root, and goes on after a `\` at the end of its line.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for line in &self.lines {
            match line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")) {
                Some(command) => steps.push(Step { command: command.into(), output: String::new() }),
                None => {
                    let step = steps.last_mut().unwrap_or_else(|| panic!("{}: no command", self.place));
                    let goes_on = step.command.ends_with('\\') && step.output.is_empty();
                    let text = if goes_on { &mut step.command } else { &mut step.output };
                    text.push_str(if goes_on { "\n" } else { "" });
                    text.push_str(line);
                    text.push_str(if goes_on { "" } else { "\n" });
                }
            }
        }
        steps
    }
}

impl Step {
    /// Whether the output is the one on the page: `…` stands for anything, and columns may be as wide as they like.
    pub(crate) fn states(&self, actual: &str) -> bool {
        let (stated, actual) = (narrow(&self.output), narrow(actual));
        let Some((first, others)) = stated.split_once('…') else {
            return stated.is_empty() || stated == actual;
        };
        let Some(mut rest) = actual.strip_prefix(first) else { return false };
        let mut parts: Vec<_> = others.split('…').collect();
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            let Some((_, after)) = rest.split_once(part) else { return false };
            rest = after;
        }
        rest.ends_with(last)
    }
}

/// Between words one space, as on a terminal of any width or in a pipe.
fn narrow(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn output_is_compared_but_for_what_is_left_out() {
    let step = |output: &str| Step { command: String::new(), output: output.into() };
    assert!(step("").states("anything\n"));
    assert!(step("done\n").states("done\n") && !step("done\n").states("done\nand more\n"));
    assert!(step("a  1\n").states("a\t1\n") && !step("a  1\n").states("a\n1\n"));
    assert!(step("a …\nb\n").states("a 1 2\nb\n") && !step("a …\nb\n").states("a 1\nc\n"));
    assert!(step("…x…\n").states("12x34\n") && !step("…x…\n").states("1234\n"));
}
