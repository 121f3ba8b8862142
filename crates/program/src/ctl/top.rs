//! `ctl top`: a server's connections and rates, drawn again each second. It asks for the status alone, on one connection, so
//! that it costs the server as little with 100,000 connections as with ten.

use super::status::{Pool, Status};
use super::{parsed, refused, show, written};
use crate::keys;
use crate::line::{Line, Style, levels, per_second};
use crate::outcome::{Exit, Failure};
use crate::screen::Screen;
use crate::signals;
use crate::table::{Table, bytes, count, plain};
use crate::terminal::{self, Looks};
use sockdrawer_operate::client::Client;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The time between two looks at the status.
const EVERY: Duration = Duration::from_secs(1);
/// Columns of the names before the values.
const NAMES: usize = 13;
/// Columns of the bar of connections.
const BAR: usize = 30;
/// Counters that have a place of their own, or grow where nothing happens.
const NOT_LISTED: [&str; 7] = ["accepted", "rejected", "bytes_in", "bytes_out", "turns", "accept_empty", "connects"];

/// A column of the table of pools.
struct Column {
    title: &'static str,
    /// A terminal of fewer columns does without it.
    least: usize,
    shows: fn(&Seen, &str, &Pool) -> String,
    /// The largest first, where pools are sorted by it; None: they are not.
    sorts: Option<fn(&Seen, &str, &Pool) -> f64>,
}

const COLUMNS: [Column; 12] = [
    Column { title: "POOL", least: 0, shows: |_, name, _| name.to_owned(), sorts: None },
    Column { title: "PROTOCOL", least: 120, shows: |_, _, pool| pool.protocol.clone(), sorts: None },
    Column { title: "MODEL", least: 140, shows: |_, _, pool| pool.model.clone(), sorts: None },
    Column { title: "STATE", least: 50, shows: |_, _, pool| pool.readiness.clone(), sorts: None },
    Column {
        title: ">CONNECTIONS",
        least: 0,
        shows: |_, _, pool| count(pool.connections),
        #[expect(clippy::cast_precision_loss, reason = "compared only")]
        sorts: Some(|_, _, pool| pool.connections as f64),
    },
    Column { title: ">LIMIT", least: 100, shows: |_, _, pool| count(pool.limit), sorts: None },
    Column::rate(">ACCEPTS", 40, |seen, name, pool| seen.rate(name, pool, "accepted")),
    Column::rate(">REJECTS", 60, |seen, name, pool| seen.rate(name, pool, "rejected")),
    Column {
        title: ">RECEIVED",
        least: 80,
        shows: |seen, name, pool| format!("{}/s", bytes(seen.rate(name, pool, "bytes_in"))),
        sorts: Some(|seen, name, pool| seen.rate(name, pool, "bytes_in")),
    },
    Column {
        title: ">SENT",
        least: 80,
        shows: |seen, name, pool| format!("{}/s", bytes(seen.rate(name, pool, "bytes_out"))),
        sorts: Some(|seen, name, pool| seen.rate(name, pool, "bytes_out")),
    },
    Column::rate(">CLOSED", 120, |seen, name, pool| seen.rate(name, pool, "closed")),
    Column::rate(">ERRORS", 120, |seen, name, pool| seen.rate(name, pool, "errors")),
];

impl Column {
    /// Makes a column of a number per second.
    const fn rate(title: &'static str, least: usize, rate: fn(&Seen, &str, &Pool) -> f64) -> Column {
        Column { title, least, shows: |_, _, _| String::new(), sorts: Some(rate) }
    }

    fn cell(&self, seen: &Seen, (name, pool): (&str, &Pool)) -> String {
        match ((self.shows)(seen, name, pool), self.sorts) {
            (shown, Some(rate)) if shown.is_empty() => per_second(rate(seen, name, pool)),
            (shown, _) => shown,
        }
    }
}

/// Choice of the pools that are shown, and of their order, as keys say.
#[derive(Default)]
struct Choice {
    /// The column that they are sorted by; else by name.
    sorted_by: Option<usize>,
    /// A part of their names.
    filter: String,
    /// The filter is being typed.
    typing: bool,
    /// Pools above the first that is shown.
    above: usize,
    /// The bytes that have come of the escape sequence of a key.
    escape: Vec<u8>,
}

impl Choice {
    /// Returns false where the key says nothing here.
    fn press(&mut self, key: u8) -> bool {
        match (key, &self.escape[..]) {
            (27, _) => {
                (self.escape, self.typing) = (vec![27], false);
            }
            (b'[' | b'O', [27]) => self.escape.push(key),
            (b'5' | b'6', [27, _]) => self.escape.push(key),
            (b'A', [27, _]) => self.scroll(-1),
            (b'B', [27, _]) => self.scroll(1),
            (b'~', [27, _, b'5']) => self.scroll(-10),
            (b'~', [27, _, b'6']) => self.scroll(10),
            (b'\n' | b'\r', _) if self.typing => self.typing = false,
            (8 | 127, _) if self.typing => drop(self.filter.pop()),
            (key, _) if self.typing && key.is_ascii_graphic() => self.filter.push(char::from(key)),
            (b'/', _) => (self.typing, self.filter) = (true, String::new()),
            (b's', _) => {
                let sorts = |at: &usize| COLUMNS[*at].sorts.is_some();
                self.sorted_by = (self.sorted_by.map_or(0, |at| at + 1)..COLUMNS.len()).find(sorts);
            }
            (b'k', _) => self.scroll(-1),
            (b'j', _) => self.scroll(1),
            (b'b', _) => self.scroll(-10),
            (b' ', _) => self.scroll(10),
            _ => {
                self.escape.clear();
                return false;
            }
        }
        true
    }

    fn scroll(&mut self, pools: isize) {
        self.escape.clear();
        self.above = self.above.saturating_add_signed(pools);
    }

    fn pools<'a>(&self, seen: &'a Seen) -> Vec<(&'a str, &'a Pool)> {
        let mut pools: Vec<(&str, &Pool)> = seen.now.pools.iter().map(|(name, pool)| (&**name, pool)).collect();
        pools.retain(|(name, _)| name.contains(&self.filter));
        if let Some(key) = self.sorted_by.and_then(|at| COLUMNS[at].sorts) {
            pools.sort_by(|one, other| key(seen, other.0, other.1).total_cmp(&key(seen, one.0, one.1)));
        }
        pools
    }

    /// Says what the keys do, and what they have done.
    fn words(&self, (first, last, all): (usize, usize, usize)) -> String {
        let shown = if last - first < all { format!("  pools {}-{last} of {all}", first + 1) } else { String::new() };
        let sorted = self.sorted_by.map_or("name", |at| COLUMNS[at].title.trim_start_matches('>')).to_lowercase();
        match (self.typing, &*self.filter) {
            (true, filter) => format!("filter: {filter}_{shown}"),
            (false, "") => format!("q quit{shown}  s sort: {sorted}  / filter  j k scroll"),
            (false, filter) => format!("q quit{shown}  s sort: {sorted}  / filter: {filter}  j k scroll"),
        }
    }
}

/// Two looks at a server: the last one, and the one before.
struct Seen {
    now: Status,
    before: Option<(Status, Duration)>,
}

/// Shows the server until `q`, a signal, or the end of the reader.
pub(super) fn run(program: &str, mut client: Client, json: bool) -> Result<Exit, Failure> {
    // A mistake that shows at once is told in a line, before the terminal is touched.
    let mut first = Some(ask(program, &mut client)?);
    let (sender, pressed) = mpsc::channel();
    let draws = !json && io::stdout().is_terminal() && terminal::size().is_some();
    let keys = draws.then(|| keys::listen(move |key| _ = sender.send(key))).flatten();
    // At once: the server may be slow to answer, and the reader of the output slow to take it.
    signals::watch(|signal| keys::without(|| signal.end_now()))?;
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
        let answer = first.take().map_or_else(|| ask(program, &mut client), Ok);
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
        let until = asked + EVERY;
        if let Some(end) = wait(&pressed, until, |key| view.press(key, seen.as_ref())) {
            break end;
        }
    };
    drop(keys);
    Ok(end)
}

fn ask(program: &str, client: &mut Client) -> Result<String, Failure> {
    let answer = client.send("GET", "/status", &[], b"")?;
    let status = answer.status;
    let text = answer.text()?;
    if status == 200 { Ok(text) } else { Err(refused(program, status, &text)) }
}

/// Waits until then, or for the key that ends it. Other keys change what is shown.
fn wait(pressed: &Receiver<u8>, until: Instant, mut press: impl FnMut(u8) -> bool) -> Option<Exit> {
    loop {
        match pressed.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(key) if press(key) => {}
            Ok(b'q' | b'Q') => return Some(Exit::Ok),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => return None,
            // There are no keys.
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                return None;
            }
        }
    }
}

/// The place where it is shown.
enum View {
    Terminal(Screen, Looks, Choice),
    Lines(Table),
    Json,
}

impl View {
    fn new(json: bool, draws: bool) -> View {
        match (json, draws) {
            (true, _) => View::Json,
            (_, true) => View::Terminal(Screen::default(), Looks::of_environment(), Choice::default()),
            _ => View::Lines(Table::new(&["POOL", ">CONNECTIONS", ">ACCEPTS", ">REJECTS", ">RECEIVED", ">SENT", "STATE"])),
        }
    }

    /// Shows the pools. Some: the reader has gone.
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
            View::Terminal(..) => {
                self.draw(seen);
                return Ok(None);
            }
        };
        let mut output = io::stdout().lock();
        let result = lines.iter().try_for_each(|line| writeln!(output, "{line}")).and_then(|()| output.flush());
        let has_gone = result.is_err();
        written(result).map(|end| has_gone.then_some(end))
    }

    fn draw(&mut self, seen: &Seen) {
        let View::Terminal(screen, looks, choice) = self else { return };
        if let Some(size) = terminal::size().filter(|size| screen.is_ours(*size, false)) {
            screen.draw(&seen.lines(size, *looks, choice));
        }
    }

    /// Draws anew what a key has changed. Returns false where it says nothing here.
    fn press(&mut self, key: u8, seen: Option<&Seen>) -> bool {
        let View::Terminal(.., choice) = self else { return false };
        let is_ours = choice.press(key);
        if let (true, Some(seen)) = (is_ours, seen) {
            self.draw(seen);
        }
        is_ours
    }

    /// Shows on a terminal why the server does not answer, until it does; elsewhere it is the end.
    fn lost(&mut self, why: &Failure) -> Result<(), Failure> {
        let View::Terminal(screen, looks, _) = self else { return Err(Failure::run(why)) };
        if let Some(size) = terminal::size().filter(|size| screen.is_ours(*size, false)) {
            let line = Line::new(*looks, size.0).add(Style::Red, &plain(&why.to_string()));
            screen.draw(&[line, Line::new(*looks, size.0).add(Style::Dim, "q quit")]);
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
impl Seen {
    /// Returns how much a counter of a pool grew per second.
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

    fn lines(&self, (columns, rows): (usize, usize), looks: Looks, choice: &mut Choice) -> Vec<Line> {
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
        let pools = choice.pools(self);
        // The cursor has a row of its own, below the keys. The head of the table and the counters have one each.
        let room = rows.saturating_sub(lines.len() + 4).max(1);
        choice.above = choice.above.min(pools.len().saturating_sub(room));
        let shown = &pools[choice.above..pools.len().min(choice.above + room)];
        lines.extend(self.table(shown, (columns, looks)));
        if pools.len() * 3 <= room {
            lines.extend(shown.iter().map(|(name, pool)| {
                let generation = |one: &super::status::Generation| format!("{}: {}", one.id, count(one.connections));
                let all: Vec<String> = pool.generations.iter().rev().map(generation).collect();
                named("generations").add(Style::Plain, &format!("{name}  {}", all.join("  ")))
            }));
        }
        let is_stuck = |pool: &Pool| pool.loops.iter().any(|one| one.stuck);
        for (name, pool) in shown.iter().filter(|(_, pool)| pools.len() * 3 <= room || is_stuck(pool)) {
            let all = pool.loops.iter().filter(|one| one.active || one.connections > 0).map(|one| count(one.connections));
            let row = named("loops").add(Style::Plain, &format!("{name}  {}", all.collect::<Vec<_>>().join("  ")));
            let stuck = pool.loops.iter().filter(|one| one.stuck).count();
            lines.push(if stuck == 0 { row } else { row.add(Style::Red, &format!("  {stuck} stuck")) });
        }
        let grown = self.grown().into_iter().map(|(counter, rate)| format!("{} {}", counter.replace('_', " "), per_second(rate)));
        lines.push(named("counters").add(Style::Plain, &grown.collect::<Vec<_>>().join(", ")));
        lines.truncate(rows.saturating_sub(2).max(1));
        let places = (choice.above, choice.above + shown.len(), pools.len());
        lines.push(line().add(Style::Dim, &choice.words(places)));
        lines
    }

    /// Returns the lines of these pools, with as much of them as there is room for.
    fn table(&self, pools: &[(&str, &Pool)], (columns, looks): (usize, Looks)) -> Vec<Line> {
        let shown: Vec<&Column> = COLUMNS.iter().filter(|column| column.least <= columns).collect();
        let mut table = Table::new(&shown.iter().map(|column| column.title).collect::<Vec<_>>());
        for pool in pools {
            table.row(shown.iter().map(|column| column.cell(self, *pool)));
        }
        let style = |row: usize| if row == 0 { Style::Dim } else { Style::Plain };
        let lines = table.lines(Some(columns.saturating_sub(1))).into_iter().enumerate();
        lines.map(|(row, text)| Line::new(looks, columns).add(style(row), &text)).collect()
    }

    /// Returns the other counters that grew, of all pools together, the fastest first.
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
            let lines = seen().lines(size, looks, &mut Choice::default());
            assert!(lines.len() < size.1 && lines.iter().all(|line| line.columns < size.0), "{size:?}");
        }
        let text: Vec<String> = seen().lines((80, 24), looks, &mut Choice::default()).into_iter().map(|line| line.text).collect();
        let text = text.join("\n");
        for part in
            ["15,003 of 60,000", "1,000/s", "1000.0 kB/s", "2: 15,000  1: 3", "7,501  9", "1 stuck", "closed 500/s", "q quit"]
        {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(!text.contains("turns"), "{text}");
    }

    #[test]
    fn many_pools_are_scrolled_sorted_and_filtered_in_terminals_of_all_sizes() {
        let looks = Looks { has_blocks: false, has_colours: false };
        let pool =
            |number: u64| (format!("pool-{number:02}"), serde_json::json!({"readiness": "serving", "connections": number}));
        let pools: serde_json::Map<String, serde_json::Value> = (1..=40).map(pool).collect();
        let now = serde_json::json!({"pid": 7, "version": "0.1.0", "ready": true, "pools": pools});
        let seen = Seen { now: serde_json::from_value(now).expect("a status"), before: None };
        let mut choice = Choice::default();
        let mut shown = |keys: &[u8], size| {
            keys.iter().for_each(|key| assert!(choice.press(*key), "{key}"));
            let lines = seen.lines(size, looks, &mut choice);
            assert!(lines.len() < size.1 && lines.iter().all(|line| line.columns < size.0), "{size:?}");
            lines.into_iter().map(|line| line.text).collect::<Vec<_>>()
        };
        let first = |lines: &[String]| lines[3].split_whitespace().next().unwrap_or_default().to_owned();
        for size in [(40, 20), (60, 20), (80, 24), (200, 50)] {
            let lines = shown(b"", size);
            let rows = lines.iter().filter(|line| line.starts_with("pool-")).count();
            let says = if rows < 40 { format!("pools 1-{rows} of 40") } else { String::new() };
            assert!(rows >= 40.min(size.1 - 7) && lines.last().is_some_and(|line| line.contains(&says)), "{size:?}: {lines:?}");
        }
        assert_eq!(first(&shown(b"j", (80, 24))), "pool-02");
        assert_eq!(first(&shown(b"\x1b[A", (80, 24))), "pool-01");
        assert_eq!(
            shown(b"\x1b[6~\x1b[6~\x1b[6~\x1b[6~", (80, 24)).iter().filter(|line| line.starts_with("pool-40 ")).count(),
            1
        );
        assert_eq!(first(&shown(b"sbbbb", (80, 24))), "pool-40", "the most connections first");
        let lines = shown(b"/-07\n", (80, 24));
        assert!(first(&lines) == "pool-07" && lines.last().is_some_and(|line| line.contains("filter: -07")), "{lines:?}");
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
