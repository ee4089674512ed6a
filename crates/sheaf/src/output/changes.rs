//! What a command changed, in one line.
use super::HostNames;
use serde_json::{Value, json};
use sheaf_core::RangeSet;

/// What was changed where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// What was done, as `removed` or `mode set`.
    pub done: &'static str,
    /// Where the hosts are in it: `on`, `to` or `from`.
    pub way: &'static str,
    /// To what, as one and as many.
    pub nouns: (&'static str, &'static str),
    /// On how many files of all hosts.
    pub files: u64,
    pub leaves: RangeSet,
    /// It was only said and not done.
    pub is_dry: bool,
}

impl Changes {
    /// `removed on n[1-16]: 16 files`.
    pub fn text(&self, hosts: &dyn HostNames) -> String {
        let Self { done, way, files, nouns: (one, many), leaves, is_dry } = self;
        let done = match (is_dry, done.split_once(' ')) {
            (false, _) => (*done).to_owned(),
            (true, None) => format!("would be {done}"),
            (true, Some((what, done))) => format!("the {what} would be {done}"),
        };
        match files {
            0 => format!("{done}: nothing"),
            files => {
                let noun = if *files == 1 { one } else { many };
                format!("{done} {way} {}: {files} {noun}", hosts.fold(leaves))
            }
        }
    }

    /// The same for programs.
    pub fn json(&self, hosts: &dyn HostNames) -> Value {
        json!({
            "done": self.done, "hosts": hosts.fold(&self.leaves), "count": self.leaves.len(),
            "files": self.files, "dry_run": self.is_dry,
        })
    }
}
