//! Limits of settings, and the messages of refusals.

use std::time::Duration;

use leasehold::{ErrorKind, Lock, Retry, lease::validity::TTL_MAX_LIMIT};

use super::{
    TestContext,
    context::{list_all, ms},
};

cases! {
    names_of_every_script_and_of_full_length_work,
    similar_names_are_different_locks,
    a_bad_name_is_refused_and_quoted,
    a_name_too_long_for_the_store_is_refused,
    a_ttl_out_of_range_is_refused_with_the_range,
    a_wait_out_of_range_is_refused_with_the_range,
    a_label_out_of_range_is_refused,
    other_settings_out_of_range_are_refused,
    a_client_with_settings_out_of_range_is_refused,
    a_refused_setting_leaves_nothing_in_the_store,
    every_error_states_its_kind_and_what_to_do,
}

async fn names_of_every_script_and_of_full_length_work(test: TestContext) {
    let client = test.client().await;
    let full = "n".repeat(client.capabilities().name_max_bytes);
    let names = [
        "a",
        " ",
        "deal:42",
        "größe/Ä ß",
        "замок",
        "锁",
        "🔒",
        "{deal}:42",
        "a{b",
        "x{y}z}",
        "'; DROP TABLE locks; --",
        "\"quoted\"",
        "a\\b",
        "*",
        "%s",
        "-n",
        "../x",
        &full,
    ];
    for name in names {
        let guard = client.lock(name).acquire().await.unwrap();
        assert_eq!(guard.name().as_str(), name);
        let inspection = client.inspect(name).await.unwrap();
        assert_eq!(inspection.held().expect("held").fence, guard.fence(), "{name}");
        let listed = list_all(&client, "", 100).await;
        assert_eq!(listed.iter().map(|item| item.name.as_str()).collect::<Vec<_>>(), [name]);
        assert!(client.lock(name).try_acquire().await.unwrap().held().is_none());
        assert!(guard.release().await.unwrap().was_held());
    }
}

async fn similar_names_are_different_locks(test: TestContext) {
    let client = test.client().await;
    let names =
        ["a", "A", "a ", " a", "a:", "a::", "ä", "a\u{308}", "{a}", "{a", "a\\", "a\\\\", "01", "1", "1.0"];
    let mut guards = Vec::new();
    for name in names {
        let guard = client.lock(name).try_acquire().await.unwrap().held();
        guards.push(guard.unwrap_or_else(|| panic!("{name:?} is the same as one of the others")));
    }
}

async fn a_bad_name_is_refused_and_quoted(test: TestContext) {
    let client = test.client().await;
    for (name, quoted) in [("", "\"\""), ("a\nb", "a\\nb"), ("a\0", "a\\0"), ("a}b", "a}b"), ("a{}b", "a{}b")]
    {
        let errors = [
            client.lock(name).acquire().await.unwrap_err(),
            client.lock(name).try_acquire().await.unwrap_err(),
            client.inspect(name).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let text = error.to_string();
            assert!(text.contains("lock name") && text.contains(quoted) && !text.contains('\n'), "{text}");
        }
    }
}

async fn a_name_too_long_for_the_store_is_refused(test: TestContext) {
    let client = test.client().await;
    let most = client.capabilities().name_max_bytes;
    let error = client.lock("n".repeat(most + 1)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("lock name \"nnn") && text.contains(&most.to_string()), "{text}");
    assert!(text.len() < 300, "{text}");
}

async fn assert_refused(lock: Lock, what: &str, range: &[&str]) {
    let (tried, acquired) = (lock.clone().try_acquire().await, lock.acquire().await);
    for error in [tried.map(drop).unwrap_err(), acquired.map(drop).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let text = error.to_string();
        assert!(text.contains(what) && range.iter().all(|bound| text.contains(bound)), "{text}");
    }
}

async fn a_ttl_out_of_range_is_refused_with_the_range(test: TestContext) {
    let client = test.client().await;
    for ttl in [Duration::ZERO, ms(49), ms(300_001), Duration::MAX] {
        assert_refused(client.lock("job").ttl(ttl), "ttl", &["50ms", "300s"]).await;
    }
    assert!(client.lock("job").ttl(ms(300_000)).acquire().await.unwrap().release().await.unwrap().was_held());
}

async fn a_wait_out_of_range_is_refused_with_the_range(test: TestContext) {
    let client = test.client().await;
    let most = leasehold::config::WAIT_MAX;
    assert_refused(client.lock("job").wait(most + ms(1)), "wait", &["0ns", &format!("{most:?}")]).await;
    assert!(client.lock("job").wait(most).acquire().await.unwrap().release().await.unwrap().was_held());
}

async fn a_label_out_of_range_is_refused(test: TestContext) {
    let client = test.client().await;
    for label in ["x".repeat(129), "two\nlines".into()] {
        assert_refused(client.lock("job").label(label), "label", &["128 bytes"]).await;
    }
    assert!(
        client
            .lock("job")
            .label("x".repeat(128))
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap()
            .was_held()
    );
}

async fn other_settings_out_of_range_are_refused(test: TestContext) {
    let client = test.client().await;
    let lock = || client.lock("job").ttl(ms(1_000));
    assert_refused(lock().retry(Retry::fixed(Duration::ZERO)), "retry interval", &["1ms"]).await;
    assert_refused(lock().retry(Retry::exponential(ms(10), 0.5)), "retry factor", &["1 to 10"]).await;
    assert_refused(lock().max_attempts(0), "max attempts", &["1 or more"]).await;
    assert_refused(lock().lock_delay(ms(300_001)), "lock delay", &["300s"]).await;
    assert_refused(lock().hold_at_least(TTL_MAX_LIMIT + ms(1)), "minimum hold time", &["0ns"]).await;
    assert_refused(lock().max_lifetime(ms(999)), "maximum lifetime", &["1s"]).await;
}

async fn a_client_with_settings_out_of_range_is_refused(test: TestContext) {
    let spoils: [fn(&mut leasehold::Config); 4] = [
        |config| config.ttl = Duration::ZERO,
        |config| config.command_timeout = Duration::ZERO,
        |config| config.max_in_flight = 0,
        |config| config.label = "\n".into(),
    ];
    for spoil in spoils {
        let error = test.builder().configure(spoil).connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

async fn a_refused_setting_leaves_nothing_in_the_store(test: TestContext) {
    let client = test.client().await;
    client.lock("job").ttl(Duration::ZERO).acquire().await.unwrap_err();
    client.lock("job").label("\n").try_acquire().await.unwrap_err();
    assert_eq!(client.stats().acquired, 0);
    client.close().await.unwrap();
    test.assert_empty().await;
}

async fn every_error_states_its_kind_and_what_to_do(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").acquire().await.unwrap();
    let mut errors = vec![
        client.lock("").acquire().await.unwrap_err(),
        client.lock("job").wait(Duration::ZERO).acquire().await.unwrap_err(),
    ];
    assert!(client.force_release("job", guard.fence()).await.unwrap().was_held());
    errors.push(guard.extend().await.unwrap_err());
    client.close().await.unwrap();
    errors.push(client.inspect("job").await.unwrap_err());
    let kinds: Vec<_> = errors.iter().map(|error| error.kind().as_str()).collect();
    assert_eq!(kinds, ["invalid", "timed_out", "lost", "unsupported"]);
    for error in errors {
        assert_eq!(error.is_retryable(), error.kind() == ErrorKind::TimedOut, "{error}");
        let text = error.to_string();
        assert!(!text.ends_with('.') && !text.contains('\n'), "{text}");
    }
}
