//! Both layers in a real server, over TCP.

mod idempotency;
mod lock;
mod site;
