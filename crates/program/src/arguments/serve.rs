//! `serve`: its options are the settings of configuration files, from their table, and those of the program's protocols.

use crate::names::unknown;
use crate::program::Program;
use crate::values::BadValue;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use sockdrawer_operate::{Protocol, Setting, Value, Values, pool_settings};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

const PROTOCOL: &str = "protocol";
const PROGRAM: &str = "program";
const CONFIG: &str = "config";
const VERBOSE: &str = "verbose";

/// `serve`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServeArguments {
    /// The name of the protocol. None: the file says, or there is one protocol only.
    pub(crate) protocol: Option<String>,
    /// The words behind `--`: a program that the protocol runs, and its arguments.
    pub(crate) program: Vec<OsString>,
    /// The configuration file.
    pub(crate) config: Option<PathBuf>,
    /// The settings of the pool.
    pub(crate) pool: Values,
    /// The settings of protocols, as they are written.
    pub(crate) of_protocols: BTreeMap<&'static str, Vec<String>>,
    /// The settings of the whole program.
    pub(crate) whole: Values,
    pub(crate) verbose: bool,
    /// The command line says something of a pool.
    pub(crate) has_pool: bool,
}

/// The settings that most servers need: help lists them first.
const BASIC: [&str; 5] = ["listen", "model", "limit", "idle", "drain"];

/// Returns the settings of protocols that are options, each with its definitions: several protocols may have a setting of one name. A name that
/// is an option already is none of a protocol's here, as in a file.
fn of_protocols(program: &Program) -> Vec<(Setting, Vec<Setting>)> {
    let taken = [PROTOCOL, PROGRAM, CONFIG, VERBOSE, "help"].into_iter();
    let taken: Vec<&str> = taken
        .chain(pool_settings().map(|setting| setting.name))
        .chain(program.operated().program_settings().map(|setting| setting.name))
        .collect();
    let mut options: Vec<(Setting, Vec<Setting>)> = Vec::new();
    let settings = program.operated().protocols().iter().flat_map(Protocol::settings);
    for setting in settings.filter(|setting| !setting.behind_dashes && !taken.contains(&setting.name)) {
        match options.iter_mut().find(|(first, _)| first.name == setting.name) {
            Some((_, definitions)) => definitions.push(*setting),
            None => options.push((*setting, vec![*setting])),
        }
    }
    options
}

/// Returns the option of a setting. A value that none of its definitions understands is refused in the words of the first.
fn option(program: &Program, setting: Setting, definitions: Vec<Setting>) -> Arg {
    let parse = move |text: &str| -> Result<Value, BadValue> {
        let first = setting.parse(text);
        let others = || definitions.iter().find_map(|setting| setting.parse(text).ok());
        first.or_else(|why| others().ok_or(BadValue(why)))
    };
    let action = if setting.is_list() { ArgAction::Append } else { ArgAction::Set };
    let option = Arg::new(setting.name)
        .long(setting.name)
        .value_name(setting.form())
        .value_parser(parse)
        .action(action)
        .help(program.told(&setting))
        .help_heading((!BASIC.contains(&setting.name)).then_some(setting.group));
    match setting.name {
        "listen" => option.short('l'),
        "stays" | "turns-within" => option.requires("upgrade"),
        _ => option,
    }
}

/// Returns the definition of the command.
pub(super) fn command(program: &Program) -> Command {
    let names: Vec<&'static str> = program.operated().protocols().iter().map(Protocol::name).collect();
    let all = names.join(", ");
    let is_required = names.len() != 1 && !program.has_configuration();
    let parse = move |text: &str| match names.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(unknown("protocol", text, &names)),
    };
    let protocol = Arg::new(PROTOCOL).value_name("PROTOCOL").value_parser(parse).help(all);
    let protocol = if is_required { protocol.required_unless_present(CONFIG) } else { protocol };
    let runner = program.runner().map(|(_, setting)| {
        Arg::new(PROGRAM)
            .value_name(setting.form())
            .last(true)
            .num_args(1..)
            .value_parser(value_parser!(OsString))
            .help(setting.help)
    });
    let check = program.named("see sockdrawer check --help");
    let config = Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .conflicts_with(PROTOCOL)
        .help(format!("Serve the pools of a configuration file, and read it again at SIGHUP: {check}"));
    let verbose = Arg::new(VERBOSE)
        .short('v')
        .long(VERBOSE)
        .action(ArgAction::SetTrue)
        .conflicts_with("log")
        .help("Print events on standard error, one line each: short for --log text");
    let of_pool = pool_settings().map(|setting| (*setting, vec![*setting])).chain(of_protocols(program));
    let of_pool = of_pool.map(|(setting, definitions)| option(program, setting, definitions).conflicts_with(CONFIG));
    let whole = program.operated().program_settings().map(|setting| option(program, *setting, vec![*setting]));
    let about = if program.has_configuration() {
        "Serve until SIGTERM or SIGINT: the pools of the configuration, or a protocol"
    } else {
        "Serve a protocol until SIGTERM or SIGINT"
    };
    let command = Command::new("serve").about(about).allow_negative_numbers(true);
    command.arg(protocol).args(runner).arg(config).arg(verbose).args(of_pool).args(whole)
}

impl ServeArguments {
    /// Reads what the command line says.
    pub(crate) fn of(program: &Program, matches: &ArgMatches) -> ServeArguments {
        let mut arguments = ServeArguments::default();
        let is_given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        let given =
            |setting: &Setting| matches.get_many::<Value>(setting.name).into_iter().flatten().cloned().collect::<Vec<_>>();
        arguments.protocol = matches.get_one(PROTOCOL).cloned();
        if program.runner().is_some() {
            arguments.program = matches.get_many(PROGRAM).into_iter().flatten().cloned().collect();
        }
        arguments.config = matches.get_one(CONFIG).cloned();
        arguments.verbose = matches.get_flag(VERBOSE);
        for setting in pool_settings() {
            given(setting).into_iter().for_each(|value| arguments.pool.set(setting, value));
            arguments.has_pool |= is_given(setting.name);
        }
        for (setting, _) in of_protocols(program) {
            let texts = matches.get_raw(setting.name).into_iter().flatten();
            let texts: Vec<String> = texts.map(|text| text.to_string_lossy().into_owned()).collect();
            arguments.has_pool |= !texts.is_empty();
            arguments.of_protocols.extend((!texts.is_empty()).then_some((setting.name, texts)));
        }
        for setting in program.operated().program_settings() {
            given(setting).into_iter().for_each(|value| arguments.whole.set(setting, value));
        }
        arguments.has_pool |= arguments.protocol.is_some() || !arguments.program.is_empty();
        arguments
    }
}
