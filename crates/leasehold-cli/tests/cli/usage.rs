//! Help, wrong usage, completions and manual pages.

use crate::sandbox::Sandbox;

const COMMANDS: [&[&str]; 39] = [
    &["run"],
    &["elect"],
    &["leader"],
    &["lock"],
    &["lock", "acquire"],
    &["lock", "extend"],
    &["lock", "release"],
    &["semaphore"],
    &["semaphore", "set-limit"],
    &["ls"],
    &["inspect"],
    &["force-release"],
    &["watch"],
    &["top"],
    &["migrate"],
    &["stats"],
    &["doctor"],
    &["serve"],
    &["completions"],
    &["idem"],
    &["idem", "get"],
    &["idem", "rm"],
    &["marker"],
    &["marker", "set"],
    &["marker", "test"],
    &["marker", "clear"],
    &["latch"],
    &["latch", "wait"],
    &["latch", "count-down"],
    &["latch", "run"],
    &["latch", "show"],
    &["latch", "rearm"],
    &["deadlines"],
    &["deadlines", "add"],
    &["deadlines", "due"],
    &["deadlines", "claim"],
    &["deadlines", "ack"],
    &["deadlines", "stats"],
    &["deadlines", "dead"],
];

#[test]
fn a_duration_below_zero_is_told_what_durations_are() {
    let sandbox = Sandbox::new();
    for words in [
        &["marker", "set", "processing", "a.csv", "--ttl", "-5s"][..],
        &["deadlines", "add", "payments", "tx:1", "--in", "-5s"],
        &["deadlines", "claim", "payments", "--visibility", "-5s"],
    ] {
        let said = sandbox.run(words);
        assert_eq!(said.code, Some(64));
        assert!(
            said.stderr.contains("invalid value '-5s'")
                && said.stderr.contains("expected a number with a unit"),
            "{}",
            said.stderr
        );
    }
}

#[test]
fn a_mark_without_an_id_is_refused_in_words_of_marks() {
    let said = Sandbox::new().run(&["marker", "set", "processing", ""]);
    assert_eq!(said.code, Some(64));
    assert!(said.stderr.starts_with("error: invalid id of a mark \"\""), "{}", said.stderr);
}

#[test]
fn every_command_has_an_example_in_its_help() {
    let sandbox = Sandbox::new();
    for command in COMMANDS.into_iter().chain([&["man"][..], &[]]) {
        let ran = sandbox.run(&[command, &["--help"]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{command:?}");
        assert!(ran.stdout.contains("Example"), "{command:?}: {ran}");
    }
}

#[test]
fn the_help_of_what_runs_a_command_lists_its_exit_codes() {
    for command in ["run", "elect"] {
        let help = Sandbox::new().run(&[command, "--help"]).stdout;
        for code in ["64", "69", "76", "80", "124", "126, 127", "128+N"] {
            assert!(help.contains(code), "{code}: {help}");
        }
    }
}

#[test]
fn wrong_usage_is_64_in_every_command() {
    let sandbox = Sandbox::new();
    for command in COMMANDS {
        let ran = sandbox.run(&[command, &["--no-such-option"]].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(64), ""), "{command:?}");
        assert!(ran.stderr.starts_with("error: "), "{command:?}: {ran}");
    }
}

#[test]
fn a_missing_name_is_wrong_usage() {
    insta::assert_snapshot!(Sandbox::new().run(&["run"]), @r"
    exit 64
    --- stdout
    --- stderr
    error: the name of the lock is missing

    hint: leasehold run NAME -- CMD
    ");
}

#[test]
fn a_number_without_a_unit_is_refused() {
    insta::assert_snapshot!(Sandbox::new().run(&["run", "--ttl", "30", "x", "--", "true"]), @r"
    exit 64
    --- stdout
    --- stderr
    error: invalid value '30' for '--ttl <DUR>': expected a number with a unit, such as 30s or 30ms

    For more information, try '--help'.
    ");
}

#[test]
fn wrong_usage_is_json_when_asked_for() {
    insta::assert_snapshot!(Sandbox::new().run(&["--json", "inspect"]), @r#"
    exit 64
    --- stdout
    --- stderr
    {"schema":{"version":"v1"},"error":{"kind":"invalid","retry":false,"message":"the following required arguments were not provided: <NAME>","hint":"see `leasehold --help`"}}
    "#);
}

#[test]
fn a_ttl_out_of_range_is_refused() {
    insta::assert_snapshot!(Sandbox::new().run(&["run", "--ttl", "10m", "x", "--", "true"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: invalid ttl "600s": expected 50ms to 300s

    hint: max-ttl is 5m; raise it with max-ttl = "10m" in leasehold.toml or LEASEHOLD_MAX_TTL=10m
    "#);
}

#[test]
fn a_bad_name_is_refused() {
    insta::assert_snapshot!(Sandbox::new().run(&["inspect", "a\nb"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: invalid lock name "a\nb": expected printable text without control characters
    "#);
}

#[test]
fn the_version_is_told() {
    let ran = Sandbox::new().run(&["--version"]);
    assert_eq!((ran.code, ran.stdout), (Some(0), format!("leasehold {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn completions_know_the_commands() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = sandbox.run(&["completions", shell]);
        assert_eq!(ran.code, Some(0));
        for word in [
            "force-release",
            "set-limit",
            "shared",
            "permits",
            "elect",
            "prefer",
            "leader",
            "top",
            "read-only",
        ] {
            assert!(ran.stdout.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let sandbox = Sandbox::new();
    assert!(sandbox.run(&["man"]).stdout.contains(".TH leasehold 1"));
    assert_eq!(sandbox.run(&["man", "--dir", "pages"]).code, Some(0));
    for page in [
        "leasehold.1",
        "leasehold-run.1",
        "leasehold-elect.1",
        "leasehold-leader.1",
        "leasehold-lock-acquire.1",
        "leasehold-semaphore-set-limit.1",
        "leasehold-force-release.1",
        "leasehold-top.1",
    ] {
        let text = std::fs::read_to_string(sandbox.path("pages").join(page)).unwrap();
        for section in ["NAME", "SYNOPSIS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"] {
            let heading = [format!(".SH {section}\n"), format!(".SH \"{section}\"\n")];
            assert!(heading.iter().any(|heading| text.contains(heading)), "{section} of {page}: {text}");
        }
        assert!(!text.contains("EXTRA"), "{page}");
    }
}
