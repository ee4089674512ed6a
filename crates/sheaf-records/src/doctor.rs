//! Records of `doctor`.
use crate::exit::Exit;
use serde::Serialize;

/// doctor: a finding, which is the same on all of its hosts.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "finding")]
pub struct Finding {
    /// The hosts where it was found. Absent: this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// How many hosts these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    pub severity: Severity,
    pub area: Area,
    pub text: String,
    /// What mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// These hosts could not be examined, or not to the end, because of this error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
    /// clock: seconds by which the host's clock is ahead. space: free bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The value may be larger or smaller by this much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertainty: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Servers do not start, or not as the configuration says.
    Problem,
    /// Servers start, but something is not as it could be, or was not tried.
    Note,
    /// It is well.
    Ok,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Area {
    Configuration,
    Session,
    Login,
    Shell,
    /// The examination itself.
    Examination,
    /// The processor, the kernel and the C library.
    System,
    /// Where the program is kept.
    Cache,
    /// Whether programs run there.
    Exec,
    Sudo,
    Ports,
    Clock,
    Space,
    Versions,
    Limits,
}

/// doctor, at its end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "examined")]
pub struct Examined {
    /// The hosts that were to be examined. Absent: this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// Hosts, or this machine, that were examined to the end.
    pub examined: u64,
    /// Those that were not.
    pub failed: u64,
    /// Findings.
    pub problems: u64,
    pub notes: u64,
    pub exit: Exit,
}
