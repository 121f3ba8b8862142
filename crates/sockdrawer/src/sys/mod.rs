//! Where the operating system and `unsafe` live. Everything else in the crate is safe code over this folder.
//!
//! Contract: functions take and return owned or borrowed descriptors, never numbers; every error is the errno; nothing here
//! decides, retries or remembers.

pub(crate) mod inline;
