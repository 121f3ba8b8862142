//! `serve`: the protocols of the program, operated.

use crate::arguments::ServeArguments;
use crate::outcome::{Exit, Failure};
use crate::parent;
use crate::print;
use crate::program::Program;
use crate::table::plain;
use crate::usage::missing_name;
use sockdrawer_operate::{Document, Fault, Operated, PoolDocument, Protocol, Setting, Value, Values};
use std::fmt;
use std::path::PathBuf;

/// The name of the pool that the command line describes: a new build knows it by this.
const POOL: &str = "serve";
/// The address of that pool, unless told otherwise.
const ADDRESS: &str = "127.0.0.1:9000";

/// Serves until a signal, or until the pools give up.
pub(crate) fn run(program: &Program, arguments: ServeArguments) -> Result<Exit, Failure> {
    let operated = operated(program, arguments)?;
    let of_file = operated.file().is_some();
    if std::process::id() == 1 {
        // Process 1 has to reap what others leave behind, which a server that waits for its own children cannot do.
        let settings = match operated.check() {
            Ok(document) => document.program,
            // Without its path it would end with the first server that a new build replaces.
            Err(mistakes) => return wrong(program, of_file, &mistakes.join("\n")),
        };
        let path = settings.text("upgrade").filter(|path| *path != "none").map(PathBuf::from);
        return parent::stay(path, std::env::args_os().collect());
    }
    operated.run().map(|()| Exit::Ok).or_else(|failure| match failure.fault {
        Fault::Run if failure.is_told => Ok(Exit::Failed),
        _ if failure.is_told => Ok(Exit::Usage),
        Fault::Setting => wrong(program, of_file, &failure.line),
        Fault::Configuration => Err(Failure::usage(failure)),
        Fault::Run => Err(Failure::run(failure)),
    })
}

/// Tells what is wrong with the configuration: of a file each mistake, as `check` tells them.
fn wrong(program: &Program, of_file: bool, mistakes: &str) -> Result<Exit, Failure> {
    if !of_file {
        return Err(usage(program, mistakes));
    }
    if !mistakes.contains('\n') {
        return Err(Failure::usage(mistakes));
    }
    mistakes.lines().for_each(|mistake| print::tell(plain(mistake)));
    Ok(Exit::Usage)
}

/// Returns the program that the command line, or the file that it names, describes.
fn operated(program: &Program, arguments: ServeArguments) -> Result<Operated, Failure> {
    let operated = program.operated().clone();
    let mut whole = arguments.whole.clone();
    if arguments.verbose {
        let log = sockdrawer_operate::program_settings().find(|setting| setting.name == "log");
        log.into_iter().for_each(|log| whole.set(log, Value::Text("text".to_owned())));
    }
    match &arguments.config {
        Some(file) => Ok(operated.of_file(file).overriding(whole)),
        None if !arguments.has_pool && program.has_configuration() => match operated.file() {
            Some(file) if matches!(file.try_exists(), Ok(false)) => {
                let line = "write it, name another (--config FILE), or say where to listen (--listen ADDR)";
                Err(usage(program, format_args!("there is no {}: {line}", file.display())))
            }
            _ => Ok(operated.overriding(whole)),
        },
        None => Ok(operated.of_document(document(program, arguments, whole)?)),
    }
}

/// Returns what the command line says, as a configuration.
fn document(program: &Program, arguments: ServeArguments, whole: Values) -> Result<Document, Failure> {
    let protocol = chosen(program, arguments.protocol.as_deref())?;
    let mut values = arguments.pool.of_pool(POOL);
    let words: Option<Vec<String>> = arguments.program.iter().map(|word| word.to_str().map(str::to_owned)).collect();
    let runner = program.runner().map_or("", |(runner, _)| runner.name());
    let words = words.ok_or_else(|| usage(program, format_args!("what {runner} runs is not UTF-8: only text is understood")))?;
    let own = |name: &str| protocol.settings().iter().find(|setting| setting.name == name);
    let takes_words = protocol.settings().iter().any(|setting| setting.behind_dashes);
    let is_wrong = |setting: &Setting| match setting.behind_dashes {
        true => !words.is_empty() && !takes_words,
        false => arguments.of_protocols.contains_key(setting.name) && own(setting.name).is_none(),
    };
    for other in program.operated().protocols() {
        if let Some(setting) = other.settings().iter().find(|setting| is_wrong(setting)) {
            let option = if setting.behind_dashes { format!("-- {}", setting.form()) } else { format!("--{}", setting.name) };
            let (other, protocol) = (other.name(), protocol.name());
            return Err(usage(program, format_args!("{option} is an option of {other}, not of {protocol}: leave it out")));
        }
    }
    for setting in protocol.settings() {
        for text in arguments.of_protocols.get(setting.name).into_iter().flatten() {
            let value = setting.parse(text);
            let value = value.map_err(|why| usage(program, format_args!("--{} {text}: {why}", setting.name)))?;
            values.set(setting, value);
        }
        if setting.behind_dashes && !words.is_empty() {
            values.set(setting, Value::List(words.clone()));
        }
    }
    if values.list("listen").is_empty() {
        let listen = sockdrawer_operate::pool_settings().find(|setting| setting.name == "listen");
        listen.into_iter().for_each(|listen| values.set(listen, Value::List(vec![ADDRESS.to_owned()])));
    }
    let pool = PoolDocument { protocol: protocol.name(), values };
    Ok(Document { program: whole, pools: [(POOL.to_owned(), pool)].into(), ..Document::default() })
}

/// Returns the protocol of this name; of a program with one protocol, that.
fn chosen<'a>(program: &'a Program, name: Option<&str>) -> Result<&'a Protocol, Failure> {
    let protocols = program.operated().protocols();
    let chosen = match (name, protocols) {
        (None, [one]) => Some(one),
        (name, several) => several.iter().find(|protocol| name == Some(protocol.name())),
    };
    let names: Vec<&str> = protocols.iter().map(Protocol::name).collect();
    chosen.ok_or_else(|| usage(program, missing_name("protocol", &names)))
}

fn usage(program: &Program, line: impl fmt::Display) -> Failure {
    Failure::usage_of(&format!("{} serve", program.name()), line)
}
