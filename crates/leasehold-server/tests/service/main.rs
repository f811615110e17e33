//! The service as its clients meet it: real requests over real connections.

#![expect(clippy::print_stderr, reason = "says what is skipped")]

mod attacks;
mod client;
mod clients;
mod document;
mod limits;
mod locks;
mod resources;
mod security;
mod sessions;
mod tls;
