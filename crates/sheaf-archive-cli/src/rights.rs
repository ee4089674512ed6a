//! `sheaf archive chmod` and `chown`: modes and owners of what is archived.
mod told;

use super::find::store_of;
use super::local;
use super::place::{self, ArchivedName, NamedPlace};
use super::together::FilesTogether;
use super::{counted, hosts};
use anyhow::{Context, Result};
use clap::Args;
use sheaf_archive::{
    ArchiveError, ArchivedFile, FileRights, ModesTold, RightsChange, RightsOptions, RightsReport,
    RightsTold, change_rights_of_files_told, change_rights_told,
};
use sheaf_cli::arguments::addresses;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::mode;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_core::Errno;
use sheaf_records::ArchiveChanged;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
pub use told::{RightsPrinter, ToldRights, tells};

/// Change the modes of what is archived, or of files of this machine or of hosts
///
/// Only what has another mode is changed. Symbolic links have none.
#[derive(Args, Debug)]
#[command(
    override_usage = "sheaf archive chmod [OPTIONS] <MODE> <STORE::PATH|PATH>...\n       \
                      sheaf archive chmod [OPTIONS] --reference <FILE> <STORE::PATH|PATH>...",
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
    #[arg(long)]
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

    /// Change symbolic links themselves: so it is without it, too
    #[arg(short = 'h', long)]
    pub no_dereference: bool,

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

    /// Give what this file has; for chmod, it may be of this machine, too
    #[arg(long, value_name = "STORE::PATH")]
    pub reference: Option<OsString>,

    /// Name what is changed (-v: all), as it was and as it is
    #[arg(short, long)]
    pub changes: bool,

    /// Say nothing of what cannot be changed
    #[arg(short = 'f', long)]
    pub silent: bool,

    /// Only say how much would change
    #[arg(long)]
    pub dry_run: bool,
}

/// Changes modes.
pub fn chmod(args: &ArchiveChmodArgs, global: &GlobalArgs) -> Result<Exit> {
    let names = addresses(&args.mode, &args.on.names, args.on.reference.as_ref());
    let are_on_hosts = hosts::are_on_hosts(&names, args.local)?;
    if let Some(reference) = &args.on.reference
        && !are_on_hosts
    {
        let new = reference_mode(reference, args.local)?;
        let change = move |_: u32, _: bool| new;
        return change_modes(args, &names, change, global);
    }
    if are_on_hosts {
        return hosts::tools::chmod(args, global);
    }
    let text = args.mode.to_string_lossy();
    let mode = mode::change(&text)
        .map_err(|why| Stop::usage(format!("invalid value '{text}' for '<MODE>': {why}")))?;
    let change = move |old: u32, is_directory: bool| mode.apply(old, is_directory);
    change_modes(args, &names, change, global)
}

fn change_modes(
    args: &ArchiveChmodArgs,
    names: &[OsString],
    change: impl Fn(u32, bool) -> u32 + Clone + Send + Sync + 'static,
    global: &GlobalArgs,
) -> Result<Exit> {
    let places = NamedPlace::parse_all(names, args.local)?;
    let locals: Vec<_> = places.iter().filter_map(NamedPlace::local).collect();
    if locals.is_empty() {
        let change = RightsChange::Mode(&change);
        return change_all(&args.on, names, (&change, ToldRights::Mode), global);
    }
    if locals.len() < names.len() {
        let text = "name what is archived and what is on this machine in two commands";
        return Err(Stop::usage(text).into());
    }
    local::change::modes(&locals, (&args.on, args.local), change, global)
}

/// The mode of a file.
fn reference_mode(name: &OsStr, is_local: bool) -> Result<u32> {
    match NamedPlace::parse(name, is_local)? {
        NamedPlace::Archived(_) => Ok(rights_of(name)?.mode),
        NamedPlace::Local(path) => {
            let found = std::fs::metadata(&path);
            let found = found.with_context(|| printable(&path.display().to_string()))?;
            Ok(found.permissions().mode() & 0o7777)
        }
    }
}

/// Changes owners and groups.
pub fn chown(args: &ArchiveChownArgs, global: &GlobalArgs) -> Result<Exit> {
    let names = addresses(&args.owner, &args.on.names, args.on.reference.as_ref());
    let ((uid, gid), told) = match &args.on.reference {
        Some(reference) => {
            let of = rights_of(reference)?;
            let owner = sheaf_file::user_name(of.uid).unwrap_or_else(|| of.uid.to_string());
            let group = sheaf_file::group_name(of.gid).unwrap_or_else(|| of.gid.to_string());
            ((Some(of.uid), Some(of.gid)), (Some(owner), Some(group)))
        }
        None => {
            let text = args.owner.to_string_lossy();
            let (owner_text, group) = text.split_once(':').unwrap_or((&text, ""));
            let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            (owner(&args.owner)?, (said(owner_text), said(group)))
        }
    };
    let told = ToldRights::Owner { owner: told.0, group: told.1 };
    change_all(&args.on, &names, (&RightsChange::Owner { uid, gid }, told), global)
}

/// The numbers of `OWNER:GROUP`, which are names or numbers of this machine.
fn owner(text: &OsStr) -> Result<(Option<u32>, Option<u32>)> {
    let text = text.to_string_lossy();
    let invalid =
        |why: String| Stop::usage(format!("invalid value '{text}' for '<OWNER[:GROUP]>': {why}"));
    sheaf_cli::arguments::owner(&text).map_err(invalid)?;
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
    (change, told): (&RightsChange<'_>, ToldRights),
    global: &GlobalArgs,
) -> Result<Exit> {
    let parsed: Result<Vec<_>> = names.iter().map(|name| ArchivedName::parse(name)).collect();
    let options = RightsOptions { recursive: args.recursive, dry_run: args.dry_run };
    let mut changes = RightsChanges {
        change,
        options,
        all: RightsReport::default(),
        failed: 0,
        is_silent: args.silent,
        together: None,
        tells: tells(args, global),
        printer: RightsPrinter::new(told, args.dry_run, global),
        store: Vec::new(),
    };
    for (said, name) in names.iter().zip(parsed?) {
        let changed = changes.named(said, &name);
        if changed.is_err() {
            // What was named before it is changed all the same.
            changes.files()?;
        }
        changed?;
    }
    changes.files()?;
    changes.printer.flush()?;
    let RightsChanges { all, failed, .. } = changes;
    if global.json {
        let record = ArchiveChanged {
            changed: all.changed,
            unchanged: all.unchanged,
            failed,
            dry_run: options.dry_run,
        };
        Output::new(global).records.write(&mut output::stdout(), &record)?;
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
    /// What cannot be changed is not told.
    is_silent: bool,
    together: Option<FilesTogether>,
    tells: ModesTold,
    printer: RightsPrinter,
    /// The store of the last name with the `::` behind it, as it was written.
    store: Vec<u8>,
}

impl RightsChanges<'_> {
    fn named(&mut self, said: &OsStr, name: &ArchivedName) -> Result<()> {
        if !self.together.as_ref().is_some_and(|together| together.is_of(&name.store)) {
            self.files()?;
            self.together = None;
        }
        self.store = store_of(said).to_vec();
        let together = match &mut self.together {
            Some(together) => together,
            none => none.insert(FilesTogether::new(&name.store)?),
        };
        for path in name.paths(&together.archive)? {
            let is_directory = together.archive.catalog().directory(&path)?.is_some();
            if !is_directory && together.push(&path) {
                continue;
            }
            let (printer, store, mut printed) = (&mut self.printer, &self.store, Ok(()));
            let mut each = |step| {
                if printed.is_ok() {
                    printed = printer.archived(store, &step);
                }
            };
            let told = RightsTold { tells: self.tells, each: &mut each };
            let archive = &together.archive;
            match change_rights_told(archive, &path, self.change, self.options, Some(told)) {
                Ok(report) => self.all += report,
                Err(error) => failed((&mut self.failed, self.is_silent), 1, &error),
            }
            printed?;
        }
        Ok(())
    }

    /// Changes the files that wait.
    fn files(&mut self) -> Result<()> {
        let Some(together) = &mut self.together else { return Ok(()) };
        for (directory, names) in together.take() {
            let (archive, options) = (&together.archive, self.options);
            let (printer, store, mut printed) = (&mut self.printer, &self.store, Ok(()));
            let mut each = |step| {
                if printed.is_ok() {
                    printed = printer.archived(store, &step);
                }
            };
            let told = Some(RightsTold { tells: self.tells, each: &mut each });
            let done = change_rights_of_files_told(
                archive,
                &directory,
                &names,
                self.change,
                options,
                told,
            );
            printed?;
            match done {
                Ok((report, missing)) => {
                    self.all += report;
                    for name in missing {
                        let path = directory.join(&name);
                        let error = ArchiveError::NotArchived { path };
                        failed((&mut self.failed, self.is_silent), 1, &error);
                    }
                }
                Err(error) => {
                    failed((&mut self.failed, self.is_silent), names.len() as u64, &error);
                }
            }
        }
        Ok(())
    }
}

/// Tells why some are not changed.
fn failed((failed, is_silent): (&mut u64, bool), count: u64, error: &ArchiveError) {
    *failed += count;
    if !is_silent {
        output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
    }
}
