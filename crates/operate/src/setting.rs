//! Settings: one definition gives the key in a file, the option of a command line, its help, and its part of the JSON schema.

use crate::written;
use serde::Serialize;
use sockdrawer_catalog::time;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Kind of a setting's value: how it is written and checked.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// True or false.
    Switch,
    /// A whole number, at least this: `250`, `"10k"`.
    Count(u64),
    /// A time: `"250us"`, `"30s"`, or a number of seconds.
    Time,
    /// A time above 0.
    PositiveTime,
    /// A number per second: `500`, `"10k"`.
    Rate,
    /// Bytes: `65536`, `"64k"`, `"1m"`.
    Size,
    /// A word, one of these.
    Choice(&'static [&'static str]),
    /// A text that `check` understands.
    Text(Text),
    /// A text, or several, that `check` understands.
    List(Text),
}

impl Kind {
    /// Returns the words for a value of another kind.
    pub(crate) fn no_such(&self) -> &'static str {
        match self {
            Kind::Switch => "neither true nor false",
            Kind::Count(_) => "no count",
            Kind::Time | Kind::PositiveTime => "no time",
            Kind::Rate => "no rate",
            Kind::Size => "no size",
            Kind::Choice(_) => "none of its words",
            Kind::Text(_) | Kind::List(_) => "no value of it",
        }
    }
}

/// Name of a setting, and what is wrong with it.
pub(crate) type Wrong = (&'static str, String);

/// Says in a sentence that a setting is wrong.
pub(crate) fn wrong_setting(name: &str, why: &str) -> String {
    let colon = if why.starts_with("is ") { "" } else { ":" };
    format!("{name}{colon} {why}")
}

/// Form of a text, and its check.
#[derive(Clone, Copy)]
pub struct Text {
    /// Stands for the value in help: `PATH`.
    pub form: &'static str,
    /// Check of a text: its error says what is wrong, and what to write instead.
    pub check: fn(&str) -> Result<(), String>,
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.form)
    }
}

/// The definition of a setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The key in a file; `--name` on a command line.
    pub name: &'static str,
    /// Kind of the value.
    pub kind: Kind,
    /// Purpose of the setting, in a sentence or two.
    pub help: &'static str,
    /// Value or behaviour if it is not set, in a few words. Empty: the help says it.
    pub default: &'static str,
    /// The heading under which help lists it.
    pub group: &'static str,
    /// The maximum, of a time in milliseconds. None: whatever the kind takes.
    pub max: Option<u64>,
    /// True where, on a command line, its words stand behind `--`.
    pub behind_dashes: bool,
}

impl Setting {
    /// Makes a setting of a protocol.
    pub const fn new(name: &'static str, kind: Kind, help: &'static str) -> Setting {
        Setting { name, kind, help, default: "", group: "Protocols", max: None, behind_dashes: false }
    }

    /// Says what holds if it is not set, in a few words.
    #[must_use]
    pub const fn unless_given(mut self, default: &'static str) -> Setting {
        self.default = default;
        self
    }

    /// Says of a list that on a command line its words stand behind `--`: a program that the protocol runs, and its arguments.
    #[must_use]
    pub const fn behind_dashes(mut self) -> Setting {
        self.behind_dashes = true;
        self
    }

    pub(crate) const fn group(mut self, group: &'static str) -> Setting {
        self.group = group;
        self
    }

    /// Sets the maximum of a count, of bytes, or of a time in milliseconds, where the system refuses more.
    #[must_use]
    pub const fn up_to(mut self, max: u64) -> Setting {
        self.max = Some(max);
        self
    }

    /// Returns a value as one writes it.
    pub(crate) fn example(&self) -> String {
        match self.kind {
            Kind::Count(_) => "a number such as 250, or \"10k\"".to_owned(),
            Kind::Time | Kind::PositiveTime => "\"5s\", \"50ms\", \"2m\" or \"1h\"".to_owned(),
            Kind::Rate => "how many per second, such as 500 or \"10k\"".to_owned(),
            Kind::Size => "bytes, such as 65536 or \"64k\"".to_owned(),
            _ => self.form(),
        }
    }

    fn bounded(&self, value: Value) -> Result<Value, String> {
        let Some(max) = self.max else { return Ok(value) };
        let is_more = match &value {
            Value::Count(count) | Value::Size(count) => *count > max,
            Value::Time(time) => time.as_millis() > u128::from(max),
            _ => false,
        };
        match (is_more, &value) {
            (false, _) => Ok(value),
            (true, Value::Time(_)) => Err(format!("must be at most {}", time::format(Duration::from_millis(max)))),
            (true, Value::Size(_)) => Err(format!("must be at most {}", Value::Size(max))),
            (true, _) => Err(format!("must be at most {max}")),
        }
    }

    /// Returns what stands for its value in help.
    pub fn form(&self) -> String {
        match self.kind {
            Kind::Switch => "true|false".to_owned(),
            Kind::Count(_) => "N".to_owned(),
            Kind::Time | Kind::PositiveTime => "T".to_owned(),
            Kind::Rate => "R".to_owned(),
            Kind::Size => "BYTES".to_owned(),
            Kind::Choice(words) => words.join("|"),
            Kind::Text(text) | Kind::List(text) => text.form.to_owned(),
        }
    }

    /// Returns whether it may be given several times.
    pub fn is_list(&self) -> bool {
        matches!(self.kind, Kind::List(_))
    }

    /// Reads a value as it is written on a command line, or as a text of a file.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        self.parsed(text).and_then(|value| self.bounded(value))
    }

    fn parsed(&self, text: &str) -> Result<Value, String> {
        match self.kind {
            Kind::Switch => match text {
                "true" => Ok(Value::Switch(true)),
                "false" => Ok(Value::Switch(false)),
                _ => Err("write true or false".to_owned()),
            },
            Kind::Count(min) => match written::count(text) {
                Ok(count) if count < min => Err(format!("must be at least {min}")),
                Ok(count) => Ok(Value::Count(count)),
                Err(why) => Err(why),
            },
            Kind::Time => written::time(text).map(Value::Time),
            Kind::PositiveTime => match written::time(text)? {
                Duration::ZERO => Err("must be more than 0: write 50ms or 5s".to_owned()),
                time => Ok(Value::Time(time)),
            },
            Kind::Rate => written::rate(text).map(Value::Rate),
            Kind::Size => written::size(text).map(|bytes| Value::Size(bytes.into())),
            Kind::Choice(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
            Kind::Choice(words) => Err(unknown(self.name, text, words)),
            Kind::Text(kind) => (kind.check)(text).map(|()| Value::Text(text.to_owned())),
            Kind::List(kind) => (kind.check)(text).map(|()| Value::List(vec![text.to_owned()])),
        }
    }
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Value of [`Kind::Switch`].
    Switch(bool),
    /// Value of [`Kind::Count`].
    Count(u64),
    /// Value of [`Kind::Size`].
    Size(u64),
    /// Value of a time.
    Time(Duration),
    /// Value of [`Kind::Rate`], per second.
    Rate(f64),
    /// Value of [`Kind::Choice`] and [`Kind::Text`].
    Text(String),
    /// Value of [`Kind::List`].
    List(Vec<String>),
}

/// Writes the value as a file has it.
impl Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Switch(value) => to.serialize_bool(*value),
            Value::Count(count) => to.serialize_u64(*count),
            Value::Size(bytes) if bytes % 1024 == 0 && *bytes > 0 => to.serialize_str(&in_units(*bytes)),
            Value::Size(bytes) => to.serialize_u64(*bytes),
            Value::Time(time) => to.serialize_str(&time::format(*time)),
            Value::Rate(rate) => to.serialize_f64(*rate),
            Value::Text(text) => to.serialize_str(text),
            Value::List(texts) => texts.serialize(to),
        }
    }
}

/// Returns bytes as one writes them: `64k`, `1m`, or a number.
fn in_units(bytes: u64) -> String {
    const K: u64 = 1024;
    match bytes {
        0 => "0".to_owned(),
        bytes if bytes % (K * K) == 0 => format!("{}m", bytes / (K * K)),
        bytes if bytes % K == 0 => format!("{}k", bytes / K),
        bytes => bytes.to_string(),
    }
}

/// Writes the value as plans show it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Switch(value) => value.fmt(f),
            Value::Count(count) => count.fmt(f),
            Value::Size(bytes) => f.write_str(&in_units(*bytes)),
            Value::Time(time) => f.write_str(&time::format(*time)),
            Value::Rate(rate) => rate.fmt(f),
            Value::Text(text) => f.write_str(text),
            Value::List(texts) => f.write_str(&texts.join(" ")),
        }
    }
}

/// The values of settings that are set, by their names. Those of others are None.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Values {
    pub(crate) set: BTreeMap<&'static str, Value>,
    #[serde(skip)]
    pub(crate) pool: String,
}

/// Writes a change of a setting as a plan shows it.
pub(crate) fn from_to(from: Option<&Value>, to: Option<&Value>) -> String {
    let show = |value: Option<&Value>| value.map_or("unset".to_owned(), ToString::to_string);
    format!("{} to {}", show(from), show(to))
}

impl Values {
    /// Makes these the values of a pool of this name.
    #[must_use]
    pub fn of_pool(self, name: &str) -> Values {
        Values { pool: name.to_owned(), ..self }
    }

    /// Sets a value. A list grows by it.
    pub fn set(&mut self, setting: &Setting, value: Value) {
        match (self.set.get_mut(setting.name), value) {
            (Some(Value::List(texts)), Value::List(more)) => texts.extend(more),
            (_, value) => drop(self.set.insert(setting.name, value)),
        }
    }

    /// Returns the settings whose values differ from those of `to`, with both in words.
    pub(crate) fn changes(&self, to: &Values) -> impl Iterator<Item = (&'static str, String)> {
        let names: BTreeSet<_> = self.set.keys().chain(to.set.keys()).copied().collect();
        let both = names.into_iter().map(|name| (name, self.set.get(name), to.set.get(name)));
        both.filter(|(_, from, to)| from != to).map(|(name, from, to)| (name, from_to(from, to)))
    }

    /// Returns whether the setting of this name is set.
    pub fn has(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    /// Returns the name of the pool whose values these are; empty where they are not those of a pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Returns a switch that is set.
    pub fn switch(&self, name: &str) -> Option<bool> {
        if let Some(Value::Switch(value)) = self.set.get(name) { Some(*value) } else { None }
    }

    /// Returns a count or size that is set.
    pub fn count(&self, name: &str) -> Option<usize> {
        if let Some(Value::Count(count) | Value::Size(count)) = self.set.get(name) { usize::try_from(*count).ok() } else { None }
    }

    /// Returns a time that is set.
    pub fn time(&self, name: &str) -> Option<Duration> {
        if let Some(Value::Time(time)) = self.set.get(name) { Some(*time) } else { None }
    }

    /// Returns a rate that is set, per second.
    pub fn rate(&self, name: &str) -> Option<f64> {
        if let Some(Value::Rate(rate)) = self.set.get(name) { Some(*rate) } else { None }
    }

    /// Returns a text or choice that is set.
    pub fn text(&self, name: &str) -> Option<&str> {
        if let Some(Value::Text(text)) = self.set.get(name) { Some(text) } else { None }
    }

    /// Returns the path that is set; `none` is none.
    pub(crate) fn path(&self, name: &str) -> Option<&str> {
        self.text(name).filter(|path| *path != "none")
    }

    /// Returns the texts of a list; none where it is not set.
    pub fn list(&self, name: &str) -> &[String] {
        if let Some(Value::List(texts)) = self.set.get(name) { texts } else { &[] }
    }
}

/// Any text with something in it.
pub(crate) const PATH: Text = Text { form: "PATH", check: |text| socket_path(text) };
/// `sun_path` has 108 bytes (unix(7)), one of them a NUL.
const MAX_PATH: usize = 107;

fn socket_path(text: &str) -> Result<(), String> {
    not_empty(text, "a path such as /run/name.sock")?;
    match text.len() {
        length if length > MAX_PATH => {
            Err(format!("has {length} bytes, and Linux allows {MAX_PATH} for a socket: use a shorter path"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn not_empty(text: &str, what: &str) -> Result<(), String> {
    if text.is_empty() { Err(format!("is empty: write {what}")) } else { Ok(()) }
}

/// Names that a line has room for.
const FEW: usize = 8;

/// Says "unknown KIND `TEXT`", with the known names that may be meant.
pub(crate) fn unknown(kind: &str, text: &str, known: &[&str]) -> String {
    written::unknown(kind, text, known, FEW)
}
