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
    let manifests = ["kubernetes/serve.yaml", "kubernetes/sidecar.yaml"].map(read);
    let args = manifests.each_ref().map(|text| value(text, "args: [").strip_suffix(']').unwrap());
    for line in [value(&unit, "ExecStart=leasehold "), args[0], args[1]] {
        let words: Vec<_> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        assert_eq!(words[0], "serve");
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "{option}");
        }
        assert!(line.contains(":7420"), "{line}");
    }
}

/// What the application finds beside it is what the guide says: an address of its own, open to its pod only, and alive.
#[cfg(feature = "serve")]
#[test]
fn the_sidecar_answers_where_its_application_asks() {
    use crate::serve::{get, start};

    let (sandbox, manifest) = (Sandbox::new(), read("kubernetes/sidecar.yaml"));
    let url = manifest.split("name: LEASEHOLD_URL, value: \"").nth(1).and_then(|rest| rest.split('"').next());
    let listens = value(&manifest, "args: [serve, --listen, \"").strip_suffix("\"]");
    let address = listens.unwrap();
    assert_eq!(url, Some(format!("http://{address}").as_str()));
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let probe = value(&manifest, "command: [wget, ").rsplit('"').nth(1).unwrap();
    let path = probe.strip_prefix(url.unwrap()).unwrap();
    let (_service, address) = start(&sandbox);
    assert_eq!(get(&address, path), (200, "{\"status\":\"ok\"}".to_owned()), "{path}");
}
