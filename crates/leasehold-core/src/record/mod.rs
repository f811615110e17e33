//! Running records: begun, kept alive like a lock, settled. What idempotency keys and guards of markers share.

mod begin;
mod held;

pub(crate) use begin::{Began, RecordRequest, begin};
pub(crate) use held::Held;
