//! `sheaf archive ls`: what is in an archive.
use super::place::{self, ArchivedName};
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use crate::output::json::put_text;
use crate::output::{self, Output, printable};
use anyhow::Result;
use clap::Args;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, ArchivedFile, MemberAttributes, MemberKind,
};
use sheaf_tools::report::human;
use sheaf_tools::report::time::{Clock, TimeStyle};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Write;

/// List what is archived
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf archive ls -l /backup::/home
  sheaf archive ls -R /backup::/")]
pub struct ArchiveLsArgs {
    /// Archived files and directories
    #[arg(value_name = "STORE::PATH", required = true)]
    pub names: Vec<OsString>,

    /// Long format: mode, owner, group, size, time
    #[arg(short)]
    pub long: bool,

    /// Long format with the numbers of owners and groups
    #[arg(short, long)]
    pub numeric_uid_gid: bool,

    /// Show entries whose name starts with a dot, too
    #[arg(short, long, visible_short_alias = 'A', visible_alias = "almost-all")]
    pub all: bool,

    /// List directories below, too
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// List directories themselves, not what is in them
    #[arg(short, long)]
    pub directory: bool,

    /// Sizes as 4.0K, 234M, 2.1G
    #[arg(short = 'h', long)]
    pub human_readable: bool,

    /// One entry on each line, as always
    #[arg(short = '1', hide = true)]
    pub one_per_line: bool,
}

/// Lists what is archived.
pub fn run(args: &ArchiveLsArgs, global: &GlobalArgs) -> Result<Exit> {
    let names: Result<Vec<_>> = args.names.iter().map(|name| ArchivedName::parse(name)).collect();
    let mut lister = ArchiveLister::new(args, global);
    for name in names? {
        let archive = place::open(&name.store, false)?;
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
    out: output::Stdout,
    output: Output,
    clock: Clock,
    owners: HashMap<u32, String>,
    groups: HashMap<u32, String>,
    /// Whether directories are headed by their names, and whether one was.
    has_heads: bool,
    is_first: bool,
    has_failed: bool,
}

/// What is shown of a file.
struct ShownFile<'a> {
    kind: char,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: (i64, u32),
    link: Option<&'a [u8]>,
}

impl<'a> ArchiveLister<'a> {
    fn new(args: &'a ArchiveLsArgs, global: &GlobalArgs) -> Self {
        Self {
            args,
            out: output::stdout(),
            output: Output::new(global),
            clock: Clock { zone: TimeZone::system(), now: jiff::Timestamp::now() },
            owners: HashMap::new(),
            groups: HashMap::new(),
            has_heads: args.recursive || args.names.len() > 1,
            is_first: true,
            has_failed: false,
        }
    }

    /// Lists one name.
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
            return self.entry(path, &path.as_bytes(), &found);
        }
        if !self.args.recursive {
            return self.directory(archive, path);
        }
        let mut last: Option<ArchivePath> = None;
        loop {
            let next = archive.catalog().below(path, last.as_ref(), 1024)?;
            let Some((behind, _)) = next.last() else { return Ok(()) };
            last = Some(behind.clone());
            for (below, _) in next {
                if self.args.all || !has_hidden(&below, path) {
                    self.directory(archive, &below)?;
                }
            }
        }
    }

    fn directory(&mut self, archive: &Archive, path: &ArchivePath) -> Result<()> {
        if self.has_heads && !self.output.json {
            let between = if std::mem::take(&mut self.is_first) { "" } else { "\n" };
            writeln!(self.out, "{between}{}:", printable(&path.to_string()))?;
        }
        let listing = match archive.list(path) {
            Ok(listing) => listing,
            Err(error) => {
                self.failed(&error);
                return Ok(());
            }
        };
        for found in listing {
            match found {
                Ok((name, _)) if name.starts_with(b".") && !self.args.all => {}
                Ok((name, file)) => self.entry(&path.join(&name), &name, &file)?,
                Err(error) => self.failed(&error),
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &ArchivePath, name: &[u8], file: &ArchivedFile) -> Result<()> {
        if self.output.json {
            return Ok(self.output.records.write(&mut self.out, record_of(path, file))?);
        }
        let shown = shown(file);
        if self.args.long || self.args.numeric_uid_gid {
            let long = self.long(&shown);
            self.out.write_all(long.as_bytes())?;
        }
        self.name(name)?;
        if let Some(link) = shown.link.filter(|_| self.args.long || self.args.numeric_uid_gid) {
            self.out.write_all(b" -> ")?;
            self.name(link)?;
        }
        Ok(self.out.write_all(b"\n")?)
    }

    /// A name as it is, but where a terminal would take some of it for a command.
    fn name(&mut self, name: &[u8]) -> Result<()> {
        if self.output.stdout_is_terminal {
            write!(self.out, "{}", printable(&String::from_utf8_lossy(name)))?;
        } else {
            self.out.write_all(name)?;
        }
        Ok(())
    }

    /// Mode, owner, group, size and time.
    fn long(&mut self, shown: &ShownFile<'_>) -> String {
        let (owner, group) = if self.args.numeric_uid_gid {
            (shown.uid.to_string(), shown.gid.to_string())
        } else {
            let or = |name: Option<String>, id: u32| name.unwrap_or_else(|| id.to_string());
            let (uid, gid) = (shown.uid, shown.gid);
            let owner = self.owners.entry(uid);
            let owner = owner.or_insert_with(|| or(sheaf_file::user_name(uid), uid)).clone();
            let group = self.groups.entry(gid);
            (owner, group.or_insert_with(|| or(sheaf_file::group_name(gid), gid)).clone())
        };
        let size =
            if self.args.human_readable { human::size(shown.size) } else { shown.size.to_string() };
        let time = TimeStyle::LongIso.format(shown.mtime.0, shown.mtime.1, &self.clock);
        let mode = human::permissions(shown.mode);
        format!("{}{mode} {owner:<8} {group:<8} {size:>10} {time} ", shown.kind)
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
            link: None,
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
    ShownFile { kind, mode: of.mode, uid: of.uid, gid: of.gid, size, mtime, link }
}

/// The record of an archived file.
pub fn record_of(path: &ArchivePath, file: &ArchivedFile) -> Value {
    let shown = shown(file);
    let kind = match shown.kind {
        'd' => "directory",
        'l' => "symlink",
        'p' => "fifo",
        'c' => "char device",
        'b' => "block device",
        _ => "file",
    };
    let mut record = Map::new();
    record.insert("type".to_owned(), "archived".into());
    put_text(&mut record, "path", &path.as_bytes());
    record.insert("kind".to_owned(), kind.into());
    record.insert("mode".to_owned(), format!("{:04o}", shown.mode).into());
    record.insert("uid".to_owned(), shown.uid.into());
    record.insert("gid".to_owned(), shown.gid.into());
    record.insert("size".to_owned(), shown.size.into());
    record.insert("mtime_s".to_owned(), shown.mtime.0.into());
    record.insert("mtime_ns".to_owned(), shown.mtime.1.into());
    if let Some(link) = shown.link {
        put_text(&mut record, "target", link);
    }
    Value::Object(record)
}
