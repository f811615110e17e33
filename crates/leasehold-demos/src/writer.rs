//! Writes of many tasks of a process, which one thread commits together.
//!
//! All processes of a demo share one database, and take turns at it for every commit. A commit for each row would be what
//! limits a demo of a thousand transactions a second, and not the locks.

use std::{io::Write, iter, sync::mpsc, thread};

use rusqlite::{Connection, Transaction, TransactionBehavior::Immediate};
use tokio::sync::oneshot;

use crate::Result;

/// Writes that are committed together.
const TOGETHER_MAX: usize = 256;

/// Makes a change; what it returns is called once the change is committed.
type Job = Box<dyn FnOnce(&Transaction<'_>) -> rusqlite::Result<Done> + Send>;
type Done = Box<dyn FnOnce() + Send>;

#[derive(Clone)]
pub(crate) struct Writer(mpsc::Sender<Job>);

impl Writer {
    pub(crate) fn start(mut database: Connection) -> Self {
        let (sender, jobs) = mpsc::channel::<Job>();
        thread::spawn(move || {
            while let Ok(first) = jobs.recv() {
                let together = iter::once(first).chain(jobs.try_iter().take(TOGETHER_MAX));
                if let Err(error) = commit(&mut database, together) {
                    let _log = writeln!(std::io::stderr(), "nothing was written: {error}");
                }
            }
        });
        Self(sender)
    }

    /// Makes a change. Returns when it is committed; an error undoes all that was to be committed together.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (tell, told) = oneshot::channel();
        self.send(change, |made| drop(tell.send(made)))?;
        Ok(told.await?)
    }

    /// The same where nothing can be awaited: blocks the thread.
    pub(crate) fn write_blocking<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (tell, told) = mpsc::channel();
        self.send(change, move |made| drop(tell.send(made)))?;
        Ok(told.recv()?)
    }

    fn send<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
        tell: impl FnOnce(T) + Send + 'static,
    ) -> Result<()> {
        let job: Job = Box::new(move |transaction| {
            let made = change(transaction)?;
            Ok(Box::new(move || tell(made)))
        });
        self.0.send(job).map_err(|_| "the writer has ended".into())
    }
}

fn commit(database: &mut Connection, jobs: impl Iterator<Item = Job>) -> rusqlite::Result<()> {
    let transaction = database.transaction_with_behavior(Immediate)?;
    let done = jobs.map(|job| job(&transaction)).collect::<rusqlite::Result<Vec<_>>>()?;
    transaction.commit()?;
    done.into_iter().for_each(|done| done());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::{self, number};

    #[tokio::test]
    async fn a_write_is_committed_when_it_returns_and_an_error_leaves_the_writer_alive() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("app.db");
        let reader = database::open(&file).unwrap();
        reader.execute_batch("create table rows (number integer)").unwrap();
        let writer = Writer::start(database::open(&file).unwrap());
        let insert = |number: u64| {
            move |change: &Transaction<'_>| change.execute("insert into rows values (?)", [number])
        };
        let many = (0..1_000).map(|number| writer.write(insert(number)));
        let made = futures_util::future::try_join_all(many).await.unwrap();
        assert_eq!(made.iter().sum::<usize>(), 1_000);
        assert_eq!(number(&reader, "select count(*) from rows").unwrap(), 1_000);
        writer.write(|change| change.execute("insert into nowhere values (1)", [])).await.unwrap_err();
        assert_eq!(writer.write_blocking(insert(7)).unwrap(), 1);
        assert_eq!(number(&reader, "select count(*) from rows").unwrap(), 1_001);
    }
}
