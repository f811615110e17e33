//! Tower layers: the `Idempotency-Key` header, and one request at a time per name.
//!
//! ```
//! # use leasehold::Leasehold;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! use axum::{Router, routing::post};
//! use leasehold_tower::{IdempotencyLayer, LockLayer};
//!
//! let leases = Leasehold::connect("memory:").await?;
//! // The caller; without it all callers share one namespace of keys.
//! let user = |parts: &http::request::Parts| {
//!     parts.headers.get("x-user").and_then(|user| user.to_str().ok()).map(str::to_owned)
//! };
//! let app: Router = Router::new()
//!     .route("/payouts", post(async || "paid"))
//!     .layer(IdempotencyLayer::new(leases.clone()).required().principal(user))
//!     .layer(LockLayer::new(leases.clone(), move |parts| user(parts).map(|user| format!("account:{user}"))));
//! # drop(app); leases.close().await
//! # }
//! ```
//!
//! Responses of the layers themselves are `application/problem+json` (RFC 9457):
//!
//! | status | `type` | when |
//! |---|---|---|
//! | 400 | `urn:leasehold:key-missing`, `urn:leasehold:key-invalid` | no key where one is required; not 1 to 255 visible ASCII characters |
//! | 409, `Retry-After` | `urn:leasehold:in-progress` | the same request is in progress |
//! | 409 | `urn:leasehold:not-replayable` | the request was already executed, and its response was not stored |
//! | 409, `Retry-After` | `urn:leasehold:busy` | another request holds the lock |
//! | 413 | `urn:leasehold:request-too-large` | a body larger than may be compared |
//! | 422 | `urn:leasehold:mismatch` | the key belongs to another request |
//! | 503, `Retry-After` | `urn:leasehold:store-unavailable`, `urn:leasehold:lease-lost` | the store is unavailable; the lease ended before the work did |
//! | 500 | `urn:leasehold:fault` | the stored record cannot be read, or the layer is misconfigured |

mod body;
mod idempotency;
mod key;
mod lock;
mod problem;
mod service;
mod stored;

pub use body::{Body, BoxError};
pub use idempotency::{IdempotencyLayer, REPLAYED};
pub use lock::{LockLayer, LockService};
pub use service::IdempotencyService;

/// The examples of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
