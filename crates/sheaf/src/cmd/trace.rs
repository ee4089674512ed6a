//! `sheaf trace`: the I/O of programs recorded, and told.
mod record;
mod recover;

use crate::cli::GlobalArgs;
use crate::exit::Exit;
use anyhow::Result;
use clap::{Args, Subcommand};

/// Record the I/O of programs, and tell what they did
#[derive(Args, Debug)]
pub struct TraceArgs {
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// What to do with traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    Record(record::RecordArgs),
    Recover(recover::RecoverArgs),
}

impl TraceArgs {
    /// Whether a program of the user's is run, which has what this one was started with.
    #[must_use]
    pub fn runs_a_program(&self) -> bool {
        matches!(self.command, TraceCommand::Record(_))
    }
}

/// Does what the sub-command says.
pub fn run(args: &TraceArgs, global: &GlobalArgs) -> Result<Exit> {
    match &args.command {
        TraceCommand::Record(args) => record::run(args, global),
        TraceCommand::Recover(args) => recover::run(args, global),
    }
}
