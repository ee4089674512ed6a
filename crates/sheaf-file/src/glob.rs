//! The files a pattern stands for.

use crate::pattern::{Alternative, Part};
use crate::{Export, FileKind, Pattern, Result};
use rustix::fs::OFlags;
use sheaf_core::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most paths one pattern may stand for on one host.
pub const GLOB_MATCHES_MAX: usize = 1 << 20;

/// How many directories deep `**` looks.
pub const GLOB_DEPTH_MAX: usize = 256;

/// The most directory entries looked at for one pattern.
const GLOB_VISITS_MAX: usize = 1 << 25;

impl Export {
    /// The paths a pattern stands for, sorted bytewise and without duplicates.
    ///
    /// A pattern without special characters stands for itself, whether the file exists or not.
    /// Directories that cannot be read are passed over, as in shells, and `**` follows no symbolic
    /// links. Only the directories the pattern can reach are read.
    ///
    /// # Errors
    /// `EOVERFLOW` above [`GLOB_MATCHES_MAX`].
    pub fn glob(&self, pattern: &Pattern) -> Result<Vec<PathBuf>> {
        if let Some(path) = pattern.literal() {
            return Ok(vec![path]);
        }
        let mut search = Search { export: self, found: Vec::new(), visits: 0 };
        for alternative in pattern.alternatives() {
            search.run(alternative)?;
        }
        let mut found = search.found;
        found.sort_unstable_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
        found.dedup();
        Ok(found)
    }
}

struct Search<'a> {
    export: &'a Export,
    found: Vec<PathBuf>,
    visits: usize,
}

/// A path that matches the first `part` parts of a pattern.
struct Reached {
    path: PathBuf,
    part: usize,
    /// How many directories the current `**` has gone down.
    depth: usize,
}

impl Search<'_> {
    fn run(&mut self, pattern: &Alternative) -> Result<()> {
        let start = if pattern.absolute { PathBuf::from("/") } else { PathBuf::new() };
        let mut stack = vec![Reached { path: start, part: 0, depth: 0 }];
        while let Some(mut reached) = stack.pop() {
            while let Some(Part::Literal(name)) = pattern.parts.get(reached.part) {
                reached.path.push(name);
                reached.part += 1;
            }
            match pattern.parts.get(reached.part) {
                None => self.keep(reached.path, pattern.must_be_dir)?,
                Some(_) => self.read(pattern, &reached, &mut stack)?,
            }
        }
        Ok(())
    }

    /// Reads the directory `reached` and adds what of it matches the next part.
    fn read(&mut self, pattern: &Alternative, reached: &Reached, stack: &mut Vec<Reached>) -> Result<()> {
        let dir = if reached.path.as_os_str().is_empty() { Path::new(".") } else { &reached.path };
        let part = &pattern.parts[reached.part];
        let is_last = reached.part + 1 == pattern.parts.len();
        if *part == Part::Directories && !is_last {
            // `**` may stand for no directory at all.
            stack.push(Reached { path: reached.path.clone(), part: reached.part + 1, depth: 0 });
        }
        let Ok(entries) = self.export.open_dir(dir).and_then(|dir| crate::dir::read(&dir)) else {
            return Ok(());
        };
        self.visits += entries.len();
        if self.visits > GLOB_VISITS_MAX {
            return Err(Errno::OVERFLOW);
        }
        for entry in entries {
            let path = || reached.path.join(&entry.name);
            match part {
                Part::Directories if is_hidden(&entry.name) => {}
                Part::Directories => {
                    if is_last && pattern.must_be_dir {
                        self.keep(path(), true)?;
                    } else if is_last {
                        self.add(path())?;
                    }
                    let is_dir = match entry.kind {
                        FileKind::Unknown => self.export.lstat(&path()).is_ok_and(|stat| stat.is_dir()),
                        kind => kind == FileKind::Directory,
                    };
                    if is_dir && reached.depth < GLOB_DEPTH_MAX {
                        stack.push(Reached { path: path(), part: reached.part, depth: reached.depth + 1 });
                    }
                }
                Part::Name(name) if name.matches_visible(entry.name.as_bytes()) => {
                    let may_lead_on =
                        matches!(entry.kind, FileKind::Directory | FileKind::Symlink | FileKind::Unknown);
                    if is_last && !pattern.must_be_dir {
                        self.add(path())?;
                    } else if may_lead_on {
                        stack.push(Reached { path: path(), part: reached.part + 1, depth: 0 });
                    }
                }
                Part::Name(_) | Part::Literal(_) => {}
            }
        }
        Ok(())
    }

    /// Adds a path if it exists and is of the wanted kind.
    fn keep(&mut self, path: PathBuf, must_be_dir: bool) -> Result<()> {
        let flags = if must_be_dir { OFlags::DIRECTORY } else { OFlags::NOFOLLOW };
        match self.export.resolve(&path, flags) {
            Ok(_) => self.add(path),
            Err(_) => Ok(()),
        }
    }

    fn add(&mut self, path: PathBuf) -> Result<()> {
        if self.found.len() == GLOB_MATCHES_MAX {
            return Err(Errno::OVERFLOW);
        }
        self.found.push(path);
        Ok(())
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().first() == Some(&b'.')
}
