//! `sheaf chown`: the owner and group of files.
use super::caution::Caution;
use super::chmod::reference;
use super::per_path::{self, PathTask};
use anyhow::Result;
use clap::Args;
use sheaf_cli::arguments::{addresses, owner};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_core::Errno;
use sheaf_session::Config;
use sheaf_tools::edit::{Edit, NewOwner};
use std::ffi::OsString;

/// Change the owner and group of files
#[derive(Args, Debug)]
#[command(
    override_usage = "sheaf chown [OPTIONS] <OWNER[:GROUP]> <ADDR>...\n       sheaf chown \
                      [OPTIONS] --reference <FILE> <ADDR>...",
    after_help = "\
On a terminal, more than one host is asked about before a change with -R; -y
answers.

Examples:
  sheaf chown root:adm @all:/var/log/app.log
  sheaf chown -R :www '@web:/srv/app'"
)]
pub struct ChownArgs {
    /// OWNER, OWNER:GROUP or :GROUP, each a name of the host or a number
    #[arg(value_name = "OWNER[:GROUP]")]
    pub owner: OsString,

    /// Files: HOSTSET:PATH, or @all:PATH for every host
    // The first is taken for an owner where there is to be none.
    #[arg(value_name = "ADDR", required_unless_present = "reference")]
    pub addrs: Vec<OsString>,

    /// Change directories and what is in them
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// Change symbolic links themselves, not what they point to
    #[arg(short = 'h', long)]
    pub no_dereference: bool,

    /// Change only files that belong to this owner and group
    #[arg(long, value_name = "OWNER[:GROUP]")]
    pub from: Option<String>,

    /// Give the owner and group of this file of each host
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

/// What `EINVAL` means where a host does not know a name; numbers it does not look up.
fn unknown(named: &str) -> Option<String> {
    let (user, group) = named.split_once(':').unwrap_or((named, ""));
    let is_name = |name: &str| !name.is_empty() && name.parse::<u32>().is_err();
    match (is_name(user), is_name(group)) {
        (true, true) => Some(format!("no user {user} or no group {group} on this host")),
        (true, false) => Some(format!("no user {user} on this host")),
        (false, true) => Some(format!("no group {group} on this host")),
        (false, false) => None,
    }
}

/// Changes owners.
pub fn run(args: &ChownArgs, global: &GlobalArgs) -> Result<Exit> {
    let named = args.owner.to_string_lossy();
    if args.reference.is_none() {
        owner(&named).map_err(|why| {
            Stop::usage(format!("invalid value '{named}' for '<OWNER[:GROUP]>': {why}"))
        })?;
    }
    if let Some(from) = &args.from {
        owner(from).map_err(|why| Stop::usage(format!("--from {from}: {why}")))?;
    }
    let unknown = if args.reference.is_none() { unknown(&named) } else { None };
    let kept = args.recursive.then_some((Errno::BUSY, per_path::KEPT_ROOT));
    let explained: Vec<(Errno, &str)> =
        unknown.iter().map(|text| (Errno::INVAL, text.as_str())).chain(kept).collect();
    let edit = |config: &Config| {
        let owner = match &args.reference {
            Some(file) => NewOwner::Reference(reference(file, config)?),
            None => NewOwner::Named(named.into_owned()),
        };
        Ok(Edit::Chown {
            owner,
            from: args.from.clone(),
            recursive: args.recursive,
            follow: !args.no_dereference,
            preserve_root: !args.no_preserve_root,
        })
    };
    let task = PathTask {
        command: "chown",
        addrs: &addresses(&args.owner, &args.addrs, args.reference.as_ref()),
        caution: args.caution,
        asks: args.recursive.then_some("chown -R"),
        words: ("owner set", if args.recursive { per_path::ALL } else { ("file", "files") }),
        explained: &explained,
    };
    per_path::edit(global, &task, edit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_and_group_are_each_optional() {
        for text in ["root", "root:adm", "root:", ":4"] {
            assert_eq!(owner(text).as_deref(), Ok(text));
        }
        for text in ["", ":", "a:b:c"] {
            assert!(owner(text).is_err(), "{text}");
        }
    }
}
