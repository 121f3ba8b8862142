//! Debug output of what callbacks are given. It has only numbers: the bytes of a connection belong to its users.

use super::{Context, Input, Job, Output};
use std::fmt;

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("id", &self.id()).field("generation", &self.generation()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("bytes", &self.bytes().len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("bytes", &self.bytes().len()).field("room", &self.room()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}
