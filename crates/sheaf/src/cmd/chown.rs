//! `sheaf chown`: the owner and group of files.
use super::{Changed, per_path};
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;
use sheaf_tools::edit::Edit;

/// Change the owner and group of files
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf chown root:adm :/var/log/app.log
  sheaf chown -R :www '@web:/srv/app'")]
pub struct ChownArgs {
    /// OWNER, OWNER:GROUP or :GROUP, each a name of the host or a number
    #[arg(value_name = "OWNER[:GROUP]", value_parser = owner)]
    pub owner: String,

    #[command(flatten)]
    pub files: Changed,

    /// Change directories and what is in them
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// Change symbolic links themselves, not what they point to
    #[arg(long)]
    pub no_dereference: bool,
}

/// Checks the form of `user`, `user:group`, `user:` or `:group`. Names are looked up on each host,
/// where the same name may be another number.
pub fn owner(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        None if text.is_empty() => Err("names no owner".to_owned()),
        Some(("", "")) => Err("names neither an owner nor a group".to_owned()),
        Some((_, group)) if group.contains(':') => Err("has more than one colon".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// Changes owners.
pub fn run(args: &ChownArgs, global: &GlobalArgs) -> Result<Exit> {
    let edit =
        Edit::Chown { owner: args.owner.clone(), recursive: args.recursive, follow: !args.no_dereference };
    per_path::edit(global, "chown", &args.files.addrs, |_| Ok(edit))
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
