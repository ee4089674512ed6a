//! Records of `--json`: one object on a line, all of one schema (`docs/json-schema.json`).
use crate::options::GlobalArgs;
use serde_json::{Map, Value, json};
use sheaf_core::hostset::HostSet;
use std::io::{self, Write};

/// Version of the schema. Records and fields are added; what there is keeps its meaning.
pub const VERSION: u32 = 1;

/// How records are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Records {
    /// Beside every folded set of hosts, its names.
    lists_hosts: bool,
}

impl Records {
    /// As the options say.
    pub fn new(global: &GlobalArgs) -> Self {
        Self { lists_hosts: global.host_list }
    }

    /// Writes a record, which has its `type`, on a line.
    pub fn write(self, out: &mut dyn Write, record: Value) -> io::Result<()> {
        writeln!(out, "{}", self.finish(record))
    }

    /// A record with what all have: the version, and names of hosts where they are asked for.
    pub fn finish(self, mut record: Value) -> Value {
        record["v"] = VERSION.into();
        if self.lists_hosts {
            list_hosts(&mut record);
        }
        record
    }
}

/// Gives every object with `hosts` a `host_list`.
fn list_hosts(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(list_hosts),
        Value::Object(object) => {
            object.values_mut().for_each(list_hosts);
            // What is written here is a set without groups; a set of mere numbers has no names.
            let hosts = object
                .get("hosts")
                .and_then(Value::as_str)
                .and_then(|text| HostSet::parse(text).ok());
            if let Some(hosts) = hosts {
                let names: Vec<String> = hosts.iter().collect();
                object.entry("host_list").or_insert_with(|| json!(names));
            }
        }
        _ => {}
    }
}

/// Puts bytes where text is expected: as text, or in base64 under a name that says so.
pub fn put_text(object: &mut Map<String, Value>, key: &str, bytes: &[u8]) {
    use base64::Engine;
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(key.to_owned(), text.into()),
        Err(_) => {
            let key = if key == "text" { "base64".to_owned() } else { format!("{key}_base64") };
            object.insert(key, base64::engine::general_purpose::STANDARD.encode(bytes).into())
        }
    };
}

/// The record of an error that ends the command.
pub fn error(text: &str, exit: crate::exit::Exit) -> Value {
    json!({ "type": "error", "v": VERSION, "error": text.lines().next().unwrap_or_default(), "exit": exit as u8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_listed_on_request_wherever_they_are() {
        let record = json!({ "type": "x", "hosts": "n[1-2]", "failed": [{ "hosts": "n3" }], "other": "n[1-2]" });
        let plain = Records::default().finish(record.clone());
        assert_eq!(
            plain.to_string(),
            r#"{"failed":[{"hosts":"n3"}],"hosts":"n[1-2]","other":"n[1-2]","type":"x","v":1}"#
        );
        let listed = Records { lists_hosts: true }.finish(record);
        assert_eq!(
            (&listed["host_list"], &listed["failed"][0]["host_list"]),
            (&json!(["n1", "n2"]), &json!(["n3"]))
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_in_base64() {
        let mut object = Map::new();
        put_text(&mut object, "path", b"/\xff");
        put_text(&mut object, "text", b"\xff");
        put_text(&mut object, "name", b"a");
        assert_eq!(
            Value::Object(object),
            json!({ "path_base64": "L/8=", "base64": "/w==", "name": "a" })
        );
    }
}
