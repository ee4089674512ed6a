//! `sheaf help`: what `--help` says.
use anyhow::Result;
use clap::Args;
use sheaf_cli::companion::describe::with_companions;
use sheaf_cli::companion::{COMPANIONS, Companion};
use sheaf_cli::exit::{Exit, Stop};

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
    let is_of = |companion: &&&Companion| {
        args.command.first().is_some_and(|name| name == companion.command)
    };
    let companion = COMPANIONS.iter().find(is_of);
    let described = companion.filter(|companion| companion.is_installed());
    let command = match described {
        Some(_) => with_companions(crate::cli::command())?.0,
        None => crate::cli::command(),
    };
    let mut found = &command;
    for name in &args.command {
        // What a companion can do is not known where it is not installed.
        if companion.is_some_and(|companion| companion.command == found.get_name())
            && described.is_none()
        {
            break;
        }
        found = found.find_subcommand(name).ok_or_else(|| {
            Stop::usage(format!(
                "there is no command {}: sheaf help lists them",
                args.command.join(" ")
            ))
        })?;
    }
    if let Some(companion) = companion {
        let words = args.command.iter().map(String::as_str).chain(["--help"]);
        match companion.run(words.map(Into::into))? {}
    }
    let words =
        ["sheaf"].into_iter().chain(args.command.iter().map(String::as_str)).chain(["--help"]);
    // To clap, help is an error that is printed like no other.
    if let Err(help) = command.clone().try_get_matches_from(words) {
        sheaf_cli::output::print_help(&help);
    }
    Ok(Exit::Success)
}
