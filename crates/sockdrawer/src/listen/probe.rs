//! A probe of an address: the system is asked whether it can be listened at, without a socket that listens. No client is answered, or refused, by it.

use super::listener::Ask;
use super::path_lock::PathLock;
use super::unix_path::{PATH_MAX, beside, is_stale, path_of};
use crate::error::Error;
use crate::net::Address;
use crate::sys::Errno;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

/// Binds a socket as the listener would be, and closes it. The path of a Unix socket is looked at, and a name beside it is bound in its place.
pub(crate) fn probe(ask: &Ask<'_>) -> Result<(), Error> {
    let Some(path) = path_of(ask.address) else { return bind(ask, ask.address).map_err(|errno| ask.error(errno)) };
    if path.as_os_str().as_bytes().len() > PATH_MAX {
        return Err(ask.error(Errno::NAMETOOLONG));
    }
    if path.symlink_metadata().is_ok() && !is_stale(ask.system, ask.address) {
        return Err(ask.error(Errno::ADDRINUSE));
    }
    let beside = beside(path).ok_or_else(|| ask.error(Errno::NAMETOOLONG))?;
    // Another program that starts here would take the name for stale.
    let _lock = PathLock::of(Some(&beside));
    let bound = bind(ask, &Address::Unix(beside.clone()));
    let _ = std::fs::remove_file(beside);
    bound.map_err(|errno| ask.error(errno))
}

fn bind(ask: &Ask<'_>, address: &Address) -> Result<(), Errno> {
    let socket = ask.system.socket(address)?;
    ask.system.set_listen_options(socket.as_fd(), ask.options)?;
    ask.system.bind(socket.as_fd(), address)?;
    if let Address::Unix(path) = address {
        ask.system.set_permissions(path, ask.options)?;
    }
    ask.system.set_options(socket.as_fd(), ask.accepted)
}
