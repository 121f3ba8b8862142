//! The man page: all commands with their options, and all settings of configuration files, from the definitions of both.

use crate::arguments::{command, examples};
use crate::protocols;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use sockdrawer_operate::{Setting, pool_settings, program_settings};

const FILE: &str = "A file of TOML, or of JSON. The settings of the whole program come first; each pool is a table [pool.NAME] with the name of its \
    protocol as protocol, with listen, and with any other settings of pools. Each setting is an option of serve too.";

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
    text + &page.render().replace(PREAMBLE, "")
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
