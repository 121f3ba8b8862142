//! A program by its own name: its protocols and configuration, and what help and the man page say of it alone.

use sockdrawer_operate::client::variable;
use sockdrawer_operate::{Operated, Protocol, Setting, pool_default, pool_settings, program_settings};

/// The name that is written in the texts of definitions.
const WRITTEN: &str = "sockdrawer";

/// An entry of a list in the man page: names, and their meaning.
pub type Entry = (String, String);

/// A program that serves: its name, protocols and configuration, in all that its commands do and say.
///
/// ```
/// use sockdrawer::{Config, Context, Input, Peer, Step};
/// use sockdrawer_operate::{Operated, Protocol};
/// use sockdrawer_program::Program;
///
/// struct Echo;
/// impl sockdrawer::Service for Echo {
///     type Protocol = Echo;
///     fn open(&self, _peer: &Peer) -> Echo {
///         Echo
///     }
/// }
/// impl sockdrawer::Protocol for Echo {
///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
///         cx.send(input.take_all());
///         Step::Continue
///     }
/// }
///
/// let echo = Protocol::new("echo", "sends back what comes", |_| Ok(Config::accept(Echo)));
/// let program = Program::new("parrot", Operated::new("/etc/parrot.toml").protocol(echo)).about("Repeats what it hears");
/// assert!(program.manual(&program.command()).contains("Repeats what it hears"));
/// assert_eq!(program.schema()["title"], "Configuration of parrot");
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    name: &'static str,
    operated: Operated,
    about: String,
    pub(crate) examples: Vec<(&'static str, Vec<String>)>,
    pub(crate) exit_status: Vec<Entry>,
    pub(crate) environment: Vec<Entry>,
    pub(crate) files: Vec<Entry>,
}

impl Program {
    /// Makes a program of this name. Its configuration is that of `operated`: `serve` without arguments runs it.
    pub fn new(name: &'static str, operated: Operated) -> Program {
        let operated = operated.name(name);
        let about = match operated.protocols() {
            [one] => format!("Serves {}: {}", one.name(), one.help()),
            several => format!("Serves {}", several.iter().map(Protocol::name).collect::<Vec<_>>().join(", ")),
        };
        let examples = examples(name, &operated);
        let exit_status = STATUS.map(|(code, meaning)| (code.to_owned(), meaning.to_owned())).into();
        Program { name, operated, about, examples, exit_status, environment: Vec::new(), files: Vec::new() }
    }

    /// Says in a sentence what the program is for.
    #[must_use]
    pub fn about(mut self, about: impl Into<String>) -> Program {
        self.about = about.into();
        self
    }

    /// Replaces the examples, by commands, in the order in which the man page shows them; each is a command line without the program's name.
    #[must_use]
    pub fn examples(mut self, examples: &[(&'static str, &[&str])]) -> Program {
        let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        self.examples = examples.iter().map(|(command, lines)| (*command, owned(lines))).collect();
        self
    }

    /// Adds an exit code of the program's own commands.
    #[must_use]
    pub fn exit_status(mut self, code: u8, meaning: &str) -> Program {
        self.exit_status.push((code.to_string(), meaning.to_owned()));
        self.exit_status.sort_by_key(|(codes, _)| codes.split(',').next().and_then(|code| code.parse::<u8>().ok()));
        self
    }

    /// Adds a variable of the environment that the program's own commands look at.
    #[must_use]
    pub fn environment(mut self, name: &str, meaning: &str) -> Program {
        self.environment.push((name.to_owned(), meaning.to_owned()));
        self
    }

    /// Adds files of the program's own commands.
    #[must_use]
    pub fn files(mut self, names: &str, meaning: &str) -> Program {
        self.files.push((names.to_owned(), meaning.to_owned()));
        self
    }

    /// Returns the name of the program.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the configuration and protocols.
    pub fn operated(&self) -> &Operated {
        &self.operated
    }

    /// Returns the JSON schema of the program's configuration files.
    pub fn schema(&self) -> serde_json::Value {
        let mut schema = self.operated.schema();
        // Texts of the author's own settings stay as they are.
        let settings = program_settings().map(|setting| format!("/properties/{}/description", setting.name));
        for place in settings.chain(["/title".to_owned()]) {
            if let Some(text) = schema.pointer_mut(&place) {
                *text = self.named(text.as_str().unwrap_or_default()).into();
            }
        }
        schema
    }

    pub(crate) fn about_text(&self) -> &str {
        &self.about
    }

    /// Returns the help of a setting, with the default that holds in this program.
    pub(crate) fn told(&self, setting: &Setting) -> String {
        let default = match setting {
            own if program_settings().any(|one| one.name == own.name) => self.named(own.default),
            pool if pool_settings().any(|one| one.name == pool.name) => pool_default(pool, self.operated.protocols()),
            of_protocol => return with_default(of_protocol.help, of_protocol.default),
        };
        with_default(&self.named(setting.help), &default)
    }

    /// Puts the program's name into a text that is written for sockdrawer.
    pub(crate) fn named(&self, text: &str) -> String {
        text.replace(&variable(WRITTEN), &variable(self.name)).replace(WRITTEN, self.name)
    }

    /// Returns the protocol with a setting whose words stand behind `--`, if there is one.
    pub(crate) fn runner(&self) -> Option<(&Protocol, &Setting)> {
        let dashes = |protocol| Protocol::settings(protocol).iter().find(|setting| setting.behind_dashes);
        self.operated.protocols().iter().find_map(|protocol| Some((protocol, dashes(protocol)?)))
    }

    /// Returns whether `serve` can do without the name of a protocol and a file: the program brings a configuration.
    pub(crate) fn has_configuration(&self) -> bool {
        self.operated.file().is_some() || self.operated.check().is_ok_and(|document| !document.pools.is_empty())
    }
}

fn with_default(help: &str, default: &str) -> String {
    if default.is_empty() { help.to_owned() } else { format!("{help} [default: {default}]") }
}

/// The exit codes of all programs.
const STATUS: [(&str, &str); 5] = [
    ("0", "well"),
    ("1", "something failed"),
    ("2", "the command line, or a configuration, is wrong: nothing was run"),
    ("3", "nothing was run: resources or the server are missing"),
    ("129, 130, 143", "ended by SIGHUP, SIGINT or SIGTERM"),
];

/// Returns examples of each command, in the order in which one tries them.
fn examples(name: &str, operated: &Operated) -> Vec<(&'static str, Vec<String>)> {
    let file = operated.file().map_or_else(|| format!("{name}.toml"), |file| file.display().to_string());
    let protocol = operated.protocols().first().map_or("PROTOCOL", Protocol::name);
    let own = operated.file().map(|_| "serve".to_owned());
    let serve = own.into_iter().chain([format!("serve {protocol} -l 127.0.0.1:9000"), format!("serve --config {name}.toml")]);
    let words = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    vec![
        ("serve", serve.collect()),
        ("check", vec![format!("check {file}")]),
        ("ctl", words(&["ctl status", "ctl reload --dry-run", "ctl drain --all --within 30s", "ctl top"])),
        ("upgrade", vec![format!("upgrade /run/{name}.upgrade --rehearse"), format!("upgrade /run/{name}.upgrade")]),
        ("generate", words(&["generate completions bash", "generate man", "generate schema"])),
        ("parent", vec![format!("parent /run/{name}.upgrade -- {name} serve")]),
    ]
}
