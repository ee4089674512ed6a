//! The files a pattern stands for.

use crate::Result;
use crate::error::PathError;
use crate::export::Export;
use crate::pattern::{Alternative, Pattern, PatternPart};
use rustix::fs::OFlags;
use sheaf_core::Errno;
use sheaf_core::files::FileKind;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most paths one pattern may stand for on one host.
pub const GLOB_MATCHES_MAX: usize = 1 << 20;

/// How many directories deep `**` looks.
pub const GLOB_DEPTH_MAX: usize = 256;

/// The most directory entries looked at for one pattern.
const GLOB_VISITS_MAX: usize = 1 << 25;

/// The most errors of one pattern that are told one by one.
pub const GLOB_ERRORS_MAX: usize = 1024;

/// What a pattern stands for on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Globbed {
    /// The paths, sorted bytewise and without duplicates.
    pub paths: Vec<PathBuf>,
    /// What could not be looked at, by path: what the pattern stands for there is not known.
    pub errors: Vec<PathError>,
}

impl Export {
    /// The paths that `text` stands for: itself, or what matches it if it is a pattern. Whatever is
    /// wrong is among the errors, under the text as its path: `EINVAL` for a malformed pattern,
    /// `ENOMATCH` for one that stands for nothing here, and what [`Export::glob`] returns.
    #[must_use]
    pub fn expand(&self, text: &str) -> Globbed {
        self.expand_while(text, false, &|| None)
    }

    /// [`Export::expand`] for paths that are to be made: their last name, where it is no pattern
    /// itself, need not exist in the directories that match.
    #[must_use]
    pub fn expand_new(&self, text: &str) -> Globbed {
        self.expand_while(text, true, &|| None)
    }

    /// [`Export::expand`] or, with `is_new`, [`Export::expand_new`], which asks after each
    /// directory whether to stop: what `stopped` says is then the error.
    #[must_use]
    pub fn expand_while(
        &self,
        text: &str,
        is_new: bool,
        stopped: &dyn Fn() -> Option<Errno>,
    ) -> Globbed {
        let pattern = Pattern::new(text).map_err(Errno::from);
        let found = pattern.and_then(|pattern| self.search(&pattern, is_new, stopped));
        let nothing = |errno| vec![PathError { path: PathBuf::from(text), errno }];
        match found {
            Ok(found) if found.paths.is_empty() && found.errors.is_empty() => {
                Globbed { errors: nothing(Errno::NOMATCH), ..found }
            }
            Ok(mut found) => {
                let nameless =
                    found.errors.iter_mut().filter(|error| error.path.as_os_str().is_empty());
                nameless.for_each(|error| error.path = PathBuf::from(text));
                found
            }
            Err(errno) => Globbed { errors: nothing(errno), ..Globbed::default() },
        }
    }

    /// The paths a pattern stands for.
    ///
    /// A pattern without special characters stands for itself, whether the file exists or not, and
    /// so does each way to choose from braces that leaves none, as in shells. Only the directories
    /// that the pattern can reach are read; `**` follows no symbolic links. A directory that cannot
    /// be read is an error among the matches of the others; one that is gone meanwhile, or is
    /// something else, matches nothing.
    ///
    /// # Errors
    /// `EOVERFLOW` above [`GLOB_MATCHES_MAX`]. What was met on the way is in [`Globbed::errors`],
    /// at most [`GLOB_ERRORS_MAX`] and one without a path that says so (`EMSGSIZE`); a
    /// directory deeper below `**` than [`GLOB_DEPTH_MAX`] is `ENAMETOOLONG`.
    pub fn glob(&self, pattern: &Pattern) -> Result<Globbed> {
        self.search(pattern, false, &|| None)
    }

    fn search(
        &self,
        pattern: &Pattern,
        is_new: bool,
        stopped: &dyn Fn() -> Option<Errno>,
    ) -> Result<Globbed> {
        let mut search = GlobSearch {
            export: self,
            stopped,
            found: Vec::new(),
            errors: BTreeSet::new(),
            visits: 0,
        };
        for alternative in pattern.alternatives() {
            if let Some(path) = alternative.literal() {
                search.add(path)?;
                continue;
            }
            match alternative.parts.split_last() {
                Some((PatternPart::Literal(name), above)) if is_new => {
                    let above =
                        Alternative { parts: above.to_vec(), must_be_dir: true, ..*alternative };
                    let from = search.found.len();
                    search.run(&above)?;
                    search.found[from..].iter_mut().for_each(|path| path.push(name));
                }
                _ => search.run(alternative)?,
            }
        }
        let mut paths = search.found;
        paths.sort_unstable_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
        paths.dedup();
        let errors = search.errors.into_iter().map(|(path, errno)| PathError { path, errno });
        Ok(Globbed { paths, errors: errors.collect() })
    }
}

struct GlobSearch<'a> {
    export: &'a Export,
    stopped: &'a dyn Fn() -> Option<Errno>,
    found: Vec<PathBuf>,
    errors: BTreeSet<(PathBuf, Errno)>,
    visits: usize,
}

/// A path that matches the first `part` parts of a pattern.
struct Reached {
    path: PathBuf,
    part: usize,
    /// How many directories the current `**` has gone down.
    depth: usize,
}

impl GlobSearch<'_> {
    fn run(&mut self, pattern: &Alternative) -> Result<()> {
        let start = if pattern.absolute { PathBuf::from("/") } else { PathBuf::new() };
        let mut stack = vec![Reached { path: start, part: 0, depth: 0 }];
        while let Some(mut reached) = stack.pop() {
            if let Some(errno) = (self.stopped)() {
                return Err(errno);
            }
            while let Some(PatternPart::Literal(name)) = pattern.parts.get(reached.part) {
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
    fn read(
        &mut self,
        pattern: &Alternative,
        reached: &Reached,
        stack: &mut Vec<Reached>,
    ) -> Result<()> {
        let dir = if reached.path.as_os_str().is_empty() { Path::new(".") } else { &reached.path };
        let part = &pattern.parts[reached.part];
        let is_last = reached.part + 1 == pattern.parts.len();
        if *part == PatternPart::Directories && !is_last {
            // `**` may stand for no directory at all.
            stack.push(Reached { path: reached.path.clone(), part: reached.part + 1, depth: 0 });
        }
        let entries = match self.export.open_dir(dir).and_then(|dir| crate::dir::read(&dir)) {
            Ok(entries) => entries,
            Err(errno) => {
                self.fail(dir, errno);
                return Ok(());
            }
        };
        self.visits += entries.len();
        if self.visits > GLOB_VISITS_MAX {
            return Err(Errno::OVERFLOW);
        }
        for entry in entries {
            let path = || reached.path.join(&entry.name);
            match part {
                PatternPart::Directories if is_hidden(&entry.name) => {}
                PatternPart::Directories => {
                    if is_last && pattern.must_be_dir {
                        self.keep(path(), true)?;
                    } else if is_last {
                        self.add(path())?;
                    }
                    if self.is_dir(entry.kind, &path()) {
                        if reached.depth == GLOB_DEPTH_MAX {
                            self.fail(&path(), Errno::NAMETOOLONG);
                        } else {
                            let (part, depth) = (reached.part, reached.depth + 1);
                            stack.push(Reached { path: path(), part, depth });
                        }
                    }
                }
                PatternPart::Name(name) if name.matches_visible(entry.name.as_bytes()) => {
                    let may_lead_on = matches!(
                        entry.kind,
                        FileKind::Directory | FileKind::Symlink | FileKind::Unknown
                    );
                    if is_last && !pattern.must_be_dir {
                        self.add(path())?;
                    } else if may_lead_on {
                        stack.push(Reached { path: path(), part: reached.part + 1, depth: 0 });
                    }
                }
                PatternPart::Name(_) | PatternPart::Literal(_) => {}
            }
        }
        Ok(())
    }

    fn is_dir(&mut self, kind: FileKind, path: &Path) -> bool {
        if kind != FileKind::Unknown {
            return kind == FileKind::Directory;
        }
        match self.export.lstat(path) {
            Ok(stat) => stat.is_dir(),
            Err(errno) => {
                self.fail(path, errno);
                false
            }
        }
    }

    /// Adds a path if it exists and is of the wanted kind.
    fn keep(&mut self, mut path: PathBuf, must_be_dir: bool) -> Result<()> {
        if must_be_dir {
            // As in shells: the slash stays, and with it a link means the directory.
            path.push("");
        }
        let flags = if must_be_dir { OFlags::DIRECTORY } else { OFlags::NOFOLLOW };
        match self.export.resolve(&path, flags) {
            Ok(_) => self.add(path),
            Err(errno) => {
                self.fail(&path, errno);
                Ok(())
            }
        }
    }

    /// Nobody knows what there is at `path`; unless it is known that there is nothing.
    fn fail(&mut self, path: &Path, errno: Errno) {
        if matches!(errno, Errno::NOENT | Errno::NOTDIR) {
            return;
        }
        if self.errors.len() < GLOB_ERRORS_MAX {
            self.errors.insert((path.to_owned(), errno));
        } else if !self.errors.contains(&(path.to_owned(), errno)) {
            self.errors.insert((PathBuf::new(), Errno::MSGSIZE));
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
