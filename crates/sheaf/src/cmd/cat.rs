//! `sheaf cat`: the content of files, equal contents printed once.
use super::Addresses;
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;

/// Print the content of files, equal contents once
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf cat /etc/hostname
  sheaf cat --each 'n[1-4]:/etc/fstab'")]
pub struct CatArgs {
    #[command(flatten)]
    pub files: Addresses,

    /// Print each host's content by itself, in host order
    #[arg(long)]
    pub each: bool,

    /// Number the lines
    #[arg(short, long)]
    pub number: bool,

    /// Print contents one after the other, without saying whose they are
    #[arg(long, conflicts_with = "heading")]
    pub no_heading: bool,

    /// Print the hosts above each content, also when not on a terminal
    #[arg(long)]
    pub heading: bool,
}

/// Prints the files.
pub fn run(args: &CatArgs, global: &GlobalArgs) -> Result<Exit> {
    args.files.resolve(&crate::config::Config::load(global)?)?;
    super::needs_a_tree("cat")
}
