//! `sheaf archive chmod` and `chown`: modes and owners of what is archived.
use super::local;
use super::place::{self, ArchivedName, NamedPlace};
use super::together::FilesTogether;
use super::{counted, hosts};
use crate::cli::GlobalArgs;
use crate::cmd::chmod::addresses;
use crate::exit::{Exit, Stop};
use crate::mode;
use crate::output::{self, Output, printable};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use sheaf_archive::{
    ArchiveError, ArchivedFile, FileRights, RightsChange, RightsOptions, RightsReport,
    change_rights, change_rights_of_files,
};
use sheaf_core::Errno;
use std::ffi::{OsStr, OsString};

/// Change the modes of what is archived, or of files of this machine or of hosts
///
/// Only what has another mode is changed. Symbolic links have none.
#[derive(Args, Debug)]
#[command(
    override_usage = "sheaf archive chmod [OPTIONS] <MODE> <STORE::PATH|PATH>...\n       \
                      sheaf archive chmod [OPTIONS] --reference <STORE::PATH> <STORE::PATH>...",
    after_help = "\
Examples:
  sheaf archive chmod 0640 /backup::/home/ada/notes
  sheaf archive chmod -R go-rwx /backup::/home/ada
  sheaf archive chmod -R go-w /srv/results"
)]
pub struct ArchiveChmodArgs {
    /// Octal (0644) or symbolic (u+x,go-w)
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    pub mode: OsString,

    /// Take each name for a path of this machine, even with `:` or `::` in it
    #[arg(long, conflicts_with = "reference")]
    pub local: bool,

    #[command(flatten)]
    pub on: RightsArgs,
}

/// Change owners and groups of what is archived
///
/// Only what has another one is changed. As everywhere, a file that gets another
/// owner loses its set-id bits and capabilities.
#[derive(Args, Debug)]
#[command(
    override_usage = "sheaf archive chown [OPTIONS] <OWNER[:GROUP]> <STORE::PATH>...\n       \
                      sheaf archive chown [OPTIONS] --reference <STORE::PATH> <STORE::PATH>...",
    after_help = "\
Examples:
  sheaf archive chown ada:users /backup::/home/ada/notes
  sheaf archive chown -R :1000 /backup::/home/ada"
)]
pub struct ArchiveChownArgs {
    /// OWNER, OWNER:GROUP or :GROUP, each a name of this machine or a number
    #[arg(value_name = "OWNER[:GROUP]")]
    pub owner: OsString,

    #[command(flatten)]
    pub on: RightsArgs,
}

/// What a change of modes or owners is about.
#[derive(Args, Debug)]
pub struct RightsArgs {
    /// Archived files and directories
    // The first is taken for a mode or owner where there is to be none.
    #[arg(value_name = "STORE::PATH", required_unless_present = "reference")]
    pub names: Vec<OsString>,

    /// Change directories and what is in them
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// Give what this archived file has
    #[arg(long, value_name = "STORE::PATH")]
    pub reference: Option<OsString>,

    /// Only say how much would change
    #[arg(long)]
    pub dry_run: bool,
}

/// Changes modes.
pub fn chmod(args: &ArchiveChmodArgs, global: &GlobalArgs) -> Result<Exit> {
    let names = addresses(&args.mode, &args.on.names, args.on.reference.as_ref());
    if let Some(reference) = &args.on.reference {
        let new = rights_of(reference)?.mode;
        let change = move |old: u32, is_directory: bool| {
            // A directory's set-id bits are not lost by chance.
            if is_directory { new | old & 0o6000 } else { new }
        };
        return change_all(&args.on, &names, &RightsChange::Mode(&change), global);
    }
    if hosts::are_on_hosts(&names, args.local)? {
        return hosts::tools::chmod(args, global);
    }
    let text = args.mode.to_string_lossy();
    let mode = mode::change(&text)
        .map_err(|why| Stop::usage(format!("invalid value '{text}' for '<MODE>': {why}")))?;
    let change = move |old: u32, is_directory: bool| mode.apply(old, is_directory);
    let places = NamedPlace::parse_all(&names, args.local)?;
    let locals: Vec<_> = places.iter().filter_map(NamedPlace::local).collect();
    if locals.is_empty() {
        return change_all(&args.on, &names, &RightsChange::Mode(&change), global);
    }
    if locals.len() < names.len() {
        let text = "name what is archived and what is on this machine in two commands";
        return Err(Stop::usage(text).into());
    }
    local::change::modes(&locals, (&args.on, args.local), change, global)
}

/// Changes owners and groups.
pub fn chown(args: &ArchiveChownArgs, global: &GlobalArgs) -> Result<Exit> {
    let names = addresses(&args.owner, &args.on.names, args.on.reference.as_ref());
    let (uid, gid) = match &args.on.reference {
        Some(reference) => {
            let of = rights_of(reference)?;
            (Some(of.uid), Some(of.gid))
        }
        None => owner(&args.owner)?,
    };
    change_all(&args.on, &names, &RightsChange::Owner { uid, gid }, global)
}

/// The numbers of `OWNER:GROUP`, which are names or numbers of this machine.
fn owner(text: &OsStr) -> Result<(Option<u32>, Option<u32>)> {
    let text = text.to_string_lossy();
    let invalid =
        |why: String| Stop::usage(format!("invalid value '{text}' for '<OWNER[:GROUP]>': {why}"));
    crate::cmd::chown::owner(&text).map_err(invalid)?;
    match sheaf_file::Owner::resolve(&text) {
        Ok(owner) => Ok((owner.uid, owner.gid)),
        Err(Errno::INVAL) => {
            Err(invalid("this machine knows no such user or group".to_owned()).into())
        }
        Err(errno) => Err(anyhow::anyhow!("{text}: this machine's users cannot be read: {errno}")),
    }
}

/// Mode and owner of what is archived.
fn rights_of(name: &OsStr) -> Result<FileRights> {
    let name = ArchivedName::parse_literal(name)?;
    let archive = place::open(&name.store, false)?;
    Ok(match archive.look_up(&name.path)? {
        None => return Err(ArchiveError::NotArchived { path: name.path }.into()),
        Some(ArchivedFile::Directory(is)) => FileRights { mode: is.mode, uid: is.uid, gid: is.gid },
        Some(ArchivedFile::Member { member, .. }) => member.attributes.rights(),
        Some(ArchivedFile::Object(object)) => object.attributes.rights(),
    })
}

fn change_all(
    args: &RightsArgs,
    names: &[OsString],
    change: &RightsChange<'_>,
    global: &GlobalArgs,
) -> Result<Exit> {
    let names: Result<Vec<_>> = names.iter().map(|name| ArchivedName::parse(name)).collect();
    let options = RightsOptions { recursive: args.recursive, dry_run: args.dry_run };
    let (all, failed) = (RightsReport::default(), 0);
    let mut changes = RightsChanges { change, options, all, failed, together: None };
    for name in names? {
        let changed = changes.named(&name);
        if changed.is_err() {
            // What was named before it is changed all the same.
            changes.files();
        }
        changed?;
    }
    changes.files();
    let RightsChanges { all, failed, .. } = changes;
    if global.json {
        let record = json!({
            "type": "archive_changed",
            "changed": all.changed,
            "unchanged": all.unchanged,
            "failed": failed,
            "dry_run": options.dry_run,
        });
        Output::new(global).records.write(&mut output::stdout(), record)?;
    } else if !global.quiet {
        let changed = counted(all.changed, "file or directory", "files and directories");
        let verb = if options.dry_run { "would change" } else { "changed" };
        output::tell(format_args!("sheaf: {verb} {changed}, {} had it already", all.unchanged));
    }
    Ok(if failed > 0 { Exit::Partial } else { Exit::Success })
}

/// Changes of what is archived; files wait for others of their directory.
struct RightsChanges<'a> {
    change: &'a RightsChange<'a>,
    options: RightsOptions,
    all: RightsReport,
    failed: u64,
    together: Option<FilesTogether>,
}

impl RightsChanges<'_> {
    fn named(&mut self, name: &ArchivedName) -> Result<()> {
        if !self.together.as_ref().is_some_and(|together| together.is_of(&name.store)) {
            self.files();
            self.together = None;
        }
        let together = match &mut self.together {
            Some(together) => together,
            none => none.insert(FilesTogether::new(&name.store)?),
        };
        for path in name.paths(&together.archive)? {
            let is_directory = together.archive.catalog().directory(&path)?.is_some();
            if !is_directory && together.push(&path) {
                continue;
            }
            match change_rights(&together.archive, &path, self.change, self.options) {
                Ok(report) => self.all += report,
                Err(error) => failed(&mut self.failed, 1, &error),
            }
        }
        Ok(())
    }

    /// Changes the files that wait.
    fn files(&mut self) {
        let Some(together) = &mut self.together else { return };
        for (directory, names) in together.take() {
            let (archive, options) = (&together.archive, self.options);
            match change_rights_of_files(archive, &directory, &names, self.change, options) {
                Ok((report, missing)) => {
                    self.all += report;
                    for name in missing {
                        let path = directory.join(&name);
                        failed(&mut self.failed, 1, &ArchiveError::NotArchived { path });
                    }
                }
                Err(error) => failed(&mut self.failed, names.len() as u64, &error),
            }
        }
    }
}

/// Tells why some are not changed.
fn failed(failed: &mut u64, count: u64, error: &ArchiveError) {
    *failed += count;
    output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
}
