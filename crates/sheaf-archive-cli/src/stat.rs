//! `sheaf archive stat`: all that is known of archived files.
use super::ls::record_of;
use super::place::{self, ArchivedName};
use super::version::AtArgs;
use anyhow::Result;
use clap::Args;
use jiff::tz::TimeZone;
use serde_json::Value;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, ArchivedFile, ArchivedPack, MemberAttributes,
};
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_records::{ArchiveStat, Archived, PackFields, StoredPlace, Xattr, text};
use sheaf_tools::report::human;
use sheaf_tools::report::time::{Clock, TimeStyle};
use std::ffi::OsString;
use std::io::Write;

/// Show all that is known of archived files and directories
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf archive stat /backup::/home/ada/thesis.tex
  sheaf archive stat --packs '/backup::/home/*'")]
pub struct ArchiveStatArgs {
    /// Archived files and directories
    #[arg(value_name = "STORE::PATH", required = true)]
    pub names: Vec<OsString>,

    #[command(flatten)]
    pub version: AtArgs,

    /// Say which object of the store has it, and where there; of a directory, its packs, and what is
    /// removed of them
    #[arg(long)]
    pub packs: bool,
}

/// Shows what is known.
pub fn run(args: &ArchiveStatArgs, global: &GlobalArgs) -> Result<Exit> {
    let names: Result<Vec<_>> = args.names.iter().map(|name| ArchivedName::parse(name)).collect();
    let (output, mut out) = (Output::new(global), output::stdout_in_blocks());
    let mut exit = Exit::Success;
    for name in names? {
        let archive = place::open_to_read(&name.store)?;
        for path in name.paths(&archive)? {
            match known(&archive, &path, args.packs) {
                Ok(record) if output.json => output.records.write(&mut out, &record)?,
                Ok(record) => show(&mut out, &path, &serde_json::to_value(&record)?)?,
                Err(error @ ArchiveError::Catalog(_)) => return Err(error.into()),
                Err(error) => {
                    exit = Exit::Partial;
                    output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
                }
            }
        }
    }
    out.flush()?;
    Ok(exit)
}

/// The record of what is known.
fn known(archive: &Archive, path: &ArchivePath, packs: bool) -> Result<ArchiveStat, ArchiveError> {
    let missing = || ArchiveError::NotArchived { path: path.clone() };
    let file = archive.look_up(path)?.ok_or_else(missing)?;
    let Archived { kind, file: fields, .. } = record_of(path, &file);
    let mut record = ArchiveStat {
        kind,
        file: fields,
        stored_bytes: None,
        ctime_ns: None,
        ino: None,
        blake3: None,
        changed: None,
        files: None,
        xattrs: Vec::new(),
        place: None,
        packs: None,
    };
    let (rows, own) = match &file {
        ArchivedFile::Directory(_) => (archive.catalog().rows_of(path)?, true),
        _ => {
            let (above, _) = path.split().ok_or_else(missing)?;
            (archive.catalog().rows_of(&above)?, false)
        }
    };
    match &file {
        ArchivedFile::Directory(is) => {
            record.xattrs = xattrs(&is.xattrs);
            record.changed = Some(rows.changed);
            let members: u64 = rows.packs.iter().map(|pack| u64::from(pack.members)).sum();
            record.files = Some(members + rows.objects.len() as u64);
        }
        ArchivedFile::Member { member, .. } => {
            put_attributes(&mut record, &member.attributes);
            record.stored_bytes = Some(member.stored_bytes());
            record.blake3 = digest(&member.digest, &file);
        }
        ArchivedFile::Object(object) => {
            put_attributes(&mut record, &object.attributes);
            record.stored_bytes = Some(object.stored_bytes());
            record.blake3 = digest(&object.digest, &file);
        }
    }
    if packs {
        record.place = match &file {
            ArchivedFile::Directory(_) => None,
            ArchivedFile::Object(object) => object.place.as_ref().map(|place| {
                let (key, at) = place.object();
                let (mut named, bytes) = (key.as_str().to_owned(), object.stored_bytes());
                if let Some(more @ 1..) = place.objects().checked_sub(1) {
                    named += &format!(" and {more} more");
                }
                let object = named;
                StoredPlace { object, offset: at, bytes, generation: None }
            }),
            ArchivedFile::Member { member, pack } => {
                let row = rows.packs.iter().find(|row| row.id == *pack).ok_or_else(missing)?;
                Some(StoredPlace {
                    object: archive.pack_space(row)?.tar.as_str().to_owned(),
                    offset: member.content_at(),
                    bytes: member.stored_bytes(),
                    generation: Some(row.generation),
                })
            }
        };
        if own {
            let packs = rows.packs.iter().map(|row| pack_fields(archive, row));
            record.packs = Some(packs.collect::<Result<_, _>>()?);
        }
    }
    Ok(record)
}

fn pack_fields(archive: &Archive, row: &ArchivedPack) -> Result<PackFields, ArchiveError> {
    let space = archive.pack_space(row)?;
    let ((first, first_base64), (last, last_base64)) = (text(&row.first), text(&row.last));
    Ok(PackFields {
        object: space.tar.as_str().to_owned(),
        index: space.index.as_str().to_owned(),
        generation: row.generation,
        members: u64::from(row.members),
        content_bytes: row.content_bytes,
        tar_bytes: row.tar_bytes,
        index_bytes: row.index_bytes,
        live_bytes: space.live_bytes,
        dead_bytes: space.dead_bytes,
        first,
        first_base64,
        last,
        last_base64,
    })
}

fn put_attributes(record: &mut ArchiveStat, of: &MemberAttributes) {
    record.ctime_ns = of.ctime().map(|(time, _)| time);
    record.ino = (of.ino != 0).then_some(of.ino);
    record.xattrs = xattrs(&of.xattrs);
}

fn xattrs(of: &[(Vec<u8>, Vec<u8>)]) -> Vec<Xattr> {
    let each = of.iter().map(|(name, value)| {
        let ((name, name_base64), (value, value_base64)) = (text(name), text(value));
        Xattr { name, name_base64, value, value_base64 }
    });
    each.collect()
}

/// The digest of what has a content.
fn digest(digest: &[u8; 32], file: &ArchivedFile) -> Option<String> {
    let is_file = match file {
        ArchivedFile::Directory(_) => false,
        ArchivedFile::Member { member, .. } => is_file(&member.attributes),
        ArchivedFile::Object(object) => is_file(&object.attributes),
    };
    is_file.then(|| blake3::Hash::from_bytes(*digest).to_string())
}

fn is_file(of: &MemberAttributes) -> bool {
    use sheaf_archive::MemberKind;
    matches!(of.kind, MemberKind::File | MemberKind::HardLink { .. })
}

/// Shows a record in lines.
fn show(out: &mut impl Write, path: &ArchivePath, record: &Value) -> Result<()> {
    let number = |name: &str| record.get(name).and_then(Value::as_u64);
    let text = |name: &str| {
        let value = record.get(name);
        let said = value.map(|value| value.as_str().map_or_else(|| value.to_string(), Into::into));
        printable(&said.unwrap_or_default())
    };
    let mut line = |name: &str, value: &str| writeln!(out, "{name:>11}: {value}");
    line("path", &printable(&path.to_string()))?;
    line("kind", &text("kind"))?;
    if record.get("target").is_some() {
        line("target", &text("target"))?;
    }
    let id = |name: &str| u32::try_from(number(name).unwrap_or(0)).unwrap_or(u32::MAX);
    let (uid, gid) = (id("uid"), id("gid"));
    let named = |id: u32, name: Option<String>| match name {
        Some(name) => format!("{name} ({id})"),
        None => id.to_string(),
    };
    line("mode", &text("mode"))?;
    line("owner", &named(uid, sheaf_file::user_name(uid)))?;
    line("group", &named(gid, sheaf_file::group_name(gid)))?;
    line("size", &text("size"))?;
    if record.get("stored_bytes").is_some_and(|stored| Some(stored) != record.get("size")) {
        line("stored", &text("stored_bytes"))?;
    }
    let clock = Clock { zone: TimeZone::system(), now: jiff::Timestamp::now() };
    let seconds = record.get("mtime_s").and_then(Value::as_i64).unwrap_or(0);
    let nanoseconds = id("mtime_ns");
    line("modified", &TimeStyle::FullIso.format(seconds, nanoseconds, &clock))?;
    if let Some(ctime) = number("ctime_ns").map(u64::cast_signed) {
        let (seconds, rest) = (ctime.div_euclid(1_000_000_000), ctime.rem_euclid(1_000_000_000));
        let nanoseconds = u32::try_from(rest).unwrap_or(0);
        line("changed", &TimeStyle::FullIso.format(seconds, nanoseconds, &clock))?;
    }
    for (name, shown) in [("ino", "inode"), ("files", "files"), ("blake3", "blake3")] {
        if record.get(name).is_some() {
            line(shown, &text(name))?;
        }
    }
    for xattr in record.get("xattrs").and_then(Value::as_array).into_iter().flatten() {
        let part = |name: &str| {
            xattr.get(name).map_or_else(String::new, |part| {
                part.as_str().map_or_else(|| part.to_string(), ToOwned::to_owned)
            })
        };
        line("xattr", &printable(&format!("{} = {}", part("name"), part("value"))))?;
    }
    if let Some(place) = record.get("place") {
        let part = |name: &str| place.get(name).map(Value::to_string).unwrap_or_default();
        let object = place.get("object").and_then(Value::as_str).unwrap_or_default();
        let mut said = format!("{object}, {} bytes from {} on", part("bytes"), part("offset"));
        if place.get("generation").is_some() {
            said += &format!(", generation {}", part("generation"));
        }
        line("in", &said)?;
    }
    for pack in record.get("packs").and_then(Value::as_array).into_iter().flatten() {
        let bytes = |name: &str| human::size(pack.get(name).and_then(Value::as_u64).unwrap_or(0));
        let object = pack.get("object").and_then(Value::as_str).unwrap_or_default();
        let count = |name: &str| pack.get(name).and_then(Value::as_u64).unwrap_or(0);
        let members = super::counted(count("members"), "member", "members");
        let (live, dead) = (bytes("live_bytes"), bytes("dead_bytes"));
        let generation = count("generation");
        let said =
            format!("{object}: {members}, {live} live, {dead} dead, generation {generation}");
        line("pack", &said)?;
    }
    Ok(())
}
