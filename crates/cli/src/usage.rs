//! Reads the command line. Errors are one line each, in the words of [`sockdrawer_program::usage`], and of this program where they are about its
//! own commands.

use crate::arguments::{self, Command, Generated};
use crate::names;
use crate::outcome::Failure;
use crate::plan::PlanFile;
use crate::print;
use clap::error::{ContextKind, ErrorKind};
use clap::{ArgMatches, FromArgMatches, Subcommand};
use sockdrawer_program::help::{helping, shown};
use sockdrawer_program::usage::{Misread, context, missing_arguments, missing_name};
use std::ffi::OsString;

/// A command line that was understood.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// A command of all programs that serve.
    Serving(ArgMatches),
    /// A command of this program alone.
    Own(Command),
}

/// Returns what is asked for; None when it was the help or the version, which are printed then.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Option<Parsed>, Failure> {
    let words: Vec<OsString> = words.into_iter().collect();
    let own = match helping(arguments::command()).try_get_matches_from(&words) {
        Ok(own) => own,
        Err(error) if error.use_stderr() => return Err(Failure::usage(one_line(&error, &words, None))),
        Err(help) => return print::line(shown(&help.to_string()).trim_end()).map(|()| None),
    };
    let file = PlanFile::named_in(&own)?;
    let all = file.as_ref().map_or_else(|| words.clone(), |file| file.and(&words));
    let asked = arguments::command().try_get_matches_from(all).and_then(|matches| match is_own(&matches) {
        true => Command::from_arg_matches(&matches).map(Parsed::Own),
        false => Ok(Parsed::Serving(matches)),
    });
    asked.map(Some).map_err(|error| Failure::usage(one_line(&error, &words, file.as_ref())))
}

fn is_own(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some(("generate", file)) => file.subcommand_name().is_some_and(Generated::has_subcommand),
        asked => asked.is_some_and(|(name, _)| Command::has_subcommand(name)),
    }
}

/// Says what is wrong with `words`, or with the file that they name.
fn one_line(error: &clap::Error, words: &[OsString], file: Option<&PlanFile>) -> String {
    let definition = arguments::command();
    let misread = Misread { definition: &definition, words, error };
    let what = misread.reason(&arguments::program(), own);
    let what = match file {
        Some(file) => file.locate(&context(error, ContextKind::InvalidArg), what),
        None => what,
    };
    format!("{what} {}", misread.hint())
}

/// Says what is wrong with commands of this program alone, where it has more to say than what is usual.
fn own(error: &clap::Error) -> Option<String> {
    let value = context(error, ContextKind::InvalidValue);
    let is_workload = || context(error, ContextKind::InvalidArg).contains("WORKLOAD");
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let word = context(error, ContextKind::InvalidArg);
            let (_, here) = HABITS.iter().find(|(habit, _)| *habit == word)?;
            Some(format!("unknown option `{word}`: {here}"))
        }
        ErrorKind::InvalidSubcommand => {
            let named = context(error, ContextKind::InvalidSubcommand);
            let is_url = named.contains("://");
            is_url.then(|| format!("`{named}` is no command: to put load on it, write load {named}"))
        }
        ErrorKind::MissingRequiredArgument => match missing_arguments(error).as_slice() {
            // A plan without one: clap does not say what it misses when only its file could have had it.
            [] => Some(no_workload()),
            [one] if one == "WORKLOAD" => Some(no_workload()),
            _ => None,
        },
        // No protocol has a colon in its name, but every target has.
        ErrorKind::ValueValidation | ErrorKind::InvalidValue if is_workload() => {
            let is_target = value.contains(':') && !value.contains("://");
            is_target.then(|| format!("no workload before `{value}`: name one, as in ping {value}"))
        }
        _ => None,
    }
}

fn no_workload() -> String {
    missing_name("workload", &names::Protocol::WORKLOADS.map(names::Protocol::name))
}

/// Names that other tools of this kind have for what is here too, or is not.
const HABITS: [(&str, &str); 19] = [
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
    ("--http2", "HTTP/1.1 alone is spoken; a server that has both is asked in it"),
    ("--cacert", "the authorities are --ca: --ca FILE"),
    ("-i", "the time from one operation to the next is --interval"),
];

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
