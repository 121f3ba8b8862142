//! The man page: all commands with their options, and all settings of configuration files, from the definitions of both.

use crate::arguments::{EXIT_STATUS, all_examples, command, examples};
use crate::protocols;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use sockdrawer_operate::{Setting, pool_settings, program_settings};

const FILE: &str = "A file of TOML, or of JSON. The settings of the whole program come first; each pool is a table [pool.NAME] with the name of its \
    protocol as protocol, with listen, and with any other settings of pools. Each setting is an option of serve too.";

const ENVIRONMENT: [(&str, &str); 9] = [
    ("SOCKDRAWER_CONTROL", "ctl: the control socket, unless --control names it"),
    ("SOCKDRAWER_REPLACES", "serve --upgrade: the pid of the process that this one may replace, or any"),
    ("RUNTIME_DIRECTORY, XDG_RUNTIME_DIR", "the folder of the control socket, unless it is named"),
    ("LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES", "serve: sockets that systemd passes, for listen = \"systemd:NAME\""),
    ("NOTIFY_SOCKET, WATCHDOG_USEC", "serve: how systemd is told of its state"),
    ("JOURNAL_STREAM", "serve: the log has priorities in the place of times where the journal reads it"),
    ("SSL_CERT_FILE", "load: the authorities that are trusted, unless --ca names them"),
    ("NO_COLOR, TERM", "whether screens have colors, and whether there is a screen"),
    ("PATH", "where the program of serve exec is looked for"),
];

const FILES: [(&str, &str); 2] = [
    ("sockdrawer.sock", "the control socket, in $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR or /run/sockdrawer"),
    ("result.json, report.html", "a run, in the folder that --out names"),
];

const SIGNALS: [(&str, &str); 4] = [
    ("SIGTERM, SIGINT", "serve: connections are drained, then it ends; a second one ends it at once"),
    ("SIGHUP", "serve --config: the file is read again; else as SIGTERM"),
    ("SIGUSR2", "serve --upgrade: a new build takes over"),
    ("SIGUSR1", "nothing"),
];

/// The page, as roff.
pub(super) fn page() -> String {
    let mut root = command();
    root.build();
    let mut page = Roff::new();
    let mut text = rendered(|to| {
        let man = Man::new(root.clone()).manual("sockdrawer");
        man.render_title(to)?;
        man.render_name_section(to)?;
        man.render_synopsis_section(to)?;
        man.render_description_section(to)
    });
    for command in root.get_subcommands().filter(|command| command.get_name() != "help") {
        add(&mut text, command);
    }
    page.control("SH", ["CONFIGURATION FILE"]).text([roman(FILE)]);
    page.control("SS", ["Settings of the whole program"]);
    program_settings().for_each(|setting| entry(&mut page, setting));
    page.control("SS", ["Settings of pools"]);
    pool_settings().for_each(|setting| entry(&mut page, setting));
    page.control("SS", ["Settings of protocols"]);
    protocols::SETTINGS.iter().for_each(|setting| entry(&mut page, setting));
    listed(&mut page, "EXIT STATUS", &EXIT_STATUS);
    listed(&mut page, "ENVIRONMENT", &ENVIRONMENT);
    listed(&mut page, "FILES", &FILES);
    listed(&mut page, "SIGNALS", &SIGNALS);
    page.control("SH", ["EXAMPLES"]);
    for example in all_examples() {
        page.control("RS", ["4"]).text([roman(format!("sockdrawer {example}"))]).control("RE", []);
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

/// A section that is a list of names with their meanings.
fn listed(page: &mut Roff, title: &str, entries: &[(&str, &str)]) {
    page.control("SH", [title]);
    for (name, meaning) in entries {
        page.control("TP", []).text([bold(*name)]).text([roman(*meaning)]);
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

/// A command and, below it, its own commands.
fn add(text: &mut String, command: &Command) {
    let name = command.get_bin_name().unwrap_or_default().to_owned();
    let mut head = Roff::new();
    head.control("SH", [name.to_uppercase().as_str()]);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    head.text([roman(about)]);
    for example in examples(command.get_name()) {
        head.control("RS", ["4"]).text([roman(format!("sockdrawer {example}"))]).control("RE", []);
    }
    *text += &head.render().replace(PREAMBLE, "");
    let options = rendered(|to| Man::new(command.clone()).render_options_section(to));
    // Sections of the command, below its own.
    *text += &options.replace(".SH ", ".SS ");
    command.get_subcommands().filter(|below| below.get_name() != "help").for_each(|below| add(text, below));
}

fn entry(page: &mut Roff, setting: &Setting) {
    let name: [Inline; 3] = [bold(setting.name), roman(" = "), italic(setting.form())];
    let default = if setting.default.is_empty() { String::new() } else { format!(" [default: {}]", setting.default) };
    page.control("TP", []).text(name).text([roman(format!("{}{default}", setting.help))]);
}
