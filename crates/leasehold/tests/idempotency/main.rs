//! Idempotency keys and markers, as callers see them: on memory with paused time.

/// One test per store and case.
macro_rules! on_every_store {
    ($($case:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $case() {
                super::$case($crate::ground::Ground::memory().await).await;
            })+
        }
    };
}

mod duplicates;
mod endings;
mod ground;
mod keys;
mod markers;
mod waiting;
