//! Addresses to listen at, what makes the sockets there, and how full their accept queues are.

pub use crate::config::{Layers, Listening};
pub use crate::net::{Bind, Listen, ListenOptions, ListenRequest};

use crate::sys::passed;
use std::io::{Error, ErrorKind};
use std::sync::Arc;

/// The variable in which a process that stays while a server changes its process, `sockdrawer parent`, has its pid for that server. A service
/// manager follows the parent and has passed it its sockets, so that no build is the service's main process.
pub const PARENT: &str = "SOCKDRAWER_PARENT";

/// The accept queue of one listening socket: connections whose handshake is complete and that were not accepted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptQueue {
    /// Connections in the queue.
    pub waiting: u32,
    /// The maximum: the backlog given to listen(2), or `net.core.somaxconn` if that is less. The kernel takes one more.
    pub backlog: u32,
}

/// Returns the accept queues of all sockets that listen at `address` in this network namespace, whichever process owns them; empty if no socket
/// listens there.
///
/// # Errors
/// The system's error, if the kernel has no sock_diag(7).
///
/// ```
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let waiting = std::net::TcpStream::connect(listener.local_addr()?)?;
/// let queues = sockdrawer::listening::accept_queues(listener.local_addr()?)?;
/// assert_eq!((queues.len(), queues[0].waiting), (1, 1));
/// # drop(waiting);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn accept_queues(address: std::net::SocketAddr) -> std::io::Result<Vec<AcceptQueue>> {
    let queues = crate::sys::accept_queues(address)?;
    Ok(queues.into_iter().map(|(waiting, backlog)| AcceptQueue { waiting, backlog }).collect())
}

/// Returns the listening sockets that systemd, or another program that speaks
/// [its protocol](https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html), passed to this process, with their names and
/// addresses; empty if it passed none, or passed them to another process than this one, and than the [parent](PARENT) that started
/// this one. They are closed in programs that this one starts.
///
/// A program calls it once, at its start: the descriptors are what the environment says (`LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES`), which
/// a program must not change before.
///
/// # Errors
/// When they are no listening stream sockets, as with `Accept=yes` or `ListenDatagram=` in the socket unit, when a variable is wrong, and when
/// they were taken before.
///
/// ```
/// # use sockdrawer::{Config, Context, Input, Peer, Protocol, Service, Step, listening};
/// # struct Echo;
/// # impl Service for Echo { type Protocol = Echo; fn open(&self, _: &Peer) -> Echo { Echo } }
/// # impl Protocol for Echo {
/// #     fn received(&mut self, i: &mut Input<'_>, cx: &mut Context<'_>) -> Step { cx.send(i.bytes()); i.take_all(); Step::Continue }
/// # }
/// let mut config = Config::accept(Echo);
/// for listening in listening::passed_sockets()? {
///     config = config.listening(listening);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn passed_sockets() -> std::io::Result<Vec<Listening>> {
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let (pid, count, names) = (variable("LISTEN_PID"), variable("LISTEN_FDS"), variable("LISTEN_FDNAMES"));
    let parent = std::os::unix::process::parent_id().to_string();
    let parent = variable(PARENT).filter(|pid| *pid == parent);
    let is_passed = pid.is_some_and(|pid| pid == std::process::id().to_string() || Some(pid) == parent);
    let Some(count) = count.filter(|_| is_passed) else { return Ok(Vec::new()) };
    let names = names_of(&count, names.as_deref()).map_err(|why| Error::new(ErrorKind::InvalidData, why))?;
    let descriptors = passed::take(names.len() as u32).map_err(|errno| {
        let why = format!("the {} descriptors that LISTEN_FDS speaks of cannot be had: {}", names.len(), Error::from(errno));
        Error::new(ErrorKind::InvalidData, why)
    })?;
    let listening = |(at, (name, socket)): (usize, (String, std::os::fd::OwnedFd))| {
        let address = passed::listens_at(&socket)?.ok_or_else(|| {
            let number = at + passed::FIRST as usize;
            let why = format!(
                "descriptor {number} ({name}) of LISTEN_FDS is no listening stream socket: use ListenStream= and Accept=no in the socket unit"
            );
            Error::new(ErrorKind::InvalidData, why)
        })?;
        Ok(Listening::new(address).named(name).inherited(Arc::new(socket)))
    };
    names.into_iter().zip(descriptors).enumerate().map(listening).collect()
}

/// Returns the names of this many sockets: without any, each is `unknown`, as with sd_listen_fds_with_names(3).
fn names_of(count: &str, names: Option<&str>) -> Result<Vec<String>, String> {
    // As many as a process may have descriptors of, by far; fewer than numbers end at.
    let count = count.parse().ok().filter(|count| *count < 1 << 20);
    let count: usize = count.ok_or_else(|| format!("LISTEN_FDS={count:?} is no number of descriptors"))?;
    let Some(names) = names else { return Ok(vec!["unknown".to_owned(); count]) };
    let all: Vec<String> = names.split(':').map(str::to_owned).collect();
    match all.len() == count {
        true => Ok(all),
        false => Err(format!("LISTEN_FDNAMES={names:?} has {} names, for {count} descriptors of LISTEN_FDS", all.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::names_of;

    #[test]
    fn each_passed_socket_has_a_name() {
        assert_eq!(names_of("2", Some("web:admin")), Ok(vec!["web".to_owned(), "admin".to_owned()]));
        assert_eq!(names_of("2", None), Ok(vec!["unknown".to_owned(); 2]));
        assert_eq!(names_of("0", None), Ok(vec![]));
        assert!(names_of("2", Some("web")).is_err_and(|why| why.contains("1 names, for 2 descriptors")));
        for wrong in ["", "-1", "x", "99999999999999999999", "4294967295"] {
            assert!(names_of(wrong, None).is_err_and(|why| why.contains("no number")), "{wrong}");
        }
    }

    #[test]
    fn a_process_that_was_passed_none_has_none() {
        assert_eq!(super::passed_sockets().expect("no error"), []);
    }
}
