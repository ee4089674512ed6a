//! Archived names of the command line, and the archives they are in.
#[cfg(feature = "s3")]
pub mod bucket;
pub mod catalog;
#[cfg(feature = "s3")]
mod profile;

use super::local::change::refuse_in_store;
use super::version::archive_at;
use anyhow::{Context, Result};
#[cfg(feature = "s3")]
use sheaf_archive::S3Store;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, ArchivedFile, Catalog, CatalogError, HostStore, LocalStore,
    Store, StoreError, TapeSimulator, tape_simulator,
};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::output::{self, printable};
use sheaf_core::Errno;
use sheaf_file::{Pattern, PatternTree};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The store of names that begin with `::`.
const STORE_VARIABLE: &str = "SHEAF_ARCHIVE";
/// Whether an archive was opened whose log is damaged.
static IS_CUT_OFF: AtomicBool = AtomicBool::new(false);

/// The version of archives that are read, where another one is meant than what they are now.
static AT: OnceLock<String> = OnceLock::new();

/// What a name of the command line is of.
#[derive(Debug, PartialEq, Eq)]
pub enum NamedPlace {
    /// Something archived.
    Archived(ArchivedName),
    /// Files of this machine.
    Local(PathBuf),
}

impl NamedPlace {
    /// Reads `STORE::PATH`; what has no `::` is a path of this machine, and everything is with
    /// `is_local`.
    pub fn parse(text: &OsStr, is_local: bool) -> Result<Self> {
        if is_local || !text.as_bytes().windows(2).any(|two| two == b"::") {
            if AT.get().is_some() {
                let name = printable(&text.to_string_lossy());
                let text = format!("{name}: --at reads a version of an archive: say STORE::PATH");
                return Err(Stop::usage(text).into());
            }
            return Ok(Self::Local(text.into()));
        }
        Ok(Self::Archived(ArchivedName::parse(text)?))
    }

    /// The path, if it is one of this machine.
    pub fn local(&self) -> Option<&Path> {
        match self {
            Self::Local(path) => Some(path),
            Self::Archived(_) => None,
        }
    }

    /// Reads several.
    pub fn parse_all(texts: &[OsString], is_local: bool) -> Result<Vec<Self>> {
        texts.iter().map(|text| Self::parse(text, is_local)).collect()
    }
}

/// What `STORE::PATH` says.
#[derive(Debug, PartialEq, Eq)]
pub struct ArchivedName {
    /// The store's directory, `tape:` and that of a library of tapes, or the URL of a bucket.
    pub store: PathBuf,
    /// The path in it.
    pub path: ArchivePath,
    /// As it was written, if it may be a pattern.
    pattern: Option<String>,
}

impl ArchivedName {
    /// Reads `STORE::PATH`.
    pub fn parse(text: &OsStr) -> Result<Self> {
        let said = || printable(&text.to_string_lossy());
        let bytes = text.as_bytes();
        let Some(at) = bytes.windows(2).position(|two| two == b"::") else {
            let hint = hint_of(Path::new(text));
            let text = format!("{}: an archived name is STORE::PATH{hint}", said());
            return Err(Stop::usage(text).into());
        };
        let (store, path) = (&bytes[..at], &bytes[at + 2..]);
        let store = match store {
            b"" => std::env::var_os(STORE_VARIABLE).filter(|store| !store.is_empty()),
            store => Some(OsString::from(OsStr::from_bytes(store))),
        };
        // The variable may be written as the beginning of a name.
        let store = store.map(|store| match store.as_bytes().strip_suffix(b"::") {
            Some(store) => OsStr::from_bytes(store).to_owned(),
            None => store,
        });
        let Some(store) = store else {
            let text = format!("{}: say STORE::PATH, or set {STORE_VARIABLE}", said());
            return Err(Stop::usage(text).into());
        };
        let is_url = store.as_bytes().windows(3).any(|three| three == b"://");
        let is_bucket = cfg!(feature = "s3") && store.as_bytes().starts_with(b"s3://");
        if is_url && !is_bucket {
            let text = format!("{}: a store is a directory of this machine or s3://…", said());
            return Err(Stop::usage(text).into());
        }
        if let Some(hint) = looks_elsewhere(store.as_bytes()) {
            let kinds = match tape_simulator() {
                Some(_) => "a directory of this machine, s3://BUCKET/PREFIX or tape:DIR",
                None => "a directory of this machine or s3://BUCKET/PREFIX",
            };
            let text = format!("{}: a store is {kinds}{hint}", said());
            return Err(Stop::usage(printable(&text)).into());
        }
        let path_bytes = path;
        let Some(path) = ArchivePath::new(path) else {
            let text = format!("{}: there is no .. in an archive", said());
            return Err(Stop::usage(text).into());
        };
        let text = str::from_utf8(path_bytes).ok();
        let may_be_one = |text: &&str| text.contains('\\') || sheaf_file::is_pattern(text);
        let pattern = text.filter(may_be_one).map(ToOwned::to_owned);
        Ok(Self { store: store.into(), path, pattern })
    }

    /// As [`ArchivedName::parse`], of one directory, which is named as it is.
    pub fn parse_literal(text: &OsStr) -> Result<Self> {
        Ok(Self { pattern: None, ..Self::parse(text)? })
    }

    /// Refuses one that ends in `/.`, where it would not be what is in the directory that is meant.
    pub fn refuse_contents(text: &OsStr, doing: &str) -> Result<()> {
        let bytes = text.as_bytes();
        let is_archived = bytes.windows(2).any(|two| two == b"::");
        if is_archived && (bytes.ends_with(b"/.") || bytes.ends_with(b"::.")) {
            let text = printable(&text.to_string_lossy());
            let text =
                format!("{text}: what is in a directory is not {doing} so: say /* (and /.*)");
            return Err(Stop::usage(text).into());
        }
        Ok(())
    }

    /// Whether it is all that is archived, also as a pattern.
    pub fn is_everything(&self) -> bool {
        let text = self.pattern.as_deref().unwrap_or_default().trim_start_matches('/');
        self.path == ArchivePath::ROOT || matches!(text, "*" | "**" | "**/*")
    }

    /// Whether it may stand for several paths.
    pub fn is_pattern(&self) -> bool {
        self.pattern.is_some()
    }

    /// The paths that it stands for: itself, where there is such a name, or what is there that its pattern
    /// means. A backslash before a character says that it is meant as it is.
    pub fn paths(&self, archive: &Archive) -> Result<Vec<ArchivePath>> {
        let Some(text) = &self.pattern else { return Ok(vec![self.path.clone()]) };
        if archive.look_up(&self.path)?.is_some() {
            return Ok(vec![self.path.clone()]);
        }
        let pattern = Pattern::new(text).map_err(|error| Stop::usage(error.to_string()))?;
        let found = pattern.paths_in(&mut ArchivedTree(archive))?;
        if found.is_empty() {
            let text = printable(&format!("{text}: nothing archived has such a name"));
            return Err(Stop::Unmatched(text).into());
        }
        Ok(found.iter().map(|path| archive_path(path)).collect())
    }
}

/// What a path without `::` would be as an archived name, where it is a store or leads into one.
fn hint_of(path: &Path) -> String {
    let stores = path.ancestors().filter(|above| !above.as_os_str().is_empty());
    let Some(store) = stores.into_iter().find(|above| LocalStore::open(above).is_ok()) else {
        return String::new();
    };
    let said = |path: &Path| printable(&path.to_string_lossy()).trim_end_matches('/').to_owned();
    match path.strip_prefix(store) {
        Ok(within) if !within.as_os_str().is_empty() => {
            format!(": {}::{} is in this store", said(store), said(within))
        }
        _ => format!(": {}::/ is all that is in this store", said(path)),
    }
}

/// What to say of a store whose name means another machine to other programs, and would be a directory
/// with a colon in its name here.
fn looks_elsewhere(store: &[u8]) -> Option<String> {
    let first = store.split(|byte| *byte == b'/').next().unwrap_or(store);
    let at = first.iter().position(|byte| *byte == b':')?;
    if matches!(&first[..at], b"tape" | b"s3") && store[at..].starts_with(b"://")
        || first.starts_with(b"tape:") && tape_simulator().is_some()
    {
        return None;
    }
    let store = String::from_utf8_lossy(store);
    Some(match store.strip_prefix("s3:") {
        Some(bucket) => format!(" (s3://{bucket})"),
        None => format!(" (a directory of this name is ./{store})"),
    })
}

/// What is archived, for patterns.
struct ArchivedTree<'a>(&'a Archive);

impl PatternTree for ArchivedTree<'_> {
    type Error = ArchiveError;

    fn names(
        &mut self,
        directory: &[Vec<u8>],
        each: &mut dyn FnMut(&[u8], bool),
    ) -> Result<(), ArchiveError> {
        for found in self.0.list(&archive_path(directory))? {
            let (name, file) = found?;
            each(&name, matches!(file, ArchivedFile::Directory(_)));
        }
        Ok(())
    }

    fn is_directory(&mut self, path: &[Vec<u8>]) -> Result<Option<bool>, ArchiveError> {
        let found = self.0.look_up(&archive_path(path))?;
        Ok(found.map(|found| matches!(found, ArchivedFile::Directory(_))))
    }
}

fn archive_path(parts: &[Vec<u8>]) -> ArchivePath {
    parts.iter().fold(ArchivePath::ROOT, |path, part| path.join(part))
}

/// Opens the archive of a store; with `create` one that is not there is made.
pub fn open(store: &Path, create: bool) -> Result<Archive> {
    open_for(store, create, Archive::new)
}

/// Opens the archive of a store to read it as it is now, whatever others change meanwhile. Where its log
/// is damaged, what came before that is there, it
/// is told, and the command [ends](end_of_reading) as one that broke off.
pub fn open_to_read(store: &Path) -> Result<Archive> {
    let archive = open_now_to_read(store)?;
    match AT.get() {
        Some(at) => archive_at(&archive, at),
        None => Ok(archive),
    }
}

/// Has archives that are opened to read be what they were at this version.
pub fn read_at(at: &str) {
    AT.get_or_init(|| at.to_owned());
}

fn open_now_to_read(store: &Path) -> Result<Archive> {
    open_for(store, false, |store, catalog| {
        let (archive, error) = Archive::to_read(store, catalog)?;
        if let Some(error) = error {
            tell_cut_off(&error);
        }
        archive.freeze()?;
        Ok(archive)
    })
}

fn tell_cut_off(error: &CatalogError) {
    IS_CUT_OFF.store(true, Ordering::Relaxed);
    let text = printable(&error.to_string());
    let since = match error {
        CatalogError::Lost { .. }
        | CatalogError::Gone { .. }
        | CatalogError::Restoring
        | CatalogError::Unmarked { .. } => "",
        _ => ": what was stored since is not known",
    };
    output::tell(format_args!("sheaf: {text}{since}"));
}

/// Whether an archive was read of which not all is known.
pub fn is_cut_off() -> bool {
    IS_CUT_OFF.load(Ordering::Relaxed)
}

/// The same, of an archive of which what is not known would be removed: a gap of the log is looked for, too, which
/// takes a list of it.
pub fn may_be_cut_off(archive: &Archive) -> Result<bool> {
    // A version is of a commit that is there.
    if AT.get().is_none() && !is_cut_off() {
        match archive.check_end() {
            Err(error) if error.is_of_log() => tell_cut_off(&error),
            checked => checked?,
        }
    }
    Ok(is_cut_off())
}

/// Whether there is a store of this name.
pub fn is_store(store: &Path) -> Result<bool> {
    match host_store(store) {
        Ok(_) => Ok(true),
        Err(error) => {
            let of_store = error.downcast_ref::<StoreError>();
            let of_system = error.downcast_ref::<std::io::Error>();
            let is_missing = of_store.is_some_and(|error| error.errno == Errno::NOENT)
                || of_system.is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound);
            if is_missing { Ok(false) } else { Err(error) }
        }
    }
}

/// Opens the archive of a store whatever is wrong with its log: as its catalog knows it.
pub fn open_as_known(store: &Path) -> Result<Archive> {
    open_for(store, false, Archive::as_known)
}

/// Refuses an archived name that is a file, where a directory is asked for.
pub fn refuse_file(archive: &Archive, name: &ArchivedName, doing: &str) -> Result<()> {
    match archive.look_up(&name.path)? {
        None | Some(ArchivedFile::Directory(_)) => Ok(()),
        Some(_) => {
            let text = format!(
                "{}: is a file, and directories are {doing}: name the one it is in",
                name.path
            );
            Err(Stop::usage(printable(&text)).into())
        }
    }
}

/// How a command ends that has read archives: not as one that knows all, where a log is damaged.
pub fn end_of_reading(end: Result<Exit>) -> Result<Exit> {
    if !IS_CUT_OFF.load(Ordering::Relaxed) {
        return end;
    }
    match end {
        Ok(Exit::Success | Exit::Unmatched) => Ok(Exit::Partial),
        Err(error) if matches!(error.downcast_ref(), Some(Stop::Unmatched(_))) => {
            Err(anyhow::Error::msg(error.to_string()))
        }
        end => end,
    }
}

/// Makes an archive of a store and its catalog.
type MakeArchive = fn(Arc<dyn Store>, Catalog) -> Result<Archive, ArchiveError>;

fn open_for(store: &Path, create: bool, to: MakeArchive) -> Result<Archive> {
    #[cfg(feature = "s3")]
    if let Some(place) = bucket::place(store) {
        let place = place?;
        let open = || bucket::open(&place, S3Store::open);
        let make = || bucket::open(&place, S3Store::create);
        let opened = opened(store, create, open, make)?;
        // Another store of the same name has another catalog.
        let (place, _) = place;
        let endpoint = place.endpoint.as_deref().unwrap_or_default();
        let name = format!("{place}\n{endpoint}\n{}", opened.id().unwrap_or_default());
        return archive(Arc::new(opened), to, || Ok(name.into_bytes()));
    }
    if let Some((tapes, directory)) = tape_library(store) {
        let make = || Ok((tapes.create)(directory));
        let opened = opened(store, create, || Ok((tapes.open)(directory)), make)?;
        return archive(opened, to, || directory_name(directory));
    }
    let open = || Ok(LocalStore::open(store));
    let make = || {
        refuse_in_store(store)?;
        Ok(LocalStore::create(store))
    };
    let opened = opened(store, create, open, make)?;
    archive(Arc::new(opened), to, || directory_name(store))
}

/// The archive of a store, with the catalog that was named, or the one that this machine has of a store of
/// this name.
fn archive(
    store: Arc<dyn Store>,
    to: MakeArchive,
    name: impl FnOnce() -> Result<Vec<u8>>,
) -> Result<Archive> {
    if let Some(catalog) = catalog::named()? {
        return Ok(to(store, catalog)?);
    }
    let opened = catalog::own_file(&name()?).and_then(|file| Catalog::open(&file));
    let why =
        match opened.map_err(ArchiveError::from).and_then(|catalog| to(store.clone(), catalog)) {
            // The catalog is only a copy of what the store says: the store can be used without it.
            Err(ArchiveError::Catalog(
                error @ (CatalogError::Disk { .. } | CatalogError::NoPlace { .. }),
            )) => error,
            archive => return Ok(archive?),
        };
    let why = printable(&why.to_string());
    output::tell(format_args!("sheaf: {why}: it is made in memory, for this command"));
    Ok(to(store, Catalog::in_memory()?)?)
}

/// Opens a store, or makes it where there is none.
fn opened<S>(
    store: &Path,
    create: bool,
    open: impl Fn() -> Result<Result<S, StoreError>>,
    make: impl Fn() -> Result<Result<S, StoreError>>,
) -> Result<S> {
    let opened = match open()? {
        Err(error) if error.errno == Errno::NOENT && create => make()?,
        Err(error) if error.errno == Errno::NOENT => {
            let text = format!(
                "{}: there is no store: sheaf archive store --create makes one",
                printable(&store.display().to_string())
            );
            return Err(Stop::usage(text).into());
        }
        opened => opened,
    };
    Ok(opened?)
}

/// The tape simulator and the directory of a tape library, if `store` is one.
fn tape_library(store: &Path) -> Option<(TapeSimulator, &Path)> {
    let directory = store.as_os_str().as_bytes().strip_prefix(b"tape:")?;
    Some((tape_simulator()?, Path::new(OsStr::from_bytes(directory))))
}

/// Device and inode of a store's directory, if it is one of this machine.
pub fn directory_id(store: &Path) -> Result<Option<(u64, u64)>> {
    let store = tape_library(store).map_or(store, |(_, directory)| directory);
    if store.as_os_str().as_bytes().starts_with(b"s3://") {
        return Ok(None);
    }
    let found = std::fs::metadata(store).with_context(|| store.display().to_string())?;
    Ok(Some((found.dev(), found.ino())))
}

/// The store of this name, without a catalog, for a host that has none.
pub fn host_store(name: &Path) -> Result<HostStore> {
    let directory = directory_id(name)?;
    #[cfg(feature = "s3")]
    if let Some(place) = bucket::place(name) {
        let store = Arc::new(bucket::open(&place?, S3Store::open)??);
        return Ok(HostStore { store, directory });
    }
    if let Some((tapes, tape_directory)) = tape_library(name) {
        return Ok(HostStore { store: (tapes.open)(tape_directory)?, directory });
    }
    Ok(HostStore { store: Arc::new(LocalStore::open(name)?), directory })
}

/// The name of a store for hosts, which have other working directories.
pub fn name_for_hosts(store: &Path) -> Result<Vec<u8>> {
    if store.as_os_str().as_bytes().starts_with(b"s3://") {
        return Ok(store.as_os_str().as_bytes().to_vec());
    }
    let (before, directory) = match tape_library(store) {
        Some((_, directory)) => ("tape:", directory),
        None => ("", store),
    };
    let path = directory.canonicalize().with_context(|| store.display().to_string())?;
    Ok([before.as_bytes(), &path.into_os_string().into_vec()].concat())
}

/// The files that say that a directory is a store, or a library of tapes. Each is written once.
const MARKS: [&str; 2] = ["sheaf-archive", "library"];

/// The name by which this machine finds its catalog of a store: the directory, and when it was made a
/// store, because another one may take its place.
fn directory_name(store: &Path) -> Result<Vec<u8>> {
    let directory = store.canonicalize().with_context(|| store.display().to_string())?;
    let made = MARKS.iter().find_map(|mark| std::fs::metadata(directory.join(mark)).ok());
    let made = made.map(|mark| format!("\n{}.{}", mark.mtime(), mark.mtime_nsec()));
    let mut name = directory.into_os_string().into_vec();
    name.extend_from_slice(made.unwrap_or_default().as_bytes());
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_a_store_and_a_path() {
        let parse = |text: &str| ArchivedName::parse(OsStr::new(text));
        let name = |store: &str, path: &str| ArchivedName {
            store: store.into(),
            path: ArchivePath::new(path.as_bytes()).unwrap(),
            pattern: None,
        };
        assert_eq!(parse("/backup::/home/x").unwrap(), name("/backup", "home/x"));
        assert_eq!(parse("backup::").unwrap(), name("backup", ""));
        assert_eq!(parse("a::b::c").unwrap(), name("a", "b::c"));
        #[cfg(feature = "s3")]
        assert_eq!(parse("s3://bucket/a::/b").unwrap(), name("s3://bucket/a", "b"));
        for (text, error) in [
            ("/backup", "/backup: an archived name is STORE::PATH"),
            ("a:/b", "a:/b: an archived name is STORE::PATH"),
            ("/backup::a/../b", "/backup::a/../b: there is no .. in an archive"),
            ("ftp://a::/x", "ftp://a::/x: a store is a directory of this machine or s3://…"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), error);
        }
    }
}
