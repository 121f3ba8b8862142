//! `sockdrawer serve`: its options are the settings of configuration files, from their table.

use crate::values::BadValue;
use crate::{names, protocols};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use sockdrawer_operate::{Setting, Value, Values, pool_settings, program_settings};
use std::ffi::OsString;
use std::path::PathBuf;

/// `sockdrawer serve`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServeArguments {
    /// None: the file says.
    pub(crate) protocol: Option<names::Protocol>,
    /// exec: the program and its arguments.
    pub(crate) program: Vec<OsString>,
    /// The configuration file.
    pub(crate) config: Option<PathBuf>,
    /// The settings of the pool, and of protocols.
    pub(crate) pool: Values,
    /// The settings of the whole program.
    pub(crate) whole: Values,
    pub(crate) verbose: bool,
}

/// Settings of protocols that are options; what exec runs is no option.
fn of_protocols() -> impl Iterator<Item = Setting> {
    protocols::SETTINGS.into_iter().filter(|setting| setting.name != protocols::PROGRAM.name)
}

/// The settings that most servers need: help lists them first.
const BASIC: [&str; 5] = ["listen", "model", "limit", "idle", "drain"];

fn option(setting: Setting) -> Arg {
    let default = if setting.default.is_empty() { String::new() } else { format!(" [default: {}]", setting.default) };
    let parse = move |text: &str| setting.parse(text).map_err(BadValue);
    let action = if setting.is_list() { ArgAction::Append } else { ArgAction::Set };
    let option = Arg::new(setting.name)
        .long(setting.name)
        .value_name(setting.form())
        .value_parser(parse)
        .action(action)
        .help(format!("{}{default}", setting.help))
        .help_heading((!BASIC.contains(&setting.name)).then_some(setting.group));
    match setting.name {
        "listen" => option.short('l'),
        "stays" | "turns-within" => option.requires("upgrade"),
        _ => option,
    }
}

impl Args for ServeArguments {
    fn augment_args(command: Command) -> Command {
        let file = "config";
        let protocols = names::Protocol::ALL.map(names::Protocol::name).join(", ");
        let protocol = Arg::new("protocol")
            .value_name("PROTOCOL")
            .value_parser(|text: &str| text.parse::<names::Protocol>())
            .required_unless_present(file)
            .help(protocols);
        let program = Arg::new("program")
            .value_name("PROGRAM")
            .last(true)
            .num_args(1..)
            .value_parser(value_parser!(OsString))
            .help("exec: the program to run for each connection, and its arguments");
        let config = Arg::new(file)
            .long(file)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .conflicts_with("protocol")
            .help("Serve the pools of a configuration file, and read it again at SIGHUP: see sockdrawer check --help");
        let verbose = Arg::new("verbose")
            .short('v')
            .long("verbose")
            .action(ArgAction::SetTrue)
            .conflicts_with("log")
            .help("Print events on standard error, one line each: short for --log text");
        let of_pool = pool_settings().copied().chain(of_protocols()).map(|setting| option(setting).conflicts_with(file));
        let whole = program_settings().copied().map(option);
        command.allow_negative_numbers(true).arg(protocol).arg(program).arg(config).arg(verbose).args(of_pool).args(whole)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ServeArguments::augment_args(command)
    }
}

impl FromArgMatches for ServeArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ServeArguments, clap::Error> {
        let mut arguments = ServeArguments::default();
        arguments.update_from_arg_matches(matches).map(|()| arguments)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.protocol = matches.get_one("protocol").copied();
        self.program = matches.get_many("program").into_iter().flatten().cloned().collect();
        self.config = matches.get_one("config").cloned();
        self.verbose = matches.get_flag("verbose");
        let given =
            |setting: &Setting| matches.get_many::<Value>(setting.name).into_iter().flatten().cloned().collect::<Vec<_>>();
        for setting in pool_settings().copied().chain(of_protocols()) {
            given(&setting).into_iter().for_each(|value| self.pool.set(&setting, value));
        }
        for setting in program_settings() {
            given(setting).into_iter().for_each(|value| self.whole.set(setting, value));
        }
        Ok(())
    }
}
