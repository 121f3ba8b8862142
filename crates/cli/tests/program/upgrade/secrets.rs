//! No key of a TLS connection that ended or moved stays in the memory of a server: it is searched for them.

use crate::verified::{Client, PATIENCE, Secured, trusting};
use rustls::crypto::tls13::OkmBlock;
use rustls::{ClientConfig, KeyLog};
use std::collections::BTreeMap;
use std::fs::{File, read_to_string};
use std::io::{Read, Seek, SeekFrom};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The traffic secrets of clients. Keys follow from them, and lie beside them.
#[derive(Debug, Default)]
struct Secrets(Mutex<Vec<Vec<u8>>>);

impl KeyLog for Secrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label.ends_with("_TRAFFIC_SECRET_0") {
            self.0.lock().expect("no test panics here").push(secret.to_vec());
        }
    }
}

/// Returns the secret that follows one: RFC 8446, section 7.2.
fn next(client: &Client, secret: &[u8]) -> Vec<u8> {
    const LABEL: &[u8] = b"tls13 traffic upd";
    let mut next = vec![0; secret.len()];
    let expander = client.suite().hkdf_provider.expander_for_okm(&OkmBlock::new(secret));
    let lengths = [0, secret.len() as u8, LABEL.len() as u8];
    expander.expand_slice(&[&lengths, LABEL, &[0]], &mut next).expect("a short secret");
    next
}

/// Clients that have exchanged something, and their second secrets. The first go through memory that rustls frees as it is, as SECURITY.md says.
fn clients(secured: &Secured, count: u64) -> (Vec<Client>, Vec<Vec<u8>>) {
    let secrets = Arc::new(Secrets::default());
    let mut config = ClientConfig::clone(&trusting(&secured.certificates, false));
    config.key_log = secrets.clone();
    let config = Arc::new(config);
    let client = |number| {
        let mut client = Client::connect(&config, &secured.at, number);
        client.exchanges(100);
        client.updates();
        client.exchanges(100);
        client
    };
    let clients: Vec<Client> = (0..count).map(client).collect();
    let first = std::mem::take(&mut *secrets.0.lock().expect("no test panics here"));
    assert_eq!(first.len() as u64, 2 * count);
    let of_each = clients.iter().zip(first.chunks(2));
    let second = of_each.flat_map(|(client, both)| both.iter().map(move |secret| next(client, secret))).collect();
    (clients, second)
}

/// Counts the copies of each secret in the memory that this process may write.
fn copies(pid: u32, secrets: &[Vec<u8>]) -> Vec<usize> {
    let mut by_start: BTreeMap<[u8; 2], Vec<usize>> = BTreeMap::new();
    for (at, secret) in secrets.iter().enumerate() {
        by_start.entry([secret[0], secret[1]]).or_default().push(at);
    }
    let is_start: Vec<bool> = (0..=u16::MAX).map(|two| by_start.contains_key(&two.to_le_bytes())).collect();
    let maps = read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let mut memory = File::open(format!("/proc/{pid}/mem")).expect("a parent may read its child's");
    let mut found = vec![0; secrets.len()];
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|rights| rights.starts_with("rw"))) {
        let (from, rest) = line.split_once('-').expect("a range");
        let [from, to] =
            [from, rest.split(' ').next().expect("its end")].map(|at| u64::from_str_radix(at, 16).expect("a number"));
        let mut bytes = vec![0; usize::try_from(to - from).expect("it fits")];
        // A part may have been given back meanwhile.
        if memory.seek(SeekFrom::Start(from)).and_then(|_| memory.read_exact(&mut bytes)).is_err() {
            continue;
        }
        for (at, two) in bytes.windows(2).enumerate() {
            if is_start[usize::from(u16::from_le_bytes([two[0], two[1]]))] {
                let starts = by_start[&[two[0], two[1]]].iter();
                starts.filter(|one| bytes[at..].starts_with(&secrets[**one])).for_each(|one| found[*one] += 1);
            }
        }
    }
    found
}

/// Waits until a process has so many copies of each secret. A stack keeps what it had until it is needed again, so others come meanwhile.
fn has(secured: &Secured, pid: u32, wanted: usize, secrets: &[Vec<u8>], of: &str) {
    let until = Instant::now() + PATIENCE;
    loop {
        clients(secured, 2).0.into_iter().for_each(Client::ends);
        let found = copies(pid, secrets);
        // A live connection's secret may stand on a stack, too, until that is needed again.
        if found.iter().all(|copies| if wanted == 0 { *copies == 0 } else { *copies >= wanted }) {
            return;
        }
        assert!(Instant::now() < until, "of secrets of connections that {of} there are so many copies: {found:?}");
    }
}

#[test]
fn secrets_of_connections_that_ended_or_moved_are_gone() {
    for settings in ["", "workers = 1\ntls-on-workers = true\n"] {
        // A handshake that is under way keeps the process that is replaced.
        let settings = format!("loops = 1\ntls-handshake-timeout = \"600s\"\n{settings}");
        let secured = Secured::start("upgrade-secrets", &settings);
        let old = secured.server.pid();
        let (ending, secrets) = clients(&secured, 8);
        ending.into_iter().for_each(Client::ends);
        has(&secured, old, 0, &secrets, "ended");
        let mut half = secured.client(100);
        half.greets_half();
        let (mut moving, secrets) = clients(&secured, 8);
        has(&secured, old, 1, &secrets, "will move");
        secured.server.says("upgrade");
        secured.counts("moved_in", 8);
        moving.iter_mut().for_each(|client| client.exchanges(100));
        let new = secured.pid();
        assert_ne!(old, new);
        has(&secured, old, 0, &secrets, "moved");
        has(&secured, new, 1, &secrets, "came");
        moving.iter_mut().for_each(Client::updates);
        moving.iter_mut().for_each(|client| client.exchanges(100));
        // A client's secret is told before a server's.
        let said: Vec<_> = secrets.chunks(2).map(|both| both[0].clone()).collect();
        has(&secured, new, 0, &said, "have new keys");
        half.says_the_rest();
    }
}
