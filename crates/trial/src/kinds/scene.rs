//! The running parts of a trial: the server and its clients, all of them pools.

use super::absent::absent;
use super::certificate::Secure;
use super::kept::keep;
use super::kernel;
use super::kind::Kind;
use super::options::{Options, Sabotage};
use super::place::Place;
use super::report::Books;
use super::requests::Requests;
use super::served::{Dish, Props};
use super::targets::{Accounts, Targets};
use crate::Group;
use crate::Tally;
use crate::mix;
use crate::sets::stop_connecting;
use crate::tally::Ending;
use crate::{Churn, Echo, PATIENCE};
use sockdrawer::{Address, Behaviour, Config, Drain, Error, Model, Pool, connecting::Connecting};
use std::net::{SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// Connections of the set that the server asks to end.
const SECOND: usize = 16;
/// The number of bytes that a client of the churn sends, followed by its end, and reads back.
const SIZE: u64 = 16;
/// Connections that send requests.
const REQUESTS: usize = 8;

/// A server and its clients.
pub(crate) struct Scene {
    /// Server in force; another one after each upgrade.
    server: Mutex<Pool>,
    /// Place where a server meets the next.
    pub(crate) place: Place,
    pub(crate) churn: Pool,
    pub(crate) kept: Pool,
    pub(crate) second: Pool,
    pub(crate) requests: Pool,
    /// The server of the kind "certificate" and its clients.
    pub(crate) secure: Secure,
    /// The proxy of the kind "targets", its targets and its clients.
    pub(crate) targets: Targets,
    pub(crate) tally: Arc<Tally>,
    /// The address to which the churn connects.
    pub(crate) address: SocketAddrV4,
    pub(crate) props: Props,
    /// Kinds of change that the server's model does not have, each with the model's refusal.
    pub(crate) absent: Vec<(Kind, String)>,
    /// The listening socket that the sabotage `drop-queue` shares with the server.
    pub(crate) shared: Option<Arc<OwnedFd>>,
    /// The smallest limit of connections that is well above use.
    pub(crate) ample: usize,
    /// Connections that are always open, except for the moment after they were asked to end.
    pub(crate) staying: usize,
    passive_opens: Option<u64>,
}

impl Scene {
    pub(crate) fn start(options: &Options) -> Result<Scene, Error> {
        let passive_opens = kernel::passive_opens().filter(|_| options.private_network);
        let tally = Arc::new(Tally::new());
        let props = Props::new(options.sabotage == Some(Sabotage::LoseByte))
            .map_err(|source| Error::System { what: "make a file in memory for the trial's ledger", source })?;
        let shared = match options.sabotage {
            Some(Sabotage::DropQueue) => Some(listening_socket(options.listen)?),
            _ => None,
        };
        let staying = options.kept + SECOND + REQUESTS;
        let ample = 2 * (options.connections + staying) + 64;
        let mut config = Config::accept(Dish::Plain.behaviour(&props)).model(options.model).limit(ample);
        config = match options.model {
            Model::Loops | Model::Tasks => config.loops(2).workers(1),
            Model::Prefork => config.processes(2),
            _ => config,
        };
        config = match &shared {
            Some((socket, address)) => config.inherit(Address::Tcp((*address).into()), socket.clone()),
            None => config.listen(Address::Tcp(options.listen.into())),
        };
        let place = Place::new();
        let server = place.serve(config)?;
        let address = address_of(&server);
        let absent = all_absent(&server, shared.is_some())?;

        let client = |group: Group, behaviour: Behaviour, count: usize, total: Option<u64>| {
            let mut connecting = Connecting::to([Address::Tcp(address.into())]).keep(count).timeout(PATIENCE);
            (connecting.sources, connecting.total) = (group.sources(), total);
            Pool::start(Config::connect(behaviour, connecting).loops(1).workers(0).capacity(count))
        };
        let keep = |group: Group| keep(&tally, group, mix(options.seed ^ group.index() as u64));
        let kept = client(Group::Kept, keep(Group::Kept).into(), options.kept, Some(options.kept as u64))?;
        let second = client(Group::Second, keep(Group::Second).into(), SECOND, None)?;
        let seed = mix(options.seed ^ Group::Requests.index() as u64);
        let asking = Requests::new(tally.clone(), props.ledger.clone(), seed);
        let requests = client(Group::Requests, asking.into(), REQUESTS, None)?;
        // All connections are established before the first change; a failure to do so is counted by the set.
        server.wait(PATIENCE, |status| status.connections >= staying);
        let secure = Secure::start(&tally, &props, mix(options.seed ^ Group::Secure.index() as u64))?;
        let targets = Targets::start(&tally, &props, mix(options.seed ^ Group::Proxied.index() as u64))?;
        let churn = Churn::new(Echo::new(mix(options.seed), SIZE, SIZE).ending_at_once(), tally.witness(Group::Churn));
        let churn = client(Group::Churn, churn.into(), options.connections, None)?;
        let shared = shared.map(|(socket, _)| socket);
        let server = Mutex::new(server);
        Ok(Scene {
            server,
            place,
            churn,
            kept,
            second,
            requests,
            secure,
            targets,
            tally,
            address,
            props,
            absent,
            shared,
            ample,
            staying,
            passive_opens,
        })
    }

    /// Returns the server in force.
    pub(crate) fn server(&self) -> Pool {
        self.server.lock().expect("no holder panics").clone()
    }

    /// Puts another server in the place of the one in force.
    pub(crate) fn put_server(&self, server: Pool) {
        *self.server.lock().expect("no holder panics") = server;
    }

    /// Returns a set whose connections are asked to end, and its size.
    pub(crate) fn set(&self, group: Group) -> (&Pool, usize) {
        if group == Group::Requests { (&self.requests, REQUESTS) } else { (&self.second, SECOND) }
    }

    /// Returns the number of clients of the churn.
    pub(crate) fn all_churn(&self) -> u64 {
        self.churn.status().limit as u64
    }

    /// Waits until all connections of such a set are established again, as its clients see it.
    pub(crate) fn stands(&self, group: Group) -> bool {
        let (pool, size) = self.set(group);
        let ended = || self.tally.endings(group, Ending::Orderly) + self.tally.endings(group, Ending::Reset);
        pool.wait(PATIENCE, |_| self.tally.stood(group) >= ended() + size as u64)
    }

    /// Ends the clients in order, then the server, and returns the final counts.
    pub(crate) fn stop(self) -> Books {
        stop_connecting(&self.churn);
        // Each client ends by itself: a step that lasts longer than the patience is a failure.
        self.churn.wait(4 * PATIENCE, |status| status.connections == 0);
        self.churn.shutdown(Drain::within(PATIENCE));
        for group in [Group::Second, Group::Requests] {
            self.stands(group);
            stop_connecting(self.set(group).0);
        }
        for stays in [&self.kept, &self.second, &self.requests] {
            stays.shutdown(Drain::within(2 * PATIENCE));
        }
        self.secure.stop();
        self.targets.stop();
        let beside = [Group::Secure, Group::Proxied].map(|group| self.tally.stood(group)).iter().sum::<u64>();
        let (established, server) = (all_stood(&self.tally) - beside, self.server());
        server.wait(2 * PATIENCE, |status| status.connections == 0 && status.counts.accepted >= established);
        let (status, secure) = (server.status(), self.secure.server.status());
        let opened = self.passive_opens.zip(kernel::passive_opens()).map(|(before, after)| after - before);
        server.shutdown(Drain::within(PATIENCE));
        self.secure.server.shutdown(Drain::within(PATIENCE));
        let Accounts { accepted, made, open } = self.targets.end();
        // The proxy is the client of its targets.
        let beside = |group| if group == Group::Proxied { made } else { 0 };
        Books {
            accepted: status.counts.accepted + secure.counts.accepted + accepted,
            still_open: status.connections + secure.connections + open,
            queued: status.listeners.iter().chain(&secure.listeners).map(|listener| listener.queued as u64).sum(),
            established: Group::ALL.map(|group| (group, self.tally.stood(group) + beside(group))),
            passive_opens: opened,
        }
    }
}

/// Kinds of change that this server does not have, each with the reason.
fn all_absent(server: &Pool, is_shared: bool) -> Result<Vec<(Kind, String)>, Error> {
    let mut absent = absent(server)?;
    if is_shared {
        // The socket is bound, and not closed by the server.
        absent.extend([Kind::ReplaceAddress, Kind::Upgrade].map(|kind| (kind, "the sabotage brings its own socket".to_owned())));
    }
    Ok(absent)
}

fn all_stood(tally: &Tally) -> u64 {
    Group::ALL.into_iter().map(|group| tally.stood(group)).sum()
}

/// Opens a listening socket that the server will share. Its port is bound by number: the kernel releases a port that it chose itself when the socket
/// is shut down, and listening again would use another port.
fn listening_socket(address: SocketAddrV4) -> Result<(Arc<OwnedFd>, SocketAddrV4), Error> {
    let failed = |source| Error::Listen {
        address: Address::Tcp(address.into()),
        source,
        remedy: "the trial makes this socket itself: choose another address",
    };
    let port = TcpListener::bind(address).and_then(|chosen| chosen.local_addr()).map_err(failed)?.port();
    let real = SocketAddrV4::new(*address.ip(), port);
    let listener = TcpListener::bind(real).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok((Arc::new(listener.into()), real))
}

fn address_of(server: &Pool) -> SocketAddrV4 {
    match server.addresses().first() {
        Some(Address::Tcp(SocketAddr::V4(address))) => *address,
        other => unreachable!("the server listens on the IPv4 address it was given, not on {other:?}"),
    }
}
