//! Plans made of the arguments of `load`: defaults are filled in, and what makes no sense together is refused.

mod file;
mod guards;
mod text;

pub(crate) use file::PlanFile;
pub(crate) use guards::{check as guard, most};
pub(crate) use text::text;

use crate::arguments::LoadArguments;
use crate::names::Protocol;
use crate::outcome::Failure;
use crate::thresholds;
use crate::values::{Target, Url, chosen_seed};
use crate::workload::{Asks, first_given, messages, round_trips, usage, wanted};
use sockdrawer::Address;
use sockdrawer_load::{End, Hello, Life, Plan, Workload};
use std::net::IpAddr;
use std::time::Duration;

/// Timeout of a whole connection, or of a message among many.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_secs(30);
/// Duration of a run, unless something else is said; the time of connecting comes besides.
const DURATION: Duration = Duration::from_secs(10);
/// Local addresses in all.
const MAX_SOURCES: usize = 65_536;

/// Makes the plan that is asked for.
///
/// # Errors
/// When it makes no sense, or needs to be said twice.
pub(crate) fn plan(arguments: &LoadArguments) -> Result<Plan, Failure> {
    let workload = workload(arguments)?;
    let targets: Vec<Address> = arguments.targets().flat_map(|target| target.addresses.iter().cloned()).collect();
    if let Some(target) = targets.iter().find(|target| matches!(target, Address::Tcp(target) if target.port() == 0)) {
        return Err(usage(format_args!("{target}: nothing listens at port 0: write the port of the server, 1 to 65535")));
    }
    let named: Vec<&Target> = arguments.targets().collect();
    let tls = arguments.tls.tls(&named, |line| usage(line))?;
    let websocket = arguments.websocket.websocket(&named, arguments.operation.send.is_some(), |line| usage(line))?;
    let sources: Vec<IpAddr> = arguments.source.iter().flat_map(|source| source.addresses()).collect();
    sources_fit(&sources, &targets)?;
    let connect_rate = match arguments.connect_rate {
        Some(rate) => Some(rate),
        None if arguments.stage.is_empty() => default_connect_rate(&workload, &targets),
        None => None,
    };
    let plan = Plan {
        targets,
        websocket,
        tls,
        sources,
        local_ports: arguments.local_ports,
        proxy_header: arguments.proxy_protocol,
        connections: connections(arguments),
        stages: arguments.stage.clone(),
        operations: arguments.operations,
        end: end(arguments, &workload, connect_rate)?,
        connect_rate,
        timeout: arguments.operation.timeout.unwrap_or_else(|| default_timeout(&workload)),
        lifetime: arguments.lifetime,
        reconnect: arguments.reconnect,
        poisson: arguments.poisson,
        server_pids: arguments.server_pid.clone(),
        processes: arguments.processes.unwrap_or_default(),
        seed: arguments.seed.unwrap_or_else(chosen_seed),
        ..Plan::new(workload)
    };
    if plan.connections == 0 {
        return Err(usage("--stage: no stage has a connection, so there is nothing to do: write such as 30s:10k,30s:0"));
    }
    if plan.poisson && !plan.has_pauses() {
        return Err(usage("--poisson: there is no time between operations: add --interval or --rate, of http with --keep-alive"));
    }
    if plan.targets.is_empty() && arguments.many.asked_for() {
        return Err(usage("no target: agents do not reach the server inside this program: name one that they reach"));
    }
    if plan.targets.is_empty() && plan.proxy_header.is_some() {
        return Err(usage("--proxy-protocol: the server inside this program reads no header: name a target that does"));
    }
    if !arguments.yes {
        guard(&plan)?;
    }
    thresholds::have_their_pages(&arguments.threshold, &plan)?;
    Ok(plan)
}

/// Returns the maximum at once: no more than have an operation to do.
pub(crate) fn connections(arguments: &LoadArguments) -> usize {
    let most = arguments.stage.iter().map(|stage| stage.connections).max();
    let operations = arguments.operations.map_or(usize::MAX, |operations| usize::try_from(operations).unwrap_or(usize::MAX));
    most.unwrap_or_else(|| arguments.connections.unwrap_or(64).min(operations.max(1)))
}

/// Returns the connect rate unless something else is said. Connections that stay are spread, so that a server is not asked for all of them in one
/// moment. Where it is far away, there is more between it and this machine that can be filled by them.
fn default_connect_rate(workload: &Workload, targets: &[Address]) -> Option<f64> {
    let rate = if targets.iter().all(guards::is_near) { 1_000.0 } else { 100.0 };
    (workload.properties().life == Life::RoundTrips).then_some(rate)
}

/// Refuses an option of one workload with another, where it makes no sense.
pub(crate) fn options_belong(arguments: &LoadArguments) -> Result<(), Failure> {
    use Protocol::{Acks, Echo, Http, Ping};
    let LoadArguments { operation, lifetime, reconnect, http, acks, websocket, .. } = arguments;
    let workload = arguments.protocol();
    let lifetime = ("--lifetime", lifetime.is_some(), &[Ping, Echo][..]);
    let reconnect = ("--reconnect", *reconnect, &[Ping, Echo][..]);
    let shared = operation.owned().into_iter().chain([lifetime, reconnect]).filter(|(_, given, _)| *given);
    let of_heads = (!websocket.header.is_empty() && !arguments.by_websocket()).then_some("--header");
    let own = [(http.given(), &[Http][..]), (of_heads, &[Http]), (acks.given(), &[Acks])];
    let own = own.into_iter().filter_map(|(option, owners)| Some((option?, true, owners)));
    match shared.chain(own).find(|(.., owners)| !owners.contains(&workload)) {
        None => Ok(()),
        Some((option, _, owners)) => {
            let owners = all_of(owners);
            Err(usage(format_args!("{option} is an option of {owners}, not of {workload}: leave it out")))
        }
    }
}

/// Returns the names as in `ping, echo and acks`.
fn all_of(protocols: &[Protocol]) -> String {
    let names: Vec<&str> = protocols.iter().map(|protocol| protocol.name()).collect();
    match names.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        names => names.concat(),
    }
}

fn workload(arguments: &LoadArguments) -> Result<Workload, Failure> {
    options_belong(arguments)?;
    let (operation, has_target) = (&arguments.operation, arguments.targets().next().is_some());
    let urls: Vec<&Url> = arguments.targets().filter_map(|target| target.url.as_ref()).collect();
    match arguments.protocol() {
        Protocol::Http if arguments.by_websocket() => {
            Err(usage("WebSockets carry other workloads than http: use echo, ping, hello or acks, or write http://"))
        }
        protocol if protocol != Protocol::Http && urls.iter().any(|url| !url.websocket) => {
            Err(usage(format_args!("a URL of http is a target of http, not of {protocol}: write HOST:PORT")))
        }
        protocol @ (Protocol::Ping | Protocol::Echo) => {
            let round_trips = round_trips(protocol == Protocol::Echo, operation, has_target, connections(arguments))?;
            let mut workload = Workload::RoundTrips(round_trips);
            if let Some(rate) = operation.rate {
                workload.set_rate(rate, connections(arguments));
            }
            Ok(workload)
        }
        Protocol::Hello => Ok(Workload::Hello(Hello)),
        Protocol::Http => {
            let begun =
                first_given([("--connect-rate", arguments.connect_rate.is_some()), ("--stage", !arguments.stage.is_empty())]);
            wanted(
                &arguments.http,
                operation,
                Asks { begun, has_target, urls: &urls, header: &arguments.websocket.header, connections: connections(arguments) },
            )
        }
        Protocol::Acks => messages(&arguments.acks, operation, connections(arguments)).map(Workload::Acks),
        protocol @ (Protocol::Ws | Protocol::Proxy | Protocol::Exec) => {
            let why = format_args!("{protocol} is a protocol to serve, no workload: use ping, echo, hello, http or acks");
            Err(usage(why))
        }
    }
}

fn end(arguments: &LoadArguments, workload: &Workload, connect_rate: Option<f64>) -> Result<End, Failure> {
    let in_stages = arguments.stage.last().map(|stage| stage.connections);
    match (arguments.duration, arguments.hold) {
        (_, Some(_)) if workload.properties().life == Life::Short => {
            let name = workload.name();
            let kept = if matches!(workload, Workload::Http(_)) { ", or keep them: --keep-alive" } else { "" };
            Err(usage(format_args!("--hold needs connections that stay, those of {name} do not: use --duration{kept}")))
        }
        (_, Some(_)) if arguments.lifetime.is_some() => {
            Err(usage("--hold: connections with a --lifetime are made all the time, so none is the last: use --duration"))
        }
        (_, Some(_)) if arguments.reconnect => {
            Err(usage("--hold: with --reconnect connections are made all the time, so none is the last: use --duration"))
        }
        (_, Some(_)) if in_stages == Some(0) => {
            Err(usage("--hold: no connection is left after the last --stage: leave one out, or write no 0 there"))
        }
        (_, Some(hold)) => Ok(End::AfterLastConnect(hold)),
        (Some(duration), None) => Ok(End::AfterFirstConnect(duration)),
        (None, None) if in_stages.is_some() => Ok(End::AfterStages),
        (None, None) if arguments.operations.is_some() => Ok(End::Never),
        (None, None) => {
            let connecting = connect_rate.map_or(0.0, |rate| (connections(arguments) as f64 / rate).floor());
            let connecting = Duration::try_from_secs_f64(connecting).unwrap_or(Duration::MAX);
            Ok(End::AfterFirstConnect(DURATION.saturating_add(connecting)))
        }
    }
}

fn default_timeout(workload: &Workload) -> Duration {
    if workload.properties().life == Life::RoundTrips { Duration::from_secs(1) } else { LONG_TIMEOUT }
}

/// Checks that source addresses fit the targets: a socket of one family cannot be bound to an address of another. Without a target the server is on
/// 127.0.0.1.
fn sources_fit(sources: &[IpAddr], targets: &[Address]) -> Result<(), Failure> {
    if sources.len() > MAX_SOURCES {
        return Err(usage(format_args!("--source: {} addresses are more than {MAX_SOURCES}: write fewer", sources.len())));
    }
    for source in sources {
        let fits = |target: &Address| matches!(target, Address::Tcp(target) if target.is_ipv4() == source.is_ipv4());
        if targets.is_empty() && !source.is_ipv4() {
            return Err(usage(format_args!(
                "--source {source}: the server in this program is on 127.0.0.1, use an IPv4 address"
            )));
        }
        if let Some(target) = targets.iter().find(|target| !fits(target)) {
            return Err(usage(format_args!("--source {source} cannot reach {target}: use a source of the target's kind")));
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::arguments::Command;
    use crate::usage::Parsed;
    use sockdrawer_load::{Processes, Question, RoundTrips, Stage};

    pub(crate) fn planned(words: &str) -> Result<Plan, Failure> {
        planned_by(&words.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn planned_by(words: &[&str]) -> Result<Plan, Failure> {
        match crate::usage::parse(["sockdrawer", "load"].iter().chain(words).map(Into::into))? {
            Some(Parsed::Own(Command::Load(arguments))) => plan(&arguments),
            other => panic!("{other:?} is not load"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_workload() {
        let ping = planned("ping").expect("it needs no more");
        assert_eq!(ping.workload, Workload::ping(Duration::from_secs(1)));
        let interval = |words: &str| planned(words).map(|plan| plan.workload.properties().interval.as_secs()).expect("a plan");
        assert_eq!([interval("ping -c 5000"), interval("ping -c 5001"), interval("ping -c 1m")], [1, 2, 5]);
        assert_eq!((ping.connections, ping.timeout, ping.operations), (64, Duration::from_secs(1), None));
        assert_eq!(ping.end, End::AfterFirstConnect(Duration::from_secs(10)));
        let echo = planned("echo 127.0.0.1:9000").expect("it needs no more");
        assert_eq!(echo.workload, Workload::echo(Duration::ZERO, 4));
        assert_eq!(echo.targets, ["127.0.0.1:9000".parse().expect("an address")]);
        assert_eq!(planned("http").expect("it needs no more").timeout, Duration::from_secs(30));
    }

    #[test]
    fn a_url_is_http_on_kept_connections() {
        let wanted = |words: &str| match planned(words).map(|plan| (plan.targets.len(), plan.workload)) {
            Ok((targets, Workload::Http(wanted))) => Ok((targets, wanted)),
            other => Err(format!("{words}: {other:?}")),
        };
        let (targets, all) = wanted("http://localhost:8080/a -c 10 --rate 100").expect("a plan");
        assert_eq!((targets, all.close, all.interval), (1, None, Duration::from_millis(100)));
        assert_eq!((&all.pages[0].path[..], &all.request.fields[..]), ("/a", &["Host: localhost:8080".to_owned()][..]));
        assert_eq!(planned("http http://localhost:8080/a -c 10 --rate 100").expect("the same").workload, Workload::Http(all));
        let (_, posted) = wanted("http://127.0.0.1:1 -H host:x -H a:b --body c --close server").expect("a plan");
        assert_eq!((&posted.request.method[..], posted.request.fields.join("|")), ("POST", "host: x|a: b".to_owned()));
        assert!(posted.close.is_some());
        for (words, why) in [
            ("http://127.0.0.1:1/a --path /b", "--path and a URL exclude each other"),
            ("http://127.0.0.1:1/a http://127.0.0.1:2/b", "use --mix /a=1,/b=1"),
            ("http://localhost:1 http://127.0.0.1:2", "say which one the requests name"),
            ("ping http://127.0.0.1:1", "a URL of http is a target of http, not of ping"),
            ("http ws://127.0.0.1:1", "WebSockets carry other workloads than http"),
            ("ping --websocket /", "the server inside this program speaks none"),
            ("ping 127.0.0.1:1 --subprotocol a", "write ws://, or add --websocket PATH"),
            ("ws://127.0.0.1:1/a ws://127.0.0.1:2/b", "the URLs have several hosts or paths"),
            ("ws://127.0.0.1:1 --websocket /b", "--websocket and a URL exclude each other"),
            ("ping 127.0.0.1:1 -H a:b", "--header is an option of http, not of ping"),
            ("http 127.0.0.1:1 --interval 5", "add --keep-alive"),
            ("http 127.0.0.1:1 --rate 5 --connect-rate 6", "--rate and --connect-rate exclude each other"),
        ] {
            let told = planned(words).expect_err(words).to_string();
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn the_default_duration_is_only_for_runs_that_would_not_end() {
        let end = |words| planned(words).expect("a plan").end;
        assert_eq!(end("ping -n 5"), End::Never);
        let connections = |words: &str| planned(words).expect(words).connections;
        assert_eq!([connections("ping -n 3 -c 64"), connections("ping -n 80"), connections("hello -n 3")], [3, 64, 3]);
        assert_eq!(end("ping -n 5 -d 2"), End::AfterFirstConnect(Duration::from_secs(2)));
        assert_eq!(end("ping --hold 1m"), End::AfterLastConnect(Duration::from_secs(60)));
    }

    #[test]
    fn connections_with_a_lifetime_have_no_last_one_to_hold() {
        assert!(planned("ping --lifetime 5s -d 10").is_ok());
        let refused = planned("ping --lifetime 5s --hold 10").expect_err("there is no last one").to_string();
        assert!(refused.starts_with("--hold: connections with a --lifetime are made all the time"), "{refused}");
    }

    #[test]
    fn sources_are_of_the_targets_kind() {
        assert!(planned("ping --source 127.0.0.2,127.0.0.3").is_ok());
        assert!(planned("ping [::1]:9 --source ::1").is_ok());
        assert!(planned("ping 127.0.0.1:9 --source ::1").is_err());
        assert!(planned("ping --source ::1").is_err());
    }

    #[test]
    fn connections_that_stay_are_spread_and_others_are_not() {
        let rate = |words| planned(words).expect(words).connect_rate;
        assert_eq!(
            (rate("ping"), rate("echo 10.0.0.1:9"), rate("ping 192.0.2.1:9")),
            (Some(1_000.0), Some(1_000.0), Some(100.0))
        );
        assert_eq!((rate("http"), rate("hello"), rate("acks"), rate("ping --stage 1:5")), (None, None, None, None));
        assert_eq!(rate("ping --connect-rate 7"), Some(7.0));
        let end = |words| planned(words).expect(words).end;
        assert_eq!(end("ping -c 20k"), End::AfterFirstConnect(Duration::from_secs(30)));
        assert_eq!(end("ping -c 20k -d 10"), End::AfterFirstConnect(Duration::from_secs(10)));
        assert_eq!(end("acks -c 20k"), End::AfterFirstConnect(Duration::from_secs(10)));
    }

    #[test]
    fn stages_say_how_many_and_how_long() {
        let stage = |seconds, connections| Stage { time: Duration::from_secs(seconds), connections };
        let plan = planned("ping --stage 30s:10k,2m:100k --stage 30s:0").expect("a plan");
        assert_eq!((plan.stages, plan.connections), (vec![stage(30, 10_000), stage(120, 100_000), stage(30, 0)], 100_000));
        assert_eq!((plan.end, plan.connect_rate), (End::AfterStages, None));
        assert_eq!(planned("ping --stage 1s:5 --hold 1m").expect("a plan").end, End::AfterLastConnect(Duration::from_secs(60)));
        let counted = planned("ping --stage 1s:5 -n 9").expect("a plan");
        assert_eq!((counted.end, counted.operations), (End::AfterStages, Some(9)));
    }

    #[test]
    fn a_question_of_ones_own_keeps_the_pace_of_its_workload() {
        let question = |words: &str| match planned(words).expect("a plan").workload {
            Workload::RoundTrips(RoundTrips { interval, question: Question::Other { of_echo, send, expect } }) => {
                (of_echo, interval, send, expect.map(|expect| expect.to_string()))
            }
            other => panic!("{words}: {other:?}"),
        };
        let (of_echo, interval, send, expect) = question(r"ping 127.0.0.1:9 --send PING\r\n --expect +PONG\r\n");
        assert_eq!((of_echo, interval, &send[..]), (false, Duration::from_secs(1), &b"PING\r\n"[..]));
        assert_eq!(expect.as_deref(), Some(r"+PONG\r\n"));
        assert_eq!(question("echo 127.0.0.1:9 --send x"), (true, Duration::ZERO, b"x".to_vec(), None));
        assert_eq!(planned("echo 127.0.0.1:9 --send x").expect("a plan").timeout, Duration::from_secs(1));
        let (_, interval, ..) = question("ping 127.0.0.1:9 --send x -c 20 --rate 100");
        assert_eq!(interval, Duration::from_millis(200), "of all together");
    }

    #[test]
    fn ranges_and_networks_are_spread_out() {
        let plan = planned(
            "ping 127.0.0.1:9-10 127.0.0.1:12 --source 127.0.0.0/30,127.0.1.1 --local-ports 5-6 --lifetime 9 --processes 3",
        );
        let plan = plan.expect("a plan");
        assert_eq!((plan.targets.len(), plan.sources.len(), plan.local_ports), (3, 5, Some((5, 6))));
        assert_eq!((plan.lifetime, plan.processes), (Some(Duration::from_secs(9)), Processes::Exactly(3)));
        let many = "ping --source 127.0.0.0/16,127.1.0.0/32";
        assert!(planned(many).expect_err(many).to_string().contains("65537 addresses are more than 65536"));
    }
}
