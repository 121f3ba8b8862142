//! The life of an operated program: it begins, obeys signals and operators, and ends in order.

use crate::change::{Changed, Unchanged};
use crate::control;
use crate::document::{Document, Format, MAX_BYTES};
use crate::failure::Failure;
use crate::hub::Hub;
use crate::log::{Form, Log};
use crate::protocol::Protocol;
use crate::server::Server;
use crate::setting::Values;
use crate::systemd::Passed;
use crate::{carry, document, metrics, notify, print, signals};
use serde_json::json;
use sockdrawer::{Address, Drain, Drained, Error, Pool, Upgrade};
use sockdrawer_catalog::time;
use std::fmt;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How long a drain may take before it is told what it waits for.
const QUIET: Duration = Duration::from_secs(1);
/// How long the end waits for the last lines to be written.
const PATIENCE: Duration = Duration::from_secs(1);

/// A program that is operated: protocols by name, and a configuration that says which pools there are.
#[derive(Debug)]
pub struct Operated {
    source: Source,
    /// What the command line says of the whole program, whatever the file says.
    overriding: Values,
    protocols: Vec<Protocol>,
    version: String,
}

#[derive(Debug)]
enum Source {
    File(PathBuf),
    Document(Document),
}

impl Operated {
    /// A program that reads its configuration from a file, at its start and at each reload.
    pub fn new(file: impl Into<PathBuf>) -> Operated {
        Operated::of(Source::File(file.into()))
    }

    /// A program with this configuration, which is changed by the control socket alone.
    pub fn with(document: Document) -> Operated {
        Operated::of(Source::Document(document))
    }

    fn of(source: Source) -> Operated {
        Operated { source, overriding: Values::default(), protocols: Vec::new(), version: String::new() }
    }

    /// Registers a protocol.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Operated {
        self.protocols.push(protocol);
        self
    }

    /// Sets what holds for the whole program in the place of what the file says.
    #[must_use]
    pub fn overriding(mut self, values: Values) -> Operated {
        self.overriding = values;
        self
    }

    /// Sets the version of this build, for people to read. Default: empty.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Operated {
        self.version = version.into();
        self
    }

    /// Checks the configuration and starts nothing. Returns it.
    ///
    /// # Errors
    /// All that is wrong with it, a line each.
    pub fn check(&self) -> Result<Document, Vec<String>> {
        self.load()
    }

    fn load(&self) -> Result<Document, Vec<String>> {
        match &self.source {
            Source::File(path) => load(path, &self.protocols, &self.overriding),
            Source::Document(document) => Ok(document.clone()),
        }
    }

    /// Runs it as the `main` of a program: prints `listening on ADDR` for each address once it accepts, and at the end, if that was not in
    /// order, one line on standard error.
    ///
    /// Exit codes: 0 after an end in order, 1 if connections were cut off or the run failed, 2 if the configuration is wrong.
    pub fn main(self) -> ExitCode {
        match self.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                print::tell_within(PATIENCE, format_args!("error: {failure}"));
                ExitCode::from(failure.exit_code())
            }
        }
    }

    /// Serves until SIGTERM or SIGINT, until a new build has taken over, or until all pools have given up.
    ///
    /// # Errors
    /// When the configuration is wrong or cannot be had, and when the end was not in order.
    pub fn run(self) -> Result<(), Failure> {
        let document = self.load().map_err(|mistakes| Failure::setting(mistakes.join("\n       ")))?;
        let program = document.program.clone();
        let form = match program.text("log").unwrap_or(if self.is_file() { "text" } else { "none" }) {
            "none" => None,
            "json" => Some(Form::Json),
            _ if self.is_file() => Some(Form::text()),
            _ => Some(Form::Plain),
        };
        let log = form.map(|form| Log::start(io::stderr(), form)).transpose().map_err(no_thread)?;
        // Connections are descriptors. Where the limit may not rise, a pool whose connections do not fit says so.
        let _ = sockdrawer::raise_descriptor_limit();
        let (news, told) = mpsc::channel();
        self.watch_signals(&news)?;
        let since = Instant::now();
        let upgrade = self.begin_upgrade(&program, &document)?;
        let ended = news.clone();
        let started = move |name: &str, pool: &Pool| wait_for_end(name, pool, &ended);
        let server =
            Server::new(self.protocols.clone(), (Hub::new(log), upgrade.clone(), Passed::default()), !self.is_file(), started);
        let server = Arc::new(server);
        server.start(document)?;
        let operator = Arc::new(Operator { server: server.clone(), operated: self, news: news.clone() });
        let asked = [metrics::start(&operator, &program)?, control::start(&operator, &program)?];
        if let Some(upgrade) = &upgrade {
            let replaces = upgrade.predecessor().is_some();
            carry::over(upgrade, &operator)?;
            upgrade.ready()?;
            if replaces {
                server.hub.ledger.upgraded(since.elapsed());
            }
        }
        server.watch();
        notify::send("READY=1");
        tell_addresses(&server, asked[0].as_ref())?;
        let end = operator.end(&told);
        asked.iter().flatten().for_each(control::end);
        server.state().pools.iter().for_each(|(name, pool)| server.hub.sum_up(name, &pool.status().counts));
        if let Some(log) = server.hub.log() {
            log.flush(PATIENCE);
        }
        end
    }

    fn is_file(&self) -> bool {
        matches!(self.source, Source::File(_))
    }

    fn watch_signals(&self, news: &Sender<News>) -> Result<(), Failure> {
        let send = |make: fn() -> News| {
            let news = news.clone();
            move || drop(news.send(make()))
        };
        let reload = self.is_file().then(|| Box::new(send(|| News::Reload)) as Box<dyn Fn() + Send>);
        signals::drain_or_end(send(|| News::End), send(|| News::Upgrade), reload).map_err(|error| {
            Failure::run(format_args!("cannot watch for signals: {error}; free descriptors or threads and try again"))
        })
    }

    fn begin_upgrade(&self, program: &Values, document: &Document) -> Result<Option<Arc<Upgrade>>, Failure> {
        let Some(path) = program.text("upgrade").filter(|path| *path != "none") else { return Ok(None) };
        let mut upgrade = Upgrade::at(path).version(&self.version);
        if let Some(time) = program.time("stays") {
            let drain = document.pools.keys().map(|name| crate::server::drain_of(document, name).deadline).max();
            upgrade = upgrade.stays(time, Drain::within(drain.unwrap_or(crate::server::DRAIN)));
        }
        Ok(Some(Arc::new(upgrade.begin()?)))
    }
}

fn load(path: &Path, protocols: &[Protocol], overriding: &Values) -> Result<Document, Vec<String>> {
    let shown = path.display();
    let cannot = |error: io::Error| vec![format!("cannot read {shown}: {error}; name a file that is there and may be read")];
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    // Not a byte more than is taken: the file may be a device.
    file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text).map_err(cannot)?;
    let mut document = Document::parse(&text, Format::of(path, &text), document::Known { protocols })
        .map_err(|mistakes| mistakes.iter().map(|mistake| mistake.in_file(&shown)).collect::<Vec<_>>())?;
    document.program.0.extend(overriding.0.clone());
    Ok(document)
}

fn no_thread(error: impl fmt::Display) -> Failure {
    Failure::run(format_args!("cannot start a thread: {error}; allow more of them (ulimit -u)"))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map(drop).map_err(no_thread)
}

fn wait_for_end(name: &str, pool: &Pool, news: &Sender<News>) {
    let (news, pool, of) = (news.clone(), pool.clone(), name.to_owned());
    // The receiver is gone when the program ends first. Without a thread the program ends by signals alone.
    let _ = spawn("join", move || drop(news.send(News::Stopped(of, pool.join()))));
}

/// A server whose output nobody can take is still a server, and ends when it is asked to: a thread that may be left behind writes.
fn tell_addresses(server: &Server, metrics: Option<&Pool>) -> Result<(), Failure> {
    let pools = server.state().pools;
    let listening = pools.values().flat_map(Pool::addresses).map(|address| format!("listening on {address}"));
    let metrics = metrics.into_iter().flat_map(Pool::addresses).map(|address| match address {
        Address::Unix(path) => format!("metrics on {}", path.display()),
        address => format!("metrics on http://{address}/metrics"),
    });
    let lines: Vec<String> = listening.chain(metrics).collect();
    spawn("addresses", move || {
        for line in lines {
            let _ = print::line(line);
        }
    })
}

/// What the main thread waits for.
pub(crate) enum News {
    /// SIGTERM, SIGINT, or an operator: the program is to end.
    End,
    /// SIGHUP.
    Reload,
    /// SIGUSR2: a new build of the program is to take over.
    Upgrade,
    /// The drain is not over, and so many connections are left.
    Draining(usize),
    Drained(Drained),
    /// A pool has stopped.
    Stopped(String, Result<(), Error>),
}

/// What signals and operators ask for.
pub(crate) struct Operator {
    pub(crate) server: Arc<Server>,
    operated: Operated,
    pub(crate) news: Sender<News>,
}

impl Operator {
    /// Whether the configuration is in a file.
    pub(crate) fn has_file(&self) -> bool {
        self.operated.is_file()
    }

    /// The version of the program.
    pub(crate) fn version(&self) -> &str {
        &self.operated.version
    }

    /// Reads the file again, and changes the pools to what it says.
    pub(crate) fn reload(&self, dry_run: bool) -> Result<Changed, Unchanged> {
        if !self.operated.is_file() {
            let why = "there is no file to read again: start with --config FILE, or change the configuration by PUT /config";
            return Err(Unchanged::Refused(why.to_owned()));
        }
        self.server.change(|_| self.operated.load().map_err(Unchanged::Wrong), None, dry_run)
    }

    /// The configuration that a request has, with what the command line says.
    pub(crate) fn parse(&self, text: &str, format: Format) -> Result<Document, Unchanged> {
        let known = self.server.known();
        let mut document = Document::parse(text, format, known)
            .map_err(|mistakes| Unchanged::Wrong(mistakes.iter().map(ToString::to_string).collect()))?;
        document.program.0.extend(self.operated.overriding.0.clone());
        Ok(document)
    }

    /// Tells what came of a change that was to be made.
    pub(crate) fn told(&self, by: &str, what: &str, result: &Result<Changed, Unchanged>) {
        let hub = &self.server.hub;
        match result {
            Ok(changed) if changed.committed => {
                hub.ledger.changed(changed.took);
                hub.note("Changed", &json!(changed), format_args!("{what} by {by}: {changed}"));
            }
            Ok(changed) => hub.note("NotChanged", &json!(changed), format_args!("{what} by {by}: {changed}")),
            Err(why) => {
                self.server.note_failed_change();
                hub.note(
                    "ChangeFailed",
                    &json!(why.to_string()),
                    format_args!("{what} by {by} failed, all goes on as it was: {why}"),
                );
            }
        }
    }

    /// Waits for the first request to end, then for the end of the drain.
    fn end(self: &Arc<Self>, told: &Receiver<News>) -> Result<(), Failure> {
        let mut stopped = Vec::new();
        // Told once, and not of a drain that is over soon.
        let (mut ending, mut quiet) = (false, false);
        loop {
            let next = match quiet {
                true => match told.recv_timeout(QUIET) {
                    Ok(next) => next,
                    Err(_) => {
                        quiet = false;
                        let server = self.server.clone();
                        // The pools may be slow to say it.
                        self.then("count", move || News::Draining(server.connections()))?;
                        continue;
                    }
                },
                false => told.recv().expect("this thread has a sender, too"),
            };
            match next {
                News::End if ending => {}
                News::End => {
                    notify::send("STOPPING=1");
                    (ending, quiet) = (true, true);
                    let server = self.server.clone();
                    self.then("drain", move || News::Drained(server.shut_down()))?;
                }
                News::Reload => self.spawn("reload", Operator::reload_by_signal)?,
                News::Upgrade => match &self.server.upgrade {
                    Some(_) => self.spawn("upgrade", |operator| drop(operator.upgrade()))?,
                    None => {
                        print::tell_within(Duration::ZERO, "error: no upgrade: the server was started without --upgrade PATH");
                    }
                },
                News::Draining(0) => {}
                News::Draining(left) => self.tell_draining(left),
                News::Drained(drained) => return drained_end(drained, self.server.longest_drain()),
                // The drain tells more of the same end.
                News::Stopped(_, Ok(())) if ending => {}
                News::Stopped(name, result) => {
                    stopped.push((name, result));
                    let running = self.server.state().pools;
                    if running.keys().all(|name| stopped.iter().any(|(stopped, _)| stopped == name)) {
                        return stopped.into_iter().try_for_each(|(_, result)| result).map_err(Failure::from);
                    }
                }
            }
        }
    }

    fn tell_draining(&self, left: usize) {
        let connections = if left == 1 { "1 connection" } else { &format!("{left} connections") };
        let again = if io::stderr().is_terminal() { "Ctrl-C again" } else { "a second signal" };
        let line = format!("draining {connections}, at most {} in all; {again} ends now", in_words(self.server.longest_drain()));
        print::tell_within(Duration::ZERO, line);
    }

    fn reload_by_signal(&self) {
        notify::send(&notify::reloading());
        let result = self.reload(false);
        self.told("SIGHUP", "reload", &result);
        match result {
            Ok(_) => notify::send("READY=1"),
            Err(why) => {
                notify::send(&format!("READY=1\nSTATUS=not reloaded: {}", first_line(&why.to_string())));
                if self.server.hub.log().is_none() {
                    print::tell_within(PATIENCE, format_args!("error: {why}; all goes on as it was"));
                }
            }
        }
    }

    /// Starts a new build, and says what came of it.
    pub(crate) fn upgrade(&self) -> Result<sockdrawer::upgrade::Replaced, String> {
        let Some(upgrade) = &self.server.upgrade else {
            return Err("no upgrade: the server was started without --upgrade PATH".to_owned());
        };
        notify::send(&notify::reloading());
        match upgrade.spawn() {
            Ok(replaced) => {
                print::tell_within(PATIENCE, crate::replaced::words(&replaced, None));
                Ok(replaced)
            }
            Err(error) => {
                self.server.hub.ledger.upgrade_failed();
                notify::send(&format!("READY=1\nSTATUS=not replaced: {error}"));
                print::tell_within(PATIENCE, format_args!("error: {error}; this server goes on"));
                Err(error.to_string())
            }
        }
    }

    fn spawn(self: &Arc<Self>, name: &str, run: impl FnOnce(&Operator) + Send + 'static) -> Result<(), Failure> {
        let operator = self.clone();
        spawn(name, move || run(&operator))
    }

    fn then(&self, name: &str, wait: impl FnOnce() -> News + Send + 'static) -> Result<(), Failure> {
        let news = self.news.clone();
        // The receiver is gone when the program ends first.
        spawn(name, move || drop(news.send(wait())))
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// A time as it is said.
fn in_words(time: Duration) -> String {
    if time.subsec_nanos() == 0 { format!("{} s", time.as_secs()) } else { time::format(time) }
}

fn drained_end(drained: Drained, within: Duration) -> Result<(), Failure> {
    if drained.cut == 0 {
        return Ok(());
    }
    let Drained { asked, cut, .. } = drained;
    let within = in_words(within);
    Err(Failure::run(format_args!(
        "{cut} of {asked} connections had not finished after {within} and were ended; give them longer: --drain"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_drain_that_cut_no_connection_off_is_complete() {
        let drained = |ended, cut| Drained { asked: ended + cut, ended, cut };
        assert_eq!(drained_end(drained(3, 0), Duration::from_secs(30)), Ok(()));
        let cut = drained_end(drained(2, 1), Duration::from_millis(1_500)).expect_err("one was cut off");
        assert!(cut.line.contains("1 of 3 connections had not finished after 1500ms") && cut.fault == crate::Fault::Run, "{cut}");
    }
}
