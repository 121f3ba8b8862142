//! Words and numbers of a page: first what was asked of the run and what came of it, last what it was.

use super::unit::{ChartUnit, escape, moment};
use crate::latency::Percentiles;
use crate::numbers::{float, thousands};
use crate::part::AgentPart;
use crate::report::{Action, Report};
use crate::results::recorded::Recorded;
use crate::series::Sample;
use crate::wall::Wall;
use crate::workload::{ClosedWith, Errors, HandshakeCounts};
use serde_json::Value;
use std::fmt::Write;

/// Returns the title of the page: what was done.
pub(super) fn title(run: &Recorded) -> String {
    let Some(report) = &run.report else {
        let connections = run.samples.iter().map(|sample| sample.standing).max().unwrap_or(0);
        return format!("a run without a result, {} connections", thousands(connections));
    };
    let targets: Vec<&str> = report.target.iter().flat_map(|target| target.split(' ')).collect();
    let target = match targets.as_slice() {
        [] => "a server in this program".to_owned(),
        [target] => (*target).to_owned(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    };
    escape(&format!("{} to {target}, {}", report.workload, asked(report)))
}

/// Returns how much was asked for, in words.
fn asked(report: &Report) -> String {
    let option = |name: &str| report.plan.as_ref().and_then(|plan| plan.get(name));
    let peak = report.connections.peak;
    match (option("rate").and_then(Value::as_f64), option("stage"), option("connections").and_then(Value::as_u64)) {
        (Some(rate), ..) => format!("{} a second", ChartUnit::Count.short(rate)),
        (None, Some(_), _) => format!("in stages, up to {} connections", thousands(peak)),
        (None, None, Some(1)) => "1 connection".to_owned(),
        (None, None, connections) => format!("{} connections", thousands(connections.unwrap_or(peak))),
    }
}

/// Returns when the run was, how long, by what, and the command.
pub(super) fn origin(report: &Report, length: &str) -> String {
    let started = report.started.get(..19).unwrap_or(&report.started).replace('T', " ");
    let parts = [
        format!("{} UTC", escape(&started)),
        length.to_owned(),
        format!("sockdrawer {}", escape(&report.version)),
        format!("seed {}", report.seed),
    ];
    let mut origin = format!("<p class=\"of\">{}</p>\n", parts.map(|part| format!("<span>{part}</span>")).join(" "));
    if let Some(command) = &report.command {
        let _ = writeln!(origin, "<pre class=\"command\">{}</pre>", escape(command));
    }
    if let Some(why) = &report.ended_early {
        let _ = writeln!(origin, "<p class=\"early\"><strong>The run ended early:</strong> {}.</p>", escape(why));
    }
    origin
}

/// Returns the head of the page.
pub(super) fn summary(run: &Recorded) -> String {
    let mut head = format!("<header>\n<p class=\"brand\">sockdrawer load</p>\n<h1>{}</h1>\n", title(run));
    match &run.report {
        Some(report) => {
            head += &origin(report, &moment(report.seconds));
            head += &verdict(report);
            head += &tiles(&of_report(report));
        }
        None => {
            head += "<p class=\"wall\"><strong>There is no result.</strong> The run goes on, or was ended before it could write one; \
                     this is what was measured until then.</p>\n";
            head += &run.samples.last().map(|sample| tiles(&of_sample(sample))).unwrap_or_default();
        }
    }
    head + "</header>\n"
}

/// Returns in one sentence what came of the run, then what went wrong most and what helps, thresholds, and what stopped the run.
fn verdict(report: &Report) -> String {
    let class = if report.verdict().starts_with("ok") { "wall well" } else { "early" };
    let mut verdict = format!("<p class=\"{class}\"><strong>{}.</strong></p>\n", escape(&report.verdict()));
    if let Some((error, cause)) = report.most_frequent_error().and_then(|error| Some((error, report.cause(error)?))) {
        let (count, what) = (thousands(error.count), escape(&format!("{} {}", error.phase, error.errno)));
        let (why, remedy) = (escape(cause.why), escape(cause.remedy));
        let _ = writeln!(
            verdict,
            "<p class=\"early\"><strong>{count} times {what}:</strong> {why}.<em>What helps: {remedy}.</em></p>"
        );
    }
    if !report.thresholds.is_empty() {
        verdict += "<ul class=\"thresholds\" aria-label=\"Thresholds\">";
        for judgement in &report.thresholds {
            let (class, word) = if judgement.ok { ("kept", "ok") } else { ("missed", "FAILED") };
            let (expression, value) = (escape(&judgement.expr), escape(&judgement.words()));
            let _ = write!(verdict, "<li class=\"{class}\"><b>{word}</b> <code>{expression}</code> <span>{value}</span></li>");
        }
        verdict += "</ul>\n";
    }
    if let Some(Wall { name, why, remedy }) = &report.wall {
        let [name, why, remedy] = [name, why, remedy].map(|text| escape(text));
        let _ =
            writeln!(verdict, "<p class=\"wall\"><strong>Limited by: {name}.</strong> {why}.<em>What helps: {remedy}.</em></p>");
    }
    verdict
}

/// Content of a tile: its name, its value, more about it, and whether it is bad.
type Tile = (&'static str, String, String, bool);

fn of_report(report: &Report) -> Vec<Tile> {
    let (connections, operations) = (&report.connections, &report.operations);
    let time = |value| known(ChartUnit::Time, value);
    let Percentiles { mean, p50, p95, p99, max, .. } = report.latency_us.operation;
    let each = report
        .server
        .bytes_per_connection
        .map(|bytes| ("server memory", ChartUnit::Bytes.short(bytes), "for each connection".to_owned(), false));
    let mut tiles = vec![
        ("connections", thousands(connections.peak), format!("at once, {} attempted", thousands(connections.attempted)), false),
        (
            "operations",
            ChartUnit::Rate.short(operations.per_second),
            format!("{} in {}", thousands(operations.ok), moment(report.seconds)),
            false,
        ),
        ("p99", time(p99), format!("mean {}, p50 {}, p95 {}, max {}", time(mean), time(p50), time(p95), time(max)), false),
    ];
    tiles.extend(ended_badly([connections.failed, operations.failed], connections.lost, connections.established));
    tiles.extend(each);
    tiles
}

/// Returns the tiles of connects and operations that failed, and of connections that were lost.
fn ended_badly([connects, operations]: [u64; 2], lost: u64, established: u64) -> [Tile; 2] {
    let failed = connects + operations;
    let of = format!("{} connects, {} operations", thousands(connects), thousands(operations));
    [
        ("failed", thousands(failed), of, failed > 0),
        ("lost", thousands(lost), format!("of {} established", thousands(established)), lost > 0),
    ]
}

fn of_sample(sample: &Sample) -> Vec<Tile> {
    let (connections, operations) = (&sample.connections, &sample.operations);
    let mut tiles = vec![
        ("until", moment(sample.at), "since the first connect".to_owned(), false),
        ("connections", thousands(sample.standing), format!("target {}", thousands(sample.target)), false),
        ("operations", thousands(operations.ok), "ended well".to_owned(), false),
    ];
    tiles.extend(ended_badly([connections.failed, operations.failed], connections.lost, connections.established));
    tiles
}

fn tiles(tiles: &[Tile]) -> String {
    let mut list = "<dl class=\"tiles\">".to_owned();
    for (name, value, more, is_bad) in tiles {
        let class = if *is_bad { " class=\"bad\"" } else { "" };
        let _ = write!(list, "<div{class}><dt>{name}</dt><dd>{value}<small>{more}</small></dd></div>");
    }
    list + "</dl>\n"
}

/// Returns the part of the page after the charts.
pub(super) fn details(run: &Recorded) -> String {
    let mut details = "<section class=\"details\" aria-label=\"Details\">\n".to_owned();
    if let Some(report) = &run.report {
        details += &actions(report);
        details += &errors(report);
        details += &latencies(report);
        details += &agents(report);
        details += &counts(report);
        details += &machine(report);
    }
    if let Some(report) = run.report.as_ref().filter(|report| report.acks.is_some() || report.http.is_some()) {
        // Words for what these workloads have besides.
        details += &text("Summary", &report.to_string());
    }
    if let Some(plan) = &run.plan {
        details += &text("Plan", plan);
    }
    details + "</section>\n"
}

fn actions(report: &Report) -> String {
    let row = |(number, action): (usize, &Action)| vec![number.to_string(), moment(action.at), action.what.clone()];
    let rows: Vec<_> = (1..).zip(&report.actions).map(row).collect();
    if rows.is_empty() { String::new() } else { table("Actions", "words", &["", "at", "what the run was told"], &rows) }
}

fn errors(report: &Report) -> String {
    let row = |error: &Errors| {
        let cause = report.cause(error);
        let what = format!("{} {}", error.phase, error.errno);
        vec![what, thousands(error.count), cause.map_or_else(unknown, |cause| cause.to_string())]
    };
    let rows: Vec<_> = report.errors.iter().map(row).collect();
    if rows.is_empty() {
        String::new()
    } else {
        table("Errors", "words", &["waited for, and what came", "count", "cause, and what to do"], &rows)
    }
}

fn latencies(report: &Report) -> String {
    let times = &report.latency_us;
    let row = |name: &str, times: &Percentiles| {
        let values = [times.min, times.mean, times.p50, times.p90, times.p95, times.p99, times.p999, times.max];
        let values = values.map(|value| known(ChartUnit::Time, value));
        [name.to_owned()].into_iter().chain(values).collect::<Vec<_>>()
    };
    let mut rows =
        vec![row("operation: due to answered", &times.operation), row("service: sent to answered", &times.uncorrected)];
    rows.extend(times.first_byte.as_ref().map(|times| row("first byte", times)));
    rows.push(row("connect", &times.connect));
    rows.extend(times.handshake.as_ref().map(|times| row("TLS handshake", times)));
    rows.extend(times.websocket.as_ref().map(|times| row("WebSocket handshake", times)));
    rows.extend(times.lag.max.map(|_| row("send delay: due to sent", &times.lag)));
    table("Latency", "", &["", "min", "mean", "p50", "p90", "p95", "p99", "p99.9", "max"], &rows)
}

/// Returns a table with a row for each agent of another machine.
fn agents(report: &Report) -> String {
    let row = |part: &AgentPart| {
        let lost = part.lost.as_ref().map_or_else(String::new, |why| format!(", lost: {why}"));
        let failed = part.failed + part.lost_connections + part.operations.failed;
        let (times, cpu) = (&part.latency_us, format!("{:.0} %", 100.0 * part.cpu));
        let [p99, late] = [times.operation.p99, times.lag.p99].map(|value| known(ChartUnit::Time, value));
        let name = format!("{}{lost}", part.name);
        vec![name, thousands(part.established), thousands(part.operations.ok), thousands(failed), p99, late, cpu]
    };
    let rows: Vec<_> = report.agents.iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    table("Agents", "", &["", "connections", "operations", "failed", "p99", "send delay p99", "its CPUs"], &rows)
}

fn counts(report: &Report) -> String {
    let (connections, operations, server) = (&report.connections, &report.operations, &report.server);
    let seconds = |value: Option<f64>| value.map_or_else(unknown, |value| format!("{value:.2} s"));
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("connects attempted", thousands(connections.attempted)),
        row("established", thousands(connections.established)),
        row("failed", thousands(connections.failed)),
        row("lost", thousands(connections.lost)),
        row("closed by this side", thousands(connections.closed)),
        row("open at the end", thousands(connections.open)),
        row("operations that ended well", thousands(operations.ok)),
        row("operations that failed", thousands(operations.failed)),
        row("CPU time of the client", seconds(report.client.cpu_seconds)),
        row("processes of the client", report.client.processes.to_string()),
        row("CPU time of the server", seconds(server.cpu_seconds)),
        row("CPU of the server, an operation", known(ChartUnit::Time, server.cpu_us_per_operation)),
        row("CPU of the server, an accept", known(ChartUnit::Time, server.cpu_us_per_accept)),
        row("memory of the server, a connection", known(ChartUnit::Bytes, server.bytes_per_connection)),
        row("memory of the kernel, a connection", known(ChartUnit::Bytes, server.kernel_bytes_per_connection)),
        row(
            "connections that found an accept queue full, in all of its network",
            server.listen_overflows.map_or_else(unknown, thousands),
        ),
    ];
    if let Some(tls) = &report.tls {
        let HandshakeCounts { full, resumed, failed } = tls.handshakes;
        rows.push(row("TLS handshakes, full", thousands(full)));
        rows.push(row("TLS handshakes, resumed", thousands(resumed)));
        rows.push(row("TLS handshakes that failed", thousands(failed)));
        rows.push(row("CPU of the client, a handshake", known(ChartUnit::Time, tls.cpu_us)));
    }
    if let Some(websocket) = &report.websocket {
        rows.push(row("WebSocket handshakes", thousands(websocket.opened)));
        rows.push(row("WebSocket handshakes that failed", thousands(websocket.failed)));
        let closed =
            |closed: &ClosedWith| row(&format!("closed by the server with {}", closed.code), thousands(closed.connections));
        rows.extend(websocket.closed.iter().map(closed));
    }
    table("Counts and costs", "", &["", ""], &rows)
}

fn machine(report: &Report) -> String {
    let machine = &report.machine;
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let rows = [
        row("CPUs", machine.cpus.to_string()),
        row("CPU", machine.cpu.clone().unwrap_or_else(unknown)),
        row("architecture", machine.architecture.to_string()),
        row("kernel", machine.kernel.clone().unwrap_or_else(unknown)),
        row("memory", machine.memory_bytes.map_or_else(unknown, |bytes| ChartUnit::Bytes.short(float(bytes)))),
    ];
    table("Machine", "", &["", ""], &rows)
}

fn text(title: &str, text: &str) -> String {
    format!("<article><h2>{title}</h2><div class=\"wide\"><pre>{}</pre></div></article>\n", escape(text.trim_end()))
}

/// Returns a table. The first cell of a row names it. Columns without a name are understood. With the class `words` the last one is text.
pub(super) fn table(title: &str, class: &str, columns: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = format!("<article><h2>{title}</h2><div class=\"wide\"><table class=\"{class}\">");
    if columns.iter().any(|column| !column.is_empty()) {
        let head: String = columns.iter().map(|column| format!("<th scope=\"col\">{column}</th>")).collect();
        let _ = write!(table, "<thead><tr>{head}</tr></thead>");
    }
    table += "<tbody>";
    for row in rows {
        let cells: String = row.iter().skip(1).map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        let _ =
            write!(table, "<tr><th scope=\"row\">{}</th>{cells}</tr>", row.first().map_or_else(String::new, |cell| escape(cell)));
    }
    table + "</tbody></table></div></article>\n"
}

fn known(unit: ChartUnit, value: Option<f64>) -> String {
    value.map_or_else(unknown, |value| unit.short(value))
}

fn unknown() -> String {
    "–".to_owned()
}
