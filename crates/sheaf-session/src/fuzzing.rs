//! For fuzzing: the readers of files that no caller needs by themselves.
use crate::groups::{ini, yaml};

/// ClusterShell's files of groups.
pub fn groups(text: &str) {
    let _ = ini::merge(&mut ini::Sections::new(), text);
    let _ = yaml::parse(text);
}
