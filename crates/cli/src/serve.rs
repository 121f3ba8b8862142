//! `sockdrawer serve`: the catalog's protocols, operated.

use crate::arguments::ServeArguments;
use crate::names;
use crate::outcome::{Exit, Failure};
use crate::program;
use sockdrawer::{Behaviour, Config, Model};
use sockdrawer_catalog::acks::{AckPattern, Acks};
use sockdrawer_catalog::{echo::Echo, hello::Hello, http, http::Http, ping::Ping};
use sockdrawer_operate::{Document, Fault, Kind, Operated, PoolDocument, Protocol, Setting, Text, Value, Values};
use std::fmt;
use std::time::Duration;

/// In which a connection of http has to bring its request, unless told otherwise: a browser that connects ahead has as long elsewhere.
const HTTP_IDLE: Duration = Duration::from_secs(60);
/// The name of the pool that the command line describes: a new build knows it by this.
const POOL: &str = "serve";
/// Where it listens, unless told otherwise.
const ADDRESS: &str = "127.0.0.1:9000";

const ACK: Text = Text { form: "HOW", check: |text| text.parse::<AckPattern>().map(drop).map_err(|error| error.to_string()) };
const WORDS: Text = Text { form: "PROGRAM", check: |_| Ok(()) };
const PROGRAM: Setting =
    Setting::new("program", Kind::List(WORDS), "exec: the program to run for each connection, and its arguments");

/// The settings of single protocols.
pub(crate) const SETTINGS: [Setting; 3] = [
    Setting::new("slow-duration", Kind::Time, "http: how long the slow answer takes").unless_given("30ms"),
    Setting::new("ack", Kind::Text(ACK), "acks: when messages are acknowledged: reply, read, timer=5ms, async=20,5ms or every=K")
        .unless_given("read"),
    PROGRAM,
];

/// What can be served.
pub(crate) fn protocols() -> [Protocol; 6] {
    let [slow_duration, ack, program] = SETTINGS;
    let protocol = |protocol: names::Protocol, help, build: fn(&Values) -> Result<Config, String>| {
        Protocol::new(protocol.name(), help, build)
    };
    [
        protocol(names::Protocol::Echo, "every byte comes back", |_| Ok(Config::accept(Echo.behaviour()))),
        protocol(names::Protocol::Hello, "a greeting for each connection", |_| Ok(Config::accept(Hello.behaviour()))),
        protocol(names::Protocol::Ping, "answers each Ping with Pong", |_| Ok(Config::accept(Ping.behaviour()))),
        // Where there is no worker, a job runs where its connection runs, and slow waits there.
        protocol(names::Protocol::Http, "two paths, a fast and a slow one", serve_http).setting(slow_duration).sees("workers"),
        protocol(names::Protocol::Acks, "acknowledges messages", |values| {
            let pattern = values.text("ack").and_then(|text| text.parse().ok()).unwrap_or_default();
            Ok(Config::accept(Acks { pattern }.behaviour()))
        })
        .setting(ack),
        protocol(names::Protocol::Exec, "runs a program for each connection", exec).setting(program).sees("idle"),
    ]
}

fn serve_http(values: &Values) -> Result<Config, String> {
    let slow_duration = values.time("slow-duration").unwrap_or(Http::default().slow_duration);
    let http = Http { slow_duration, in_worker: values.count("workers") != Some(0) };
    let mut config = Config::accept(http.behaviour());
    config.settings.max_partial = http::MAX_HEAD;
    config.settings.idle = Some(HTTP_IDLE);
    Ok(config)
}

fn exec(values: &Values) -> Result<Config, String> {
    let [program, rest @ ..] = values.list(PROGRAM.name) else {
        return Err("exec without a program: name it behind --, as in exec -- cat, or by program in a file".to_owned());
    };
    if values.has("idle") {
        return Err("--idle is no option of exec: PROGRAM alone knows what it waits for; leave it out".to_owned());
    }
    program::find(program.as_ref()).map_err(|failure| failure.to_string())?;
    Ok(Config::accept(Behaviour::exec(program, rest)).model(Model::Fork))
}

/// Serves until a signal, or until the pools give up.
pub(crate) fn run(arguments: ServeArguments) -> Result<Exit, Failure> {
    operated(arguments)?.run().map(|()| Exit::Ok).map_err(|failure| match failure.fault {
        Fault::Setting => usage(failure),
        Fault::Configuration => Failure::usage(failure),
        Fault::Run => Failure::run(failure),
    })
}

/// The program that the command line, or the file that it names, describes.
fn operated(arguments: ServeArguments) -> Result<Operated, Failure> {
    let mut whole = arguments.whole.clone();
    if arguments.verbose {
        let log = sockdrawer_operate::program_settings().find(|setting| setting.name == "log");
        log.into_iter().for_each(|log| whole.set(log, Value::Text("text".to_owned())));
    }
    let operated = match arguments.config.clone() {
        Some(file) => Operated::new(file).overriding(whole),
        None => Operated::with(document(arguments, whole)?),
    };
    Ok(protocols().into_iter().fold(operated.version(env!("CARGO_PKG_VERSION")), Operated::protocol))
}

/// What the command line says, as a configuration.
fn document(arguments: ServeArguments, whole: Values) -> Result<Document, Failure> {
    let protocol = arguments.protocol.unwrap_or(names::Protocol::Echo);
    let mut values = arguments.pool;
    let words: Option<Vec<String>> = arguments.program.iter().map(|word| word.to_str().map(str::to_owned)).collect();
    let words = words.ok_or_else(|| usage("what exec runs is not UTF-8: only text is understood"))?;
    if !words.is_empty() {
        values.set(&PROGRAM, Value::List(words));
    }
    for other in protocols().iter().filter(|other| other.name() != protocol.name()) {
        if let Some(setting) = other.settings().iter().find(|setting| values.has(setting.name)) {
            let option = if setting.name == PROGRAM.name { "-- PROGRAM".to_owned() } else { format!("--{}", setting.name) };
            let other = other.name();
            return Err(usage(format_args!("{option} is an option of {other}, not of {protocol}: leave it out")));
        }
    }
    if values.list("listen").is_empty() {
        let listen = sockdrawer_operate::pool_settings().find(|setting| setting.name == "listen");
        listen.into_iter().for_each(|listen| values.set(listen, Value::List(vec![ADDRESS.to_owned()])));
    }
    let pool = PoolDocument { protocol: protocol.name(), values };
    Ok(Document { program: whole, pools: [(POOL.to_owned(), pool)].into() })
}

fn usage(line: impl fmt::Display) -> Failure {
    Failure::usage_of("serve", line)
}
