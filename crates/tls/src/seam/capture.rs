//! Secrets and names that rustls tells while it works and not afterwards, on the thread that advances the handshake: traffic secrets, from which TLS
//! 1.3 makes the next keys, to the key log of its configuration; and the name that a client asked for, to what chooses certificates.

use crate::Error;
use rustix::fs::{Access, access};
use rustls::KeyLog;
use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use zeroize::Zeroizing;

const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

/// The secrets of one connection.
#[derive(Default)]
pub(crate) struct Captured {
    client: Zeroizing<Vec<u8>>,
    server: Zeroizing<Vec<u8>>,
    /// Name that a server's client asked for: rustls tells it to what chooses certificates, and not afterwards.
    pub(super) server_name: Option<String>,
}

thread_local!(static TOLD: RefCell<Captured> = RefCell::default());

impl Captured {
    /// Begins to take what rustls tells on this thread as being of this connection.
    pub(super) fn listen(&mut self) {
        TOLD.set(std::mem::take(self));
    }

    pub(super) fn take(&mut self) {
        *self = TOLD.take();
    }

    /// Returns the secrets of the client and of the server. None: one of them is not known.
    pub(super) fn both(&self) -> Option<(&[u8], &[u8])> {
        (!self.client.is_empty() && !self.server.is_empty()).then_some((&self.client, &self.server))
    }
}

/// Notes the name that the client of the handshake that is advanced asks for.
pub(crate) fn tell_server_name(name: Option<&str>) {
    TOLD.with_borrow_mut(|told| told.server_name = name.map(str::to_owned));
}

/// The key log of every configuration: keeps what the record layer needs, and passes all on to a file where one was asked for.
#[derive(Debug)]
pub(crate) struct KeyCapture(Option<KeyFile>);

impl KeyCapture {
    /// Makes a key log that also writes to `file`.
    pub(crate) fn to(file: Option<&Path>) -> Result<Arc<dyn KeyLog>, Error> {
        Ok(Arc::new(KeyCapture(file.map(KeyFile::at).transpose()?)))
    }
}

impl KeyLog for KeyCapture {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        TOLD.with_borrow_mut(|told| match label {
            CLIENT => told.client = Zeroizing::new(secret.to_vec()),
            SERVER => told.server = Zeroizing::new(secret.to_vec()),
            _ => {}
        });
        if let Some(file) = &self.0 {
            file.write(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        [CLIENT, SERVER].contains(&label) || self.0.is_some()
    }
}

/// A file of secrets, in the form of `SSLKEYLOGFILE`: a line for each, of a label and two numbers in hexadecimal. A configuration that is built
/// may never be used, so the file is opened, and made, when there is a secret to write.
#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

impl KeyFile {
    /// Says now why a file could not be written, as far as that can be told without opening it.
    fn at(path: &Path) -> Result<KeyFile, Error> {
        let wrong = |why: String| Error::File { path: path.to_owned(), why };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (place, rights) = match path.exists() {
            true if path.is_dir() => return Err(wrong("it is a directory: name a file".to_owned())),
            true => (path, Access::WRITE_OK),
            false => (folder, Access::WRITE_OK | Access::EXEC_OK),
        };
        access(place, rights)
            .map_err(|error| wrong(format!("{}: name a file that may be written", std::io::Error::from(error))))?;
        Ok(KeyFile { path: path.to_owned(), file: Mutex::default() })
    }

    /// Writes a line of the key log. A full disk costs lines of a debugging aid, not connections. Only its owner reads a file that is made here.
    fn write(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let line = Zeroizing::new(format!("{label} {} {}\n", hexadecimal(client_random), hexadecimal(secret)));
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            *file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path).ok();
        }
        let _ = file.as_mut().map(|file| file.write_all(line.as_bytes()));
    }
}
