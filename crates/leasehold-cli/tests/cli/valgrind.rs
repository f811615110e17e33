//! Instruction counts and leak checks need a client that runs under valgrind.

use std::{fs, io};

use crate::sandbox::{BINARY, Sandbox, skip};

#[test]
fn the_client_runs_under_valgrind() {
    let sandbox = Sandbox::new();
    // Everything takes fifty times as long.
    fs::write(sandbox.path("leasehold.toml"), "command-timeout = '60s'\ndefault-ttl = '5m'").unwrap();
    let mut command = sandbox.program("valgrind");
    command.args(["--quiet", "--tool=none", BINARY, "run", "x", "--", "true"]);
    match command.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => skip("valgrind is not installed"),
        ran => {
            let ran = ran.unwrap();
            assert!(ran.status.success(), "{:?}: {}", ran.status, String::from_utf8_lossy(&ran.stderr));
        }
    }
}
