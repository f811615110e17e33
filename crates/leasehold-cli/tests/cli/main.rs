//! The command as a user meets it: exit code, stdout and stderr of real processes.

mod all;
mod dashboards;
mod deadlines;
mod default_store;
mod demo;
mod deploy;
mod docs;
mod elect;
mod guardian;
mod handles;
mod inspecting;
mod latch;
mod leader;
mod lost;
#[cfg(feature = "otel")]
mod otel;
mod postgres;
mod quorum;
mod records;
mod redisson;
mod run;
mod sandbox;
mod screen;
#[cfg(feature = "serve")]
mod serve;
mod settings;
mod sharing;
mod signals;
mod sqlite;
mod stores;
mod terminal;
mod top;
mod trust;
mod usage;
mod valgrind;
