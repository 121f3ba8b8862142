//! Plans in files. A key is a long option, so what a file says becomes words in front of those of the command line, and one
//! definition serves both.

use crate::arguments;
use crate::names;
use crate::outcome::Failure;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use toml::de::{DeTable, DeValue};

/// Options that no file has: which file it is, and what is for a moment.
const NOT_IN_FILES: [&str; 3] = ["plan", "dry_run", "help"];

/// The words of a plan, and where each of its keys stands.
#[derive(Debug)]
pub(crate) struct PlanFile {
    /// The command that it is a plan for.
    command: String,
    path: PathBuf,
    /// Words before the command line's own: options, and the workload.
    before: Vec<OsString>,
    /// Words behind the command line's own: targets.
    behind: Vec<OsString>,
    /// The key, as a word of the command line, and its line.
    lines: Vec<(String, usize)>,
}

impl PlanFile {
    /// Returns the plan that `matches` of the command line name, without what the command line says itself.
    ///
    /// # Errors
    /// When it cannot be read, or has a key that is no option.
    pub(crate) fn named_in(matches: &ArgMatches) -> Result<Option<PlanFile>, Failure> {
        let Some((name, given)) = matches.subcommand() else { return Ok(None) };
        let Ok(Some(path)) = given.try_get_one::<PathBuf>("plan") else { return Ok(None) };
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format_args!("cannot read the plan {}: {error}; name a file that is there", path.display()))
        })?;
        let arguments = arguments::command();
        let command = arguments.find_subcommand(name).unwrap_or(&arguments);
        let mut file =
            PlanFile { command: name.to_owned(), path: path.clone(), before: Vec::new(), behind: Vec::new(), lines: Vec::new() };
        let table = DeTable::parse(&text)
            .map_err(|error| file.wrong(line(&text, error.span().map_or(0, |span| span.start)), error.message()))?;
        for (key, value) in table.get_ref() {
            let line = line(&text, key.span().start);
            file.add(command, given, (key.get_ref(), value.get_ref())).map_err(|why| file.wrong(line, why))?;
            file.lines.push((word(key.get_ref()), line));
        }
        Ok(Some(file))
    }

    fn add(&mut self, command: &Command, given: &ArgMatches, (key, value): (&str, &DeValue<'_>)) -> Result<(), String> {
        let known = |argument: &&Arg| !NOT_IN_FILES.contains(&argument.get_id().as_str());
        let Some(argument) = command.get_arguments().filter(known).find(|argument| name(argument) == key) else {
            let keys: Vec<&str> = command.get_arguments().filter(known).map(name).collect();
            return Err(names::unknown("key", key, &keys).0);
        };
        let texts = texts(argument, value)?;
        if is_overruled(command, argument, given) {
            return Ok(());
        }
        for text in texts {
            match argument.get_long() {
                Some(long) if is_flag(argument) => self.before.push(format!("--{long}").into()),
                Some(long) => self.before.push(format!("--{long}={text}").into()),
                None if key == "workload" => self.before.push(text.into()),
                None => self.behind.push(text.into()),
            }
        }
        Ok(())
    }

    /// Returns the command line with the plan's words in it.
    pub(crate) fn and(&self, words: &[OsString]) -> Vec<OsString> {
        let (begin, rest) = words.split_at(words.len().min(2));
        [begin, &self.before, rest, &self.behind].concat()
    }

    /// Returns the error, with the line of the file if it is about one of its keys.
    pub(crate) fn locate(&self, argument: &str, what: String) -> String {
        // `--option <VALUE>`, `<ARGUMENT>`, `[ARGUMENT]...`
        let argument = argument.split_whitespace().next().unwrap_or_default().trim_matches(['<', '>', '[', ']', '.']);
        let is_meant = |(word, _): &&(String, usize)| argument == word;
        match self.lines.iter().find(is_meant) {
            Some((_, line)) => format!("{}:{line}: {what}", self.path.display()),
            None => what,
        }
    }

    fn wrong(&self, line: usize, why: impl fmt::Display) -> Failure {
        let PlanFile { command, path, .. } = self;
        Failure::usage(format_args!("{}:{line}: {why} (try: sockdrawer {command} --help)", path.display()))
    }
}

/// Returns the name that clap has for a key in its errors.
fn word(key: &str) -> String {
    match key {
        "workload" => "WORKLOAD".to_owned(),
        "targets" => "TARGET".to_owned(),
        option => format!("--{option}"),
    }
}

/// Returns the name that a file has for an argument.
fn name(argument: &Arg) -> &str {
    argument.get_long().unwrap_or(argument.get_id().as_str())
}

fn is_flag(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::SetTrue)
}

/// Returns whether the command line says the argument, or says something that excludes it.
fn is_overruled(command: &Command, argument: &Arg, given: &ArgMatches) -> bool {
    let is_given = |other: &Arg| given.value_source(other.get_id().as_str()) == Some(ValueSource::CommandLine);
    let excludes =
        |one: &Arg, other: &Arg| command.get_arg_conflicts_with(one).iter().any(|excluded| excluded.get_id() == other.get_id());
    command
        .get_arguments()
        .filter(|other| is_given(other))
        .any(|other| other.get_id() == argument.get_id() || excludes(argument, other) || excludes(other, argument))
}

/// Returns the values of an argument as words; a flag that is not wanted has none.
fn texts(argument: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let key = name(argument);
    match value {
        DeValue::Boolean(wanted) if is_flag(argument) => Ok(wanted.then(String::new).into_iter().collect()),
        _ if is_flag(argument) => Err(format!("{key} is true or false")),
        DeValue::Array(values) if matches!(argument.get_action(), ArgAction::Append) => {
            values.iter().map(|value| text(key, value.get_ref())).collect()
        }
        value => text(key, value).map(|text| vec![text]),
    }
}

fn text(key: &str, value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        other => Err(format!("{key} has one value, a text or a number, and no {}", other.type_str())),
    }
}

/// Returns the number of the line that has this byte.
fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
