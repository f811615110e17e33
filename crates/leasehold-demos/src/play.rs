//! Plays a demo from its headline to its verdict, and cleans up after it however it ends.

use std::{io::Write, time::Instant};

use leasehold::{Error, Leasehold, engine::Reach};
use rand::{SeedableRng, rngs::StdRng};
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
};

use crate::{
    Demo, Result, Topology,
    leftovers::Leftovers,
    options::Options,
    outage::Switch,
    policy,
    show::{BAD, GOOD, SMALL, Show, TITLE, line_for, say, styled},
    stage::Stage,
    summary::{Line, table},
    supervisor::Supervisor,
    verdict::{Verdict, compare},
    worker::Worker,
    workers::Workers,
};

/// The exit code of wrong usage.
const USAGE: u8 = 64;
/// The exit code of a demo that could not finish.
const NOT_FINISHED: u8 = 70;

/// Runs a demo and prints its verdict. Returns the exit code: 0 if the invariant held, 1 if it broke, 64 for an unknown
/// variant, 70 if the demo could not finish. With [`Options::both`] it is that of the run with coordination.
pub fn run(demo: &Demo, options: &Options) -> u8 {
    let options = with_seed(options);
    match demo.check_variant(&options).and_then(|()| demo.check_topology(&options)) {
        Err(error) => refuse(&*error),
        Ok(()) if options.both => end(demo, play_both(demo, &options).map(|(with, _)| with.verdict.held())),
        Ok(()) => end(demo, play_one(demo, &options)),
    }
}

/// Runs demos one after the other, each with and without coordination, and ends with a table of all. Returns the highest
/// exit code; one that could not finish, or was interrupted, is the last.
pub fn run_all(demos: &[&Demo], options: &Options) -> u8 {
    if options.variant.is_some() || options.config.is_some() {
        return refuse("--variant and --config belong to one demo: name it");
    }
    let options = with_seed(options);
    let (mut lines, mut worst) = (Vec::new(), 0);
    for demo in demos {
        if let Some(topology) = options.topology.filter(|topology| !demo.topologies.contains(topology)) {
            lines.push(Line::unplayed(demo, &format!("not made for {}", topology.word())));
            continue;
        }
        let keep = options.keep.as_ref().map(|folder| folder.join(demo.name));
        let options = Options { keep, ..options.clone() };
        let played = if options.r#unsafe {
            play(demo, &options).map(|without| (None, without))
        } else {
            play_both(demo, &options).map(|(with, without)| (Some(with), without))
        };
        let _closed = writeln!(anstream::stderr());
        match played {
            Ok((with, without)) => {
                lines.push(Line::played(demo, with.as_ref(), Some(&without)));
                let held = with.as_ref().unwrap_or(&without).verdict.held();
                worst = worst.max(end(demo, Ok(held)));
            }
            Err(error) => {
                lines.push(Line::unplayed(demo, "not played to its end"));
                worst = worst.max(end(demo, Err(error)));
                break;
            }
        }
    }
    if !options.json {
        let _closed = write!(anstream::stdout(), "{}", table(&lines));
    }
    worst
}

/// The same seed for all runs. Short, so that people can type it.
fn with_seed(options: &Options) -> Options {
    let seed = options.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    Options { seed: Some(seed), ..options.clone() }
}

fn refuse(why: impl std::fmt::Display) -> u8 {
    let _closed = writeln!(anstream::stderr(), "error: {why}");
    USAGE
}

/// The exit code of a run whose invariant held or broke.
fn end(demo: &Demo, held: Result<bool>) -> u8 {
    match held {
        Ok(held) => u8::from(!held),
        Err(error) => {
            let _closed = writeln!(anstream::stderr(), "the demo {} failed: {error}", demo.name);
            NOT_FINISHED
        }
    }
}

impl Demo {
    /// An unknown variant would otherwise run as the default one, with a misleading verdict.
    fn check_variant(&self, options: &Options) -> Result<()> {
        match (options.variant.as_deref(), self.variants) {
            (Some(variant), []) => Err(format!("no variant \"{variant}\": this demo has none").into()),
            (Some(variant), all) if !all.contains(&variant) => {
                Err(format!("no variant \"{variant}\": expected {}", all.join(" or ")).into())
            }
            _ => Ok(()),
        }
    }

    fn check_topology(&self, options: &Options) -> Result<()> {
        let Some(topology) = options.topology else { return Ok(()) };
        if options.store.is_some() {
            return Err("--topology starts servers of its own: leave --store out".into());
        }
        if !self.topologies.contains(&topology) {
            let words: Vec<_> = self.topologies.iter().map(|topology| topology.word()).collect();
            let word = topology.word();
            return Err(
                format!("{} is not played on {word}: expected {}", self.name, words.join(" or ")).into()
            );
        }
        Ok(())
    }
}

fn play_one(demo: &Demo, options: &Options) -> Result<bool> {
    let held = play(demo, options)?.verdict.held();
    let seed = options.seed.unwrap_or_default();
    let next = match (options.r#unsafe, held) {
        (false, true) => format!(
            "and without coordination: {}",
            options.command(demo.name, &format!("--unsafe --seed {seed}"))
        ),
        (false, false) => {
            format!("again, with the same victims: {}", options.command(demo.name, &format!("--seed {seed}")))
        }
        (true, _) => {
            format!("and with coordination: {}", options.command(demo.name, &format!("--seed {seed}")))
        }
    };
    if !options.json {
        say(&styled(SMALL, next));
    }
    Ok(held)
}

/// What one run came to.
pub(crate) struct Played {
    pub(crate) verdict: Verdict,
    /// Workers and servers.
    pub(crate) kills: u32,
}

/// Plays it with coordination, then without, and compares the two.
fn play_both(demo: &Demo, options: &Options) -> Result<(Played, Played)> {
    let folder = |mode: &str| options.keep.as_ref().map(|folder| folder.join(mode));
    let with = play(demo, &Options { keep: folder("with"), ..options.clone() })?;
    writeln!(anstream::stderr())?;
    let without = play(demo, &Options { r#unsafe: true, keep: folder("without"), ..options.clone() })?;
    if !options.json {
        write!(anstream::stdout(), "\n{}", compare(&with.verdict, &without.verdict))?;
    }
    Ok((with, without))
}

/// Plays it once and shows the verdict.
fn play(demo: &Demo, options: &Options) -> Result<Played> {
    let temporary = tempfile::tempdir()?;
    let folder = options.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("app.db");
    if file.exists() {
        return Err(format!("{} exists: choose an empty folder", file.display()).into());
    }
    let run = format!("{:08x}", rand::random::<u32>());
    let policies = demo.policies.live(options.config.as_deref(), &run, |name| std::env::var(name).ok())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let _entered = runtime.enter();
    let embedded = || format!("sqlite:{}", folder.join("locks.db").display());
    // Without coordination nothing asks for locks, but the database of the demo may be on the stage as well.
    let is_needed = |topology: &Topology| !options.r#unsafe || *topology == Topology::Postgres;
    let stage = options.topology.filter(is_needed).map(Stage::start).transpose()?;
    if let Some(stage) = &stage {
        runtime.block_on(stage.form())?;
    }
    let own = stage.as_ref().map(Stage::url);
    let store = options.store.clone().or(own).unwrap_or_else(embedded);
    let leftovers = if options.r#unsafe {
        None
    } else {
        runtime.block_on(try_out(&store, demo))?;
        // The embedded store goes with its folder.
        let shared = options.store.as_deref().map(|store| Leftovers::before(store, &run));
        shared.map(|looking| runtime.block_on(looking)).transpose()?
    };
    let template = Worker {
        demo: demo.name.into(),
        role: "supervisor".into(),
        number: 0,
        life: 0,
        store: store.clone(),
        folder,
        run,
        policies: policies.text,
        options: options.clone(),
    };
    let client = if options.r#unsafe { None } else { Some(runtime.block_on(template.connect())?) };
    let (switch, store) = if demo.has_outage && !options.r#unsafe {
        runtime.block_on(Switch::before(&store))?
    } else {
        (Switch::None, store)
    };
    let template = Worker { store, ..template };
    (demo.set_up)(&template)?;
    let mut supervisor = Supervisor {
        options: options.clone(),
        workers: Workers::new(template.clone()),
        switch,
        show: Show::begin(),
        client,
        stage,
        rng: StdRng::seed_from_u64(options.seed.unwrap_or_default()),
        kills: 0,
    };
    let mode = if options.r#unsafe { "without coordination" } else { "with coordination" };
    let variant = options.variant.as_ref().map(|variant| format!(", {variant}")).unwrap_or_default();
    let scale =
        if options.scale == 100 { String::new() } else { format!(", {} % of the work", options.scale) };
    supervisor.print(styled(TITLE, format!("{}, {mode}{variant}{scale}", demo.name)));
    if !options.r#unsafe {
        supervisor.print(styled(SMALL, format!("{}, {}", policies.origin, policy::PACE)));
    }
    if let Some(stage) = &supervisor.stage {
        supervisor.print(stage.words());
    }
    let began = Instant::now();
    let outcome = runtime.block_on(async {
        tokio::select! {
            biased;
            () = interrupted() => Err("interrupted".into()),
            outcome = (demo.supervise)(&mut supervisor) => outcome,
        }
    });
    supervisor.show.bar.finish_and_clear();
    let staged = supervisor.stage.as_mut().map_or(Ok(()), Stage::end);
    let ended = supervisor.workers.kill_all();
    clean_up(&runtime, &supervisor, leftovers);
    let judged = outcome.and(staged).and(ended).and_then(|()| supervisor.workers.judge());
    if options.keep.is_none()
        && let Err(error) = (demo.tear_down)(&template)
    {
        supervisor.print(styled(BAD, format!("tables of this run may be left: {error}")));
    }
    let (verdict, judge) = judged?;
    let servers = supervisor.stage.as_ref().map_or(0, Stage::killed);
    let and_servers = if servers > 0 { format!(" and {servers} of the servers") } else { String::new() };
    supervisor.print(format!(
        "finished in {:.1} s; {} workers{and_servers} killed with -9; judged by pid {judge}:",
        began.elapsed().as_secs_f64(),
        supervisor.kills
    ));
    show_verdict(demo, options, &verdict)?;
    Ok(Played { verdict, kills: supervisor.kills + servers })
}

fn show_verdict(demo: &Demo, options: &Options, verdict: &Verdict) -> Result<()> {
    let mut out = anstream::stdout();
    if options.json {
        writeln!(out, "{}", verdict.to_json(demo.name, !options.r#unsafe)?)?;
        return Ok(());
    }
    write!(out, "{}", verdict.show())?;
    if verdict.held() {
        writeln!(out, "\n  {}", styled(GOOD, "the invariant held"))?;
    } else {
        let words = styled(BAD, format!("THE INVARIANT BROKE: {}", demo.without));
        writeln!(out, "\n{}", line_for(&std::io::stdout(), &words))?;
    }
    Ok(())
}

/// Removes what the run has left in a store that others use, also after an interruption. A server that is down cannot be
/// swept; that says nothing about the run.
fn clean_up(runtime: &Runtime, supervisor: &Supervisor, leftovers: Option<Leftovers>) {
    runtime.block_on(async {
        if let Some(client) = &supervisor.client {
            drop(client.close().await);
        }
        let Some(leftovers) = leftovers else { return };
        // What the proxy still has of killed workers must not arrive after this.
        let is_line = matches!(supervisor.switch, Switch::Line(_));
        let _cut = is_line.then(|| supervisor.switch.cut());
        if let Err(error) = leftovers.remove().await {
            let pattern = leftovers.pattern();
            let words =
                format!("keys of this run may be left in the store, by the pattern {pattern}: {error}");
            supervisor.print(styled(BAD, words));
        }
    });
}

/// Checks that the store is suitable and reachable. Workers do not: they wait for a store that is unreachable.
async fn try_out(store: &str, demo: &Demo) -> Result<()> {
    let leases = Leasehold::builder(store).connect_lazy()?;
    if leases.capabilities().reach == Reach::Process {
        return Err("this store is visible to one process only, and a demo has several".into());
    }
    if demo.has_records
        && let Err(error @ Error::Unsupported { .. }) = leases.idempotency("demo").key("demo").get().await
    {
        return Err(error.into());
    }
    Leasehold::connect(store).await?.close().await?;
    Ok(leases.close().await?)
}

/// Completes on SIGINT or SIGTERM, so that the processes, the folder and the keys of the demo are cleaned up.
async fn interrupted() {
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [Ok(mut interrupt), Ok(mut terminate)] = signals else { return std::future::pending().await };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
