//! `leasehold completions`: shell completions, generated from the definition of the commands.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::{
    exit::{Exit, Failure},
    output,
};

/// Print completions for a shell
#[derive(Args)]
#[command(after_help = "\
Example:
  leasehold completions bash > ~/.local/share/bash-completion/completions/leasehold")]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn execute(self) -> Result<Exit, Failure> {
        // Into memory first: the generator panics when a pipe breaks.
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "leasehold", &mut text);
        output::print(&String::from_utf8_lossy(&text))?;
        Ok(Exit::OK)
    }
}
