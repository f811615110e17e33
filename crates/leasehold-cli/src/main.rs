//! Placeholder entry.
fn main() {}
