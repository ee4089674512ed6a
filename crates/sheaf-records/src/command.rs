//! Records of any command.
use crate::exit::Exit;
use serde::Serialize;

/// With exit: the error that ends the command. With path: a file of this machine that failed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "error")]
pub struct CommandError {
    pub error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// A notice about the command or its answer.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "note")]
pub struct Note {
    pub note: String,
}
