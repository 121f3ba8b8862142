//! The change of a certificate: a server under TLS, beside the one that the other kinds change, with connections that stay and others that
//! come at each change. It runs in loops of this process, whatever the model of the other.

use super::served::{Dish, Props};
use crate::sets::stop_connecting;
use crate::tls::Tls;
use crate::{Churn, Echo, Group, Keep, PATIENCE, Tally, mix};
use sockdrawer::observe::Status;
use sockdrawer::{Address, Behaviour, Config, Drain, Error, Pool, Selector, connecting::Connecting};
use sockdrawer_tls::{Client, HandshakeKind, Identity, Server, Trust};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Certificates, of which each change takes the next: the one before the one in force is never the next.
const CERTIFICATES: usize = 3;
/// Connections that stay.
const KEPT: usize = 8;
/// Connects that begin before each change, and as many after it.
const CONNECTS: u64 = 4;
const NAME: &str = "localhost";

/// A server under TLS and its clients.
pub(crate) struct Secure {
    pub(crate) server: Pool,
    churn: Pool,
    kept: Pool,
    servers: Vec<Behaviour>,
    /// Connects of the churn that were asked for.
    asked: AtomicU64,
    book: Arc<Book>,
}

/// Which certificates the clients were shown.
struct Book {
    certificates: Vec<Vec<u8>>,
    /// The number of the one in force.
    current: AtomicUsize,
    /// Handshakes that showed each.
    shown: [AtomicU64; CERTIFICATES],
    /// Handshakes that showed neither the one in force nor the one before.
    stale: AtomicU64,
}

impl Book {
    fn shown(&self, certificate: Option<&Vec<u8>>) {
        let number = self.certificates.iter().position(|one| Some(one) == certificate);
        // A change is prepared, then noted, then in force: the next one may be seen first.
        let current = self.current.load(Ordering::SeqCst);
        match number {
            Some(number) if number == current || (number + 1) % CERTIFICATES == current => {
                self.shown[number].fetch_add(1, Ordering::SeqCst);
            }
            _ => drop(self.stale.fetch_add(1, Ordering::SeqCst)),
        }
    }
}

impl Secure {
    pub(crate) fn start(tally: &Arc<Tally>, props: &Props, seed: u64) -> Result<Secure, Error> {
        let stopped = |error: sockdrawer_tls::Error| Error::Stopped { reason: error.to_string() };
        // As authorities they are told apart by their names.
        let made = (0..CERTIFICATES).map(|number| Identity::self_signed(&format!("certificate {number}"), &[NAME]));
        let made = made.collect::<Result<Vec<_>, _>>().map_err(stopped)?;
        let under =
            |identity: &Identity| Server::new([identity.clone()]).build().map(|tls| Dish::Plain.behaviour(props).layered(tls));
        let servers = made.iter().map(under).collect::<Result<Vec<Behaviour>, _>>().map_err(stopped)?;
        let config = Config::accept(servers[0].clone()).loops(2).workers(0);
        let server = Pool::start(config.listen(Address::Tcp((Ipv4Addr::LOCALHOST, 0).into())))?;
        let book = Arc::new(Book {
            certificates: made.iter().filter_map(|identity| identity.certificates().next().map(<[u8]>::to_vec)).collect(),
            current: AtomicUsize::new(0),
            shown: Default::default(),
            stale: AtomicU64::new(0),
        });
        let authorities: Vec<u8> = made.iter().flat_map(Identity::chain_pem).copied().collect();
        let told = book.clone();
        // A resumed handshake shows no certificate.
        let client = Client::new(Trust::Authorities(authorities)).name(NAME).resumes(false).observe(move |done| {
            if let Ok(handshake) = done.outcome
                && handshake.kind == HandshakeKind::Full
            {
                told.shown(handshake.peer_certificates.first());
            }
        });
        let tls = Tls::new(client.build().map_err(stopped)?);
        let witness = tally.witness(Group::Secure);
        let target = server.addresses();
        let clients = |behaviour: Behaviour, keep: usize, total: u64| {
            let mut connecting = Connecting::to(target.clone()).keep(keep).timeout(PATIENCE).total(total);
            connecting.sources = Group::Secure.sources();
            Pool::start(Config::connect(behaviour.layered(tls.layer(&witness)), connecting).loops(1).workers(0).capacity(keep))
        };
        let keep = Keep::new(Echo::new(mix(seed), 1, 64), witness.clone(), mix(seed));
        let kept = clients(keep.into(), KEPT, KEPT as u64)?;
        kept.wait(PATIENCE, |_| tally.stood(Group::Secure) >= KEPT as u64);
        let churn = Churn::new(Echo::new(mix(!seed), 16, 16).ending_at_once(), witness.clone());
        let churn = clients(churn.into(), usize::try_from(2 * CONNECTS).expect("few"), 0)?;
        Ok(Secure { server, churn, kept, servers, asked: AtomicU64::new(0), book })
    }

    /// Begins some connects.
    fn connect(&self) -> Result<(), String> {
        let total = self.asked.fetch_add(CONNECTS, Ordering::Relaxed) + CONNECTS;
        let more = self.churn.update(|config| config.connecting(|connecting| connecting.total = Some(total)));
        more.map(drop).map_err(|error| error.to_string())
    }

    /// Waits until all of them have ended.
    fn ended(&self) -> Result<(), String> {
        let total = self.asked.load(Ordering::Relaxed);
        let over = |status: &Status| status.counts.connects >= total && status.connections == 0;
        let over = self.churn.wait(4 * PATIENCE, over);
        if over { Ok(()) } else { Err("clients under TLS did not end in time".to_owned()) }
    }

    /// Changes the certificate while handshakes are under way. All that begin afterwards see the new one.
    pub(crate) fn change(&self) -> Result<Duration, String> {
        self.connect()?;
        let next = (self.book.current.load(Ordering::SeqCst) + 1) % CERTIFICATES;
        self.book.current.store(next, Ordering::SeqCst);
        let (mut wanted, begun) = (self.server.config(), Instant::now());
        wanted.behaviour = self.servers[next].clone();
        self.server.reconfigure(wanted).map_err(|error| error.to_string())?;
        let took = begun.elapsed();
        // Connections that are open keep their keys, and go on under the new generation.
        let stay = self.server.adopt(&Selector::All).moved;
        self.ended()?;
        let before = self.book.shown[next].load(Ordering::SeqCst);
        self.connect()?;
        self.ended()?;
        match (self.book.stale.load(Ordering::SeqCst), self.book.shown[next].load(Ordering::SeqCst) - before) {
            (0, CONNECTS) if stay >= KEPT => Ok(took),
            (0, CONNECTS) => Err(format!("{stay} of {KEPT} connections under TLS went on under the new generation")),
            (0, new) => Err(format!("{new} of {CONNECTS} handshakes after the change showed the new certificate")),
            (stale, _) => {
                Err(format!("{stale} handshakes showed a certificate that was neither the one in force nor the one before"))
            }
        }
    }

    /// Ends the clients in order.
    pub(crate) fn stop(&self) {
        stop_connecting(&self.churn);
        self.churn.wait(4 * PATIENCE, |status| status.connections == 0);
        for clients in [&self.churn, &self.kept] {
            stop_connecting(clients);
            clients.shutdown(Drain::within(2 * PATIENCE));
        }
        self.server.wait(2 * PATIENCE, |status| status.connections == 0);
    }
}
