//! Packages that the tests need besides Rust.

use std::process::{Command, Stdio};

/// A Debian package, and how to check that it, or an equivalent, is installed.
struct Package {
    name: &'static str,
    proofs: &'static [&'static [&'static str]],
    needed_for: &'static str,
}

const PACKAGES: &[Package] = &[
    Package {
        name: "redis-server",
        proofs: &[&["redis-server", "--version"], &["redis-cli", "--version"]],
        needed_for: "every test of the Redis engine",
    },
    Package {
        name: "postgresql",
        // Debian keeps the server's programs apart from the search path.
        proofs: &[
            &["psql", "--version"],
            &["sh", "-c", "test -x /usr/lib/postgresql/*/bin/initdb || initdb --version"],
        ],
        needed_for: "every test of the PostgreSQL engine",
    },
    Package {
        name: "pgbouncer",
        proofs: &[&["sh", "-c", "test -x /usr/sbin/pgbouncer || pgbouncer --version"]],
        needed_for: "PostgreSQL behind a pooler in transaction mode",
    },
    Package {
        name: "etcd-server",
        proofs: &[&["etcd", "--version"]],
        needed_for: "every test of the etcd engine",
    },
    Package {
        name: "etcd-client",
        proofs: &[&["etcdctl", "version"]],
        needed_for: "looking at what the etcd engine stores",
    },
    Package {
        name: "locales",
        proofs: &[&["localedef", "--version"], &["test", "-r", "/usr/share/i18n/locales/en_US"]],
        needed_for: "servers whose scripts compare strings by the rules of a locale",
    },
    Package {
        name: "python3",
        proofs: &[&["python3", "--version"]],
        needed_for: "taking turns with the Lock of redis-py",
    },
    Package {
        name: "python3-venv",
        proofs: &[&["python3", "-c", "import venv, ensurepip"]],
        needed_for: "installing redis-py apart from the system's Python",
    },
    Package {
        name: "nodejs",
        proofs: &[&["node", "--version"]],
        needed_for: "building the dashboard and testing it in a browser",
    },
    Package { name: "npm", proofs: &[&["npm", "--version"]], needed_for: "the packages of the dashboard" },
    Package {
        name: "chromium-headless-shell",
        proofs: &[&["sh", "-c", "chromium-headless-shell --version || chromium --version"]],
        needed_for: "testing the dashboard in a browser",
    },
    Package {
        name: "curl",
        proofs: &[&["curl", "--version"]],
        needed_for: "the tour of the service in its guide",
    },
    Package {
        name: "valgrind",
        proofs: &[&["valgrind", "--version"]],
        needed_for: "counting the instructions of the hot paths",
    },
];

/// Installs packages without starting the services in them; see the file for how.
const INSTALL: &str = include_str!("install.sh");

/// Makes sure that everything is installed; otherwise prints what is missing and how to install it.
///
/// With `allow_missing` the machine is left as it is, and the tests in need skip themselves.
pub(crate) fn ensure(allow_missing: bool) -> bool {
    let missing = missing(PACKAGES);
    for package in &missing {
        println!("missing: {} ({})", package.name, package.needed_for);
    }
    if missing.is_empty() || allow_missing {
        return true;
    }
    if !can_install() {
        eprintln!("error: the tests need packages that are not installed; run\n");
        eprintln!("    {}\n", install_by_hand(&missing));
        eprintln!("hint: `cargo xtask test --allow-missing` skips the tests that need them");
        return false;
    }
    install(&missing) && proven_after_install()
}

fn missing(packages: &[Package]) -> Vec<&Package> {
    packages.iter().filter(|package| !package.proofs.iter().all(|proof| runs(proof))).collect()
}

fn runs(proof: &[&str]) -> bool {
    let mut command = Command::new(proof[0]);
    command.args(&proof[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn can_install() -> bool {
    let user = Command::new("id").arg("-u").output();
    user.is_ok_and(|user| user.stdout.trim_ascii() == b"0") && runs(&["apt-get", "--version"])
}

fn install_by_hand(missing: &[&Package]) -> String {
    let names = missing.iter().map(|package| package.name).collect::<Vec<_>>().join(" ");
    format!("sudo apt-get update && sudo apt-get install -y --no-install-recommends {names}")
}

fn install(missing: &[&Package]) -> bool {
    let names = missing.iter().map(|package| package.name);
    let status = Command::new("sh").args(["-c", INSTALL, "install.sh"]).args(names).status();
    status.is_ok_and(|status| status.success())
}

fn proven_after_install() -> bool {
    let missing = missing(PACKAGES);
    for package in &missing {
        eprintln!(
            "error: {} was installed, yet one of these does not run: {:?}",
            package.name, package.proofs
        );
    }
    missing.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT: Package = Package { name: "present", proofs: &[&["true"]], needed_for: "tests" };
    const HALF: Package = Package { name: "half", proofs: &[&["true"], &["false"]], needed_for: "tests" };
    const ABSENT: Package = Package { name: "absent", proofs: &[&["no-such-program"]], needed_for: "tests" };

    #[test]
    fn a_package_is_there_when_all_its_proofs_run() {
        let packages = [PRESENT, HALF, ABSENT];
        let names: Vec<_> = missing(&packages).iter().map(|package| package.name).collect();
        assert_eq!(names, ["half", "absent"]);
    }

    #[test]
    fn the_command_to_run_by_hand_names_only_what_is_missing() {
        let command = install_by_hand(&[&HALF, &ABSENT]);
        assert!(command.ends_with("install -y --no-install-recommends half absent"), "{command}");
    }
}
