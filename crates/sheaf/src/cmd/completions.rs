//! `sheaf completions`: completions for a shell, on standard output.
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;
use clap_complete::Shell;
use std::io::Write;

/// Print completions for a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf completions bash > ~/.local/share/bash-completion/completions/sheaf
  sheaf completions zsh > ~/.zfunc/_sheaf
  sheaf completions fish > ~/.config/fish/completions/sheaf.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Prints the completions.
pub fn run(args: &CompletionsArgs) -> Result<Exit> {
    // The generator panics when its writer fails, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::cli::command(), "sheaf", &mut script);
    crate::output::stdout().write_all(&script)?;
    Ok(Exit::Success)
}
