//! The JSON schema of a configuration, from the tables of settings.

use super::{Known, MAX_NAME, OWN, POOL};
use crate::listen;
use crate::pool_settings::SETTINGS;
use crate::protocol::Protocol;
use crate::setting::{Kind, Setting};
use serde_json::{Map, Value, json};

/// The JSON schema of the configurations of a program.
pub(crate) fn schema(known: &Known) -> Value {
    let protocols = &known.protocols;
    let pool = |protocol: &Protocol| {
        let mut properties =
            Map::from_iter([("protocol".to_owned(), json!({"const": protocol.name, "description": protocol.help}))]);
        properties.extend(SETTINGS.iter().map(|one| &one.setting).chain(&protocol.settings).map(property));
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
    let mut properties: Map<String, Value> = known.program_settings().map(property).collect();
    properties.insert(
        POOL.to_owned(),
        json!({
            "type": "object",
            "description": "The pools, by name.",
            "minProperties": 1,
            "propertyNames": {"pattern": format!("^[a-z0-9_-]{{1,{MAX_NAME}}}$"), "not": {"enum": OWN}},
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

fn property(setting: &Setting) -> (String, Value) {
    let mut schema = kind(&setting.kind);
    if let (Some(max), Kind::Count(_) | Kind::Size) = (setting.max, setting.kind) {
        schema["anyOf"][0]["maximum"] = json!(max);
    }
    let default = if setting.default.is_empty() { String::new() } else { format!(". Unless given: {}", setting.default) };
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
