//! The server's record of requests, which clients compare with theirs: a request that the server began to read must be answered; a
//! request that was sent while the server's end was on its way need not be.

use super::place::Place;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

/// The number of slots, far more than connections at once, so that a slot's last connection has ended when the slot is used again.
const SLOTS: u64 = 256;
/// Bytes of a slot: the numbers of requests begun and answered.
const SLOT: u64 = 16;

/// Requests of each connection, in a file: the server may be in other processes. They open it by its path, because a process that has a user namespace, as a
/// trial without root has for a network of its own, shows its descriptors to none of them.
///
/// A slot has one writer at a time, the client before it sends and then the server's end of its connection. A client looks when it
/// has seen the server's end, which came after what it looks at.
pub(crate) struct Ledger {
    file: File,
    path: PathBuf,
    /// The place of a ledger that this process has made.
    _place: Option<Place>,
}

impl Ledger {
    pub(crate) fn new() -> io::Result<Ledger> {
        let place = Place::new();
        let path = place.path().to_owned();
        // A process of this number that was killed may have left one.
        let _ = fs::remove_file(&path);
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        file.set_len(SLOTS * SLOT)?;
        Ok(Ledger { file, path, _place: Some(place) })
    }

    /// Returns the path at which another process of this user finds the file, as long as this process has it.
    pub(crate) fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// Opens the ledger of another process.
    pub(crate) fn at(path: &str) -> io::Result<Ledger> {
        Ok(Ledger { file: File::options().read(true).write(true).open(path)?, path: path.into(), _place: None })
    }

    fn read(&self, connection: u64) -> (u64, u64) {
        let mut bytes = [0; SLOT as usize];
        self.file.read_exact_at(&mut bytes, connection % SLOTS * SLOT).expect("a small file can be read");
        counts(&bytes)
    }

    fn write(&self, connection: u64, (begun, done): (u64, u64)) {
        let bytes = [begun.to_le_bytes(), done.to_le_bytes()].concat();
        self.file.write_all_at(&bytes, connection % SLOTS * SLOT).expect("a small file can be written");
    }

    /// Clears the slot of a new client.
    pub(crate) fn open(&self, connection: u64) {
        self.write(connection, (0, 0));
    }

    /// Notes that the server saw this connection's requests up to the `number`th.
    pub(crate) fn begin(&self, connection: u64, number: u64) {
        let (begun, done) = self.read(connection);
        if number > begun {
            self.write(connection, (number, done));
        }
    }

    /// Counts a request of this connection as answered.
    pub(crate) fn done(&self, connection: u64) {
        let (begun, done) = self.read(connection);
        self.write(connection, (begun, done + 1));
    }

    /// Returns the number of this connection's requests that the server saw.
    pub(crate) fn begun(&self, connection: u64) -> u64 {
        self.read(connection).0
    }

    /// Returns the number of requests of all connections that the server has begun and not answered.
    pub(crate) fn under_way(&self) -> u64 {
        let mut bytes = [0; (SLOTS * SLOT) as usize];
        self.file.read_exact_at(&mut bytes, 0).expect("a small file can be read");
        bytes.chunks_exact(SLOT as usize).map(counts).map(|(begun, done)| begun.saturating_sub(done)).sum()
    }
}

fn counts(slot: &[u8]) -> (u64, u64) {
    let word = |place: usize| u64::from_le_bytes(slot[place..place + 8].try_into().expect("eight bytes"));
    (word(0), word(8))
}
