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
    /// On how many more files it was begun and failed, and where.
    pub in_part: (u64, RangeSet),
    /// It was only said and not done.
    pub is_dry: bool,
}

impl Changes {
    /// `removed on n[1-16]: 16 files`, `written on n[1-2]: 2 files, in part on n3: 1 file`.
    pub fn text(&self, hosts: &dyn HostNames) -> String {
        let Self { done, way, files, nouns: (one, many), leaves, in_part, is_dry } = self;
        let done = match (is_dry, done.split_once(' ')) {
            (false, _) => (*done).to_owned(),
            (true, None) => format!("would be {done}"),
            (true, Some((what, done))) => format!("the {what} would be {done}"),
        };
        let on = |files: u64, leaves: &RangeSet| {
            let noun = if files == 1 { one } else { many };
            format!("{way} {}: {files} {noun}", hosts.fold(leaves))
        };
        match (*files, in_part) {
            (0, (0, _)) => format!("{done}: nothing"),
            (0, (cut, there)) => format!("{done} in part {}", on(*cut, there)),
            (files, (0, _)) => format!("{done} {}", on(files, leaves)),
            (files, (cut, there)) => {
                format!("{done} {}, in part {}", on(files, leaves), on(*cut, there))
            }
        }
    }

    /// The same for programs.
    pub fn json(&self, hosts: &dyn HostNames) -> Value {
        let mut object = json!({
            "done": self.done, "hosts": hosts.fold(&self.leaves), "count": self.leaves.len(),
            "files": self.files, "dry_run": self.is_dry,
        });
        let (files, leaves) = &self.in_part;
        if *files > 0 {
            object["in_part"] = json!({ "hosts": hosts.fold(leaves), "count": leaves.len(), "files": files });
        }
        object
    }
}
