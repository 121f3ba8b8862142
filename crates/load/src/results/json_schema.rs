//! results/result.schema.json is what the types say.

use crate::report::Report;
use schemars::generate::SchemaSettings;
use std::path::Path;

#[test]
fn the_schema_that_ships_is_that_of_the_result() {
    let mut schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Report>();
    schema.insert("$id".to_owned(), format!("urn:{}", Report::SCHEMA).into());
    schema.insert("title".to_owned(), "A result of sockdrawer load".into());
    let text = serde_json::to_string_pretty(&schema).expect("a schema is an object") + "\n";
    if std::env::var_os("SOCKDRAWER_WRITE_SCHEMA").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/results/result.schema.json");
        std::fs::write(path, text).expect("the file can be written");
    } else {
        assert!(Report::JSON_SCHEMA == text, "write it anew: SOCKDRAWER_WRITE_SCHEMA=1 cargo test -p sockdrawer-load schema");
    }
}
