//! Temporary folders that are also removed after a process that could not clean up itself.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

/// Short, because the path of a Unix socket has at most 107 bytes.
const PREFIX: &str = "lh-";
/// A file system in memory, on Linux.
const MEMORY: &str = "/dev/shm";
/// Locked by the owner for as long as it lives; the kernel unlocks it however the owner ends.
const ALIVE: &str = "alive";
/// Protects a folder whose owner has not locked it yet.
const SWEPT_AFTER: Duration = Duration::from_secs(60);

/// A folder for one server or one set of certificates.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: TempDir,
    _alive: File,
}

impl Folder {
    /// Creates a folder. The first call also removes those of killed processes, and of servers shared by a whole process,
    /// which are never dropped.
    pub(crate) fn create() -> io::Result<Self> {
        static SWEEP: Once = Once::new();
        let root = std::env::temp_dir();
        SWEEP.call_once(|| {
            sweep(&root, SWEPT_AFTER);
            sweep(Path::new(MEMORY), SWEPT_AFTER);
        });
        Self::create_in(&root)
    }

    /// Where nothing reaches a disk, if the machine has such a place.
    pub(crate) fn in_memory() -> io::Result<Self> {
        let memory = Path::new(MEMORY);
        if memory.is_dir() { Self::create_in(memory) } else { Self::create() }
    }

    fn create_in(root: &Path) -> io::Result<Self> {
        let dir = TempDir::with_prefix_in(PREFIX, root)?;
        let alive = File::create(dir.path().join(ALIVE))?;
        alive.lock()?;
        Ok(Self { dir, _alive: alive })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Best effort: another process may sweep at the same time, or own what is there.
fn sweep(root: &Path, older_than: Duration) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_abandoned(&entry.path(), older_than)
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(folder: &Path, older_than: Duration) -> bool {
    let Ok(alive) = File::open(folder.join(ALIVE)) else { return false };
    let made = alive.metadata().and_then(|metadata| metadata.modified());
    let age = made.ok().and_then(|made| SystemTime::now().duration_since(made).ok());
    age.is_some_and(|age| age >= older_than) && alive.try_lock().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_ended_processes_are_swept() {
        let root = tempfile::tempdir().unwrap();
        let owned = Folder::create_in(root.path()).unwrap();
        let (abandoned, strange) = (root.path().join("lh-abandoned"), root.path().join("lh-strange"));
        fs::create_dir(&abandoned).unwrap();
        fs::write(abandoned.join(ALIVE), "").unwrap();
        fs::create_dir(&strange).unwrap();

        sweep(root.path(), SWEPT_AFTER);
        assert!(abandoned.exists(), "too young");
        sweep(root.path(), Duration::ZERO);
        assert!(!abandoned.exists());
        assert!(owned.path().exists() && strange.exists());
    }
}
