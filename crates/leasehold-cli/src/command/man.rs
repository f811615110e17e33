//! `leasehold man`: manual pages from the same definition as the help.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use super::Cli;
use crate::{
    exit::{Exit, Failure},
    output,
};

/// Print the manual page, or write one for every command
#[derive(Args)]
#[command(after_help = "\
Examples:
  leasehold man | man -l -
  leasehold man --dir /usr/local/share/man/man1")]
pub(super) struct Man {
    /// Write a page for every command into this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(super) fn execute(self) -> Result<Exit, Failure> {
        match self.dir {
            Some(dir) => {
                let written = std::fs::create_dir_all(&dir)
                    .and_then(|()| clap_mangen::generate_to(Cli::command(), &dir));
                written.map_err(|error| {
                    Failure::file(format!("cannot write manual pages to {}", dir.display()), &error)
                })?;
            }
            None => {
                let mut text = Vec::new();
                clap_mangen::Man::new(Cli::command()).render(&mut text)?;
                output::print(&String::from_utf8_lossy(&text))?;
            }
        }
        Ok(Exit::OK)
    }
}
