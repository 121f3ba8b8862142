//! Walls: the limit that stopped a run from being more, by name. It is found by errors, counters and how busy both ends were. Where nothing shows it,
//! none is named.

use crate::cause::{ACCEPT_FASTER, all_at_once, cause, overflown};
use crate::cgroup::{Limits, Quota, Throttling};
use crate::numbers::{float, median, thousands, time};
use crate::proc;
use crate::report::Report;
use crate::series::Sample;
use crate::workload::Errors;
use serde::{Deserialize, Serialize};

/// Part of what there is from which on something is full: the rest goes to others of the machine.
const FULL: f64 = 0.9;
/// CPUs that a thread that is busy all the time shows as.
const ONE_THREAD: std::ops::RangeInclusive<f64> = 0.93..=1.05;
/// Lag that no pause of a scheduler explains, in microseconds.
const MUCH_LAG: f64 = 10_000.0;
/// Lag that matters where it is half of the latency, of clients that use this part of their CPUs: others are late by what else runs there.
const SOME_LAG: f64 = 1_000.0;
const BUSY: f64 = 0.5;
/// Minimum number of operations for their 99th percentile: of fewer it is a few operations.
const MANY: u64 = 1_000;
/// Part of its periods from which on a quota that is used up shows in what is measured.
const THROTTLED: f64 = 0.05;
/// Fewer periods may be those of a start.
const LEAST_THROTTLED: u64 = 2;
/// Below this part of what was asked for, a rate of connects was not kept.
const KEPT: f64 = 0.95;
/// Segments that are sent again, of all: beyond this a network is full, or loses.
const MANY_AGAIN: f64 = 0.01;
/// Memory left, of all: below this the kernel refuses or kills.
const LITTLE_MEMORY: f64 = 0.03;
/// A process that has so few descriptors left accepts no more.
const FEW_DESCRIPTORS: u64 = 4;
/// Minimum length of a run in seconds: in less time the start of a run is most of what is seen.
const LEAST_SECONDS: f64 = 1.0;
/// Errors that load does not explain, of all operations: more are what the run is about.
const FEW_ERRORS: f64 = 0.01;
/// A handshake that was dropped is tried again after a second.
const HANDSHAKE_AGAIN: f64 = 1_000_000.0;

/// The limit that a run came up against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Wall {
    /// Name of the limit.
    pub name: String,
    /// Evidence for the limit.
    pub why: String,
    /// Remedy for the limit.
    pub remedy: String,
}

/// Evidence from a run besides its report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Evidence {
    /// CPUs that the clients were busy on, of each second.
    pub(crate) client: Vec<f64>,
    /// CPUs that the server was busy on, of each second.
    pub(crate) server: Vec<f64>,
    /// CPUs that this process may use. Its clients have a thread for each.
    pub(crate) cpus: f64,
    /// CPUs of the server's machine: a run that is kept to some of them is not kept from the others by its server.
    pub(crate) machine: f64,
    /// Clients are on other machines than the server, each of a CPU in parts: this one was busiest in the last second.
    pub(crate) busiest: Option<String>,
    /// The part of this machine's memory that was left when the least was.
    pub(crate) memory_left: Option<f64>,
    /// Descriptors that the server's fullest process had left.
    pub(crate) descriptors_left: Option<u64>,
    /// The part of this network's segments that was sent again.
    pub(crate) sent_again: Option<f64>,
    /// Connects per second that were asked for, where connections are replaced all the time.
    pub(crate) connect_rate: Option<f64>,
    /// Limits of this process by cgroups when it began.
    pub(crate) allowed: Limits,
    /// The part of its cgroup's memory that was left when the least was.
    pub(crate) allowed_left: Option<f64>,
    /// Number of times that a quota stopped the clients, and the server.
    pub(crate) throttled: [Option<Throttling>; 2],
    /// The agent of another machine that was stopped most.
    pub(crate) stopped: Option<String>,
}

impl Evidence {
    /// Creates the evidence: nothing but what this machine and its cgroups allow.
    pub(crate) fn new() -> Evidence {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let machine = float(proc::cpus() as u64);
        Evidence { cpus: float(cpus as u64), machine, allowed: Limits::own(), ..Evidence::default() }
    }

    /// Notes that the server is on another machine, with `cpus` CPUs.
    pub(crate) fn server_is_on(&mut self, cpus: usize) {
        self.machine = float(cpus as u64);
    }

    /// Takes a second of a run of agents, and which of them used what part of its CPUs.
    pub(crate) fn see_hosts(&mut self, sample: &Sample, busiest: Option<(String, f64)>) {
        let Some((name, part)) = busiest else { return };
        (self.busiest, self.cpus) = (Some(name), 1.0);
        self.see(sample, Some(part), None);
    }

    /// Takes a second of the run, the CPUs that the clients were busy on, and the part of this machine's memory that is left.
    pub(crate) fn see(&mut self, sample: &Sample, client: Option<f64>, memory_left: Option<f64>) {
        self.memory_left = memory_left.into_iter().chain(self.memory_left).min_by(f64::total_cmp);
        self.client.extend(client);
        if let Some(room) = &self.allowed.memory {
            let left = Some(float(room.memory_left()) / float(room.max.max(1)));
            self.allowed_left = left.into_iter().chain(self.allowed_left).min_by(f64::total_cmp);
        }
        let Some(server) = &sample.server else { return };
        self.server.extend(server.cpu);
        let left = server.descriptors_left.into_iter().chain(self.descriptors_left);
        self.descriptors_left = left.min();
    }

    /// Looks at how often quotas were used up meanwhile: that of this process, and that of the server where it has another.
    pub(crate) fn see_quotas(&mut self, server: Option<&Quota>) {
        self.throttled = [self.allowed.cpu.as_ref(), server].map(|quota| quota.map(Quota::since));
    }

    /// Looks at the agent that its quota stopped most: this process has no clients then.
    pub(crate) fn see_agents(&mut self, throttled: Option<(String, Throttling)>) {
        let (name, throttled) = throttled.unzip();
        (self.stopped, self.throttled[0]) = (name, throttled);
    }

    /// Returns the wall that this shows; the surest comes first.
    pub(crate) fn wall(&self, report: &Report) -> Option<Wall> {
        of_errors(report)
            .or_else(|| self.server_descriptors(report))
            .or_else(|| accept_queue(report))
            .or_else(|| self.memory())
            .or_else(|| if shows_load(report) { self.of_load(report) } else { None })
    }

    /// Returns the wall that load ran up against.
    fn of_load(&self, report: &Report) -> Option<Wall> {
        self.quota()
            .or_else(|| self.busy(report))
            .or_else(|| self.lag(report))
            .or_else(|| self.packets(report))
            .or_else(|| self.connections(report))
    }

    fn server_descriptors(&self, report: &Report) -> Option<Wall> {
        let left = self.descriptors_left.filter(|left| *left < FEW_DESCRIPTORS && !report.is_clean())?;
        let why = format!("a process of the server had {left} descriptors left");
        Some(wall(
            "server descriptors",
            why,
            "raise its limit: prlimit --pid PID --nofile=N, LimitNOFILE= or ulimit -n; doctor says how far",
        ))
    }

    fn memory(&self) -> Option<Wall> {
        if let (Some(left), Some(room)) = (self.allowed_left.filter(|left| *left < LITTLE_MEMORY), &self.allowed.memory) {
            let why = format!("{:.1} % of what {} allows was left", 100.0 * left, room.file.display());
            return Some(wall("memory", why, "raise that limit, or use fewer connections"));
        }
        let left = self.memory_left.filter(|left| *left < LITTLE_MEMORY)?;
        let why = format!("{:.1} % of this machine's memory was left", 100.0 * left);
        Some(wall("memory", why, "use fewer connections, or a machine with more memory"))
    }

    /// Returns the wall of a quota. Clients that a quota stops measure how long they were stopped.
    fn quota(&self) -> Option<Wall> {
        let clients = self.stopped.as_ref().map_or_else(|| "the load generator".to_owned(), |name| format!("agent {name}"));
        let names = ["client CPU", "server CPU"].into_iter().zip([clients, "the server".to_owned()]);
        let mut of_both = names.zip(&self.throttled).filter_map(|(names, throttled)| Some((names, throttled.as_ref()?)));
        let is_felt = |throttled: &Throttling| throttled.throttled >= LEAST_THROTTLED && throttled.share() >= THROTTLED;
        let ((name, whose), throttled) = of_both.find(|(_, throttled)| is_felt(throttled))?;
        let Throttling { cpus, file, periods, throttled } = throttled;
        let own = if name == "client CPU" { ": what was measured is its own limit too" } else { "" };
        let why =
            format!("its quota of {cpus:.2} CPUs ({}) stopped {whose} in {throttled} of {periods} periods{own}", file.display());
        Some(wall(name, why, "raise the quota, or do without one"))
    }

    /// Returns the wall of busy CPUs. Clients that are busy measure themselves, whatever came of it.
    fn busy(&self, report: &Report) -> Option<Wall> {
        let middle = |values: &[f64]| median(values.to_vec()).unwrap_or(0.0);
        let (client, server) = (middle(&self.client), middle(&self.server));
        let (cpus, machine) = (self.cpus, self.machine);
        if let Some(name) = self.busiest.as_ref().filter(|_| client >= FULL) {
            let why = format!("agent {name} used {:.0} % of its CPUs: what was measured is its own limit too", 100.0 * client);
            return Some(wall("client CPU", why, "use more agents, or machines with more CPUs"));
        }
        if client >= FULL * cpus && client > 0.0 {
            let why = format!("the load generator used {client:.1} of {cpus:.0} CPUs: what was measured is its own limit too");
            return Some(wall("client CPU", why, "put the clients on another machine, or on one with more CPUs"));
        }
        if server >= FULL * machine && server > 0.0 {
            return Some(wall("server CPU", format!("the server used {server:.1} of {machine:.0} CPUs"), SERVER_CPU));
        }
        if client + server >= FULL * machine && server > 0.0 && self.busiest.is_none() {
            let why =
                format!("client and server share {machine:.0} CPUs and used all: {client:.1} the client, {server:.1} the server");
            let remedy = "put the clients on another machine";
            return Some(wall(if client > server { "client CPU" } else { "server CPU" }, why, remedy));
        }
        if ONE_THREAD.contains(&server) && !report.is_clean() {
            let why = format!("the server used {server:.2} CPUs, as much as one thread can");
            return Some(wall("server CPU", why, "run it with more threads or processes"));
        }
        None
    }

    fn lag(&self, report: &Report) -> Option<Wall> {
        let lag = report.latency_us.lag.p99.filter(|_| report.operations.ok >= MANY)?;
        let operation = report.latency_us.operation.p99.unwrap_or(0.0);
        let is_busy = median(self.client.clone()).is_some_and(|busy| busy >= BUSY * self.cpus);
        if lag < MUCH_LAG && !(is_busy && lag >= SOME_LAG && lag >= operation / 2.0) {
            return None;
        }
        let why = format!(
            "the load generator could not keep its schedule: 1 % of the operations were sent {} late or later",
            time(lag)
        );
        Some(wall(
            "client CPU",
            why,
            "use fewer connections or a longer --interval on this machine, or put the clients on another one",
        ))
    }

    fn connections(&self, report: &Report) -> Option<Wall> {
        let connects = report.connections.per_second;
        let begun = match (report.rate, self.connect_rate) {
            (Some(rate), _) => (!rate.kept).then_some(rate.begun),
            (None, Some(asked)) => (connects < KEPT * asked).then_some(connects),
            (None, None) => None,
        };
        begun.and_then(|begun| too_few_connections(report, begun))
    }

    fn packets(&self, report: &Report) -> Option<Wall> {
        let again = self.sent_again.filter(|again| *again > MANY_AGAIN && !report.is_clean())?;
        let why = format!("{:.1} % of the TCP segments were sent again", 100.0 * again);
        Some(wall(
            "packets",
            why,
            "look for the interface or link that is full or loses (ethtool -S, nstat -az), or send less: --interval",
        ))
    }
}

/// Returns true where a run can show what was full: it lasted, and its errors may come of load. Errors such as a refusal, or a wrong answer, come at
/// any load, and name their reason themselves.
fn shows_load(report: &Report) -> bool {
    let of_load = |error: &Errors| match error.phase.as_ref() {
        // A server that is busy is late, and does not show another certificate.
        "handshake" | "tls" | "upgrade" | "websocket" => is_late(&error.errno),
        "status" | "verify" | "format" | "client" => false,
        "connect" => matches!(error.errno.as_str(), "ETIMEDOUT" | "ECONNRESET" | "EAGAIN"),
        _ => true,
    };
    let other: u64 = report.errors.iter().filter(|error| !of_load(error)).map(|error| error.count).sum();
    report.seconds >= LEAST_SECONDS && float(other) <= FEW_ERRORS * float(report.operations.ok)
}

/// Returns true where a handshake failed by its time, or by the end of its connection: load does not explain other reasons.
pub(crate) fn is_late(reason: &str) -> bool {
    [
        "did not end in time",
        "ended in the TLS handshake",
        "ended in the WebSocket handshake",
        "under way when the run ended",
        "reset",
    ]
    .iter()
    .any(|late| reason.contains(late))
}

const SERVER_CPU: &str = "make each operation cheaper (see cpu_us_per_operation), or give it more CPUs";

/// Returns the wall of errors that say it themselves.
fn of_errors(report: &Report) -> Option<Wall> {
    let walls = [
        ("client descriptors", ["EMFILE", "ENFILE"]),
        ("client ports", ["EADDRNOTAVAIL", "EADDRINUSE"]),
        ("memory", ["ENOMEM", "ENOBUFS"]),
    ];
    walls.into_iter().find_map(|(name, errnos)| {
        let named = |error: &&Errors| error.phase == "connect" && errnos.contains(&error.errno.as_str());
        let errors = || report.errors.iter().filter(named);
        let remedy = cause("connect", &errors().max_by_key(|error| error.count)?.errno, None)?.remedy;
        let failed: u64 = errors().map(|error| error.count).sum();
        Some(wall(name, format!("{failed} connects failed with {}", errnos.join(" or ")), remedy))
    })
}

/// Returns the wall of a full accept queue. The kernel's counter alone is not enough: others may listen in the server's network. It takes an error
/// that a full queue makes, or a connect that took a second, because its handshake was dropped.
fn accept_queue(report: &Report) -> Option<Wall> {
    let overflows = report.server.listen_overflows.filter(|overflows| *overflows > 0)?;
    let is_of_it = |error: &Errors| {
        report.overflows_behind(error).is_some()
            && overflown(&error.phase, &error.errno).is_some()
            && all_at_once(report, error).is_none()
    };
    let was_felt = report.errors.iter().any(is_of_it) || report.latency_us.connect.max.is_some_and(|max| max >= HANDSHAKE_AGAIN);
    let why = format!("{overflows} connections found an accept queue full, of all listeners in the server's network");
    was_felt.then(|| wall("accept queue", why, ACCEPT_FASTER))
}

/// Returns the wall of too few connections. A rate needs as many connections at once as come in the time that one operation takes (Little's law);
/// `begun` is what it came to.
fn too_few_connections(report: &Report, begun: f64) -> Option<Wall> {
    let takes = match report.http.as_ref().and_then(|http| http.schedule) {
        Some(schedule) => schedule.uncorrected_us.mean,
        None => report.latency_us.uncorrected.mean,
    };
    let (takes, peak) = (takes?, report.connections.peak);
    (begun * takes / 1e6 >= FULL * float(peak)).then(|| {
        let why = format!("all {} waited for their answers, {} each in the mean", thousands(peak), time(takes));
        wall("connections", why, "use more of them (--connections), or see what makes the server slow")
    })
}

fn wall(name: &str, why: String, remedy: &str) -> Wall {
    Wall { name: name.to_owned(), why, remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::CgroupRoom;
    use crate::rate::Rate;
    use crate::report::tests;

    /// Returns the report of a run in which nothing went wrong, and both ends had time.
    fn clean() -> Report {
        let mut report = tests::report();
        report.errors.clear();
        report.operations.ok = 1_000;
        (report.connections.failed, report.connections.lost, report.operations.failed) = (0, 0, 0);
        (report.latency_us.operation.p99, report.latency_us.lag.p99) = (Some(300.0), Some(80.0));
        report
    }

    fn failed(phase: &'static str, errno: &str) -> Report {
        let mut report = clean();
        report.operations.failed = 5;
        report.errors = vec![Errors { phase: phase.into(), errno: errno.to_owned(), count: 5, first: None, last: None }];
        report
    }

    fn at_rest() -> Evidence {
        Evidence { client: vec![0.3, 0.4], server: vec![0.2, 0.3], cpus: 4.0, machine: 4.0, ..Evidence::default() }
    }

    fn name(evidence: &Evidence, report: &Report) -> String {
        evidence.wall(report).map_or_else(|| "none".to_owned(), |wall| wall.name)
    }

    #[test]
    fn errors_name_their_wall() {
        for (phase, errno, expected) in [
            ("connect", "EMFILE", "client descriptors"),
            ("connect", "ENFILE", "client descriptors"),
            ("connect", "EADDRNOTAVAIL", "client ports"),
            ("connect", "ENOBUFS", "memory"),
            ("connect", "ECONNREFUSED", "none"),
            ("answer", "ETIMEDOUT", "none"),
        ] {
            assert_eq!(name(&at_rest(), &failed(phase, errno)), expected, "{phase} {errno}");
        }
        assert_eq!(name(&at_rest(), &clean()), "none");
    }

    #[test]
    fn a_full_accept_queue_must_have_been_felt() {
        let with = |mut report: Report, overflows, connect| {
            (report.server.listen_overflows, report.latency_us.connect.max) = (Some(overflows), Some(connect));
            name(&at_rest(), &report)
        };
        assert_eq!(with(failed("answer", "ETIMEDOUT"), 7, 50.0), "accept queue");
        assert_eq!(with(clean(), 7, 1_040_000.0), "accept queue");
        assert_eq!(with(clean(), 7, 50.0), "none", "another server's");
        assert_eq!(with(failed("closed", "EOF"), 7, 50.0), "none", "a full queue ends no connection in order");
        assert_eq!(with(failed("answer", "ETIMEDOUT"), 0, 50.0), "none");
        let mut many = failed("answer", "ETIMEDOUT");
        many.errors[0].count = 50;
        assert_eq!(with(many, 7, 50.0), "none", "seven of them at most");
    }

    #[test]
    fn a_server_without_descriptors_is_the_reason_for_its_full_queue() {
        let mut report = failed("answer", "ETIMEDOUT");
        report.server.listen_overflows = Some(7);
        let evidence = |left| Evidence { descriptors_left: Some(left), ..at_rest() };
        assert_eq!(
            (name(&evidence(0), &report), name(&evidence(9_000), &report)),
            ("server descriptors".into(), "accept queue".into())
        );
        assert_eq!(name(&evidence(0), &clean()), "none");
    }

    #[test]
    fn who_is_busy_is_named_and_clients_that_are_say_so_of_a_clean_run_too() {
        let busy = |client: f64, server: f64| Evidence { client: vec![client], server: vec![server], ..at_rest() };
        for (client, server, expected) in [
            (3.7, 0.1, "client CPU"),
            (0.3, 3.65, "server CPU"),
            (2.0, 1.7, "client CPU"),
            (1.7, 2.0, "server CPU"),
            (1.0, 2.0, "none"),
            (0.5, 1.0, "none"),
        ] {
            assert_eq!(name(&busy(client, server), &clean()), expected, "{client} {server}");
        }
        assert_eq!(name(&busy(0.5, 1.0), &failed("answer", "ETIMEDOUT")), "server CPU", "one thread of it");
        let pinned = Evidence { cpus: 1.0, machine: 2.0, ..busy(0.6, 0.9) };
        assert_eq!(name(&pinned, &clean()), "none", "each has a CPU of its own");
        assert_eq!(name(&Evidence { client: vec![0.95], ..pinned }, &clean()), "client CPU");
        let moment = Evidence { client: vec![0.2, 3.9, 0.3], ..at_rest() };
        assert_eq!(name(&moment, &clean()), "none", "a busy second is no wall");
        assert_eq!(name(&Evidence { client: vec![], server: vec![], ..at_rest() }, &clean()), "none");
    }

    #[test]
    fn a_short_run_and_errors_that_load_does_not_explain_show_no_wall() {
        let busy = || Evidence { client: vec![3.9], ..at_rest() };
        let short = Report { seconds: 0.9, ..clean() };
        assert_eq!((name(&busy(), &short), name(&busy(), &clean())), ("none".into(), "client CPU".into()));
        for (phase, errno, expected) in [
            ("status", "404", "none"),
            ("verify", "", "none"),
            ("connect", "ECONNREFUSED", "none"),
            ("connect", "ETIMEDOUT", "client CPU"),
            ("answer", "ETIMEDOUT", "client CPU"),
        ] {
            let mut report = failed(phase, errno);
            report.errors[0].count = 100;
            assert_eq!(name(&busy(), &report), expected, "{phase} {errno}");
        }
        assert_eq!(name(&busy(), &failed("status", "404")), "client CPU", "5 of 1,000 are not what the run is about");
    }

    #[test]
    fn lag_of_the_clients_is_told() {
        let with = |client, lag, operation| {
            let mut report = clean();
            (report.latency_us.lag.p99, report.latency_us.operation.p99) = (Some(lag), Some(operation));
            name(&Evidence { client: vec![client], ..at_rest() }, &report)
        };
        assert_eq!((with(0.3, 12_000.0, 1e6), with(2.0, 1_500.0, 2_000.0)), ("client CPU".into(), "client CPU".into()));
        assert_eq!((with(2.0, 1_500.0, 9_000.0), with(2.0, 500.0, 600.0)), ("none".into(), "none".into()));
        assert_eq!(with(0.3, 1_500.0, 2_000.0), "none", "what else runs there makes idle clients late");
    }

    #[test]
    fn too_few_connections_for_a_rate_are_told_where_all_of_them_waited() {
        let with = |kept, takes| {
            let mut report = clean();
            (report.connections.peak, report.latency_us.uncorrected.mean) = (8, Some(takes));
            report.rate = Some(Rate { asked: 2_000.0, begun: 800.0, due: 4_000, not_begun: 2_400, kept });
            name(&at_rest(), &report)
        };
        assert_eq!(
            (with(false, 9_900.0), with(false, 5_000.0), with(true, 9_900.0)),
            ("connections".into(), "none".into(), "none".into())
        );
    }

    #[test]
    fn a_quota_that_is_used_up_is_told_of_either_end() {
        let throttled =
            |periods, throttled| Some(Throttling { cpus: 0.5, file: "/sys/fs/cgroup/box/cpu.max".into(), periods, throttled });
        let with = |client, server| Evidence { throttled: [client, server], ..at_rest() };
        let limit = with(throttled(18, 16), None).wall(&clean()).expect("the quota");
        assert_eq!(
            (limit.name.as_str(), limit.why.as_str()),
            (
                "client CPU",
                "its quota of 0.50 CPUs (/sys/fs/cgroup/box/cpu.max) stopped the load generator in 16 of 18 periods: what was \
                 measured is its own limit too"
            )
        );
        let mut of_agents = with(throttled(18, 18), None);
        of_agents.see_agents(Some(("b".to_owned(), throttled(20, 10).expect("one"))));
        let why = of_agents.wall(&clean()).expect("the quota").why;
        assert!(why.contains("stopped agent b in 10 of 20 periods: what was measured is its own limit too"), "{why}");
        of_agents.see_agents(None);
        assert_eq!(name(&of_agents, &clean()), "none", "the quota of this process stops no client");
        assert_eq!(name(&with(throttled(100, 1), throttled(100, 50)), &clean()), "server CPU");
        assert_eq!(name(&with(throttled(100, 1), None), &clean()), "none", "a period is no limit");
        let room = CgroupRoom { max: 1 << 26, left: 1 << 20, file: "/sys/fs/cgroup/box/memory.max".into() };
        let allowed = Limits { memory: Some(room), ..Limits::default() };
        let little = Evidence { allowed, allowed_left: Some(0.016), ..at_rest() }.wall(&clean()).expect("the memory");
        assert_eq!(
            (little.name.as_str(), little.why.as_str()),
            ("memory", "1.6 % of what /sys/fs/cgroup/box/memory.max allows was left")
        );
    }

    #[test]
    fn a_certificate_is_no_matter_of_load() {
        let mut report = failed("handshake", "the peer's certificate is signed by no trusted authority: it ...");
        report.errors[0].count = 5_000;
        let busy = Evidence { server: vec![3.9], ..at_rest() };
        assert_eq!(name(&busy, &report), "none");
        report.errors[0].errno = "the TLS handshake did not end in time".to_owned();
        assert_eq!(name(&busy, &report), "server CPU");
    }

    #[test]
    fn little_memory_and_segments_sent_again() {
        let memory = |left| Evidence { memory_left: Some(left), ..at_rest() };
        assert_eq!((name(&memory(0.02), &clean()), name(&memory(0.5), &clean())), ("memory".into(), "none".into()));
        let again = |part| Evidence { sent_again: Some(part), ..at_rest() };
        assert_eq!(
            (name(&again(0.03), &failed("answer", "ETIMEDOUT")), name(&again(0.03), &clean())),
            ("packets".into(), "none".into())
        );
    }
}
