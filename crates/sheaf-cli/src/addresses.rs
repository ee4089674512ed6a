//! The addresses of a command, and how failures of a tool end it.
use crate::exit::Stop;
use crate::output::Failure;
use anyhow::Result;
use clap::Args;
use sheaf_core::Errno;
use sheaf_group::{GroupError, Outcome};
use sheaf_session::Config;
use sheaf_session::address::{Address, Purpose};
use sheaf_tools::grep::GrepError;
use sheaf_tools::{Target, ToolError};
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;

/// The files a command reads.
#[derive(Args, Debug)]
pub struct Addresses {
    /// Files: HOSTSET:PATH, or PATH alone for every host
    #[arg(value_name = "ADDR", required = true)]
    pub addrs: Vec<OsString>,
}

impl Addresses {
    /// These addresses as leaves and paths of the cluster.
    pub fn resolve(&self, config: &Config) -> Result<Vec<Target>> {
        resolve(&self.addrs, config, Purpose::Read)
    }
}

/// The files a command changes.
#[derive(Args, Debug)]
pub struct Changed {
    /// Files: HOSTSET:PATH, or @all:PATH for every host
    #[arg(value_name = "ADDR", required = true)]
    pub addrs: Vec<OsString>,
}

/// Addresses as leaves and paths of the cluster.
pub fn resolve(addrs: &[OsString], config: &Config, purpose: Purpose) -> Result<Vec<Target>> {
    addrs.iter().map(|addr| Ok(Address::parse(addr)?.resolve(config, purpose)?)).collect()
}

/// A path on each host, without hosts: a name that nothing in is a wildcard.
pub fn on_hosts(path: &OsStr, config: &Config) -> Result<OsString> {
    let address = Address { hosts: None, path: path.into() };
    Ok(address.path_on_hosts(config, Purpose::Name(""))?.into_os_string())
}

/// Takes failures that need more words than those of their errno out of `outcome`.
pub fn reasons(outcome: &mut Outcome, reason: impl Fn(Errno) -> Option<String>) -> Vec<Failure> {
    let mut told = Vec::new();
    outcome.errors.retain(|error| {
        let Some(detail) = reason(error.errno) else { return true };
        told.push(Failure::of(error, Some(detail)));
        false
    });
    told
}

/// How a tool's failure as a whole ends the program.
pub fn stop(error: ToolError) -> anyhow::Error {
    match error {
        ToolError::Usage(text) => Stop::usage(text).into(),
        ToolError::Grep(error) => pattern_error(&error),
        ToolError::Group(differ @ GroupError::Differ { .. }) => {
            Stop::Unmatched(format!("{differ}; sheaf read -a classes or sheaf sha shows them"))
                .into()
        }
        ToolError::Sink(error) => error.into(),
        other => other.into(),
    }
}

pub fn pattern_error(error: &GrepError) -> anyhow::Error {
    // The message tells the position; on a terminal it is shown, too.
    let text = match error.caret().filter(|_| std::io::stderr().is_terminal()) {
        Some(caret) => format!("{error}\n{caret}"),
        None => error.to_string(),
    };
    Stop::usage(text).into()
}
