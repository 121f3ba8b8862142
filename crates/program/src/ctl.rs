//! `ctl`: asks a server by its control socket.

mod show;
mod status;
mod top;

use crate::arguments::{ApplyArguments, At, Chosen, Ctl, CtlArguments, Named, UpgradeBy};
use crate::outcome::{Exit, Failure};
use crate::table::{Table, plain};
use crate::{print, signals, terminal};
use serde::Deserialize;
use serde_json::Value;
use sockdrawer_catalog::count::thousands;
use sockdrawer_catalog::time;
use sockdrawer_operate::client::{Answer, Client, ClientError, TIMEOUT, default_path};
use sockdrawer_operate::replaced::Share;
use sockdrawer_operate::{Format, MAX_BYTES};
use std::fmt;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// Rows of which the widths of columns are measured at once.
const ROWS: usize = 1_000;
/// Begins the output of `ctl config`, for `ctl apply`.
const REVISION: &str = "# revision ";

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::run(error)
    }
}

/// Asks, and shows the answer.
pub(crate) fn run(program: &'static str, arguments: CtlArguments) -> Result<Exit, Failure> {
    let CtlArguments { what, control, json, timeout } = arguments;
    let client = Client::at(control.unwrap_or_else(|| default_path(program))).timeout(Some(timeout.unwrap_or(TIMEOUT)));
    let mut asking = Asking { program, client, json, patient: timeout.is_none() };
    match what {
        Ctl::Status => asking.status(|status| {
            let built_in = [show::pools(status), show::traffic(status), show::tls(status)];
            built_in.into_iter().chain(show::own(status, None)).collect()
        }),
        Ctl::Show(Named { name }) => asking.show(name.as_deref()),
        Ctl::Generations => asking.status(|status| vec![show::generations(status)]),
        Ctl::Listeners => asking.status(|status| vec![show::listeners(status)]),
        Ctl::Connections(selected) => asking.connections(&with_pool(selected.pool.as_deref(), selected.parameters())),
        Ctl::Top => top::run(program, asking.client, asking.json),
        Ctl::Events => asking.events(),
        Ctl::Config => asking.config(),
        Ctl::Apply(arguments) => asking.apply(&arguments),
        Ctl::Reload(change) => asking.change("POST", &target("/reload", &dry_run(change.dry_run)), &[], b"", ""),
        Ctl::Rollback(change) => asking.change("POST", &target("/rollback", &dry_run(change.dry_run)), &[], b"", ""),
        Ctl::Revisions => asking.revisions(),
        Ctl::Suspend(at) => asking.accepting("/suspend", at, "suspended"),
        Ctl::Resume(at) => asking.accepting("/resume", at, "resumed"),
        Ctl::Drain(drain) => {
            let more = [("within", drain.within.map(time::format)), ("rate", drain.rate.map(|rate| rate.to_string()))];
            asking.end("/drain", drain.chosen, more)
        }
        Ctl::Purge(purge) => {
            // Cutting off is its purpose.
            let more = [("within", purge.within.map(time::format)), ("rate", None)];
            asking.end("/purge", purge.chosen, more).map(|_| Exit::Ok)
        }
        Ctl::Kill(chosen) => {
            asking.chosen("/kill", chosen, Vec::new(), |of| format!("{} killed{}", counted(of, "killed"), silent(of)))
        }
        Ctl::Adopt(chosen) => asking.chosen("/adopt", chosen, Vec::new(), |of| {
            format!("{} moved to the newest generation, {} stay", counted(of, "adopted"), counted(of, "stayed"))
        }),
        Ctl::Upgrade(by) => asking.upgrade(&by),
        Ctl::Stop => asking.act("/stop", |of| format!("draining {} connections, then the server ends", counted(of, "draining"))),
    }
}

/// A client, and the form in which answers are shown.
struct Asking {
    /// The name of this program.
    program: &'static str,
    client: Client,
    json: bool,
    /// Answers that take long are waited for without end.
    patient: bool,
}

type Parameters = Vec<(&'static str, String)>;

impl Asking {
    /// Returns the whole answer of a server that does what it is asked.
    fn ask(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(String, Option<u64>), Failure> {
        let answer = self.client.send(method, target, fields, body)?;
        let (status, revision) = (answer.status, answer.revision);
        let text = answer.text()?;
        if status == 200 { Ok((text, revision)) } else { Err(refused(self.program, status, &text)) }
    }

    /// Lets the server take as long as it needs from now on. Before, it has to say that it is alive.
    fn be_patient(&mut self) -> Result<(), Failure> {
        if self.patient {
            self.client.send("GET", "/healthz", &[], b"")?.without_timeout()?.text()?;
        }
        Ok(())
    }

    fn status(&mut self, tables: impl Fn(&status::Status) -> Vec<Table>) -> Result<Exit, Failure> {
        let (text, _) = self.ask("GET", "/status", &[], b"")?;
        if self.json {
            return print::line(text.trim_end()).map(|()| Exit::Ok);
        }
        let status = parsed(&text)?;
        print::line(show::headline(&status))?;
        if let Some(why) = &status.refused_files {
            print::line(plain(&format!("certificates: {why}; the old ones go on")))?;
        }
        tables(&status)
            .iter_mut()
            .filter(|table| table.len() > 0)
            .try_for_each(|table| print::line("").and_then(|()| tell(table)))
            .map(|()| Exit::Ok)
    }

    /// Shows a table of the server's own.
    fn show(&mut self, name: Option<&str>) -> Result<Exit, Failure> {
        let (text, _) = self.ask("GET", "/status", &[], b"")?;
        let status: status::Status = parsed(&text)?;
        let Some(name) = name else {
            let mut names = status.tables.keys();
            return if self.json {
                print::line(serde_json::json!(names.collect::<Vec<_>>()))
            } else {
                names.try_for_each(print::line)
            }
            .map(|()| Exit::Ok);
        };
        let Some(own) = status.tables.get(name) else {
            let known: Vec<&str> = status.tables.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "it has none".to_owned() } else { format!("there are {}", known.join(", ")) };
            return Err(Failure::usage(format_args!("no table {name}: {known}")));
        };
        if self.json {
            let object =
                |row: &Vec<Value>| own.columns.iter().cloned().zip(row.iter().cloned()).collect::<serde_json::Map<_, _>>();
            let rows: Vec<_> = own.rows.iter().map(object).collect();
            return print::line(serde_json::json!(rows)).map(|()| Exit::Ok);
        }
        show::own(&status, Some(name)).iter_mut().try_for_each(tell).map(|()| Exit::Ok)
    }

    fn connections(&mut self, parameters: &Parameters) -> Result<Exit, Failure> {
        let json = self.json;
        let answer = understood(self.program, self.client.send("GET", &target("/connections", parameters), &[], b"")?)?;
        let mut output = BufWriter::new(io::stdout().lock());
        let (mut table, mut result, room) = (show::connections(), Ok(()), room());
        answer.lines(|line| {
            result = if json {
                writeln!(output, "{line}")
            } else {
                let shown = show::connection(line, &mut table).map_err(io::Error::from);
                shown.and_then(|()| if table.len() < ROWS { Ok(()) } else { write_table(&mut output, &mut table, room) })
            };
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if result.is_ok() && !json {
            result = write_table(&mut output, &mut table, room);
        }
        written(result.and_then(|()| output.flush()))
    }

    fn events(&mut self) -> Result<Exit, Failure> {
        let json = self.json;
        let mut answer = understood(self.program, self.client.send("GET", "/events", &[], b"")?)?.without_timeout()?;
        let (mut result, mut output) = (Ok(()), io::stdout().lock());
        loop {
            answer.lines(|line| {
                let line = if json { line.to_owned() } else { show::event(line) };
                result = writeln!(output, "{line}").and_then(|()| output.flush());
                if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            if result.is_err() {
                return written(result);
            }
            // A new build has the same socket, and events of its own.
            let next = self.client.send("GET", "/events", &[], b"").map_err(Failure::from);
            let next = next.and_then(|answer| understood(self.program, answer));
            let Ok(next) = next else {
                print::tell("the server has ended");
                return Ok(Exit::Ok);
            };
            print::tell("a new build has taken over: its events follow");
            answer = next.without_timeout()?;
        }
    }

    fn config(&mut self) -> Result<Exit, Failure> {
        let (text, revision) = self.ask("GET", "/config", &[], b"")?;
        if self.json {
            return print::line(text.trim_end()).map(|()| Exit::Ok);
        }
        let config: Value = parsed(&text)?;
        let config =
            toml::to_string(&config).map_err(|error| Failure::run(format_args!("the answer is no configuration: {error}")))?;
        let revision = revision.map_or(String::new(), |revision| format!("{REVISION}{revision}\n"));
        print::line(format_args!("{revision}{}", config.trim_end())).map(|()| Exit::Ok)
    }

    fn revisions(&mut self) -> Result<Exit, Failure> {
        let (text, _) = self.ask("GET", "/revisions", &[], b"")?;
        let shown = if self.json { text.trim_end().to_owned() } else { parsed::<show::Revisions>(&text)?.words() };
        print::line(shown).map(|()| Exit::Ok)
    }

    fn apply(&mut self, arguments: &ApplyArguments) -> Result<Exit, Failure> {
        let file = crate::check::path(&arguments.file);
        let text = read(file)?;
        let kind = match Format::of(file, &text) {
            Format::Json => "application/json",
            Format::Toml => "application/toml",
        };
        let told = text.lines().next().and_then(|line| line.strip_prefix(REVISION)?.trim().parse().ok());
        let based_on = match arguments.based_on.or(told) {
            Some(revision) => Some(revision),
            None => self.ask("GET", "/config", &[], b"")?.1,
        };
        let based_on = based_on.map_or("*".to_owned(), |revision| format!("\"{revision}\""));
        let target = target("/config", &dry_run(arguments.change.dry_run));
        self.change(
            "PUT",
            &target,
            &[("Content-Type", kind), ("If-Match", &based_on)],
            text.as_bytes(),
            &file.display().to_string(),
        )
    }

    /// Changes the configuration. Each mistake is a line, with the name of the file where the server does not know it.
    fn change(&mut self, method: &str, target: &str, fields: &[(&str, &str)], body: &[u8], file: &str) -> Result<Exit, Failure> {
        self.be_patient()?;
        let answer = self.client.send(method, target, fields, body)?;
        let status = answer.status;
        let text = answer.text()?;
        if status != 200 {
            let mistakes = serde_json::from_str::<Value>(&text).unwrap_or_default();
            let mistakes: Vec<&str> = mistakes["mistakes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if mistakes.is_empty() {
                return Err(refused(self.program, status, &text));
            }
            for mistake in mistakes {
                // A mistake may have a place, which is behind the name of the file.
                let between = match mistake.starts_with(|sign: char| sign.is_ascii_digit()) {
                    _ if file.is_empty() => "",
                    true => ":",
                    false => ": ",
                };
                print::tell(format_args!("{file}{between}{}", crate::table::plain(mistake)));
            }
            return Ok(Exit::Failed);
        }
        if self.json {
            return print::line(text.trim_end()).map(|()| Exit::Ok);
        }
        let changed: show::Changed = parsed(&text)?;
        changed.plan().iter_mut().try_for_each(tell)?;
        print::line(changed.words()).map(|()| Exit::Ok)
    }

    /// Asks for something that is done, and says what came of it.
    fn act(&mut self, target: &str, words: impl FnOnce(&Value) -> String) -> Result<Exit, Failure> {
        let (text, _) = self.ask("POST", target, &[], b"")?;
        let words = words(&parsed(&text)?);
        print::line(if self.json { text.trim_end().to_owned() } else { words }).map(|()| Exit::Ok)
    }

    fn accepting(&mut self, path: &str, at: At, done: &str) -> Result<Exit, Failure> {
        let listener = at.listener.map(|address| ("listener", address.to_string()));
        let parameters = with_pool(at.pool.as_deref(), listener.into_iter().collect());
        self.act(&target(path, &parameters), |of| {
            let pools: Vec<&str> = of["pools"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            format!("{done}: {}", pools.join(", "))
        })
    }

    /// Does something to connections, which have to be named.
    fn chosen(
        &mut self,
        path: &str,
        chosen: Chosen,
        more: Parameters,
        words: impl FnOnce(&Value) -> String,
    ) -> Result<Exit, Failure> {
        let mut parameters = chosen.selected.parameters();
        if parameters.is_empty() && !chosen.all {
            return Err(usage(self.program, "which connections? Name some, as by --id or --peer, or say --all"));
        }
        parameters.extend(chosen.all.then(|| ("all", "true".to_owned())));
        parameters.extend(more);
        self.be_patient()?;
        self.act(&target(path, &with_pool(chosen.selected.pool.as_deref(), parameters)), words)
    }

    fn end(&mut self, path: &str, chosen: Chosen, more: [(&'static str, Option<String>); 2]) -> Result<Exit, Failure> {
        let more = more.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let mut exit = Exit::Ok;
        let what = path.trim_start_matches('/').to_owned();
        signals::watch(move |signal| {
            print::tell_within(Duration::ZERO, format_args!("the {what} goes on in the server"));
            signal.end_now();
        })?;
        self.chosen(path, chosen, more, |of| {
            if of["cut"] != 0 {
                exit = Exit::Failed;
            }
            let [asked, ended, cut] = ["asked", "ended", "cut"].map(|key| counted(of, key));
            format!("{asked} asked, {ended} ended, {cut} cut{}", silent(of))
        })?;
        Ok(exit)
    }

    fn upgrade(&mut self, by: &UpgradeBy) -> Result<Exit, Failure> {
        self.be_patient()?;
        let (text, _) = self.ask("POST", &target("/upgrade", &dry_run(by.rehearse)), &[], b"")?;
        let of: Value = parsed(&text)?;
        print::line(if self.json { text.trim_end().to_owned() } else { upgraded(&of) })?;
        let share = Share::deserialize(&of["share"]);
        share.map_or(Ok(Exit::Ok), |share| crate::upgrade::held_against(&share, by.required))
    }
}

/// Says what came of an upgrade, or would.
fn upgraded(of: &Value) -> String {
    let staying = of["share"]["staying"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let staying: String = staying.map(|why| format!("\n  {}", plain(why))).collect();
    match (&of["plan"], &of["result"]) {
        (plan, Value::Null) => {
            let pools = plan["pools"].as_array().into_iter().flatten();
            let pools = pools.map(|pool| {
                let name = pool["name"].as_str().unwrap_or_default();
                format!("\n  {name}: {} connections, {} can move", counted(pool, "connections"), counted(pool, "moving"))
            });
            let version = plan["to"]["version"].as_str().unwrap_or_default();
            format!("version {version} would take over{}{staying}", pools.collect::<String>())
        }
        (_, result) => {
            // Operators' own connections, such as this one, are not counted.
            let [all, moved] = ["of", "moved"].map(|key| of["share"][key].as_u64().unwrap_or_default());
            let stays = match all.saturating_sub(moved) {
                1 => "1 stays".to_owned(),
                more => format!("{} stay", thousands(more)),
            };
            let moved = format!("{} moved, {stays}", thousands(moved));
            #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
            let gap = time::short(result["gap_us"].as_u64().unwrap_or_default() as f64);
            format!("pid {} serves; {moved}; accepting paused for {gap}{staying}", result["pid"])
        }
    }
}

fn dry_run(is: bool) -> Parameters {
    is.then(|| ("dry-run", "true".to_owned())).into_iter().collect()
}

fn with_pool(pool: Option<&str>, mut parameters: Parameters) -> Parameters {
    parameters.extend(pool.map(|pool| ("pool", pool.to_owned())));
    parameters
}

/// Returns a path with its parameters, as the request has them.
fn target(path: &str, parameters: &Parameters) -> String {
    let escaped = |text: &str| -> String {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/".contains(&byte);
        text.bytes().map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
    };
    let parameters: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    if parameters.is_empty() { path.to_owned() } else { format!("{path}?{}", parameters.join("&")) }
}

/// Says what did not answer, if there was such.
fn silent(of: &Value) -> String {
    match of["silent"].as_u64() {
        None | Some(0) => String::new(),
        Some(1) => "; a loop or process did not answer: what it has ends when it goes on, see ctl connections".to_owned(),
        Some(more) => {
            format!("; {more} loops or processes did not answer: what they have ends when they go on, see ctl connections")
        }
    }
}

fn counted(of: &Value, key: &str) -> String {
    thousands(of[key].as_u64().unwrap_or_default())
}

fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::run(format_args!("the server's answer is not understood: {error}")))
}

fn usage(program: &str, line: impl fmt::Display) -> Failure {
    Failure::usage_of(&format!("{program} ctl"), line)
}

/// Returns why the server does not do what it is asked.
fn refused(program: &str, status: u16, text: &str) -> Failure {
    let answer = serde_json::from_str::<Value>(text).unwrap_or_default();
    match (status, answer["error"].as_str()) {
        (400, Some(why)) => usage(program, crate::table::plain(why)),
        (_, Some(why)) => Failure::run(crate::table::plain(why)),
        (503, None) => Failure::run("the server has too many clients on its control socket: try again later"),
        (_, None) => Failure::run(format_args!("the server answered with status {status}")),
    }
}

/// Returns an answer of which more follows, unless it is a refusal.
fn understood<'a>(program: &str, answer: Answer<'a>) -> Result<Answer<'a>, Failure> {
    match answer.status {
        200 => Ok(answer),
        status => Err(refused(program, status, &answer.text()?)),
    }
}

/// Columns of the terminal on standard output, where there is one.
fn room() -> Option<usize> {
    terminal::size_of(&io::stdout()).map(|(columns, _)| columns)
}

fn tell(table: &mut Table) -> Result<(), Failure> {
    print::line(table.lines(room()).join("\n"))
}

fn write_table(to: &mut impl Write, table: &mut Table, room: Option<usize>) -> io::Result<()> {
    table.lines(room).iter().try_for_each(|line| writeln!(to, "{line}"))
}

/// Returns the exit after output was written. A reader that went away has what it wanted.
fn written(result: io::Result<()>) -> Result<Exit, Failure> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::run(format_args!("cannot write to standard output: {error}")))
        }
        _ => Ok(Exit::Ok),
    }
}

/// Reads a configuration.
fn read(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    // Not a byte more than the server would look at: the file may be a device.
    let result = std::fs::File::open(file).and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text));
    let cannot = |error: io::Error| format!("cannot read {}: {error}; name a file that is there and may be read", file.display());
    result.map(|_| text).map_err(|error| Failure::usage(cannot(error)))
}
