//! The end of a layer's output.

use crate::protocol::CannotRestore;

/// Progress of the end of this side's stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish {
    No,
    /// The filter said goodbye; [`Step::EndOutput`] is still to be returned, by a callback that has nothing else to ask for.
    Owed,
    Said,
}

impl Finish {
    pub(super) fn from_number(number: u64) -> Result<Finish, CannotRestore> {
        [Finish::No, Finish::Owed, Finish::Said]
            .into_iter()
            .find(|finish| *finish as u64 == number)
            .ok_or_else(|| CannotRestore::because("the saved state of its layer is of another version"))
    }
}
