//! Marks and idempotency keys: marker and idem.

use leasehold_testkit::RedisServer;

use crate::sandbox::Sandbox;

#[test]
fn a_mark_is_set_tested_and_cleared() {
    let Some(server) = RedisServer::shared_or_skip() else { return };
    let sandbox = Sandbox::on(server.url());
    let marker = |words: &[&str]| sandbox.run(&[&["marker"], words].concat());
    assert_eq!(marker(&["test", "cli-marks", "a.csv"]).code, Some(1));
    insta::assert_snapshot!(marker(&["set", "cli-marks", "a.csv", "--ttl", "10m"]), @r"
    exit 0
    --- stdout
    --- stderr
    ");
    let left = server.cli(&["PTTL", "cli-marks:a.csv"]).int();
    assert!((500_000..=600_000).contains(&left), "{left}");
    insta::assert_snapshot!(marker(&["test", "cli-marks", "a.csv", "--json"]), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"kind":"cli-marks","id":"a.csv","marked":true}
    --- stderr
    "#);
    insta::assert_snapshot!(marker(&["set", "cli-marks", "a.csv", "--if-absent"]), @r"
    exit 1
    --- stdout
    --- stderr
    nothing done: it is already marked
    ");
    insta::assert_snapshot!(marker(&["clear", "cli-marks", "a.csv", "--json"]), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"kind":"cli-marks","id":"a.csv","marked":false,"changed":true}
    --- stderr
    "#);
    insta::assert_snapshot!(marker(&["clear", "cli-marks", "a.csv"]), @r"
    exit 1
    --- stdout
    --- stderr
    nothing done: it is not marked
    ");
    server.cli(&["SET", "cli-marks:b.csv", "leasehold:1 completed 7 - x", "PX", "60000"]);
    let guarded = marker(&["clear", "cli-marks", "b.csv"]);
    assert_eq!(
        (guarded.code, &*guarded.stderr),
        (Some(1), "nothing done: the key belongs to a guard or another program\n")
    );
}

#[test]
fn a_mark_that_cannot_be_tested_is_no_answer() {
    let sandbox = Sandbox::on("redis://127.0.0.1:1");
    assert_eq!(sandbox.run(&["marker", "test", "processing", "a.csv"]).code, Some(69));
}

#[test]
fn a_request_is_shown_and_removed() {
    let Some(server) = RedisServer::shared_or_skip() else { return };
    let sandbox = Sandbox::on(server.url());
    let idem = |words: &[&str]| sandbox.run(&[&["idem"], words].concat());
    insta::assert_snapshot!(idem(&["get", "cli-payout", "42"]), @r"
    exit 1
    --- stdout
    key[TAB]idempotency:cli-payout:42
    state[TAB]absent
    --- stderr
    ");
    let fingerprint = "ab".repeat(32);
    let stored = format!("leasehold:1 completed 7 {fingerprint} {{\"paid\":true}}");
    server.cli(&["SET", "idempotency:cli-payout:42", &stored]);
    insta::assert_snapshot!(idem(&["get", "cli-payout", "42"]), @r#"
    exit 0
    --- stdout
    key[TAB]idempotency:cli-payout:42
    state[TAB]completed
    fence[TAB]7
    fingerprint[TAB]abababababababababababababababababababababababababababababababab
    result[TAB]{"paid":true}
    --- stderr
    "#);
    insta::assert_snapshot!(idem(&["get", "cli-payout", "42", "--json"]), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"key":"idempotency:cli-payout:42","state":"completed","holder":null,"fence":7,"fingerprint":"abababababababababababababababababababababababababababababababab","expires_in_ms":null,"result":"{\"paid\":true}"}
    --- stderr
    "#);
    for (value, state) in
        [("1", "marked"), ("garbage", "corrupt"), ("leasehold:1 quarantined 8 - no", "quarantined")]
    {
        server.cli(&["SET", "idempotency:cli-payout:42", value]);
        let shown = idem(&["get", "cli-payout", "42"]).stdout;
        assert!(shown.contains(&format!("state\t{state}\n")), "{shown}");
    }
    assert_eq!(idem(&["rm", "cli-payout", "42"]).code, Some(0));
    insta::assert_snapshot!(idem(&["rm", "cli-payout", "42"]), @r"
    exit 1
    --- stdout
    --- stderr
    nothing to remove
    ");
    insta::assert_snapshot!(idem(&["rm", "cli-payout", "42", "--json"]), @r#"
    exit 1
    --- stdout
    {"schema":{"version":"v1"},"key":"idempotency:cli-payout:42","removed":false}
    --- stderr
    "#);
}

/// A running execution shows its holder, but no owner value.
#[test]
fn a_running_request_shows_its_holder_and_no_secret() {
    let Some(server) = RedisServer::shared_or_skip() else { return };
    let sandbox = Sandbox::on(server.url());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let leases = leasehold::Leasehold::connect(server.url()).await.unwrap();
        let request = leases.idempotency("cli-payout").key("running").label("cashier");
        let begun = request.begin_bytes().await.unwrap();
        let shown = sandbox.run(&["idem", "get", "cli-payout", "running"]).stdout;
        assert!(
            shown.contains("state\trunning\nholder\tcashier (") && shown.contains("expires\t"),
            "{shown}"
        );
        let stored = server.cli(&["GET", "idempotency:cli-payout:running"]);
        let secret = &stored.text().splitn(5, ' ').last().unwrap()[..16];
        assert!(!shown.contains(secret), "{shown}");
        drop(begun);
        leases.close().await.unwrap();
    });
}
