//! Checks of a proxy's targets: one that fails twice gets no new clients, until a check of it succeeds.

use crate::protocols::{TARGET_METRICS, TARGETS};
use sockdrawer::connecting::{ConnectFailure, Connecting};
use sockdrawer::layer::proxy_header::{Header, Version};
use sockdrawer::observe::Event;
use sockdrawer::{
    Address, Behaviour, Closed, Config, Context, Drain, Input, IntoBehaviour, Local, Peer, Pool, Protocol, Service, Step,
};
use sockdrawer_catalog::escapes;
use sockdrawer_catalog::proxy::{Target, why_failed};
use sockdrawer_operate::{Checked, Kind, Setting, Text, Values};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A check that fails once may have met a moment.
const FAILURES: u32 = 2;
/// The part of an answer that is told.
const SHOWN: usize = 60;
const BYTES: Text = Text { form: "TEXT", check: |text| escapes::parse(text).map(drop).map_err(|error| error.to_string()) };

pub(crate) const SETTINGS: [Setting; 4] = [
    Setting::new(
        "check-every",
        Kind::PositiveTime,
        "proxy: connect to each target this often, and give one that fails twice in a row no new clients until it succeeds",
    )
    .unless_given("never"),
    Setting::new(
        "check-send",
        Kind::Text(BYTES),
        r"proxy: what a check sends, such as PING\r\n; there are \r, \n, \t, \0, \\ and \xNN",
    )
    .unless_given("nothing"),
    Setting::new(
        "check-expect",
        Kind::Text(BYTES),
        r"proxy: what a target's first bytes have to be in a check, such as +PONG; escapes as in check-send",
    )
    .unless_given("nothing"),
    Setting::new("check-timeout", Kind::PositiveTime, "proxy: how long a check of a target may take, its connect included")
        .unless_given("that of connect-timeout"),
];

/// Failures of checks in a row, and the last one's reason, by target and check.
static FAILED: LazyLock<Mutex<HashMap<Key, (u32, String)>>> = LazyLock::new(Mutex::default);

/// The name of a pool, a target's address, and the settings by which it is checked.
type Key = (String, Address, [Option<String>; 5]);

fn key(address: &Address, values: &Values) -> Key {
    let text = |name| values.text(name).map(str::to_owned);
    (
        values.pool().to_owned(),
        address.clone(),
        ["check-send", "check-expect", "tls-to", "tls-to-name", "proxy-protocol-out"].map(text),
    )
}

fn failed() -> MutexGuard<'static, HashMap<Key, (u32, String)>> {
    FAILED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes what checks have found, for the next build.
pub(crate) fn write() -> Vec<u8> {
    let failed = failed();
    let all: Vec<_> = failed.iter().map(|((pool, at, by), found)| (pool, at.to_string(), by, found)).collect();
    serde_json::to_vec(&all).unwrap_or_default()
}

/// Goes on with what the process before this one has found: the first look of the new build makes it a generation. What is not understood is found again.
pub(crate) fn read(bytes: &[u8]) {
    type Found = (String, String, [Option<String>; 5], (u32, String));
    for (pool, at, by, found) in serde_json::from_slice::<Vec<Found>>(bytes).unwrap_or_default() {
        if let Ok(at) = at.parse() {
            if found.0 >= FAILURES {
                left_out(&pool, &at, 1.0);
            }
            failed().insert((pool, at, by), found);
        }
    }
}

/// Returns the reason why checks of this address fail, if some do so that clients of the pool do not get it.
pub(crate) fn why_out(pool: &str, address: &Address) -> Option<String> {
    let failed = failed();
    let is_meant = |(of, at, _): &Key| of == pool && at == address;
    let mut of = failed.iter().filter(|(key, (failures, _))| is_meant(key) && *failures >= FAILURES);
    of.next().map(|(_, (_, why))| why.clone())
}

/// Gives targets whose checks fail no new clients, unless the checks of all that are for the same clients do.
pub(crate) fn leave_out(targets: &mut [Target], values: &Values) {
    if !values.has("check-every") {
        return;
    }
    let failed = failed();
    let is_out = |target: &Target| failed.get(&key(&target.address, values)).is_some_and(|(failures, _)| *failures >= FAILURES);
    let all = targets.to_vec();
    for target in targets.iter_mut().filter(|target| is_out(target)) {
        if all.iter().filter(|other| other.is_like(target)).any(|other| other.weight > 0 && !is_out(other)) {
            target.weight = 0;
        }
    }
}

/// Checks the settings of checks: what cannot be checked is refused.
///
/// # Errors
/// A sentence.
pub(crate) fn refuse(values: &Values) -> Result<(), String> {
    let asks = values.has("check-send") || values.has("check-expect");
    let every = "say how often, as in check-every = \"2s\"";
    if asks && !values.has("check-every") {
        return Err(format!("check-send and check-expect are for check-every: {every}"));
    }
    if values.has("check-timeout") && !values.has("check-every") {
        return Err(format!("check-timeout is for check-every: {every}"));
    }
    if asks && values.has("tls-to") && values.has("proxy-protocol-out") {
        return Err(
            "a check cannot send a PROXY header before TLS: leave check-send and check-expect out, and it connects alone"
                .to_owned(),
        );
    }
    Ok(())
}

/// Checks all targets once, at the same time. What was found of others of the pool, or by other settings, is forgotten.
pub(crate) fn check(targets: &[Target], values: &Values, layered: &dyn Fn(Behaviour) -> Behaviour) -> Option<Checked> {
    let mut current: Vec<Key> = Vec::new();
    for key in targets.iter().map(|target| key(&target.address, values)) {
        // An address that several targets have is checked once.
        if !current.contains(&key) {
            current.push(key);
        }
    }
    failed().retain(|key, (failures, _)| {
        let stays = key.0 != values.pool() || values.has("check-every") && current.contains(key);
        if !stays && *failures >= FAILURES {
            left_out(&key.0, &key.1, 0.0);
        }
        stays
    });
    let again = values.time("check-every")?;
    let within = values.time("check-timeout").or(values.time("connect-timeout")).unwrap_or(Duration::from_secs(5));
    let until = Instant::now() + within;
    let begun: Vec<Begun> = current.iter().map(|(_, address, _)| Begun::new(address, values, within, layered)).collect();
    let results: Vec<(Address, Result<(), String>)> = begun.into_iter().map(|one| one.ended(until, within)).collect();
    let mut failed = failed();
    let mut news = Vec::new();
    for (key, (address, result)) in current.into_iter().zip(results) {
        let before = failed.get(&key).map_or(0, |(failures, _)| *failures);
        let word = if result.is_ok() { "ok" } else { "failed" };
        TARGET_METRICS.checks.at([values.pool(), &address.to_string(), word]).add(1);
        match result {
            Ok(()) => {
                failed.remove(&key);
                // Clients that were refused have left it out, too.
                let was_out = TARGETS.of_pool(values.pool()).is_well(&address, Instant::now());
                if was_out || before >= FAILURES {
                    news.push(format!("target {address} is back"));
                    left_out(values.pool(), &address, 0.0);
                }
            }
            Err(why) => {
                let failures = before.saturating_add(1);
                if failures == FAILURES {
                    news.push(format!("target {address}: {why}; left out until a check succeeds"));
                }
                if failures >= FAILURES {
                    left_out(values.pool(), &address, 1.0);
                }
                failed.insert(key, (failures, why));
            }
        }
    }
    Some(Checked { again, news: (!news.is_empty()).then(|| news.join("; ")) })
}

fn left_out(pool: &str, address: &Address, is: f64) {
    TARGET_METRICS.left_out.at([pool, &address.to_string()]).set(is);
}

/// A check that is under way: a pool of a single connection.
struct Begun {
    address: Address,
    pool: Result<Pool, String>,
    result: Receiver<Result<(), String>>,
}

impl Begun {
    fn new(address: &Address, values: &Values, within: Duration, layered: &dyn Fn(Behaviour) -> Behaviour) -> Begun {
        let bytes = |name| values.text(name).and_then(|text| escapes::parse(text).ok()).unwrap_or_default();
        let header = values.text("proxy-protocol-out").and_then(|version| version.parse::<Version>().ok());
        let header = header.map_or_else(Vec::new, |version| Header::Local.bytes(version));
        let in_tls = values.has("tls-to") && header.is_empty();
        let send = if values.has("tls-to") { bytes("check-send") } else { [header, bytes("check-send")].concat() };
        let (tells, result) = channel();
        let why = tells.clone();
        let observer = move |event: &Event| {
            if let Event::Reported { report, .. } = event {
                // Nothing waits for it any more where it comes too late.
                let _ = why.send(Err(report.message.clone()));
            }
        };
        let service = Check { send, expect: bytes("check-expect"), tells };
        let behaviour = if in_tls { layered(service.into_behaviour()) } else { service.into_behaviour() };
        let connecting = Connecting::to([address]).keep(1).total(1).timeout(within);
        let pool = Pool::start(Config::connect(behaviour, connecting).loops(1).workers(0).capacity(1).observer(observer));
        Begun { address: address.clone(), pool: pool.map_err(|error| error.to_string()), result }
    }

    fn ended(self, until: Instant, within: Duration) -> (Address, Result<(), String>) {
        let result = self.pool.and_then(|pool| {
            let result = self.result.recv_timeout(until.saturating_duration_since(Instant::now()));
            pool.shutdown(Drain::within(Duration::ZERO));
            result.unwrap_or_else(|_| Err(format!("no answer to a check within {within:?}")))
        });
        (self.address, result)
    }
}

/// A connection of it asks once.
struct Check {
    send: Vec<u8>,
    expect: Vec<u8>,
    tells: Sender<Result<(), String>>,
}

impl Service for Check {
    type Protocol = Checking;

    fn open(&self, _peer: &Peer) -> Checking {
        Checking { send: self.send.clone(), expect: self.expect.clone(), tells: self.tells.clone(), told: false }
    }

    fn connect_failed(&self, failure: &ConnectFailure, _local: &mut Local) {
        // As above.
        let _ = self.tells.send(Err(why_failed(failure.errno)));
    }
}

struct Checking {
    send: Vec<u8>,
    expect: Vec<u8>,
    tells: Sender<Result<(), String>>,
    told: bool,
}

impl Checking {
    fn tell(&mut self, result: Result<(), String>) -> Step {
        self.told = true;
        // As above.
        let _ = self.tells.send(result);
        Step::Close
    }
}

impl Protocol for Checking {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(&self.send);
        if self.expect.is_empty() { self.tell(Ok(())) } else { Step::Continue }
    }

    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        let came = input.bytes();
        if came.starts_with(&self.expect) {
            return self.tell(Ok(()));
        }
        if self.expect.starts_with(came) {
            return Step::Continue;
        }
        let (came, expected) = (escapes::format(&came[..came.len().min(SHOWN)]), escapes::format(&self.expect));
        self.tell(Err(format!("`{came}` came in a check, and `{expected}` was expected")))
    }

    fn closed(&mut self, why: Closed, _cx: &mut Context<'_>) {
        if !self.told {
            let why = match why {
                Closed::Error(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
                _ => "a check was ended before its answer".to_owned(),
            };
            let _ = self.tell(Err(why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer_operate::Value;

    #[test]
    fn what_was_found_goes_along_and_is_forgotten_with_its_settings() {
        let [every, send, ..] = SETTINGS;
        let values = |text: &str| {
            let mut values = Values::default().of_pool("forgotten");
            values.set(&every, Value::Time(Duration::from_secs(1)));
            values.set(&send, Value::Text(text.to_owned()));
            values
        };
        let at: Address = "127.0.0.1:1".parse().expect("an address");
        failed().insert(key(&at, &values("PING")), (FAILURES, "no PONG".to_owned()));
        let written = write();
        failed().clear();
        read(&written);
        assert_eq!(why_out("forgotten", &at).as_deref(), Some("no PONG"));
        assert_eq!(why_out("other", &at), None);
        let mut targets = ["127.0.0.1:1", "127.0.0.2:1"].map(|text| text.parse::<Target>().expect("a target")).to_vec();
        leave_out(&mut targets, &values("PING"));
        assert_eq!(targets.iter().map(|target| target.weight).collect::<Vec<_>>(), [0, 1]);
        // Other settings, and then no target.
        check(&[], &values("PONG"), &|behaviour| behaviour);
        assert_eq!(why_out("forgotten", &at), None);
        read(b"[[1]]");
    }
}
