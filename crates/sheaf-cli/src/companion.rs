//! Programs beside `sheaf`: heavy capabilities, which cost nothing where they are not used.
//!
//! `sheaf archive …` runs `sheaf-archive` with the words of its own command line, as git and cargo
//! run theirs. A companion is found beside `sheaf` or in `lib/sheaf` next to its `bin`. It reads the
//! same global options, and the nodes of the sessions that it starts are those of `sheaf`.
//!
//! Some of what a companion does happens on hosts. Their servers run it as a process, for one stream
//! at a time ([`host`]): the one beside the server if it has the same digest, otherwise one that the
//! root has sent ([`fetch`]).
//!
//! Every process of a tree pays for each byte of the server's image. When the image doubled by code
//! that servers never run, starts and round trips took 12 to 23 % longer. So a capability with
//! large dependencies is a program of its own. The search skips a file that the kernel does not
//! run, and `sheaf` itself. Completions and manual pages need the options of all programs, so a
//! companion describes its own ([`describe`]).
pub mod describe;
pub mod fetch;
pub mod host;

use crate::exit::{Stop, io_text};
use crate::options::GlobalArgs;
use crate::stdio;
use anyhow::Result;
use sheaf_tree::service::Services;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program that serves, and that people call.
pub const SHEAF: &str = "sheaf";

/// A program beside `sheaf`.
#[derive(Debug, PartialEq, Eq)]
pub struct Companion {
    /// The command of `sheaf` that it is for.
    pub command: &'static str,
    /// Its file.
    pub program: &'static str,
    /// The service of its part on hosts, if it has one.
    pub service: Option<&'static str>,
}

/// `sheaf archive`.
pub const ARCHIVE: Companion =
    Companion { command: "archive", program: "sheaf-archive", service: Some("archive") };
/// `sheaf trace`.
pub const TRACE: Companion = Companion { command: "trace", program: "sheaf-trace", service: None };

/// All of them.
pub const COMPANIONS: [&Companion; 2] = [&ARCHIVE, &TRACE];

/// Where companions are, from the directory of `sheaf`.
const PLACES: [&str; 2] = ["", "../lib/sheaf"];
/// Where `sheaf` is, from the directory of a companion.
const PLACES_OF_SHEAF: [&str; 2] = ["", "../../bin"];

/// What this process is, if it is not `sheaf` itself.
static SELF: OnceLock<OwnCompanion> = OnceLock::new();

struct OwnCompanion {
    companion: &'static Companion,
    register: fn(Services) -> Services,
}

/// States that this process is a companion, whose nodes have the services that `register` adds.
pub fn begin(companion: &'static Companion, register: fn(Services) -> Services) {
    // It is the first thing that a companion does.
    let _ = SELF.set(OwnCompanion { companion, register });
}

/// The companion that this process is.
pub fn this() -> Option<&'static Companion> {
    SELF.get().map(|own| own.companion)
}

/// `services` with the parts of companions on hosts: this process's own runs here, others are run
/// as processes.
pub fn register(services: Services) -> Services {
    let services = services.with(fetch::SERVICE, fetch::service());
    let own = SELF.get();
    let mut services = match own {
        Some(own) => (own.register)(services),
        None => services,
    };
    for companion in
        COMPANIONS.iter().filter(|other| own.is_none_or(|own| own.companion != **other))
    {
        if let Some(service) = companion.service {
            services = services.with(service, host::provider(companion));
        }
    }
    services
}

/// The first of `places`, from the directory of this program, that has `program`; or all places, with what is
/// wrong with the file there. Unless this process is that program, its own file is passed over: a program that
/// runs itself in place of another does so for ever.
fn find_in(
    program: &str,
    places: &[&str],
    is_this: bool,
) -> io::Result<Result<PathBuf, Vec<String>>> {
    let this = std::env::current_exe()?;
    let passed_over = if is_this { None } else { Some(std::fs::metadata("/proc/self/exe")?) };
    let directory = this.parent().unwrap_or(Path::new("/"));
    let mut looked = Vec::new();
    for place in places {
        let path = below(directory, place).join(program);
        match check_program(&path, passed_over.as_ref()) {
            Ok(()) => return Ok(Ok(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                looked.push(path.display().to_string());
            }
            Err(error) => looked.push(format!("{} ({error})", path.display())),
        }
    }
    Ok(Err(looked))
}

/// Checks that this user can run a file, and that it is not `passed_over`. `execvp` gives a file that is
/// neither ELF nor begins with `#!` to a shell, which takes an empty one for success.
fn check_program(path: &Path, passed_over: Option<&Metadata>) -> io::Result<()> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        return Err(io::Error::other("is no file"));
    }
    if passed_over.is_some_and(|own| (about.dev(), about.ino()) == (own.dev(), own.ino())) {
        return Err(io::Error::other("is this program itself"));
    }
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK)
        .map_err(|_| io::Error::other("may not be run: chmod +x"))?;
    let mut begins = Vec::new();
    // A program need not be readable.
    let is_known = File::open(path).and_then(|file| file.take(4).read_to_end(&mut begins));
    if is_known.is_ok() && begins != b"\x7fELF" && !begins.starts_with(b"#!") {
        return Err(io::Error::other("is no program"));
    }
    Ok(())
}

/// The place from a directory, without `..`: the directory of a program that runs has no links in it.
pub fn below(directory: &Path, place: &str) -> PathBuf {
    let mut path = directory.to_owned();
    for part in place.split('/').filter(|part| !part.is_empty()) {
        match part {
            ".." => {
                path.pop();
            }
            part => path.push(part),
        }
    }
    path
}

impl Companion {
    /// Its file, or where it was looked for.
    fn look(&self) -> io::Result<Result<PathBuf, Vec<String>>> {
        find_in(self.program, &PLACES, this() == Some(self))
    }

    /// Its file, beside this program, if it is installed.
    pub fn installed(&self) -> io::Result<Option<PathBuf>> {
        Ok(self.look()?.ok())
    }

    /// Whether [`Companion::installed`] finds it.
    pub fn is_installed(&self) -> bool {
        self.installed().is_ok_and(|path| path.is_some())
    }

    /// Its file, or how to get one.
    fn find(&self) -> Result<PathBuf> {
        let Self { command, program, .. } = self;
        let looked = match self.look() {
            Ok(Ok(path)) => return Ok(path),
            Ok(Err(looked)) => looked,
            Err(error) => {
                return Err(Stop::usage(io_text("/proc/self/exe".as_ref(), &error)).into());
            }
        };
        Err(Stop::usage(format!(
            "sheaf {command} needs the program {program}, which is not installed: put it at {} (cargo \
             build --release makes it beside sheaf; package {program}-cli)",
            looked.join(" or ")
        ))
        .into())
    }

    /// Replaces this process by the companion, with these words behind the program's name.
    ///
    /// # Errors
    /// When it is not installed, or cannot be run.
    pub fn run(
        &self,
        words: impl IntoIterator<Item = OsString>,
    ) -> Result<std::convert::Infallible> {
        let path = self.find()?;
        stdio::close_before_exec();
        let error = Command::new(&path).arg0(SHEAF).args(words).exec();
        Err(Stop::usage(io_text(&path, &error)).into())
    }

    /// What it prints for these words.
    ///
    /// # Errors
    /// When it is not installed, or fails.
    pub fn output(&self, words: &[&str]) -> Result<Vec<u8>> {
        let path = self.find()?;
        let output = Command::new(&path).args(words).output();
        let output = output.map_err(|error| Stop::usage(io_text(&path, &error)))?;
        if !output.status.success() {
            let path = path.display();
            return Err(Stop::usage(format!("{path}: failed ({})", output.status)).into());
        }
        Ok(output.stdout)
    }
}

/// The file of `sheaf`, which the nodes of a companion's sessions run.
///
/// # Errors
/// When it is not beside this program.
pub fn sheaf() -> io::Result<PathBuf> {
    find_in(SHEAF, &PLACES_OF_SHEAF, false)?.map_err(|looked| {
        io::Error::new(io::ErrorKind::NotFound, format!("no such file: {}", looked.join(", ")))
    })
}

/// Replaces this companion by `sheaf`, with these global options and words.
///
/// # Errors
/// When `sheaf` is not there, or cannot be run.
pub fn run_sheaf(global: &GlobalArgs, words: Vec<OsString>) -> Result<std::convert::Infallible> {
    let path = sheaf().map_err(|error| Stop::usage(io_text(SHEAF.as_ref(), &error)))?;
    stdio::close_before_exec();
    let error = Command::new(&path).arg0(SHEAF).args(global.words()).args(words).exec();
    Err(Stop::usage(io_text(&path, &error)).into())
}
