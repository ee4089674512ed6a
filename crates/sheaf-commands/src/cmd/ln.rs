//! `sheaf ln`: links made.
use super::caution::Caution;
use super::per_path::{self, PathTask};
use anyhow::Result;
use clap::Args;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_core::Errno;
use sheaf_session::Config;
use sheaf_session::address::Address;
use sheaf_tools::edit::Edit;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Make links
#[derive(Args, Debug)]
#[command(after_help = "\
TARGET is a path on each host, without a host set; LINK says on which hosts.
A host where both are the same file refuses.

Examples:
  sheaf ln -s releases/42 @all:/srv/app/current
  sheaf ln -sfn releases/42 'n[1-64]:/srv/app/current'")]
pub struct LnArgs {
    /// What the link leads to
    #[arg(value_name = "TARGET")]
    pub target: OsString,

    /// The link: HOSTSET:PATH, or @all:PATH for every host
    // The name `link` is the global option's.
    #[arg(id = "name", value_name = "LINK")]
    pub link: OsString,

    /// Make a symbolic link
    #[arg(short, long)]
    pub symbolic: bool,

    /// Replace a file that is there
    #[arg(short, long)]
    pub force: bool,

    /// Replace a symbolic link to a directory, not what is in it
    #[arg(short, long)]
    pub no_dereference: bool,

    #[command(flatten)]
    pub caution: Caution,
}

/// Refuses a target with hosts: only LINK has some, and a link would lead to a file of that name.
fn check_target(args: &LnArgs) -> Result<()> {
    let address = Address::parse(&args.target)?;
    if address.hosts.is_none() || !address.path.is_absolute() {
        return Ok(());
    }
    let (target, path) = (args.target.display(), address.path.display());
    let literal = if args.symbolic {
        format!(" (a file of that very name is ./{target})")
    } else {
        String::new()
    };
    Err(Stop::usage(format!(
        "{target}: write the target without hosts, which LINK says: {path}{literal}"
    ))
    .into())
}

/// Makes the link.
pub fn run(args: &LnArgs, global: &GlobalArgs) -> Result<Exit> {
    check_target(args)?;
    let edit = |config: &Config| {
        // The text of a symbolic link means what it will mean there; a file to link is looked for.
        let target = if args.symbolic {
            args.target.clone()
        } else {
            sheaf_cli::addresses::on_hosts(&args.target, config)?
        };
        Ok(Edit::Link {
            target: target.into_vec(),
            symbolic: args.symbolic,
            force: args.force,
            no_dereference: args.no_dereference,
        })
    };
    let task = PathTask {
        command: "ln",
        addrs: std::slice::from_ref(&args.link),
        caution: args.caution,
        asks: None,
        words: ("linked", ("name", "names")),
        explained: &[(Errno::SAMEFILE, "the link would replace the file that it leads to")],
    };
    per_path::edit(global, &task, edit)
}
