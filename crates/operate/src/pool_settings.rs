//! The settings of a pool: the one table of what each is, and what it does to the pool's configuration.

use crate::layers;
use crate::listen::{self, LISTEN, Place};
use crate::setting::{Kind, Setting, Text, Value, Values, Wrong, unknown};
use crate::tls::{self, PoolTls};
use sockdrawer::admission::{AcceptRate, Limits, OnFull, PerPeer, Prefixes, Reject};
use sockdrawer::listening::Listening;
use sockdrawer::observe::Alarm;
use sockdrawer::{Config, Error, Keepalive, Model};
use sockdrawer_catalog::count;
use std::time::Duration;

/// The names of the models, for the setting `model`.
const MODELS: &[&str] = &["single", "threads", "fork", "prefork", "loops", "tasks"];
/// Settings of the policy [`Limits`].
const OF_LIMITS: [&str; 3] = ["on-full", "max-per-peer", "accept-rate"];
/// Models with any number of loops and workers.
const WITH_LOOPS: &[Model] = &[Model::Prefork, Model::Loops, Model::Tasks];

/// A setting of a pool.
pub(crate) struct PoolSetting {
    pub(crate) setting: Setting,
    /// The models that have it; none named: all.
    models: &'static [Model],
    apply: fn(&mut Draft<'_>, &Value) -> Result<(), String>,
}

/// A configuration that is being made, with parts of it that several settings say together.
struct Draft<'a> {
    config: Config,
    limits: Limits,
    keepalive: Option<Keepalive>,
    sockets: &'a dyn Sockets,
    tls: Option<&'a PoolTls>,
}

/// Sockets that were made before the program began.
pub(crate) trait Sockets {
    /// Returns the sockets of this name: each with its address, and the socket unless it is the predecessor's, which passes it on.
    fn named(&self, name: &str) -> Result<Vec<Listening>, String>;
}

const fn setting(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    default: &'static str,
    apply: fn(&mut Draft<'_>, &Value) -> Result<(), String>,
) -> PoolSetting {
    PoolSetting { setting: Setting::new(name, kind, help).unless_given(default), models: &[], apply }
}

/// Makes a setting of TLS, which is made from all of them together.
const fn of_tls(at: usize) -> PoolSetting {
    PoolSetting { setting: tls::SETTINGS[at], models: &[], apply: keeps }
}

// Each of them is in the table.
const _: () = assert!(tls::SETTINGS.len() == 11);

/// The longest time that the kernel takes for probes, and the most of them (net/ipv4/tcp.c: MAX_TCP_KEEPIDLE, MAX_TCP_KEEPCNT).
const MAX_PROBED: u64 = 32_767_000;
const MAX_PROBES: u64 = 127;
/// The kernel counts TCP_USER_TIMEOUT in milliseconds, in 31 bits.
const MAX_USER_TIMEOUT: u64 = i32::MAX as u64;

impl PoolSetting {
    const fn up_to(mut self, max: u64) -> PoolSetting {
        self.setting = self.setting.up_to(max);
        self
    }

    const fn of(mut self, group: &'static str) -> PoolSetting {
        self.setting = self.setting.group(group);
        self
    }

    const fn with(mut self, models: &'static [Model]) -> PoolSetting {
        self.models = models;
        self
    }
}

const ON_FULL: Text = Text { form: "backpressure|reject [TEXT]", check: |text| on_full(text).map(drop) };
const PEER_LIMIT: Text = Text { form: "N[/PREFIX][ reject TEXT]", check: |text| peer_limit(text).map(drop) };
const ALARM: Text = Text { form: "AT/CLEAR", check: |text| alarm(text).map(drop) };

const LISTENING: &str = "Listening";
const THREADS: &str = "Threads and processes";
const LIMITS: &str = "Limits";
const TIMES: &str = "Time-outs";
const SOCKETS: &str = "Sockets";
const FAULTS: &str = "Faults";

/// All of them, in the order in which they are applied and shown.
pub(crate) static SETTINGS: [PoolSetting; 50] = [
    setting(
        "listen",
        Kind::List(LISTEN),
        "The address to listen at: 127.0.0.1:9000, [::1]:9000, localhost:9000, 9000, unix:/path, unix:@name or systemd:NAME. Options follow: ,limit=N ,v6-only=true ,freebind=true ,transparent=true ,device=NAME; of a path ,mode=0660 ,owner=USER:GROUP; and layers of its own: ,proxy-protocol=SOURCES and the settings of TLS, such as ,tls-cert=FILE ,tls-key=FILE. In files also a table, which alone holds settings of several values: { address = \"0.0.0.0:9443\", tls-cert = \"chain.pem\", tls-alpn = [\"h2\", \"http/1.1\"] }. May be repeated",
        "127.0.0.1:9000",
        listen_at,
    )
    .of(LISTENING),
    setting(
        "backlog",
        Kind::Count(1),
        "Maximum of connections in the accept queue of each listening socket; the kernel cuts it to net.core.somaxconn",
        "4096",
        |draft, value| put(draft, value, |config, count| *config = config.clone().backlog(u32::try_from(count).unwrap_or(u32::MAX))),
    )
    .of(LISTENING),
    PoolSetting { setting: layers::PROXY, models: &[], apply: keeps }.of(LISTENING),
    of_tls(0),
    of_tls(1),
    of_tls(2),
    of_tls(3),
    of_tls(4),
    of_tls(5),
    of_tls(6),
    of_tls(7),
    of_tls(8),
    of_tls(9),
    of_tls(10),
    setting("model", Kind::Choice(MODELS), "The model that runs the connections", "loops; exec: fork", |draft, value| {
        let model = Model::ALL.into_iter().find(|model| Value::Text(model.name().to_owned()) == *value);
        update(draft, |config| model.map_or(config.clone(), |model| config.model(model)));
        Ok(())
    })
    .of(THREADS),
    setting("loops", Kind::Count(1), "prefork, loops and tasks: threads that run connections", "one per CPU; prefork: one per process", |draft, value| {
        put(draft, value, |config, loops| (config.loops, config.workers) = (loops, loops))
    })
    .of(THREADS)
    .with(WITH_LOOPS),
    setting("workers", Kind::Count(0), "prefork, loops and tasks: threads that run slow jobs; 0 runs them in the loops", "as many as loops", |draft, value| {
        put(draft, value, |config, count| config.workers = count)
    })
    .of(THREADS)
    .with(WITH_LOOPS),
    setting("processes", Kind::Count(1), "prefork: processes", "one per CPU", |draft, value| put(draft, value, |config, count| config.processes = count))
        .of(THREADS)
        .with(&[Model::Prefork]),
    setting(
        "capacity",
        Kind::Count(0),
        "Connections for which each loop allocates memory in advance; not a limit",
        "1024",
        |draft, value| put(draft, value, |config, count| config.capacity = count),
    )
    .of(THREADS),
    setting(
        "spin",
        Kind::Time,
        "loops, prefork and single: how long a loop that had something to do polls before it sleeps: better latency for more CPU",
        "0",
        |draft, value| time(draft, value, |config, time| config.spin = time),
    )
    .of(THREADS)
    .with(&[Model::Loops, Model::Prefork, Model::Single]),
    setting("stack", Kind::Size, "Bytes of stack of each thread that runs one connection", "256k", |draft, value| {
        put(draft, value, |config, bytes| config.stack = bytes)
    })
    .of(THREADS),
    setting("limit", Kind::Count(1), "Maximum of connections at once", "as many as descriptors allow", |draft, value| {
        put(draft, value, |config, limit| config.limit = Some(limit))
    })
    .of(LIMITS),
    setting(
        "on-full",
        Kind::Text(ON_FULL),
        "What happens to a connection above the limit: it waits in the kernel's queue, or is accepted, sent this text if there is one, as a line, and closed",
        "backpressure",
        |draft, value| {
            if let Value::Text(text) = value {
                draft.limits.on_full = on_full(text)?;
            }
            Ok(())
        },
    )
    .of(LIMITS),
    setting(
        "max-per-peer",
        Kind::Text(PEER_LIMIT),
        "Maximum of connections per client, by the first PREFIX bits of its IPv4 address (IPv6: four times as many bits); connections above it are sent this text if there is one, as a line, and closed",
        "none",
        |draft, value| {
            if let Value::Text(text) = value {
                let said = draft.limits.per_peer.take().map(|of_program| of_program.reject);
                let limit = peer_limit(text)?;
                let reject = if limit.reject == Reject::Fin { said.unwrap_or(Reject::Fin) } else { limit.reject };
                draft.limits.per_peer = Some(PerPeer { reject, ..limit });
            }
            Ok(())
        },
    )
    .of(LIMITS),
    setting(
        "accept-rate",
        Kind::Rate,
        "Maximum of connections accepted per second, with bursts of a tenth of that; connections that come faster wait",
        "none",
        |draft, value| {
            if let Value::Rate(rate) = value {
                // More than fits is no burst that any client could make.
                let burst = (rate / 10.0).ceil() as u32;
                draft.limits.rate = Some(AcceptRate::new(*rate, burst.max(1)));
            }
            Ok(())
        },
    )
    .of(LIMITS),
    setting(
        "alarm",
        Kind::List(ALARM),
        "A number of connections at which an event is sent, and the lower one at which the alarm is cleared: 9000/8000. May be repeated",
        "none",
        |draft, value| {
            if let Value::List(texts) = value {
                draft.config.alarms = texts.iter().map(|text| alarm(text)).collect::<Result<_, _>>()?;
            }
            Ok(())
        },
    )
    .of(LIMITS),
    setting(
        "max-generations",
        Kind::Count(2),
        "Maximum of live generations; a reload that needs another is refused",
        "65000",
        |draft, value| {
            put(draft, value, |config, most| config.max_generations = Some(most))
        },
    )
    .of(LIMITS),
    setting("worker-queue", Kind::Count(0), "Maximum of jobs that wait for a worker", "65536", |draft, value| {
        put(draft, value, |config, most| config.worker_queue = most)
    })
    .of(LIMITS),
    setting("delegates", Kind::Count(1), "Maximum of threads for delegated connections", "1024", |draft, value| {
        put(draft, value, |config, most| config.delegates = most)
    })
    .of(LIMITS),
    setting("inbox", Kind::Count(1), "Maximum of notes that wait in a loop's inbox", "65536", |draft, value| {
        put(draft, value, |config, most| config.inbox = most)
    })
    .of(LIMITS),
    setting(
        "max-partial",
        Kind::Size,
        "Maximum of input that a connection keeps until its message is whole",
        "64k; http: 4k",
        |draft, value| put(draft, value, |config, bytes| config.settings.max_partial = bytes),
    )
    .of(LIMITS),
    setting(
        "max-unsent",
        Kind::Size,
        "Maximum of unsent bytes at which a connection still gets notes; at a note above it the connection ends",
        "1m",
        |draft, value| put(draft, value, |config, bytes| config.settings.max_unsent = Some(bytes)),
    )
    .of(LIMITS),
    setting("high-water", Kind::Size, "Unsent bytes above which a connection receives nothing", "64k", |draft, value| {
        put(draft, value, |config, bytes| config.settings.high_water = bytes)
    })
    .of(LIMITS),
    setting("low-water", Kind::Size, "Unsent bytes below which a connection receives again", "32k", |draft, value| {
        put(draft, value, |config, bytes| config.settings.low_water = bytes)
    })
    .of(LIMITS),
    setting(
        "idle",
        Kind::Time,
        "Close a connection that has neither sent a whole message nor taken output for this long. Checked coarsely: may take up to 25 % longer. 0: never",
        "http: 60s; else never",
        |draft, value| time(draft, value, |config, time| config.settings.idle = Some(time).filter(|time| !time.is_zero())),
    )
    .of(TIMES),
    setting(
        "linger",
        Kind::Time,
        "How long a closed connection reads and discards, waiting for the peer's end",
        "2s",
        |draft, value| time(draft, value, |config, time| config.settings.linger = time),
    )
    .of(TIMES),
    setting("flush", Kind::Time, "How long a closed connection with unsent output waits for a peer that does not read", "30s", |draft, value| {
        time(draft, value, |config, time| config.settings.flush = time)
    })
    .of(TIMES),
    setting("nodelay", Kind::Switch, "Send small segments at once (TCP_NODELAY)", "true", |draft, value| {
        draft.config.settings.options.nodelay = *value == Value::Switch(true);
        Ok(())
    })
    .of(SOCKETS),
    setting(
        "keepalive",
        Kind::PositiveTime,
        "The time without input after which the kernel probes a silent peer (SO_KEEPALIVE, TCP_KEEPIDLE)",
        "no probes",
        |draft, value| keepalive(draft, value, |keepalive, time| keepalive.idle = time),
    )
    .up_to(MAX_PROBED)
    .of(SOCKETS),
    setting(
        "keepalive-interval",
        Kind::PositiveTime,
        "With keepalive: the time between probes (TCP_KEEPINTVL)",
        "15s",
        |draft, value| keepalive(draft, value, |keepalive, time| keepalive.interval = time),
    )
    .up_to(MAX_PROBED)
    .of(SOCKETS),
    setting(
        "keepalive-probes",
        Kind::Count(1),
        "With keepalive: probes without an answer after which a connection fails (TCP_KEEPCNT)",
        "4",
        |draft, value| match (value, &mut draft.keepalive) {
            (Value::Count(probes), Some(keepalive)) => {
                keepalive.probes = u32::try_from(*probes).unwrap_or(u32::MAX);
                Ok(())
            }
            _ => Err("is for keepalive, which is not set: set it too".to_owned()),
        },
    )
    .up_to(MAX_PROBES)
    .of(SOCKETS),
    setting(
        "user-timeout",
        Kind::PositiveTime,
        "How long sent bytes may stay unacknowledged before a connection fails (TCP_USER_TIMEOUT)",
        "as long as the kernel retransmits",
        |draft, value| time(draft, value, |config, time| config.settings.options.user_timeout = Some(time)),
    )
    .up_to(MAX_USER_TIMEOUT)
    .of(SOCKETS),
    setting(
        "receive-buffer",
        Kind::Size,
        "Bytes of the kernel's receive buffer of each connection (SO_RCVBUF)",
        "the kernel's choice",
        |draft, value| {
            put(draft, value, |config, bytes| config.settings.options.receive_buffer = u32::try_from(bytes).ok())
        },
    )
    .of(SOCKETS),
    setting(
        "send-buffer",
        Kind::Size,
        "Bytes of the kernel's send buffer of each connection (SO_SNDBUF)",
        "the kernel's choice",
        |draft, value| {
            put(draft, value, |config, bytes| config.settings.options.send_buffer = u32::try_from(bytes).ok())
        },
    )
    .of(SOCKETS),
    setting(
        "restarts",
        Kind::Count(0),
        "Maximum of restarts of loops, workers and processes within restarts-within; at the next the pool drains and stops",
        "10",
        |draft, value| {
            if let Value::Count(max) = value {
                draft.config.restarts.max = usize::try_from(*max).unwrap_or(usize::MAX);
            }
            Ok(())
        },
    )
    .of(FAULTS),
    setting("restarts-within", Kind::PositiveTime, "The time in which restarts are counted", "10s", |draft, value| {
        if let Value::Time(time) = value {
            draft.config.restarts.within = *time;
        }
        Ok(())
    })
    .of(FAULTS),
    setting(
        "stuck-after",
        Kind::PositiveTime,
        "How long a loop may spend in one turn before it is reported as stuck and its listeners move to other loops",
        "5s",
        |draft, value| time(draft, value, |config, time| config.stuck_after = time),
    )
    .of(FAULTS),
    setting("drain", Kind::Time, "How long connections may take to end by themselves once they are asked to end; then they are cut", "30s", keeps)
        .of(TIMES),
    setting("drain-rate", Kind::Rate, "Connections that are asked to end per second, once the server is to end", "all at once", keeps)
        .of(TIMES),
    setting(
        "notice",
        Kind::Time,
        "How long the server goes on accepting once it is to end and /readyz says so, for a load balancer to notice",
        "0",
        keeps,
    )
    .of(TIMES),
];

/// Changes nothing: for settings that are no part of the pool's configuration.
#[expect(clippy::unnecessary_wraps, reason = "as the others")]
fn keeps(_draft: &mut Draft<'_>, _value: &Value) -> Result<(), String> {
    Ok(())
}

fn update(draft: &mut Draft<'_>, change: impl FnOnce(Config) -> Config) {
    draft.config = change(draft.config.clone());
}

#[expect(clippy::unnecessary_wraps, reason = "as the others")]
fn put(draft: &mut Draft<'_>, value: &Value, change: impl FnOnce(&mut Config, usize)) -> Result<(), String> {
    if let Value::Count(count) | Value::Size(count) = value {
        change(&mut draft.config, usize::try_from(*count).unwrap_or(usize::MAX));
    }
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "as the others")]
fn time(draft: &mut Draft<'_>, value: &Value, change: impl FnOnce(&mut Config, Duration)) -> Result<(), String> {
    if let Value::Time(time) = value {
        change(&mut draft.config, *time);
    }
    Ok(())
}

fn keepalive(draft: &mut Draft<'_>, value: &Value, change: impl FnOnce(&mut Keepalive, Duration)) -> Result<(), String> {
    match (value, &mut draft.keepalive) {
        (Value::Time(time), Some(keepalive)) => {
            change(keepalive, *time);
            Ok(())
        }
        _ => Err("is for keepalive, which is not set: set it too".to_owned()),
    }
}

fn listen_at(draft: &mut Draft<'_>, value: &Value) -> Result<(), String> {
    let Value::List(texts) = value else { return Ok(()) };
    let mut listening = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let at = listen::parse(text)?;
        let made = match &at.place {
            Place::Address(address) => vec![Listening::new(address.clone())],
            Place::Systemd(name) => draft.sockets.named(name)?,
        };
        let server = draft.tls.and_then(|tls| tls.servers.get(number + 1)?.as_ref());
        for made in made {
            listening.push(layers::at_listener(at.listening(made), &at.layers, server)?);
        }
    }
    update(draft, |config| config.listeners(|all| *all = listening));
    Ok(())
}

fn on_full(text: &str) -> Result<OnFull, String> {
    match text.split_once(' ').unwrap_or((text, "")) {
        ("backpressure", "") => Ok(OnFull::Backpressure),
        ("reject", said) => Ok(OnFull::Reject(reject(said))),
        _ => Err(unknown("on-full", text, &["backpressure", "reject"])),
    }
}

/// Returns how a connection is turned away that is sent this text.
fn reject(said: &str) -> Reject {
    match said.trim_start() {
        "" => Reject::Fin,
        said if said.ends_with('\n') => Reject::text(said),
        said => Reject::text(&format!("{said}\n")),
    }
}

fn peer_limit(text: &str) -> Result<PerPeer, String> {
    let (text, said) = text.split_once(" reject").unwrap_or((text, ""));
    let (most, prefix) = text.split_once('/').unwrap_or((text, "32"));
    let most = count::parse(most).ok().and_then(|most| usize::try_from(most).ok()).filter(|most| *most > 0);
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32);
    match (most, prefix) {
        (Some(most), Some(prefix)) => {
            Ok(PerPeer { max: most, prefixes: Prefixes { v4: prefix, v6: 4 * prefix }, reject: reject(said) })
        }
        (Some(_), None) => Err("has no prefix of 0 to 32 bits: write one such as 50/24".to_owned()),
        (None, _) => Err("not a limit for each peer: write at least 1, such as 10 or 50/24".to_owned()),
    }
}

fn alarm(text: &str) -> Result<Alarm, String> {
    let number = |text: &str| count::parse(text).ok().and_then(|count| usize::try_from(count).ok());
    let numbers = text.split_once('/').and_then(|(at, clear)| Some((number(at)?, number(clear)?)));
    match numbers {
        Some((at, clear_at)) if clear_at < at => Ok(Alarm { at, clear_at }),
        _ => Err("not an alarm: write two numbers of connections, such as 9000/8000; the second is less".to_owned()),
    }
}

/// Returns what is wrong with a setting, where an error of the library is about one.
pub(crate) fn wrong_of(error: &Error) -> Option<Wrong> {
    let (setting, why) = match error {
        Error::Invalid { setting, reason } => (in_files(setting).unwrap_or("protocol"), reason.clone()),
        Error::Address { source, .. } => ("listen", source.to_string()),
        Error::AddressInUse(_) | Error::PermissionDenied { .. } | Error::Listen { .. } => ("listen", error.to_string()),
        Error::LimitTooHigh { .. } => ("limit", error.to_string()),
        Error::NotInModel { .. } => ("model", error.to_string()),
        // The operator cannot mend what the program lacks.
        Error::NoRecipe { model, .. } => (
            "model",
            format!("this program cannot run the protocol in processes, as {model} does: write loops, threads or single"),
        ),
        _ => return None,
    };
    Some((setting, why))
}

/// Returns the name that files have for a setting of the library. None: files have no such setting.
pub(crate) fn in_files(setting: &str) -> Option<&'static str> {
    match setting.rsplit('.').next().unwrap_or_default() {
        "alarms" => Some("alarm"),
        "behaviour" => Some("protocol"),
        "per_peer" => Some("max-per-peer"),
        "rate" => Some("accept-rate"),
        "max" => Some("restarts"),
        "within" => Some("restarts-within"),
        // Settings of an address are written behind it.
        _ if setting.starts_with("listeners") => Some("listen"),
        name => {
            let name = name.replace('_', "-");
            SETTINGS.iter().map(|one| one.setting.name).find(|known| *known == name)
        }
    }
}

/// Descriptors that pools leave to the control socket, metrics, files and upgrades; a sixteenth where there are few.
const SPARE: usize = 64;

/// Makes the configuration of a pool: what its protocol begins with, and what the settings say.
pub(crate) fn configure(
    mut begun: Config,
    values: &Values,
    tls: Option<&PoolTls>,
    sockets: &dyn Sockets,
) -> Result<Config, Wrong> {
    // The values of the file are applied to what the program has set.
    let limits = begun.limits().cloned();
    if let (None, Some(name)) = (&limits, OF_LIMITS.into_iter().find(|name| values.has(name))) {
        return Err((
            name,
            "is a setting of limits, and this program has an admission policy of its own: leave it out".to_owned(),
        ));
    }
    let has_limits = limits.is_some();
    let idle = Duration::ZERO;
    let probes = Keepalive { idle, interval: Duration::from_secs(15), probes: 4 };
    let of_program = begun.settings.options.keepalive;
    let keepalive = if values.has("keepalive") { Some(of_program.unwrap_or(probes)) } else { of_program };
    listen::check_layers(values)?;
    begun.behaviour = layers::layered(begun.behaviour, values, tls)?;
    let mut draft = Draft { config: begun, limits: limits.unwrap_or_default(), keepalive, sockets, tls };
    for PoolSetting { setting, models, apply } in &SETTINGS {
        let Some(value) = values.set.get(setting.name) else { continue };
        if !models.is_empty() && !models.contains(&draft.config.model) {
            let names: Vec<&str> = models.iter().map(|model| model.name()).collect();
            let names = names.split_last().map(|(last, first)| [&first.join(", "), *last].join(" and ")).unwrap_or_default();
            let of = if models.len() == 1 { format!("the model {}", models[0]) } else { format!("the models {names}") };
            return Err((
                setting.name,
                format!("is an option of {of}, not of the model {}: leave it out, or choose another model", draft.config.model),
            ));
        }
        apply(&mut draft, value).map_err(|why| (setting.name, why))?;
    }
    draft.config.settings.options.keepalive = draft.keepalive;
    let Draft { mut config, limits, .. } = draft;
    if has_limits {
        config = config.admission(limits);
    }
    let spare = sockdrawer::raise_descriptor_limit().map_or(0, |limit| SPARE.min(limit / 16));
    Ok(config.spare(spare))
}

#[cfg(test)]
mod tests;
