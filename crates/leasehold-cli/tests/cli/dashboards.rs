//! The Grafana board and the Prometheus alerts query what programs and the command really expose.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::{Leasehold, Policies};
use serde_json::Value;

use crate::{deploy::read, sandbox::Sandbox};

/// Labels that Prometheus itself adds to every sample.
const ADDED_LABELS: [&str; 2] = ["job", "instance"];

fn board() -> String {
    read("grafana/leasehold.json")
}

fn alerts() -> String {
    read("prometheus/alerts.yaml")
}

/// The metrics of a program, of `leasehold stats` and of `leasehold serve`.
async fn exposition() -> String {
    let policies = Policies::parse("[locks.payout]\nkey = \"payout:{deal}\"", "policies.toml").unwrap();
    let leases = Leasehold::builder("memory:").policies(policies).connect().await.unwrap();
    let program = leases.stats().prometheus();
    leases.close().await.unwrap();
    program + &Sandbox::new().run(&["stats", "--prometheus"]).stdout + &of_service()
}

#[cfg(feature = "serve")]
fn of_service() -> String {
    use crate::serve::{get, start};

    let sandbox = Sandbox::new();
    let (_service, address) = start(&sandbox);
    // What was never asked for is not counted either.
    assert_eq!(get(&address, "/healthz").0, 200);
    let (status, text) = get(&address, "/metrics");
    assert_eq!(status, 200, "{text}");
    text
}

#[cfg(not(feature = "serve"))]
fn of_service() -> String {
    panic!("the board is also about `leasehold serve`: test with the feature serve")
}

/// The samples of an exposition: name, and label names.
fn samples(exposition: &str) -> impl Iterator<Item = (&str, BTreeSet<&str>)> {
    let lines = exposition.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| (line.split(['{', ' ']).next().unwrap(), matched_labels(line).collect()))
}

/// The words in a text that can only be names of metrics.
fn metrics(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| word.starts_with("leasehold_"))
}

/// The label names between braces.
fn matched_labels(query: &str) -> impl Iterator<Item = &str> {
    let braces = query.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    braces.flat_map(|inside| inside.split(',')).filter_map(|label| label.trim().split(['=', '!']).next())
}

/// The label names that a query groups by.
fn grouped_labels(query: &str) -> impl Iterator<Item = &str> {
    let groups = query.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    groups.flat_map(|inside| inside.split(',')).map(str::trim)
}

/// All values of `expr` in a JSON document.
fn expressions(document: &Value, found: &mut Vec<String>) {
    match document {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|field| expressions(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

#[tokio::test]
async fn queries_use_metrics_and_labels_that_are_exposed() {
    let exposition = exposition().await;
    let mut labels = BTreeMap::<_, BTreeSet<_>>::new();
    for (name, of_sample) in samples(&exposition) {
        labels.entry(name).or_insert_with(|| ADDED_LABELS.into()).extend(of_sample);
    }
    let (board, alerts) = (board(), alerts());
    for text in [&board, &alerts] {
        let unknown: Vec<_> = metrics(text).filter(|metric| !labels.contains_key(metric)).collect();
        assert!(unknown.is_empty(), "not exposed: {unknown:?}");
    }
    let mut queries = Vec::new();
    expressions(&serde_json::from_str(&board).unwrap(), &mut queries);
    queries.extend(alerts.lines().filter_map(|line| Some(line.trim().strip_prefix("expr: ")?.to_owned())));
    assert!(queries.len() >= 50, "{}", queries.len());
    for query in &queries {
        assert!(metrics(query).next().is_some(), "no metric in {query}");
        for metric in metrics(query) {
            for label in matched_labels(query).chain(grouped_labels(query)) {
                assert!(labels[metric].contains(label), "{metric} has no label {label}: {query}");
            }
        }
    }
}

#[tokio::test]
async fn the_board_shows_everything_that_is_exposed() {
    let (exposition, board) = (exposition().await, board());
    let families = exposition.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let missing: Vec<_> = families.filter(|family| !board.contains(family)).collect();
    assert!(missing.is_empty(), "not on the board: {missing:?}");
}

#[test]
fn every_alert_has_a_severity_a_pause_and_something_to_do() {
    let (sandbox, alerts) = (Sandbox::new(), alerts());
    for rule in alerts.split("- alert: ").skip(1) {
        let has = |field: &str| rule.lines().any(|line| line.trim().starts_with(field));
        assert!(["expr: ", "for: ", "summary: ", "action: "].into_iter().all(has), "{rule}");
        assert!(has("severity: critical") || has("severity: warning"), "{rule}");
    }
    for command in alerts.split('`').filter_map(|text| text.strip_prefix("leasehold ")) {
        let mut words: Vec<_> =
            command.split(' ').filter(|word| !word.contains(char::is_uppercase)).collect();
        words.push("--help");
        assert_eq!(sandbox.run(&words).code, Some(0), "leasehold {command}");
    }
}
