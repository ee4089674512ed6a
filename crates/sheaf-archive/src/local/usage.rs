//! How much there is in trees of this machine, by directories.
use crate::usage::exclude::UsageExclude;
use crate::walk::{
    FileFacts, TreeStep, TreeVisitor, TreeWalkOptions, VisitWalk, VisitedFile, WalkedDirectory,
};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::collections::HashSet;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How to sum up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalUsageOptions {
    /// Each file is told, too, not directories alone.
    pub tells_files: bool,
    /// What is mounted below is left out.
    pub one_file_system: bool,
    /// A directory is told without those in it.
    pub separates: bool,
    /// A file counts by each of its names.
    pub counts_names: bool,
    /// What is left out.
    pub exclude: UsageExclude,
    /// How to walk.
    pub walk: TreeWalkOptions,
}

/// Files, their bytes and what they take. A file with several names counts once, where it is met first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalUsage {
    /// What is no directory.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of files and of the texts of links, holes among them.
    pub bytes: u64,
    /// Units of 512 bytes on the disk, those of directories among them.
    pub blocks: u64,
}

impl AddAssign for LocalUsage {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.directories += other.directories;
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
        /// Of all that is in it, too, but where directories are told without those in them.
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
    /// Where trees begin that were summed up: what they have counts once.
    starts: Vec<PathBuf>,
    start_ids: Arc<HashSet<(u64, u64)>>,
}

impl LocalUsageSum {
    /// Begins with nothing.
    #[must_use]
    pub fn new(options: LocalUsageOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Sums up a file, or a directory and all that is below it, but for what was summed up before.
    ///
    /// # Errors
    /// When `each` says so.
    pub fn add<E>(
        &mut self,
        start: &Path,
        each: &mut dyn FnMut(LocalUsageStep<'_>) -> Result<(), E>,
    ) -> Result<LocalUsage, E> {
        let found = crate::walk::names::lstat(start);
        let device = found.as_ref().map_or(0, |found| found.dev);
        if self.has_summed_up(start) {
            return Ok(LocalUsage::default());
        }
        let visitor = UsageVisitor {
            counted: self.start_ids.clone(),
            tells_files: self.options.tells_files,
            counts_names: self.options.counts_names,
            device: self.options.one_file_system.then_some(device),
            exclude: self.options.exclude.clone(),
        };
        let mut total = LocalUsage::default();
        let mut within: Vec<WithinUsage> = Vec::new();
        // What the directory that is entered next takes itself.
        let mut own = LocalUsage::default();
        for step in VisitWalk::new("du", start, visitor, self.options.walk) {
            match step {
                TreeStep::Piece(piece) => {
                    let sum = self.piece(&piece, each)?;
                    *within.last_mut().map_or(&mut total, |last| &mut last.own) += sum;
                    own = piece.own;
                }
                TreeStep::Enter(_) => {
                    within.push(WithinUsage { own, below: LocalUsage::default() })
                }
                TreeStep::Leave(directory) => {
                    let last = within.pop().unwrap_or_default();
                    let (mut usage, mut all) = (last.own, last.own);
                    all += last.below;
                    if !self.options.separates {
                        usage = all;
                    }
                    let (path, depth) = (directory.path(), directory.depth());
                    each(LocalUsageStep::Sum { path, depth, usage })?;
                    *within.last_mut().map_or(&mut total, |above| &mut above.below) += all;
                }
            }
        }
        // Only now: the tree must not be left out of its own sum.
        if let Ok(found) = found
            && !self.options.counts_names
        {
            Arc::make_mut(&mut self.start_ids).insert(found.id());
        }
        Ok(total)
    }

    /// Whether a tree is, or is below, one that was summed up, as far as paths tell; otherwise remembers it.
    fn has_summed_up(&mut self, start: &Path) -> bool {
        // What was left out then may be what is asked for now.
        if self.options.counts_names || !self.options.exclude.is_empty() {
            return false;
        }
        let Ok(path) = real_path(start) else {
            return false;
        };
        // With one file system, a tree below another may be a mount that was left out of that.
        let is_within = self.starts.iter().any(|above| path.starts_with(above))
            && (!self.options.one_file_system || self.starts.contains(&path));
        if !is_within {
            self.starts.push(path);
        }
        is_within
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

/// The path without links on the way, but to the file itself.
fn real_path(path: &Path) -> std::io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(above), Some(name)) if path.is_symlink() => {
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            Ok(above.canonicalize()?.join(name))
        }
        _ => path.canonicalize(),
    }
}

/// A directory that the walk is in.
#[derive(Default)]
struct WithinUsage {
    /// Of itself and its files.
    own: LocalUsage,
    /// Of the directories in it.
    below: LocalUsage,
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
    counts_names: bool,
    device: Option<u64>,
    exclude: UsageExclude,
    /// Trees within that were counted before.
    counted: Arc<HashSet<(u64, u64)>>,
}

impl TreeVisitor for UsageVisitor {
    type Piece = UsagePiece;

    fn facts(&self) -> FileFacts {
        FileFacts::Status
    }

    fn visit(&self, piece: &mut UsagePiece, file: &VisitedFile<'_>) -> bool {
        if self.excludes(file) {
            return false;
        }
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
        let is_elsewhere = self.device.is_some_and(|device| device != found.dev);
        if is_elsewhere || self.counted.contains(&found.id()) {
            return false;
        }
        if found.is_dir() {
            piece.own =
                LocalUsage { directories: 1, blocks: found.blocks, ..LocalUsage::default() };
            return true;
        }
        let usage = usage_of(found);
        let told = (self.tells_files || file.depth == 0).then_some(file.depth);
        let link = (found.nlink > 1 && !self.counts_names).then(|| found.id());
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

impl UsageVisitor {
    fn excludes(&self, file: &VisitedFile<'_>) -> bool {
        if self.exclude.is_empty() {
            return false;
        }
        let mut path = Vec::new();
        file.put_path(&mut path);
        self.exclude.fits(&path)
    }
}

fn usage_of(found: &Metadata) -> LocalUsage {
    // What else there is has a size of no meaning.
    let bytes = match found.kind {
        FileKind::File | FileKind::Symlink => found.size,
        _ => 0,
    };
    LocalUsage { files: 1, directories: 0, bytes, blocks: found.blocks }
}
