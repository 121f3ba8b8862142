//! The change of a certificate: a server under TLS, beside the one that the other kinds change, with connections that stay and others that
//! come at each change. It runs in loops of this process, whatever the model of the other.

use super::beside::{Beside, CONNECTS, KEPT};
use super::served::{Dish, Props};
use crate::tls::Tls;
use crate::{Group, PATIENCE, Tally};
use sockdrawer::{Address, Behaviour, Config, Error, Pool, Selector};
use sockdrawer_tls::{Client, ClientOptions, HandshakeKind, Identity, Server, Trust};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Certificates, of which each change takes the next: the one before the one in force is never the next.
const CERTIFICATES: usize = 3;
const NAME: &str = "localhost";

/// A server under TLS and its clients.
pub(crate) struct Secure {
    pub(crate) server: Pool,
    clients: Beside,
    servers: Vec<Behaviour>,
    book: Arc<Book>,
    /// The authorities of its certificates.
    #[cfg(test)]
    authorities: Vec<u8>,
}

/// Certificates that the clients were shown.
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

/// Returns the options of clients that trust these authorities, and whose handshakes are all full ones.
fn trusting(authorities: Vec<u8>) -> ClientOptions {
    Client::new(Trust::Authorities(authorities)).name(NAME).resumes(false)
}

/// Returns the handshakes of these pools until now: done, and failed.
fn handshakes(pools: &[&Pool]) -> (u64, u64) {
    let counts = pools.iter().map(|pool| pool.status().counts);
    counts.fold((0, 0), |(done, failed), of| (done + of.handshakes_full + of.handshakes_resumed, failed + of.handshakes_failed))
}

impl Secure {
    pub(crate) fn start(tally: &Arc<Tally>, props: &Props, seed: u64) -> Result<Secure, Error> {
        let stopped = |error: sockdrawer_tls::Error| Error::Stopped { reason: error.to_string() };
        // As authorities they are told apart by their names.
        let made = (0..CERTIFICATES).map(|number| Identity::self_signed(&format!("certificate {number}"), &[NAME]));
        let made = made.collect::<Result<Vec<_>, _>>().map_err(stopped)?;
        let book = Arc::new(Book {
            certificates: made.iter().filter_map(|identity| identity.certificates().next().map(<[u8]>::to_vec)).collect(),
            current: AtomicUsize::new(0),
            shown: Default::default(),
            stale: AtomicU64::new(0),
        });
        let under =
            |identity: &Identity| Server::new([identity.clone()]).build().map(|tls| Dish::Plain.behaviour(props).layered(tls));
        let servers = made.iter().map(under).collect::<Result<Vec<Behaviour>, _>>().map_err(stopped)?;
        let config = Config::accept(servers[0].clone()).loops(2).workers(0);
        let server = Pool::start(config.listen(Address::Tcp((Ipv4Addr::LOCALHOST, 0).into())))?;
        let authorities: Vec<u8> = made.iter().flat_map(Identity::chain_pem).copied().collect();
        let told = book.clone();
        // A resumed handshake shows no certificate.
        let client = trusting(authorities.clone()).observe(move |done| {
            if let Ok(handshake) = done.outcome
                && handshake.kind == HandshakeKind::Full
            {
                told.shown(handshake.peer_certificates.first());
            }
        });
        let tls = Tls::new(client.build().map_err(stopped)?);
        let layer = |clients: Behaviour| clients.layered(tls.layer(&tally.witness(Group::Secure)));
        let clients = Beside::start(Group::Secure, &server, tally, seed, layer)?;
        // The server's end of a handshake is done a moment after the client's, and moves to no generation before.
        server.wait(PATIENCE, |status| status.counts.handshakes_full >= KEPT as u64);
        Ok(Secure {
            server,
            clients,
            servers,
            book,
            #[cfg(test)]
            authorities,
        })
    }

    /// Changes the certificate while handshakes are under way. All that begin afterwards see the new one.
    pub(crate) fn change(&self) -> Result<Duration, String> {
        self.clients.connect()?;
        let next = (self.book.current.load(Ordering::SeqCst) + 1) % CERTIFICATES;
        self.book.current.store(next, Ordering::SeqCst);
        let (mut wanted, begun) = (self.server.config(), Instant::now());
        wanted.behaviour = self.servers[next].clone();
        self.server.reconfigure(wanted).map_err(|error| error.to_string())?;
        let took = begun.elapsed();
        // Connections that are open keep their keys, and go on under the new generation.
        let stay = self.server.adopt(&Selector::All).moved;
        self.clients.ended()?;
        let before = self.book.shown[next].load(Ordering::SeqCst);
        self.clients.connect()?;
        self.clients.ended()?;
        let (_, failed) = handshakes(&[&self.server, &self.clients.churn, &self.clients.kept]);
        if failed > 0 {
            return Err(format!("{failed} handshakes failed"));
        }
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
        self.clients.stop();
        self.server.wait(2 * PATIENCE, |status| status.connections == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::beside::clients;
    use super::*;
    use crate::sets::stop_connecting;
    use crate::{Churn, Echo};

    /// Clients that connect, exchange and end all the time, beside those that come at each change.
    const LOAD: usize = 16;

    /// Returns the number of changes, in full by `ci/long certificates`.
    fn changes() -> u64 {
        std::env::var("SOCKDRAWER_TIMES").map_or(25, |times| times.parse().expect("a number"))
    }

    #[test]
    fn no_handshake_fails_and_no_connection_is_lost_through_changes_of_certificates() {
        let (tally, began) = (Arc::new(Tally::new()), Instant::now());
        let props = Props::new(false).expect("a file in memory");
        let secure = Secure::start(&tally, &props, 1).expect("it starts");
        let witness = tally.witness(Group::Secure);
        let tls = trusting(secure.authorities.clone()).build().expect("a client");
        let echo = Churn::new(Echo::new(7, 1, 3_000).ending_at_once(), witness.clone());
        let load = Behaviour::from(echo).layered(Tls::new(tls).layer(&witness));
        let load = clients(Group::Secure, &secure.server, load, LOAD, None).expect("they start");
        for number in 1..=changes() {
            secure.change().unwrap_or_else(|why| panic!("change {number}: {why}: {:?}", tally.failures()));
        }
        stop_connecting(&load);
        assert!(load.wait(4 * PATIENCE, |status| status.connections == 0), "{:?}", load.status());
        let kept = tally.exchanges(Group::Secure);
        secure.stop();
        let (seen, established, status) = (tally.total(), tally.stood(Group::Secure), secure.server.status());
        let (there, failed_there) = handshakes(&[&secure.server]);
        let (here, failed_here) = handshakes(&[&secure.clients.churn, &secure.clients.kept, &load]);
        let failed = failed_there + failed_here;
        let (accepted, closed) = (status.counts.accepted, status.counts.closed);
        println!("{} changes of the certificate in {:.0} s", changes(), began.elapsed().as_secs_f64());
        println!("the server: {accepted} accepted, {there} handshakes, {closed} closed, {} open", status.connections);
        println!("the clients: {established} established, {here} handshakes, {kept} exchanges");
        println!("{failed} handshakes failed, {} lost, {} failed, {} wrong bytes", seen.lost(), seen.failed(), seen.wrong_bytes);
        assert!(seen.is_clean() && failed == 0, "{seen:?}: {:?}", tally.failures());
        assert_eq!([there, here, accepted, closed], [established; 4]);
        assert!(established > changes() * 2 * CONNECTS, "there was load");
    }
}
