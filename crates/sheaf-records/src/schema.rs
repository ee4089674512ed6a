//! `docs/json-schema.json`, made from the types of the records.
mod layout;

use crate::VERSION;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json-schema.json");

/// Variable of `cargo xtask schema`: the file is written instead of compared.
const WRITE_VARIABLE: &str = "SHEAF_WRITE_SCHEMA";

/// Adds the definitions of all records to the generator. Returns their names.
fn add_records(generator: &mut SchemaGenerator) -> BTreeSet<String> {
    let name = |reference: schemars::Schema| {
        let place = reference.get("$ref").and_then(Value::as_str);
        place.and_then(|place| place.strip_prefix("#/$defs/")).expect("a definition").to_owned()
    };
    crate::record::references(generator).into_iter().map(name).collect()
}

/// The schema as it is in the file.
fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let records = add_records(&mut generator);
    let mut defs = generator.take_definitions(true);
    defs.values_mut().for_each(tidy);
    for name in &records {
        head(name, &mut defs[name]);
    }
    defs.insert(
        "v".to_owned(),
        json!({ "description": "Version of this schema", "const": VERSION }),
    );
    let of = |name| json!({ "$ref": format!("#/$defs/{name}") });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A record of sheaf --json: one line of standard output",
        "oneOf": records.iter().map(of).collect::<Vec<_>>(),
        "$defs": defs,
    })
}

/// Adds the fields that each record has.
fn head(name: &str, definition: &mut Value) {
    definition["properties"]["v"] = json!({ "$ref": "#/$defs/v" });
    definition["properties"]["type"] = json!({ "const": name });
    let required = definition["required"].as_array().cloned().unwrap_or_default();
    definition["required"] = ["v", "type"].map(Value::from).into_iter().chain(required).collect();
}

/// Makes the definition as strict as the program is, and removes what says nothing about JSON.
fn tidy(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Object(object) => {
            object.values_mut().for_each(tidy);
            // Names of the types of Rust.
            if object.contains_key("type") {
                object.remove("format");
            }
            tidy_properties(object);
        }
        _ => {}
    }
}

fn tidy_properties(object: &mut Map<String, Value>) {
    let required: Vec<Value> =
        object.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    // A field that may be missing is never null.
    let optional = properties.iter_mut().filter(|(name, _)| !required.contains(&json!(name)));
    optional.for_each(|(_, property)| remove_null(property));
    // `--host-list` adds the names to every set of hosts.
    if properties.contains_key("hosts") {
        properties.insert("host_list".to_owned(), json!({ "$ref": "#/$defs/host_list" }));
    }
    // A type has no other fields.
    object.entry("additionalProperties").or_insert(Value::Bool(false));
}

fn remove_null(property: &mut Value) {
    if let Some(types) = property.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|name| name != "null");
        if let [one] = types.as_slice() {
            property["type"] = one.clone();
        }
    }
    if let Some(values) = property.get_mut("enum").and_then(Value::as_array_mut) {
        values.retain(|value| !value.is_null());
    }
    let Some(choices) = property.get("anyOf").and_then(Value::as_array) else { return };
    let rest: Vec<_> = choices.iter().filter(|choice| choice["type"] != "null").cloned().collect();
    if let ([Value::Object(one)], Some(property)) = (rest.as_slice(), property.as_object_mut()) {
        property.remove("anyOf");
        property.extend(one.clone());
    }
}

#[test]
fn schema_file_is_generated_from_the_records() {
    let text = layout::text(&schema());
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        std::fs::write(FILE, text).expect("the file can be written");
        return;
    }
    let file = std::fs::read_to_string(FILE).expect("the file exists");
    let differs = file.lines().zip(text.lines()).find(|(file, text)| file != text);
    assert!(
        file == text,
        "docs/json-schema.json is not up to date, run cargo xtask schema: {differs:?}"
    );
}
