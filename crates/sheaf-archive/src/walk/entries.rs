//! A walk that tells of each file by itself.
use super::WalkedDirectory;
use super::{FileFacts, TreeStep, TreeVisitor, TreeWalkOptions, VisitWalk, VisitedFile};
use sheaf_core::Errno;
use sheaf_core::files::Metadata;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// What is found: a directory before what is in it, and the names of one in bytewise order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Its path, which begins with the path that the walk does.
    pub path: PathBuf,
    /// What `lstat` says, or why that is not known. Of a directory that cannot be read, or not to its
    /// end, a second entry says why.
    pub found: Result<Metadata, Errno>,
}

/// A walk: an iterator of what is found. Dropped, it is over.
pub struct TreeWalk {
    walk: VisitWalk<EntryVisitor>,
    piece: std::vec::IntoIter<TreeEntry>,
}

struct EntryVisitor;

impl TreeVisitor for EntryVisitor {
    type Piece = Vec<TreeEntry>;

    fn facts(&self) -> FileFacts {
        FileFacts::Status
    }

    fn visit(&self, piece: &mut Vec<TreeEntry>, file: &VisitedFile<'_>) -> bool {
        let mut path = Vec::with_capacity(file.above.len() + file.name.len());
        file.put_path(&mut path);
        let path = PathBuf::from(OsString::from_vec(path));
        let found = file.found.cloned().unwrap_or(Err(Errno::INVAL));
        piece.push(TreeEntry { path, found });
        true
    }

    fn failed(&self, piece: &mut Vec<TreeEntry>, directory: &WalkedDirectory, errno: Errno) {
        let path = PathBuf::from(OsString::from_vec(directory.path().to_vec()));
        piece.push(TreeEntry { path, found: Err(errno) });
    }

    fn bytes(&self, piece: &Vec<TreeEntry>) -> usize {
        piece.iter().map(|entry| size_of::<TreeEntry>() + entry.path.capacity()).sum()
    }
}

impl TreeWalk {
    /// Begins at a file or directory. A link is a file itself, here as below.
    #[must_use]
    pub fn new(start: &Path, options: TreeWalkOptions) -> Self {
        Self::named("walk", start, options)
    }

    /// As [`TreeWalk::new`], with a name for its threads, by which they are told apart.
    #[must_use]
    pub fn named(name: &str, start: &Path, options: TreeWalkOptions) -> Self {
        let walk = VisitWalk::new(name, start, EntryVisitor, options);
        Self { walk, piece: Vec::new().into_iter() }
    }
}

impl Iterator for TreeWalk {
    type Item = TreeEntry;

    fn next(&mut self) -> Option<TreeEntry> {
        loop {
            if let Some(entry) = self.piece.next() {
                return Some(entry);
            }
            if let TreeStep::Piece(piece) = self.walk.next()? {
                self.piece = piece.into_iter();
            }
        }
    }
}
