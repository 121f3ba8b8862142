//! The life of an operated program: it begins, obeys signals and operators, and ends in order.

use crate::document::{self, Document, Known, Shown};
use crate::failure::Failure;
use crate::hooks::{self, Hooks, Moment, Moments};
use crate::hub::Hub;
use crate::lock::lock;
use crate::log::{Form, Log};
use crate::metric_family::{Measure, MetricFamily};
use crate::notify::Manager;
use crate::operator::{News, Operator, no_thread, spawn};
use crate::origin::{NAME, Origin, Source};
use crate::print::PATIENCE;
use crate::protocol::Protocol;
use crate::running::Running;
use crate::server::{Server, within};
use crate::setting::{Setting, Values};
use crate::systemd::Passed;
use crate::totals::Ledger;
use crate::{carry, certificates, checks, control, metrics, print, program_settings, rehearsal, signals};
use serde_json::json;
use signal_hook::consts::SIGHUP;
use sockdrawer::observe::Event;
use sockdrawer::{Address, Drain, Error, Field, Pool, Upgrade};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

/// A program that is operated: protocols by name, and a configuration that says which pools there are.
#[derive(Clone)]
pub struct Operated {
    pub(crate) origin: Origin,
    hooks: Vec<Hook>,
    carries: Vec<Carry>,
}

/// State of the program that goes from one build to the next: its name, and what writes and reads it.
type Carry = (String, Arc<dyn Fn() -> Vec<u8> + Send + Sync>, Arc<dyn Fn(&[u8]) + Send + Sync>);

/// A function that is told of moments, before there is a program that runs.
type Hook = Arc<dyn Fn(&Moment, &Running) -> Result<(), String> + Send + Sync>;

impl fmt::Debug for Operated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operated").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Operated {
    /// Makes a program that reads its configuration from a file, at its start and at each reload.
    pub fn new(file: impl Into<PathBuf>) -> Operated {
        Operated::of(Source::File(file.into()))
    }

    /// Makes a program with this configuration, which is changed by the control socket alone.
    pub fn with(document: Document) -> Operated {
        Operated::of(Source::Document(document))
    }

    fn of(source: Source) -> Operated {
        let (overriding, known) = (Values::default(), Known::default());
        Operated {
            origin: Origin { name: NAME, source, overriding, known, version: String::new() },
            hooks: Vec::new(),
            carries: Vec::new(),
        }
    }

    /// Names the program: its control socket is `NAME.sock`, unless the configuration says otherwise. Default: `sockdrawer`.
    #[must_use]
    pub fn name(mut self, name: &'static str) -> Operated {
        self.origin.name = name;
        self
    }

    /// Reads its configuration from another file.
    #[must_use]
    pub fn of_file(mut self, file: impl Into<PathBuf>) -> Operated {
        self.origin.source = Source::File(file.into());
        self
    }

    /// Takes this configuration in the place of the one it has.
    #[must_use]
    pub fn of_document(mut self, document: Document) -> Operated {
        self.origin.source = Source::Document(document);
        self
    }

    /// Returns the file of its configuration. None: it was given one that is in no file.
    pub fn file(&self) -> Option<&Path> {
        if let Source::File(file) = &self.origin.source { Some(file) } else { None }
    }

    /// Returns the protocols that are registered.
    pub fn protocols(&self) -> &[Protocol] {
        &self.origin.known.protocols
    }

    /// Returns the settings of the whole program: the built-in ones, and then its own.
    pub fn program_settings(&self) -> impl Iterator<Item = &Setting> {
        self.origin.known.program_settings()
    }

    /// Returns the version of this build, as [`Operated::version`] set it.
    pub fn build_version(&self) -> &str {
        &self.origin.version
    }

    /// Registers a protocol.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Operated {
        self.origin.known.protocols.push(protocol);
        self
    }

    /// Adds a setting of the whole program: a key of the file beside the built-in ones. A change of it is carried out by [`Moment::Changed`].
    #[must_use]
    pub fn setting(mut self, setting: Setting) -> Operated {
        self.origin.known.settings.push(setting.group(program_settings::GROUP));
        self
    }

    /// Adds a check across settings: of a configuration whose settings are right by themselves. An error that begins with the name of a setting and a colon,
    /// such as `pool.web.limit: more than rooms allow`, is told with the setting's line.
    #[must_use]
    pub fn rule(mut self, rule: impl Fn(&Document) -> Result<(), String> + Send + Sync + 'static) -> Operated {
        self.origin.known.rules.push(Arc::new(rule));
        self
    }

    /// Shows metrics of the program's own on the page of the built-in ones.
    #[must_use]
    pub fn metric<V: Measure, const N: usize>(mut self, family: &MetricFamily<V, N>) -> Operated {
        self.origin.known.metrics.push(Arc::new(family.clone()));
        self
    }

    /// Shows a table of the program's own in its status: `ctl status` prints it below the built-in ones, `ctl show NAME` alone. Columns are named in lower case, as keys of JSON are; numbers stand at the right where a column
    /// has nothing else. `rows` is called for each that asks, and must not block.
    ///
    /// ```
    /// # use sockdrawer_operate::Operated;
    /// let operated = Operated::new("/etc/chat.toml").shows("rooms", &["room", "members"], || {
    ///     vec![vec!["lobby".into(), 12.into()]]
    /// });
    /// ```
    #[must_use]
    pub fn shows(
        mut self,
        name: &'static str,
        columns: &'static [&'static str],
        rows: impl Fn() -> Vec<Vec<Field>> + Send + Sync + 'static,
    ) -> Operated {
        self.origin.known.shown.push(Shown { name, columns, rows: Arc::new(rows) });
        self
    }

    /// Has state that connections share go from one build to the next, under a name that both know: see [`Upgrade::carry`]. Give the state to protocols and hooks as
    /// clones of one `Arc`. Connections that change it are to move [together](sockdrawer::State::together); what another one changes between `write` and its own move is lost.
    #[must_use]
    pub fn carry(
        mut self,
        name: &str,
        write: impl Fn() -> Vec<u8> + Send + Sync + 'static,
        read: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Operated {
        self.carries.push((name.to_owned(), Arc::new(write), Arc::new(read)));
        self
    }

    /// Has a function called at [moments](Moment) in the life of the program, on a thread for all hooks, one moment after the other; of several hooks in
    /// the order in which they were added. The start and an upgrade wait for what it returns at [`Moment::Started`] and [`Moment::Upgrading`]; a request
    /// to end waits for no hook, but the program for those that are not done, 5 s at most. An error at any other moment, and a panic, is told as
    /// `HookFailed`.
    ///
    /// ```no_run
    /// # use sockdrawer_operate::{Moment, Operated};
    /// let operated = Operated::new("/etc/chat.toml").hook(|moment, running| {
    ///     if let (Moment::Started, Some(pool)) = (moment, running.pool("chat")) {
    ///         println!("chat has a limit of {}", pool.status().limit);
    ///     }
    ///     Ok(())
    /// });
    /// ```
    #[must_use]
    pub fn hook(mut self, hook: impl Fn(&Moment, &Running) -> Result<(), String> + Send + Sync + 'static) -> Operated {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// Returns the JSON schema of this program's configurations: for editors, and for programs that write configurations. TOML files are validated by
    /// it too.
    pub fn schema(&self) -> serde_json::Value {
        document::schema(&self.origin.known)
    }

    /// Sets what holds for the whole program in the place of what its configuration says. A later call changes what an earlier one set.
    #[must_use]
    pub fn overriding(mut self, values: Values) -> Operated {
        self.origin.overriding.set.extend(values.set);
        self
    }

    /// Sets the version of this build, for people to read. Default: empty.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Operated {
        self.origin.version = version.into();
        self
    }

    /// Checks the configuration and starts nothing. Returns it.
    ///
    /// # Errors
    /// All that is wrong with it, a line each.
    pub fn check(&self) -> Result<Document, Vec<String>> {
        self.origin.load()
    }

    /// Checks the configuration as [`Operated::check`] does, and asks the system for its descriptors and addresses: each is bound and let go.
    /// Where this program runs already, its addresses are in use.
    ///
    /// # Errors
    /// All that is wrong with it, or cannot be had here and now, a line each.
    pub fn rehearse(&self) -> Result<Document, Vec<String>> {
        let document = self.check()?;
        let _ = sockdrawer::raise_descriptor_limit();
        let wrong = rehearsal::wrong(&document, &self.origin.known);
        if wrong.is_empty() { Ok(document) } else { Err(wrong) }
    }

    /// Runs it as the `main` of a program: prints `listening on ADDR` for each address once it accepts, and at the end, if that was not in
    /// order, one line on standard error.
    ///
    /// Exit codes: 0 after an end in order, 1 if connections were cut off or the run failed, 2 if the configuration is wrong.
    pub fn main(self) -> ExitCode {
        match self.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                if !failure.is_told {
                    print::tell_within(PATIENCE, format_args!("error: {failure}"));
                }
                ExitCode::from(failure.exit_code())
            }
        }
    }

    /// Serves until SIGTERM or SIGINT, until a new build has taken over, or until all pools have given up.
    ///
    /// # Errors
    /// When the configuration is wrong or cannot be had, and when the end was not in order.
    pub fn run(self) -> Result<(), Failure> {
        sockdrawer::reset_signals();
        let document = self.origin.load();
        let program = document.as_ref().map_or(&self.origin.overriding, |document| &document.program);
        let form = match program.text("log").unwrap_or(if self.origin.is_file() { "text" } else { "errors" }) {
            "none" => None,
            "json" => Some(Form::Json),
            "errors" => Some(Form::Errors),
            _ if self.origin.is_file() => Some(Form::text()),
            _ => Some(Form::Plain),
        };
        let log = form.map(|form| Log::start(io::stderr(), form)).transpose().map_err(no_thread)?;
        let document = document.map_err(|mistakes| Failure::setting(mistakes.join("\n")));
        let mut end = document.and_then(|document| self.serve(document, log.clone()));
        if let Err(failure) = &end {
            sockdrawer::upgrade::give_up(&failure.line);
        }
        if let Some(log) = log {
            log.flush(PATIENCE);
            if let (Err(failure), Some(Form::Json)) = (&mut end, form) {
                log.tell_now("Failed", json!(failure.line), &*failure.line);
                failure.is_told = true;
            }
        }
        end
    }

    fn serve(self, document: Document, log: Option<Log>) -> Result<(), Failure> {
        let program = document.program.clone();
        // Connections are descriptors. Where the limit may not rise, a pool whose connections do not fit says so.
        let _ = sockdrawer::raise_descriptor_limit();
        let (news, told) = mpsc::channel();
        // Before they are watched.
        let is_unheard = self.origin.is_file() && signals::is_ignored(SIGHUP);
        let unheard = is_unheard.then(|| unheard(self.origin.name));
        let ended_now = Arc::<OnceLock<Weak<Server>>>::default();
        let preparing = Arc::new(Mutex::new(program.path("upgrade").is_some()));
        self.watch_signals(&news, log.clone(), (preparing.clone(), ended_now.clone()))?;
        let since = Instant::now();
        let (hooks, moments) = Hooks::new();
        let upgrade = self.begin_upgrade(&program, &document, hooks.clone())?;
        let replaces = upgrade.as_ref().is_some_and(|upgrade| upgrade.predecessor().is_some());
        // From here on pools accept where none did before.
        *lock(&preparing) = replaces;
        let ended = news.clone();
        let started = move |name: &str, pool: &Pool| wait_for_end(name, pool, &ended);
        let passed = Passed::to_this_process(upgrade.as_deref())?;
        let manager = Manager::of_environment(replaces);
        let (hub, mut known) = (Hub::new(log, manager, moments_to(news.clone())), self.origin.known.clone());
        known.metrics.push(Arc::new(hub.reports.clone()));
        let parts = (hub, upgrade.clone(), passed);
        let server = Arc::new(Server::new(known, parts, !self.origin.is_file(), started));
        ended_now.get_or_init(|| Arc::downgrade(&server));
        // Before the pools: a start that fails because of one of these addresses has accepted no connection. Requests wait for the pools.
        let (held, operator) = (server.hold_changes(), self.operator(&server, &news, hooks, moments)?);
        let (metrics, control) = (metrics::start(&operator, &document)?, control::start(&operator, &document)?);
        server.start(document, held)?;
        if let Some(upgrade) = &upgrade {
            carry::over(upgrade, &operator)?;
        }
        operator.run_hooks_of_start(&told)?;
        // These threads are there before connections move here, which would be lost with this process for the want of one. They wait until then.
        let held = replaces.then(|| server.hold_changes());
        certificates::watch(&operator)?;
        checks::begin(&operator)?;
        if let Some(upgrade) = &upgrade {
            *lock(&preparing) = false;
            match upgrade.ready() {
                Err(rehearsed @ Error::Rehearsed { .. }) => {
                    let line = rehearsed.to_string();
                    server.hub.note("Rehearsed", &json!(line), &line);
                    return Ok(());
                }
                ready => ready?,
            }
            if replaces {
                operator.ledger.upgraded(since.elapsed());
            }
        }
        drop(held);
        server.watch();
        note_at_start(&server, program_settings::exposed(&program), unheard);
        tell_readiness(&server, metrics.as_ref());
        let asked: Vec<Pool> = [metrics, control].into_iter().flatten().collect();
        let end = operator.end(&told, &asked);
        if !operator.hooks.finish() {
            server.hub.note_or_print("HooksLeft", &json!(null), "hooks are not done: the program ends without them");
        }
        upgrade.iter().for_each(|upgrade| upgrade.leave());
        asked.iter().for_each(control::end);
        server.state().pools.iter().for_each(|(name, pool)| server.hub.sum_up(name, &pool.status().counts));
        end
    }

    fn operator(
        self,
        server: &Arc<Server>,
        news: &Sender<News>,
        hooks: Hooks,
        moments: Moments,
    ) -> Result<Arc<Operator>, Failure> {
        let operator = Arc::new(Operator {
            server: server.clone(),
            origin: self.origin,
            news: news.clone(),
            ledger: Ledger::default(),
            hooks,
            reading: Mutex::default(),
        });
        if !self.hooks.is_empty() {
            let (running, hub) = (Running(Arc::downgrade(&operator)), server.hub.clone());
            let of_this = |hook: Hook| -> hooks::Hook {
                let running = running.clone();
                Box::new(move |moment| hook(moment, &running))
            };
            let hooks: Vec<hooks::Hook> = self.hooks.into_iter().map(of_this).collect();
            spawn("hooks", move || moments.serve(&hooks, &hub))?;
        }
        Ok(operator)
    }

    /// Watches for signals. While the process before this one serves, and this one only prepares to take over, a request to end ends this one at
    /// once: later it would take over first, and then end what it took.
    fn watch_signals(
        &self,
        news: &Sender<News>,
        log: Option<Log>,
        (preparing, server): (Arc<Mutex<bool>>, Arc<OnceLock<Weak<Server>>>),
    ) -> Result<(), Failure> {
        let send = |make: fn() -> News| {
            let news = news.clone();
            move || drop(news.send(make()))
        };
        let reload = self.origin.is_file().then(|| Box::new(send(|| News::Reload)) as Box<dyn Fn() + Send>);
        let second = move || {
            let cut = match server.get().and_then(Weak::upgrade).and_then(|server| server.cut_off()) {
                Some(1) => "1 connection was ended before it had finished".to_owned(),
                Some(cut) => format!("{cut} connections were ended before they had finished"),
                None => "connections were ended before they had finished".to_owned(),
            };
            let line = format!("a second signal: {cut}; send one to drain");
            match &log {
                Some(log) => log.tell_now("EndedNow", serde_json::Value::Null, &*line),
                None => print::tell_within(Duration::ZERO, format_args!("error: {line}")),
            }
        };
        let ends = send(|| News::End);
        let end = move || match lock(&preparing) {
            // Under the lock: it takes nothing over meanwhile.
            preparing if *preparing => end_unready(),
            _ => ends(),
        };
        signals::drain_or_end(end, send(|| News::Upgrade), reload, second).map_err(|error| {
            Failure::run(format_args!("cannot watch for signals: {error}; free descriptors or threads and try again"))
        })
    }

    fn begin_upgrade(&self, program: &Values, document: &Document, hooks: Hooks) -> Result<Option<Arc<Upgrade>>, Failure> {
        let Some(path) = program.path("upgrade") else { return Ok(None) };
        let mut upgrade = Upgrade::at(path).version(&self.origin.version);
        let drain = document.pools.keys().map(|name| crate::server::drain_of(document, name).deadline).max();
        let drain = Drain::within(drain.unwrap_or(crate::server::DRAIN));
        upgrade = upgrade.ends(drain);
        if let Some(time) = program.time("stays") {
            upgrade = upgrade.stays(time, drain);
        }
        if let Some(time) = program.time("turns-within") {
            upgrade = upgrade.turns_within(time);
        }
        let told = hooks.clone();
        upgrade = upgrade.asks(move || hooks.ask(Moment::Upgrading).map_err(|why| format!("a hook refuses it: {why}")));
        upgrade = upgrade.taken_back(move || told.tell(Moment::TakenBack));
        let upgrade = upgrade.begin()?;
        for (name, write, read) in self.carries.clone() {
            upgrade.carry(&name, move || write(), move |bytes| read(bytes))?;
        }
        Ok(Some(Arc::new(upgrade)))
    }
}

/// Ends a process that has accepted nothing, and says so to the one that it was to replace.
fn end_unready() -> ! {
    // The other process goes on, whether it hears this or not.
    let _ = within("give up", PATIENCE, || sockdrawer::upgrade::give_up("it was asked to end before it took over"));
    signal_hook::low_level::exit(0)
}

/// Says what an operator should know of the start.
fn note_at_start(server: &Server, exposed: Option<String>, unheard: Option<String>) {
    server.note_unused_sockets();
    server.note_certificates();
    for (event, line) in [("Exposed", exposed), ("HangupIgnored", unheard)] {
        line.into_iter().for_each(|line| server.hub.note(event, &json!(line), &line));
    }
}

/// Returns the line about a signal that is ignored, as nohup(1) leaves it.
fn unheard(program: &str) -> String {
    format!("SIGHUP is ignored since before the program began: reload by {program} ctl reload")
}

/// Passes the moments on that events are: each pool tells them.
fn moments_to(news: Sender<News>) -> impl Fn(&Event) {
    let told = Mutex::new((0, false));
    move |event| {
        let mut told = lock(&told);
        let (successor, is_alone) = &mut *told;
        let moment = match event {
            Event::HandedOver { pid } if std::mem::replace(successor, *pid) != *pid => Moment::Replaced,
            Event::ServesAlone if !std::mem::replace(is_alone, true) => Moment::ServesAlone,
            _ => return,
        };
        // The receiver is gone when the program ends first.
        let _ = news.send(News::Moment(moment));
    }
}

fn wait_for_end(name: &str, pool: &Pool, news: &Sender<News>) {
    let (news, pool, of) = (news.clone(), pool.clone(), name.to_owned());
    // The receiver is gone when the program ends first. Without a thread the program ends by signals alone.
    let _ = spawn("join", move || drop(news.send(News::Stopped(of, pool.join()))));
}

/// Tells the service manager from now on, and standard output once, that this program serves. One that nothing is told of is still a server.
fn tell_readiness(server: &Arc<Server>, metrics: Option<&Pool>) {
    server.hub.manager.ready(&server.line());
    let of = Arc::downgrade(server);
    let kept = server.hub.manager.keep_told(move || of.upgrade().map(|server| server.line())).map_err(no_thread);
    for why in [kept, tell_addresses(server, metrics)].into_iter().filter_map(Result::err) {
        server.hub.note_or_print("NotTold", &json!(why.line), &why.line);
    }
}

/// Tells the addresses. A server whose output nobody can take is still a server, and ends when it is asked to: a thread that may be left behind
/// writes.
fn tell_addresses(server: &Server, metrics: Option<&Pool>) -> Result<(), Failure> {
    let pools = server.state().pools;
    let listening = pools.values().flat_map(|pool| pool.addresses()).map(|address| format!("listening on {address}"));
    let metrics = metrics.into_iter().flat_map(|pool| pool.addresses()).map(|address| match address {
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
