//! The control socket: what an operator can see and do, as HTTP on a Unix socket. `openapi.json` beside this file describes it.

mod connections;
mod status;

use crate::change::{Changed, Unchanged};
use crate::document::{Document, Format, MAX_BYTES};
use crate::failure::Failure;
use crate::metrics;
use crate::operator::{NO_UPGRADE, News, Operator, OperatorPlaces};
use crate::program_settings;
use crate::replaced::Report;
use crate::revisions::{Cause, Revision};
use crate::server::{State, at_once};
use crate::users;
use rustix::fs::{Access, access};
use serde_json::json;
use sockdrawer::blocking::Connection;
use sockdrawer::listening::Listening;
use sockdrawer::{Address, Drain, Drained, Error, Pool};
use sockdrawer_catalog::time;
use sockdrawer_catalog::web::{Answer, Pages, Request, Web};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Mode of the socket's file: only this user and root connect.
const MODE: u32 = 0o600;
pub(crate) const PLACES: OperatorPlaces = OperatorPlaces { clients: 1_024, of_peer: 1_024, silent: 992, answers: 32 };
/// Description in OpenAPI of the requests that each connection may make.
pub(crate) const OPENAPI: &str = include_str!("control/openapi.json");
const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";

/// Starts the control socket, if there is to be one.
pub(crate) fn start(operator: &Arc<Operator>, document: &Document) -> Result<Option<Pool>, Failure> {
    let path = match document.program.text("control") {
        Some("none") => return Ok(None),
        Some(path) => PathBuf::from(path),
        None => match default_path(operator.origin.name) {
            Some(path) if operator.has_file() => path,
            _ => return Ok(None),
        },
    };
    let web = Web::new(Control(operator.clone())).max_body(MAX_BYTES);
    let mut at = Listening::new(Address::Unix(path));
    at.options.mode = Some(MODE);
    operator.start_pool(document, program_settings::CONTROL_POOL, web, at, &PLACES).map(Some)
}

/// Returns where the control sockets of a program are unless told otherwise, the best place first: in the folder that systemd made for the service,
/// in the user's own, and in that of the system.
pub(crate) fn places(program: &str) -> Vec<PathBuf> {
    let of_environment = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter().filter_map(std::env::var_os);
    // A service may have several folders: the first is taken.
    let folders =
        of_environment.filter_map(|folders| std::env::split_paths(&folders).next()).filter(|folder| folder.is_absolute());
    let of_system = Path::new("/run").join(program);
    folders.chain([of_system]).map(|folder| folder.join(format!("{program}.sock"))).collect()
}

/// Returns where a control socket is made unless a file says otherwise: in the first of those places that takes it.
fn default_path(program: &str) -> Option<PathBuf> {
    let takes = |path: &PathBuf| path.parent().is_some_and(|folder| access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok());
    places(program).into_iter().find(takes)
}

struct Control(Arc<Operator>);

/// An answer with an error, as the error of a function.
type Refusal = Answer;

impl Pages for Control {
    fn answer(&self, request: &Request, from: &mut Connection) -> Answer {
        let by = match user(from) {
            Ok(by) => by,
            Err(refusal) => return refusal,
        };
        let known = ROUTES.iter().filter(|route| route.path == request.path);
        let Some(route) = known.clone().find(|route| route.method == request.method) else {
            let methods: Vec<&str> = known.map(|route| route.method).collect();
            return match methods.as_slice() {
                [] => Answer::error(404, format_args!("nothing is at {}: see /openapi.json", request.path)),
                methods => Answer::error(405, format_args!("{} takes {}", request.path, methods.join(" and ")))
                    .field("Allow", methods.join(", ")),
            };
        };
        if let Some((name, _)) = request.query.iter().find(|(name, _)| !route.parameters.contains(&name.as_str())) {
            let known = match route.parameters {
                [] => "it takes none".to_owned(),
                known => format!("it takes {}", known.join(", ")),
            };
            return Answer::error(400, format_args!("unknown parameter `{name}` of {}: {known}", request.path));
        }
        if !self.0.server.wait_for_start() {
            return Answer::error(503, "the program could not start");
        }
        (route.answer)(&Asked { operator: &self.0, request, by: &by }).unwrap_or_else(|refusal| refusal)
    }
}

/// Returns the user at the other end, in words. Only the user of this program and root may use the socket, whatever the rights of its file.
fn user(from: &Connection) -> Result<String, Refusal> {
    let peer =
        from.peer_process().map_err(|error| Answer::error(500, format_args!("the kernel does not name the peer: {error}")))?;
    allowed(peer.uid, rustix::process::geteuid().as_raw()).map_err(|why| Answer::error(403, why))?;
    Ok(format!("uid {} (pid {})", peer.uid, peer.pid))
}

fn allowed(peer: u32, own: u32) -> Result<(), String> {
    if peer == 0 || peer == own {
        return Ok(());
    }
    let [peer, own] = [peer, own].map(users::in_words);
    Err(format!("{peer} may not use this control socket: only {own}, which runs the program, and root may"))
}

/// A request that is answered.
struct Asked<'a> {
    operator: &'a Arc<Operator>,
    request: &'a Request,
    /// Description of the operator, in words.
    by: &'a str,
}

/// Request that operators may make.
struct Route {
    method: &'static str,
    path: &'static str,
    parameters: &'static [&'static str],
    answer: fn(&Asked<'_>) -> Result<Answer, Refusal>,
}

const DRY_RUN: &str = "dry-run";

static ROUTES: [Route; 20] = [
    Route { method: "GET", path: "/status", parameters: &[], answer: |asked| Ok(json_answer(200, &status::of(asked.operator))) },
    Route { method: "GET", path: "/config", parameters: &[], answer: get_config },
    Route { method: "GET", path: "/revisions", parameters: &[], answer: get_revisions },
    Route { method: "PUT", path: "/config", parameters: &[DRY_RUN], answer: put_config },
    Route {
        method: "POST",
        path: "/reload",
        parameters: &[DRY_RUN],
        answer: |asked| changed(asked, "reload", asked.operator.reload(asked.dry_run()?, asked.cause("reload"))),
    },
    Route {
        method: "POST",
        path: "/rollback",
        parameters: &[DRY_RUN],
        answer: |asked| {
            let result = asked.operator.server.roll_back(asked.based_on()?, asked.dry_run()?, asked.cause("rollback"));
            changed(asked, "rollback", result)
        },
    },
    Route {
        method: "GET",
        path: "/connections",
        parameters: connections::PARAMETERS,
        answer: |asked| {
            let (pools, selector) = (asked.pools()?, connections::selector(asked.request)?.unwrap_or(sockdrawer::Selector::All));
            Ok(Answer::stream(NDJSON, move |to| connections::write(&pools, &selector, to)))
        },
    },
    Route {
        method: "GET",
        path: "/events",
        parameters: &[],
        answer: |asked| Ok(Answer::group(NDJSON, asked.operator.server.hub.watching())),
    },
    Route {
        method: "POST",
        path: "/suspend",
        parameters: &["pool", "listener"],
        answer: |asked| asked.accepting("suspend", Pool::suspend, Pool::suspend_listener),
    },
    Route {
        method: "POST",
        path: "/resume",
        parameters: &["pool", "listener"],
        answer: |asked| asked.accepting("resume", Pool::resume, Pool::resume_listener),
    },
    Route { method: "POST", path: "/drain", parameters: connections::DRAINING, answer: drain },
    Route { method: "POST", path: "/purge", parameters: connections::PURGING, answer: purge },
    Route { method: "POST", path: "/kill", parameters: connections::KILLING, answer: kill },
    Route { method: "POST", path: "/adopt", parameters: connections::KILLING, answer: adopt },
    Route { method: "POST", path: "/upgrade", parameters: &[DRY_RUN], answer: upgrade },
    Route { method: "POST", path: "/stop", parameters: &[], answer: stop },
    Route { method: "GET", path: "/metrics", parameters: &[], answer: |asked| Ok(metrics::page(asked.operator, asked.request)) },
    Route { method: "GET", path: "/readyz", parameters: &[], answer: |asked| Ok(metrics::ready(&asked.operator.server)) },
    Route { method: "GET", path: "/healthz", parameters: &[], answer: |_| Ok(Answer::text(200, "ok\n")) },
    Route { method: "GET", path: "/openapi.json", parameters: &[], answer: |_| Ok(Answer::new(200, JSON, OPENAPI)) },
];

fn json_answer(status: u16, value: &impl serde::Serialize) -> Answer {
    match serde_json::to_string(value) {
        Ok(text) => Answer::new(status, JSON, text + "\n"),
        Err(error) => Answer::error(500, error),
    }
}

impl Asked<'_> {
    fn cause<'a>(&'a self, what: &'a str) -> Cause<'a> {
        Cause { what, by: self.by }
    }

    /// Reads a parameter that is there, or `true` or `false`.
    fn is(&self, name: &str) -> Result<bool, Refusal> {
        match self.request.parameter(name) {
            None | Some("false") => Ok(false),
            Some("" | "true") => Ok(true),
            Some(other) => Err(Answer::error(400, format_args!("{name}={other}: write {name}, or {name}=false"))),
        }
    }

    fn dry_run(&self) -> Result<bool, Refusal> {
        self.is(DRY_RUN)
    }

    /// Reads a time that is given.
    fn time(&self, name: &str) -> Result<Option<Duration>, Refusal> {
        let Some(text) = self.request.parameter(name) else { return Ok(None) };
        time::parse(text).map(Some).map_err(|error| Answer::error(400, format_args!("{name}: {error}")))
    }

    /// Returns the revision that a change is based on: the `If-Match` of HTTP, with or without quotes.
    fn based_on(&self) -> Result<Option<u64>, Refusal> {
        match self.request.field("If-Match") {
            None | Some("*") => Ok(None),
            Some(tag) => match tag.trim_matches('"').parse() {
                Ok(revision) => Ok(Some(revision)),
                Err(_) => {
                    let current = self.operator.server.state().revision;
                    let conflict = Unchanged::Conflict { based_on: tag.to_owned(), current };
                    Err(Answer::error(412, conflict).field("ETag", etag(current)))
                }
            },
        }
    }

    /// Returns the pools that are meant: one, or all.
    fn pools(&self) -> Result<Vec<(String, Pool)>, Refusal> {
        let all = self.operator.server.state().pools;
        let Some(name) = self.request.parameter("pool") else { return Ok(all.into_iter().collect()) };
        match all.get(name) {
            Some(pool) => Ok(vec![(name.to_owned(), pool.clone())]),
            None => {
                let known: Vec<&str> = all.keys().map(String::as_str).collect();
                Err(Answer::error(404, format_args!("no pool is named {name}: there are {}", known.join(", "))))
            }
        }
    }

    fn note(&self, what: &str, detail: &str) {
        let data = json!({"by": self.by, "what": what, "detail": detail});
        self.operator.server.hub.note("Asked", &data, format_args!("{what} by {}: {detail}", self.by));
    }

    fn accepting(
        &self,
        what: &str,
        whole: fn(&Pool),
        listener: fn(&Pool, &Address) -> Result<(), Error>,
    ) -> Result<Answer, Refusal> {
        let pools = self.pools()?;
        let names: Vec<String> = pools.iter().map(|(name, _)| name.clone()).collect();
        match self.request.parameter("listener") {
            None => pools.iter().for_each(|(_, pool)| whole(pool)),
            Some(text) => {
                let address: Address = text.parse().map_err(|error: sockdrawer::AddressError| Answer::error(400, error))?;
                let done = pools.iter().map(|(_, pool)| listener(pool, &address));
                let done: Vec<Result<(), Error>> = done.collect();
                if done.iter().all(Result::is_err) {
                    let why = done.into_iter().find_map(Result::err).map(|error| error.to_string());
                    return Err(Answer::error(404, why.unwrap_or_default()));
                }
            }
        }
        self.note(what, &names.join(", "));
        Ok(json_answer(200, &json!({"pools": names})))
    }

    /// Returns the connections that are meant. Those of whole pools must be asked for by `all`.
    fn selected(&self) -> Result<(Vec<(String, Pool)>, sockdrawer::Selector), Refusal> {
        let pools = self.pools()?;
        match (connections::selector(self.request)?, self.is("all")?) {
            (Some(selector), false) => connections::are_there(&selector, &pools).map(|()| (pools, selector)),
            (None, true) => Ok((pools, sockdrawer::Selector::All)),
            (Some(_), true) => Err(Answer::error(400, "all and a selector exclude each other: leave one out")),
            (None, false) => {
                let known = connections::SELECTORS.join(", ");
                Err(Answer::error(400, format_args!("which connections? Say {known}, or all for every one")))
            }
        }
    }
}

fn etag(revision: u64) -> String {
    format!("\"{revision}\"")
}

fn get_config(asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let state = asked.operator.server.state();
    Ok(json_answer(200, &*state.document).field("ETag", etag(state.revision)))
}

fn get_revisions(asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let State { revision, revisions, .. } = asked.operator.server.state();
    let list: Vec<&Revision> = revisions.list.iter().map(|one| &**one).collect();
    let goes_back_to = revisions.kept.last().map(|kept| kept.revision);
    let answer = json!({"revision": revision, "rollback_to": goes_back_to, "revisions": list});
    Ok(json_answer(200, &answer).field("ETag", etag(revision)))
}

fn put_config(asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let told = asked.request.field("Content-Type");
    let kind = told.unwrap_or(JSON).split(';').next().unwrap_or_default().trim().to_owned();
    let format = match kind.as_str() {
        // curl sends the last of these unless told otherwise.
        JSON | "text/json" | "application/x-www-form-urlencoded" => Format::Json,
        "application/toml" | "text/toml" => Format::Toml,
        other => return Err(Answer::error(415, format_args!("{other} is no configuration: send {JSON} or application/toml"))),
    };
    let text =
        std::str::from_utf8(&asked.request.body).map_err(|error| Answer::error(400, format_args!("not UTF-8: {error}")))?;
    let (based_on, dry_run) = (asked.based_on()?, asked.dry_run()?);
    let document = asked.operator.parse(text, format).map_err(|why| match why {
        Unchanged::Wrong(mistakes)
            if kind != "application/json" || told.is_none() && Format::of("".as_ref(), text) == Format::Toml =>
        {
            let hint = |what: String| format!("{what}; the Content-Type of TOML is application/toml");
            Unchanged::Wrong(if format == Format::Json { mistakes.into_iter().map(hint).collect() } else { mistakes })
        }
        why => why,
    });
    let put = |document| asked.operator.server.change(|_| Ok(document), based_on, dry_run, asked.cause("change"));
    let result = document.and_then(put);
    changed(asked, "change", result)
}

/// Returns the answer about what came of a change, and tells its event.
fn changed(asked: &Asked<'_>, what: &str, result: Result<Changed, Unchanged>) -> Result<Answer, Refusal> {
    match &result {
        // No change has failed: none was to be made.
        Err(why) if asked.dry_run()? => asked.note(what, &format!("a dry run: {why}")),
        result => asked.operator.told(asked.cause(what), result),
    }
    match result {
        Ok(changed) => Ok(json_answer(200, &changed).field("ETag", etag(changed.revision))),
        Err(Unchanged::Conflict { current, based_on }) => {
            Err(Answer::error(412, Unchanged::Conflict { based_on, current }).field("ETag", etag(current)))
        }
        Err(Unchanged::Wrong(mistakes)) => {
            let why = Unchanged::Wrong(mistakes.clone());
            Err(json_answer(422, &json!({"error": why.to_string(), "mistakes": mistakes})))
        }
        Err(Unchanged::Refused(why)) => Err(Answer::error(409, why)),
    }
}

fn drained(asked: &Asked<'_>, what: &str, all: &[(String, Drained)]) -> Answer {
    let sum: Drained = all.iter().map(|(_, drained)| *drained).sum();
    let Drained { asked: were, ended, cut, silent } = sum;
    asked.note(what, &format!("{were} connections, {ended} ended, {cut} cut{}", silent_in_words(silent)));
    json_answer(200, &json!({"asked": were, "ended": ended, "cut": cut, "silent": silent}))
}

/// Loops and processes that did not answer.
fn silent_in_words(silent: usize) -> String {
    if silent > 0 { format!("; {silent} loops or processes did not answer") } else { String::new() }
}

fn drain(asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let (pools, selector) = asked.selected()?;
    let within = asked.time("within")?;
    let rate = match asked.request.parameter("rate") {
        None => None,
        Some(text) => match text.parse::<f64>() {
            Ok(rate) if rate > 0.0 && rate.is_finite() => Some(rate),
            _ => return Err(Answer::error(400, format_args!("rate={text}: write connections per second, such as 100"))),
        },
    };
    let document = asked.operator.server.state().document;
    let of = |name: &str| {
        let mut drain = crate::server::drain_of(&document, name);
        drain.deadline = within.unwrap_or(drain.deadline);
        drain.rate = rate;
        drain
    };
    Ok(drained(asked, "drain", &of_each(&pools, |name, pool| pool.drain(&selector, of(name)))))
}

/// Does this to all pools at the same time: each may take until its deadline.
fn of_each(pools: &[(String, Pool)], done: impl Fn(&str, &Pool) -> Drained + Sync) -> Vec<(String, Drained)> {
    at_once(pools, |(name, pool), _| (name.clone(), done(name, pool)))
}

fn purge(asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let (pools, selector) = asked.selected()?;
    let within = asked.time("within")?.unwrap_or(Duration::from_secs(5));
    Ok(drained(asked, "purge", &of_each(&pools, |_, pool| pool.purge(&selector, within))))
}

fn kill(asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let (pools, selector) = asked.selected()?;
    let Drained { cut, silent, .. } = pools.iter().map(|(_, pool)| pool.kill(&selector)).sum();
    asked.note("kill", &format!("{cut} connections{}", silent_in_words(silent)));
    Ok(json_answer(200, &json!({"killed": cut, "silent": silent})))
}

fn adopt(asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let (pools, selector) = asked.selected()?;
    let all: Vec<_> = pools.iter().map(|(_, pool)| pool.adopt(&selector)).collect();
    let (adopted, stayed) = all.iter().fold((0, 0), |sum, one| (sum.0 + one.moved, sum.1 + one.stayed));
    asked.note("adopt", &format!("{adopted} connections moved to the newest generation, {stayed} stay"));
    Ok(json_answer(200, &json!({"adopted": adopted, "stayed": stayed})))
}

fn upgrade(asked: &Asked<'_>) -> Result<Answer, Refusal> {
    if asked.dry_run()? {
        let Some(upgrade) = &asked.operator.server.upgrade else {
            return Err(Answer::error(409, NO_UPGRADE));
        };
        let plan = sockdrawer::upgrade::Replace::at(upgrade.path()).rehearse();
        return plan.map(|plan| json_answer(200, &Report::of(Some(&plan), None))).map_err(|error| Answer::error(409, error));
    }
    asked.note("upgrade", "asked for");
    let (plan, replaced) = asked.operator.upgrade().map_err(|why| Answer::error(409, why))?;
    Ok(json_answer(200, &Report::of(plan.as_ref(), Some(&replaced))))
}

fn stop(asked: &Asked<'_>) -> Result<Answer, Refusal> {
    asked.note("stop", "connections are drained, then the program ends");
    let connections = asked.operator.server.connections();
    let _ = asked.operator.news.send(News::End);
    Ok(json_answer(200, &json!({"draining": connections})))
}

/// Maximum time in which connections of the control socket end when the program does.
pub(crate) const ENDS: Duration = Duration::from_secs(1);

/// Ends the control socket: answers that are under way are given a moment.
pub(crate) fn end(pool: &Pool) {
    pool.shutdown(Drain::within(ENDS));
}

#[cfg(test)]
mod tests {
    use super::{OPENAPI, ROUTES, allowed};
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn openapi_has_the_routes_and_their_parameters() {
        let file: Value = serde_json::from_str(OPENAPI).expect("JSON");
        let name = |parameter: &Value| {
            let place = parameter["$ref"].as_str().and_then(|place| place.strip_prefix('#')).expect("a reference");
            let parameter = file.pointer(place).expect("it is there");
            (parameter["in"] == "query").then(|| parameter["name"].as_str().expect("a name").to_owned())
        };
        let mut told = BTreeSet::new();
        for (path, methods) in file["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                let names: Vec<String> = operation["parameters"].as_array().into_iter().flatten().filter_map(name).collect();
                told.insert((method.to_uppercase(), path.clone(), names));
            }
        }
        let names = |route: &super::Route| route.parameters.iter().map(ToString::to_string).collect();
        let known = ROUTES.iter().map(|route| (route.method.to_owned(), route.path.to_owned(), names(route))).collect();
        assert_eq!(told, known);
    }

    #[test]
    fn other_users_are_refused_by_name() {
        assert_eq!((allowed(7, 7), allowed(0, 7)), (Ok(()), Ok(())));
        let refused =
            "nobody (uid 65534) may not use this control socket: only root (uid 0), which runs the program, and root may";
        assert_eq!(allowed(65_534, 0), Err(refused.to_owned()));
    }
}
