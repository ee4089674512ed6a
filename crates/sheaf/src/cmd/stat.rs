//! `sheaf stat`: what the file system says of a file, equal answers printed once.
use super::Addresses;
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;

/// Show size, mode, owner and times of files, equal answers once
#[derive(Args, Debug)]
#[command(after_help = "\
Format: %n name, %s size in bytes, %a mode in octal, %A mode as ls shows it,
%F kind of file, %u %U owner, %g %G group, %h links, %i inode, %d device,
%b blocks, %B block size, %x %X access, %y %Y change of content, %z %Z change
of status (time, or seconds since 1970), %N name with the target of a link,
%% a percent sign.

Examples:
  sheaf stat -c '%a %U:%G %s' /etc/passwd
  sheaf stat -L 'n[1-8]:/etc/localtime'")]
pub struct StatArgs {
    #[command(flatten)]
    pub files: Addresses,

    /// Print this in place of the usual table; see below
    #[arg(short = 'c', long, value_name = "FORMAT")]
    pub format: Option<String>,

    /// Follow symbolic links
    #[arg(short = 'L', long)]
    pub dereference: bool,
}

/// Shows the files.
pub fn run(args: &StatArgs, global: &GlobalArgs) -> Result<Exit> {
    args.files.resolve(&crate::config::Config::load(global)?)?;
    super::needs_a_tree("stat")
}
