//! Checks of a configuration that types cannot make, and of what descriptors allow.

use crate::behaviour::Kind;
use crate::config::{Config, Connecting, Endpoint, Listening, Model, Settings};
use crate::error::{Error, KEEP};
use crate::limit::alarms::MAX_ALARMS;
use crate::listen::listener::{MAX_SOCKETS, SOCKETS};
use crate::model;
use crate::net::{Address, ListenOptions};
use crate::sys;
use std::time::Duration;

/// The longest time to spin.
const MAX_SPIN: Duration = Duration::from_secs(1);

/// Descriptors left to the program around the pool.
const SPARE_DESCRIPTORS: usize = 32;
/// Minimum of connections for which room is made in the table of descriptors, where as many may come: 512 KiB.
const ROOM: usize = 1 << 16;
/// Maximum of connections for which room is made in the table of descriptors: 8 MiB.
const MAX_ROOM: usize = 1 << 20;
/// Maximum of connections that memory is kept for in each loop, where descriptors are not limited.
const MAX_WARM: usize = 1 << 20;
/// Minimum of connections that memory is kept for in each loop.
const FEWEST_WARM: usize = 64;
/// Maximum number of loops: more are a mistake.
const MAX_LOOPS: usize = 1024;
/// Maximum stack of a thread: more is a mistake.
const MAX_STACK: usize = 1 << 30;
/// Maximum input that can be kept for a connection.
const MAX_PARTIAL: usize = 256 * 1024 * 1024;

/// Checks the configuration of a pool that begins. Once it runs it may lose its last address, or accept nothing for a while: a change may come.
pub(super) fn validate_start(config: &Config) -> Result<(), Error> {
    validate(config)?;
    let invalid = |setting, reason: &str| Err(Error::Invalid { setting, reason: reason.to_owned() });
    if matches!(&config.endpoint, Endpoint::Accept { .. }) && config.listened().is_empty() {
        return invalid("listeners", "a pool that listens nowhere serves no connection: name an address with Config::listen");
    }
    match &config.endpoint {
        Endpoint::Accept { .. } if config.limit == Some(0) => {
            invalid("limit", "0 connections serve no connection: use at least 1, or suspend the pool")
        }
        Endpoint::Connect(connecting) if connecting.keep == Some(0) => {
            invalid(KEEP, "a pool that keeps 0 connections connects to nothing: use at least 1, or suspend the pool")
        }
        _ => Ok(()),
    }
}

/// Checks that each text that was to be an address is one. The first that is none is reported.
pub(super) fn validate_addresses(config: &Config) -> Result<(), Error> {
    let (setting, wrong) = match &config.endpoint {
        Endpoint::Accept { listeners, .. } => ("listeners", listeners.iter().find_map(Listening::address_error)),
        Endpoint::Connect(connecting) => ("connecting.targets", connecting.address_error()),
    };
    wrong.map_or(Ok(()), |source| Err(Error::Address { setting, source }))
}

/// Checks an address with layers of its own.
fn validate_layered(config: &Config, listening: &Listening, before: &[Listening]) -> Result<(), Error> {
    let invalid = |reason: String| Err(Error::Invalid { setting: "listeners.layers", reason });
    if config.model.has_processes() {
        let model = config.model;
        return invalid(format!("{model} has the same layers at all addresses: start a second pool for {}", listening.address));
    }
    if config.behaviour.service().kind() == Kind::Program {
        return invalid(format!("a program has the socket of {} itself: leave its layers out", listening.address));
    }
    if before.iter().any(|other| !other.layers.is_empty() && other.address == listening.address) {
        return invalid(format!("{} is named twice with layers of its own: name it once", listening.address));
    }
    Ok(())
}

/// Checks the settings of connections.
fn validate_settings(settings: &Settings) -> Result<(), Error> {
    let invalid = |setting, reason: &str| Err(Error::Invalid { setting, reason: reason.to_owned() });
    if settings.max_partial > MAX_PARTIAL {
        return invalid("settings.max_partial", "more than 256 MiB: take input in parts instead of keeping it");
    }
    if settings.max_unsent.is_some_and(|max| max < settings.high_water) {
        return invalid("settings.max_unsent", "a connection would end before its high-water mark: raise it, or lower the mark");
    }
    if settings.low_water > settings.high_water {
        return invalid("settings.low_water", "the low-water mark is above the high one: lower it");
    }
    Ok(())
}

/// Checks that what reads the connections is held by the idle timeout: only a service is, whose input passes the loop.
fn validate_idle(config: &Config) -> Result<(), Error> {
    let instead = match config.behaviour.service().kind() {
        Kind::Protocol => return Ok(()),
        Kind::Blocking => "a blocking handler reads its connection itself: leave idle out, and give its reads a timeout",
        Kind::Program => "another program reads its connection itself: leave idle out, and bound its reads there",
        #[cfg(feature = "tokio")]
        Kind::Task => {
            "async code reads its connection itself: leave idle out, and put tokio::time::timeout around its reads; for HTTP, sockdrawer_hyper::Timeouts does"
        }
    };
    let refused = || Error::Invalid { setting: "settings.idle", reason: instead.to_owned() };
    if config.settings.idle.is_some() { Err(refused()) } else { Ok(()) }
}

/// Checks what types cannot.
pub(super) fn validate(config: &Config) -> Result<(), Error> {
    validate_addresses(config)?;
    model::check(config)?;
    let invalid = |setting, reason: &str| Err(Error::Invalid { setting, reason: reason.to_owned() });
    if config.loops == 0 {
        return invalid("loops", "0 loops serve no connection: use at least 1, or suspend the pool");
    }
    if config.stack > MAX_STACK {
        return invalid("stack", "more than 1 GiB for each thread: a connection needs a few KiB of stack");
    }
    if config.loops > MAX_LOOPS {
        return invalid("loops", "more than 1024 loops: a loop for each CPU is enough");
    }
    if config.spin > MAX_SPIN {
        return invalid("spin", "more than 1 s, a loop that never sleeps: use some 50 us, which a wake-up costs");
    }
    if !config.spin.is_zero() && matches!(config.model, Model::Threads | Model::Fork | Model::Tasks) {
        return invalid("spin", "only loops spin: those of the models loops, prefork and single");
    }
    if config.stuck_after.is_zero() {
        return invalid("stuck_after", "0: each loop would be stuck as soon as it has something to do; use some seconds");
    }
    if config.delegates == 0 {
        return invalid("delegates", "0 threads: a delegated connection would wait for ever; use at least 1");
    }
    if config.max_generations.is_some_and(|most| most < 2) {
        return invalid("max_generations", "fewer than 2: the one in force counts, so none could ever follow it");
    }
    validate_settings(&config.settings)?;
    validate_idle(config)?;
    if let Endpoint::Connect(connecting) = &config.endpoint {
        validate_connecting(connecting, config.limit)?;
    }
    if let Some(Err((setting, reason))) = config.limits().map(|limits| limits.check()) {
        return invalid(setting, reason);
    }
    validate_layers(config)?;
    if config.alarms.len() > MAX_ALARMS {
        return invalid("alarms", "more than 16 alarms: a few say as much");
    }
    if config.alarms.iter().any(|alarm| alarm.clear_at >= alarm.at) {
        return invalid("alarms", "an alarm is cleared below the number at which it is raised: lower clear_at");
    }
    let listeners = config.listened();
    if listeners.iter().any(|listening| listening.limit == Some(0)) {
        return invalid("listeners.limit", "0 connections serve no connection: use at least 1, or suspend the listener");
    }
    for (index, listening) in listeners.iter().enumerate() {
        let wrong = |reason| Error::Invalid { setting: "listeners", reason };
        listening.options.check(&listening.address).map_err(wrong)?;
        if listening.inherited.is_some() && listening.options != ListenOptions::default() {
            let reason = format!("the socket inherited for {} is bound already: leave its options out", listening.address);
            return Err(wrong(reason));
        }
        if !listening.layers.is_empty() {
            validate_layered(config, listening, &listeners[..index])?;
        }
        let port_zero = matches!(listening.address, Address::Tcp(address) if address.port() == 0);
        if !port_zero && listeners[..index].iter().any(|other| other.address == listening.address) {
            let reason = format!("{} is named twice: name it once", listening.address);
            return Err(Error::Invalid { setting: "listeners", reason });
        }
    }
    Ok(())
}

/// Checks the layers around what the pool runs.
fn validate_layers(config: &Config) -> Result<(), Error> {
    let service = config.behaviour.service();
    // Processes of single connections count nothing of each other, and the one that accepts does not read headers.
    let per_peer = config.limits().is_some_and(|limits| limits.per_peer.is_some());
    if config.model == Model::Fork && per_peer && service.learns_peer_address() {
        let reason = "the model fork knows peers only by the addresses that connect: with a layer that learns their real ones, use another model";
        return Err(Error::Invalid { setting: "admission.per_peer", reason: reason.to_owned() });
    }
    Ok(())
}

fn validate_connecting(connecting: &Connecting, limit: Option<usize>) -> Result<(), Error> {
    let invalid = |setting, reason: String| Err(Error::Invalid { setting, reason });
    if connecting.targets.is_empty() && !connecting.is_on_request() {
        return invalid("connecting.targets", "there is no target to connect to: name one".to_owned());
    }
    if let Some(limit) = limit {
        let reason = format!(
            "a pool that connects has no limit, it keeps a number of connections: write Connecting::to(targets).keep({limit})"
        );
        return invalid("limit", reason);
    }
    if connecting.keep.is_none() && !connecting.is_on_request() {
        let reason = "a pool that connects keeps a number of connections: write how many, as in Connecting::to(targets).keep(32)";
        return invalid(KEEP, reason.to_owned());
    }
    if connecting.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
        return invalid("connecting.rate", "a rate is above 0 connects a second: leave it out for as fast as it goes".to_owned());
    }
    let Some((from, to)) = connecting.local_ports else { return Ok(()) };
    if from == 0 || to < from {
        return invalid("connecting.local_ports", format!("{from} to {to} is no range of ports: name the lower one first"));
    }
    match sys::local_ports() {
        Some((first, last)) if from < first || last < to => {
            let remedy = format!("sysctl -w net.ipv4.ip_local_port_range='{} {}'", from.min(first), to.max(last));
            let reason = format!("{from} to {to} is not within the ports that the system gives out, {first} to {last}: {remedy}");
            invalid("connecting.local_ports", reason)
        }
        _ => Ok(()),
    }
}

/// Sockets of a TCP address: loops that come and go take them over from each other; a model that accepts in one thread has one. Among processes
/// each has as many as the others: what is hashed to its sockets waits for its descriptors alone.
pub(super) fn sockets_per_address(config: &Config) -> usize {
    match config.model {
        Model::Prefork => {
            let loops = config.loops.saturating_mul(config.processes).clamp(1, MAX_SOCKETS);
            SOCKETS.next_multiple_of(loops)
        }
        model if model.has_loops() => config.loops.clamp(SOCKETS, MAX_SOCKETS),
        _ => 1,
    }
}

/// Returns listening sockets of a configuration.
fn sockets(config: &Config) -> usize {
    let sockets = |listening: &Listening| match (&listening.inherited, &listening.address) {
        (None, Address::Tcp(_)) => sockets_per_address(config),
        _ => 1,
    };
    config.listened().iter().map(sockets).sum()
}

/// Descriptors that a process of a pool needs for itself, beside those of its loops.
pub(super) fn own_descriptors(config: &Config) -> usize {
    sockets(config) + SPARE_DESCRIPTORS.max(config.spare)
}

/// Makes room in the table for all descriptors that a process of the pool may have at once, before it has threads. 8 bytes each: without a limit of
/// the configuration's own, not for all that the system would allow.
pub(super) fn make_room(config: &Config, limit: usize, others: usize) {
    let connections = limit.min(if config.asked_limit().is_some() { MAX_ROOM } else { ROOM });
    let each = model::descriptors(config.model);
    sys::make_room_for_descriptors(of_loops(config, others) + connections * each);
}

/// Returns the number of descriptors that a pool of loops has open beside its connections.
fn of_loops(config: &Config, others: usize) -> usize {
    others + own_descriptors(config) + model::descriptors_for_loop(config.model) * config.loops
}

/// Returns the permits that descriptors allow: what is left beside the `others` that the program had open when the pool started, and
/// the pool's own.
pub(super) fn effective_limit(config: &Config, others: usize) -> Result<usize, Error> {
    let allowed = sys::descriptor_limit();
    let own = of_loops(config, others);
    let (each, most) = (model::descriptors(config.model), model::most_connections(config.model));
    let fits = allowed.saturating_sub(own) / each;
    let setting = if matches!(config.endpoint, Endpoint::Connect(_)) { KEEP } else { "limit" };
    match config.asked_limit().map(|asked| asked.min(most)) {
        Some(asked) if asked > fits => {
            let needed = asked.saturating_mul(each).saturating_add(own);
            Err(Error::LimitTooHigh { setting, asked, needed, allowed, open: others, fits })
        }
        Some(asked) => Ok(asked),
        None if fits == 0 => Err(Error::LimitTooHigh { setting, asked: 1, needed: own + each, allowed, open: others, fits }),
        None => Ok(fits.min(most)),
    }
}

/// Returns the number of connections to keep memory for: never more than there can be. Loops grow by as much, so a few.
pub(super) fn warm(config: &Config) -> usize {
    if config.model.has_loops() { config.capacity.min(sys::descriptor_limit()).clamp(FEWEST_WARM, MAX_WARM) } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::tests::Echo;

    #[test]
    fn every_loop_of_every_process_has_as_many_sockets() {
        let sockets =
            |model, processes, loops| sockets_per_address(&Config::accept(Echo).model(model).processes(processes).loops(loops));
        for (processes, loops, expected) in [(1, 1, 16), (4, 1, 16), (6, 1, 18), (5, 2, 20), (24, 1, 24), (64, 4, 256)] {
            assert_eq!(sockets(Model::Prefork, processes, loops), expected, "{processes} processes of {loops} loops");
        }
        assert_eq!((sockets(Model::Loops, 1, 3), sockets(Model::Loops, 1, 20), sockets(Model::Threads, 1, 1)), (16, 20, 1));
        assert_eq!((sockets(Model::Prefork, 0, 1), sockets(Model::Prefork, usize::MAX, 2)), (16, 1024));
    }
}
