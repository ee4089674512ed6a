//! `sheaf man`: the manual pages, one for each command.
use crate::exit::{self, CODES, Exit};
use anyhow::{Result, anyhow};
use clap::Args;
use std::path::{Path, PathBuf};

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
        let mut command = crate::cli::command().disable_help_subcommand(true);
        command.build();
        pages(&command, &args.directory)
    };
    write().map_err(|error| anyhow!(exit::io_text(&args.directory, &error)))?;
    Ok(Exit::Success)
}

/// Writes the page of `command` and those of the commands below it.
fn pages(command: &clap::Command, directory: &Path) -> std::io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, directory)?;
    }
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    // The page of the program itself has them in its last section.
    if command.get_bin_name().is_some_and(|name| name.contains(' ')) {
        text.extend_from_slice(exit_status().as_bytes());
    }
    std::fs::write(directory.join(page.get_filename()), text)
}

/// The section that says what exit codes mean.
fn exit_status() -> String {
    let mut text = ".SH \"EXIT STATUS\"\n".to_owned();
    for (exit, meaning) in CODES {
        text += &format!(".TP\n{}\n{meaning}\n", *exit as u8);
    }
    text
}
