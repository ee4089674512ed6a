//! How much there is in trees of this machine, by directories.
use crate::{
    FileFacts, TreeStep, TreeVisitor, TreeWalkOptions, VisitWalk, VisitedFile, WalkedDirectory,
};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::collections::HashSet;
use std::ops::AddAssign;
use std::path::Path;

/// How to sum up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalUsageOptions {
    /// Each file is told, too, not directories alone.
    pub tells_files: bool,
    /// What is mounted below is left out.
    pub one_file_system: bool,
    /// How to walk.
    pub walk: TreeWalkOptions,
}

/// Files, their bytes and what they take. A file with several names counts once, where it is met first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalUsage {
    /// What is no directory.
    pub files: u64,
    /// Bytes of files and of the texts of links, holes among them.
    pub bytes: u64,
    /// Units of 512 bytes on the disk, those of directories among them.
    pub blocks: u64,
}

impl AddAssign for LocalUsage {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.blocks += other.blocks;
    }
}

/// What is told of a sum.
#[derive(Debug)]
pub enum LocalUsageStep<'a> {
    /// A directory behind all that is in it, or a file.
    Sum {
        /// Its path, as the walk's begins.
        path: &'a [u8],
        /// Levels below where the walk began.
        depth: usize,
        /// Of all that is in it, too.
        usage: LocalUsage,
    },
    /// Something could not be read.
    Failed {
        /// Its path.
        path: &'a [u8],
        /// Why.
        errno: Errno,
    },
}

/// Sums up trees, in one or several places.
#[derive(Debug, Default)]
pub struct LocalUsageSum {
    options: LocalUsageOptions,
    /// Files with several names of which one was counted.
    links: HashSet<(u64, u64)>,
}

impl LocalUsageSum {
    /// Begins with nothing.
    #[must_use]
    pub fn new(options: LocalUsageOptions) -> Self {
        Self { options, links: HashSet::new() }
    }

    /// Sums up a file, or a directory and all that is below it.
    ///
    /// # Errors
    /// When `each` says so.
    pub fn add<E>(
        &mut self,
        start: &Path,
        each: &mut dyn FnMut(LocalUsageStep<'_>) -> Result<(), E>,
    ) -> Result<LocalUsage, E> {
        let device = crate::walk::names::lstat(start).map_or(0, |found| found.dev);
        let visitor = UsageVisitor {
            tells_files: self.options.tells_files,
            device: self.options.one_file_system.then_some(device),
        };
        let mut total = LocalUsage::default();
        let mut within: Vec<LocalUsage> = Vec::new();
        // What the directory that is entered next takes itself.
        let mut own = LocalUsage::default();
        for step in VisitWalk::new("du", start, visitor, self.options.walk) {
            match step {
                TreeStep::Piece(piece) => {
                    let sum = self.piece(&piece, each)?;
                    *within.last_mut().unwrap_or(&mut total) += sum;
                    own = piece.own;
                }
                TreeStep::Enter(_) => within.push(own),
                TreeStep::Leave(directory) => {
                    let usage = within.pop().unwrap_or_default();
                    let (path, depth) = (directory.path(), directory.depth());
                    each(LocalUsageStep::Sum { path, depth, usage })?;
                    *within.last_mut().unwrap_or(&mut total) += usage;
                }
            }
        }
        Ok(total)
    }

    /// The sum of some files.
    fn piece<E>(
        &mut self,
        piece: &UsagePiece,
        each: &mut dyn FnMut(LocalUsageStep<'_>) -> Result<(), E>,
    ) -> Result<LocalUsage, E> {
        let mut sum = piece.sum;
        let mut from = 0;
        for file in &piece.files {
            let path = &piece.paths[from..][..file.path_bytes];
            from += file.path_bytes;
            if file.link.is_some_and(|link| !self.links.insert(link)) {
                continue;
            }
            sum += file.usage;
            if let Some(depth) = file.told {
                each(LocalUsageStep::Sum { path, depth, usage: file.usage })?;
            }
        }
        for (path, errno) in &piece.errors {
            each(LocalUsageStep::Failed { path, errno: *errno })?;
        }
        Ok(sum)
    }
}

/// What is counted of some files of a directory.
#[derive(Default)]
struct UsagePiece {
    sum: LocalUsage,
    /// Those that are not in the sum, because they are told, or have several names.
    files: Vec<UsageFile>,
    /// Their paths, one behind the other.
    paths: Vec<u8>,
    errors: Vec<(Vec<u8>, Errno)>,
    /// The directory that stands last.
    own: LocalUsage,
}

struct UsageFile {
    path_bytes: usize,
    usage: LocalUsage,
    link: Option<(u64, u64)>,
    /// How deep it is, if it is told.
    told: Option<usize>,
}

struct UsageVisitor {
    tells_files: bool,
    device: Option<u64>,
}

impl TreeVisitor for UsageVisitor {
    type Piece = UsagePiece;

    fn facts(&self) -> FileFacts {
        FileFacts::Status
    }

    fn visit(&self, piece: &mut UsagePiece, file: &VisitedFile<'_>) -> bool {
        let found = match file.found {
            Some(Ok(found)) => found,
            Some(Err(errno)) => {
                let mut path = Vec::new();
                file.put_path(&mut path);
                piece.errors.push((path, *errno));
                return false;
            }
            None => return false,
        };
        if self.device.is_some_and(|device| device != found.dev) {
            return false;
        }
        if found.is_dir() {
            piece.own = LocalUsage { blocks: found.blocks, ..LocalUsage::default() };
            return true;
        }
        let usage = usage_of(found);
        let told = (self.tells_files || file.depth == 0).then_some(file.depth);
        let link = (found.nlink > 1).then(|| found.id());
        if told.is_none() && link.is_none() {
            piece.sum += usage;
            return false;
        }
        let from = piece.paths.len();
        if told.is_some() {
            file.put_path(&mut piece.paths);
        }
        let path_bytes = piece.paths.len() - from;
        piece.files.push(UsageFile { path_bytes, usage, link, told });
        false
    }

    fn failed(&self, piece: &mut UsagePiece, directory: &WalkedDirectory, errno: Errno) {
        piece.errors.push((directory.path().to_vec(), errno));
    }

    fn bytes(&self, piece: &UsagePiece) -> usize {
        let errors = piece.errors.iter().map(|(path, _)| path.len() + 32).sum::<usize>();
        piece.files.capacity() * size_of::<UsageFile>() + piece.paths.capacity() + errors
    }
}

fn usage_of(found: &Metadata) -> LocalUsage {
    // What else there is has a size of no meaning.
    let bytes = match found.kind {
        FileKind::File | FileKind::Symlink => found.size,
        _ => 0,
    };
    LocalUsage { files: 1, bytes, blocks: found.blocks }
}
