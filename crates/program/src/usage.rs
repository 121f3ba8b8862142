//! Errors of the command line. Clap's, which are a page, become one line that says what is wrong, why, and what to do.

use crate::names;
use crate::program::Program;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;
use std::ffi::OsString;

/// A command line that was not understood.
pub struct Misread<'a> {
    /// The definition of the whole program.
    pub definition: &'a clap::Command,
    /// The words of the command line, the program's first.
    pub words: &'a [OsString],
    /// The error of clap.
    pub error: &'a clap::Error,
}

impl Misread<'_> {
    /// Says what is wrong and what to do. Errors of commands that are the program's own may have words of their own, by `own`.
    pub fn reason(&self, program: &Program, own: impl Fn(&clap::Error) -> Option<String>) -> String {
        let error = self.error;
        let one_dash = match error.kind() {
            ErrorKind::UnknownArgument | ErrorKind::ValueValidation => self.one_dash(),
            _ => None,
        };
        one_dash.or_else(|| own(error)).unwrap_or_else(|| self.usual_reason(program))
    }

    fn usual_reason(&self, program: &Program) -> String {
        let error = self.error;
        match error.kind() {
            ErrorKind::UnknownArgument => self.unknown_argument(program),
            ErrorKind::InvalidSubcommand => {
                let commands = commands(&self.command().1);
                let known: Vec<&str> = commands.iter().map(String::as_str).collect();
                names::unknown("command", &context(error, ContextKind::InvalidSubcommand), &known).0
            }
            ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                format!("no command: say {}", any_of(&commands(&self.command().1)))
            }
            ErrorKind::MissingRequiredArgument => missing(error, program),
            ErrorKind::ValueValidation | ErrorKind::InvalidValue => bad_value(error),
            ErrorKind::ArgumentConflict => conflict(error),
            // Options take one value each: only a flag can get too many.
            ErrorKind::TooManyValues => {
                format!("{} takes no value: leave out what is behind it", context(error, ContextKind::InvalidArg))
            }
            ErrorKind::InvalidUtf8 => "an argument is not UTF-8: only text is understood".to_owned(),
            _ => first_line(error),
        }
    }

    /// Says where there is more help: `(try: NAME COMMAND --help)`.
    pub fn hint(&self) -> String {
        format!("(try: {}{} --help)", self.definition.get_name(), self.command().0)
    }

    /// Says that a long option has one dash, with which it is read as a short one and its value.
    fn one_dash(&self) -> Option<String> {
        let words: Vec<&str> = self.words.iter().filter_map(|word| word.to_str()).collect();
        let mut command = self.definition.clone();
        command.build();
        let mut command = command.find_subcommand(words.get(1)?)?;
        while let Some(below) = words[2..].iter().find_map(|word| command.find_subcommand(word)) {
            command = below;
        }
        let is_long = |name: &str| name.len() > 1 && command.get_arguments().any(|argument| argument.get_long() == Some(name));
        let word = words.iter().find(|word| word.strip_prefix('-').is_some_and(is_long))?;
        Some(format!("`{word}`: a long option has two dashes: -{word}"))
    }

    fn unknown_argument(&self, program: &Program) -> String {
        let word = context(self.error, ContextKind::InvalidArg);
        if let Some((protocol, setting)) = program.runner().filter(|_| !word.starts_with('-')) {
            let name = protocol.name();
            if self.words.iter().any(|word| word == name) {
                let form = setting.form();
                return format!("unexpected argument `{word}`: what {name} runs stands behind --, as in {name} -- {form}");
            }
        }
        // A program that a command starts has arguments of its own; most protocols of a server start none.
        let (name, definition) = self.command();
        let starts = name != " serve" && definition.get_arguments().any(clap::Arg::is_last_set);
        if !word.starts_with('-') {
            return match starts {
                true => format!("unexpected argument `{word}`: what is started stands behind --, as in -- {word}"),
                false if name == " ctl upgrade" => {
                    let program = program.name();
                    format!(
                        "unexpected argument `{word}`: it starts the server's own command line again; another one starts {program} upgrade PATH -- COMMAND"
                    )
                }
                false => format!("unexpected argument `{word}`: leave it out"),
            };
        }
        match context(self.error, ContextKind::SuggestedArg).as_str() {
            "" if starts => format!("unknown option `{word}`: leave it out; options of what is started stand behind --"),
            "" => format!("unknown option `{word}`: leave it out"),
            known => format!("unknown option `{word}`: did you mean `{known}`?"),
        }
    }

    /// Returns the command that is meant, with a space before each of its words, and its definition.
    fn command(&self) -> (String, clap::Command) {
        let (mut meant, mut definition) = (String::new(), self.definition.clone());
        for (index, word) in self.words.iter().enumerate().skip(1) {
            // The command comes first; what it is to do may follow its options.
            let below =
                word.to_str().filter(|_| index == 1 || !meant.is_empty()).and_then(|word| definition.find_subcommand(word));
            let Some(below) = below.cloned() else { continue };
            meant += &format!(" {}", below.get_name());
            definition = below;
        }
        (meant, definition)
    }
}

/// Returns the names of required arguments that are missing.
pub fn missing_arguments(error: &clap::Error) -> Vec<String> {
    let bare = |argument: &String| {
        let name = argument.split_whitespace().next().unwrap_or_default();
        name.trim_matches(['<', '>', '.']).to_owned()
    };
    contexts(error, ContextKind::InvalidArg).iter().map(bare).collect()
}

fn missing(error: &clap::Error, program: &Program) -> String {
    match missing_arguments(error).iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => first_line(error),
        ["PROTOCOL"] => {
            let known: Vec<&str> = program.operated().protocols().iter().map(sockdrawer_operate::Protocol::name).collect();
            missing_name("protocol", &known)
        }
        [one] => format!("{one} is missing: add it"),
        several => format!("{} are missing: add them", several.join(" and ")),
    }
}

/// Says that a name is missing, and which there are.
pub fn missing_name(what: &str, known: &[&str]) -> String {
    let known: Vec<String> = known.iter().map(ToString::to_string).collect();
    format!("no {what}: name {}", any_of(&known))
}

fn bad_value(error: &clap::Error) -> String {
    let argument = context(error, ContextKind::InvalidArg);
    let option = argument.split_whitespace().next().unwrap_or_default();
    let value = context(error, ContextKind::InvalidValue);
    let valid = contexts(error, ContextKind::ValidValue);
    match error.source() {
        Some(reason) if !argument.starts_with('-') => reason.to_string(),
        // The reason names the value itself.
        Some(reason) if reason.to_string().contains(&format!("`{value}`")) => format!("{option}: {reason}"),
        Some(reason) => format!("{option} {value}: {reason}"),
        None if value.is_empty() => format!("{option} needs a value"),
        None => format!("{option}: {}", names::unknown("value", &value, &valid.iter().map(String::as_str).collect::<Vec<_>>())),
    }
}

fn conflict(error: &clap::Error) -> String {
    let option = |kind| context(error, kind).split_whitespace().next().unwrap_or_default().to_owned();
    let (one, other) = (option(ContextKind::InvalidArg), option(ContextKind::PriorArg));
    if one == other || other.is_empty() {
        return format!("{one} is given twice: once is enough");
    }
    format!("{one} and {other} exclude each other: leave one out")
}

/// Returns what clap knows of an error, as text; empty where it knows nothing of this kind.
pub fn context(error: &clap::Error, kind: ContextKind) -> String {
    contexts(error, kind).join(", ")
}

fn contexts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

/// Returns clap's own words, without the usage that follows them: for kinds that clap may add.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

fn commands(of: &clap::Command) -> Vec<String> {
    of.get_subcommands().map(|command| command.get_name().to_owned()).filter(|name| name != "help").collect()
}

fn any_of(names: &[String]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}
