//! Trials of a service whose changes are closures.

mod report;
#[cfg(test)]
mod tests;

pub use report::{ChangeReport, Report};

use crate::deliveries::Delivered;
use crate::exchange::{Echo, Exchange, Pairs};
use crate::random::{Random, mix};
use crate::script::{Broadcast, Script, Scripted};
use crate::sets::{Clients, Plan};
use crate::tally::{Seen, Tally};
use crate::tls::Tls;
use sockdrawer::observe::{Event, Observer};
use sockdrawer::{Address, Behaviour, Config, Drain, Error, IntoBehaviour, Model, Pool, Selector};
use sockdrawer_websocket::Carrier;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Connects that end under each change before the next change begins.
const CONNECTS_PER_CHANGE: u64 = 20;
/// The timeout of these connects. If the service is slower, the report says so.
const CONNECTS_WITHIN: Duration = Duration::from_secs(2);
/// The timeout of the server's end, after its clients have ended.
const END_WITHIN: Duration = Duration::from_secs(2);

type Applied = Result<(), String>;

/// A change to a running pool, with a name for the report.
pub struct Change {
    name: String,
    apply: Box<dyn FnMut(&Pool) -> Applied>,
    may_lose: u64,
}

impl Change {
    /// Creates a change. `apply` is called once per round. Of its result only the error is used; a panic in it ends the trial.
    pub fn new<T, E: fmt::Display>(name: impl Into<String>, mut apply: impl FnMut(&Pool) -> Result<T, E> + 'static) -> Change {
        let apply = move |pool: &Pool| apply(pool).map(drop).map_err(|error| error.to_string());
        Change { name: name.into(), apply: Box::new(apply), may_lose: 0 }
    }

    /// Allows this number of clients to lose their connection, or to fail to connect, each time that the change is applied: as where the
    /// backend of a proxy dies under them.
    #[must_use]
    pub fn may_lose(self, clients: u64) -> Change {
        Change { may_lose: clients, ..self }
    }

    /// Creates a change to a new service, which all connections adopt: it fails if one stays with the old service.
    pub fn adopt<B: IntoBehaviour>(name: impl Into<String>, mut service: impl FnMut() -> B + 'static) -> Change {
        Change::new(name, move |pool| {
            pool.reconfigure(pool.config().behaviour(service())).map_err(|error| error.to_string())?;
            let adopted = pool.adopt(&Selector::All);
            if adopted.stayed + adopted.unasked == 0 { Ok(()) } else { Err(format!("connections stay: {:?}", adopted.reasons)) }
        })
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").field("name", &self.name).finish_non_exhaustive()
    }
}

type Starts = Box<dyn FnOnce(&Plan, &Arc<Tally>) -> Result<Clients, Error>>;
type Configures = Box<dyn FnOnce(Config) -> Config>;

/// A trial before its run: see [`trial()`].
#[must_use = "a trial does nothing until it is run"]
pub struct Trial {
    service: Behaviour,
    changes: Vec<Change>,
    connections: usize,
    kept: usize,
    rounds: usize,
    seed: u64,
    configure: Vec<Configures>,
    clients: Option<Starts>,
    tls: Option<Tls>,
    websocket: Option<Carrier>,
    broadcast: Option<Broadcast>,
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trial").field("changes", &self.changes).field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// Creates a trial of `service`: 8 clients that come and go, 16 that stay, and every change once in each of 10 rounds, in random order. The clients
/// send bytes and expect them back, unless another [`Trial::exchange`] is set. After each change the trial waits for 20 connects, and for an answer
/// on each connection that stays. See [the crate](crate) for an example.
pub fn trial(service: impl IntoBehaviour, changes: Vec<Change>) -> Trial {
    Trial {
        service: service.into_behaviour(),
        changes,
        connections: 8,
        kept: 16,
        rounds: 10,
        seed: 1,
        configure: Vec::new(),
        clients: None,
        tls: None,
        websocket: None,
        broadcast: None,
    }
}

impl Trial {
    /// Sets the number of clients that connect, exchange and end all the time; at least one.
    pub fn clients(self, connections: usize) -> Trial {
        Trial { connections: connections.max(1), ..self }
    }

    /// Sets the number of connections that exchange from the first to the last change; at least one.
    pub fn kept(self, kept: usize) -> Trial {
        Trial { kept: kept.max(1), ..self }
    }

    /// Sets how often each change is applied.
    pub fn rounds(self, rounds: usize) -> Trial {
        Trial { rounds, ..self }
    }

    /// Sets the seed of the order of changes and of the clients' bytes.
    pub fn seed(self, seed: u64) -> Trial {
        Trial { seed, ..self }
    }

    /// Sets the model that runs the connections.
    pub fn model(self, model: Model) -> Trial {
        self.configure(move |config| config.model(model))
    }

    /// Changes any other part of the pool's first configuration. The pool listens on a free port of 127.0.0.1; the clients connect to
    /// the first address.
    pub fn configure(mut self, change: impl FnOnce(Config) -> Config + 'static) -> Trial {
        self.configure.push(Box::new(change));
        self
    }

    /// Sets the requests of the clients and the whole answers to them: `pair` is called with the number of the request on its connection,
    /// from 0 on. A client that comes and goes asks once.
    ///
    /// ```
    /// use sockdrawer_trial::{Change, trial};
    /// # use sockdrawer::{Context, Input, Peer, Protocol, Service, Step};
    /// # struct Pong;
    /// # impl Service for Pong {
    /// #     type Protocol = Pong;
    /// #     fn open(&self, _peer: &Peer) -> Pong { Pong }
    /// # }
    /// # impl Protocol for Pong {
    /// #     fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
    /// #         while input.bytes().len() >= 4 {
    /// #             input.take(4);
    /// #             cx.send(b"Pong");
    /// #         }
    /// #         Step::Continue
    /// #     }
    /// # }
    /// let limit = Change::new("limit", |pool| pool.reconfigure(pool.config().limit(1000)));
    /// let ping = |_| (b"Ping".to_vec(), b"Pong".to_vec());
    /// trial(Pong, vec![limit]).rounds(1).exchange(ping).run()?.assert_nothing_lost();
    /// # Ok::<(), sockdrawer::Error>(())
    /// ```
    pub fn exchange<F>(self, pair: F) -> Trial
    where
        F: Fn(u64) -> (Vec<u8>, Vec<u8>) + Clone + Send + Sync + 'static,
    {
        self.exchanges(Pairs::new(pair.clone()), Pairs::new(pair))
    }

    /// Sets exchanges of any form: `churn` for clients that come and go, `kept` for those that stay.
    pub fn exchanges<E: Exchange>(mut self, churn: E, kept: E) -> Trial {
        self.clients = Some(Box::new(move |plan, tally| Clients::start(plan, churn, kept, tally)));
        self
    }

    /// Sets exchanges that are told by text, as in `"> PING {n}\\n\n< PONG {n}\\n"`: each client that comes and goes asks all of them, those that
    /// stay ask one after the other.
    pub fn script(self, script: Script) -> Trial {
        let kept = Scripted::new(script);
        self.exchanges(kept.whole(), kept)
    }

    /// Lets the clients speak TLS. The service has its own: `Layer::new(server, service)`.
    pub fn tls(self, tls: Tls) -> Trial {
        Trial { tls: Some(tls), ..self }
    }

    /// Lets the clients speak WebSocket, which carries their exchanges. The service has its own: `Layer::new(Carrier::server(), service)`, or messages.
    pub fn websocket(self, carrier: Carrier) -> Trial {
        Trial { websocket: Some(carrier), ..self }
    }

    /// Lets the connections that stay hear each other, in the place of their exchanges; at least two of them.
    pub fn broadcast(self, broadcast: Broadcast) -> Trial {
        Trial { broadcast: Some(broadcast), ..self }
    }

    /// Starts the service and its clients, applies the changes, and ends all of them in order.
    ///
    /// # Errors
    /// When the pool or its clients cannot start. Later failures are in the report.
    pub fn run(self) -> Result<Report, Error> {
        let panic = Arc::new(Mutex::new(None));
        let config = Config::accept(self.service).listen(Address::Tcp((Ipv4Addr::LOCALHOST, 0).into())).observer(first(&panic));
        let server = Pool::start(self.configure.into_iter().fold(config, |config, change| change(config)))?;
        let target = server.addresses().into_iter().next().expect("it listens where it was told to");
        let kept = if self.broadcast.is_some() { self.kept.max(2) } else { self.kept };
        let (tls, websocket, broadcast) = (self.tls, self.websocket, self.broadcast);
        let plan = Plan { target, connections: self.connections, kept, seed: self.seed, tls, websocket, broadcast };
        let tally = Arc::new(Tally::new());
        let start = self.clients.unwrap_or_else(|| Box::new(echo));
        let clients = start(&plan, &tally)?;
        clients.await_connects(CONNECTS_PER_CHANGE, CONNECTS_WITHIN);
        let (changes, before, delivered, odd) = apply(self.changes, self.rounds, self.seed, &server, &clients, &tally);
        let total = changes.iter().fold(before, |total, change| total.plus(&change.seen));
        server.shutdown(Drain::within(END_WITHIN));
        let panic = panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(Report { seed: self.seed, total, changes, failures: tally.failures(), odd, panic, delivered })
    }
}

/// Returns an observer that keeps the text of the first panic.
fn first(panic: &Arc<Mutex<Option<String>>>) -> impl Observer {
    let panic = panic.clone();
    move |event: &Event| {
        if let Event::ConnectionPanicked { message, .. }
        | Event::JobPanicked { message }
        | Event::AdmissionPanicked { message }
        | Event::ServicePanicked { message } = event
        {
            panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| message.clone());
        }
    }
}

fn echo(plan: &Plan, tally: &Arc<Tally>) -> Result<Clients, Error> {
    // Well below the smallest high-water mark that makes sense.
    let of = |set: u64| Echo::new(mix(plan.seed ^ set), 16, 2048);
    Clients::start(plan, of(1), of(2), tally)
}

/// Applies the changes, then ends the clients. Returns the report of each change, the counts before the first change, the messages of each
/// sender, and the first unexpected answer.
fn apply(
    mut changes: Vec<Change>,
    rounds: usize,
    seed: u64,
    server: &Pool,
    clients: &Clients,
    tally: &Tally,
) -> (Vec<ChangeReport>, Seen, Vec<Delivered>, Option<String>) {
    let report = |change: &Change| ChangeReport {
        name: change.name.clone(),
        times: 0,
        failed: 0,
        error: None,
        longest: Duration::ZERO,
        may_lose: change.may_lose,
        seen: Seen::default(),
    };
    let mut reports: Vec<ChangeReport> = changes.iter().map(report).collect();
    let (mut random, mut before, mut running) = (Random::new(seed), Seen::default(), None);
    let mut end = |reports: &mut Vec<ChangeReport>, running: Option<usize>| {
        let seen = tally.next();
        let place = running.map_or(&mut before, |index: usize| &mut reports[index].seen);
        *place = place.plus(&seen);
    };
    let mut times: Vec<(Instant, String)> = Vec::new();
    for _ in 0..rounds {
        let mut order: Vec<usize> = (0..changes.len()).collect();
        random.shuffle(&mut order);
        for index in order {
            end(&mut reports, running.replace(index));
            let begun = Instant::now();
            times.push((begun, changes[index].name.clone()));
            let applied = (changes[index].apply)(server);
            let report = &mut reports[index];
            report.longest = report.longest.max(begun.elapsed());
            report.times += 1;
            if let Err(why) = applied {
                report.failed += 1;
                report.error.get_or_insert(why);
            }
            clients.await_connects(CONNECTS_PER_CHANGE, CONNECTS_WITHIN);
            clients.await_answers(CONNECTS_WITHIN);
        }
    }
    let delivered = clients.settle();
    clients.stop();
    end(&mut reports, running);
    let odd = tally.unexpected().map(|(odd, asked)| match times.iter().rfind(|(begun, _)| *begun <= asked) {
        Some((_, name)) => format!("{odd} (after the change `{name}`)"),
        None => format!("{odd} (before the first change)"),
    });
    (reports, before, delivered, odd)
}
