//! The rights that SECURITY.md documents, so that tests use them and they cannot drift.

/// The line of the code block after the comment `<!-- NAME -->`.
///
/// # Panics
/// When SECURITY.md has no such block.
#[track_caller]
pub(crate) fn line(name: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../SECURITY.md");
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"));
    let after = text.split(&format!("<!-- {name} -->")).nth(1);
    let block = after.and_then(|text| text.split("```").nth(1)).and_then(|block| block.split_once('\n'));
    match block {
        Some((_, line)) if !line.trim().is_empty() => line.split_whitespace().collect::<Vec<_>>().join(" "),
        _ => panic!("SECURITY.md has no code block after <!-- {name} -->"),
    }
}
