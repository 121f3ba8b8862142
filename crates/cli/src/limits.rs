//! Limits that the system sets to this process.

/// Raises the soft limit of descriptors to the hard one: connections are descriptors. Where it may not rise nothing is lost: a
/// pool whose connections do not fit says so when it starts.
pub(crate) fn raise() {
    let _ = sockdrawer::raise_descriptor_limit();
}
