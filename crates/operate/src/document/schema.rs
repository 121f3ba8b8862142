//! The JSON schema of a configuration, from the tables of settings.

use super::{Known, MAX_NAME, POOL};
use crate::OWN_POOLS;
use crate::listen;
use crate::pool_settings::SETTINGS;
use crate::protocol::Protocol;
use crate::setting::{Kind, Setting};
use serde_json::{Map, Value, json};

/// Returns the JSON schema of the configurations of a program.
pub(crate) fn schema(known: &Known) -> Value {
    let protocols = &known.protocols;
    let pool = |protocol: &Protocol| {
        let mut properties =
            Map::from_iter([("protocol".to_owned(), json!({"const": protocol.name, "description": protocol.help}))]);
        let of_pool = SETTINGS.iter().map(|one| property(&one.setting, &pool_default(&one.setting, protocols)));
        properties.extend(of_pool.chain(protocol.settings.iter().map(|own| property(own, own.default))));
        json!({
            "properties": properties,
            "required": ["protocol", "listen"],
            "additionalProperties": false,
        })
    };
    let names: Vec<&str> = protocols.iter().map(|protocol| protocol.name).collect();
    let conditions: Vec<Value> = protocols
        .iter()
        .map(|protocol| {
            json!({
                "if": {"properties": {"protocol": {"const": protocol.name}}, "required": ["protocol"]},
                "then": pool(protocol),
            })
        })
        .collect();
    let mut properties: Map<String, Value> = known.program_settings().map(|setting| property(setting, setting.default)).collect();
    properties.insert(
        POOL.to_owned(),
        json!({
            "type": "object",
            "description": "The pools, by name.",
            "minProperties": 1,
            "propertyNames": {"pattern": format!("^[a-z0-9_-]{{1,{MAX_NAME}}}$"), "not": {"enum": OWN_POOLS}},
            "additionalProperties": {
                "type": "object",
                "properties": {"protocol": {"enum": names}},
                "required": ["protocol"],
                "allOf": conditions,
            },
        }),
    );
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of sockdrawer",
        "type": "object",
        "properties": properties,
        "required": [POOL],
        "additionalProperties": false,
    })
}

/// Protocols that defaults of pools name.
const NAMED: [&str; 2] = ["exec", "http"];

/// Returns the default of a setting of pools as it is told in a program with these protocols: `64k; http: 4k` is `64k` where none is http.
pub fn pool_default(setting: &Setting, protocols: &[Protocol]) -> String {
    let is_other = |name: &str| NAMED.contains(&name) && protocols.iter().all(|protocol| protocol.name != name);
    let is_told = |part: &&str| part.split_once(": ").is_none_or(|(name, _)| !is_other(name));
    match setting.default.split("; ").filter(is_told).collect::<Vec<_>>().as_slice() {
        [one] => one.strip_prefix("else ").unwrap_or(one).to_owned(),
        parts => parts.join("; "),
    }
}

fn property(setting: &Setting, default: &str) -> (String, Value) {
    let mut schema = kind(&setting.kind);
    if let (Some(max), Kind::Count(_) | Kind::Size) = (setting.max, setting.kind) {
        schema["anyOf"][0]["maximum"] = json!(max);
    }
    let default = if default.is_empty() { String::new() } else { format!(". Unless given: {default}") };
    if setting.name == "on-full" {
        schema = json!({"type": "string", "pattern": "^(backpressure|reject( [^\\u0000]*)?)$"});
    }
    if setting.name == "listen" {
        let text = json!({"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}, {"type": "array", "items": {"type": "string"}}]});
        let keys: Map<String, Value> =
            listen::keys().into_iter().chain(["address"]).map(|key| (key.to_owned(), text.clone())).collect();
        let table = json!({"type": "object", "properties": keys, "required": ["address"], "additionalProperties": false});
        let one = json!({"anyOf": [{"type": "string"}, {"type": "number"}, table]});
        schema = json!({"anyOf": [one, {"type": "array", "items": one}]});
    }
    schema["description"] = json!(format!("{}{default}.", setting.help));
    (setting.name.to_owned(), schema)
}

fn kind(kind: &Kind) -> Value {
    const COUNT: &str = r"^[0-9]+(\.[0-9]+)?[km]?$";
    match kind {
        Kind::Switch => json!({"anyOf": [{"type": "boolean"}, {"enum": ["true", "false"]}]}),
        Kind::Count(min) => json!({"anyOf": [{"type": "integer", "minimum": min}, {"type": "string", "pattern": COUNT}]}),
        Kind::Time => json!({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": TIME}]}),
        Kind::PositiveTime => json!({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": TIME}]}),
        Kind::Rate => json!({"anyOf": [
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?[km]?(/s)?$"},
        ]}),
        Kind::Size => json!({"anyOf": [
            {"type": "integer", "minimum": 0, "maximum": u32::MAX},
            {"type": "string", "pattern": COUNT},
        ]}),
        Kind::Choice(words) => json!({"enum": words}),
        Kind::Text(_) => json!({"anyOf": [{"type": "string"}, {"type": "number"}]}),
        Kind::List(_) => {
            let one = json!({"anyOf": [{"type": "string"}, {"type": "number"}]});
            json!({"anyOf": [one, {"type": "array", "items": one}]})
        }
    }
}

const TIME: &str = r"^[0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h)?$";
