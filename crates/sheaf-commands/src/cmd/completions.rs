//! `sheaf completions`: completions for a shell, on standard output.
use anyhow::Result;
use clap::Args;
use clap_complete::Shell;
use sheaf_cli::companion::Companion;
use sheaf_cli::companion::describe::with_companions;
use sheaf_cli::exit::Exit;
use sheaf_cli::output::tell;
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
    let (mut command, lacking) = with_companions(crate::cli::command())?;
    for companion in lacking {
        let Companion { program, command, .. } = companion;
        tell(format_args!("sheaf: {program} is not installed: no completions for sheaf {command}"));
    }
    clap_complete::generate(args.shell, &mut command, "sheaf", &mut script);
    sheaf_cli::output::stdout().write_all(&script)?;
    Ok(Exit::Success)
}
