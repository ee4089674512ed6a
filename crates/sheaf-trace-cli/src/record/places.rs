//! Where things are: the program, the preload, the trace and the segments.
use anyhow::{Context, Result};
use rustix::fs::StatVfsMountFlags;
use rustix::process::{Resource, getrlimit};
use sheaf_cli::companion::{below, fetch::keep_contained};
use sheaf_cli::exit::{Stop, io_text};
use sheaf_trace::SegmentOptions;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The preload library for this machine's C library, from build.rs; empty if it could not be built.
const CONTAINED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libsheaf_trace.so"));
/// Where the preload is, from the directory of this program: where Sheaf is installed, and where cargo has
/// just built it.
const PLACES: [(&str, &str); 3] = [
    ("", sheaf_trace::PRELOAD_FILE),
    ("../lib/sheaf", sheaf_trace::PRELOAD_FILE),
    ("deps", "libsheaf_preload.so"),
];
/// The most traces of one name beside each other that are looked past.
const NAMES_MAX: u32 = 10_000;
/// What a shell says of programs that it does not find, and of those that it may not run.
const NOT_FOUND: i32 = 127;
pub const NOT_RUN: i32 = 126;
/// Commands that shells have within, and that are no programs on most machines.
const OF_SHELLS: [&str; 32] = [
    "alias", "bg", "builtin", "case", "cd", "declare", "eval", "exec", "exit", "export", "fg",
    "for", "function", "history", "if", "jobs", "local", "popd", "pushd", "read", "return", "set",
    "shift", "source", "time", "times", "trap", "ulimit", "umask", "unset", "wait", "while",
];

/// The program that a shell would run; else what it would exit with, and why.
pub fn find_program(name: &OsStr) -> Result<PathBuf, (i32, String)> {
    let shown = Path::new(name).display();
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match check(&path) {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err((NOT_FOUND, io_text(&path, &error)))
            }
            Err(error) => Err((NOT_RUN, io_text(&path, &error))),
        };
    }
    if name == "." || name == ".." {
        return Err((NOT_RUN, format!("{shown} is a directory, and no program")));
    }
    let places = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut refused = None;
    for directory in std::env::split_paths(&places) {
        let path = directory.join(name);
        match check(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                refused = refused.or(Some((NOT_RUN, io_text(&path, &error))));
            }
            Err(_) => {}
        }
    }
    if let Some(command) = OF_SHELLS.iter().find(|command| *name == ***command) {
        let text = format!(
            "{command} is no program, but a command within shells, which one runs: -- sh -c '{command} …'"
        );
        return Err((NOT_FOUND, text));
    }
    let split = if name.as_bytes().contains(&b' ') {
        " (a program and its arguments are words of their own, without quotes around all)"
    } else {
        ""
    };
    Err(refused.unwrap_or((NOT_FOUND, format!("{shown}: no such program on the PATH{split}"))))
}

/// Whether it is a file that may be run.
fn check(path: &Path) -> io::Result<()> {
    const RUN: u32 = 0o111;
    let about = std::fs::metadata(path)?;
    if about.is_dir() {
        return Err(io::Error::from_raw_os_error(sheaf_core::Errno::ISDIR.0));
    }
    if about.permissions().mode() & RUN == 0 {
        return Err(io::Error::from_raw_os_error(sheaf_core::Errno::ACCES.0));
    }
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK)?;
    Ok(())
}

/// The preload library.
pub enum Library {
    /// An installed file, or the contained library in the user's cache.
    File(PathBuf),
    /// The contained library, to be written next to the segments.
    Contained,
}

/// The installed library, if it is that of this program's build; otherwise the one that this program
/// contains.
pub fn find_library(buffers: &Path) -> Result<Library> {
    let program = std::env::current_exe().context("where this program is")?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    // A file of another user, where a directory above this program's is open to all, is not loaded.
    let owner = std::fs::metadata("/proc/self/exe").context("this program")?.uid();
    let trusted = [0, rustix::process::geteuid().as_raw(), owner];
    let mut looked = Vec::new();
    for (place, name) in PLACES {
        let path = below(directory, place).join(name);
        match std::fs::metadata(&path) {
            // A library of another build writes records that this program does not read.
            Ok(about) if trusted.contains(&about.uid()) && is_of_this_build(&path, &about) => {
                return Ok(Library::File(path));
            }
            Ok(about) if trusted.contains(&about.uid()) => {
                looked.push(format!("{} (of another build)", path.display()));
            }
            Ok(_) => looked.push(format!("{} (belongs to another user)", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                looked.push(path.display().to_string());
            }
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
    if CONTAINED.is_empty() {
        return Err(Stop::usage(format!(
            "{} is not installed, without which no program can be looked into; looked for {} (sheaf trace \
             record --kernel needs none; from source: cargo build -p sheaf-preload, with --release as the program was built)",
            sheaf_trace::PRELOAD_FILE,
            looked.join(", ")
        ))
        .into());
    }
    let kept = keep_contained(sheaf_trace::PRELOAD_FILE, CONTAINED);
    let why_not = match kept {
        Ok(path) if allows_loading(&path) => return Ok(Library::File(path)),
        Ok(path) => format!("{}: its file system is mounted noexec", path.display()),
        Err(errno) => format!("the user's cache cannot be used ({errno})"),
    };
    if allows_loading(buffers) {
        return Ok(Library::Contained);
    }
    Err(Stop::usage(format!(
        "cannot load {} into programs: {why_not}, and {} is mounted noexec: set XDG_CACHE_HOME or --buffers to a \
         directory of another file system",
        sheaf_trace::PRELOAD_FILE,
        buffers.display()
    ))
    .into())
}

/// Whether a library is the one that this program contains. A program that contains none takes any.
fn is_of_this_build(path: &Path, about: &Metadata) -> bool {
    CONTAINED.is_empty()
        || about.is_file()
            && about.len() == CONTAINED.len() as u64
            && std::fs::read(path).is_ok_and(|content| content == CONTAINED)
}

/// Whether the file system of a path allows executable mappings. One that cannot be examined counts as
/// allowing them: a later step reports the error.
fn allows_loading(path: &Path) -> bool {
    rustix::fs::statvfs(path)
        .map_or(true, |about| !about.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// Writes the contained library to the directory of the segments, which only this user can write to.
fn write_contained(segments: &Path) -> io::Result<PathBuf> {
    let mut file = tempfile::Builder::new().prefix("new.").tempfile_in(segments)?;
    file.write_all(CONTAINED)?;
    let path = segments.join(sheaf_trace::PRELOAD_FILE);
    file.into_temp_path().persist(&path).map_err(|error| error.error)?;
    Ok(path)
}

/// That there are descriptors for a recording: it has some open at once, beside the program's own.
pub fn check_descriptors() -> Result<()> {
    const NEEDED: usize = 16;
    let spare: io::Result<Vec<_>> = (0..NEEDED).map(|_| File::open("/dev/null")).collect();
    spare.map(drop).map_err(|error| {
        let why = io_text(Path::new("/dev/null"), &error);
        let text =
            format!("a recording needs {NEEDED} descriptors (ulimit -n): {why}: nothing was run");
        Stop::usage(text).into()
    })
}

/// How many records each ring has, if nobody asks for other than the usual: fewer where limits, or
/// what is free in `buffers`, are small.
pub fn usual_records(usual: u32, rings: u32, buffers: &Path) -> u32 {
    const FEWER_MIN: u32 = 16 << 10;
    /// Threads that have room at once for all of their records, in half of what is free.
    const THREADS: u64 = 64;
    // Where nothing can be made is said when it is to be made.
    let free = rustix::fs::statvfs(buffers)
        .map_or(u64::MAX, |about| about.f_bavail.saturating_mul(about.f_frsize));
    let fits = |records: u32| {
        let options = options_of(records, rings);
        let of_threads = options.bytes() as u64 / u64::from(options.rings) * THREADS;
        of_threads <= free / 2
            && LIMITS.iter().all(|limit| allowed(limit) >= needed(limit, options))
    };
    let mut records = usual;
    while records > FEWER_MIN && !fits(records) {
        records /= 2;
    }
    records
}

/// Limits of a file that is mapped, the options that set them, and what else a program has there.
const LIMITS: [(Resource, &str, u64); 2] =
    [(Resource::Fsize, "-f", 0), (Resource::As, "-v", 128 << 20)];

fn allowed((limit, ..): &(Resource, &str, u64)) -> u64 {
    getrlimit(*limit).current.unwrap_or(u64::MAX)
}

fn needed((.., besides): &(Resource, &str, u64), options: SegmentOptions) -> u64 {
    besides + options.bytes() as u64
}

fn options_of(records: u32, rings: u32) -> SegmentOptions {
    SegmentOptions { rings, ..SegmentOptions::default().with_records(records) }
}

/// That there may be files as large as each program's records have, which are mapped.
pub fn check_limits(records: u32, rings: u32) -> Result<()> {
    const MIB: u64 = 1 << 20;
    for limit in &LIMITS {
        let (allowed, needed, option) =
            (allowed(limit), needed(limit, options_of(records, rings)), limit.1);
        if allowed < needed {
            let text = format!(
                "the records of each program need {} MiB, of which what is used is memory, and \
                 ulimit {option} allows {} MiB: nothing was run; fewer --records N or \
                 --threads N need less",
                needed.div_ceil(MIB),
                allowed / MIB
            );
            return Err(Stop::usage(text).into());
        }
    }
    Ok(())
}

/// The directory of the trace, made for it; of a name of its own choice, `kind` is the end.
pub fn make_store(asked: Option<&Path>, command: &OsStr, kind: &str) -> Result<PathBuf> {
    if let Some(path) = asked {
        match make_private(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path.to_owned()).with_context(|| shown(path)),
        }
        let owner = std::fs::metadata(path).with_context(|| shown(path))?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            let text = format!("{} belongs to another user (--output)", shown(path));
            return Err(Stop::usage(text).into());
        }
        let is_empty = std::fs::read_dir(path).with_context(|| shown(path))?.next().is_none();
        if !is_empty {
            let text =
                format!("{} is not empty: a trace goes into a directory of its own", shown(path));
            return Err(Stop::usage(text).into());
        }
        return Ok(path.to_owned());
    }
    let name = Path::new(command).file_name().unwrap_or(OsStr::new("program"));
    for number in 1..=NAMES_MAX {
        let mut file = name.to_owned();
        file.push(if number == 1 { String::new() } else { format!(".{number}") });
        file.push(format!(".{kind}"));
        let path = PathBuf::from(file);
        match make_private(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path.clone()).with_context(|| shown(&path)),
        }
    }
    Err(Stop::usage("say where the trace goes: --output DIR".to_owned()).into())
}

fn shown(path: &Path) -> String {
    sheaf_cli::output::printable(&path.display().to_string())
}

/// What a trace tells is for its owner alone.
fn make_private(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

/// A directory for segments that is nobody else's, for as long as the trace goes on.
pub struct SegmentsPlace {
    directory: TempDir,
    _lock: sheaf_trace::BuffersLock,
}

impl SegmentsPlace {
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

pub fn make_segments(buffers: &Path) -> Result<SegmentsPlace> {
    let private = std::fs::Permissions::from_mode(0o700);
    let mut made = tempfile::Builder::new();
    let made = made.prefix(sheaf_trace::BUFFERS_PREFIX).permissions(private).tempdir_in(buffers);
    let directory = made.map_err(|error| {
        let why = io_text(buffers, &with_errno(&error));
        Stop::usage(format!("no buffers can be made (--buffers): {why}"))
    })?;
    let _lock = sheaf_trace::lock_buffers(directory.path())?;
    Ok(SegmentsPlace { directory, _lock })
}

/// The kernel's own error, where a library has put a path of its own choice around it.
fn with_errno(error: &io::Error) -> io::Error {
    use sheaf_core::Errno;
    let errno = match error.kind() {
        io::ErrorKind::StorageFull => Errno::NOSPC,
        io::ErrorKind::ReadOnlyFilesystem => Errno::ROFS,
        io::ErrorKind::NotADirectory => Errno::NOTDIR,
        _ => Errno::from_io(error),
    };
    io::Error::from_raw_os_error(errno.0)
}

impl Library {
    /// Holds the library, which `sheaf clean` keeps as long as this is open: no process may have it loaded
    /// while a recording goes on.
    pub fn hold(&self) -> Result<Option<File>> {
        match self {
            Self::File(path) => Ok(Some(File::open(path).with_context(|| shown(path))?)),
            Self::Contained => Ok(None),
        }
    }
}

/// What the loader is told to load: the library, and what it was told before.
pub fn preload(library: &Library, segments: &Path) -> Result<OsString> {
    let library = match library {
        Library::File(path) => path.canonicalize().with_context(|| shown(path))?,
        Library::Contained => write_contained(segments).with_context(|| shown(segments))?,
    };
    // The loader's list has blanks and colons between its names.
    let is_odd = library.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte));
    let mut list = if is_odd {
        let link = segments.join(sheaf_trace::PRELOAD_FILE);
        symlink(&library, &link).with_context(|| shown(&link))?;
        link.into_os_string()
    } else {
        library.into_os_string()
    };
    if has_loaders_directory() {
        list = by_loaders_directory(&list);
    }
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        list.push(":");
        list.push(before);
    }
    Ok(list)
}

/// What glibc's loader puts its directory in the place of; no other loader does.
const LOADERS_DIRECTORY: &str = "$LIB";

/// Whether that directory is there, whichever of the usual ones it is.
fn has_loaders_directory() -> bool {
    let of_machine = format!("/lib/{}-linux-gnu", std::env::consts::ARCH);
    Path::new(&of_machine).is_dir()
        || ["/lib", "/lib64"].iter().all(|path| Path::new(path).is_dir())
}

/// The same file as glibc's loader finds it, and no other: musl's would load it, and end the program
/// for what it cannot link there. Up from the loader's directory there is the root at last, above
/// which it stays.
fn by_loaders_directory(path: &OsStr) -> OsString {
    const UP: &str = "/../../../../../../../..";
    let mut found = OsString::from(format!("/{LOADERS_DIRECTORY}{UP}"));
    found.push(path);
    found
}
