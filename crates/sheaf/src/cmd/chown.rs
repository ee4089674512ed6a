//! `sheaf chown`: the owner and group of files.
use super::Addresses;
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;

/// Change the owner and group of files
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf chown root:adm /var/log/app.log
  sheaf chown -R :www '@web:/srv/app'")]
pub struct ChownArgs {
    /// OWNER, OWNER:GROUP or :GROUP, each a name of the host or a number
    #[arg(value_name = "OWNER[:GROUP]", value_parser = Owner::parse)]
    pub owner: Owner,

    #[command(flatten)]
    pub files: Addresses,

    /// Change directories and what is in them
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// Change symbolic links themselves, not what they point to
    #[arg(long)]
    pub no_dereference: bool,
}

/// A user and a group, either of which may be left as it is. Names are those of each host, where
/// the same name may be another number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub user: Option<String>,
    pub group: Option<String>,
}

impl Owner {
    /// Parses `user`, `user:group` or `:group`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        match (named(user), named(group)) {
            (None, None) => Err("names neither a user nor a group".to_owned()),
            _ if group.contains(':') => Err("has more than one colon".to_owned()),
            (user, group) => Ok(Self { user, group }),
        }
    }
}

/// Changes owners.
pub fn run(args: &ChownArgs, global: &GlobalArgs) -> Result<Exit> {
    args.files.resolve(global)?;
    super::needs_a_tree("chown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_and_group_are_each_optional() {
        let owner = |user: Option<&str>, group: Option<&str>| {
            Ok(Owner { user: user.map(Into::into), group: group.map(Into::into) })
        };
        assert_eq!(Owner::parse("root"), owner(Some("root"), None));
        assert_eq!(Owner::parse("root:adm"), owner(Some("root"), Some("adm")));
        assert_eq!(Owner::parse(":4"), owner(None, Some("4")));
        assert!(Owner::parse(":").is_err());
        assert!(Owner::parse("a:b:c").is_err());
    }
}
