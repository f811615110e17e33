//! Idempotency keys and markers, as callers see them: on memory with paused time, on a file and on a real server.

/// One test per store and case.
macro_rules! on_every_store {
    ($($case:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $case() {
                super::$case($crate::fixture::Fixture::memory().await).await;
            })+
        }

        #[cfg(feature = "etcd")]
        mod etcd {
            $(#[tokio::test]
            async fn $case() {
                let Some(etcd) = leasehold_testkit::EtcdSet::builder(1).start_or_skip() else { return };
                super::$case($crate::fixture::Fixture::at(&etcd.url()).await).await;
            })+
        }

        #[cfg(feature = "redis")]
        mod redis {
            $(#[tokio::test]
            async fn $case() {
                let Some(server) = leasehold_testkit::redis_or_skip() else { return };
                super::$case($crate::fixture::Fixture::at(&server.url()).await).await;
            })+
        }

        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[tokio::test]
            async fn $case() {
                let dir = tempfile::tempdir().unwrap();
                let store = format!("sqlite:{}", dir.path().join("records.db").display());
                super::$case($crate::fixture::Fixture::at(&store).await).await;
            })+
        }
    };
}

mod duplicates;
mod endings;
mod fixture;
mod keys;
mod markers;
mod waiting;
