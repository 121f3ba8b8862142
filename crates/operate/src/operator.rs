//! Requests of signals and operators, and the end that they bring about.

use crate::change::{Changed, Unchanged};
use crate::document::{Document, Format};
use crate::failure::Failure;
use crate::hooks::{Hooks, Moment};
use crate::lock::lock;
use crate::origin::Origin;
use crate::replaced::Report;
use crate::revisions::Cause;
use crate::server::{End, Server, has_ended};
use crate::setting::Values;
use crate::totals::Ledger;
use serde_json::json;
use sockdrawer::admission::{Limits, OnFull, PerPeer, Reject};
use sockdrawer::listening::Listening;
use sockdrawer::observe::Event;
use sockdrawer::upgrade::{Replace, Replaced, Takeover};
use sockdrawer::{Config, Drain, Drained, Error, Pool, Selector};
use sockdrawer_catalog::time;
use sockdrawer_catalog::web::Web;
use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

pub(crate) const NO_UPGRADE: &str = "no upgrade: the server was started without --upgrade PATH, or upgrade in its file";
/// Time that a drain may take before it is told what it waits for.
const QUIET: Duration = Duration::from_millis(200);

/// Maximum time of an answer once a new build has taken over; one that is about a drain may take as long as that.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// News that the main thread waits for.
pub(crate) enum News {
    /// SIGTERM, SIGINT, or an operator: the program is to end.
    End,
    /// SIGHUP.
    Reload,
    /// SIGUSR2: a new build of the program is to take over.
    Upgrade,
    /// Pools have told an event that is one of the program.
    Moment(Moment),
    /// The hooks of the start are done. Once the program ends that means nothing.
    Started(Result<(), String>),
    /// The drain is not over, and so many connections are left.
    Draining(usize),
    Drained(End),
    /// A pool has stopped.
    Stopped(String, Result<(), Error>),
}

/// Cause of a reload that a signal asks for.
const BY_SIGNAL: Cause<'static> = Cause { what: "reload", by: "SIGHUP" };

/// Connections that operators and their programs may have at once.
pub(crate) struct OperatorPlaces {
    /// Maximum number of clients: more are turned away.
    pub(crate) clients: usize,
    /// Maximum number of connections of one address. A Unix socket's peers have none.
    pub(crate) of_peer: usize,
    /// Maximum number of connections that have not asked yet: at one more the oldest gives way, so that those that ask find a place.
    pub(crate) silent: usize,
    /// Maximum number of requests that are being answered.
    pub(crate) answers: usize,
}

/// State of the program that requests of signals and operators work on.
pub(crate) struct Operator {
    pub(crate) server: Arc<Server>,
    pub(crate) origin: Origin,
    pub(crate) news: Sender<News>,
    pub(crate) ledger: Ledger,
    pub(crate) hooks: Hooks,
    /// Lock that one reload at a time holds while the file is read and put into force.
    pub(crate) reading: Mutex<()>,
}

impl Operator {
    /// Returns whether the configuration is in a file.
    pub(crate) fn has_file(&self) -> bool {
        self.origin.is_file()
    }

    /// Starts a pool that operators and their programs ask, beside those of the configuration.
    pub(crate) fn start_pool(
        &self,
        document: &Document,
        name: &str,
        web: Web,
        at: Listening,
        places: &OperatorPlaces,
    ) -> Result<Pool, Failure> {
        let OperatorPlaces { clients, of_peer, silent, answers } = *places;
        let web = web.max_silent(silent);
        let mut config = Config::accept(web.clone()).listening(at).loops(1).workers(0).limit(clients);
        web.fit(&mut config.settings);
        config.delegates = answers;
        let turned_away = |places: &str| {
            let body = format!("{{\"error\":\"all {places} are taken: end some, or try again in 10 s\"}}\n");
            let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n";
            Reject::text(&format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()))
        };
        let limits = Limits::default()
            .on_full(OnFull::Reject(turned_away(&format!("{clients} connections"))))
            .per_peer(PerPeer::address(of_peer).reject(turned_away(&format!("{of_peer} connections of an address"))));
        let (hub, of) = (self.server.hub.clone(), name.to_owned());
        // Other events are not told: the pools of the configuration tell theirs. A panic that no observer is told of is not seen.
        let config = config.admission(limits).observer(move |event: &Event| match event {
            Event::ConnectionPanicked { .. } | Event::ServicePanicked { .. } | Event::AcceptStarved { .. } => {
                hub.tell(&of, event)
            }
            _ => hub.tell_moment(event),
        });
        let started = match self.server.start_observed(name, config.clone()) {
            // A process that may open few descriptors answers fewer clients at once.
            Err(Error::LimitTooHigh { fits, .. }) if fits > 0 => self.server.start_observed(name, config.limit(fits)),
            started => started,
        };
        // The pool has the name of its setting.
        started.map_err(|error| {
            let failure = Failure::from(error);
            Failure { line: format!("{}{name}: {}", document.places.at(name), failure.line), ..failure }
        })
    }

    /// Returns the version of the program.
    pub(crate) fn version(&self) -> &str {
        &self.origin.version
    }

    /// Reads the file again, and changes the pools to what it says.
    pub(crate) fn reload(&self, dry_run: bool, cause: Cause<'_>) -> Result<Changed, Unchanged> {
        if !self.origin.is_file() {
            let why = "there is no file to read again: start with --config FILE, or change the configuration by PUT /config";
            return Err(Unchanged::Refused(why.to_owned()));
        }
        // Read before the lock of changes is held: a file may take its time. Of two reloads, the later one's file is no older.
        let _reading = lock(&self.reading);
        let change = || {
            let document = self.origin.load().map_err(Unchanged::Wrong)?;
            self.server.change(|_| Ok(document), None, dry_run, cause)
        };
        if dry_run {
            return change();
        }
        let manager = &self.server.hub.manager;
        manager.reloading();
        let result = change();
        manager.reloaded(&self.server.line(), result.as_ref().err().map(|why| why as &dyn fmt::Display));
        result
    }

    /// Reads the configuration that a request has, with what the command line says. Settings of the program that it leaves out stay as they are.
    pub(crate) fn parse(&self, text: &str, format: Format) -> Result<Document, Unchanged> {
        let in_force = self.server.state().document;
        let complete = |program: &mut Values| {
            for (name, value) in &in_force.program.set {
                program.set.entry(name).or_insert_with(|| value.clone());
            }
            program.set.extend(self.origin.overriding.set.clone());
        };
        Document::parse(text, format, &self.server.known, complete)
            .map_err(|mistakes| Unchanged::Wrong(mistakes.iter().map(ToString::to_string).collect()))
    }

    /// Tells what came of a change that was to be made.
    pub(crate) fn told(&self, Cause { what, by }: Cause<'_>, result: &Result<Changed, Unchanged>) {
        let hub = &self.server.hub;
        match result {
            Ok(changed) if changed.committed => {
                self.ledger.changed(changed.took);
                self.hooks.tell(Moment::Changed);
                hub.note("Changed", &json!(changed), format_args!("{what} by {by}: {changed}"));
            }
            Ok(changed) => hub.note("NotChanged", &json!(changed), format_args!("{what} by {by}: {changed}")),
            Err(why) => {
                self.server.note_failed_change();
                let line = format!("{what} by {by} failed, all goes on as it was: {why}");
                // A client of the control socket has it as the answer.
                match by.starts_with("uid ") {
                    true => hub.note("ChangeFailed", &json!(why.to_string()), line),
                    false => hub.note_or_print("ChangeFailed", &json!(why.to_string()), line),
                }
            }
        }
    }

    /// Has the hooks of the start run, and waits for them, unless the program is to end: pools that accept already are drained at once.
    pub(crate) fn run_hooks_of_start(&self, told: &Receiver<News>) -> Result<(), Failure> {
        let news = self.news.clone();
        if !self.hooks.ask_then(Moment::Started, move |result| drop(news.send(News::Started(result)))) {
            return Ok(());
        }
        let mut later = Vec::new();
        let result = loop {
            match told.recv().expect("this thread has a sender, too") {
                News::Started(result) => break result,
                News::End => {
                    later.push(News::End);
                    break Ok(());
                }
                next => later.push(next),
            }
        };
        later.into_iter().for_each(|next| _ = self.news.send(next));
        result.map_err(|why| Failure::run(format_args!("a hook refuses the start: {why}")))
    }

    /// Waits for the first request to end, then for the end of the drain. `asked` is what operators and their programs ask.
    pub(crate) fn end(self: &Arc<Self>, told: &Receiver<News>, asked: &[Pool]) -> Result<(), Failure> {
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
                        // The pools may be slow to say it. Without a thread it is not told.
                        let _ = self.then("count", move || News::Draining(server.connections()));
                        continue;
                    }
                },
                false => told.recv().expect("this thread has a sender, too"),
            };
            match next {
                News::End if ending => {}
                News::End => {
                    let (manager, within) = (&self.server.hub.manager, self.server.longest_drain());
                    (ending, quiet) = (true, true);
                    self.hooks.tell(Moment::Draining);
                    let server = self.server.clone();
                    let drains = self.then("drain", move || News::Drained(server.shut_down()));
                    // The drain does not wait for a manager that is slow to read it.
                    manager.stopping(within);
                    if drains.is_err() {
                        // Nothing but its end can come: a second signal ends the program without this thread.
                        return self.drained(self.server.shut_down());
                    }
                }
                News::Reload => {
                    if let Err(why) = self.spawn("reload", Operator::reload_by_signal) {
                        self.told(BY_SIGNAL, &Err(Unchanged::Refused(why.line)));
                    }
                }
                News::Upgrade => match &self.server.upgrade {
                    Some(_) => {
                        if let Err(why) = self.spawn("upgrade", |operator| drop(operator.upgrade())) {
                            self.ledger.upgrade_failed();
                            self.told_upgrade(&Err(why.line));
                        }
                    }
                    None => self.server.hub.note_or_print("UpgradeFailed", &json!(NO_UPGRADE), NO_UPGRADE),
                },
                News::Moment(moment) => self.moment(moment, asked),
                News::Started(_) | News::Draining(0) => {}
                News::Draining(left) => self.tell_draining(left),
                // A second signal came: its thread says so, and ends the program.
                News::Drained(_) if self.server.ends_now.load(Relaxed) => {}
                News::Drained(end) => return self.drained(end),
                // The drain tells more of the same end.
                News::Stopped(_, Ok(())) if ending => {}
                News::Stopped(name, result) => {
                    stopped.push((name, result));
                    self.ledger.fold(&self.server);
                    let running = self.server.state().pools;
                    // A pool that a change has removed ends in its own time, also where one of its name has been started since.
                    stopped.retain(|(name, _)| running.get(name).is_some_and(|pool| has_ended(&pool.status())));
                    let is_over = running.keys().all(|name| stopped.iter().any(|(stopped, _)| stopped == name));
                    // Where a new build has the others, too: the end of this process would cut connections of a removed pool off.
                    if is_over && !self.server.has_removed() {
                        return stopped.into_iter().try_for_each(|(_, result)| result).map_err(Failure::from);
                    }
                }
            }
        }
    }

    fn moment(&self, moment: Moment, asked: &[Pool]) {
        if moment == Moment::Replaced {
            self.let_go(asked);
        }
        self.hooks.tell(moment);
    }

    fn drained(&self, end: End) -> Result<(), Failure> {
        self.hooks.tell(Moment::Drained(end.drained));
        drained_end(&end, self.has_file())
    }

    /// Ends the connections of operators and their programs here: the next requests are for the new build. Streams and connections at rest end
    /// at once, an answer under way is finished first.
    fn let_go(&self, asked: &[Pool]) {
        let how = Drain::within(self.server.longest_drain().max(ANSWERED_WITHIN));
        for pool in asked {
            let pool = pool.clone();
            // Without a thread they end with this process.
            let _ = spawn("let go", move || _ = pool.drain(&Selector::All, how));
        }
    }

    fn tell_draining(&self, left: usize) {
        let connections = if left == 1 { "1 connection" } else { &format!("{left} connections") };
        let again = if io::stderr().is_terminal() { "Ctrl-C again" } else { "a second signal" };
        let line = format!("draining {connections}, at most {} in all; {again} ends now", in_words(self.server.longest_drain()));
        self.server.hub.note_or_print("Draining", &json!({"connections": left}), line);
    }

    fn reload_by_signal(&self) {
        self.told(BY_SIGNAL, &self.reload(false, BY_SIGNAL));
    }

    /// Starts a new build, and says what came of it.
    pub(crate) fn upgrade(&self) -> Result<(Option<Takeover>, Replaced), String> {
        let Some(upgrade) = &self.server.upgrade else { return Err(NO_UPGRADE.to_owned()) };
        let manager = &self.server.hub.manager;
        manager.reloading();
        let mut plan = None;
        let replaced = Replace::at(upgrade.path()).run(|takeover| plan = Some(takeover)).map_err(|error| error.to_string());
        let result = replaced.map(|replaced| (plan, replaced));
        if let Err(why) = &result {
            self.ledger.upgrade_failed();
            manager.not_replaced(&self.server.line(), why);
        }
        self.told_upgrade(&result);
        result
    }

    /// Tells what came of an upgrade.
    fn told_upgrade(&self, result: &Result<(Option<Takeover>, Replaced), String>) {
        let hub = &self.server.hub;
        match result {
            Ok((plan, replaced)) => {
                let report = json!(Report::of(plan.as_ref(), Some(replaced)));
                hub.note_or_print("Upgraded", &report, crate::replaced::words(replaced));
            }
            Err(why) => {
                hub.note_or_print("UpgradeFailed", &json!(why), format_args!("{why}; this server goes on"));
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

/// Waits while changes are held back, as those of a new build are until it has taken over: what the build before has found comes with that.
pub(crate) fn wait_for_takeover(operator: &Weak<Operator>) {
    operator.upgrade().iter().for_each(|operator| drop(operator.server.hold_changes()));
}

/// Returns a time as it is said.
fn in_words(time: Duration) -> String {
    if time.subsec_nanos() == 0 { format!("{} s", time.as_secs()) } else { time::format(time) }
}

fn drained_end(end: &End, has_file: bool) -> Result<(), Failure> {
    let Drained { asked, cut, .. } = end.drained;
    let Some(within) = end.cut.iter().map(|(_, within)| *within).max() else { return Ok(()) };
    let names: Vec<String> = end.cut.iter().map(|(name, _)| format!("[pool.{name}]")).collect();
    let longer = if has_file { format!("drain in {}", names.join(" and ")) } else { "--drain".to_owned() };
    let within = in_words(within);
    Err(Failure::run(format_args!(
        "{cut} of {asked} connections had not finished after {within} and were ended; give them longer: {longer}"
    )))
}

pub(crate) fn no_thread(error: impl fmt::Display) -> Failure {
    Failure::run(format_args!("cannot start a thread: {error}; allow more of them (ulimit -u)"))
}

pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map(drop).map_err(no_thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_drain_that_cut_no_connection_off_is_complete() {
        let drained = |ended, cut| Drained { asked: ended + cut, ended, cut, silent: 0 };
        assert_eq!(drained_end(&End { drained: drained(3, 0), cut: Vec::new() }, true), Ok(()));
        let cut = [("web".to_owned(), Duration::from_millis(1_500)), ("chat".to_owned(), Duration::from_secs(1))];
        let end = End { drained: drained(2, 1), cut: cut.to_vec() };
        for (has_file, longer) in [(true, "drain in [pool.web] and [pool.chat]"), (false, "--drain")] {
            let cut = drained_end(&end, has_file).expect_err("one was cut off");
            let line = format!("1 of 3 connections had not finished after 1500ms and were ended; give them longer: {longer}");
            assert!(cut.line == line && cut.fault == crate::Fault::Run, "{cut}");
        }
    }
}
