//! Names of the errors that connections die of, as the system's manual pages spell them.

/// Returns the number's name, where a socket can fail with it. Numbers are those of asm-generic, which x86, ARM, RISC-V and POWER share; MIPS and
/// SPARC number the network's errors otherwise.
pub fn errno_name(errno: i32) -> Option<&'static str> {
    Some(match errno {
        1 => "EPERM",
        2 => "ENOENT",
        4 => "EINTR",
        5 => "EIO",
        9 => "EBADF",
        11 => "EAGAIN",
        12 => "ENOMEM",
        13 => "EACCES",
        22 => "EINVAL",
        23 => "ENFILE",
        24 => "EMFILE",
        32 => "EPIPE",
        71 => "EPROTO",
        92 => "ENOPROTOOPT",
        97 => "EAFNOSUPPORT",
        98 => "EADDRINUSE",
        99 => "EADDRNOTAVAIL",
        100 => "ENETDOWN",
        101 => "ENETUNREACH",
        102 => "ENETRESET",
        103 => "ECONNABORTED",
        104 => "ECONNRESET",
        105 => "ENOBUFS",
        107 => "ENOTCONN",
        110 => "ETIMEDOUT",
        111 => "ECONNREFUSED",
        112 => "EHOSTDOWN",
        113 => "EHOSTUNREACH",
        114 => "EALREADY",
        115 => "EINPROGRESS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    #[test]
    fn the_numbers_are_this_systems() {
        let kinds = [
            ("ECONNREFUSED", 111, ErrorKind::ConnectionRefused),
            ("ECONNRESET", 104, ErrorKind::ConnectionReset),
            ("ECONNABORTED", 103, ErrorKind::ConnectionAborted),
            ("ETIMEDOUT", 110, ErrorKind::TimedOut),
            ("EADDRINUSE", 98, ErrorKind::AddrInUse),
            ("EADDRNOTAVAIL", 99, ErrorKind::AddrNotAvailable),
            ("EHOSTUNREACH", 113, ErrorKind::HostUnreachable),
            ("ENETUNREACH", 101, ErrorKind::NetworkUnreachable),
            ("ENETDOWN", 100, ErrorKind::NetworkDown),
            ("EPIPE", 32, ErrorKind::BrokenPipe),
            ("ENOTCONN", 107, ErrorKind::NotConnected),
            ("EACCES", 13, ErrorKind::PermissionDenied),
            ("EAGAIN", 11, ErrorKind::WouldBlock),
        ];
        for (name, errno, kind) in kinds {
            assert_eq!(errno_name(errno), Some(name));
            assert_eq!(Error::from_raw_os_error(errno).kind(), kind, "{name}");
        }
        assert_eq!(errno_name(0), None);
    }
}
