//! Text to a tree of tables, with the place of each key and value where the format has it.

use super::{Format, Mistake};
use toml::de::{DeTable, DeValue};

/// The first byte of a key or value in the text. JSON's are not known.
pub(super) type At = Option<usize>;

/// A value.
pub(super) enum Tree {
    Table(Vec<(String, At, Tree, At)>),
    List(Vec<(Tree, At)>),
    Text(String),
    Number(String),
    Switch(bool),
    Other(&'static str),
}

impl Tree {
    /// As a command line has it, where it is no table or list.
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

/// The line and column of a byte, both from 1; columns are characters.
pub(super) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(at)];
    let line = before.rfind('\n').map_or(before, |end| &before[end + 1..]);
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

pub(super) fn read(text: &str, format: Format) -> Result<Vec<(String, At, Tree, At)>, Mistake> {
    match format {
        Format::Toml => match DeTable::parse(text) {
            Ok(table) => Ok(entries(table.get_ref())),
            Err(error) => {
                let at = error.span().map(|span| position(text, span.start));
                let what = error.message().lines().collect::<Vec<_>>().join(", ");
                Err(Mistake { at, what: format!("not TOML: {what}") })
            }
        },
        Format::Json => match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text) {
            Ok(map) => Ok(map.into_iter().map(|(key, value)| (key, None, from_json(value), None)).collect()),
            Err(error) => {
                let at = (error.line() > 0).then(|| (error.line(), error.column().max(1)));
                Err(Mistake { at, what: format!("not an object of JSON: {error}") })
            }
        },
    }
}

fn entries(table: &DeTable<'_>) -> Vec<(String, At, Tree, At)> {
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

fn from_json(value: serde_json::Value) -> Tree {
    use serde_json::Value;
    match value {
        Value::String(text) => Tree::Text(text),
        Value::Number(number) => Tree::Number(number.to_string()),
        Value::Bool(value) => Tree::Switch(value),
        Value::Array(all) => Tree::List(all.into_iter().map(|one| (from_json(one), None)).collect()),
        Value::Object(map) => Tree::Table(map.into_iter().map(|(key, value)| (key, None, from_json(value), None)).collect()),
        Value::Null => Tree::Other("null"),
    }
}
