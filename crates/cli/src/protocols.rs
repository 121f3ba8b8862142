//! Protocols that can be served: those of the catalog, with their settings.

use crate::{checks, names};
use sockdrawer::{Address, Behaviour, Config, Field, Model};
use sockdrawer_catalog::acks::{AckPattern, Acks};
use sockdrawer_catalog::proxy::{Balance, Known, Proxy, ProxyOptions, Target, TargetEvent, TargetStatus, why_failed};
use sockdrawer_catalog::{echo::Echo, hello::Hello, http, http::Http, ping::Ping, time};
use sockdrawer_operate::{
    Counter, Document, Gauge, Histogram, Kind, MetricFamily, PoolDocument, Protocol, Setting, Text, Values,
};
use sockdrawer_program::executable;
use sockdrawer_websocket as websocket;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Time in which a connection of http has to bring its request, unless told otherwise: a browser that connects ahead has as long elsewhere.
const HTTP_IDLE: Duration = Duration::from_secs(60);
const ACK: Text = Text { form: "HOW", check: |text| text.parse::<AckPattern>().map(drop).map_err(|error| error.to_string()) };
const TARGET: Text =
    Text { form: "ADDR[,weight=N][,limit=N][,backup][,sni=NAME][,alpn=NAME]", check: |text| text.parse::<Target>().map(drop) };
const WORDS: Text = Text { form: "PROGRAM", check: |_| Ok(()) };
pub(crate) const PROGRAM: Setting =
    Setting::new("program", Kind::List(WORDS), "exec: the program to run for each connection, and its arguments").behind_dashes();

/// The settings of single protocols.
const SETTINGS: [Setting; 13] = [
    Setting::new("slow-duration", Kind::Time, "http: how long the slow answer takes").unless_given("30ms"),
    Setting::new("ack", Kind::Text(ACK), "acks: when messages are acknowledged: reply, read, timer=5ms, async=20,5ms or every=K")
        .unless_given("read"),
    Setting::new("publish", Kind::Switch, "ws: each message goes to all clients, and not back alone").unless_given("false"),
    Setting::new("max-message", Kind::Size, "ws: the longest message that is taken, fragments joined").unless_given("1m"),
    Setting::new("deflate", Kind::Switch, "ws: compress messages for clients that offer it (permessage-deflate)")
        .unless_given("false"),
    Setting::new(
        "to",
        Kind::List(TARGET),
        "proxy: a target; may be given several times. At its limit clients wait for a place; a backup gets them while all others are left out; with sni or alpn it is for clients whose TLS asks for one of these names",
    ),
    Setting::new(
        "balance",
        Kind::Choice(&Balance::WORDS),
        "proxy: the target with the fewest clients, all in turn, or by the peer's IP address; each by weight",
    )
    .unless_given("least"),
    Setting::new("connect-timeout", Kind::PositiveTime, "proxy: how long a target has to accept").unless_given("5s"),
    Setting::new("tries", Kind::Count(1), "proxy: how many targets are tried for a client before it is reset").unless_given("2"),
    Setting::new(
        "queue-timeout",
        Kind::PositiveTime,
        "proxy: how long a client waits for a place, where each target has as many clients as its limit",
    )
    .unless_given("5s"),
    Setting::new(
        "proxy-protocol-out",
        Kind::Choice(&["v1", "v2"]),
        "proxy: tell targets who the client is, by a PROXY header of this version",
    )
    .unless_given("none"),
    Setting::new("log-pairs", Kind::Switch, "proxy: report the end of each pair: target, time, bytes, and how it ended")
        .unless_given("false"),
    PROGRAM,
];

/// Targets of this program: a reload keeps what is known of those that stay.
pub(crate) static TARGETS: LazyLock<Known> =
    LazyLock::new(|| Known::observed(|pool, target, event| TARGET_METRICS.count(pool, target, event)));
/// The metrics of targets, which are those of this process.
pub(crate) static TARGET_METRICS: LazyLock<TargetMetrics> = LazyLock::new(TargetMetrics::new);

/// Goes on with what the process before this one knows of targets. Gauges begin anew in each process.
pub(crate) fn take_targets_over(bytes: &[u8]) {
    TARGETS.take_over(bytes);
    for one in TARGETS.status(Instant::now()).iter().filter(|one| one.failures > 0) {
        TARGET_METRICS.left_out.at([&*one.pool, &one.address.to_string()]).set(1.0);
    }
}

/// The columns of the table of targets.
pub(crate) const TARGET_COLUMNS: [&str; 10] =
    ["pool", "target", "state", "weight", "clients", "limit", "waiting", "connects", "failed", "last_failure"];

/// Returns a row for each target of each pool of this process.
pub(crate) fn target_rows() -> Vec<Vec<Field>> {
    let row = |one: TargetStatus| {
        let check = checks::why_out(&one.pool, &one.address);
        let state = match (&one.target, one.left_out) {
            (None, _) => "removed".to_owned(),
            _ if check.is_some() => "check fails".to_owned(),
            (Some(target), _) if target.weight == 0 => "no new clients".to_owned(),
            (_, Some(left)) => format!("left out for {}", time::format(Duration::from_secs(left.as_secs().max(1)))),
            _ if one.failures > 0 => "tried next".to_owned(),
            (Some(target), _) if target.backup => "backup".to_owned(),
            _ => "in use".to_owned(),
        };
        let limit = one.target.as_ref().and_then(|target| target.limit).map_or("".into(), |limit| Field::Number(limit as u64));
        // A check that fails makes it 0 for now, whatever the configuration says.
        let weight = one.target.filter(|_| check.is_none()).map_or("".into(), |target| Field::Number(target.weight.into()));
        let error = check.or(one.last_error.map(why_failed)).unwrap_or_default();
        let [clients, waiting, connects, failed] =
            [one.open as u64, one.waiting as u64, one.connects, one.failed].map(Field::Number);
        let target = one.address.to_string();
        vec![one.pool.into(), target.into(), state.into(), weight, clients, limit, waiting, connects, failed, error.into()]
    };
    TARGETS.status(Instant::now()).into_iter().map(row).collect()
}

/// Metrics of each target of a proxy, by its pool and its address.
pub(crate) struct TargetMetrics {
    pub(crate) clients: MetricFamily<Gauge, 2>,
    pub(crate) waiting: MetricFamily<Gauge, 2>,
    pub(crate) timeouts: MetricFamily<Counter, 2>,
    pub(crate) limit: MetricFamily<Gauge, 2>,
    pub(crate) left_out: MetricFamily<Gauge, 2>,
    pub(crate) checks: MetricFamily<Counter, 3>,
    pub(crate) connects: MetricFamily<Counter, 3>,
    pub(crate) connect_time: MetricFamily<Histogram, 2>,
    pub(crate) bytes: MetricFamily<Counter, 3>,
}

impl TargetMetrics {
    fn new() -> TargetMetrics {
        TargetMetrics {
            clients: Gauge::family(
                "proxy_target_clients",
                "Clients that have a place at a target of a proxy.",
                ["pool", "target"],
            ),
            waiting: Gauge::family(
                "proxy_target_waiting",
                "Clients that wait for a place at a target that has as many as its limit; each perhaps at several.",
                ["pool", "target"],
            ),
            timeouts: Counter::family(
                "proxy_target_queue_timeouts",
                "Clients that waited for a place at a target and got none in time; each perhaps at several.",
                ["pool", "target"],
            ),
            limit: Gauge::family(
                "proxy_target_limit",
                "Clients that a target may have at once, of all pools together, where it has a limit; of each helper process under prefork.",
                ["pool", "target"],
            ),
            left_out: Gauge::family(
                "proxy_target_left_out",
                "1 for a target that is left out because connects to it, or checks of it, failed.",
                ["pool", "target"],
            ),
            checks: Counter::family(
                "proxy_target_checks",
                "Checks of a target, by their result: ok or failed.",
                ["pool", "target", "result"],
            ),
            connects: Counter::family(
                "proxy_target_connects",
                "Connects to a target, by their result: ok, or the error.",
                ["pool", "target", "result"],
            ),
            bytes: Counter::family(
                "proxy_target_bytes",
                "Bytes of clients' connections, by their direction: to or from the target; counted when a pair ends.",
                ["pool", "target", "direction"],
            ),
            connect_time: Histogram::family(
                "proxy_target_connect_duration_seconds",
                "How long a target took to accept.",
                ["pool", "target"],
            ),
        }
    }
}

impl TargetMetrics {
    /// Shows the limits that are in force.
    pub(crate) fn show_limits(&self) {
        for one in TARGETS.status(Instant::now()) {
            let labels = [&*one.pool, &one.address.to_string()];
            match one.target.and_then(|target| target.limit) {
                #[expect(clippy::cast_precision_loss, reason = "a gauge")]
                Some(limit) => self.limit.at(labels).set(limit as f64),
                None => self.limit.remove(labels),
            }
        }
    }

    fn count(&self, pool: &str, target: &Address, event: TargetEvent) {
        let target = &*target.to_string();
        match event {
            TargetEvent::Opened => self.clients.at([pool, target]).add(1.0),
            TargetEvent::Closed => self.clients.at([pool, target]).add(-1.0),
            TargetEvent::Waits => self.waiting.at([pool, target]).add(1.0),
            TargetEvent::WaitsNoMore => self.waiting.at([pool, target]).add(-1.0),
            TargetEvent::TimedOut => self.timeouts.at([pool, target]).add(1),
            TargetEvent::Connected(took) => {
                self.connects.at([pool, target, "ok"]).add(1);
                self.connect_time.at([pool, target]).observe(took);
                self.left_out.at([pool, target]).set(0.0);
            }
            TargetEvent::Failed(errno) => {
                self.connects.at([pool, target, &std::io::Error::from_raw_os_error(errno).to_string()]).add(1);
                self.left_out.at([pool, target]).set(1.0);
            }
            TargetEvent::Carried(to, from) => {
                self.bytes.at([pool, target, "to"]).add(to);
                self.bytes.at([pool, target, "from"]).add(from);
            }
            TargetEvent::Gone => {
                self.clients.remove([pool, target]);
                self.waiting.remove([pool, target]);
                self.limit.remove([pool, target]);
                self.left_out.remove([pool, target]);
            }
        }
    }
}

/// Returns the protocols that can be served.
pub(crate) fn protocols() -> [Protocol; 8] {
    let [
        slow_duration,
        ack,
        publish,
        max_message,
        deflate,
        to,
        balance,
        connect_timeout,
        tries,
        queue_timeout,
        header,
        log,
        program,
    ] = SETTINGS;
    let protocol = |protocol: names::Protocol, help, build: fn(&Values) -> Result<Config, String>| {
        Protocol::new(protocol.name(), help, build)
    };
    [
        protocol(names::Protocol::Echo, "every byte comes back", |_| Ok(Config::accept(Echo.behaviour()))),
        protocol(names::Protocol::Hello, "a greeting for each connection", |_| Ok(Config::accept(Hello.behaviour()))),
        protocol(names::Protocol::Ping, "answers each Ping with Pong", |_| Ok(Config::accept(Ping.behaviour()))),
        // Where there is no worker, a job runs where its connection runs, and slow waits there.
        protocol(names::Protocol::Http, "two paths, a fast and a slow one", serve_http).setting(slow_duration).sees("workers"),
        protocol(names::Protocol::Acks, "acknowledges messages", |values| {
            let pattern = values.text("ack").and_then(|text| text.parse().ok()).unwrap_or_default();
            Ok(Config::accept(Acks { pattern }.behaviour()))
        })
        .setting(ack),
        protocol(names::Protocol::Ws, "WebSockets whose messages come back, or go to all", |values| {
            let echo = websocket::Echo::default().max_message(values.count("max-message").unwrap_or(1 << 20));
            let echo = echo.deflate(values.switch("deflate") == Some(true));
            let echo = if values.switch("publish") == Some(true) { echo.to_all() } else { echo };
            Ok(Config::accept(echo.behaviour()))
        })
        .setting(publish)
        .setting(max_message)
        .setting(deflate),
        [to, balance, connect_timeout, tries, queue_timeout, header, log]
            .into_iter()
            .chain(checks::SETTINGS)
            .fold(protocol(names::Protocol::Proxy, "joins each client with one of several targets", proxy), Protocol::setting)
            .connects()
            .looks(|values| {
                let mut found = DefaultHasher::new();
                targets(values).ok()?.iter().for_each(|target| target.to_string().hash(&mut found));
                Some(found.finish())
            })
            .checks(|values, layered| checks::check(&targets(values).ok()?, values, layered))
            .sees("model"),
        protocol(names::Protocol::Exec, "runs a program for each connection", exec).setting(program).sees("idle"),
    ]
}

/// Returns the settings of all protocols.
pub(crate) fn settings() -> impl Iterator<Item = Setting> {
    protocols().into_iter().flat_map(|protocol| protocol.settings().to_vec())
}

fn serve_http(values: &Values) -> Result<Config, String> {
    let slow_duration = values.time("slow-duration").unwrap_or(Http::default().slow_duration);
    let http = Http { slow_duration, in_worker: values.count("workers") != Some(0) };
    let mut config = Config::accept(http.behaviour());
    config.settings.max_partial = http::MAX_HEAD;
    config.settings.idle = Some(HTTP_IDLE);
    Ok(config)
}

/// Returns the targets as they are written: a name has one for each of its addresses.
fn written(values: &Values) -> Result<Vec<Vec<Target>>, String> {
    values.list("to").iter().map(|text| Target::all(text)).collect()
}

/// Returns the targets for new clients: one whose checks fail has no weight.
fn for_new_clients(written: Vec<Vec<Target>>, values: &Values) -> Vec<Target> {
    let mut all = written.concat();
    checks::leave_out(&mut all, values);
    all
}

fn targets(values: &Values) -> Result<Vec<Target>, String> {
    Ok(for_new_clients(written(values)?, values))
}

/// Returns a target that is written before for the same clients, or with another limit. Two names of hosts may have one address.
fn written_twice<'a>(texts: &'a [String], written: &[Vec<Target>]) -> Option<&'a String> {
    let address = |at: usize| texts[at].split(',').next();
    let clash = |one: &Target, other: &Target| one.is_like(other) || one.limit != other.limit;
    let clash = |one: usize, other: usize| address(one) == address(other) && clash(&written[one][0], &written[other][0]);
    (1..texts.len()).find(|at| (0..*at).any(|before| clash(before, *at))).map(|at| &texts[at])
}

/// Returns whether a pool is the other one, or its targets lead to that; `seen` are those that were looked at.
fn leads_to(leads: &[Vec<(Target, usize)>], from: usize, to: usize, seen: &mut Vec<usize>) -> bool {
    if from == to || seen.contains(&from) {
        return from == to;
    }
    seen.push(from);
    leads[from].iter().any(|(_, next)| leads_to(leads, *next, to, seen))
}

/// Refuses a proxy that is its own target, or by way of others: a client would come back to where it was until a limit is reached. Targets of some clients alone are left out.
pub(crate) fn no_circle(document: &Document) -> Result<(), String> {
    let proxies: Vec<_> = document.pools.iter().filter(|(_, pool)| pool.protocol == names::Protocol::Proxy.name()).collect();
    let listeners: Vec<_> = proxies.iter().map(|(_, pool)| pool.values.listeners()).collect();
    let lead = |(_, pool): &(&String, &PoolDocument)| -> Vec<(Target, usize)> {
        let targets = pool.values.list("to").iter().filter_map(|text| text.parse::<Target>().ok());
        let pool_of = |target: Target| {
            let at = listeners.iter().position(|listeners| listens_at(listeners, &target.address))?;
            Some((target, at))
        };
        targets.filter(|target| !target.is_for_some()).filter_map(pool_of).collect()
    };
    let leads: Vec<_> = proxies.iter().map(lead).collect();
    for (start, (name, _)) in proxies.iter().enumerate() {
        if let Some((target, _)) = leads[start].iter().find(|(_, first)| leads_to(&leads, *first, start, &mut Vec::new())) {
            return Err(format!("pool.{name}.to: {} leads back to where this pool listens: name another target", target.address));
        }
    }
    Ok(())
}

/// Returns whether a pool listens at this address, as far as its own values say.
fn listens_at(listeners: &[(Option<Address>, Values)], at: &Address) -> bool {
    let is_it = |own: &Address| match (own, at) {
        (Address::Tcp(own), Address::Tcp(at)) if own.ip().is_unspecified() => own.port() == at.port() && at.ip().is_loopback(),
        _ => own == at,
    };
    listeners.iter().any(|(own, _)| own.as_ref().is_some_and(is_it))
}

fn proxy(values: &Values) -> Result<Config, String> {
    let written = written(values)?;
    if let Some(to) = written_twice(values.list("to"), &written) {
        return Err(format!("{to}: the address is there before, for these clients or with another limit: leave one out"));
    }
    if values.count("limit") == Some(1) {
        return Err("limit = 1 lets no client in: one takes two, for its own connection and that to its target".to_owned());
    }
    let targets = for_new_clients(written, values);
    if targets.is_empty() {
        return Err("proxy without a target: name one by to, as in --to 10.0.0.1:6379".to_owned());
    }
    checks::refuse(values)?;
    let listeners = values.listeners();
    let ends_tls = values.has("tls-cert") || listeners.iter().any(|(_, layers)| layers.has("tls-cert"));
    if let Some(target) = targets.iter().find(|target| target.is_for_some()).filter(|_| ends_tls) {
        return Err(format!(
            "{target} is for clients by their TLS, which ends here: leave tls-cert out, and it is passed on as it is, or leave sni and alpn out"
        ));
    }
    let mut options = ProxyOptions::to(targets);
    options.balance = values.text("balance").and_then(|text| text.parse().ok()).unwrap_or_default();
    options.connect_timeout = values.time("connect-timeout").unwrap_or(options.connect_timeout);
    options.tries = values.count("tries").unwrap_or(options.tries);
    options.queue_timeout = values.time("queue-timeout").unwrap_or(options.queue_timeout);
    options.log = values.switch("log-pairs") == Some(true);
    options.header = values.text("proxy-protocol-out").and_then(|version| version.parse().ok());
    Ok(Config::accept(Proxy::new(options, TARGETS.of_pool(values.pool())).behaviour()))
}

fn exec(values: &Values) -> Result<Config, String> {
    let [program, rest @ ..] = values.list(PROGRAM.name) else {
        return Err("exec without a program: name it behind --, as in exec -- cat, or by program in a file".to_owned());
    };
    if values.has("idle") {
        return Err("--idle is no option of exec: PROGRAM alone knows what it waits for; leave it out".to_owned());
    }
    executable::find(program.as_ref()).map_err(|failure| failure.to_string())?;
    Ok(Config::accept(Behaviour::exec(program, rest)).model(Model::Fork))
}
