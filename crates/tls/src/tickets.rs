//! Tickets by which clients resume. Their keys follow from one secret and the time, so that all loops, processes and reloads of a program
//! that share the secret accept each other's.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// A key makes tickets for so many seconds, and accepts them for as long again.
const PERIOD: u64 = 6 * 60 * 60;
const TAG: usize = 16;
/// A client whose certificates make a longer one is not resumed.
const MAX_TICKET: usize = 16 * 1024;

/// The keys of session tickets. Clones are the same keys: give one to each [`Server`](crate::Server) of a program, the next one after a change
/// of certificates too, and its clients resume there.
///
/// A key is used for six hours and accepted for six more. Each follows from the one before it, which is then forgotten: what a later key
/// decrypts does not tell what an earlier one did.
#[derive(Clone)]
pub struct Tickets(Arc<Mutex<TicketKeys>>);

struct TicketKeys {
    /// The number of the period since 1970.
    period: u64,
    now: Key,
    before: Option<Key>,
}

type Secret = Zeroizing<[u8; 32]>;

/// A secret, and the key that follows from it, made once and not for each ticket. Both are boxed, so that no move leaves a copy behind, and
/// wiped: ring does not wipe what it makes of a key, so that is made for each ticket.
struct Key {
    secret: Box<Secret>,
    encrypts: Arc<Secret>,
}

impl Key {
    fn new(secret: Box<Secret>) -> Key {
        Key { encrypts: follows(&secret, b"sockdrawer ticket encryption").into(), secret }
    }
}

fn aead(key: &Secret) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &key[..]).expect("32 bytes are a key"))
}

impl TicketKeys {
    /// Turns to the next key, which is that of this period.
    fn turn(&mut self, period: u64) {
        let next = Key::new(follows(&self.now.secret, b"sockdrawer next ticket key"));
        self.before = Some(std::mem::replace(&mut self.now, next));
        self.period = period;
    }

    fn read(bytes: &[u8]) -> Option<TicketKeys> {
        let (period, rest) = bytes.split_first_chunk()?;
        let (now, rest) = rest.split_first_chunk::<32>()?;
        let key = |secret: &[u8; 32]| {
            let mut boxed = Box::<Secret>::default();
            boxed.copy_from_slice(secret);
            Key::new(boxed)
        };
        let before = if rest.is_empty() { None } else { Some(key(rest.try_into().ok()?)) };
        Some(TicketKeys { period: u64::from_le_bytes(*period), now: key(now), before })
    }
}

/// Keys are not printed.
impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets")
    }
}

fn period() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) / PERIOD
}

/// Derives a key from another one, one way only: the label is not secret, and nothing leads back.
fn follows(key: &Secret, label: &[u8]) -> Box<Secret> {
    let mut next = Box::<Secret>::default();
    let derived = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &key[..]);
    let info = [label];
    let derived = derived.expand(&info, hkdf::HKDF_SHA256).expect("32 bytes are not too many");
    derived.fill(&mut next[..]).expect("32 bytes, as asked for");
    next
}

impl Default for Tickets {
    fn default() -> Tickets {
        Tickets::new()
    }
}

impl Tickets {
    /// Keys of a new random secret.
    ///
    /// # Panics
    /// When the system has no random numbers.
    pub fn new() -> Tickets {
        let mut now = Box::<Secret>::default();
        SystemRandom::new().fill(&mut now[..]).expect("the system has random numbers");
        Tickets(Arc::new(Mutex::new(TicketKeys { period: period(), now: Key::new(now), before: None })))
    }

    /// Returns the keys for another process of this program, which goes on with them: secret.
    pub fn export(&self) -> Zeroizing<Vec<u8>> {
        let keys = self.at(period());
        let mut bytes = Zeroizing::new(Vec::with_capacity(72));
        bytes.extend_from_slice(&keys.period.to_le_bytes());
        bytes.extend_from_slice(&keys.now.secret[..]);
        bytes.extend_from_slice(keys.before.as_ref().map_or(&[], |key| &key.secret[..]));
        bytes
    }

    /// Reads the keys that [`Tickets::export`] wrote; None where these are not such bytes.
    pub fn import(bytes: &[u8]) -> Option<Tickets> {
        TicketKeys::read(bytes).map(|keys| Tickets(Arc::new(Mutex::new(keys))))
    }

    /// Goes on with the keys that [`Tickets::export`] wrote in the process before this one, in all clones: for
    /// [`Upgrade::carry`](sockdrawer::Upgrade::carry), whose bytes come when servers have these already. Returns false, and changes nothing, where these are not such bytes.
    pub fn go_on(&self, bytes: &[u8]) -> bool {
        let Some(keys) = TicketKeys::read(bytes) else { return false };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = keys;
        true
    }

    /// Returns the keys at a time. Where the clock goes back by a period or so they stay as they are. Where it was years ahead, they go on from the
    /// time that it says now: else none would be new before it is there again.
    fn at(&self, period: u64) -> std::sync::MutexGuard<'_, TicketKeys> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.period > period.saturating_add(1) {
            keys.turn(period);
        }
        while keys.period < period {
            let next = keys.period + 1;
            keys.turn(next);
        }
        keys
    }

    /// Returns the tickets of a server that asks clients for certificates of these authorities, or asks for none. A ticket tells which certificates
    /// the client showed, so one that a server made which trusts others is not accepted.
    pub(crate) fn of(self, authorities: Option<&[u8]>) -> Arc<dyn ProducesTickets> {
        let authorities = authorities.map(|pem| digest(&SHA256, pem).as_ref().to_vec()).unwrap_or_default();
        Arc::new(Ticketer { tickets: self, authorities })
    }

    fn seal(&self, plain: &[u8], of: &[u8], period: u64) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let key = self.at(period).now.encrypts.clone();
        let mut ticket = Vec::with_capacity(NONCE_LEN + plain.len() + TAG);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        let body = &mut ticket[NONCE_LEN..];
        let tag = aead(&key).seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(of), body).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn open(&self, ticket: &[u8], of: &[u8], period: u64) -> Option<Vec<u8>> {
        let (nonce, body) = ticket.split_first_chunk::<NONCE_LEN>()?;
        if body.len() > MAX_TICKET {
            return None;
        }
        let keys = {
            let keys = self.at(period);
            [Some(keys.now.encrypts.clone()), keys.before.as_ref().map(|key| key.encrypts.clone())]
        };
        keys.into_iter().flatten().find_map(|key| {
            let mut body = body.to_vec();
            let opened = aead(&key).open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(of), &mut body).ok()?.len();
            body.truncate(opened);
            Some(body)
        })
    }
}

/// The tickets of one server.
#[derive(Debug)]
struct Ticketer {
    tickets: Tickets,
    /// The hash of the authorities of its clients.
    authorities: Vec<u8>,
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        PERIOD as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.tickets.seal(plain, &self.authorities, period())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.tickets.open(ticket, &self.authorities, period())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_for_its_period_and_the_next_in_every_process() {
        let tickets = Tickets::new();
        let start = period();
        let ticket = tickets.seal(b"a session", b"", start).expect("it seals");
        let elsewhere = Tickets::import(&tickets.export()).expect("it wrote them");
        for at in [start, start + 1] {
            assert_eq!(elsewhere.open(&ticket, b"", at).as_deref(), Some(&b"a session"[..]));
        }
        assert_eq!(elsewhere.open(&ticket, b"", start + 2), None);
        // The time never goes back for keys.
        assert_eq!(elsewhere.open(&ticket, b"", start), None);
        assert_eq!(tickets.open(&ticket, b"", start).as_deref(), Some(&b"a session"[..]));
        assert_eq!(Tickets::new().open(&ticket, b"", start), None);
        let (again, clone) = (Tickets::new(), tickets.clone());
        assert!(again.go_on(&elsewhere.export()) && !clone.go_on(b"short") && tickets.go_on(&elsewhere.export()));
        let ticket = again.seal(b"another", b"", start + 2).expect("it seals");
        assert_eq!(elsewhere.open(&ticket, b"", start + 3).as_deref(), Some(&b"another"[..]));
        assert_eq!(clone.open(&ticket, b"", start + 3).as_deref(), Some(&b"another"[..]));
    }

    #[test]
    fn keys_go_on_after_a_clock_that_was_years_ahead() {
        let (tickets, start) = (Tickets::new(), period());
        let ahead = tickets.seal(b"ahead", b"", start + 5 * 1_461).expect("it seals");
        let back = tickets.seal(b"back", b"", start).expect("it seals");
        assert_eq!(tickets.open(&ahead, b"", start).as_deref(), Some(&b"ahead"[..]), "its key is the one before");
        assert_eq!(tickets.open(&back, b"", start + 1).as_deref(), Some(&b"back"[..]));
        assert_eq!(tickets.open(&back, b"", start + 2), None, "its period is over");
    }

    #[test]
    fn what_is_no_ticket_is_not_opened() {
        let keys = Tickets::new();
        let tickets = keys.clone().of(None);
        let ticket = tickets.encrypt(b"a session").expect("it seals");
        for cut in 0..ticket.len() {
            assert_eq!(tickets.decrypt(&ticket[..cut]), None);
            let mut wrong = ticket.clone();
            wrong[cut] ^= 1;
            assert_eq!(tickets.decrypt(&wrong), None);
        }
        assert_eq!(tickets.decrypt(&[0; 1 << 17]), None);
        assert!(Tickets::import(b"short").is_none() && Tickets::import(&[0; 41]).is_none());
        assert_eq!(format!("{keys:?}"), "Tickets");
    }

    #[test]
    fn a_ticket_is_of_the_authorities_that_its_server_trusts() {
        let keys = Tickets::new();
        let servers = [None, Some(&b"one"[..]), Some(b"another")].map(|authorities| keys.clone().of(authorities));
        for (of, maker) in servers.iter().enumerate() {
            let ticket = maker.encrypt(b"a session").expect("it seals");
            let accepted = servers.each_ref().map(|server| server.decrypt(&ticket).is_some());
            assert_eq!(accepted, std::array::from_fn(|at| at == of));
        }
    }
}
