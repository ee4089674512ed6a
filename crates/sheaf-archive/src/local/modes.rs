//! Modes of trees of this machine changed by many at once, where they differ.
use crate::walk::{
    FileFacts, TreeStep, TreeVisitor, TreeWalkOptions, VisitWalk, VisitedFile, WalkedDirectory,
};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::ops::AddAssign;
use std::os::fd::AsRawFd;
use std::path::Path;

/// A new mode of an old one; and whether that is of a directory.
pub type ModeOf = Box<dyn Fn(u32, bool) -> u32 + Send + Sync>;

/// Whose modes are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModesTold {
    /// Nobody's.
    #[default]
    Nothing,
    /// Those of what gets another one.
    Changes,
    /// All.
    All,
}

/// What is told of a change of modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalModesStep<'a> {
    /// A file has, or would have, a new mode, which may be the old one.
    Mode {
        /// Its path, as the walk's begins.
        path: &'a [u8],
        /// The mode that it had, `0o7777`.
        old: u32,
        /// The one that it has.
        new: u32,
    },
    /// A symbolic link, which has none.
    Link {
        /// Its path.
        path: &'a [u8],
    },
    /// Something could not be looked at, or changed.
    Failed {
        /// Its path.
        path: &'a [u8],
        /// Why.
        errno: Errno,
    },
}

/// How to change modes.
pub struct LocalModes {
    /// The new mode of each file, `0o7777`.
    pub mode: ModeOf,
    /// What is in directories, too.
    pub recursive: bool,
    /// Only count what would change.
    pub dry_run: bool,
    /// Whose modes are told.
    pub tells: ModesTold,
}

/// What was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalModesReport {
    /// Files and directories with a new mode.
    pub changed: u64,
    /// Those that had it.
    pub unchanged: u64,
    /// Those that could not be looked at, or changed.
    pub failed: u64,
}

impl AddAssign for LocalModesReport {
    fn add_assign(&mut self, other: Self) {
        self.changed += other.changed;
        self.unchanged += other.unchanged;
        self.failed += other.failed;
    }
}

/// Changes the mode of a file, or of a directory and what is in it. A link that is named is followed;
/// others are left alone, because they have no mode.
/// `each` is told what cannot be changed, and whose modes are to be told.
///
/// # Errors
/// When `each` says so.
pub fn change_local_modes<E>(
    start: &Path,
    modes: LocalModes,
    each: &mut dyn FnMut(LocalModesStep<'_>) -> Result<(), E>,
) -> Result<LocalModesReport, E> {
    let mut report = LocalModesReport::default();
    let options = TreeWalkOptions { follows_start: true, ..TreeWalkOptions::default() };
    for step in VisitWalk::new("chmod", start, modes, options) {
        let TreeStep::Piece(piece) = step else { continue };
        report += piece.report;
        for (path, modes) in &piece.told {
            each(match *modes {
                Some((old, new)) => LocalModesStep::Mode { path, old, new },
                None => LocalModesStep::Link { path },
            })?;
        }
        for (path, errno) in &piece.errors {
            each(LocalModesStep::Failed { path, errno: *errno })?;
        }
    }
    Ok(report)
}

/// The mode that a file had and the one that it has; links have none.
type ToldModes = Option<(u32, u32)>;

/// What was changed of some files of a directory.
#[derive(Default)]
#[doc(hidden)]
pub struct ModesPiece {
    report: LocalModesReport,
    /// Paths with their old and new modes, or none of links.
    told: Vec<(Vec<u8>, ToldModes)>,
    errors: Vec<(Vec<u8>, Errno)>,
}

impl ModesPiece {
    fn fail(&mut self, path: Vec<u8>, errno: Errno) {
        self.report.failed += 1;
        self.errors.push((path, errno));
    }
}

impl TreeVisitor for LocalModes {
    type Piece = ModesPiece;

    fn facts(&self) -> FileFacts {
        FileFacts::Status
    }

    fn visit(&self, piece: &mut ModesPiece, file: &VisitedFile<'_>) -> bool {
        let done = match file.found {
            Some(Ok(found)) if found.kind == FileKind::Symlink && file.depth > 0 => {
                if self.tells == ModesTold::All {
                    piece.told.push((path_of(file), None));
                }
                return false;
            }
            // It leads nowhere.
            Some(Ok(found)) if found.kind == FileKind::Symlink => Err(Errno::NOENT),
            Some(Ok(found)) => self.change(file, found),
            Some(Err(errno)) => Err(*errno),
            None => Err(Errno::INVAL),
        };
        match done {
            Ok((old, new)) => {
                let is_changed = old != new;
                match is_changed {
                    true => piece.report.changed += 1,
                    false => piece.report.unchanged += 1,
                }
                if self.tells >= if is_changed { ModesTold::Changes } else { ModesTold::All } {
                    piece.told.push((path_of(file), Some((old, new))));
                }
            }
            Err(errno) => piece.fail(path_of(file), errno),
        }
        self.recursive
    }

    fn failed(&self, piece: &mut ModesPiece, directory: &WalkedDirectory, errno: Errno) {
        piece.fail(directory.path().to_vec(), errno);
    }

    fn bytes(&self, piece: &ModesPiece) -> usize {
        let errors = piece.errors.iter().map(|(path, _)| path.len() + 32).sum::<usize>();
        let told = piece.told.iter().map(|(path, _)| path.len() + 40).sum::<usize>();
        errors + told
    }
}

fn path_of(file: &VisitedFile<'_>) -> Vec<u8> {
    let mut path = Vec::new();
    file.put_path(&mut path);
    path
}

impl LocalModes {
    /// The mode that a file had, and the one that it has now.
    fn change(&self, file: &VisitedFile<'_>, found: &Metadata) -> Result<(u32, u32), Errno> {
        let is_directory = found.is_dir();
        let new = (self.mode)(found.mode, is_directory);
        if new == found.mode || self.dry_run {
            return Ok((found.mode, new));
        }
        let of = |errno: rustix::io::Errno| Errno(errno.raw_os_error());
        // The very file that was looked at, or another with its name, but nothing a link leads to.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let flags = if file.depth == 0 { flags } else { flags | OFlags::NOFOLLOW };
        let open =
            rustix::fs::openat(file.directory, file.name, flags, Mode::empty()).map_err(of)?;
        let now = rustix::fs::statx(&open, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
        let now = Metadata::from(now.map_err(of)?);
        if now.kind != found.kind {
            return Err(Errno::AGAIN);
        }
        // It may have changed since the walk: `+x` adds to what it is now.
        let new = (self.mode)(now.mode, is_directory) & 0o7777;
        // A descriptor that is only a place takes no `fchmod`.
        let place = format!("/proc/self/fd/{}", open.as_raw_fd());
        rustix::fs::chmod(place, Mode::from_raw_mode(new)).map_err(of)?;
        Ok((found.mode, new))
    }
}
