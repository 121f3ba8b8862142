//! From the words of the command line to [`Arguments`]. Clap's errors, which are a page, become one line that says what is wrong,
//! why, and what to do.

use crate::arguments::{self, Arguments, Command};
use crate::names;
use crate::outcome::Failure;
use crate::plan::PlanFile;
use crate::print;
use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;
use std::ffi::OsString;

/// What is asked for; None when it was the help or the version, which are printed then.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Option<Command>, Failure> {
    let words: Vec<OsString> = words.into_iter().collect();
    let own = match arguments::helping().try_get_matches_from(&words) {
        Ok(own) => own,
        Err(error) if error.use_stderr() => return Err(Failure::usage(one_line(&error, &words, None))),
        Err(help) => return print::line(arguments::shown(&help.to_string()).trim_end()).map(|()| None),
    };
    let file = PlanFile::named_in(&own)?;
    let all = file.as_ref().map_or_else(|| words.clone(), |file| file.and(&words));
    match arguments::command().try_get_matches_from(all).and_then(|own| Arguments::from_arg_matches(&own)) {
        Ok(arguments) => Ok(Some(arguments.command)),
        Err(error) => Err(Failure::usage(one_line(&error, &words, file.as_ref()))),
    }
}

/// What is wrong with `words`, or with the file that they name.
fn one_line(error: &clap::Error, words: &[OsString], file: Option<&PlanFile>) -> String {
    let (program, command, definition) = program_and_command(words);
    let what = match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::ValueValidation if one_dash(words).is_some() => {
            one_dash(words).unwrap_or_default()
        }
        ErrorKind::UnknownArgument => unknown_argument(error, words),
        ErrorKind::InvalidSubcommand => unknown_command(error, &definition),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("no command: say {}", any_of(&commands(&definition)))
        }
        ErrorKind::MissingRequiredArgument => missing(error),
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => bad_value(error),
        ErrorKind::ArgumentConflict => conflict(error),
        // Options take one value each: only a flag can get too many.
        ErrorKind::TooManyValues => {
            format!("{} takes no value: leave out what is behind it", context(error, ContextKind::InvalidArg))
        }
        ErrorKind::InvalidUtf8 => "an argument is not UTF-8: only text is understood".to_owned(),
        _ => first_line(error),
    };
    let what = match file {
        Some(file) => file.locate(&context(error, ContextKind::InvalidArg), what),
        None => what,
    };
    format!("{what} (try: {program}{command} --help)")
}

/// A long option with one dash, which is read as a short one and its value.
fn one_dash(words: &[OsString]) -> Option<String> {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let mut command = arguments::command();
    command.build();
    let mut command = command.find_subcommand(words.get(1)?)?;
    while let Some(below) = words[2..].iter().find_map(|word| command.find_subcommand(word)) {
        command = below;
    }
    let is_long = |name: &str| name.len() > 1 && command.get_arguments().any(|argument| argument.get_long() == Some(name));
    let word = words.iter().find(|word| word.strip_prefix('-').is_some_and(is_long))?;
    Some(format!("`{word}`: a long option has two dashes: -{word}"))
}

fn unknown_argument(error: &clap::Error, words: &[OsString]) -> String {
    let word = context(error, ContextKind::InvalidArg);
    let exec = names::Protocol::Exec.name();
    if words.iter().any(|word| word == exec) && !word.starts_with('-') {
        return format!("unexpected argument `{word}`: what {exec} runs stands behind --, as in {exec} -- PROGRAM");
    }
    if !word.starts_with('-') {
        return format!("unexpected argument `{word}`: leave it out");
    }
    if let Some((_, here)) = HABITS.iter().find(|(habit, _)| *habit == word) {
        return format!("unknown option `{word}`: {here}");
    }
    match context(error, ContextKind::SuggestedArg).as_str() {
        "" => format!("unknown option `{word}`: leave it out"),
        known => format!("unknown option `{word}`: did you mean `{known}`?"),
    }
}

/// What other tools of this kind call what is here too, or is not.
const HABITS: [(&str, &str); 18] = [
    ("-z", "the time of a run is -d: -d 10s"),
    ("-q", "the rate is --rate: --rate 1000"),
    ("-r", "the rate is --rate: --rate 1000"),
    ("-R", "the rate is --rate: --rate 1000"),
    ("--rps", "the rate is --rate: --rate 1000"),
    ("-t", "threads are one for each CPU; a time-out is --timeout, more processes are --processes"),
    ("-T", "a header is -H: -H 'Content-Type: text/html'; a time-out is --timeout, connections at a rate are --connect-rate"),
    ("-k", "connections are kept with a URL, or by --keep-alive"),
    ("-m", "the method is -X: -X POST"),
    ("-D", "a body from a file is --body @FILE"),
    ("--data", "the body is --body: a text, or @FILE"),
    ("-b", "the body is --body: a text, or @FILE"),
    ("-u", "connections at once are -c"),
    ("--vus", "connections at once are -c"),
    ("--request", "the method is -X: -X POST"),
    ("--latency", "latencies are always shown"),
    ("--cacert", "the authorities are --ca: --ca FILE"),
    ("-i", "the time from one operation to the next is --interval"),
];

fn missing(error: &clap::Error) -> String {
    let bare = |argument: &String| {
        let name = argument.split_whitespace().next().unwrap_or_default();
        name.trim_matches(['<', '>', '.']).to_owned()
    };
    let what: Vec<String> = contexts(error, ContextKind::InvalidArg).iter().map(bare).collect();
    match what.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        // A plan without one: clap does not say what it misses when only its file could have had it.
        [] | ["WORKLOAD"] => missing_name("workload", &names::Protocol::WORKLOADS),
        ["PROTOCOL"] => missing_name("protocol", &names::Protocol::ALL),
        [one] => format!("{one} is missing: add it"),
        several => format!("{} are missing: add them", several.join(" and ")),
    }
}

fn missing_name(what: &str, known: &[names::Protocol]) -> String {
    let known: Vec<String> = known.iter().map(ToString::to_string).collect();
    format!("no {what}: name {}", any_of(&known))
}

fn unknown_command(error: &clap::Error, definition: &clap::Command) -> String {
    let named = context(error, ContextKind::InvalidSubcommand);
    if named.contains("://") {
        return format!("`{named}` is no command: to put load on it, write load {named}");
    }
    let commands = commands(definition);
    let known: Vec<&str> = commands.iter().map(String::as_str).collect();
    names::unknown("command", &named, &known).0
}

fn bad_value(error: &clap::Error) -> String {
    let argument = context(error, ContextKind::InvalidArg);
    let option = argument.split_whitespace().next().unwrap_or_default();
    let value = context(error, ContextKind::InvalidValue);
    let valid = contexts(error, ContextKind::ValidValue);
    match error.source() {
        // No protocol has a colon in its name, but every target has.
        Some(_) if argument.contains("WORKLOAD") && value.contains(':') && !value.contains("://") => {
            format!("no workload before `{value}`: name one, as in ping {value}")
        }
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

/// What clap knows of an error, as text; empty where it knows nothing of this kind.
fn context(error: &clap::Error, kind: ContextKind) -> String {
    contexts(error, kind).join(", ")
}

fn contexts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

/// For kinds that clap may add: its own words, without the usage that follows them.
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

/// The program's name, and the command that is meant with a space before each of its words; and its definition.
fn program_and_command(words: &[OsString]) -> (String, String, clap::Command) {
    let (mut meant, mut definition) = (String::new(), arguments::command());
    let program = definition.get_name().to_owned();
    for (index, word) in words.iter().enumerate().skip(1) {
        // The command comes first; what it is to do may follow its options.
        let below = word.to_str().filter(|_| index == 1 || !meant.is_empty()).and_then(|word| definition.find_subcommand(word));
        let Some(below) = below.cloned() else { continue };
        meant += &format!(" {}", below.get_name());
        definition = below;
    }
    (program, meant, definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        arguments::command().debug_assert();
    }

    #[test]
    fn the_command_is_named_in_what_to_try() {
        let words = ["/usr/bin/sockdrawer", "serve", "--nonsense"].map(OsString::from);
        let failure = parse(words).expect_err("there is no such option");
        assert!(failure.to_string().ends_with("(try: sockdrawer serve --help)"), "{failure}");
    }
}
