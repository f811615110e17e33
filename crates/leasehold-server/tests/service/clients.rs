//! The clients in other languages, as programs of their own against a real service.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::json;
use tempfile::TempDir;

use crate::client::{Request, Service};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn driver(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// Whether a program is installed; if not the test of its client is skipped by name.
fn is_installed(program: &str, words: &[&str]) -> bool {
    let found = Command::new(program).args(words).output().is_ok_and(|ran| ran.status.success());
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// A client that holds a lock, loses it to an operator, learns of it, and acquires it again.
fn plays(language: &str, command: impl FnOnce(&str) -> Command) {
    let service = Service::on("memory:");
    let mut command = command(&format!("http://{}", service.address));
    let mut client = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut next = |word: &str| {
        let line = lines.next().unwrap_or_else(|| panic!("{language} ended before {word}")).unwrap();
        let (first, rest) = line.split_once(' ').unwrap_or((&line, ""));
        assert_eq!(first, word, "{language}: {line}");
        rest.to_owned()
    };
    let fence: u64 = next("held").parse().unwrap();
    next("busy");
    let seen = service.get("/v1/locks/a%20b%2Fc").json();
    assert_eq!((&seen["fence"], &seen["holder"]["label"]), (&json!(fence), &json!(language)));
    let force =
        Request::new("POST", "/v1/locks/a%20b%2Fc/force-release").header("If-Match", &format!("\"{fence}\""));
    assert_eq!(service.send(force.json(&json!({"reason": "a test"}))).status, 200);
    assert!(next("lost").starts_with('0'), "nothing of it can be trusted");
    assert!(next("again").parse::<u64>().unwrap() > fence);
    next("done");
    assert!(client.wait().unwrap().success());
    assert_eq!(service.get("/v1/sessions").json()["items"], json!([]), "its session is closed");
}

#[test]
fn the_python_client_learns_of_a_loss() {
    if is_installed("python3", &["--version"]) {
        plays("python", |url| {
            let mut command = Command::new("python3");
            command.arg("-B").arg(driver("driver.py")).arg(url).arg(root().join("clients/python"));
            command
        });
    }
}

#[test]
fn the_typescript_client_learns_of_a_loss() {
    if is_installed("node", &["--version"]) {
        plays("typescript", |url| {
            let mut command = Command::new("node");
            command.arg(driver("driver.mjs")).arg(url).arg(root().join("clients/typescript"));
            command
        });
    }
}

#[test]
fn the_go_client_learns_of_a_loss() {
    if !is_installed("go", &["version"]) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let module = format!(
        "module driver\n\ngo 1.19\n\nrequire github.com/leasehold/leasehold/clients/go v0.0.0\n\n\
         replace github.com/leasehold/leasehold/clients/go => {}\n",
        root().join("clients/go").display()
    );
    fs::write(folder.path().join("go.mod"), module).unwrap();
    fs::copy(driver("driver.go"), folder.path().join("main.go")).unwrap();
    let program = folder.path().join("driver");
    let built =
        Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(folder.path()).status();
    assert!(built.unwrap().success());
    plays("go", |url| {
        let mut command = Command::new(&program);
        command.arg(url);
        command
    });
}
