//! From SQLite's errors to the contract's.

use std::io;

use rusqlite::ErrorCode;

use crate::{
    engine::{EngineError, Fault},
    error::Refusal,
};

/// Why an operation on the file failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// SQLite says so.
    Sql(rusqlite::Error),
    /// We say so.
    Engine(EngineError),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl Failure {
    /// The store answered, and refused.
    pub(super) fn refused(why: impl Into<String>) -> Self {
        EngineError::new(Fault::Refused(Refusal::Other), why).into()
    }

    /// Whether another process is at the file and it is worth to wait for it.
    pub(super) fn is_busy(&self) -> bool {
        let Self::Sql(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }
}

impl From<Failure> for EngineError {
    fn from(failure: Failure) -> Self {
        let error = match failure {
            Failure::Engine(error) => return error,
            Failure::Sql(error) => error,
        };
        let refused =
            |refusal, why: &str| EngineError::new(Fault::Refused(refusal), format!("{why} ({error})"));
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                EngineError::new(Fault::Unreachable, "the database is locked by another process")
            }
            // It may have happened at the commit, which may have been written all the same.
            Some(ErrorCode::SystemIoFailure) => {
                EngineError::new(Fault::NoAnswer, format!("the disk failed ({error})"))
            }
            Some(ErrorCode::ReadOnly) => refused(Refusal::ReadOnly, "this process may not write the file"),
            Some(ErrorCode::DiskFull) => refused(Refusal::OutOfMemory, "the disk is full"),
            Some(ErrorCode::OutOfMemory) => refused(Refusal::OutOfMemory, "out of memory"),
            Some(ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
                refused(Refusal::Other, "cannot open the file or its directory")
            }
            Some(ErrorCode::NotADatabase) => refused(Refusal::Other, "the file is not a SQLite database"),
            Some(ErrorCode::DatabaseCorrupt) => {
                refused(Refusal::Other, "the file is damaged: stop its users and remove it")
            }
            _ => refused(Refusal::Other, "SQLite failed"),
        }
    }
}

/// A failure of the file system while `doing` something.
pub(super) fn of_files(doing: &str, error: &io::Error) -> EngineError {
    let refusal = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => Refusal::ReadOnly,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Refusal::OutOfMemory,
        _ => Refusal::Other,
    };
    EngineError::new(Fault::Refused(refusal), format!("{doing}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault_of(code: std::ffi::c_int) -> Fault {
        EngineError::from(Failure::from(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(code),
            None,
        )))
        .fault
    }

    #[test]
    fn each_failure_tells_whether_it_took_effect_and_what_to_change() {
        use rusqlite::ffi;
        for (code, fault) in [
            (ffi::SQLITE_BUSY, Fault::Unreachable),
            (ffi::SQLITE_IOERR, Fault::NoAnswer),
            (ffi::SQLITE_READONLY, Fault::Refused(Refusal::ReadOnly)),
            (ffi::SQLITE_FULL, Fault::Refused(Refusal::OutOfMemory)),
            (ffi::SQLITE_CANTOPEN, Fault::Refused(Refusal::Other)),
            (ffi::SQLITE_NOTADB, Fault::Refused(Refusal::Other)),
            (ffi::SQLITE_CORRUPT, Fault::Refused(Refusal::Other)),
        ] {
            assert_eq!(fault_of(code), fault, "code {code}");
        }
    }
}
