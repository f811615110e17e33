//! The command as a user meets it: exit code, stdout and stderr of real processes.

mod dashboards;
mod deadlines;
mod default_store;
mod demo;
mod deploy;
mod docs;
mod guardian;
mod handles;
mod inspecting;
mod lost;
mod quorum;
mod records;
mod run;
mod sandbox;
mod settings;
mod sharing;
mod signals;
mod sqlite;
mod stores;
mod terminal;
mod trust;
mod usage;
mod valgrind;
