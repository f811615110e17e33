//! Locks that tell the truth.
