//! `sheaf chmod`: the permissions of files.
use super::caution::Caution;
use super::per_path::{self, PathTask};
use anyhow::Result;
use clap::Args;
use sheaf_cli::arguments::addresses;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::mode;
use sheaf_cli::options::GlobalArgs;
use sheaf_core::Errno;
use sheaf_session::Config;
use sheaf_session::address::path_text;
use sheaf_tools::edit::{Edit, NewMode};
use std::ffi::{OsStr, OsString};

/// Change the mode of files
#[derive(Args, Debug)]
#[command(
    override_usage = "sheaf chmod [OPTIONS] <MODE> <ADDR>...\n       sheaf chmod [OPTIONS] \
                      --reference <FILE> <ADDR>...",
    after_help = "\
On a terminal, more than one host is asked about before a change with -R; -y
answers.

Examples:
  sheaf chmod 0640 @all:/etc/shadow
  sheaf chmod -R u=rwX,go-w 'n[1-64]:/srv/app'"
)]
pub struct ChmodArgs {
    /// Octal (0644) or symbolic (u+x,go-w)
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    pub mode: OsString,

    /// Files: HOSTSET:PATH, or @all:PATH for every host
    // The first is taken for a mode where there is to be none.
    #[arg(value_name = "ADDR", required_unless_present = "reference")]
    pub addrs: Vec<OsString>,

    /// Change directories and what is in them
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// Give the mode of this file of each host
    #[arg(long, value_name = "FILE")]
    pub reference: Option<OsString>,

    /// With -R, change all that a host serves, too (/, /*, /*/*)
    #[arg(long, overrides_with = "preserve_root")]
    pub no_preserve_root: bool,

    /// Do not (this is the default)
    #[arg(long, hide = true)]
    pub preserve_root: bool,

    #[command(flatten)]
    pub caution: Caution,
}

/// The file of each host that something is taken from.
pub fn reference(file: &OsStr, config: &Config) -> Result<String> {
    Ok(path_text(sheaf_cli::addresses::on_hosts(file, config)?.into())?)
}

/// Changes modes.
pub fn run(args: &ChmodArgs, global: &GlobalArgs) -> Result<Exit> {
    let invalid = |why| {
        let mode = args.mode.to_string_lossy();
        Stop::usage(format!("invalid value '{mode}' for '<MODE>': {why}"))
    };
    let change = match args.reference {
        Some(_) => None,
        None => Some(mode::change(&args.mode.to_string_lossy()).map_err(invalid)?),
    };
    let edit = |config: &Config| {
        let mode = match (change, &args.reference) {
            (None, Some(file)) => NewMode::Reference(reference(file, config)?),
            (Some(change), _) => NewMode::Change(change),
            (None, None) => return Err(invalid("there is none".to_owned()).into()),
        };
        let (recursive, preserve_root) = (args.recursive, !args.no_preserve_root);
        Ok(Edit::Chmod { mode, recursive, preserve_root })
    };
    let task = PathTask {
        command: "chmod",
        addrs: &addresses(&args.mode, &args.addrs, args.reference.as_ref()),
        caution: args.caution,
        asks: args.recursive.then_some("chmod -R"),
        words: ("mode set", if args.recursive { per_path::ALL } else { ("file", "files") }),
        explained: &[(Errno::BUSY, per_path::KEPT_ROOT)][..usize::from(args.recursive)],
    };
    per_path::edit(global, &task, edit)
}
