//! `leasehold leader`: who leads, as others see it.

use leasehold_testkit::eventually;
use rustix::process::Signal;
use serde_json::Value;

use crate::sandbox::{LONG, Sandbox, Started};

fn lead(sandbox: &Sandbox, label: &str, name: &str) -> Started {
    let leader = sandbox.start(&["elect", "--label", label, name, "-c", "echo leads; exec sleep 60"]);
    leader.await_stdout("leads");
    leader
}

fn end(mut leader: Started) {
    leader.signal(Signal::TERM);
    assert_eq!(leader.end(), Some(143), "{}", leader.stderr());
}

#[test]
fn a_vacant_election_is_1_and_one_that_is_led_is_0() {
    for sandbox in Sandbox::on_each_store() {
        insta::allow_duplicates! {
            insta::assert_snapshot!(sandbox.run(&["leader", "leader:now"]), @r"
            exit 1
            --- stdout
            name[TAB]leader:now
            state[TAB]vacant
            --- stderr
            ");
            insta::assert_snapshot!(sandbox.run(&["--json", "leader", "leader:now"]), @r#"
            exit 1
            --- stdout
            {"schema":{"version":"v1"},"name":"leader:now","state":"vacant","holder":null,"fence":null}
            --- stderr
            "#);
        }
        let leader = lead(&sandbox, "first", "leader:now");
        let (ran, fence) = (sandbox.run(&["leader", "leader:now"]), sandbox.fact("leader:now", "fence"));
        assert_eq!(ran.code, Some(0), "{ran}");
        let facts: Vec<_> = ran.stdout.lines().map(|line| line.split_once('\t').unwrap()).collect();
        let [("name", "leader:now"), ("state", "led"), ("leader", who), ("since", since), ("fence", of)] =
            facts[..]
        else {
            panic!("{ran}")
        };
        assert!(who.starts_with("first (") && since.ends_with(" ago") && of == fence, "{ran}");
        let json: Value =
            serde_json::from_str(&sandbox.run(&["leader", "leader:now", "--json"]).stdout).unwrap();
        assert_eq!((&json["state"], &json["holder"]["label"]), (&"led".into(), &"first".into()), "{json}");
        assert_eq!(json["fence"].to_string(), fence);
        end(leader);
    }
}

#[test]
fn a_name_that_is_no_election_is_unknown() {
    let sandbox = Sandbox::new();
    let _reader = sandbox.start_script(&["--shared"], "x", "exec sleep 60");
    insta::assert_snapshot!(sandbox.run(&["leader", "x"]), @r"
    exit 2
    --- stdout
    name[TAB]x
    state[TAB]unknown
    --- stderr
    hint: `leasehold inspect x` shows how the name is used
    ");
}

#[test]
fn watch_prints_vacancies_and_terms_in_order() {
    for sandbox in Sandbox::on_each_store() {
        let words = ["leader", "leader:watched", "--watch", "--interval", "20ms"];
        let mut json = sandbox.start(&[&words[..], &["--json", "--count", "4"]].concat());
        let mut watch = sandbox.start(&words);
        watch.await_stdout("\tvacant\t-\t-\n");
        json.await_stdout("vacant");
        let first = lead(&sandbox, "first", "leader:watched");
        watch.await_stdout("\tled\tfirst (");
        json.await_stdout("first");
        end(first);
        for (seen, vacant) in [(&watch, "\tvacant\t"), (&json, "\"vacant\"")] {
            eventually(LONG, "vacant again", || seen.stdout().matches(vacant).count() == 2);
        }
        let second = lead(&sandbox, "second", "leader:watched");
        watch.await_stdout("\tled\tsecond (");
        assert_eq!(json.end(), Some(0), "it has printed its four lines");
        watch.signal(Signal::TERM);
        assert_eq!(watch.end(), Some(0));
        end(second);

        let shown = watch.stdout();
        let lines: Vec<Vec<_>> = shown.lines().map(|line| line.split('\t').collect()).collect();
        let states: Vec<_> = lines.iter().map(|line| line[1]).collect();
        assert_eq!(states, ["vacant", "led", "vacant", "led"], "{shown}");
        assert!(
            lines.is_sorted_by_key(|line| line[0]) && lines.iter().all(|line| line[0].len() == 24),
            "{shown}"
        );
        assert!(lines[1][3].parse::<u64>().unwrap() < lines[3][3].parse().unwrap(), "{shown}");
        let shown = json.stdout();
        let lines: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let states: Vec<_> = lines.iter().map(|line| line["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["vacant", "led", "vacant", "led"], "{shown}");
        assert_eq!(lines[3]["holder"]["label"], "second");
        assert!(lines.iter().all(|line| line["at"].as_str().is_some_and(|at| at.ends_with('Z'))), "{shown}");
    }
}

#[test]
fn wrong_words_are_refused() {
    let sandbox = Sandbox::new();
    for (words, says) in [
        (&[][..], "required arguments were not provided"),
        (&[""], "error: invalid lock name \"\""),
        (&["x", "--interval", "1s"], "--watch"),
        (&["x", "--count", "1"], "--watch"),
        (
            &["x", "--watch", "--interval", "1ms"],
            "error: invalid poll interval \"1ms\": expected 10ms to 3600s",
        ),
        (&["x", "y"], "unexpected argument 'y'"),
    ] {
        let ran = sandbox.run(&[&["leader"], words].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(64), ""), "{words:?}: {ran}");
        assert!(ran.stderr.contains(says), "{words:?}: {ran}");
    }
}
