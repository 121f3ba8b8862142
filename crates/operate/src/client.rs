//! A client of the control socket: HTTP over a Unix socket, one request after the other on a connection that is kept.
//!
//! ```no_run
//! use sockdrawer_operate::client::{Client, default_path};
//!
//! let mut client = Client::at(default_path("sockdrawer"));
//! let answer = client.send("GET", "/status", &[], b"")?;
//! let status = answer.status;
//! println!("{status}: {}", answer.text()?);
//! # Ok::<(), sockdrawer_operate::client::ClientError>(())
//! ```

use crate::control;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use sockdrawer_catalog::http::answer::{Progress, Reader};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum time for which a server may be silent, unless told otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the head of an answer.
const MAX_HEAD: usize = 16 * 1024;
/// Fields of the head of an answer.
const MAX_FIELDS: usize = 32;
/// Bytes of an answer that is kept in memory.
const MAX_ANSWER: u64 = 64 * 1024 * 1024;

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No file, or none that is a socket.
    #[error("no control socket at {}: start the server with --config FILE or --control PATH, or name its socket by --control", .0.display())]
    Missing(PathBuf),
    /// The file may not be used.
    #[error("{}: permission denied: only the user that runs the server, and root, may use its control socket", .0.display())]
    Denied(PathBuf),
    /// The file is there, and the server is not.
    #[error("nothing answers at {}: the server that listened there has ended; start it again", .0.display())]
    Refused(PathBuf),
    /// The server is silent.
    #[error("{} did not answer within {:?}: it may be stopped or busy; look at its process, or wait longer with --timeout", .path.display(), .within)]
    TimedOut {
        /// The socket.
        path: PathBuf,
        /// Time for which the client has waited.
        within: Duration,
    },
    /// The connection ended before the answer did.
    #[error("{} closed the connection before it had answered: the server may have ended", .0.display())]
    Ended(PathBuf),
    /// The answer comes from something other than a control socket.
    #[error("what answers at {} is no control socket of sockdrawer: {why}", .path.display())]
    Wrong {
        /// The socket.
        path: PathBuf,
        /// Reason why the answer is wrong.
        why: String,
    },
    /// Any other error of the system.
    #[error("cannot use {}: {source}", .path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// Returns the variable that says where the control socket of a program is: `SOCKDRAWER_CONTROL` for sockdrawer.
pub fn variable(program: &str) -> String {
    let sign = |sign: char| if sign.is_ascii_alphanumeric() { sign.to_ascii_uppercase() } else { '_' };
    format!("{}_CONTROL", program.chars().map(sign).collect::<String>())
}

/// Returns where the control socket of a program is: what its [`variable`] says; else, for sockdrawer, `sockdrawer.sock` in the first folder of
/// `$RUNTIME_DIRECTORY`, in `$XDG_RUNTIME_DIR` or in `/run/sockdrawer`, whichever is there first. If none is there: where a server would make it.
pub fn default_path(program: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable(program)).filter(|path| !path.is_empty()) {
        return path.into();
    }
    let mut places = control::places(program);
    let there = places.iter().position(|path| path.exists()).unwrap_or(0);
    places.swap_remove(there)
}

/// A client of a control socket.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    timeout: Option<Duration>,
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    socket: UnixStream,
    /// Bytes that have come and are still to be read as an answer.
    came: Vec<u8>,
}

/// The head of an answer; reading it reads the body.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The status code of HTTP.
    pub status: u16,
    /// The revision of the configuration, where the answer is about it.
    pub revision: Option<u64>,
    client: &'a mut Client,
    reader: Reader,
    /// Bytes of the body that have come and were not asked for yet.
    body: VecDeque<u8>,
    is_whole: bool,
}

impl Client {
    /// Makes a client of the socket at this path. It connects with the first request.
    pub fn at(path: impl Into<PathBuf>) -> Client {
        Client { path: path.into(), timeout: Some(TIMEOUT), connection: None }
    }

    /// Sets how long the server may be silent; None: for ever. Default: [`TIMEOUT`].
    #[must_use]
    pub fn timeout(mut self, timeout: Option<Duration>) -> Client {
        self.timeout = timeout;
        self
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends a request with these fields, and reads the head of its answer. The body of the answer before is given up.
    ///
    /// # Errors
    /// When there is no answer. An answer that says that the server refuses is none.
    pub fn send(&mut self, method: &str, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Result<Answer<'_>, ClientError> {
        let mut request = format!("{method} {target} HTTP/1.1\r\nHost: sockdrawer\r\n");
        fields.iter().for_each(|(name, value)| request += &format!("{name}: {value}\r\n"));
        if !body.is_empty() {
            request += &format!("Content-Length: {}\r\n", body.len());
        }
        let request = [(request + "\r\n").as_bytes(), body].concat();
        let kept = self.connection.take();
        let was_kept = kept.is_some();
        let first = kept.map_or_else(|| self.connect(), Ok).and_then(|connection| self.ask(connection, &request));
        let (connection, head) = match first {
            // A connection at rest may be closed by the server at any time, and by its replacement. What changes nothing may be asked again.
            Err(ClientError::Ended(_)) if was_kept && method == "GET" => {
                let connection = self.connect()?;
                self.ask(connection, &request)?
            }
            first => first?,
        };
        self.connection = Some(connection);
        let Head { status, revision } = head;
        let mut answer =
            Answer { status, revision, client: self, reader: Reader::default(), body: VecDeque::new(), is_whole: false };
        // An answer that is whole already keeps its connection, also where its body is not asked for.
        match answer.read_on() {
            Ok(()) => Ok(answer),
            Err(error) => Err(answer.client.failed(error)),
        }
    }

    fn connect(&self) -> Result<Connection, ClientError> {
        let open = || -> Result<UnixStream, Errno> {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            // Bounds the connect too, which waits while the server's queue is full, see unix(7).
            set_socket_timeout(&socket, Timeout::Send, self.timeout)?;
            set_socket_timeout(&socket, Timeout::Recv, self.timeout)?;
            connect(&socket, &SocketAddrUnix::new(&self.path)?)?;
            Ok(UnixStream::from(socket))
        };
        open().map(|socket| Connection { socket, came: Vec::new() }).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR => ClientError::Missing(self.path.clone()),
            Errno::ACCESS | Errno::PERM => ClientError::Denied(self.path.clone()),
            // Also of a file that is no socket.
            Errno::CONNREFUSED if !self.is_socket() => ClientError::Missing(self.path.clone()),
            Errno::CONNREFUSED => ClientError::Refused(self.path.clone()),
            errno => self.failed(errno.into()),
        })
    }

    fn is_socket(&self) -> bool {
        use std::os::unix::fs::FileTypeExt;
        std::fs::metadata(&self.path).is_ok_and(|found| found.file_type().is_socket())
    }

    fn ask(&self, mut connection: Connection, request: &[u8]) -> Result<(Connection, Head), ClientError> {
        // A server that refuses may answer and close before it has read all: its answer says why.
        let sent = connection.socket.write_all(request);
        let head = match (connection.head(), sent) {
            (Ok(head), _) => head,
            (Err(_), Err(error)) | (Err(error), Ok(())) => return Err(self.failed(error)),
        };
        Ok((connection, head))
    }

    fn failed(&self, error: io::Error) -> ClientError {
        let path = self.path.clone();
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                ClientError::TimedOut { path, within: self.timeout.unwrap_or_default() }
            }
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => ClientError::Ended(path),
            ErrorKind::InvalidData => ClientError::Wrong { path, why: error.to_string() },
            _ => ClientError::System { path, source: error },
        }
    }
}

impl Answer<'_> {
    /// Returns the whole body as text.
    ///
    /// # Errors
    /// When it ends too early, is no text or larger than 64 MiB.
    pub fn text(mut self) -> Result<String, ClientError> {
        let mut text = String::new();
        let read = self.by_ref().take(MAX_ANSWER).read_to_string(&mut text);
        let read = read.and_then(|read| match u64::try_from(read) {
            Ok(MAX_ANSWER) => Err(wrong("more than 64 MiB in one answer")),
            _ => Ok(()),
        });
        read.map(|()| text).map_err(|error| self.client.failed(error))
    }

    /// Calls `each` with each line of the body, as they come, until it breaks.
    ///
    /// # Errors
    /// When the body ends before it is complete.
    pub fn lines(mut self, mut each: impl FnMut(&str) -> std::ops::ControlFlow<()>) -> Result<(), ClientError> {
        // Not a `BufReader` of this answer: that would read on where the caller stops.
        let mut line = Vec::new();
        let mut bytes = [0; 16 * 1024];
        loop {
            let count = self.read(&mut bytes).map_err(|error| self.client.failed(error))?;
            if count == 0 {
                return Ok(());
            }
            for piece in bytes[..count].split_inclusive(|byte| *byte == b'\n') {
                line.extend(piece);
                if line.len() as u64 > MAX_ANSWER {
                    return Err(self.client.failed(wrong("more than 64 MiB in one line")));
                }
                if line.ends_with(b"\n") {
                    if each(String::from_utf8_lossy(&line).trim_end()).is_break() {
                        return Ok(());
                    }
                    line.clear();
                }
            }
        }
    }

    /// Reads on in the bytes that have come.
    fn read_on(&mut self) -> io::Result<()> {
        let Some(connection) = &mut self.client.connection else { return Ok(()) };
        let read = self.reader.read(&connection.came, &mut |bytes| self.body.extend(bytes));
        let (used, progress) = read.map_err(|error| wrong(error.to_string()))?;
        connection.came.drain(..used);
        if let Progress::Whole(answer) = progress {
            self.is_whole = true;
            if answer.last {
                self.client.connection = None;
            }
        }
        Ok(())
    }

    /// Waits for ever for what comes from now on, as for events.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn without_timeout(self) -> Result<Self, ClientError> {
        if let Some(connection) = &self.client.connection {
            connection.socket.set_read_timeout(None).map_err(|error| self.client.failed(error))?;
        }
        Ok(self)
    }
}

impl Read for Answer<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.body.is_empty() && !self.is_whole {
            let Some(connection) = &mut self.client.connection else { return Ok(0) };
            if connection.receive()? == 0 {
                self.reader.ended().ok_or(ErrorKind::UnexpectedEof)?;
                self.is_whole = true;
                self.client.connection = None;
            } else {
                self.read_on()?;
            }
        }
        self.body.read(bytes)
    }
}

/// Keeps the connection only where the answer was read to its end: otherwise what follows on it is not the next answer.
impl Drop for Answer<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            self.client.connection = None;
        }
    }
}

struct Head {
    status: u16,
    revision: Option<u64>,
}

fn wrong(why: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why.into())
}

impl Connection {
    /// Waits for more bytes. Returns their number; 0: the server has ended the connection.
    fn receive(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 16 * 1024];
        // A read with a timeout is interrupted by any signal, also where its handler restarts system calls (signal(7)).
        let count = retry_on_intr(|| rustix::io::read(&self.socket, &mut bytes[..]))?;
        self.came.extend(&bytes[..count]);
        Ok(count)
    }

    /// Waits for the head of an answer, and looks at it: it is read with the body.
    fn head(&mut self) -> io::Result<Head> {
        loop {
            let begins = b"HTTP/".iter().zip(&self.came).all(|(wanted, came)| wanted == came);
            if !begins {
                return Err(wrong("it speaks no HTTP"));
            }
            let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
            let mut parsed = httparse::Response::new(&mut fields);
            let parse = parsed.parse(&self.came).map_err(|error| wrong(format!("its HTTP is wrong: {error}")))?;
            let length = if let httparse::Status::Complete(length) = parse { length } else { self.came.len() };
            if length > MAX_HEAD {
                return Err(wrong("the head of its answer is too long"));
            }
            if parse.is_complete() {
                let field = |name: &str| {
                    let found = parsed.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
                    found.and_then(|field| std::str::from_utf8(field.value).ok()).map(str::trim)
                };
                if let Some(other) = field("Transfer-Encoding").filter(|coding| *coding != "chunked") {
                    return Err(wrong(format!("the transfer encoding {other} is not understood")));
                }
                let revision = field("ETag").and_then(|tag| tag.trim_matches('"').parse().ok());
                return Ok(Head { status: parsed.code.unwrap_or_default(), revision });
            }
            if self.receive()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

#[cfg(test)]
mod tests;
