//! `sockdrawer ctl top`: a server's connections and rates, drawn again each second. It asks for the status alone, on one connection, so
//! that it costs the server as little with 100,000 connections as with ten.

use super::status::{Pool, Status};
use super::{parsed, refused, show, written};
use crate::keys;
use crate::outcome::{Exit, Failure};
use crate::panel::{Line, Style, levels, per_second};
use crate::screen::Screen;
use crate::signals::{self, Signal};
use crate::table::{Table, bytes, count, plain};
use crate::terminal::{self, Looks};
use sockdrawer_operate::client::Client;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// From one status to the next.
const EVERY: Duration = Duration::from_secs(1);
/// Columns of the names before the values.
const NAMES: usize = 13;
/// Columns of the bar of connections.
const BAR: usize = 30;
/// Counters that have a place of their own, or grow where nothing happens.
const NOT_LISTED: [&str; 7] = ["accepted", "rejected", "bytes_in", "bytes_out", "turns", "accept_empty", "connects"];

/// What ends it.
enum Told {
    Key(u8),
    Signal(Signal),
}

/// Two looks at a server: the last one, and the one before.
struct Seen {
    now: Status,
    before: Option<(Status, Duration)>,
}

/// Shows the server until `q`, a signal, or the end of the reader.
pub(super) fn run(mut client: Client, json: bool) -> Result<Exit, Failure> {
    // What is wrong at once is told in a line, before the terminal is touched.
    let mut first = Some(ask(&mut client)?);
    let (sender, told) = mpsc::channel();
    let by_key = sender.clone();
    let draws = !json && io::stdout().is_terminal() && terminal::size().is_some();
    let keys = draws.then(|| keys::listen(move |key| drop(by_key.send(Told::Key(key))))).flatten();
    signals::watch(move |signal| drop(sender.send(Told::Signal(signal))))?;
    let stopping = || {
        terminal::leave();
        keys::without(signals::stop_now);
    };
    if draws {
        signals::watch_stops(stopping, || {})?;
    }
    let (mut view, mut seen, mut since) = (View::new(json, draws), None::<Seen>, Instant::now());
    let end = loop {
        let asked = Instant::now();
        // A server that was replaced, or is started again, is found again at its socket.
        let answer = first.take().map_or_else(|| ask(&mut client), Ok);
        match answer.and_then(|text| parsed::<Status>(&text).map(|now| (text, now))) {
            Ok((text, now)) => {
                let took = since.elapsed();
                since = Instant::now();
                let before = seen.take().map(|seen| (seen.now, took));
                if let Some(end) = view.show(&text, seen.insert(Seen { now, before }))? {
                    break end;
                }
            }
            Err(why) => view.lost(&why)?,
        }
        if let Some(end) = wait(&told, EVERY.saturating_sub(asked.elapsed())) {
            break end;
        }
    };
    drop(keys);
    Ok(end)
}

fn ask(client: &mut Client) -> Result<String, Failure> {
    let answer = client.send("GET", "/status", &[], b"")?;
    let status = answer.status;
    let text = answer.text()?;
    if status == 200 { Ok(text) } else { Err(refused(status, &text)) }
}

/// Waits for so long, or for what ends it.
fn wait(told: &Receiver<Told>, time: Duration) -> Option<Exit> {
    let until = Instant::now() + time;
    loop {
        match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Told::Key(b'q' | b'Q')) => return Some(Exit::Ok),
            Ok(Told::Key(_)) => {}
            Ok(Told::Signal(signal)) => return Some(signal.exit()),
            Err(RecvTimeoutError::Timeout) => return None,
            // Nothing is left that could end it but the reader.
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                return None;
            }
        }
    }
}

/// Where it is shown.
enum View {
    Terminal(Screen, Looks),
    Lines(Table),
    Json,
}

impl View {
    fn new(json: bool, draws: bool) -> View {
        match (json, draws) {
            (true, _) => View::Json,
            (_, true) => View::Terminal(Screen::default(), Looks::of_environment()),
            _ => View::Lines(Table::new(&["POOL", ">CONNECTIONS", ">ACCEPTS", ">REJECTS", ">RECEIVED", ">SENT", "STATE"])),
        }
    }

    /// Some: the reader has gone.
    fn show(&mut self, text: &str, seen: &Seen) -> Result<Option<Exit>, Failure> {
        let lines = match self {
            View::Json => vec![text.trim_end().to_owned()],
            // The first status has no rates.
            View::Lines(_) if seen.before.is_none() => return Ok(None),
            View::Lines(table) => {
                seen.now.pools.iter().for_each(|(name, pool)| {
                    let [accepts, rejects, received, sent] = seen.rates(name, pool);
                    table.row([name.clone(), count(pool.connections), accepts, rejects, received, sent, pool.readiness.clone()]);
                });
                table.lines(None)
            }
            View::Terminal(screen, looks) => {
                if let Some(size) = terminal::size().filter(|size| screen.is_ours(*size, false)) {
                    screen.draw(&seen.lines(size, *looks));
                }
                return Ok(None);
            }
        };
        let mut output = io::stdout().lock();
        let result = lines.iter().try_for_each(|line| writeln!(output, "{line}")).and_then(|()| output.flush());
        let has_gone = result.is_err();
        written(result).map(|end| has_gone.then_some(end))
    }

    /// The server does not answer: a terminal shows why until it does; elsewhere it is the end.
    fn lost(&mut self, why: &Failure) -> Result<(), Failure> {
        let View::Terminal(screen, looks) = self else { return Err(Failure::run(why)) };
        if let Some(size) = terminal::size().filter(|size| screen.is_ours(*size, false)) {
            let line = Line::new(*looks, size.0).add(Style::Red, &plain(&why.to_string()));
            screen.draw(&[line, Line::new(*looks, size.0).add(Style::Dim, KEYS)]);
        }
        Ok(())
    }
}

const KEYS: &str = "q quit";

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
impl Seen {
    /// How much a counter of a pool grew per second.
    fn rate(&self, name: &str, pool: &Pool, counter: &str) -> f64 {
        let Some((before, took)) = &self.before else { return 0.0 };
        let before = before.pools.get(name).map_or(0, |before| before.counted(counter));
        // A server that was started again counts from 0.
        pool.counted(counter).saturating_sub(before) as f64 / took.as_secs_f64().max(0.001)
    }

    /// Accepts, rejects, bytes received and sent, per second.
    fn rates(&self, name: &str, pool: &Pool) -> [String; 4] {
        let [accepts, rejects] = ["accepted", "rejected"].map(|counter| per_second(self.rate(name, pool, counter)));
        let [received, sent] = ["bytes_in", "bytes_out"].map(|counter| format!("{}/s", bytes(self.rate(name, pool, counter))));
        [accepts, rejects, received, sent]
    }

    fn lines(&self, (columns, rows): (usize, usize), looks: Looks) -> Vec<Line> {
        let line = || Line::new(looks, columns);
        let named = |name: &str| line().add(Style::Plain, name).blank_to(NAMES);
        let status = &self.now;
        let style = if status.ready { Style::Bold } else { Style::Yellow };
        let mut lines = vec![line().add(style, &show::headline(status))];
        let (open, limit) =
            status.pools.values().fold((0, 0_u64), |sum, pool| (sum.0 + pool.connections, sum.1.saturating_add(pool.limit)));
        let (full, empty) = looks.bar();
        let filled = levels(open as f64, limit as f64, BAR);
        let numbers = format!("{} of {}  ", count(open), count(limit));
        let bar = named("connections").add(Style::Bold, &numbers).add(Style::Cyan, &full.repeat(filled));
        lines.push(bar.add(Style::Dim, &empty.repeat(BAR - filled)));
        let mut table = Table::new(&["POOL", "STATE", ">CONNECTIONS", ">ACCEPTS", ">REJECTS", ">RECEIVED", ">SENT"]);
        for (name, pool) in &status.pools {
            let [accepts, rejects, received, sent] = self.rates(name, pool);
            table.row([name.clone(), pool.readiness.clone(), count(pool.connections), accepts, rejects, received, sent]);
        }
        let pools = table.lines(Some(columns.saturating_sub(1)));
        lines.extend(
            pools.iter().enumerate().map(|(row, text)| line().add(if row == 0 { Style::Dim } else { Style::Plain }, text)),
        );
        for (name, pool) in &status.pools {
            let generation = |one: &super::status::Generation| format!("{}: {}", one.id, count(one.connections));
            let all: Vec<String> = pool.generations.iter().rev().map(generation).collect();
            lines.push(named("generations").add(Style::Plain, &format!("{name}  {}", all.join("  "))));
        }
        for (name, pool) in &status.pools {
            let all = pool.loops.iter().filter(|one| one.active || one.connections > 0).map(|one| count(one.connections));
            let row = named("loops").add(Style::Plain, &format!("{name}  {}", all.collect::<Vec<_>>().join("  ")));
            let stuck = pool.loops.iter().filter(|one| one.stuck).count();
            lines.push(if stuck == 0 { row } else { row.add(Style::Red, &format!("  {stuck} stuck")) });
        }
        let grown = self.grown().into_iter().map(|(counter, rate)| format!("{} {}", counter.replace('_', " "), per_second(rate)));
        lines.push(named("counters").add(Style::Plain, &grown.collect::<Vec<_>>().join(", ")));
        // The cursor has a row of its own, below.
        lines.truncate(rows.saturating_sub(2).max(1));
        lines.push(line().add(Style::Dim, KEYS));
        lines
    }

    /// Other counters that grew, of all pools together, the fastest first.
    fn grown(&self) -> Vec<(String, f64)> {
        let mut all = BTreeMap::<&str, f64>::new();
        for (name, pool) in &self.now.pools {
            for counter in pool.counts.keys().filter(|counter| !NOT_LISTED.contains(&counter.as_str())) {
                *all.entry(counter).or_default() += self.rate(name, pool, counter);
            }
        }
        let mut grown: Vec<(String, f64)> =
            all.into_iter().filter(|(_, rate)| *rate > 0.0).map(|(name, rate)| (name.to_owned(), rate)).collect();
        grown.sort_by(|one, other| other.1.total_cmp(&one.1));
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        let status = |connections: u64, accepted: u64| -> Status {
            let pool = serde_json::json!({
                "readiness": "serving", "connections": connections, "limit": 60_000, "generation": 2,
                "generations": [{"id": 1, "connections": 3}, {"id": 2, "connections": connections - 3}],
                "loops": [{"connections": connections / 2, "active": true, "stuck": false}, {"connections": 9, "active": true, "stuck": true}],
                "counts": {"accepted": accepted, "closed": accepted / 2, "bytes_in": accepted * 1024, "turns": accepted},
            });
            serde_json::from_value(serde_json::json!({"pid": 7, "version": "0.1.0", "ready": true, "pools": {"web": pool}}))
                .expect("a status")
        };
        Seen { now: status(15_003, 3_000), before: Some((status(15_000, 1_000), Duration::from_secs(2))) }
    }

    #[test]
    fn it_fits_every_terminal_and_shows_rates_and_what_is_stuck() {
        let looks = Looks { has_blocks: false, has_colours: false };
        for size in [(20, 3), (60, 20), (80, 24), (200, 60)] {
            let lines = seen().lines(size, looks);
            assert!(lines.len() < size.1 && lines.iter().all(|line| line.columns < size.0), "{size:?}");
        }
        let text: Vec<String> = seen().lines((80, 24), looks).into_iter().map(|line| line.text).collect();
        let text = text.join("\n");
        for part in
            ["15,003 of 60,000", "1,000/s", "1000.0 kB/s", "2: 15,000  1: 3", "7,501  9", "1 stuck", "closed 500/s", "q quit"]
        {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(!text.contains("turns"), "{text}");
    }

    #[test]
    fn a_server_that_counts_from_0_again_has_no_negative_rates() {
        let Seen { now, before } = seen();
        let (before, took) = before.expect("there are two");
        let again = Seen { now: before, before: Some((now, took)) };
        let pool = &again.now.pools["web"];
        assert_eq!(again.rates("web", pool)[0], "0.0/s");
    }
}
