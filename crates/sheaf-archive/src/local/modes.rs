//! Modes of trees of this machine changed by many at once, where they differ.
use crate::{
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

/// How to change modes.
pub struct LocalModes {
    /// The new mode of each file, `0o7777`.
    pub mode: ModeOf,
    /// What is in directories, too.
    pub recursive: bool,
    /// Only count what would change.
    pub dry_run: bool,
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
/// `failed` is told what cannot be changed.
pub fn change_local_modes(
    start: &Path,
    modes: LocalModes,
    failed: &mut dyn FnMut(&[u8], Errno),
) -> LocalModesReport {
    let mut report = LocalModesReport::default();
    let options = TreeWalkOptions { follows_start: true, ..TreeWalkOptions::default() };
    for step in VisitWalk::new("chmod", start, modes, options) {
        let TreeStep::Piece(piece) = step else { continue };
        report += piece.report;
        for (path, errno) in &piece.errors {
            failed(path, *errno);
        }
    }
    report
}

/// What was changed of some files of a directory.
#[derive(Default)]
#[doc(hidden)]
pub struct ModesPiece {
    report: LocalModesReport,
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
            Some(Ok(found)) if found.kind == FileKind::Symlink && file.depth > 0 => return false,
            // It leads nowhere.
            Some(Ok(found)) if found.kind == FileKind::Symlink => Err(Errno::NOENT),
            Some(Ok(found)) => self.change(file, found),
            Some(Err(errno)) => Err(*errno),
            None => Err(Errno::INVAL),
        };
        match done {
            Ok(true) => piece.report.changed += 1,
            Ok(false) => piece.report.unchanged += 1,
            Err(errno) => {
                let mut path = Vec::new();
                file.put_path(&mut path);
                piece.fail(path, errno);
            }
        }
        self.recursive
    }

    fn failed(&self, piece: &mut ModesPiece, directory: &WalkedDirectory, errno: Errno) {
        piece.fail(directory.path().to_vec(), errno);
    }

    fn bytes(&self, piece: &ModesPiece) -> usize {
        piece.errors.iter().map(|(path, _)| path.len() + 32).sum()
    }
}

impl LocalModes {
    /// Says whether a file has another mode now.
    fn change(&self, file: &VisitedFile<'_>, found: &Metadata) -> Result<bool, Errno> {
        let is_directory = found.is_dir();
        if (self.mode)(found.mode, is_directory) == found.mode {
            return Ok(false);
        }
        if self.dry_run {
            return Ok(true);
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
        let mode = Mode::from_raw_mode((self.mode)(now.mode, is_directory) & 0o7777);
        // A descriptor that is only a place takes no `fchmod`.
        let place = format!("/proc/self/fd/{}", open.as_raw_fd());
        rustix::fs::chmod(place, mode).map_err(of)?;
        Ok(true)
    }
}
