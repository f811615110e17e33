//! The command as a user meets it: exit code, stdout and stderr of real processes.

mod docs;
mod handles;
mod looking;
mod lost;
mod quorum;
mod run;
mod sandbox;
mod signals;
mod stores;
mod terminal;
mod usage;
