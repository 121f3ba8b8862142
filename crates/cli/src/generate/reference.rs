//! The reference of the command line: what is written by hand in `command-line.txt`, and synopsis, commands and options from their definitions.
//!
//! A line `{synopsis}` becomes the first lines of the page, `{options NAME}` the options of a command that are its own, `{commands NAME}` the
//! commands below it. The paragraphs of a definition behind the first one are told there and in the man page alone.

use crate::arguments::command;
use clap::{Arg, Command};
use sockdrawer_operate::{pool_settings, program_settings};
use std::collections::BTreeSet;
use std::fmt::Write as _;

const TEMPLATE: &str = include_str!("command-line.txt");

/// Returns the page, as Markdown.
pub(super) fn page() -> String {
    let mut root = command();
    root.build();
    let mut text = String::new();
    for line in TEMPLATE.lines() {
        let asked = line.strip_prefix('{').and_then(|line| line.strip_suffix('}')).unwrap_or_default();
        match asked.split_once(' ') {
            None if asked == "synopsis" => text += &synopsis(&root),
            Some(("options", name)) => text += &options(&root, below(&root, name)),
            Some(("commands", name)) => text += &commands(below(&root, name)),
            _ => text += &format!("{line}\n"),
        }
    }
    text
}

fn below<'a>(root: &'a Command, name: &str) -> &'a Command {
    name.split(' ').fold(root, |command, name| command.find_subcommand(name).expect("the template names commands"))
}

fn commands_of(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| below.get_name() != "help")
}

/// Returns a line for each command, as its help begins.
fn synopsis(root: &Command) -> String {
    let usage = |command: &Command| command.clone().render_usage().to_string().trim_start_matches("Usage: ").to_owned();
    let lines = commands_of(root).map(usage).collect::<Vec<_>>().join("\n");
    lines.lines().map(|line| format!("    {}\n", line.trim_start())).collect()
}

/// Returns the options of a command that are not told elsewhere: settings of files have a page of their own, and what `load` has too is told there.
fn options(root: &Command, command: &Command) -> String {
    let settings: BTreeSet<&str> = program_settings().chain(pool_settings()).map(|setting| setting.name).collect();
    let (serve, load, trial) = (command.get_name() == "serve", below(root, "load"), below(root, "trial"));
    let same = |of: &Command, option: &Arg| {
        let mut options = of.get_arguments();
        options.any(|other| other.get_long() == option.get_long() && meaning(other) == meaning(option))
    };
    let elsewhere = |option: &Arg| match option.get_long() {
        None | Some("help") => true,
        Some(long) if serve => settings.contains(long) || crate::protocols::settings().any(|setting| setting.name == long),
        Some(_) if command.get_name() == "load" => false,
        Some(_) => same(load, option) || (command.get_name() != "trial" && same(trial, option)),
    };
    let own: Vec<&Arg> = command.get_arguments().filter(|option| !elsewhere(option)).collect();
    let mut groups: Vec<Option<&str>> = vec![None];
    own.iter().for_each(|option| {
        if !groups.contains(&option.get_help_heading()) {
            groups.push(option.get_help_heading())
        }
    });
    let mut text = String::new();
    for group in groups {
        let rows: Vec<String> =
            own.iter().filter(|option| option.get_help_heading() == group).map(|option| row(option)).collect();
        if rows.is_empty() {
            continue;
        }
        let title = group.map_or(String::new(), |group| format!("{group}:\n\n"));
        let between = if text.is_empty() { "" } else { "\n" };
        let _ = write!(text, "{between}{title}| option | meaning | unless given |\n| --- | --- | --- |\n{}", rows.concat());
    }
    text
}

fn row(option: &Arg) -> String {
    let short = option.get_short().map_or(String::new(), |short| format!("`-{short}`, "));
    let values = option.get_value_names().filter(|_| option.get_action().takes_values()).unwrap_or_default();
    let values: String = values.iter().map(|name| format!(" {name}")).collect();
    let name = format!("{short}`--{}{values}`", option.get_long().unwrap_or_default());
    let (mut meaning, mut default) = meaning(option);
    let possible = option.get_possible_values();
    if option.get_action().takes_values() && !possible.iter().all(|value| meaning.contains(value.get_name())) {
        let possible: Vec<String> = possible.iter().map(|value| format!("`{}`", value.get_name())).collect();
        meaning += &format!(": {}", possible.join(", "));
    }
    let given: Vec<String> = option.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if option.get_action().takes_values() && !given.is_empty() {
        default = given.join(" ");
    }
    format!("| {} | {} | {default} |\n", escaped(&name), escaped(&meaning)).replace("|  |", "| |")
}

/// Returns all paragraphs of an option's definition, and what holds unless it is given.
fn meaning(option: &Arg) -> (String, String) {
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    let whole = option.get_long_help().map_or_else(|| help.clone(), ToString::to_string);
    let rest = whole.strip_prefix(&help).unwrap_or_default().trim_start_matches('.').replace("\n\n", " ");
    let at_end = help.trim_end_matches('.').strip_suffix(']').and_then(|help| help.rsplit_once(" [default"));
    let (first, default) = match at_end {
        Some((first, default)) => (first.to_owned(), default.trim_start_matches([':', ' ']).to_owned()),
        None => (help, String::new()),
    };
    let rest = rest.trim();
    let meaning = if rest.is_empty() { first } else { format!("{first}. {}", rest.trim_end_matches('.')) };
    (in_code(&meaning), in_code(&default))
}

/// Returns the commands below a command, with the options that are their own.
fn commands(command: &Command) -> String {
    let mut text = "| command | what it does | its options |\n| --- | --- | --- |\n".to_owned();
    for below in commands_of(command) {
        let about = below.get_about().map(ToString::to_string).unwrap_or_default();
        let about = below.get_long_about().map_or(about, ToString::to_string).replace("\n\n", " ");
        let values = below.get_positionals().flat_map(|one| one.get_value_names().unwrap_or_default());
        let values: String = values.map(|name| format!(" {name}")).collect();
        let own = below.get_arguments().filter(|option| !option.is_global_set() && option.get_id() != "help");
        let own: Vec<String> = own.filter_map(|option| Some(format!("`--{}`", option.get_long()?))).collect();
        let cells = [format!("`{}{values}`", below.get_name()), in_code(about.trim_end_matches('.')), own.join(" ")];
        text += &format!("| {} |\n", cells.map(|cell| escaped(&cell)).join(" | ")).replace("|  |", "| |");
    }
    text
}

fn escaped(cell: &str) -> String {
    cell.replace('\\', "\\\\").replace('|', "\\|")
}

/// Returns text with its options as code.
fn in_code(text: &str) -> String {
    let word = |word: &str| {
        let end = word.trim_end_matches([',', '.', ';', ':', ')', '\'']).len();
        let (option, rest) = word.split_at(end);
        let is_option = option.len() > 1 && option.starts_with('-') && !option.contains('`');
        if is_option { format!("`{option}`{rest}") } else { word.to_owned() }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}
