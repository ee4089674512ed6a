//! `sheaf man`: the manual pages, one for each command.
use crate::exit::{self, Exit};
use anyhow::{Result, anyhow};
use clap::Args;
use std::path::PathBuf;

/// Write the manual pages into a directory
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf man ~/.local/share/man/man1")]
pub struct ManArgs {
    /// The directory, made if it does not exist
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Writes the pages.
pub fn run(args: &ManArgs) -> Result<Exit> {
    let write = || {
        std::fs::create_dir_all(&args.directory)?;
        clap_mangen::generate_to(crate::cli::command(), &args.directory)
    };
    write().map_err(|error| anyhow!(exit::io_text(&args.directory, &error)))?;
    Ok(Exit::Success)
}
