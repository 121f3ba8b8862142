//! A whole configuration: what a file, or a request to the control socket, says. It is checked against the tables of settings before
//! anything is done with it, and all that is wrong with it is told at once, each with its line.

mod clash;
mod json;
mod known;
mod read;
mod schema;
mod whole;

pub(crate) use known::{Known, Shown};
pub use schema::pool_default;
pub(crate) use schema::schema;
pub(crate) use whole::rehearsed;

use crate::listen;
use crate::pool_settings::SETTINGS;
use crate::protocol::Protocol;
use crate::setting::{Setting, Value, Values, unknown, wrong_setting};
use crate::{OWN_POOLS, layers, written};
use read::{At, Entry, Tree};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Maximum length of a configuration in bytes: a larger one is refused unread.
pub const MAX_BYTES: usize = 1024 * 1024;
/// Maximum number of pools: more are refused.
pub(crate) const MAX_POOLS: usize = 64;
/// The name of a pool is a label of metrics and a word of commands.
pub(crate) const MAX_NAME: usize = 32;
/// The tables of pools.
const POOL: &str = "pool";
/// The key that names the protocol of a pool, and that of its addresses.
const PROTOCOL: &str = "protocol";
const LISTEN: &str = "listen";

/// Form in which a configuration is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML, as in files.
    Toml,
    /// JSON, as the control socket gives it.
    Json,
}

impl Format {
    /// Returns the format of a file: JSON by its name, or where it begins as no TOML can.
    pub fn of(path: &Path, text: &str) -> Format {
        let is_json = path.extension().is_some_and(|extension| extension == "json") || text.trim_start().starts_with('{');
        if is_json { Format::Json } else { Format::Toml }
    }
}

/// A configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// The settings of the whole program.
    pub program: Values,
    /// The pools, by name.
    pub pools: BTreeMap<String, PoolDocument>,
    /// Places where its text has each value.
    pub places: Places,
}

/// Places where a text has the values of settings, to name the line of one that is refused later. They make no difference between configurations.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The name of its file; empty: it has none.
    pub(crate) file: String,
    /// Lines and columns by the names of settings: `metrics`, `pool.web.listen`.
    pub(crate) values: BTreeMap<String, (usize, usize)>,
}

impl PartialEq for Places {
    fn eq(&self, _other: &Places) -> bool {
        true
    }
}

impl Places {
    /// Returns `FILE:LINE:COLUMN: ` of a setting; empty where it is not known.
    pub(crate) fn at(&self, setting: &str) -> String {
        let Some((line, column)) = self.values.get(setting).filter(|_| !self.file.is_empty()) else { return String::new() };
        format!("{}:{line}:{column}: ", self.file)
    }
}

/// The configuration of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolDocument {
    /// The name of the protocol.
    pub protocol: &'static str,
    /// The settings of the pool and of the protocol.
    pub values: Values,
}

/// Writes the configuration as it is in JSON.
impl Serialize for Document {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        self.program.set.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.serialize_entry(POOL, &self.pools)?;
        map.end()
    }
}

impl Serialize for PoolDocument {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("protocol", self.protocol)?;
        self.values.set.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

/// Mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mistake {
    /// The line and column, both from 1, where the text has them.
    pub at: Option<(usize, usize)>,
    /// Description of the mistake: what is wrong, why, and what to write instead.
    pub what: String,
}

impl Mistake {
    /// Returns the mistake as compilers tell it: `FILE:LINE:COLUMN: what`.
    pub(crate) fn in_file(&self, file: &impl fmt::Display) -> String {
        let gap = if self.at.is_some() { "" } else { " " };
        format!("{file}:{gap}{self}")
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.at {
            write!(f, "{line}:{column}: ")?;
        }
        f.write_str(&self.what)
    }
}

impl Document {
    /// Reads a configuration. `complete` sets values of the whole program that the text leaves out, or that hold whatever it says: rules see what
    /// is to be in force.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub(crate) fn parse(
        text: &str,
        format: Format,
        known: &Known,
        complete: impl Fn(&mut Values),
    ) -> Result<Document, Vec<Mistake>> {
        Document::read(text, format, known, Some(&complete))
    }

    /// Reads a configuration that was in force: each value alone. Names are not resolved and files not read, which takes its time.
    ///
    /// # Errors
    /// All values that are wrong.
    pub(crate) fn of_values(text: &str, format: Format, known: &Known) -> Result<Document, Vec<Mistake>> {
        Document::read(text, format, known, None)
    }

    fn read(text: &str, format: Format, known: &Known, together: Option<Complete<'_>>) -> Result<Document, Vec<Mistake>> {
        if text.len() > MAX_BYTES {
            let what = format!("the configuration has {} bytes, more than {MAX_BYTES}: write less", text.len());
            return Err(vec![Mistake { at: None, what }]);
        }
        let root = read::read(text, format).map_err(|mistake| vec![mistake])?;
        let mut reader = Reader { text, known, together, mistakes: Vec::new(), places: Places::default() };
        let mut document = reader.document(&root);
        document.places = std::mem::take(&mut reader.places);
        reader.mistakes.sort_by_key(|mistake| mistake.at);
        if reader.mistakes.is_empty() { Ok(document) } else { Err(reader.mistakes) }
    }
}

/// Returns whether a pool has this key in the place of its protocol.
fn is_protocol_misspelt(entries: &[Entry], key: &str) -> bool {
    let known = |name: &&str| SETTINGS.iter().all(|one| one.setting.name != *name);
    let has = entries.iter().any(|(key, ..)| key == PROTOCOL);
    !has && known(&key) && written::closest(key, &[PROTOCOL, layers::PROXY_PROTOCOL]) == Some(PROTOCOL)
}

/// Sets values of the whole program that a text does not say.
type Complete<'a> = &'a dyn Fn(&mut Values);

struct Reader<'a> {
    text: &'a str,
    known: &'a Known,
    /// It also checks what the settings are together, once the program's are complete.
    together: Option<Complete<'a>>,
    mistakes: Vec<Mistake>,
    places: Places,
}

impl Reader<'_> {
    fn wrong(&mut self, at: At, what: String) {
        let at = at.map(|at| read::position(self.text, at));
        self.mistakes.push(Mistake { at, what });
    }

    fn document(&mut self, root: &[Entry]) -> Document {
        let mut document = Document::default();
        let settings: Vec<&Setting> = self.known.program_settings().collect();
        for (key, key_at, value, at) in root {
            if key != POOL {
                self.set(&mut document.program, "", &settings, (key, *key_at), (value, *at));
                continue;
            }
            let Tree::Table(pools) = value else {
                self.wrong(*at, "pool is a table of pools: write [pool.NAME]".to_owned());
                continue;
            };
            if let Some((key, key_at, ..)) = pools.iter().find(|(.., tree, _)| !matches!(tree, Tree::Table(_))) {
                let what = format!("pool.{key} is no pool: a pool has a name of its own, write [pool.NAME] before its settings");
                self.wrong(*key_at, what);
                continue;
            }
            for (name, name_at, pool, at) in pools {
                if let Some(pool) = self.pool((name, *name_at), (pool, *at)) {
                    document.pools.insert(name.clone(), pool);
                }
            }
        }
        if document.pools.is_empty() && self.mistakes.is_empty() {
            self.wrong(None, "no pool: write one, such as [pool.web] with protocol and listen".to_owned());
        }
        if document.pools.len() > MAX_POOLS {
            self.wrong(None, format!("{} pools are more than {MAX_POOLS}: write fewer", document.pools.len()));
        }
        if let Some(complete) = self.together {
            let said = document.program.set.clone();
            complete(&mut document.program);
            // A value that was set here has no place in the text.
            said.iter().filter(|(name, value)| document.program.set.get(*name) != Some(value)).for_each(|(name, _)| {
                self.places.values.remove(*name);
            });
        }
        for (setting, what) in clash::clashes(&document) {
            let at = self.places.values.get(&setting).copied();
            self.mistakes.push(Mistake { at, what });
        }
        // They may take what single settings are for granted.
        if self.together.is_some() && self.mistakes.is_empty() {
            for what in self.known.against(&document) {
                let at = what.split(':').next().and_then(|setting| self.places.values.get(setting)).copied();
                self.mistakes.push(Mistake { at, what });
            }
        }
        document
    }

    fn pool(&mut self, (name, name_at): (&String, At), (tree, at): (&Tree, At)) -> Option<PoolDocument> {
        let fits = |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '-' || sign == '_';
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(fits) {
            self.wrong(name_at, format!("`{name}` is no name of a pool: use 1 to {MAX_NAME} of a-z, 0-9, - and _"));
        } else if OWN_POOLS.contains(&name.as_str()) {
            self.wrong(
                name_at,
                format!("`{name}` is no name of a pool: the program has a pool of its own by that name; use another"),
            );
        }
        let Tree::Table(entries) = tree else {
            self.wrong(at, format!("pool.{name} is a table: write [pool.{name}]"));
            return None;
        };
        let protocol = self.protocol(name, name_at, entries);
        let before = self.mistakes.len();
        // Any protocol's setting may be right where the protocol is not known.
        let of_protocol = match &protocol {
            Some(protocol) => std::slice::from_ref(protocol),
            None => &self.known.protocols,
        };
        let own = of_protocol.iter().flat_map(|protocol| &protocol.settings);
        let settings: Vec<&Setting> = SETTINGS.iter().map(|one| &one.setting).chain(own).collect();
        let mut values = Values::default().of_pool(name);
        for (key, key_at, value, at) in entries.iter().filter(|(key, ..)| key != PROTOCOL && !is_protocol_misspelt(entries, key))
        {
            self.set(&mut values, &format!("pool.{name}."), &settings, (key, *key_at), (value, *at));
        }
        let protocol = protocol?;
        let wrong: Vec<String> = self.mistakes[before..].iter().map(|mistake| mistake.what.clone()).collect();
        if !entries.iter().any(|(key, ..)| key == LISTEN) && !wrong.iter().any(|what| what.contains("`listen`")) {
            self.wrong(name_at, format!("pool.{name} listens nowhere: write listen, such as listen = \"127.0.0.1:9000\""));
        } else if self.together.is_some()
            && let Err((setting, why)) = whole::check(&protocol, &values)
            // A setting that is wrong by itself may be why those do not go together.
            && !wrong.iter().any(|what| whole::may_be_why(what, &format!("pool.{name}."), setting))
        {
            let at = entries.iter().find(|(key, ..)| key == setting).map_or(name_at, |(.., at)| *at);
            self.wrong(at, wrong_setting(&format!("pool.{name}.{setting}"), &why));
        }
        (self.mistakes.len() == before).then_some(PoolDocument { protocol: protocol.name, values })
    }

    fn protocol(&mut self, name: &str, name_at: At, entries: &[Entry]) -> Option<Protocol> {
        let names: Vec<&str> = self.known.protocols.iter().map(|protocol| protocol.name).collect();
        let misspelt = || entries.iter().find(|(key, ..)| is_protocol_misspelt(entries, key));
        match (entries.iter().find(|(key, ..)| key == PROTOCOL), misspelt()) {
            (Some((_, _, Tree::Text(text), at)), _) => match self.known.protocol(text) {
                Some(protocol) => return Some(protocol.clone()),
                None => {
                    let others = "; a program with protocols of its own checks its files itself: PROGRAM check FILE";
                    let others = if written::closest(text, &names).is_none() { others } else { "" };
                    self.wrong(*at, format!("pool.{name}.protocol: {}{others}", unknown("protocol", text, &names)));
                }
            },
            (Some((.., at)), _) => {
                self.wrong(*at, format!("pool.{name}.protocol: not a text: write one of {}", names.join(", ")));
            }
            (None, Some((key, at, ..))) => {
                self.wrong(*at, format!("pool.{name}.{key}: unknown setting `{key}`: did you mean `protocol`?"));
            }
            (None, None) => {
                self.wrong(name_at, format!("pool.{name} has no protocol: write protocol = and one of {}", names.join(", ")));
            }
        }
        None
    }

    fn set(
        &mut self,
        values: &mut Values,
        table: &str,
        settings: &[&Setting],
        (key, key_at): (&str, At),
        (tree, at): (&Tree, At),
    ) {
        let Some(setting) = settings.iter().find(|setting| setting.name == key) else {
            let names: Vec<&str> = settings.iter().map(|setting| setting.name).chain(table.is_empty().then_some(POOL)).collect();
            let others = self.known.protocols.iter().filter(|other| other.settings.iter().any(|setting| setting.name == key));
            let others: Vec<&str> = others.filter(|_| !table.is_empty()).map(|other| other.name).collect();
            let is_of_program = self.known.program_settings().any(|setting| setting.name == key);
            let is_of_pools = SETTINGS.iter().any(|one| one.setting.name == key);
            let why = match others.as_slice() {
                [] if is_of_program => "a setting of the program: write it above the first [pool.NAME]".to_owned(),
                [] if is_of_pools => "a setting of a pool: write it below its [pool.NAME]".to_owned(),
                [] => unknown("setting", key, &names),
                others => format!("a setting of the protocol {}: leave it out, or choose that protocol", others.join(" and ")),
            };
            return self.wrong(key_at, format!("{table}{key}: {why}"));
        };
        let place = at.map(|at| read::position(self.text, at));
        place.into_iter().for_each(|place| _ = self.places.values.insert(format!("{table}{key}"), place));
        let parse = |tree: &Tree| match written(setting, tree)? {
            // Some reasons name the value themselves.
            Some(text) => setting
                .parse(&text)
                .map_err(|why| if why.contains(&format!("`{text}`")) { why } else { format!("`{text}`: {why}") }),
            None => Err(format!("a {} is {}: write {}", tree.kind(), setting.kind.no_such(), setting.example())),
        };
        match tree {
            Tree::List(all) if setting.is_list() => {
                // An empty list is one that was set.
                values.set(setting, Value::List(Vec::new()));
                for (one, at) in all {
                    match parse(one) {
                        Ok(value) => values.set(setting, value),
                        Err(why) => self.wrong(*at, format!("{table}{key}: {why}")),
                    }
                }
            }
            one => match parse(one) {
                Ok(value) => values.set(setting, value),
                Err(why) => self.wrong(at, format!("{table}{key}: {why}")),
            },
        }
    }
}

/// Returns a value as a command line has it. None: it is no value of a setting.
fn written(setting: &Setting, tree: &Tree) -> Result<Option<String>, String> {
    let Tree::Table(entries) = tree else { return Ok(tree.text()) };
    if setting.name != "listen" {
        return Ok(None);
    }
    let values = |(key, _, tree, _): &(String, At, Tree, At)| {
        let one = |tree: &Tree| tree.text().ok_or_else(|| format!("{key}: a {} is no value of it", tree.kind()));
        match tree {
            Tree::List(all) => all.iter().map(|(tree, _)| one(tree)).collect::<Result<Vec<_>, _>>(),
            tree => one(tree).map(|text| vec![text]),
        }
    };
    let entries = entries.iter().map(|entry| Ok((entry.0.as_str(), values(entry)?)));
    listen::text(&entries.collect::<Result<Vec<_>, String>>()?).map(Some)
}

#[cfg(test)]
mod tests;
