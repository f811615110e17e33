//! The service as its clients meet it: real requests over real connections.

mod client;
mod clients;
mod locks;
mod resources;
mod security;
mod sessions;
mod tls;
