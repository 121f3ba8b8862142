//! Result of a run: the object that `--json` prints, and the text for people.

use crate::cause::{Cause, all_at_once, cause, turned_away};
use crate::latency::{Columns, row};
use crate::machine::{Machine, busy_with_others};
use crate::numbers::{bytes, float, per_second, thousands, time};
use crate::orders::STOPPED;
use crate::part::{AgentPart, Parts};
use crate::rate::Rate;
use crate::server::Server;
use crate::threshold::Judgement;
use crate::wall::Wall;
use crate::workload::http::Http;
use crate::workload::{self, Acks, Errors, Latencies, Operations, TlsReport, WebSocketReport};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// Result of a run. Serialized, it is the documented result; its field names are what thresholds and comparisons use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Report {
    /// The name and version of this form: sockdrawer.load/2. The version grows when a field changes its meaning, not when there are more.
    pub schema: Cow<'static, str>,
    /// The version of the program.
    pub version: Cow<'static, str>,
    /// The command line as it was typed; null where a program made the run through the library.
    pub command: Option<String>,
    /// The plan that was carried out: options by their long names, as in plan.toml; null where there was no command line.
    pub plan: Option<Value>,
    /// The servers, with blanks between; null: a server in the process of the clients.
    pub target: Option<String>,
    /// The first connect: RFC 3339, UTC.
    pub started: String,
    /// The end, when the last connection was closed: RFC 3339, UTC.
    pub ended: String,
    /// True where the plan was carried out to its end; false: interrupted, stopped, no connection was left, or all was done but the part
    /// of a process of clients, or an agent, that was lost.
    pub complete: bool,
    /// Reason why a run that is not complete ended early, in words.
    pub ended_early: Option<String>,
    /// The seed of random choices.
    pub seed: u64,
    /// Name of the workload: what the connections did.
    pub workload: Cow<'static, str>,
    /// Where.
    pub machine: Machine,
    /// Seconds from the first connect to the end, or to the last operation when one ended later.
    pub seconds: f64,
    /// Connections.
    pub connections: Connections,
    /// Operations.
    pub operations: Operations,
    /// Rate that was asked for, and whether it was kept; only of runs whose operations are due at moments of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Times that connects and operations took.
    pub latency_us: Latencies,
    /// Errors by kind, and the number of each.
    pub errors: Vec<Errors>,
    /// Cost of the clients.
    pub client: Client,
    /// Part of each agent of another machine in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentPart>,
    /// Cost of the server, where it is known.
    pub server: Server,
    /// CPUs of this machine that other programs used meanwhile, in the mean; null where that cannot be known.
    #[serde(default)]
    pub others_cpus: Option<f64>,
    /// Limit that stopped the run from being more, where that can be said.
    pub wall: Option<Wall>,
    /// Thresholds that were asked for, and whether each holds.
    pub thresholds: Vec<Judgement>,
    /// Orders that the run was given while it went on.
    pub actions: Vec<Action>,
    /// TLS of the clients; only where they speak it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsReport>,
    /// WebSockets of the clients; only where they speak it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub websocket: Option<WebSocketReport>,
    /// Figures of the workload `acks` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acks: Option<Acks>,
    /// Figures of the workload `http` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
}

/// Connections of a run; attempted = established + failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Connections {
    /// Connects whose end is known.
    pub attempted: u64,
    /// Attempted connections that were established.
    pub established: u64,
    /// Attempted connections that failed.
    pub failed: u64,
    /// Established connections that the peer or the network ended before their work was done.
    pub lost: u64,
    /// Established connections that this side ended before the time was over: their work was done, it gave up, or it was told to.
    pub closed: u64,
    /// Established connections that were open when the time was over; established = open + closed + lost.
    pub open: u64,
    /// Maximum of connections that were open at once.
    pub peak: u64,
    /// Connections that there were to be and whose connect was not begun when the time was over.
    #[serde(default)]
    pub not_begun: u64,
    /// Connections established per second: until the last one of them where none is replaced.
    #[serde(default)]
    pub per_second: f64,
    /// Established connections that took the place of another one; null where none is replaced, or each is for one operation.
    pub reconnected: Option<u64>,
}

/// Something that a run was told while it went on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Action {
    /// Seconds since the first connect.
    pub at: f64,
    /// What.
    pub what: String,
}

/// The client's cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Client {
    /// Memory that a connection took in its processes: growth at most, of 1,000 connections or more. A server in the process of the clients is in it.
    pub bytes_per_connection: Option<f64>,
    /// CPU time; null where the server in the process of the clients cannot be told from it.
    pub cpu_seconds: Option<f64>,
    /// Processes that ran clients.
    pub processes: u32,
    /// Processes that died before their time. Their connections count as lost.
    pub lost: u32,
}

/// Minimum CPU time, in seconds, that is divided by operations: of less, the start of a run is much.
const LEAST_CPU: f64 = 0.25;
/// A run that did not begin more than this part of its connections is not what was asked for.
const NOT_BEGUN: f64 = 0.05;

impl Report {
    /// The form that this version writes and reads.
    pub const SCHEMA: &'static str = "sockdrawer.load/2";
    /// The JSON schema of it.
    pub const JSON_SCHEMA: &'static str = include_str!("results/result.schema.json");

    /// Returns whether nothing failed and nothing was lost, all connections were begun, and the rate was kept that was asked for.
    pub fn is_clean(&self) -> bool {
        self.keeps_rate()
            && self.begins_all()
            && self.connections.failed + self.connections.lost + self.operations.failed == 0
            && self.errors.is_empty()
            && self.client.lost == 0
    }

    /// Returns true where nearly all connects were begun: those that were due in the last moment may be late on a busy machine.
    fn begins_all(&self) -> bool {
        let Connections { attempted, not_begun, .. } = self.connections;
        float(not_begun) <= NOT_BEGUN * float(attempted + not_begun)
    }

    fn keeps_rate(&self) -> bool {
        self.rate.is_none_or(|rate| rate.kept)
    }
}

impl Report {
    /// Returns the meaning of an error, by all that the run saw.
    pub fn cause(&self, error: &Errors) -> Option<Cause> {
        all_at_once(self, error)
            .or_else(|| turned_away(self, error))
            .or_else(|| cause(&error.phase, &error.errno, self.overflows_behind(error)))
    }

    /// Returns the number of connections that found an accept queue full, where they may be behind an error. The kernel counts each: an error that
    /// came more often has another reason, and the queue may be that of another listener in the server's network.
    pub(crate) fn overflows_behind(&self, error: &Errors) -> Option<u64> {
        self.server.listen_overflows.filter(|overflows| *overflows >= error.count)
    }

    /// Returns the errors of the kind that came most often.
    pub fn most_frequent_error(&self) -> Option<&Errors> {
        self.errors.iter().max_by_key(|error| error.count)
    }

    /// Returns in a few words whether all went well, and if not, what did not.
    pub fn verdict(&self) -> String {
        let missed: Vec<String> = self
            .thresholds
            .iter()
            .filter(|judgement| !judgement.ok)
            .map(|judgement| format!("{}: {}", judgement.expr, judgement.words()))
            .collect();
        let connections = &self.connections;
        let bad = [
            (connections.failed, "connects failed"),
            (self.operations.failed, "operations failed"),
            (connections.lost, "connections were lost"),
            (u64::from(self.client.lost), if self.agents.is_empty() { "processes of clients died" } else { "agents were lost" }),
        ];
        let bad = bad.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{} {what}", thousands(*count)));
        let not_begun = || format!("{} connections were never begun", thousands(connections.not_begun));
        let bad = bad.chain((!self.begins_all()).then(not_begun));
        let bad: Vec<String> = bad.chain((!self.keeps_rate()).then(|| "the rate was not kept".to_owned())).collect();
        match (self.thresholds.len(), missed.as_slice(), bad.as_slice()) {
            (0, _, []) => "ok, nothing failed".to_owned(),
            (0, _, bad) => format!("FAILED: {}", bad.join(", ")),
            (_, missed @ [_, ..], _) => format!("FAILED: {}", missed.join(", ")),
            (1, ..) => "ok, the threshold is kept".to_owned(),
            (kept, ..) => format!("ok, all {kept} thresholds are kept"),
        }
    }

    /// Returns the part of this CPU time that an operation took, in words.
    fn each(&self, cpu_seconds: Option<f64>) -> String {
        let bears = |seconds: &f64| self.operations.ok > 0 && *seconds >= LEAST_CPU;
        let each = cpu_seconds.filter(bears).map(|seconds| seconds * 1e6 / float(self.operations.ok));
        each.map_or_else(|| "-".to_owned(), time)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Action { at, what } = self;
        match what.strip_prefix(STOPPED) {
            Some(time) => write!(
                f,
                "\nstopped     {time} until {at:.1} s, by a signal: what was under way is late, or failed, for that reason"
            ),
            None => write!(f, "\ncommand      {what}, at {at:.1} s"),
        }
    }
}

impl Report {
    fn tell_latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "latency      {Columns}")?;
        row(f, "connect", &self.latency_us.connect)?;
        writeln!(f)?;
        if let Some(handshake) = &self.latency_us.handshake {
            row(f, "handshake", handshake)?;
            writeln!(f)?;
        }
        if let Some(websocket) = &self.latency_us.websocket {
            row(f, "websocket", websocket)?;
            writeln!(f)?;
        }
        // The first byte of round trips is that of the first question of each connection.
        let of_each = !matches!(self.workload.as_ref(), "ping" | "echo");
        if let Some(first_byte) = self.latency_us.first_byte.filter(|_| of_each) {
            row(f, "first byte", &first_byte)?;
            writeln!(f)?;
        }
        row(f, "operation", &self.latency_us.operation)?;
        if self.latency_us.lag.max.is_some() {
            writeln!(f)?;
            row(f, "service", &self.latency_us.uncorrected)?;
            writeln!(f)?;
            row(f, "send delay", &self.latency_us.lag)?;
            write!(f, "\n  operation: due to answered; service: sent to answered; send delay: due to sent")?;
        }
        Ok(())
    }

    fn tell(&self, error: &Errors, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\nerror        {} {}: {}", error.phase, error.errno, thousands(error.count))?;
        match (error.first, error.last) {
            (Some(first), Some(last)) if last - first < 0.05 => write!(f, ", at {first:.1} s")?,
            (Some(first), Some(last)) => write!(f, ", from {first:.1} s to {last:.1} s")?,
            _ => {}
        }
        self.cause(error).map_or(Ok(()), |cause| write!(f, "; {cause}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (connections, operations) = (&self.connections, &self.operations);
        let Connections { attempted, established, failed, lost, peak, reconnected, .. } = *connections;
        let [attempted, established, failed, lost, peak] = [attempted, established, failed, lost, peak].map(thousands);
        let [ok, bad] = [operations.ok, operations.failed].map(thousands);
        writeln!(f, "operations   {ok} ok, {bad} failed, {}/s", per_second(operations.per_second))?;
        if let Some(rate) = self.rate.filter(|rate| !rate.kept) {
            writeln!(f, "rate         {rate}")?;
        }
        if let Some(acks) = &self.acks {
            workload::numbers(f, acks)?;
        }
        writeln!(
            f,
            "connections  {attempted} attempted, {established} established, {failed} failed, {lost} lost{}, {peak} at once",
            reconnected
                .filter(|count| *count > 0)
                .map_or_else(String::new, |count| format!(", {} reconnected", thousands(count)))
        )?;
        if connections.not_begun > 0 {
            writeln!(
                f,
                "not begun    {} connections, when the time was over: use a longer -d, --hold, or a higher --connect-rate",
                thousands(connections.not_begun)
            )?;
        }
        if let Some(tls) = &self.tls {
            writeln!(f, "{tls}")?;
        }
        if let Some(websocket) = &self.websocket {
            writeln!(f, "{websocket}")?;
        }
        writeln!(f, "time         {:.3} s", self.seconds)?;
        self.tell_latencies(f)?;
        write!(f, "\nCPU          {} per operation in the client, ", self.each(self.client.cpu_seconds))?;
        write!(f, "{} in the server", self.each(self.server.cpu_seconds))?;
        let cpus = float(self.machine.cpus as u64);
        if let Some(others) = self.others_cpus.and_then(|others| busy_with_others(others, cpus)) {
            write!(f, "\nothers       {others}: rates and latencies may be those of a busy machine")?;
        }
        if let Some(each) = self.client.bytes_per_connection {
            write!(f, "\nclient       {} for each connection", bytes(each))?;
        }
        write!(f, "{}", self.server)?;
        write!(f, "{}", Parts(&self.agents))?;
        self.actions.iter().try_for_each(|action| action.fmt(f))?;
        self.errors.iter().try_for_each(|error| self.tell(error, f))?;
        if let Some(acks) = &self.acks {
            workload::hints(f, acks, (operations, &self.errors), self.seconds)?;
        }
        if let Some(http) = &self.http {
            write!(f, "\n{http}")?;
        }
        // Last what the run is judged by: it is what is still to be seen.
        for judgement in &self.thresholds {
            write!(f, "\nthreshold    {judgement}")?;
        }
        if let Some(Wall { name, why, remedy }) = &self.wall {
            write!(f, "\nlimited by   {name}: {why}; {remedy}")?;
        }
        if let Some(why) = &self.ended_early {
            write!(f, "\nended early  {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::latency::Percentiles;
    use serde_json::json;

    pub(crate) fn report() -> Report {
        let machine =
            Machine { cpus: 2, cpu: None, architecture: "x86_64".into(), kernel: Some("6.18".to_owned()), ..Machine::default() };
        let operation = Percentiles {
            mean: Some(20.5),
            p50: Some(12.5),
            p90: Some(1_500.0),
            p95: Some(1_600.0),
            p99: Some(2_000_000.0),
            ..Percentiles::default()
        };
        Report {
            schema: Report::SCHEMA.into(),
            version: "0.1.0".into(),
            command: Some("sockdrawer load ping 127.0.0.1:9000".to_owned()),
            plan: Some(json!({"workload": "ping"})),
            target: Some("127.0.0.1:9000".to_owned()),
            started: "2026-11-24T12:00:00.000Z".to_owned(),
            ended: "2026-11-24T12:00:02.000Z".to_owned(),
            complete: true,
            ended_early: None,
            seed: 7,
            workload: "ping".into(),
            machine,
            seconds: 2.0,
            connections: Connections {
                attempted: 10,
                established: 8,
                failed: 2,
                lost: 1,
                open: 7,
                peak: 8,
                per_second: 4.0,
                ..Connections::default()
            },
            operations: Operations { ok: 100, failed: 3, per_second: 50.0 },
            rate: None,
            latency_us: Latencies {
                connect: Percentiles::default(),
                handshake: None,
                websocket: None,
                first_byte: None,
                operation,
                uncorrected: Percentiles::default(),
                lag: Percentiles::default(),
            },
            errors: vec![Errors {
                phase: "connect".into(),
                errno: "ECONNREFUSED".to_owned(),
                count: 2,
                first: Some(0.25),
                last: Some(0.5),
            }],
            client: Client { bytes_per_connection: None, cpu_seconds: Some(0.25), processes: 1, lost: 0 },
            agents: Vec::new(),
            server: Server::default(),
            others_cpus: None,
            wall: None,
            thresholds: Vec::new(),
            actions: Vec::new(),
            tls: None,
            websocket: None,
            acks: None,
            http: None,
        }
    }

    #[test]
    fn the_json_is_the_documented_object() {
        let expected = r#"{"schema":"sockdrawer.load/2","version":"0.1.0","command":"sockdrawer load ping 127.0.0.1:9000","plan":{"workload":"ping"},"target":"127.0.0.1:9000","started":"2026-11-24T12:00:00.000Z","ended":"2026-11-24T12:00:02.000Z","complete":true,"ended_early":null,"seed":7,"workload":"ping","machine":{"cpus":2,"cpu":null,"architecture":"x86_64","kernel":"6.18","memory_bytes":null,"cpu_quota":null,"memory_limit_bytes":null},"seconds":2.0,"connections":{"attempted":10,"established":8,"failed":2,"lost":1,"closed":0,"open":7,"peak":8,"not_begun":0,"per_second":4.0,"reconnected":null},"operations":{"ok":100,"failed":3,"per_second":50.0},"latency_us":{"connect":{"min":null,"mean":null,"p50":null,"p90":null,"p95":null,"p99":null,"p999":null,"max":null},"operation":{"min":null,"mean":20.5,"p50":12.5,"p90":1500.0,"p95":1600.0,"p99":2000000.0,"p999":null,"max":null},"uncorrected":{"min":null,"mean":null,"p50":null,"p90":null,"p95":null,"p99":null,"p999":null,"max":null},"lag":{"min":null,"mean":null,"p50":null,"p90":null,"p95":null,"p99":null,"p999":null,"max":null}},"errors":[{"phase":"connect","errno":"ECONNREFUSED","count":2,"first":0.25,"last":0.5}],"client":{"bytes_per_connection":null,"cpu_seconds":0.25,"processes":1,"lost":0},"server":{"cpu_seconds":null,"bytes_per_connection":null,"kernel_bytes_per_connection":null,"cpu_us_per_operation":null,"cpu_us_per_accept":null,"listen_overflows":null,"listen_drops":null},"others_cpus":null,"wall":null,"thresholds":[],"actions":[]}"#;
        assert_eq!(serde_json::to_string(&report()).expect("a report has no maps with odd keys"), expected);
        assert_eq!(serde_json::from_str::<Report>(expected).expect("the same object"), report());
    }

    #[test]
    fn what_is_known_of_the_server_is_a_line() {
        let server = Server {
            bytes_per_connection: Some(59.7),
            kernel_bytes_per_connection: Some(7539.6),
            cpu_us_per_operation: Some(32.0),
            cpu_us_per_accept: Some(38.1),
            listen_overflows: Some(0),
            ..Server::default()
        };
        let expected = "\nserver       60 B for each connection, 7.4 KiB of the kernel, both ends if both are here, \
                        38.1 us of CPU for an accept, 32.0 us for an operation";
        assert_eq!(server.to_string(), expected);
        assert_eq!(Server { cpu_us_per_operation: Some(32.0), ..Server::default() }.to_string(), "", "the line CPU has it");
    }

    #[test]
    fn people_get_all_of_it() {
        let expected = "\
operations   100 ok, 3 failed, 50.0/s
connections  10 attempted, 8 established, 2 failed, 1 lost, 8 at once
time         2.000 s
latency            mean        p50        p95        p99      p99.9        max
  connect             -          -          -          -          -          -
  operation     20.5 us    12.5 us    1.60 ms     2.00 s          -          -
CPU          2.50 ms per operation in the client, - in the server
error        connect ECONNREFUSED: 2, from 0.2 s to 0.5 s; nothing listens there: start the server, or check the address and port";
        assert_eq!(report().to_string(), expected);
        assert!(!report().is_clean());
        let busy = |others| Report { others_cpus: Some(others), ..report() }.to_string();
        assert!(
            busy(1.1).contains("\nothers       other programs used 1.1 of this machine's 2 CPUs meanwhile: "),
            "{}",
            busy(1.1)
        );
        assert_eq!(busy(0.2), expected);
    }

    #[test]
    fn a_run_that_did_not_begin_its_connections_is_not_ok() {
        let begun = |attempted, not_begun| {
            let connections = Connections { attempted, established: attempted, not_begun, ..Connections::default() };
            let operations = Operations { ok: 100, ..Operations::default() };
            Report { connections, operations, errors: Vec::new(), ..report() }
        };
        let half = begun(101, 99);
        assert_eq!((half.verdict().as_str(), half.is_clean()), ("FAILED: 99 connections were never begun", false));
        assert!(half.to_string().contains("\nnot begun    99 connections, when the time was over: use a longer -d"), "{half}");
        assert_eq!(begun(196, 4).verdict(), "ok, nothing failed", "a busy machine is late with the last");
    }

    #[test]
    fn what_the_run_was_told_and_large_numbers_are_for_people() {
        let action = |at, what: &str| Action { at, what: what.to_owned() };
        let actions = vec![action(1.25, "suspend"), action(3.5, "connections +6"), action(9.0, "stopped for 2.0 s")];
        let operations = Operations { ok: 251_667, failed: 333_374, per_second: 58_504.12 };
        let connections = Connections { attempted: 120_316, ..report().connections };
        let text = Report { actions, operations, connections, ..report() }.to_string();
        for line in [
            "operations   251,667 ok, 333,374 failed, 58,504/s",
            "connections  120,316 attempted",
            "command      suspend, at 1.2 s",
            "command      connections +6, at 3.5 s",
            "stopped      for 2.0 s until 9.0 s",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn little_cpu_time_is_not_divided_among_operations() {
        let short = Report { client: Client { cpu_seconds: Some(0.2), ..report().client }, ..report() };
        assert!(short.to_string().contains("\nCPU          - per operation in the client"), "{short}");
    }

    #[test]
    fn a_verdict_says_what_failed() {
        assert_eq!(report().verdict(), "FAILED: 2 connects failed, 3 operations failed, 1 connections were lost");
        let judgement = |ok| Judgement { expr: "p99<1s".to_owned(), value: Some(2_000_000.0), ok, within_spread: false };
        let judged = |thresholds| Report { thresholds, ..report() }.verdict();
        assert_eq!(judged(vec![judgement(true), judgement(false)]), "FAILED: p99<1s: 2.00 s");
        assert_eq!(judged(vec![judgement(true)]), "ok, the threshold is kept");
        assert_eq!(judged(vec![judgement(true), judgement(true)]), "ok, all 2 thresholds are kept");
    }

    #[test]
    fn thresholds_and_the_wall_come_last() {
        let thresholds = vec![Judgement { expr: "p99<1s".to_owned(), value: Some(2_000_000.0), ok: false, within_spread: false }];
        let [name, why, remedy] = ["accept queue", "it was full", "a longer backlog"].map(str::to_owned);
        let report = Report { thresholds, wall: Some(Wall { name, why, remedy }), ..report() };
        let text = report.to_string();
        let expected = "\nthreshold    FAILED  p99<1s: 2.00 s\nlimited by   accept queue: it was full; a longer backlog";
        assert!(text.ends_with(expected), "{text}");
    }
}
