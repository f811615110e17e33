//! A load of every kind on some clients, and the verdict on what it saw.

use std::time::Duration;

use leasehold::Leasehold;
use leasehold_testkit::{
    Recorder, eventually_async,
    history::{History, Violation, check},
    load::{self, Kind, Load, Running},
};

/// So long may a load need for its grants, on a busy machine and in a long run.
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) struct Story {
    /// One of each kind that the store has.
    loads: Vec<(Load, Running)>,
    folder: tempfile::TempDir,
}

impl Story {
    pub(crate) fn begin(load: Load, clients: &[Leasehold]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let begin = |load: Load| {
            let load = load.registers(folder.path()).unwrap();
            let recorder = Recorder::open(&folder.path().join(load.kind.name())).unwrap();
            let running = load.start(clients, recorder);
            (load, running)
        };
        let loads = load.of_each_kind(clients[0].capabilities()).into_iter().map(begin).collect();
        Self { loads, folder }
    }

    /// Waits for so many more exclusive locks, and in a long run for as many of each other kind; otherwise for a quarter.
    pub(crate) async fn goes_on(&self, grants: u64) {
        let is_long = load::grants(0) > 0;
        let before: Vec<_> = self.loads.iter().map(|(_, running)| running.granted()).collect();
        for ((load, running), before) in self.loads.iter().zip(before) {
            let more = if is_long || load.kind == Kind::Exclusive { grants } else { grants / 4 };
            let what = format!("more grants: {}", load.kind);
            eventually_async(PATIENCE, &what, || async { running.granted() >= before + more }).await;
        }
    }

    /// Ends it; no promise was broken but those that are forgiven.
    pub(crate) async fn end(self, forgives: impl Fn(&Violation) -> bool) {
        for (load, running) in self.loads {
            let (kind, tally) = (load.kind, running.stop().await);
            let text = std::fs::read_to_string(self.folder.path().join(kind.name())).unwrap();
            let writes: String = load.writes().unwrap().iter().map(|event| event.to_line() + "\n").collect();
            let history = History::from_text(&(text + &writes)).unwrap();
            assert_eq!(history.granted() as u64, tally.granted);
            let wrong: Vec<_> = check(&history).into_iter().filter(|wrong| !forgives(wrong)).collect();
            assert!(wrong.is_empty(), "{kind}: {} of {tally:?}: {}", wrong.len(), wrong[0]);
            assert!(tally.errors.is_empty(), "{kind}: {tally:?}");
        }
    }
}
