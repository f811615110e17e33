//! From SQLite's errors to the contract's.

use std::io;

use rusqlite::ErrorCode as Code;

use leasehold_core::Refusal;
use leasehold_core::engine::{EngineError, Fault};

/// Why an operation on the file failed; made of an error of SQLite or of our own.
#[derive(Debug)]
pub(super) struct Failure(EngineError);

pub(super) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// The store answered, and refused.
    pub(super) fn refused(why: impl Into<String>) -> Self {
        Self(EngineError::new(Fault::Refused(Refusal::Other), why))
    }

    /// Whether another process uses the file and it is worth waiting for it.
    pub(super) fn is_busy(&self) -> bool {
        self.0.fault == Fault::Unreachable
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self(error)
    }
}

impl From<Failure> for EngineError {
    fn from(failure: Failure) -> Self {
        failure.0
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        let refused = |why| (Fault::Refused(Refusal::Other), why);
        let full = |why| (Fault::Refused(Refusal::OutOfMemory), why);
        let (fault, why) = match error.sqlite_error_code() {
            Some(Code::DatabaseBusy | Code::DatabaseLocked) => {
                let why = "the database is locked by another process";
                return Self(EngineError::new(Fault::Unreachable, why));
            }
            // It may have happened at the commit, which may have been written all the same.
            Some(Code::SystemIoFailure) => (Fault::NoAnswer, "the disk failed"),
            Some(Code::ReadOnly) => {
                (Fault::Refused(Refusal::ReadOnly), "this process may not write the file")
            }
            Some(Code::DiskFull) => full("the disk is full"),
            Some(Code::OutOfMemory) => full("out of memory"),
            Some(Code::PermissionDenied | Code::CannotOpen) => {
                refused("cannot open the file or its directory")
            }
            Some(Code::NotADatabase) => refused("the file is not a SQLite database"),
            Some(Code::DatabaseCorrupt) => refused("the file is damaged: stop its users and remove it"),
            _ => refused("SQLite failed"),
        };
        Self(EngineError::new(fault, format!("{why} ({error})")))
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
