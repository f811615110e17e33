//! Stores that real processes can share.

/// One test per store and case. A case takes an `Arena`, which is made from the address of a store. Etcd has no deadlines, so
/// it takes part only where it is named.
macro_rules! on_every_store {
    (etcd too: $($case:ident),+ $(,)?) => {
        #[cfg(feature = "etcd")]
        mod etcd {
            $(#[tokio::test]
            async fn $case() {
                let Some(etcd) = leasehold_testkit::EtcdSet::builder(1).start_or_skip() else { return };
                super::$case(super::Arena::new(etcd.url())).await;
            })+
        }

        on_every_store!($($case),+);
    };
    ($($case:ident),+ $(,)?) => {
        #[cfg(feature = "redis")]
        mod redis {
            $(#[tokio::test]
            async fn $case() {
                let Some(server) = leasehold_testkit::redis_or_skip() else { return };
                super::$case(super::Arena::new(server.url())).await;
            })+
        }

        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[tokio::test]
            async fn $case() {
                let dir = tempfile::tempdir().unwrap();
                let store = format!("sqlite:{}", dir.path().join("leases.db").display());
                super::$case(super::Arena::new(store)).await;
            })+
        }
    };
}
