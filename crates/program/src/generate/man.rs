//! The man page: all commands with their options, and all settings of configuration files, from the definitions of both.

use crate::program::{Entry, Program};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use sockdrawer_operate::client::variable;
use sockdrawer_operate::{Protocol, Setting, pool_settings};

const FILE: &str = "A file of TOML, or of JSON. The settings of the whole program come first; each pool is a table [pool.NAME] with the name of its \
    protocol as protocol, with listen, and with any other settings of pools. Each setting is an option of serve too.";

const ENVIRONMENT: [(&str, &str); 5] = [
    ("SOCKDRAWER_REPLACES", "serve --upgrade: the pid of the process that this one may replace, or any"),
    ("RUNTIME_DIRECTORY, XDG_RUNTIME_DIR", "the folder of the control socket, unless it is named"),
    ("LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES", "serve: sockets that systemd passes, for listen = \"systemd:NAME\""),
    ("NOTIFY_SOCKET, WATCHDOG_USEC", "serve: how systemd is told of its state"),
    ("JOURNAL_STREAM", "serve: the log has no times where the journal reads it"),
];

const SIGNALS: [(&str, &str); 4] = [
    ("SIGTERM, SIGINT", "serve: connections are drained, then it ends; a second one ends it at once"),
    ("SIGHUP", "serve --config: the file is read again; else as SIGTERM"),
    ("SIGUSR2", "serve --upgrade: a new build takes over"),
    ("SIGUSR1", "nothing"),
];

fn entry((names, meaning): (&str, &str)) -> Entry {
    (names.to_owned(), meaning.to_owned())
}

/// Returns the variables of the environment: those of a server, those of the program's own commands, those of terminals, and of programs that run.
fn environment(program: &Program) -> Vec<Entry> {
    let mut all = vec![(variable(program.name()), "ctl: the control socket, unless --control names it".to_owned())];
    all.extend(ENVIRONMENT.map(entry));
    all.extend(program.environment.iter().cloned());
    all.push(entry(("NO_COLOR, TERM", "whether screens have colors, and whether there is a screen")));
    let path = |(protocol, _): (&Protocol, &Setting)| {
        ("PATH".to_owned(), format!("where the program of serve {} is looked for", protocol.name()))
    };
    all.extend(program.runner().map(path));
    all
}

/// Returns the files of a server, and those of the program's own commands.
fn files(program: &Program) -> Vec<Entry> {
    let file = program.operated().file();
    let configuration = file.map(|file| (file.display().to_string(), "serve, check: the configuration".to_owned()));
    let control = ("sockdrawer.sock", "the control socket, in $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR or /run/sockdrawer");
    let control = (program.named(control.0), program.named(control.1));
    configuration.into_iter().chain([control]).chain(program.files.iter().cloned()).collect()
}

/// Returns the signals of a server. One that has a file of its own reads it again without `--config`, too.
fn signals(program: &Program) -> Vec<Entry> {
    let of_file = program.operated().file().is_some();
    let words = |text: &str| if of_file { text.replace("serve --config:", "serve of a file:") } else { text.to_owned() };
    SIGNALS.iter().map(|(signals, meaning)| ((*signals).to_owned(), words(meaning))).collect()
}

/// Returns the page, as roff; `definition` is that of the whole program.
pub(crate) fn page(program: &Program, definition: &Command) -> String {
    let mut root = definition.clone();
    root.build();
    let mut page = Roff::new();
    let mut text = rendered(|to| {
        let man = Man::new(root.clone()).manual(program.name());
        man.render_title(to)?;
        man.render_name_section(to)?;
        man.render_synopsis_section(to)?;
        man.render_description_section(to)
    });
    for command in root.get_subcommands().filter(|command| command.get_name() != "help") {
        add(program, &mut text, command);
    }
    page.control("SH", ["CONFIGURATION FILE"]).text([roman(FILE)]);
    page.control("SS", ["Settings of the whole program"]);
    program.operated().program_settings().for_each(|setting| add_setting(program, &mut page, setting));
    page.control("SS", ["Settings of pools"]);
    pool_settings().for_each(|setting| add_setting(program, &mut page, setting));
    page.control("SS", ["Settings of protocols"]);
    let own = program.operated().protocols().iter().flat_map(Protocol::settings);
    own.for_each(|setting| add_setting(program, &mut page, setting));
    listed(&mut page, "EXIT STATUS", &program.exit_status);
    listed(&mut page, "ENVIRONMENT", &environment(program));
    listed(&mut page, "FILES", &files(program));
    listed(&mut page, "SIGNALS", &signals(program));
    page.control("SH", ["EXAMPLES"]);
    for example in program.examples.iter().flat_map(|(_, examples)| examples) {
        page.control("RS", ["4"]).text([roman(format!("{} {example}", program.name()))]).control("RE", []);
    }
    unlinked(&(text + &page.render().replace(PREAMBLE, "")))
}

/// Leaves the text of links alone: their pages are not here.
fn unlinked(text: &str) -> String {
    let mut left = String::new();
    let mut pieces = text.split("](");
    left += pieces.next().unwrap_or_default();
    for piece in pieces {
        match (left.rfind('['), piece.split_once(')')) {
            (Some(begin), Some((_, rest))) => {
                left.remove(begin);
                left += rest;
            }
            _ => left += &format!("]({piece}"),
        }
    }
    left
}

/// Writes a section that is a list of names with their meanings.
fn listed(page: &mut Roff, title: &str, entries: &[Entry]) {
    page.control("SH", [title]);
    for (name, meaning) in entries {
        page.control("TP", []).text([bold(name)]).text([roman(meaning)]);
    }
}

/// Each piece of a page begins with it; once is enough.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

fn rendered(render: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut text = Vec::new();
    render(&mut text).expect("memory takes it");
    let text = String::from_utf8_lossy(&text).into_owned();
    // The first piece keeps it.
    if text.contains(".TH ") { text } else { text.replace(PREAMBLE, "") }
}

/// Adds a command and, below it, its own commands.
fn add(program: &Program, text: &mut String, command: &Command) {
    let name = command.get_bin_name().unwrap_or_default().to_owned();
    let mut head = Roff::new();
    head.control("SH", [name.to_uppercase().as_str()]);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    head.text([roman(about)]);
    let examples = program.examples.iter().filter(|(name, _)| *name == command.get_name());
    for example in examples.flat_map(|(_, examples)| examples) {
        head.control("RS", ["4"]).text([roman(format!("{} {example}", program.name()))]).control("RE", []);
    }
    *text += &head.render().replace(PREAMBLE, "");
    let options = rendered(|to| Man::new(command.clone()).render_options_section(to));
    // Sections of the command, below its own.
    *text += &options.replace(".SH ", ".SS ");
    command.get_subcommands().filter(|below| below.get_name() != "help").for_each(|below| add(program, text, below));
}

fn add_setting(program: &Program, page: &mut Roff, setting: &Setting) {
    let name: [Inline; 3] = [bold(setting.name), roman(" = "), italic(setting.form())];
    page.control("TP", []).text(name).text([roman(program.told(setting))]);
}
