//! The text of `--help`: examples first, then an option to a line, in groups.

use crate::program::Program;
use clap::{Arg, ArgAction, Command};

const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n\nExamples:\n{before-help}{all-args}{after-help}";
/// The width of a line of exit codes.
const WIDTH: usize = 100;

fn help() -> Arg {
    Arg::new("help").short('h').long("help").action(ArgAction::HelpShort).help("Print help").help_heading(None::<&str>)
}

/// Stands for `{` of `{n}` while clap writes a help, in which it would be a line break.
const BRACE: &str = "\u{e000}";

fn with_braces(option: Arg) -> Arg {
    match option.get_help().map(ToString::to_string).filter(|help| help.contains("{n}")) {
        Some(help) => option.help(help.replace("{n}", &format!("{BRACE}n}}"))),
        None => option,
    }
}

/// Returns a definition with which a help can be written; [`shown`] is what it says.
pub fn helping(definition: Command) -> Command {
    definition.mut_subcommands(|command| helping(command.mut_args(with_braces)))
}

/// Returns a written help as it is shown.
pub fn shown(help: &str) -> String {
    help.replace(BRACE, "{")
}

/// Returns the exit codes in a few words, as the end of a help has them.
pub fn exit_codes(program: &Program) -> String {
    let short = |(codes, meaning): &(String, String)| match codes.as_str() {
        "2" => "2 the command line".to_owned(),
        "3" => "3 nothing was run".to_owned(),
        "129, 130, 143" => "129, 130 and 143 a signal".to_owned(),
        codes => format!("{codes} {meaning}"),
    };
    let mut lines = vec!["Exit codes:".to_owned()];
    let all: Vec<String> = program.exit_status.iter().map(short).collect();
    for (at, one) in all.iter().enumerate() {
        let end = if at + 1 < all.len() { "," } else { "" };
        match lines.last_mut() {
            Some(line) if line.len() + 1 + one.len() + end.len() <= WIDTH => *line += &format!(" {one}{end}"),
            _ => lines.push(format!("{one}{end}")),
        }
    }
    lines.join("\n")
}

/// Gives each command the form of help, with its examples.
pub(crate) fn in_form(program: &Program, definition: Command) -> Command {
    let codes = exit_codes(program);
    definition.after_help(codes.clone()).mut_subcommands(|command| {
        let examples = program.examples.iter().find(|(name, _)| *name == command.get_name());
        let Some((_, examples)) = examples else { return command };
        let lines: String = examples.iter().map(|example| format!("  {} {example}\n", program.name())).collect();
        // A flag that is disabled is disabled for the commands below it, too.
        let command = command.help_template(TEMPLATE).before_help(lines).disable_help_flag(true).arg(help());
        command.mut_subcommands(|below| below.arg(help())).after_help(codes.clone())
    })
}
