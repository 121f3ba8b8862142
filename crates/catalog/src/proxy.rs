//! `proxy`: each client gets a connection to one of several targets, and the two are joined: what either sends goes to the other, through a buffer of the loop.
//! A pair goes on through reloads, and moves to a new build whole.

mod hello;
mod known;
mod queue;
mod score;
mod target;
mod targets;

pub use hello::{Begun, ClientHello};
pub use known::{Known, TargetEvent, TargetStatus};
pub use queue::Waiting;
pub use score::Balance;
pub use target::Target;
pub use targets::{NoPlace, Place, Targets};

use crate::{WrongOptions, recipe};
use sockdrawer::connecting::ConnectFailure;
use sockdrawer::layer::proxy_header::{Header, Version};
use sockdrawer::{
    Address, CannotRestore, CannotSave, Carried, Closed, Context, Handle, Input, Note, Peer, Protocol, Recipe, Report, Saved,
    Saver, Service, Side, State, Step,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The errno of a connect that found the pool at its limit, which is no fault of the target.
const EAGAIN: i32 = rustix::io::Errno::AGAIN.raw_os_error();

/// The errno of a connection that its peer has closed.
const PIPE: i32 = rustix::io::Errno::PIPE.raw_os_error();

/// The errno of a handshake that failed.
const EPROTO: i32 = rustix::io::Errno::PROTO.raw_os_error();

/// Returns why a target could not be connected to, for people.
#[must_use]
pub fn why_failed(errno: i32) -> String {
    match errno {
        EPROTO => "the handshake of TLS failed: it may speak no TLS, be slow, or not be trusted; the log says which".to_owned(),
        errno => std::io::Error::from_raw_os_error(errno).to_string(),
    }
}

/// The time in which a client has to say by TLS where it wants to go: that of a handshake.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// Settings of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyOptions {
    /// The targets, one or more.
    pub targets: Vec<Target>,
    /// The way in which clients are spread over them.
    pub balance: Balance,
    /// Time in which a target has to accept.
    pub connect_timeout: Duration,
    /// Targets that are tried for a client before it is reset.
    pub tries: usize,
    /// Time that a client waits for a place where each target has as many clients as its limit.
    pub queue_timeout: Duration,
    /// The version of the PROXY header by which targets are told of the client.
    pub header: Option<Version>,
    /// Reports the end of each pair, by [`Context::report`]: target, time, bytes, and by whom it ended.
    pub log: bool,
}

impl ProxyOptions {
    /// Creates the options of a proxy to these targets: connects within 5 s, two tries, 5 s in the queue, no header, no report of ends.
    #[must_use]
    pub fn to(targets: Vec<Target>) -> ProxyOptions {
        let (connect_timeout, queue_timeout) = (Duration::from_secs(5), Duration::from_secs(5));
        ProxyOptions { targets, balance: Balance::default(), connect_timeout, tries: 2, queue_timeout, header: None, log: false }
    }

    fn words(&self) -> String {
        let header = self.header.map_or("none".to_owned(), |version| version.to_string());
        let targets: Vec<String> = self.targets.iter().map(Target::to_string).collect();
        let (balance, connect_timeout, tries) = (self.balance, self.connect_timeout.as_nanos(), self.tries);
        let (queue_timeout, log) = (self.queue_timeout.as_nanos(), self.log);
        format!("{balance} {connect_timeout} {tries} {queue_timeout} {header} {log} {}", targets.join(" "))
    }

    fn from_words(words: &str) -> Option<ProxyOptions> {
        let mut words = words.split(' ');
        let balance = words.next()?.parse().ok()?;
        let connect_timeout = Duration::from_nanos(words.next()?.parse().ok()?);
        let tries = words.next()?.parse().ok()?;
        let queue_timeout = Duration::from_nanos(words.next()?.parse().ok()?);
        let header = match words.next()? {
            "none" => None,
            version => Some(version.parse().ok()?),
        };
        let log = words.next()?.parse().ok()?;
        let targets = words.map(|word| word.parse().ok()).collect::<Option<Vec<Target>>>()?;
        Some(ProxyOptions { targets, balance, connect_timeout, tries, queue_timeout, header, log })
    }
}

/// The proxy.
#[derive(Clone, Debug)]
pub struct Proxy(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    options: ProxyOptions,
    targets: Targets,
}

impl Proxy {
    /// Name of its recipe.
    pub const NAME: &str = "proxy";

    /// Creates a proxy whose targets share what is `known` of their addresses.
    #[must_use]
    pub fn new(options: ProxyOptions, known: Known) -> Proxy {
        let targets = Targets::new(options.targets.clone(), options.balance, known);
        Proxy(Arc::new(Parts { options, targets }))
    }

    /// Builds it from the options of its recipe.
    ///
    /// # Errors
    /// They are not of that form.
    pub fn from_options(options: &[u8]) -> Result<Proxy, WrongOptions> {
        let words = std::str::from_utf8(options).ok().and_then(ProxyOptions::from_words);
        words.map(|options| Proxy::new(options, Known::default())).ok_or_else(|| WrongOptions::new(Proxy::NAME, options))
    }

    /// Returns the targets.
    #[must_use]
    pub fn targets(&self) -> &Targets {
        &self.0.targets
    }
}

impl Service for Proxy {
    type Protocol = PairSide;

    fn open(&self, peer: &Peer) -> PairSide {
        if peer.side() == Side::Connected {
            return PairSide::Target;
        }
        PairSide::Unjoined(Box::new(Unjoined::new(self, peer, None)))
    }

    fn state(&self) -> State {
        State::of(Proxy::NAME, 3)
    }

    fn restore(&self, peer: &Peer, from: &mut Saved<'_>) -> Result<PairSide, CannotRestore> {
        let address = String::from_utf8_lossy(from.bytes()?).into_owned();
        if peer.side() == Side::Connected {
            return Ok(PairSide::Target);
        }
        let (lasted, process) = (Duration::from_nanos(from.u64()?), from.u64()?);
        let since = from.now().checked_sub(lasted);
        if address.is_empty() {
            let waits_since = since.filter(|_| !lasted.is_zero());
            return Ok(PairSide::Unjoined(Box::new(Unjoined::new(self, peer, waits_since))));
        }
        let address = address.parse().map_err(|_| CannotRestore::because("the address of its target is none"))?;
        let (place, log) = (
            self.0.targets.place_of(&address, process != u64::from(std::process::id())),
            PairLog { client: peer.remote(), since },
        );
        Ok(PairSide::Joined(Joined { place, log: self.0.options.log.then(|| Box::new(log)) }))
    }

    fn recipe(&self) -> Option<Recipe> {
        recipe(Proxy::NAME, self.0.options.words())
    }
}

/// A side of a pair.
#[derive(Debug)]
pub enum PairSide {
    /// A client that has no connection to a target yet.
    Unjoined(Box<Unjoined>),
    /// A client that is joined with the connection to its target.
    Joined(Joined),
    /// The connection to a target.
    Target,
}

/// A client that is joined with the connection to its target.
#[derive(Debug)]
pub struct Joined {
    place: Place,
    log: Option<Box<PairLog>>,
}

/// A pair whose end is reported. By then nothing knows the client's address.
#[derive(Debug)]
struct PairLog {
    client: Option<SocketAddr>,
    /// The time at which the two were joined; None where the clock does not go back so far.
    since: Option<Instant>,
}

impl PairLog {
    fn lasted(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn ended(&self, target: &Address, why: Closed, cx: &mut Context<'_>) {
        let Carried { received, sent, ended_first, .. } = cx.carried().unwrap_or_default();
        let side = match ended_first {
            Some(true) => "the client",
            Some(false) => "the target",
            None => "either side",
        };
        let (by, how) = match why {
            Closed::Orderly => (side, "in order".to_owned()),
            // It does not take any more what it was sent.
            Closed::Error(PIPE) => (side, "which was gone".to_owned()),
            Closed::Error(errno) => (side, std::io::Error::from_raw_os_error(errno).to_string()),
            Closed::Aborted if ended_first == Some(true) => (side, "by TLS that is not whole, or wrong".to_owned()),
            Closed::Aborted if ended_first == Some(false) => (side, "by a reset, or by TLS that is not whole".to_owned()),
            Closed::Idle => ("this proxy", "because it was idle".to_owned()),
            Closed::Aborted | Closed::Purged | Closed::Killed => ("this proxy", "which cut it off".to_owned()),
            other => ("this proxy", format!("{other:?}").to_lowercase()),
        };
        let client = self.client.map_or("a client".to_owned(), |client| client.to_string());
        let millis = u64::try_from(self.lasted(cx.now()).as_millis()).unwrap_or(u64::MAX);
        let text =
            format!("{client} with {target}: ended by {by}, {how}, after {millis} ms, {received} bytes there, {sent} back");
        let report = Report::new(text)
            .kind("PairEnded")
            .record()
            .field("client", client)
            .field("target", target.to_string())
            .field("by", by);
        cx.report(report.field("how", how).field("millis", millis).field("received", received).field("sent", sent));
    }
}

/// A client that has no connection to a target yet.
#[derive(Debug)]
pub struct Unjoined {
    proxy: Proxy,
    peer: Option<SocketAddr>,
    /// The address at which it came in.
    at: Option<SocketAddr>,
    /// The targets that are not for it, and those that were tried.
    not: Vec<usize>,
    tries: usize,
    place: Option<Place>,
    /// Turn of the client, while no target has a place.
    waiting: Option<Waiting>,
    /// The time at which it began to wait, also in the process before this one.
    waits_since: Option<Instant>,
    /// Moment at which the connect to it began.
    since: Option<Instant>,
    /// Reason why it gets no target.
    failed: Option<&'static str>,
}

/// Note to a client that waits for a place.
struct YourTurn;

impl Unjoined {
    fn new(proxy: &Proxy, peer: &Peer, waits_since: Option<Instant>) -> Unjoined {
        let at = peer.listener().and_then(|listener| match listener {
            Address::Tcp(at) => Some(*at),
            _ => None,
        });
        let (proxy, peer) = (proxy.clone(), peer.remote());
        Unjoined {
            proxy,
            peer,
            at,
            not: Vec::new(),
            tries: 0,
            place: None,
            waiting: None,
            waits_since,
            since: None,
            failed: None,
        }
    }

    fn begin(&mut self, cx: &mut Context<'_>) -> Step {
        if self.proxy.0.targets.ask_clients() {
            cx.set_timer(HELLO_WITHIN);
            return Step::Continue;
        }
        cx.pause();
        self.connect(cx)
    }

    /// Connects to a target for what the client asks for, once that is known. Its bytes stay where they are.
    fn ask(&mut self, first: &[u8], cx: &mut Context<'_>) -> Step {
        let (asks, is_tls) = match Begun::read(first) {
            Begun::Partly => return Step::Continue,
            Begun::Hello(asks) => (asks, true),
            Begun::Other => (ClientHello::default(), false),
        };
        cx.clear_timer();
        cx.pause();
        let targets = &self.proxy.0.targets;
        self.not = targets.elsewhere(&asks);
        if self.not.len() < targets.len() {
            return self.connect(cx);
        }
        if !is_tls {
            cx.report("no ClientHello of TLS came, and each target has a name: no target is for this client");
            return Step::Abort;
        }
        let name = asks.name.map_or("no name".to_owned(), |name| format!("`{}`", name.escape_default()));
        cx.report(format!("no target is for a client that asks for {name}"));
        cx.send(&hello::UNKNOWN_NAME);
        Step::Close
    }

    /// Resets the client. Its last call says why: this one may say of a target that it failed.
    fn fail(&mut self, why: &'static str) -> Step {
        self.failed = Some(why);
        Step::Abort
    }

    /// Connects to the next target, or resets the client.
    fn connect(&mut self, cx: &mut Context<'_>) -> Step {
        self.place = None;
        let Parts { options, targets } = &*self.proxy.0;
        if self.tries >= options.tries {
            return self.fail("no target accepts a client, of those that were tried for it");
        }
        match targets.take(self.peer.map(|peer| peer.ip()), &self.not, cx.now()) {
            Ok(place) => self.connect_to(place, cx),
            Err(NoPlace::Full) => {
                let (itself, since) = (cx.handle(), *self.waits_since.get_or_insert(cx.now()));
                // Where the note is lost, the timer finds the place.
                self.waiting = Some(targets.wait(&self.not, since, move || drop(itself.notify(Note::value(YourTurn)))));
                cx.set_timer(options.queue_timeout.saturating_sub(cx.now().saturating_duration_since(since)));
                Step::Continue
            }
            Err(NoPlace::NoTarget) if self.tries == 0 => self.fail("each target has weight=0: new clients are reset"),
            Err(NoPlace::NoTarget) => self.fail("no target accepts a client"),
        }
    }

    fn connect_to(&mut self, place: Place, cx: &mut Context<'_>) -> Step {
        let ProxyOptions { connect_timeout, header, .. } = self.proxy.0.options;
        let header = match (header, self.peer, self.at) {
            (Some(version), Some(peer), Some(at)) => Header::proxied(peer, at).bytes(version),
            _ => Vec::new(),
        };
        cx.connect_with(place.address(), connect_timeout, header);
        self.not.extend(place.number);
        self.tries += 1;
        (self.since, self.waits_since) = (Some(cx.now()), None);
        self.place = Some(place);
        Step::Continue
    }

    /// Returns true while the client has not said where it wants to go.
    fn asks(&self) -> bool {
        self.place.is_none() && self.waiting.is_none()
    }

    /// Connects, if a place came free.
    fn turn(&mut self, cx: &mut Context<'_>) -> Option<Step> {
        let place = self.waiting.as_ref()?.place(cx.now())?;
        self.waiting = None;
        cx.clear_timer();
        Some(self.connect_to(place, cx))
    }

    fn connected(&mut self, cx: &mut Context<'_>) {
        let Some(place) = &self.place else { return };
        let took = self.since.map_or(Duration::ZERO, |since| cx.now().saturating_duration_since(since));
        if place.succeeded(cx.now(), took) {
            let report = Report::new(format!("target {} is back", place.address()));
            cx.report(report.kind("TargetBack").field("target", place.address().to_string()));
        }
        cx.tag(&place.address().to_string());
    }

    fn not_connected(&mut self, failure: &ConnectFailure, cx: &mut Context<'_>) -> Step {
        if failure.errno == EAGAIN {
            return self.fail("no room for the connection to a target: the pool's limit counts both sides of a pair, raise it");
        }
        if let Some(place) = &self.place
            && let Some(pause) = place.failed(cx.now(), failure.errno)
        {
            let why = why_failed(failure.errno);
            let text = format!("target {}: {why}; left out for {}", place.address(), crate::time::format(pause));
            cx.report(Report::new(text).kind("TargetFailed").field("target", place.address().to_string()).field("why", why));
        }
        self.connect(cx)
    }
}

impl PairSide {
    fn join(&mut self, made: Handle, cx: &Context<'_>) -> Step {
        if let PairSide::Unjoined(client) = self
            && let Some(place) = client.place.take()
        {
            let log = || Box::new(PairLog { client: client.peer, since: Some(cx.now()) });
            *self = PairSide::Joined(Joined { place, log: client.proxy.0.options.log.then(log) });
        }
        Step::Relay(made)
    }
}

impl Protocol for PairSide {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        if let PairSide::Unjoined(client) = self {
            return client.begin(cx);
        }
        cx.pause();
        Step::Continue
    }

    fn connected(&mut self, result: Result<Handle, ConnectFailure>, cx: &mut Context<'_>) -> Step {
        let PairSide::Unjoined(client) = self else { return Step::Continue };
        match result {
            Ok(made) => {
                client.connected(cx);
                self.join(made, cx)
            }
            Err(failure) => client.not_connected(&failure, cx),
        }
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if let PairSide::Unjoined(client) = self { client.ask(input.bytes(), cx) } else { Step::Continue }
    }

    /// Leaves the end to the relay, which passes it on, also where it came before the pair was joined. A client that has not said where it wants to
    /// go says it no more.
    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        match self {
            PairSide::Unjoined(client) if client.asks() => Step::Abort,
            _ => Step::Continue,
        }
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        let PairSide::Unjoined(client) = self else { return Step::Continue };
        if client.asks() {
            cx.report("a client has not said in time by TLS where it wants to go");
            return Step::Abort;
        }
        match client.waiting.take().and_then(|waiting| waiting.time_out(cx.now())) {
            Some(place) => client.connect_to(place, cx),
            None => client.fail("each target has as many clients as its limit, and no place came free in time"),
        }
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        match (self, note.take::<YourTurn>()) {
            (PairSide::Unjoined(client), Ok(_)) => client.turn(cx).unwrap_or(Step::Continue),
            _ => Step::Continue,
        }
    }

    /// Begins again, as what a client asks for may have other targets now; but for the time that it has waited.
    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        let client = match self {
            PairSide::Unjoined(client) => client,
            PairSide::Joined(Joined { place, .. }) => {
                place.arrived();
                return Step::Continue;
            }
            PairSide::Target => return Step::Continue,
        };
        if client.proxy.0.targets.ask_clients() {
            if client.waits_since.is_some() {
                cx.set_timer(HELLO_WITHIN);
            }
            cx.resume();
            return Step::Continue;
        }
        cx.clear_timer();
        cx.pause();
        client.connect(cx)
    }

    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        if let PairSide::Unjoined(client) = self
            && let Some(failed) = client.failed
        {
            cx.report(Report::new(failed).kind("PairFailed"));
        }
        let PairSide::Joined(Joined { place, log }) = self else { return };
        if why == Closed::Adopted {
            return place.moved();
        }
        let carried = cx.carried().unwrap_or_default();
        place.carried(carried.received, carried.sent);
        log.iter().for_each(|log| log.ended(place.address(), why, cx));
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        let (address, since) = match self {
            PairSide::Unjoined(client) if client.place.is_some() => {
                return Err(CannotSave::because("it is joined with its target first"));
            }
            PairSide::Unjoined(client) => (String::new(), client.waits_since),
            PairSide::Joined(Joined { place, log }) => (place.address().to_string(), log.as_ref().and_then(|log| log.since)),
            PairSide::Target => {
                to.bytes(b"");
                return Ok(());
            }
        };
        let lasted = since.map_or(Duration::ZERO, |since| to.now().saturating_duration_since(since));
        to.bytes(address.as_bytes());
        to.u64(u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX));
        to.u64(std::process::id().into());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
