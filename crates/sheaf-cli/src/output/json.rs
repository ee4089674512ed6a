//! Records of `--json`: one object on a line, all of one schema (`docs/json-schema.json`).
use crate::options::GlobalArgs;
use serde_json::{Value, json};
use sheaf_core::hostset::HostSet;
use sheaf_records::{CommandError, Record, VERSION};
use std::io::{self, Write};

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

    /// Writes a record on a line.
    pub fn write(self, out: &mut dyn Write, record: &impl Record) -> io::Result<()> {
        writeln!(out, "{}", self.value(record)?)
    }

    /// A record with what all have: the version, and names of hosts where they are asked for.
    pub fn value(self, record: &impl Record) -> io::Result<Value> {
        Ok(self.finish(serde_json::to_value(record)?))
    }

    fn finish(self, mut record: Value) -> Value {
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

/// The line of an error that ends the command.
pub fn error(text: &str, exit: crate::exit::Exit) -> io::Result<String> {
    let error = text.lines().next().unwrap_or_default().to_owned();
    let record = CommandError { error, path: None, exit: Some(exit) };
    Ok(Records::default().value(&record)?.to_string())
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
}
