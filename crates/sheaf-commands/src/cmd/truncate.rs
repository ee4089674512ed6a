//! `sheaf truncate`: the size of files.
use super::caution::Caution;
use super::chmod::reference;
use super::per_path::{self, PathTask};
use anyhow::Result;
use clap::Args;
use sheaf_cli::addresses::Changed;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::size;
use sheaf_session::Config;
use sheaf_tools::edit::{Edit, SizeChange};
use std::ffi::OsString;

/// Set the size of files
#[derive(Args, Debug)]
#[command(after_help = "\
SIZE is a number of bytes, with K, M, G, T for powers of 1024 and KB, MB, GB,
TB for powers of 1000. In front of it: + to grow by, - to shrink by, < at most,
> at least, / down to a multiple of, % up to a multiple of.

On a terminal, more than one host is asked about first; -y answers.

Examples:
  sheaf truncate -s 0 @all:/var/log/app.log
  sheaf truncate -s '<100M' 'n[1-64]:/var/tmp/trace'")]
pub struct TruncateArgs {
    #[command(flatten)]
    pub files: Changed,

    /// The new size, or the change of size; see below
    #[arg(short, long, value_name = "SIZE", value_parser = size::change, allow_hyphen_values = true)]
    #[arg(required_unless_present = "reference")]
    pub size: Option<SizeChange>,

    /// Start from the size of this file of each host
    #[arg(short, long, value_name = "FILE")]
    pub reference: Option<OsString>,

    /// Leave out files that do not exist; they are created otherwise
    #[arg(short = 'c', long)]
    pub no_create: bool,

    #[command(flatten)]
    pub caution: Caution,
}

/// Sets sizes.
pub fn run(args: &TruncateArgs, global: &GlobalArgs) -> Result<Exit> {
    if args.reference.is_some() && matches!(args.size, Some(SizeChange::To(_))) {
        return Err(Stop::usage(
            "with --reference, --size says by how much sizes differ from it: +1K",
        )
        .into());
    }
    let edit = |config: &Config| {
        let reference = args.reference.as_ref().map(|file| reference(file, config)).transpose()?;
        Ok(Edit::Truncate { size: args.size, reference, create: !args.no_create })
    };
    let task = PathTask {
        command: "truncate",
        addrs: &args.files.addrs,
        caution: args.caution,
        asks: Some("truncate"),
        words: ("size set", ("file", "files")),
        explained: &[],
    };
    per_path::edit(global, &task, edit)
}
