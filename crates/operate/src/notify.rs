//! What a service manager such as systemd is told, by datagrams to the socket that the variable `NOTIFY_SOCKET` names
//! ([sd_notify(3)](https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html)). Without the variable, nothing is sent.

use sockdrawer::observe::Event;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends lines of `NAME=value`. A manager that does not take them is none of the server's business.
pub(crate) fn send(lines: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to_addr(lines.as_bytes(), &address)
    });
    drop(sent);
}

/// The main process is another one once a new build has taken over, and this one where that died.
pub(crate) fn tell(event: &Event) {
    match event {
        Event::HandedOver { pid } => send(&format!("MAINPID={pid}\nREADY=1")),
        Event::TakenBack => send(&format!("MAINPID={}\nREADY=1\nSTATUS=the new build died", std::process::id())),
        _ => {}
    }
}

/// A change begins: the manager waits for the next `READY=1`.
pub(crate) fn reloading() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1_000)
}
