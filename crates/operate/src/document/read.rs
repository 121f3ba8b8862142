//! Text to a tree of tables, with the place of each key and value where the format has it.

use super::{Format, Mistake, json};
use toml::de::{DeTable, DeValue};

/// The first byte of a key or value in the text.
pub(super) type At = Option<usize>;
/// A key and its value, each with its place.
pub(super) type Entry = (String, At, Tree, At);

/// A value.
pub(super) enum Tree {
    Table(Vec<Entry>),
    List(Vec<(Tree, At)>),
    Text(String),
    Number(String),
    Switch(bool),
    Other(&'static str),
}

impl Tree {
    /// Returns the value as a command line has it, where it is no table or list.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Tree::Text(text) | Tree::Number(text) => Some(text.clone()),
            Tree::Switch(value) => Some(value.to_string()),
            Tree::Table(_) | Tree::List(_) | Tree::Other(_) => None,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Tree::Table(_) => "table",
            Tree::List(_) => "list",
            Tree::Text(_) => "text",
            Tree::Number(_) => "number",
            Tree::Switch(_) => "truth value",
            Tree::Other(kind) => kind,
        }
    }
}

/// Returns the line and column of a byte, both from 1; columns are characters.
pub(super) fn position(text: &str, at: usize) -> (usize, usize) {
    let start = (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let before = &text[..start];
    let line = before.rfind('\n').map_or(before, |end| &before[end + 1..]);
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

pub(super) fn read(text: &str, format: Format) -> Result<Vec<Entry>, Mistake> {
    match format {
        Format::Toml => match DeTable::parse(text) {
            Ok(table) => Ok(entries(table.get_ref())),
            Err(error) => {
                if let Some(span) = error.span().filter(|_| error.message().contains("duplicate key"))
                    && let Some(mistake) = duplicate_in_toml(text, &span)
                {
                    return Err(mistake);
                }
                let at = error.span().map(|span| position(text, span.start));
                let what = error.message().lines().collect::<Vec<_>>().join(", ");
                Err(Mistake { at, what: format!("not TOML: {what}") })
            }
        },
        Format::Json => {
            let wrong = |why: String, at| Mistake { at, what: format!("not an object of JSON: {why}") };
            serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).map_err(|error| {
                let at = (error.line() > 0).then(|| (error.line(), error.column().max(1)));
                wrong(error.to_string(), at)
            })?;
            let members = json::members(text).ok_or_else(|| wrong("it cannot be read".to_owned(), None))?;
            twice("", &members).map_or(Ok(()), |(key, first, at)| Err(duplicate(text, &key, (first, at))))?;
            Ok(members)
        }
    }
}

/// Returns a key that an object has twice, in any depth: with its tables, where it was first, and where it is again.
fn twice(above: &str, members: &[Entry]) -> Option<(String, At, At)> {
    for (at, (key, key_at, value, _)) in members.iter().enumerate() {
        let name = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
        if let Some((_, first, ..)) = members[..at].iter().find(|(other, ..)| other == key) {
            return Some((name, *first, *key_at));
        }
        if let Tree::Table(below) = value
            && let Some(found) = twice(&name, below)
        {
            return Some(found);
        }
    }
    None
}

fn duplicate(text: &str, key: &str, (first, at): (At, At)) -> Mistake {
    let first = first.map_or(String::new(), |first| format!(", first in line {}", position(text, first).0));
    Mistake { at: at.map(|at| position(text, at)), what: format!("{key} is there twice{first}: leave one out") }
}

/// Returns the mistake of a key that toml finds there twice, with the key and its first place: its table has it before.
fn duplicate_in_toml(text: &str, span: &std::ops::Range<usize>) -> Option<Mistake> {
    let key = text.get(span.clone())?.trim();
    let name = |line: &str| {
        let line = line.trim();
        let header = line.strip_prefix('[').and_then(|line| line.split(']').next());
        (header.map(str::trim).map(str::to_owned), line.split('=').next().unwrap_or_default().trim().to_owned())
    };
    let line_at = text[..span.start].rfind('\n').map_or(0, |at| at + 1);
    let is_header = text[line_at..].trim_start().starts_with('[');
    let (mut table, mut at) = (String::new(), 0);
    let mut places = Vec::new();
    for line in text.split_inclusive('\n') {
        let (header, word) = name(line);
        if let Some(header) = header {
            table.clone_from(&header);
            places.push((format!("[{header}]"), String::new(), at));
        } else {
            places.push((word, table.clone(), at));
        }
        at += line.len();
    }
    let (word, of, _) = places.iter().find(|(.., at)| *at == line_at)?.clone();
    let (.., first) = places.iter().find(|(other, table, at)| *other == word && *table == of && *at < line_at)?;
    let full = if is_header || of.is_empty() { word } else { format!("{of}.{key}") };
    Some(duplicate(text, &full, (Some(*first), Some(span.start))))
}

fn entries(table: &DeTable<'_>) -> Vec<Entry> {
    let entry = |(key, value): (&toml::Spanned<toml::de::DeString<'_>>, &toml::Spanned<DeValue<'_>>)| {
        (key.get_ref().to_string(), Some(key.span().start), from_toml(value.get_ref()), Some(value.span().start))
    };
    table.iter().map(entry).collect()
}

fn from_toml(value: &DeValue<'_>) -> Tree {
    match value {
        DeValue::String(text) => Tree::Text(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Tree::Number(number.as_str().to_owned()),
        DeValue::Float(number) => Tree::Number(number.as_str().to_owned()),
        DeValue::Boolean(value) => Tree::Switch(*value),
        DeValue::Array(all) => Tree::List(all.iter().map(|one| (from_toml(one.get_ref()), Some(one.span().start))).collect()),
        DeValue::Table(table) => Tree::Table(entries(table)),
        DeValue::Integer(_) => Tree::Other("number that is not decimal"),
        DeValue::Datetime(_) => Tree::Other("date"),
    }
}
