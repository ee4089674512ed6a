//! The exit codes of the programs.
use serde::{Serialize, Serializer};
use std::process::ExitCode;

/// The result of a command.
///
/// A partial answer never looks like a whole one: [`Partial`](Self::Partial) goes before
/// [`Unmatched`](Self::Unmatched), and before success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Every member answered.
    Success = 0,
    /// Every member answered, but nothing matched, or what has to be equal differs.
    Unmatched = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// No session could be had, or no host answered.
    Unreachable = 3,
    /// Some members failed or stayed silent, or the command broke off.
    Partial = 4,
    /// Ended by Ctrl-C.
    Interrupted = 130,
}

impl Exit {
    /// All exit codes.
    pub const ALL: [Self; 6] = [
        Self::Success,
        Self::Unmatched,
        Self::Usage,
        Self::Unreachable,
        Self::Partial,
        Self::Interrupted,
    ];
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Serialize for Exit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*self as u8)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for Exit {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "exit".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "description": "The exit code of the program", "enum": Self::ALL })
    }
}
