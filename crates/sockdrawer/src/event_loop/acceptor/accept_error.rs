//! Failures of accept4 and their meanings.

use crate::sys::Errno;

/// Meaning of an errno of accept4, after accept(2) and the errors that Linux passes on from the new socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcceptError {
    Nothing,
    /// This connection failed before it was accepted; the next may do.
    Connection,
    /// No descriptor or memory. The connection stays in the queue.
    Resource,
    /// The socket does not listen any more, or never did.
    Listener,
}

pub(super) fn meaning(errno: Errno) -> AcceptError {
    match errno {
        Errno::AGAIN => AcceptError::Nothing,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => AcceptError::Resource,
        Errno::INVAL | Errno::BADF | Errno::NOTSOCK => AcceptError::Listener,
        // ECONNABORTED, EINTR, EPROTO, EPERM (a firewall rule), and the network's errors pending on the new socket: ENETDOWN,
        // ENOPROTOOPT, EHOSTDOWN, ENONET, EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH, ETIMEDOUT. What is unknown is taken for one
        // of these: the listener is polled again. Seccomp and security modules deny accept4 before the connection leaves the queue,
        // with any errno: the caller tells that by the second failure.
        _ => AcceptError::Connection,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_of_accept_has_its_class() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            assert_eq!(meaning(errno), AcceptError::Resource);
        }
        for errno in [Errno::CONNABORTED, Errno::INTR, Errno::PROTO, Errno::PERM, Errno::HOSTUNREACH, Errno::TIMEDOUT] {
            assert_eq!(meaning(errno), AcceptError::Connection);
        }
        assert_eq!(meaning(Errno::AGAIN), AcceptError::Nothing);
        assert_eq!(meaning(Errno::INVAL), AcceptError::Listener);
    }
}
