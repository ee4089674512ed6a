//! The text of a schema: short values on one line, and keywords in the order in which they are read.
use serde_json::{Map, Value};

const COLUMNS: usize = 110;

/// Keywords that come first. Others follow, and those of [`NAMES`] are last.
const FIRST: [&str; 9] = [
    "$schema",
    "title",
    "description",
    "$ref",
    "const",
    "enum",
    "type",
    "required",
    "additionalProperties",
];

/// Keywords with an object whose keys are names of fields or definitions.
const NAMES: [&str; 2] = ["properties", "$defs"];

/// The text of a schema, with a line feed at its end.
pub fn text(schema: &Value) -> String {
    let mut out = String::new();
    put(schema, false, 0, &mut out);
    out + "\n"
}

/// Puts a value whose lines are indented by `indent` columns. The keys are names or keywords.
fn put(value: &Value, has_names: bool, indent: usize, out: &mut String) {
    let parts: Vec<(String, &Value, bool)> = match value {
        Value::Object(object) => ordered(object, has_names)
            .into_iter()
            .map(|(key, value)| (format!("\"{key}\": "), value, is_of_names(key, has_names)))
            .collect(),
        Value::Array(items) if !items.iter().all(Value::is_string) => {
            items.iter().map(|item| (String::new(), item, false)).collect()
        }
        _ => return *out += &one_line(value, has_names),
    };
    let (open, close) = if value.is_object() { ('{', '}') } else { ('[', ']') };
    out.push(open);
    for (n, (key, value, has_names)) in parts.into_iter().enumerate() {
        *out += if n == 0 { "\n" } else { ",\n" };
        *out += &" ".repeat(indent + 2);
        *out += &key;
        let line = one_line(value, has_names);
        // Keywords of the whole schema stand one below the other.
        if indent > 0 && indent + 2 + key.len() + line.len() < COLUMNS {
            *out += &line;
        } else {
            put(value, has_names, indent + 2, out);
        }
    }
    out.push('\n');
    *out += &" ".repeat(indent);
    out.push(close);
}

fn one_line(value: &Value, has_names: bool) -> String {
    match value {
        Value::Object(object) => {
            let part = |(key, value): (&String, &Value)| {
                format!("\"{key}\": {}", one_line(value, is_of_names(key, has_names)))
            };
            let parts: Vec<String> = ordered(object, has_names).into_iter().map(part).collect();
            format!("{{ {} }}", parts.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| one_line(item, false)).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

/// Whether the value at `key` has names as its keys.
fn is_of_names(key: &str, has_names: bool) -> bool {
    !has_names && NAMES.contains(&key)
}

fn ordered(object: &Map<String, Value>, has_names: bool) -> Vec<(&String, &Value)> {
    let rank = |key: &str| match FIRST.iter().position(|first| *first == key) {
        Some(at) => at,
        None => FIRST.len() + NAMES.iter().position(|last| *last == key).map_or(0, |at| at + 1),
    };
    let mut fields: Vec<_> = object.iter().collect();
    if !has_names {
        fields.sort_by_key(|(key, _)| rank(key));
    }
    fields
}
