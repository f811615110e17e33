//! Stores that real processes can share.

/// One test per store and case. A case takes an `Arena`, which is made from the address of a store. Etcd and
/// PostgreSQL take part only where they are named.
macro_rules! on_every_store {
    (etcd and postgres too: $($case:ident),+ $(,)?) => {
        #[cfg(feature = "etcd")]
        mod etcd {
            $(#[tokio::test]
            async fn $case() {
                let Some(etcd) = leasehold_testkit::EtcdSet::builder(1).start_or_skip() else { return };
                super::$case(super::Arena::new(etcd.url())).await;
            })+
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            /// One server; each case has a database of its own.
            fn server() -> Option<&'static leasehold_testkit::PostgresServer> {
                static SERVER: std::sync::OnceLock<Option<leasehold_testkit::PostgresServer>> =
                    std::sync::OnceLock::new();
                let start = || {
                    let server = leasehold_testkit::PostgresServer::start_or_skip()?;
                    server.install(&leasehold::engine::postgres::script());
                    Some(server)
                };
                SERVER.get_or_init(start).as_ref()
            }

            $(#[tokio::test]
            async fn $case() {
                let Some(server) = server() else { return };
                super::$case(super::Arena::new(server.url(&server.database()))).await;
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
