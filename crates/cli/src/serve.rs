//! `sockdrawer serve`: the catalog's protocols, operated.

use crate::arguments::ServeArguments;
use crate::names;
use crate::outcome::{Exit, Failure};
use crate::parent;
use crate::protocols::{PROGRAM, protocols};
use sockdrawer_operate::{Document, Fault, Operated, PoolDocument, Value, Values};
use std::fmt;
use std::path::PathBuf;

/// The name of the pool that the command line describes: a new build knows it by this.
const POOL: &str = "serve";
/// Where it listens, unless told otherwise.
const ADDRESS: &str = "127.0.0.1:9000";

/// Serves until a signal, or until the pools give up.
pub(crate) fn run(arguments: ServeArguments) -> Result<Exit, Failure> {
    let of_file = arguments.config.is_some();
    let operated = operated(arguments)?;
    if std::process::id() == 1 {
        // Process 1 has to reap what others leave behind, which a server that waits for its own children cannot do.
        let program = operated.check().map(|document| document.program);
        let path = program.ok().and_then(|program| program.text("upgrade").filter(|path| *path != "none").map(PathBuf::from));
        return parent::stay(path, std::env::args_os().collect());
    }
    operated.run().map(|()| Exit::Ok).or_else(|failure| match failure.fault {
        Fault::Run if failure.is_told => Ok(Exit::Failed),
        _ if failure.is_told => Ok(Exit::Usage),
        Fault::Setting if !of_file => Err(usage(failure)),
        Fault::Setting | Fault::Configuration => Err(Failure::usage(failure)),
        Fault::Run => Err(Failure::run(failure)),
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
    Ok(Document { program: whole, pools: [(POOL.to_owned(), pool)].into(), ..Document::default() })
}

fn usage(line: impl fmt::Display) -> Failure {
    Failure::usage_of("serve", line)
}
