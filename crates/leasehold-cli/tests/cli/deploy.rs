//! The commands in the example units and manifests, run as they are written.

use std::{fs, path::Path};

use crate::sandbox::Sandbox;

/// A file of `deploy/`.
pub(crate) fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)).unwrap()
}

/// What follows `key` on the only line that begins with it.
fn value<'a>(text: &'a str, key: &str) -> &'a str {
    let mut values = text.lines().filter_map(|line| line.trim().strip_prefix(key));
    let value = values.next().unwrap_or_else(|| panic!("no {key}"));
    assert_eq!(values.next(), None, "{key}");
    value
}

#[test]
fn a_systemd_job_that_runs_elsewhere_is_no_failure() {
    let (sandbox, unit) = (Sandbox::new(), read("systemd/leasehold-job@.service"));
    let line = value(&unit, "ExecStart=").replace("/usr/local/lib/leasehold/%i", "true").replace("%i", "job");
    let words: Vec<_> = line.split(' ').collect();
    assert_eq!((words[0], words.last()), ("leasehold", Some(&"true")));
    assert_eq!(sandbox.run(&words[1..]).code, Some(0));
    // It is held at least that long: the same job on another host comes too late.
    let held_elsewhere = value(&unit, "SuccessExitStatus=").parse().unwrap();
    assert_eq!(sandbox.run(&words[1..]).code, Some(held_elsewhere));
}

#[test]
fn the_kubernetes_examples_run_their_command() {
    for file in ["kubernetes/cronjob.yaml", "kubernetes/deployment.yaml"] {
        let (sandbox, manifest) = (Sandbox::new(), read(file));
        let line = value(&manifest, "command: [").strip_suffix(']').unwrap();
        let mut words: Vec<_> = line.split(", ").collect();
        assert_eq!((words[0], words.last()), ("leasehold", Some(&"--")), "{file}");
        words.push("true");
        let ran = sandbox.run(&words[1..]);
        assert_eq!(ran.code, Some(0), "{file}\n{ran}");
    }
}

/// The options of the unit and of the manifest exist, and their addresses are what the guide says.
#[test]
fn the_service_examples_name_options_that_exist() {
    let (sandbox, unit) = (Sandbox::new(), read("systemd/leasehold-serve.service"));
    let help = sandbox.run(&["serve", "--help"]).stdout;
    let manifest = read("kubernetes/serve.yaml");
    let args = value(&manifest, "args: [").strip_suffix(']').unwrap();
    for line in [value(&unit, "ExecStart=leasehold "), args] {
        let words: Vec<_> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        assert_eq!(words[0], "serve");
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "{option}");
        }
        assert!(line.contains(":7420"), "{line}");
    }
}
