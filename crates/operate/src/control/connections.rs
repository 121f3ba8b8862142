//! Lists of connections, and which of them are meant.

use serde::Serialize;
use sockdrawer::observe::{ConnectionState, ConnectionStatus};
use sockdrawer::{Address, ConnectionId, Pool, Selector, Side};
use sockdrawer_catalog::time;
use sockdrawer_catalog::web::{Answer, Request};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

/// The parameters by which connections are selected. All that are given must match.
pub(super) const SELECTORS: [&str; 7] = ["id", "generation", "before", "peer", "older-than", "tag", "listener"];
pub(super) const PARAMETERS: &[&str] = &["pool", "id", "generation", "before", "peer", "older-than", "tag", "listener"];
pub(super) const KILLING: &[&str] = &["pool", "all", "id", "generation", "before", "peer", "older-than", "tag", "listener"];
pub(super) const PURGING: &[&str] =
    &["pool", "all", "id", "generation", "before", "peer", "older-than", "tag", "listener", "within"];
pub(super) const DRAINING: &[&str] =
    &["pool", "all", "id", "generation", "before", "peer", "older-than", "tag", "listener", "within", "rate"];

/// Returns the selector that a request has. None: it has none.
pub(super) fn selector(request: &Request) -> Result<Option<Selector>, Answer> {
    let mut all = Vec::new();
    for (name, text) in request.query.iter().filter(|(name, _)| SELECTORS.contains(&name.as_str())) {
        let wrong = |form: &str| Answer::error(400, format_args!("{name}={text}: write {form}"));
        all.push(match name.as_str() {
            "id" => Selector::Id(ConnectionId(text.parse().map_err(|_| wrong("the number of a connection"))?)),
            "generation" => Selector::Generation(text.parse().map_err(|_| wrong("the number of a generation"))?),
            "before" => Selector::Before(text.parse().map_err(|_| wrong("the number of a generation"))?),
            "older-than" => Selector::OlderThan(time::parse(text).map_err(|_| wrong("a time such as 5m"))?),
            "tag" => Selector::tag(text),
            "listener" => Selector::Listener(text.parse::<Address>().map_err(|error| Answer::error(400, error))?),
            _ => network(text).ok_or_else(|| wrong("an address or a network, such as 10.0.0.0/8"))?,
        });
    }
    Ok(match all.len() {
        0 => None,
        1 => all.pop(),
        _ => Some(Selector::Every(all)),
    })
}

/// Refuses a selector that names what is not there, which is a slip of the pen: an address at which no pool listens and from which no connection
/// is left, a generation that has not begun, or alone the number or tag of no connection. Ages and networks name nothing.
pub(super) fn are_there(selector: &Selector, pools: &[(String, Pool)]) -> Result<(), Answer> {
    let matches = || pools.iter().any(|(_, pool)| pool.each_connection(selector).next().is_some());
    let why = match selector {
        Selector::Every(all) => {
            // Each of several selectors may be right where no connection matches all.
            let names = |one: &&Selector| matches!(one, Selector::Listener(_) | Selector::Generation(_) | Selector::Before(_));
            return all.iter().filter(names).try_for_each(|one| are_there(one, pools));
        }
        Selector::Listener(address) => {
            let known: Vec<Address> = pools.iter().flat_map(|(_, pool)| pool.addresses()).collect();
            if known.contains(address) || matches() {
                return Ok(());
            }
            let known: Vec<String> = known.iter().map(Address::to_string).collect();
            format!("nothing listens at {address}: there are {}", known.join(", "))
        }
        Selector::Generation(number) | Selector::Before(number) => {
            let newest = pools.iter().map(|(_, pool)| pool.status().generation).max().unwrap_or_default();
            let first = newest + u32::from(matches!(selector, Selector::Before(_)));
            if *number <= first {
                return Ok(());
            }
            format!("generation {number} has not begun: the newest is {newest}")
        }
        Selector::Id(ConnectionId(id)) if !matches() => format!("no connection has the number {id}: it may have ended"),
        _ => return Ok(()),
    };
    Err(Answer::error(404, why))
}

fn network(text: &str) -> Option<Selector> {
    let (address, prefix) = text.split_once('/').unwrap_or((text, ""));
    let address: IpAddr = address.parse().ok()?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = if prefix.is_empty() { bits } else { prefix.parse().ok().filter(|prefix| *prefix <= bits)? };
    Some(Selector::Peers(address, prefix))
}

/// A connection, as a line of JSON.
#[derive(Serialize)]
struct ConnectionLine<'a> {
    pool: &'a str,
    id: u64,
    generation: u32,
    peer: Option<SocketAddr>,
    listener: Option<String>,
    side: &'static str,
    age_seconds: f64,
    bytes_in: u64,
    bytes_out: u64,
    state: ConnectionState,
    draining: bool,
    tag: Option<&'a str>,
}

/// Writes all connections that match, a line each.
pub(super) fn write(pools: &[(String, Pool)], selector: &Selector, to: &mut dyn Write) -> io::Result<()> {
    for (name, pool) in pools {
        for connection in pool.each_connection(selector) {
            serde_json::to_writer(&mut *to, &line(name, &connection))?;
            to.write_all(b"\n")?;
        }
    }
    Ok(())
}

fn line<'a>(pool: &'a str, connection: &'a ConnectionStatus) -> ConnectionLine<'a> {
    ConnectionLine {
        pool,
        id: connection.id.0,
        generation: connection.generation,
        peer: connection.peer,
        listener: connection.listener.as_ref().map(Address::to_string),
        side: if connection.side == Side::Accepted { "accepted" } else { "connected" },
        age_seconds: connection.age.as_secs_f64(),
        bytes_in: connection.bytes_in,
        bytes_out: connection.bytes_out,
        state: connection.state,
        draining: connection.draining,
        tag: connection.tag.as_deref(),
    }
}
