//! `sheaf archive stat`: all that is known of archived files.
use super::ls::record_of;
use super::place::{self, ArchivedName};
use anyhow::Result;
use clap::Args;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, ArchivedFile, ArchivedPack, MemberAttributes,
};
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::json::put_text;
use sheaf_cli::output::{self, Output, printable};
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
                Ok(record) if output.json => output.records.write(&mut out, record.into())?,
                Ok(record) => show(&mut out, &path, &record)?,
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
fn known(
    archive: &Archive,
    path: &ArchivePath,
    packs: bool,
) -> Result<Map<String, Value>, ArchiveError> {
    let missing = || ArchiveError::NotArchived { path: path.clone() };
    let file = archive.look_up(path)?.ok_or_else(missing)?;
    let Value::Object(mut record) = record_of(path, &file) else { return Err(missing()) };
    record.insert("type".to_owned(), "archive_stat".into());
    let (rows, own) = match &file {
        ArchivedFile::Directory(_) => (archive.catalog().rows_of(path)?, true),
        _ => {
            let (above, _) = path.split().ok_or_else(missing)?;
            (archive.catalog().rows_of(&above)?, false)
        }
    };
    match &file {
        ArchivedFile::Directory(is) => {
            put_xattrs(&mut record, &is.xattrs);
            record.insert("changed".to_owned(), rows.changed.into());
            let members: u64 = rows.packs.iter().map(|pack| u64::from(pack.members)).sum();
            record.insert("files".to_owned(), (members + rows.objects.len() as u64).into());
        }
        ArchivedFile::Member { member, .. } => {
            put_attributes(&mut record, &member.attributes);
            record.insert("stored_bytes".to_owned(), member.stored_bytes().into());
            put_digest(&mut record, &member.digest, &file);
        }
        ArchivedFile::Object(object) => {
            put_attributes(&mut record, &object.attributes);
            record.insert("stored_bytes".to_owned(), object.stored_bytes().into());
            put_digest(&mut record, &object.digest, &file);
        }
    }
    if packs {
        let place = match &file {
            ArchivedFile::Directory(_) => None,
            ArchivedFile::Object(object) => object.place.as_ref().map(|place| {
                let (key, at) = place.object();
                json!({ "object": key.as_str(), "offset": at, "bytes": object.stored_bytes() })
            }),
            ArchivedFile::Member { member, pack } => {
                let row = rows.packs.iter().find(|row| row.id == *pack).ok_or_else(missing)?;
                Some(json!({
                    "object": archive.pack_space(row)?.tar.as_str(),
                    "offset": member.content_at(),
                    "bytes": member.stored_bytes(),
                    "generation": row.generation,
                }))
            }
        };
        if let Some(place) = place {
            record.insert("place".to_owned(), place);
        }
        if own {
            let all: Result<Vec<Value>, _> =
                rows.packs.iter().map(|row| pack_record(archive, row)).collect();
            record.insert("packs".to_owned(), all?.into());
        }
    }
    Ok(record)
}

fn pack_record(archive: &Archive, row: &ArchivedPack) -> Result<Value, ArchiveError> {
    let space = archive.pack_space(row)?;
    let mut record = Map::new();
    record.insert("object".to_owned(), space.tar.as_str().into());
    record.insert("index".to_owned(), space.index.as_str().into());
    for (name, number) in [
        ("generation", row.generation),
        ("members", row.members.into()),
        ("content_bytes", row.content_bytes),
        ("tar_bytes", row.tar_bytes),
        ("index_bytes", row.index_bytes),
        ("live_bytes", space.live_bytes),
        ("dead_bytes", space.dead_bytes),
    ] {
        record.insert(name.to_owned(), number.into());
    }
    put_text(&mut record, "first", &row.first);
    put_text(&mut record, "last", &row.last);
    Ok(Value::Object(record))
}

fn put_attributes(record: &mut Map<String, Value>, of: &MemberAttributes) {
    if of.ctime_ns != 0 {
        record.insert("ctime_ns".to_owned(), of.ctime_ns.into());
    }
    if of.ino != 0 {
        record.insert("ino".to_owned(), of.ino.into());
    }
    put_xattrs(record, &of.xattrs);
}

fn put_xattrs(record: &mut Map<String, Value>, xattrs: &[(Vec<u8>, Vec<u8>)]) {
    let each = xattrs.iter().map(|(name, value)| {
        let mut one = Map::new();
        put_text(&mut one, "name", name);
        put_text(&mut one, "value", value);
        Value::Object(one)
    });
    record.insert("xattrs".to_owned(), each.collect::<Vec<_>>().into());
}

/// The digest of what has a content.
fn put_digest(record: &mut Map<String, Value>, digest: &[u8; 32], file: &ArchivedFile) {
    let is_file = match file {
        ArchivedFile::Directory(_) => false,
        ArchivedFile::Member { member, .. } => is_file(&member.attributes),
        ArchivedFile::Object(object) => is_file(&object.attributes),
    };
    if is_file {
        record.insert("blake3".to_owned(), blake3::Hash::from_bytes(*digest).to_string().into());
    }
}

fn is_file(of: &MemberAttributes) -> bool {
    use sheaf_archive::MemberKind;
    matches!(of.kind, MemberKind::File | MemberKind::HardLink { .. })
}

/// Shows a record in lines.
fn show(out: &mut impl Write, path: &ArchivePath, record: &Map<String, Value>) -> Result<()> {
    let number = |name: &str| record.get(name).and_then(Value::as_u64);
    let text = |name: &str| {
        let value = record.get(name);
        let said = value.map(|value| value.as_str().map_or_else(|| value.to_string(), Into::into));
        printable(&said.unwrap_or_default())
    };
    let mut line = |name: &str, value: &str| writeln!(out, "{name:>11}: {value}");
    line("path", &printable(&path.to_string()))?;
    line("kind", &text("kind"))?;
    if record.contains_key("target") {
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
        if record.contains_key(name) {
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
