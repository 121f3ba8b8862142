//! What the system lets this process have.

/// Raises the soft limit of descriptors to the hard one: connections are descriptors. Where it may not rise nothing is lost: a
/// pool whose connections do not fit says so when it starts.
pub(crate) fn raise() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
