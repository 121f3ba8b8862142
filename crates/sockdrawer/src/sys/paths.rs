//! The files of Unix sockets: their permissions, and how they get a name.

use super::{Errno, Result};
use crate::net::ListenOptions;
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, RenameFlags};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Gives the file of a socket that was just bound the mode and the owner that are asked for. No link is followed: the file is opened
/// without being used (`O_PATH`), looked at and then changed by its descriptor.
pub(super) fn set_permissions(path: &Path, options: &ListenOptions) -> Result<()> {
    let ListenOptions { mode, user, group, .. } = options;
    if mode.is_none() && user.is_none() && group.is_none() {
        return Ok(());
    }
    let file = fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if !fs::FileType::from_raw_mode(fs::fstat(&file)?.st_mode).is_socket() {
        return Err(Errno::EXIST);
    }
    // First, because a file that was given away is another user's to change.
    if let Some(mode) = mode {
        // fchmod(2) takes no O_PATH descriptor, and fchmodat2(2) is of Linux 6.6.
        fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), Mode::from_raw_mode(*mode))?;
    }
    if user.is_some() || group.is_some() {
        fs::chownat(&file, "", user.map(fs::Uid::from_raw), group.map(fs::Gid::from_raw), AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

/// Exchanges the files of two names, at once (`RENAME_EXCHANGE`).
pub(super) fn exchange(one: &Path, other: &Path) -> Result<()> {
    fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)
}

/// Gives a file the other name, if no file has it (`RENAME_NOREPLACE`).
pub(super) fn rename_to_free(from: &Path, to: &Path) -> Result<()> {
    fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
}
/// Opens a file of this user's, or makes it, so that no other user may open it.
///
/// # Errors
/// `EPERM` where it is another user's.
pub(crate) fn private_file(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    if fs::fstat(&file)?.st_uid == rustix::process::geteuid().as_raw() { Ok(file) } else { Err(Errno::PERM) }
}
