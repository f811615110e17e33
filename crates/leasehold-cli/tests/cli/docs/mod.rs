//! Every command and every line of code in the documentation is run.
//!
//! | block | is |
//! |---|---|
//! | `console` | run command by command, in one shell per page; exit code and stated output are compared |
//! | `rust` | a documentation test of the crate that includes the page |
//! | `toml` | read as `leasehold.toml`, or by cargo if it has dependencies |
//! | `sql` | executed by SQLite |
//! | `text` | a picture, or the ACL lines that the library's own tests read |

mod pages;
mod session;

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    thread,
};

use leasehold::{Settings, config::Sources};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::sandbox::{BINARY, Ran, Sandbox};
use pages::{Page, Step, pages, root};
use session::Session;

/// Commands that a test cannot run, and why.
const NOT_RUN: [(&str, &str); 7] = [
    ("cargo install --locked --path", "compiles for minutes what this test has compiled already"),
    ("cargo xtask test", "runs this test"),
    (
        "docker compose --profile",
        "needs a container engine; the tests start the servers of these files themselves",
    ),
    ("podman build", "needs a container engine"),
    ("etcdctl ", "asks an etcd on its default port"),
    ("systemctl enable", "changes the machine; deploy.rs runs the command of the unit"),
    ("kubectl create secret", "needs a cluster; deploy.rs runs the commands of the manifests"),
];

/// How a command ends that does not end with 0.
fn exit_codes(command: &str) -> &'static [i32] {
    match command {
        // The servers of these tests have no password, and doctor warns of that.
        _ if command.ends_with("doctor") => &[1],
        _ if command.starts_with("timeout ") => &[124],
        _ if command.contains("--variant stock-in-key") => &[1],
        // A small run may be lucky. In full they always break: see the tests of leasehold-demos.
        _ if command.contains("--unsafe") => &[0, 1],
        _ => &[0],
    }
}

fn is_run(step: &Step) -> bool {
    !NOT_RUN.iter().any(|(command, _)| step.command.starts_with(command))
}

#[test]
fn every_command_runs_and_prints_what_its_page_says() {
    if leasehold_testkit::redis_or_skip().is_none() {
        return;
    }
    let pages = pages();
    let commands: usize = thread::scope(|scope| {
        let runs: Vec<_> = pages.iter().map(|page| scope.spawn(|| run(page))).collect();
        let runs: Vec<_> = runs.into_iter().map(|run| run.join()).collect();
        runs.into_iter().map(|run| run.expect("the commands of a page")).sum()
    });
    assert!(commands > 50, "{commands} commands");
}

/// The number of commands of a page, which all did what they should.
fn run(page: &Page) -> usize {
    let blocks = page.blocks();
    let consoles = blocks.iter().filter(|block| block.kind == "console");
    let steps: Vec<_> =
        consoles.flat_map(|block| block.steps().into_iter().map(|step| (&block.place, step))).collect();
    let steps: Vec<_> = steps.into_iter().filter(|(_, step)| is_run(step)).collect();
    if steps.is_empty() {
        return 0;
    }
    let mut session = Session::of(page);
    for (place, step) in &steps {
        let ran = in_scene(&mut session, &step.command);
        let shown = format!("{place}\n$ {}\n{ran}", step.command);
        assert!(ran.code.is_some_and(|code| exit_codes(&step.command).contains(&code)), "{shown}");
        assert!(step.states(&ran.stdout), "{shown}\ninstead of\n{}", step.output);
    }
    steps.len()
}

/// Runs a command while a lock is held, or changes, if it is about that.
fn in_scene(session: &mut Session, command: &str) -> Ran {
    let sandbox = session.sandbox();
    let changes = format!("while :; do {BINARY} run other -- true; done");
    let _changing = command.contains("watch").then(|| sandbox.start_script(&[], "changes", &changes));
    let held = command.contains("deal:42").then(|| sandbox.start_script(&[], "deal:42", "exec sleep 600"));
    if held.is_some() {
        let fence = sandbox.fact("deal:42", "fence");
        session.run(&format!("FENCE={fence}"));
    }
    session.run(command)
}

#[test]
fn every_command_that_is_not_run_is_in_the_documentation() {
    let pages = pages();
    let steps: Vec<_> = pages.iter().flat_map(Page::blocks).filter(|block| block.kind == "console").collect();
    let steps: Vec<_> = steps.iter().flat_map(pages::Block::steps).collect();
    for (command, why) in NOT_RUN {
        assert!(steps.iter().any(|step| step.command.starts_with(command)), "{command}: {why}");
    }
}

#[test]
fn every_block_is_of_a_kind_that_is_run() {
    for page in pages() {
        for block in page.blocks() {
            let known = ["console", "rust", "sql", "text", "toml"].contains(&block.kind);
            assert!(known, "{}: a block of the kind {:?}", block.place, block.kind);
            let is_console = block.lines.iter().any(|line| line.starts_with("$ "));
            assert!(block.kind == "console" || !is_console, "{}: commands that nobody runs", block.place);
        }
    }
}

#[test]
fn every_page_with_rust_is_a_documentation_test() {
    let crates = ["leasehold", "leasehold-tower"];
    let sources =
        crates.map(|name| fs::read_to_string(root().join(format!("crates/{name}/src/lib.rs"))).unwrap());
    let included: Vec<_> = sources.iter().flat_map(|text| text.split("include_str!(\"").skip(1)).collect();
    for page in pages().iter().filter(|page| page.blocks().iter().any(|block| block.kind == "rust")) {
        let from_root = format!("../../../{}\")", page.path);
        let of_crate = page.path.strip_prefix("crates/leasehold-tower/").map(|file| format!("../{file}\")"));
        let is_included = included.iter().any(|file| {
            file.starts_with(&from_root) || of_crate.as_ref().is_some_and(|path| file.starts_with(path))
        });
        assert!(is_included, "{} has code that nothing compiles", page.path);
    }
}

#[test]
fn every_configuration_file_loads() {
    for page in pages() {
        for block in page.blocks().iter().filter(|block| block.kind == "toml") {
            let text = block.lines.join("\n");
            if text.starts_with("[dependencies]") {
                let tree = dependency_tree(&text);
                let error = String::from_utf8_lossy(&tree.stderr);
                assert!(tree.status.success(), "{}\n{error}", block.place);
                continue;
            }
            let sandbox = Sandbox::new();
            let file = sandbox.write("leasehold.toml", &text);
            let loaded = Settings::load(&Sources { file: Some(&file), ..Sources::new(&|_: &str| None) });
            loaded.unwrap_or_else(|error| panic!("{}: {error}", block.place));
        }
    }
}

/// What cargo finds for a program with these dependencies beside a clone of this repository.
fn dependency_tree(dependencies: &str) -> Output {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("program");
    fs::create_dir_all(program.join("src")).unwrap();
    fs::write(program.join("src/main.rs"), "fn main() {}").unwrap();
    let package = format!("[package]\nname = 'program'\nedition = '2024'\n\n{dependencies}");
    fs::write(program.join("Cargo.toml"), package).unwrap();
    fs::copy(root().join("Cargo.lock"), program.join("Cargo.lock")).unwrap();
    std::os::unix::fs::symlink(root(), folder.path().join("leasehold")).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut tree = Command::new(cargo);
    tree.args(["tree", "--offline", "--edges", "normal", "--depth", "1"]).current_dir(program);
    tree.output().unwrap()
}

/// The statements of a holder with this fence, until one of them changes no row.
fn execute(database: &Connection, statements: &str, fence: i64) -> rusqlite::Result<bool> {
    let lines = statements.lines().map(|line| line.split("--").next().unwrap_or_default());
    let statements = lines.collect::<Vec<_>>().join("\n");
    for statement in statements.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
        let mut prepared = database.prepare(statement)?;
        if prepared.parameter_count() > 0 {
            prepared.raw_bind_parameter(1, fence)?;
        }
        let mut rows = prepared.raw_query();
        while rows.next()?.is_some() {}
        drop(rows);
        if statement.starts_with("UPDATE") && database.changes() == 0 {
            database.execute_batch("ROLLBACK")?;
            return Ok(false);
        }
    }
    Ok(true)
}

#[test]
fn every_statement_refuses_an_earlier_holder() {
    // The sessions of that page are psql's; the tests of leasehold-postgres run them.
    for page in pages().into_iter().filter(|page| page.path != "docs/postgres.md") {
        for block in page.blocks().iter().filter(|block| block.kind == "sql") {
            let database = Connection::open_in_memory().unwrap();
            let table = "CREATE TABLE deals (id INTEGER, state TEXT, fence INTEGER); INSERT INTO deals (id) VALUES (42)";
            database.execute_batch(table).unwrap();
            let statements = block.lines.join("\n");
            for (fence, is_written) in [(34, true), (34, true), (33, false), (35, true)] {
                let written = execute(&database, &statements, fence).unwrap();
                assert_eq!(written, is_written, "{} with fence {fence}", block.place);
            }
        }
    }
}

/// Commands inside of sentences are there with all their options.
#[test]
fn every_command_in_a_sentence_exists() {
    let sandbox = Sandbox::new();
    for page in pages() {
        for span in page.spans() {
            let Some(words) = span.strip_prefix("leasehold ") else { continue };
            let words: Vec<_> = words.split(' ').take_while(|word| *word != "--").collect();
            let is_command = |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            let path: Vec<_> = words.iter().take_while(is_command).take(2).copied().collect();
            let path: Vec<_> = path.into_iter().filter(|word| !word.starts_with('-')).collect();
            let help = sandbox.run(&[&path[..], &["--help"]].concat());
            assert_eq!(help.code, Some(0), "{}: `{span}`\n{help}", page.path);
            for option in words.iter().filter(|word| word.starts_with("--")) {
                assert!(help.stdout.contains(option), "{}: `{span}` has no {option}", page.path);
            }
        }
    }
}

/// The guide's table of errors has every exit code.
#[test]
fn the_troubleshooting_guide_knows_the_errors_of_a_store() {
    use leasehold::ErrorKind as Kind;
    let text = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    for (kind, code) in [
        (Kind::StoreUnreachable, 69),
        (Kind::StoreRefused, 77),
        (Kind::WrongType, 65),
        (Kind::Overloaded, 75),
        (Kind::Lost, 76),
    ] {
        assert!(text.contains(&format!("| `{kind}`, {code}")), "{kind}");
    }
}

fn which(program: &str) -> String {
    let path = std::env::var("PATH").unwrap();
    let found =
        path.split(':').map(|folder| format!("{folder}/{program}")).find(|file| Path::new(file).exists());
    found.unwrap_or_else(|| panic!("{program} is not installed (Debian: redis-tools)"))
}
