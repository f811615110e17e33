//! Locales that the machine may not have, compiled into a folder for one server.

use std::path::Path;
use std::process::{Command, Stdio};

/// Compiles `LANGUAGE.CHARSET` into `folder`, for a process with that folder as its `LOCPATH`.
pub(crate) fn compile(locale: &str, folder: &Path) -> bool {
    let Some((language, charset)) = locale.split_once('.') else { return false };
    let compiled = folder.join(locale);
    let mut localedef = Command::new("localedef");
    localedef.args(["-i", language, "-f", charset]).arg(&compiled);
    localedef.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Warnings about the sources make it exit with 1, and the locale is usable all the same.
    localedef.status().is_ok() && compiled.join("LC_COLLATE").is_file()
}
