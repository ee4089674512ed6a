//! Records of `hosts` and `config`.
use crate::exit::Exit;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// hosts: a set of hosts.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "hosts")]
pub struct Hosts {
    pub hosts: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_list: Option<HostList>,
    pub count: u64,
}

/// hosts --index.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "host_index")]
pub struct HostIndex {
    /// The position of the host in the set, counted from 0.
    pub index: u64,
}

/// hosts --list.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "group")]
pub struct Group {
    pub group: String,
    pub hosts: String,
    pub count: u64,
    /// The number of hosts of the whole group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
}

/// hosts --groupsources.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "source")]
pub struct Source {
    pub source: String,
    pub default: bool,
}

/// config check.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "check")]
pub struct Check {
    pub file: Option<String>,
    pub problems: Vec<String>,
    pub exit: Exit,
}

/// config show.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "settings")]
pub struct Settings {
    pub settings: BTreeMap<String, Setting>,
}

/// The value of a setting and its origin.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Setting {
    #[cfg_attr(test, schemars(extend("type" = ["string", "number", "boolean"])))]
    pub value: Value,
    /// The place where it was set.
    pub from: String,
}

/// With --host-list: the names of the hosts.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename = "host_list")]
pub struct HostList(pub Vec<String>);
