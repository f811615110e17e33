//! A load on some clients, and the verdict on what it saw.

use std::time::Duration;

use leasehold::Leasehold;
use leasehold_testkit::{
    Recorder, eventually_async,
    history::{History, Violation, check},
    load::{Load, Running, Tally},
};

/// So long may a load need for its grants, on a busy machine and in a long run.
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) struct Story {
    load: Load,
    running: Running,
    folder: tempfile::TempDir,
}

impl Story {
    pub(crate) fn begin(load: Load, clients: &[Leasehold]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let load = load.registers(folder.path()).unwrap();
        let recorder = Recorder::open(&folder.path().join("events")).unwrap();
        Self { running: load.start(clients, recorder), load, folder }
    }

    /// Waits for so many more grants.
    pub(crate) async fn goes_on(&self, grants: u64) {
        let before = self.running.granted();
        eventually_async(PATIENCE, "more grants", || async { self.running.granted() >= before + grants })
            .await;
    }

    /// Ends it; no promise was broken but those that are forgiven.
    pub(crate) async fn end(self, forgives: impl Fn(&Violation) -> bool) -> Tally {
        let tally = self.running.stop().await;
        let text = std::fs::read_to_string(self.folder.path().join("events")).unwrap();
        let writes: String = self.load.writes().unwrap().iter().map(|event| event.to_line() + "\n").collect();
        let history = History::from_text(&(text + &writes)).unwrap();
        assert_eq!(history.granted() as u64, tally.granted);
        let wrong: Vec<_> = check(&history).into_iter().filter(|violation| !forgives(violation)).collect();
        assert!(wrong.is_empty(), "{} of {tally:?}: {}", wrong.len(), wrong[0]);
        assert!(tally.errors.is_empty(), "{tally:?}");
        tally
    }
}
