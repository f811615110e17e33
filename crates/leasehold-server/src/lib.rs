//! Locks for every language: a [`Leasehold`](leasehold::Leasehold) over HTTP.
//!
//! `leasehold serve` is this crate on the command line. In a program of your own:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! use leasehold::Leasehold;
//! use leasehold_server::Server;
//!
//! let leases = Leasehold::connect("memory:").await?;
//! let server = Server::builder(leases).listen("127.0.0.1:0".parse().unwrap()).start().await?;
//! println!("http://{}", server.address());
//! server.stop().await;
//! # Ok(()) }
//! ```
//!
//! # What is kept where
//!
//! Locks, records, marks and deadlines are in the store: a client may acquire from one service and release through another.
//! Sessions, attempts with an id, and executions in progress are in the memory of one service; when it ends, their leases run
//! out in the store, and nothing outlives its ttl. The history of the dashboard begins with the service.

mod api;
mod attempts;
mod audit;
mod auth;
mod connection;
mod events;
mod executions;
mod gate;
mod head;
mod history;
mod json;
mod limits;
mod listen;
mod metrics;
mod openapi;
#[cfg(feature = "otel")]
mod otel;
mod playground;
mod poller;
mod problem;
mod route;
mod routes;
mod server;
mod sessions;
mod state;
mod tls;
mod token;
mod ui;
mod views;

pub use auth::{Right, Tokens};
pub use limits::Limits;
#[cfg(feature = "otel")]
pub use otel::Telemetry;
pub use server::{Builder, DEFAULT_ADDRESS, Server};
pub use tls::Tls;
