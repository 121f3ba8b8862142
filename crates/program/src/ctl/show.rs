//! Answers of a server, for people.

use super::status::{Own, Pool, Status, Tls};
use crate::table::{Table, age, bytes, count, plain};
use serde::Deserialize;
use serde_json::Value;
use std::time::{Duration, UNIX_EPOCH};

/// Returns the server in a line.
pub(super) fn headline(status: &Status) -> String {
    let Status { version, pid, uptime_seconds, revision, changes, failed_changes, ready, .. } = status;
    let up = age(Duration::try_from_secs_f64(*uptime_seconds).unwrap_or_default());
    let changes = match (changes, failed_changes) {
        (0, 0) => String::new(),
        (changes, 0) => format!(" ({} changes)", count(*changes)),
        (changes, failed) => format!(" ({} changes, {} failed)", count(*changes), count(*failed)),
    };
    let ready = if *ready { "ready" } else { "not ready" };
    plain(&format!("pid {pid}, version {version}, up {up}, revision {revision}{changes}, {ready}"))
}

pub(super) fn pools(status: &Status) -> Table {
    let mut table = Table::new(&["POOL", "PROTOCOL", "MODEL", "STATE", ">CONNECTIONS", ">LIMIT", ">ACCEPTED", ">REJECTED"]);
    for (name, pool) in &status.pools {
        table.row([
            name.clone(),
            pool.protocol.clone(),
            pool.model.clone(),
            pool.readiness.clone(),
            count(pool.connections),
            count(pool.limit),
            count(pool.counted("accepted")),
            count(pool.counted("rejected")),
        ]);
    }
    table
}

/// Shows the traffic of each pool, and what went wrong.
pub(super) fn traffic(status: &Status) -> Table {
    let mut table = Table::new(&["POOL", ">RECEIVED", ">SENT", ">CLOSED", ">ERRORS", ">CUT", ">PANICS", ">RESTARTS", ">JOBS"]);
    for (name, pool) in &status.pools {
        let of = |counter: &str| count(pool.counted(counter));
        #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
        let in_bytes = |counter: &str| bytes(pool.counted(counter) as f64);
        table.row([
            name.clone(),
            in_bytes("bytes_in"),
            in_bytes("bytes_out"),
            of("closed"),
            of("errors"),
            of("cut"),
            of("panics"),
            count(pool.restarts),
            count(pool.jobs_waiting),
        ]);
    }
    table
}

/// Tables of the program's own: all, or that of a name.
pub(super) fn own(status: &Status, name: Option<&str>) -> Vec<Table> {
    let shown = status.tables.iter().filter(|(of, _)| name.is_none_or(|name| name == of.as_str()));
    let table = |(_, own): (&String, &Own)| {
        let rows: Vec<_> = own.rows.iter().filter(|row| row.len() == own.columns.len()).collect();
        let title = |(at, name): (usize, &String)| {
            let said = || rows.iter().map(|row| &row[at]).filter(|cell| cell.as_str() != Some(""));
            let of_numbers = said().next().is_some() && said().all(Value::is_number);
            format!("{}{}", if of_numbers { ">" } else { "" }, name.to_uppercase().replace('_', " "))
        };
        let mut table = Table::new(&own.columns.iter().enumerate().map(title).collect::<Vec<_>>());
        let cell = |cell: &Value| cell.as_u64().map_or_else(|| cell.as_str().unwrap_or_default().to_owned(), count);
        rows.iter().for_each(|row| table.row(row.iter().map(cell)));
        table
    };
    shown.map(table).collect()
}

/// Returns the certificates of pools that serve TLS, how long they are good, and the handshakes.
pub(super) fn tls(status: &Status) -> Table {
    let mut table = Table::new(&["POOL", ">HANDSHAKES", ">RESUMED", ">FAILED", "CERTIFICATES"]);
    for (name, pool) in &status.pools {
        let Tls { certificates, handshakes } = &pool.tls;
        if certificates.is_empty() {
            continue;
        }
        let of = |outcome: &str| handshakes.get(outcome).copied().unwrap_or_default();
        let (resumed, failed) = (of("resumed"), of("failed"));
        let certificates: Vec<String> =
            certificates.iter().map(|one| format!("{} {}", one.file, good_for(one.expires))).collect();
        let done = of("full") + resumed;
        table.row([name.clone(), count(done), count(resumed), count(failed), certificates.join(", ")]);
    }
    table
}

fn good_for(expires: Option<u64>) -> String {
    let now = UNIX_EPOCH.elapsed().unwrap_or_default();
    let expires = expires.map(Duration::from_secs);
    match expires {
        None => "(expiry unknown)".to_owned(),
        Some(expires) if expires > now => format!("(expires in {})", age(expires - now)),
        Some(expires) => format!("(EXPIRED {} ago)", age(now - expires)),
    }
}

pub(super) fn generations(status: &Status) -> Table {
    let mut table = Table::new(&["POOL", ">GENERATION", ">CONNECTIONS", "STATE"]);
    for (name, pool) in &status.pools {
        for one in &pool.generations {
            let state = if one.id == pool.generation { "in force" } else { "retired" };
            table.row([name.clone(), one.id.to_string(), count(one.connections), state.to_owned()]);
        }
    }
    table
}

pub(super) fn listeners(status: &Status) -> Table {
    let mut table = Table::new(&["POOL", "ADDRESS", "STATE", ">CONNECTIONS", ">LIMIT", ">QUEUED", ">BACKLOG"]);
    let all = |(name, pool): (&'_ String, &'_ Pool)| {
        let row = |one: &super::status::Listener| {
            let limit = one.limit.map_or_else(|| "-".to_owned(), count);
            let (state, queued, backlog) = (one.readiness.clone(), count(one.queued), count(one.backlog));
            [name.clone(), one.address.clone(), state, count(one.connections), limit, queued, backlog]
        };
        pool.listeners.iter().map(row).collect::<Vec<_>>()
    };
    status.pools.iter().flat_map(all).for_each(|row| table.row(row));
    table
}

/// A line of `GET /connections`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Connection {
    pool: String,
    id: u64,
    generation: u32,
    peer: Option<String>,
    listener: Option<String>,
    age_seconds: f64,
    bytes_in: u64,
    bytes_out: u64,
    state: String,
    draining: bool,
    tag: Option<String>,
}

pub(super) fn connections() -> Table {
    Table::new(&["POOL", ">ID", ">GEN", "PEER", ">AGE", ">IN", ">OUT", "STATE", "TAG"])
}

/// Adds a connection to their table.
#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
pub(super) fn connection(line: &str, table: &mut Table) -> Result<(), serde_json::Error> {
    let one: Connection = serde_json::from_str(line)?;
    let state = if one.draining { format!("{}, draining", one.state.to_lowercase()) } else { one.state.to_lowercase() };
    table.row([
        one.pool,
        one.id.to_string(),
        one.generation.to_string(),
        // Peers of Unix sockets have no address.
        one.peer.or(one.listener).unwrap_or_default(),
        age(Duration::try_from_secs_f64(one.age_seconds).unwrap_or_default()),
        bytes(one.bytes_in as f64),
        bytes(one.bytes_out as f64),
        state,
        one.tag.unwrap_or_default(),
    ]);
    Ok(())
}

/// The steps of a change that was made, or would be.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Changed {
    revision: u64,
    committed: bool,
    plan: Vec<Step>,
    took_us: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Step {
    pool: Option<String>,
    setting: String,
    how: String,
    detail: String,
}

impl Changed {
    /// Returns the plan, a step to a line.
    pub(super) fn plan(&self) -> Option<Table> {
        let mut table = Table::new(&["POOL", "SETTING", "HOW", "DETAIL"]);
        for step in &self.plan {
            let pool = step.pool.clone().unwrap_or_else(|| "(program)".to_owned());
            table.row([pool, step.setting.clone(), step.how.clone(), step.detail.clone()]);
        }
        (!self.plan.is_empty()).then_some(table)
    }

    /// Says what came of it.
    pub(super) fn words(&self) -> String {
        let Changed { revision, committed, plan, took_us } = self;
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let took = sockdrawer_catalog::time::short(*took_us as f64);
        match (committed, plan.len()) {
            (_, 0) => format!("nothing to change: revision {revision} is in force"),
            (true, _) => format!("changed in {took}: revision {revision} is in force"),
            (false, _) => format!("nothing was changed (dry run): revision {revision} is in force"),
        }
    }
}

/// The last revisions, and where a rollback goes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Revisions {
    revision: u64,
    rollback_to: Option<u64>,
    revisions: Vec<Revision>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Revision {
    revision: u64,
    at: f64,
    what: String,
    by: String,
    back_to: Option<u64>,
    plan: Vec<Step>,
}

impl Revisions {
    /// Tells the newest last, each with a line for each step.
    pub(super) fn words(&self) -> String {
        let mut lines = Vec::new();
        for Revision { revision, at, what, by, back_to, plan } in &self.revisions {
            let at = UNIX_EPOCH + Duration::try_from_secs_f64(*at).unwrap_or_default();
            let at = humantime::format_rfc3339_seconds(at);
            let back_to = back_to.map_or(String::new(), |number| format!(", back to revision {number}"));
            lines.push(format!("revision {revision}, {at}: {what} by {by}{back_to}"));
            lines.extend(plan.iter().map(|Step { pool, setting, how, detail }| {
                let pool = pool.as_deref().unwrap_or("(program)");
                format!("  {pool}: {setting}: {how} ({detail})")
            }));
        }
        let revision = self.revision;
        lines.push(match self.rollback_to {
            Some(number) => {
                format!("revision {revision} is in force; a rollback goes back to the configuration of revision {number}")
            }
            None => format!("revision {revision} is in force; no configuration before it is kept for a rollback"),
        });
        lines.iter().map(|line| plain(line)).collect::<Vec<_>>().join("\n")
    }
}

/// Returns an event as a line: the time of day in UTC, the pool, and what happened.
pub(super) fn event(line: &str) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Event {
        at: f64,
        pool: Option<String>,
        text: String,
    }
    let Ok(Event { at, pool, text }) = serde_json::from_str(line) else { return plain(line) };
    let of_day = Duration::try_from_secs_f64(at).unwrap_or_default().as_secs() % 86_400;
    let pool = pool.map_or(String::new(), |pool| format!("{pool}: "));
    plain(&format!("{:02}:{:02}:{:02} {pool}{text}", of_day / 3_600, of_day / 60 % 60, of_day % 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_fits_80_columns() {
        let pool = serde_json::json!({
            "protocol": "echo", "model": "prefork", "readiness": "serving", "connections": 15_000, "limit": 60_000,
            "generation": 2, "generations": [{"id": 1, "connections": 7}, {"id": 2, "connections": 14_993}],
            "listeners": [{"address": "127.0.0.1:9000", "connections": 15_000, "limit": null, "readiness": "serving", "queued": 0, "backlog": 4096}],
            "counts": {"accepted": 123_456_789, "rejected": 1_234, "bytes_in": 987_654_321, "bytes_out": 5},
        });
        let status = serde_json::json!({"version": "0.1.0", "pid": 4_000_000, "uptime_seconds": 3_725.5, "revision": 12, "changes": 11,
            "failed_changes": 1, "ready": true, "pools": {"web": pool}});
        let status: Status = serde_json::from_value(status).expect("a status");
        assert_eq!(headline(&status), "pid 4000000, version 0.1.0, up 1h 2m, revision 12 (11 changes, 1 failed), ready");
        for mut table in [pools(&status), traffic(&status), generations(&status), listeners(&status)] {
            for line in table.lines(None) {
                assert!(line.len() <= 80, "{line}");
            }
        }
        assert_eq!(generations(&status).lines(None)[1], "web            1            7  retired");
    }

    #[test]
    fn certificates_are_told_with_what_is_left_of_them() {
        let now = UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
        let certificates = serde_json::json!([
            {"file": "a.pem", "expires": now + 3 * 86_400 + 1_800}, {"file": "b.pem", "expires": now - 7_300}, {"file": "c.pem", "expires": null},
        ]);
        let tls = serde_json::json!({"certificates": certificates, "handshakes": {"full": 1_000, "resumed": 7, "failed": 3}});
        let status = serde_json::json!({"pools": {"plain": {}, "web": {"tls": tls}}});
        let status: Status = serde_json::from_value(status).expect("a status");
        let shown = self::tls(&status).lines(None);
        assert_eq!(shown.len(), 2);
        let certificates = "a.pem (expires in 3d 0h), b.pem (EXPIRED 2h 1m ago), c.pem (expiry unknown)";
        assert_eq!(shown[1], format!("web        1,007        7       3  {certificates}"));
    }

    #[test]
    fn a_connection_and_an_event_are_lines_without_anything_that_a_terminal_obeys() {
        let mut table = connections();
        let line = r#"{"pool":"web","id":7,"generation":2,"peer":"10.0.0.1:5000","age_seconds":61.5,"bytes_in":2048,"bytes_out":0,"state":"Idle","draining":true,"tag":"\u001b[2J"}"#;
        connection(line, &mut table).expect("a connection");
        assert!(table.lines(None)[1].ends_with("10.0.0.1:5000  1m 1s  2.0 kB  0 B  idle, draining  ?[2J"));
        assert!(connection("{", &mut table).is_err());
        assert_eq!(event(r#"{"at":3661.5,"pool":"web","text":"a\nb"}"#), "01:01:01 web: a?b");
        assert_eq!(event("no JSON\u{7}"), "no JSON?");
    }
}
