//! `sheaf help`: what `--help` says.
use crate::exit::{Exit, Stop};
use anyhow::Result;
use clap::Args;

/// Print the help of a command
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf help
  sheaf help grep
  sheaf help config show")]
pub struct HelpArgs {
    /// The command; without one, all of them are listed
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Prints help.
pub fn run(args: &HelpArgs) -> Result<Exit> {
    let command = crate::cli::command();
    let mut found = &command;
    for name in &args.command {
        found = found.find_subcommand(name).ok_or_else(|| {
            Stop::usage(format!(
                "there is no command {}: sheaf help lists them",
                args.command.join(" ")
            ))
        })?;
    }
    let words =
        ["sheaf"].into_iter().chain(args.command.iter().map(String::as_str)).chain(["--help"]);
    // To clap, help is an error that is printed like no other.
    if let Err(help) = command.clone().try_get_matches_from(words) {
        crate::output::print_help(&help);
    }
    Ok(Exit::Success)
}
