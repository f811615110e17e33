//! `cargo xtask fuzz`: requests of all kinds against a real service, made by schemathesis from its OpenAPI document.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clap::Args;

use crate::cargo;

const REQUIREMENTS: &str = include_str!("requirements.txt");
const SETTINGS: &str = include_str!("schemathesis.toml");
/// The SHA-256 of the token `fuzz`, and everything allowed to it.
const TOKENS: &str = "[tokens.fuzz]\n\
     sha256 = \"93850b707585e404e4951a3ddc1f05a34b3d4f5fc081d616f46d8a2e8f1c8e68\"\n\
     rights = [{ allow = [\"read\", \"hold\", \"force\"] }]\n";

#[derive(Args)]
pub(crate) struct Options {
    /// Requests of each kind for each operation, at most
    #[arg(long, default_value_t = 50)]
    examples: u32,
    /// Repeat the requests of the run that printed this seed
    #[arg(long)]
    seed: Option<u64>,
}

/// A service to be asked: its name, its store, and whether it has tokens.
const SERVICES: [(&str, &str, bool); 2] =
    [("memory", "memory:", false), ("SQLite with tokens", "sqlite:locks.db", true)];

pub(crate) fn run(root: &Path, options: &Options) -> bool {
    if !has_python() {
        println!("skipped: no python3 with venv and ensurepip here");
        return true;
    }
    let folder = root.join("target/fuzz");
    let built = cargo::succeeds(&mut cargo::command(root, &["build", "--quiet", "-p", "leasehold-cli"]));
    if !built || !prepare(&folder).unwrap_or_else(|error| failed(&error)) {
        return false;
    }
    let program = cargo::target_folder(root).join("debug/leasehold");
    let fuzzed = SERVICES.map(|(name, store, has_tokens)| {
        let fuzz = Fuzz { folder: &folder, program: &program, store, has_tokens };
        (name, fuzz.run(options).unwrap_or_else(|error| failed(&error)))
    });
    println!();
    for (name, is_sound) in fuzzed {
        println!("fuzz: {name}: {}", if is_sound { "ok" } else { "FAILED" });
    }
    fuzzed.iter().all(|(_, is_sound)| *is_sound)
}

fn failed(error: &io::Error) -> bool {
    eprintln!("error: {error}");
    false
}

fn has_python() -> bool {
    let found = Command::new("python3").args(["-c", "import venv, ensurepip"]).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Installs schemathesis into an environment of its own, unless it is there in this version.
fn prepare(folder: &Path) -> io::Result<bool> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("schemathesis.toml"), SETTINGS)?;
    fs::write(folder.join("tokens.toml"), TOKENS)?;
    let installed = folder.join("installed.txt");
    if fs::read_to_string(&installed).is_ok_and(|had| had == REQUIREMENTS) {
        return Ok(true);
    }
    fs::write(folder.join("requirements.txt"), REQUIREMENTS)?;
    let step =
        |program: &Path, args: &[&str]| cargo::succeeds(Command::new(program).args(args).current_dir(folder));
    let is_ready = step(Path::new("python3"), &["-m", "venv", "--clear", "venv"])
        && step(
            &folder.join("venv/bin/python"),
            &["-m", "pip", "install", "--quiet", "-r", "requirements.txt"],
        );
    if is_ready {
        fs::write(installed, REQUIREMENTS)?;
    }
    Ok(is_ready)
}

struct Fuzz<'a> {
    folder: &'a Path,
    program: &'a Path,
    store: &'a str,
    has_tokens: bool,
}

impl Fuzz<'_> {
    fn run(&self, options: &Options) -> io::Result<bool> {
        let Self { folder, has_tokens, .. } = *self;
        for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
            fs::remove_file(folder.join(file)).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
        }
        let mut service = self.start()?;
        let url = service.url.clone();
        let mut fuzz = Command::new(folder.join("venv/bin/schemathesis"));
        fuzz.current_dir(folder).args([
            "--no-color",
            "run",
            &format!("{url}/openapi.json"),
            "--checks",
            "all",
        ]);
        // The stream of events has no end, and a request may ask to wait for a minute.
        fuzz.args(["--exclude-path", "/v1/events", "--request-timeout", "90", "--max-response-time", "70"]);
        fuzz.args(["--max-examples", &options.examples.to_string()]);
        if let Some(seed) = options.seed {
            fuzz.args(["--seed", &seed.to_string()]);
        }
        // No schema says which names are free or whose tokens they are, nor that a reset ends the workers of the playground.
        let mut unfit = "positive_data_acceptance,ensure_resource_availability".to_owned();
        if has_tokens {
            fuzz.args(["--header", "Authorization: Bearer fuzz"]);
        } else {
            unfit += ",ignored_auth";
        }
        fuzz.args(["--exclude-checks", &unfit]);
        let is_sound = cargo::succeeds(&mut fuzz);
        Ok(service.ends_well()? && is_sound)
    }

    fn start(&self) -> io::Result<Service> {
        let log = self.folder.join("service.log");
        let mut serve = Command::new(self.program);
        serve.current_dir(self.folder).args(["serve", "--listen", "127.0.0.1:0", "--store", self.store]);
        if self.has_tokens {
            serve.args(["--tokens", "tokens.toml"]);
        }
        let mut child = serve.stdout(Stdio::piped()).stderr(File::create(&log)?).spawn()?;
        let mut url = String::new();
        BufReader::new(child.stdout.take().expect("stdout was piped")).read_line(&mut url)?;
        Ok(Service { child, url: url.trim().to_owned(), log })
    }
}

struct Service {
    child: Child,
    url: String,
    log: PathBuf,
}

impl Service {
    /// Ends it as an operator would; false if it had a bug on the way.
    fn ends_well(&mut self) -> io::Result<bool> {
        let id = self.child.id().to_string();
        let is_alive = Command::new("kill").arg(&id).status()?.success();
        let is_clean = self.child.wait()?.success();
        let log = fs::read_to_string(&self.log)?;
        let panics = log.lines().filter(|line| line.contains("panicked")).count();
        if !is_alive || !is_clean || panics > 0 {
            print!("{log}");
            eprintln!("error: the service ended on its own, or with an error, or panicked: {panics} panics");
        }
        Ok(is_alive && is_clean && panics == 0)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
