//! `sheaf archive ls`: what is in an archive.
use super::entry::times::{ShownTime, TimeFormat};
use super::entry::{EntryFormat, EntryMemory, ShownFile, fields, kind};
use super::hosts;
use super::local;
use super::place::{self, NamedPlace};
use super::sorted::{EntryOrder, EntrySort, SortedEntries};
use super::version::AtArgs;
use anyhow::Result;
use clap::Args;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, ArchivedFile, DirectoryListing, MemberAttributes,
    MemberKind,
};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_records::Archived;
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

/// List what is archived, or directories of this machine or of hosts
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf archive ls -l /backup::/home
  sheaf archive ls -R /backup::/
  sheaf archive ls -lR /home/ada")]
pub struct ArchiveLsArgs {
    /// Archived files and directories, paths of this machine, or HOSTSET:PATH
    #[arg(value_name = "STORE::PATH|PATH", required = true)]
    pub names: Vec<OsString>,

    #[command(flatten)]
    pub version: AtArgs,

    /// Long format: mode, owner, group, size, time
    #[arg(short)]
    pub long: bool,

    /// Long format with the numbers of owners and groups
    #[arg(short, long)]
    pub numeric_uid_gid: bool,

    /// Long format without owners
    #[arg(short = 'g')]
    pub no_owner: bool,

    /// Long format without groups
    #[arg(short = 'o')]
    pub no_group_long: bool,

    /// Leave groups out of the long format
    #[arg(short = 'G', long)]
    pub no_group: bool,

    /// Put a mark of its kind behind each name: / directory, @ link, * program, | pipe, = socket
    #[arg(short = 'F', long, overrides_with = "slashes")]
    pub classify: bool,

    /// Put / behind the names of directories
    #[arg(short = 'p', overrides_with = "classify")]
    pub slashes: bool,

    /// Show the inodes of files of this machine
    #[arg(short, long)]
    pub inode: bool,

    /// Show the room that files take, in KiB
    #[arg(short = 's', long = "size")]
    pub blocks: bool,

    /// Show entries whose name starts with a dot, too
    #[arg(short, long, visible_short_alias = 'A', visible_alias = "almost-all")]
    pub all: bool,

    /// List directories below, too
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// The newest first
    #[arg(short = 't', overrides_with_all = ["by_size", "unsorted"])]
    pub by_time: bool,

    /// The largest first
    #[arg(short = 'S', overrides_with_all = ["by_time", "unsorted"])]
    pub by_size: bool,

    /// In no other order than that of names
    #[arg(short = 'U', overrides_with_all = ["by_time", "by_size"])]
    pub unsorted: bool,

    /// Show, and sort by, the times at which inodes were changed, on this machine
    #[arg(short = 'c', overrides_with = "access_time")]
    pub inode_time: bool,

    /// Show, and sort by, the times of the last access, on this machine
    #[arg(short = 'u', overrides_with = "inode_time")]
    pub access_time: bool,

    /// How times are shown: full-iso, long-iso, iso, locale, or +FORMAT as date takes it
    #[arg(long, value_name = "STYLE", value_parser = TimeFormat::parse)]
    pub time_style: Option<TimeFormat>,

    /// As -l --time-style full-iso
    #[arg(long)]
    pub full_time: bool,

    /// In reverse order
    #[arg(short, long)]
    pub reverse: bool,

    /// List directories themselves, not what is in them
    #[arg(short, long)]
    pub directory: bool,

    /// Sizes as 4.0K, 234M, 2.1G
    #[arg(short = 'h', long)]
    pub human_readable: bool,

    /// Take each name for a path of this machine, even with `:` or `::` in it
    #[arg(long)]
    pub local: bool,

    /// One entry on each line, as always
    #[arg(short = '1', hide = true)]
    pub one_per_line: bool,

    /// Room in KiB, as always
    #[arg(short = 'k', long, hide = true)]
    pub kibibytes: bool,
}

impl ArchiveLsArgs {
    /// Whether the long format is meant.
    pub fn is_long(&self) -> bool {
        self.long || self.numeric_uid_gid || self.no_owner || self.no_group_long || self.full_time
    }

    /// Which time is shown.
    pub fn time(&self) -> ShownTime {
        match self {
            Self { inode_time: true, .. } => ShownTime::Inode,
            Self { access_time: true, .. } => ShownTime::Access,
            _ => ShownTime::Content,
        }
    }

    fn sort(&self) -> EntrySort {
        // A time that is not shown is what is sorted by.
        let by_shown_time = self.time() != ShownTime::Content && !self.is_long();
        let by = match self {
            Self { unsorted: true, .. } => return EntrySort::default(),
            Self { by_time: true, .. } => EntryOrder::Times,
            Self { by_size: true, .. } => EntryOrder::Sizes,
            _ if by_shown_time => EntryOrder::Times,
            _ => EntryOrder::Names,
        };
        EntrySort { by, is_reverse: self.reverse }
    }

    /// The option that says what is not known of archived files.
    fn unknown_of_archived(&self) -> Option<&'static str> {
        match self {
            Self { inode: true, .. } => Some("-i"),
            Self { inode_time: true, .. } => Some("-c"),
            Self { access_time: true, .. } => Some("-u"),
            _ => None,
        }
    }
}

/// Lists what is archived.
pub fn run(args: &ArchiveLsArgs, global: &GlobalArgs) -> Result<Exit> {
    if hosts::are_on_hosts(&args.names, args.local)? {
        return hosts::tools::ls(args, global);
    }
    let names = NamedPlace::parse_all(&args.names, args.local)?;
    let has_archived = names.iter().any(|name| matches!(name, NamedPlace::Archived(_)));
    if let Some(option) = args.unknown_of_archived().filter(|_| has_archived) {
        let text = format!("{option} is for paths of this machine: the archive does not keep it");
        return Err(Stop::usage(text).into());
    }
    let mut lister = ArchiveLister::new(args, global);
    for name in names {
        let name = match name {
            NamedPlace::Archived(name) => name,
            NamedPlace::Local(path) => {
                lister.local(&path)?;
                continue;
            }
        };
        let archive = place::open_to_read(&name.store)?;
        let paths = name.paths(&archive)?;
        lister.has_heads |= paths.len() > 1;
        for path in paths {
            lister.list(&archive, &path)?;
        }
    }
    lister.out.flush()?;
    Ok(if lister.has_failed { Exit::Partial } else { Exit::Success })
}

struct ArchiveLister<'a> {
    args: &'a ArchiveLsArgs,
    out: BufWriter<output::Stdout>,
    output: Output,
    format: Arc<EntryFormat>,
    memory: EntryMemory,
    /// Room for a line.
    text: Vec<u8>,
    sort: EntrySort,
    sorted: SortedEntries,
    /// Whether directories are headed by their names, and whether one was.
    has_heads: bool,
    is_first: bool,
    has_failed: bool,
}

impl<'a> ArchiveLister<'a> {
    fn new(args: &'a ArchiveLsArgs, global: &GlobalArgs) -> Self {
        let output = Output::new(global);
        Self {
            args,
            out: output::stdout_in_blocks(),
            output,
            format: Arc::new(EntryFormat::new(args, output)),
            memory: EntryMemory::default(),
            text: Vec::new(),
            sort: args.sort(),
            sorted: SortedEntries::default(),
            has_heads: args.recursive || args.names.len() > 1,
            is_first: true,
            has_failed: false,
        }
    }

    fn local(&mut self, path: &Path) -> Result<()> {
        let listing = local::list::LocalListing {
            format: self.format.clone(),
            all: self.args.all,
            recursive: self.args.recursive,
            directory: self.args.directory,
            time: self.args.time(),
            sort: self.sort,
        };
        let has_heads = self.has_heads && !self.output.json;
        let is_whole =
            local::list::print(listing, path, &mut self.out, has_heads, &mut self.is_first)?;
        self.has_failed |= !is_whole;
        Ok(())
    }

    fn list(&mut self, archive: &Archive, path: &ArchivePath) -> Result<()> {
        let found = match archive.look_up(path) {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.failed(&ArchiveError::NotArchived { path: path.clone() });
                return Ok(());
            }
            Err(error) => {
                self.failed(&error);
                return Ok(());
            }
        };
        if self.args.directory || !matches!(found, ArchivedFile::Directory(_)) {
            let name = path.as_bytes();
            self.entry(&name, &name, &found)?;
            return self.sorted.write(self.sort, &mut self.out);
        }
        if !self.args.recursive {
            return self.directory(path, archive.list(path));
        }
        archive.list_all(path, |below, listing| {
            if self.args.all || !has_hidden(below, path) {
                self.directory(below, listing)?;
            }
            Ok(())
        })
    }

    fn directory(
        &mut self,
        path: &ArchivePath,
        listing: Result<DirectoryListing<'_>, ArchiveError>,
    ) -> Result<()> {
        if self.has_heads && !self.output.json {
            let between = if std::mem::take(&mut self.is_first) { "" } else { "\n" };
            writeln!(self.out, "{between}{}:", printable(&path.to_string()))?;
        }
        let listing = match listing {
            Ok(listing) => listing,
            Err(error) => {
                self.failed(&error);
                return Ok(());
            }
        };
        for found in listing {
            match found {
                Ok((name, _)) if name.starts_with(b".") && !self.args.all => {}
                Ok((name, file)) if self.output.json => {
                    self.entry(&path.join(&name).as_bytes(), &name, &file)?;
                }
                Ok((name, file)) => self.entry(&[], &name, &file)?,
                Err(error) => self.failed(&error),
            }
        }
        self.sorted.write(self.sort, &mut self.out)
    }

    /// Shows a file by its name, or with `--json` its path.
    fn entry(&mut self, path: &[u8], name: &[u8], file: &ArchivedFile) -> Result<()> {
        let shown = shown(file);
        self.text.clear();
        if self.output.json {
            self.output.records.write(&mut self.text, &archived(path, &shown))?;
        } else {
            self.format.put(&mut self.memory, &mut self.text, name, &shown);
        }
        if self.sort.is_none() {
            return Ok(self.out.write_all(&self.text)?);
        }
        self.sorted.add(self.sort, &shown, &self.text);
        Ok(())
    }

    fn failed(&mut self, error: &ArchiveError) {
        self.has_failed = true;
        output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
    }
}

/// Whether a name on the way from a directory to one below it begins with a dot.
fn has_hidden(below: &ArchivePath, from: &ArchivePath) -> bool {
    let way = below.within(from);
    way.is_some_and(|way| way.parts().any(|part| part.starts_with(b".")))
}

fn shown(file: &ArchivedFile) -> ShownFile<'_> {
    match file {
        ArchivedFile::Member { member, .. } => shown_file(&member.attributes, member.size),
        ArchivedFile::Object(object) => shown_file(&object.attributes, object.size),
        ArchivedFile::Directory(is) => ShownFile {
            kind: 'd',
            mode: is.mode,
            uid: is.uid,
            gid: is.gid,
            size: 0,
            mtime: (is.mtime_s, is.mtime_ns),
            time: (is.mtime_s, is.mtime_ns),
            link: None,
            target: None,
            inode: 0,
            room: 0,
        },
    }
}

fn shown_file(of: &MemberAttributes, size: u64) -> ShownFile<'_> {
    // A hard link is shown as the file that it is.
    let link = of.link().filter(|_| matches!(of.kind, MemberKind::Symlink { .. }));
    let mtime = (of.mtime.seconds, of.mtime.nanoseconds);
    let kind = match of.kind {
        MemberKind::File | MemberKind::HardLink { .. } => '-',
        MemberKind::Symlink { .. } => 'l',
        MemberKind::Fifo => 'p',
        MemberKind::CharDevice { .. } => 'c',
        MemberKind::BlockDevice { .. } => 'b',
    };
    let (mode, uid, gid) = (of.mode, of.uid, of.gid);
    let (time, target, inode, room) = (mtime, None, 0, size);
    // As the system says of a link.
    let size = link.map_or(size, |link| link.len() as u64);
    ShownFile { kind, mode, uid, gid, size, mtime, time, link, target, inode, room }
}

/// The record of an archived file.
pub fn record_of(path: &ArchivePath, file: &ArchivedFile) -> Archived {
    archived(&path.as_bytes(), &shown(file))
}

fn archived(path: &[u8], shown: &ShownFile<'_>) -> Archived {
    Archived { store: None, store_base64: None, kind: kind(shown), file: fields(path, shown) }
}
