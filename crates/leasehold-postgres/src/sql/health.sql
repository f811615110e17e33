-- What `doctor` checks, in one row.
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::int AS version_number,
       current_setting('fsync')::boolean AS fsync,
       current_setting('full_page_writes')::boolean AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('default_transaction_isolation') AS isolation,
       current_setting('idle_in_transaction_session_timeout') AS idle_in_transaction_timeout,
       pg_is_in_recovery() AS is_replica,
       current_database()::text AS database,
       current_user::text AS username,
       (SELECT version FROM leasehold.schema_version) AS schema_version,
       (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS replicas,
       (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'leasehold.locks'::regclass) AS names,
       (SELECT count(*) FROM leasehold.waiters WHERE live_until > leasehold.now_us()) AS waiters,
       leasehold.now_us() AS now_us,
       current_setting('max_connections')::bigint - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
           AS connections_free,
       coalesce((SELECT max(extract(epoch FROM clock_timestamp() - xact_start)) FROM pg_stat_activity
                 WHERE datname = current_database()), 0)::bigint AS oldest_transaction_s
