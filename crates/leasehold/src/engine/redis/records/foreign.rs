//! Keys that are not for records.

use crate::{
    engine::{EngineError, Fault, redis::keys::Keys},
    name::Name,
};

/// Whether a key may be a record or a mark.
pub(super) fn check(key: &Name) -> Result<(), EngineError> {
    match Keys::of_record(key).clash() {
        Some(why) => Err(EngineError::new(Fault::Unsupported, why)),
        None => Ok(()),
    }
}

/// The error for a key of another type.
pub(super) fn kind(key: &Name) -> EngineError {
    EngineError::new(Fault::WrongType, format!("the key {key} is of another type than a record"))
}

/// The same error with the key in it, if it is that one.
pub(super) fn named(key: &Name, error: EngineError) -> EngineError {
    if error.fault == Fault::WrongType { kind(key) } else { error }
}
