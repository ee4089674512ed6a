//! What a host has: one item for each file, with the digest of its contents.
//!
//! A manifest comes in batches, each of which can be read alone. Hosts with the same files have
//! the same bytes, so that only one of them is sent.
use super::super::message::{Attrs, Special};
use super::super::options::CopyOptions;
use crate::paths::directory_of;
use serde::{Deserialize, Serialize};
use sheaf_core::varint::{self, Malformed};
use sheaf_core::{Errno, boot_id};
use sheaf_file::{
    Export, FileIdentity, FileKind, Follow, FoundFile, Globbed, Metadata, Mode, OFlags, Pattern,
    Walk, WalkOptions,
};
use sheaf_group::tool::{Host, Reply, Running, Step, Tool};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Name of the tool at the leaves.
pub(super) const TOOL: &str = "cp.manifest";

/// How much of a file is read in one step, in bytes.
const STEP_BYTES: u64 = 8 << 20;

/// The longest content that comes with the manifest: that of files which have no size of their
/// own, as in `/proc`, and may be another each time they are read.
const INLINE_BYTES_MAX: u64 = 1 << 20;

/// The longest path of a root, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// The longest name, in bytes: that of file systems with UTF-16.
const NAME_BYTES_MAX: usize = 1024;

/// The most files with several names that are remembered.
pub(super) const LINKED_FILES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ManifestParams {
    /// Paths and patterns.
    pub paths: Vec<String>,
    pub options: CopyOptions,
    /// The machine that asks.
    pub machine: Option<u128>,
    /// The directory that all comes into, and those above it.
    pub into: Vec<FileIdentity>,
    /// A batch is sent once it has this many bytes.
    pub batch_bytes: u32,
    /// A batch is sent after this long.
    pub batch_ms: u32,
}

/// One thing a host has. Paths are relative to the root that came last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ManifestItem {
    /// What follows is at or beneath this path, which the path or pattern `of` stands for.
    Root {
        of: u32,
        path: Vec<u8>,
    },
    /// To a client of the same machine: the root, if it is a directory, or else the one that it is in.
    Here {
        dir: Vec<u8>,
    },
    Dir {
        path: Vec<u8>,
        attrs: Attrs,
    },
    File {
        path: Vec<u8>,
        attrs: Attrs,
        size: u64,
        digest: [u8; 32],
        has_holes: bool,
    },
    Inline {
        path: Vec<u8>,
        attrs: Attrs,
        content: Vec<u8>,
    },
    Symlink {
        path: Vec<u8>,
        target: Vec<u8>,
        attrs: Attrs,
    },
    /// Another name of what has the path `target` beneath this root, or beneath one before (of this pattern, at this path).
    Hardlink {
        path: Vec<u8>,
        target: Vec<u8>,
        root: Option<(u32, Vec<u8>)>,
    },
    Node {
        path: Vec<u8>,
        kind: Special,
        rdev: u64,
        attrs: Attrs,
    },
    /// This whole path failed, and with it the root `beneath` which it lies; empty: it is what was
    /// named.
    Error {
        path: Vec<u8>,
        beneath: Vec<u8>,
        errno: i32,
    },
}

/// The items of a batch, one after the other; the first malformed one is the last.
pub(super) struct Items<'a> {
    left: &'a [u8],
}

impl<'a> Items<'a> {
    pub fn of(batch: &'a [u8]) -> Self {
        Self { left: batch }
    }
}

impl Iterator for Items<'_> {
    type Item = Result<ManifestItem, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        let item = varint::get_bytes(&mut self.left).and_then(|item| {
            let item: ManifestItem = postcard::from_bytes(item).map_err(|_| Malformed)?;
            if item.is_possible() { Ok(item) } else { Err(Malformed) }
        });
        if item.is_err() {
            self.left = b"";
        }
        Some(item)
    }
}

impl ManifestItem {
    /// Whether an honest host can say this.
    fn is_possible(&self) -> bool {
        let root = match self {
            Self::Root { path, .. } | Self::Hardlink { root: Some((_, path)), .. } => &path[..],
            Self::Here { dir } if !dir.starts_with(b"/") => return false,
            Self::Here { dir } => dir,
            _ => b"",
        };
        // What is opened by its path is no longer.
        root.len() <= PATH_BYTES_MAX && self.beneath_root().is_none_or(is_plain)
    }

    /// Whether a host that is asked with these options can say this.
    pub fn is_asked_for(&self, options: &CopyOptions) -> bool {
        let is_root = self.beneath_root().is_none_or(<[u8]>::is_empty);
        let is_kind = match self {
            Self::Symlink { .. } if is_root => !options.follows_named(),
            Self::Symlink { .. } => !options.dereference,
            Self::Hardlink { .. } => options.hard_links,
            Self::Dir { .. } | Self::Node { .. } => options.recursive,
            Self::Root { .. } | Self::Here { .. } | Self::Error { .. } => true,
            Self::File { .. } | Self::Inline { .. } => true,
        };
        is_kind && (is_root || options.recursive)
    }

    /// The path beneath the root, of what has one.
    fn beneath_root(&self) -> Option<&[u8]> {
        match self {
            Self::Root { .. } | Self::Here { .. } | Self::Error { .. } => None,
            Self::Dir { path, .. }
            | Self::File { path, .. }
            | Self::Inline { path, .. }
            | Self::Symlink { path, .. }
            | Self::Hardlink { path, .. }
            | Self::Node { path, .. } => Some(path),
        }
    }
}

/// Whether a path beneath a root is written as hosts write it, so that one file has one.
fn is_plain(path: &[u8]) -> bool {
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_BYTES_MAX;
    path.is_empty() || path.split(|&byte| byte == b'/').all(is_name)
}

pub(super) fn put(out: &mut Vec<u8>, item: &ManifestItem) {
    let item = postcard::to_stdvec(item).expect("items hold nothing that cannot be serialised");
    varint::put_bytes(out, &item);
}

pub(super) struct ManifestTool;

impl Tool for ManifestTool {
    fn only_reads(&self) -> bool {
        true
    }

    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        let params: ManifestParams = postcard::from_bytes(params).map_err(|_| Errno::PROTO)?;
        Ok(Box::new(ManifestLister {
            export: host.export.clone(),
            here: host.export.clone(),
            patterns: params.paths.iter().cloned().enumerate().collect(),
            roots: VecDeque::new(),
            root: None,
            root_dir: None,
            walk: None,
            digesting: None,
            links: HashMap::new(),
            begun_roots: Vec::new(),
            begun: Instant::now(),
            said: 0,
            is_root_said: false,
            is_dir_said: false,
            params,
        }))
    }
}

/// Writes the manifest of one host.
struct ManifestLister {
    params: ManifestParams,
    export: Export,
    /// The same, with the directory held in which the present entry was found.
    here: Export,
    patterns: VecDeque<(usize, String)>,
    /// Paths of the present pattern that are still to come.
    roots: VecDeque<(u32, PathBuf)>,
    root: Option<(u32, PathBuf)>,
    /// Where the root is, for a client of this machine.
    root_dir: Option<PathBuf>,
    walk: Option<Walk>,
    digesting: Option<Digesting>,
    /// By inode: the path under which it was listed, and the root above that, by its place among those that were begun.
    links: HashMap<(u64, u64), (usize, Vec<u8>)>,
    begun_roots: Vec<(u32, Vec<u8>)>,
    /// When the batch began.
    begun: Instant,
    /// Bytes of the batch after the last step.
    said: usize,
    is_root_said: bool,
    /// Where the root is, too.
    is_dir_said: bool,
}

/// A file that is being read.
struct Digesting {
    relative: Vec<u8>,
    path: PathBuf,
    attrs: Attrs,
    has_holes: bool,
    file: File,
    hasher: blake3::Hasher,
    size: u64,
}

impl Running for ManifestLister {
    fn step(&mut self, answer: &mut Reply, host: &Host) -> Step {
        let out = answer.bytes();
        // The last batch was taken.
        if out.len() < self.said {
            self.begin_batch();
        }
        let step = self.next(out, host);
        self.said = out.len();
        let is_enough = out.len() >= self.params.batch_bytes as usize
            || self.begun.elapsed() >= Duration::from_millis(self.params.batch_ms.into());
        if step == Step::More && is_enough {
            self.begin_batch();
            return Step::Pause;
        }
        step
    }
}

impl ManifestLister {
    fn begin_batch(&mut self) {
        (self.begun, self.said, self.is_root_said) = (Instant::now(), 0, false);
    }

    fn next(&mut self, out: &mut Vec<u8>, host: &Host) -> Step {
        if let Some(digesting) = self.digesting.take() {
            self.digest(digesting, out);
        } else if let Some(walk) = &mut self.walk {
            match walk.next() {
                Some(Ok(entry)) => {
                    let relative = entry.relative.as_os_str().as_bytes().to_vec();
                    match (walk.here(), &entry.metadata) {
                        (Ok(here), Some(metadata)) => {
                            self.here = here;
                            self.list(relative, entry.path, metadata, out);
                        }
                        (Err(errno), _) => self.fail(entry.path.as_os_str().as_bytes(), errno, out),
                        (Ok(_), None) => {}
                    }
                }
                Some(Err(error)) => self.fail(error.path.as_os_str().as_bytes(), error.errno, out),
                None => self.walk = None,
            }
        } else if let Some((of, path)) = self.roots.pop_front() {
            self.begin_root(of, path, out);
        } else if let Some((of, pattern)) = self.patterns.pop_front() {
            self.expand(of as u32, &pattern, out, host);
        } else {
            return Step::Done;
        }
        Step::More
    }

    fn expand(&mut self, of: u32, pattern: &str, out: &mut Vec<u8>, host: &Host) {
        // Errors of a pattern are of no root.
        self.root = None;
        let Globbed { paths, errors } = host.expand(pattern);
        errors
            .iter()
            .for_each(|error| self.fail(error.path.as_os_str().as_bytes(), error.errno, out));
        self.roots = paths.into_iter().map(|path| (of, path)).collect();
    }

    fn begin_root(&mut self, of: u32, path: PathBuf, out: &mut Vec<u8>) {
        let options = &self.params.options;
        self.root = Some((of, path.clone()));
        self.is_root_said = false;
        if options.hard_links {
            self.begun_roots.push((of, path.as_os_str().as_bytes().to_vec()));
        }
        self.here = self.export.clone();
        let is_here = self.params.machine.is_some_and(|asks| boot_id() == Some(asks));
        self.root_dir = if is_here { self.where_is(&path) } else { None };
        let options = &self.params.options;
        if options.recursive {
            let follow = if options.dereference { Follow::Always } else { Follow::Never };
            let walk = WalkOptions { follow, metadata: true, ..WalkOptions::default() };
            self.walk = Some(self.export.walk(&path, walk));
            return;
        }
        let looked = if options.follows_named() {
            self.export.stat(&path)
        } else {
            self.export.lstat(&path)
        };
        match looked {
            Ok(metadata) if metadata.is_dir() => {
                self.fail(path.as_os_str().as_bytes(), Errno::ISDIR, out)
            }
            Ok(metadata) => self.list(Vec::new(), path, &metadata, out),
            Err(errno) => self.fail(path.as_os_str().as_bytes(), errno, out),
        }
    }

    /// The directory that a root is, or is in.
    fn where_is(&self, path: &Path) -> Option<PathBuf> {
        let is_dir = self.export.lstat(path).is_ok_and(|there| there.is_dir());
        self.export.machine_path(if is_dir { path } else { directory_of(path) }).ok()
    }

    fn list(&mut self, relative: Vec<u8>, path: PathBuf, metadata: &Metadata, out: &mut Vec<u8>) {
        let options = &self.params.options;
        let follow =
            if relative.is_empty() { options.follows_named() } else { options.dereference };
        if let Err(errno) = self.try_list(relative, &path, metadata, follow, out) {
            self.fail(path.as_os_str().as_bytes(), errno, out);
        }
    }

    /// Other names of it are links to it.
    fn may_link(&mut self, is_linked: bool, relative: &[u8], metadata: &Metadata) {
        if is_linked && self.links.len() < LINKED_FILES_MAX {
            let root = self.begun_roots.len().saturating_sub(1);
            self.links.insert(metadata.id(), (root, relative.to_vec()));
        }
    }

    fn try_list(
        &mut self,
        relative: Vec<u8>,
        path: &Path,
        metadata: &Metadata,
        follow: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let has_names = match metadata.kind {
            FileKind::CharDevice | FileKind::BlockDevice => self.params.options.preserve,
            kind => matches!(kind, FileKind::File | FileKind::Symlink | FileKind::Fifo),
        };
        let is_linked = self.params.options.hard_links && metadata.nlink > 1 && has_names;
        if is_linked && let Some((root, target)) = self.links.get(&metadata.id()) {
            let is_here = *root + 1 == self.begun_roots.len();
            let root = if is_here { None } else { self.begun_roots.get(*root).cloned() };
            let item = ManifestItem::Hardlink { path: relative, target: target.clone(), root };
            self.say(&item, out);
            return Ok(());
        }
        // All that is said of it is of one file, whatever takes its place meanwhile.
        let found = self.found(path, metadata, follow)?;
        let attrs = self.attrs(&found)?;
        let special = match metadata.kind {
            FileKind::File => {
                let file = File::from(found.into_descriptor());
                self.may_link(is_linked, &relative, metadata);
                let has_holes = metadata.blocks.saturating_mul(512) < metadata.size;
                let hasher = blake3::Hasher::new();
                let path = path.to_owned();
                let digesting =
                    Digesting { relative, path, attrs, has_holes, file, hasher, size: 0 };
                if metadata.size > 0 {
                    self.digesting = Some(digesting);
                    return Ok(());
                }
                return self.inline(digesting, out);
            }
            FileKind::Directory => {
                if relative.is_empty() {
                    self.check_apart(&found)?;
                }
                self.say(&ManifestItem::Dir { path: relative, attrs }, out);
                return Ok(());
            }
            // What links lead to was asked for, and this one leads nowhere.
            FileKind::Symlink if follow => return Err(Errno::NOENT),
            FileKind::Symlink => {
                let target = found.link_target()?.into_os_string().into_encoded_bytes();
                self.may_link(is_linked, &relative, metadata);
                self.say(&ManifestItem::Symlink { path: relative, target, attrs }, out);
                return Ok(());
            }
            FileKind::Fifo => Special::Fifo,
            FileKind::CharDevice => Special::CharDevice,
            FileKind::BlockDevice => Special::BlockDevice,
            FileKind::Socket | FileKind::Unknown => return Err(Errno::OPNOTSUPP),
        };
        if !self.params.options.recursive {
            // What comes out of a host's device or pipe has no end that one could wait for.
            return Err(Errno::OPNOTSUPP);
        }
        self.may_link(is_linked, &relative, metadata);
        self.say(
            &ManifestItem::Node { path: relative, kind: special, rdev: metadata.rdev, attrs },
            out,
        );
        Ok(())
    }

    /// The file that was looked at, a regular one open to read.
    fn found(&self, path: &Path, metadata: &Metadata, follow: bool) -> Result<FoundFile, Errno> {
        let found = match metadata.kind {
            FileKind::File => {
                let no_follow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | no_follow;
                FoundFile::of(self.here.open_file(path, flags, Mode::empty())?)?
            }
            _ => self.here.find(path, follow)?,
        };
        if found.metadata().id() == metadata.id() { Ok(found) } else { Err(Errno::STALE) }
    }

    /// Refuses a directory that all is copied into (`EINTOSELF`), with all beneath it.
    fn check_apart(&mut self, dir: &FoundFile) -> Result<(), Errno> {
        for above in &self.params.into {
            if above.is(dir)? {
                self.walk = None;
                return Err(Errno::INTOSELF);
            }
        }
        Ok(())
    }

    fn attrs(&self, file: &FoundFile) -> Result<Attrs, Errno> {
        let options = &self.params.options;
        // The last access is every host's own, and reading has just changed it.
        Ok(Attrs { atime: None, ..options.attrs_of(file, file.metadata())? })
    }

    /// Reads on; a file that is through becomes an item.
    fn digest(&mut self, mut digesting: Digesting, out: &mut Vec<u8>) {
        let read = digesting
            .hasher
            .update_reader((&digesting.file).take(STEP_BYTES))
            .map(|hasher| hasher.count());
        match read {
            Ok(size) if size - digesting.size == STEP_BYTES => {
                digesting.size = size;
                self.digesting = Some(digesting);
            }
            Ok(size) => {
                let Digesting { relative: path, attrs, has_holes, hasher, .. } = digesting;
                let digest = *hasher.finalize().as_bytes();
                self.say(&ManifestItem::File { path, attrs, size, digest, has_holes }, out);
            }
            Err(error) => self.fail(digesting.path.as_os_str().as_bytes(), error.into(), out),
        }
    }

    /// A file of no size: empty, or made up as it is read.
    fn inline(&mut self, digesting: Digesting, out: &mut Vec<u8>) -> Result<(), Errno> {
        let Digesting { relative: path, attrs, file, .. } = digesting;
        let mut content = Vec::new();
        // One byte more shows that it is too long.
        match file.take(INLINE_BYTES_MAX + 1).read_to_end(&mut content) {
            Ok(_) => {}
            // Nothing to read now, and nobody waits for more.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if content.len() as u64 > INLINE_BYTES_MAX {
            return Err(Errno::FBIG);
        }
        self.say(&ManifestItem::Inline { path, attrs, content }, out);
        Ok(())
    }

    fn say(&mut self, item: &ManifestItem, out: &mut Vec<u8>) {
        if !self.is_root_said
            && let Some((of, path)) = &self.root
        {
            put(out, &ManifestItem::Root { of: *of, path: path.as_os_str().as_bytes().to_vec() });
            (self.is_root_said, self.is_dir_said) = (true, false);
        }
        // It matters for links alone, and manifests without it are those of other hosts.
        if let Some(dir) = &self.root_dir
            && matches!(item, ManifestItem::Symlink { .. })
            && !std::mem::replace(&mut self.is_dir_said, true)
        {
            put(out, &ManifestItem::Here { dir: dir.as_os_str().as_bytes().to_vec() });
        }
        put(out, item);
    }

    fn fail(&mut self, path: &[u8], errno: Errno, out: &mut Vec<u8>) {
        let root = self.root.as_ref().map(|(_, root)| root.as_os_str().as_bytes());
        let beneath = root.filter(|root| *root != path).unwrap_or_default().to_vec();
        put(out, &ManifestItem::Error { path: path.to_vec(), beneath, errno: errno.0 });
    }
}

/// A path or pattern that hosts are asked for.
#[derive(Debug)]
pub(super) struct AskedPath {
    /// Nothing stands for a malformed one.
    pattern: Option<Pattern>,
    literal: Option<PathBuf>,
    /// What is in front of the first component with a wildcard.
    fixed: String,
    leads_back: bool,
}

impl AskedPath {
    pub fn new(text: &str) -> Self {
        let pattern = Pattern::new(text).ok();
        let literal = pattern.as_ref().and_then(Pattern::literal);
        let special = text.find(|c| "*?[{\\".contains(c)).unwrap_or(0);
        let fixed = text[..special].rfind('/').map_or("", |slash| &text[..=slash]).to_owned();
        let mut behind = text[fixed.len()..].split(['/', '{', ',', '}']);
        let leads_back = literal.is_none() && behind.any(|name| name == "..");
        Self { pattern, literal, fixed, leads_back }
    }

    /// Whether it goes back by `..` behind the first wildcard, where names here begin.
    pub fn leads_back(&self) -> bool {
        self.leads_back
    }

    /// Whether it may stand for this path on a host.
    pub fn stands_for(&self, root: &[u8]) -> bool {
        let root = Path::new(OsStr::from_bytes(root));
        match &self.literal {
            Some(one) => one.as_os_str() == root.as_os_str(),
            None => self.pattern.as_ref().is_some_and(|pattern| pattern.matches(root)),
        }
    }

    /// Where a root goes beneath the directory of its host: the last component of a path, and of
    /// what a pattern stands for everything from the first component with a wildcard.
    pub fn local_name(&self, root: &[u8]) -> Vec<u8> {
        let root = Path::new(OsStr::from_bytes(root));
        if self.literal.is_none()
            && let Ok(rest) = root.strip_prefix(&self.fixed)
        {
            return rest.as_os_str().as_bytes().to_vec();
        }
        crate::paths::name_of(root).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_beneath_the_directory_of_a_host() {
        let cases = [
            ("/var/log/boot.log", "/var/log/boot.log", "boot.log"),
            ("/etc/", "/etc/", "etc"),
            ("/", "/", ""),
            ("/var/log/*/current", "/var/log/a/current", "a/current"),
            ("/etc/{a,b}.conf", "/etc/b.conf", "b.conf"),
            ("*/x", "q/x", "q/x"),
        ];
        for (pattern, root, name) in cases {
            let asked = AskedPath::new(pattern);
            assert_eq!(asked.local_name(root.as_bytes()), name.as_bytes(), "{pattern}");
        }
    }

    #[test]
    fn path_that_is_not_plain_is_malformed() {
        let manifest = |path: &str| {
            let mut out = Vec::new();
            put(&mut out, &ManifestItem::Root { of: 0, path: b"/d/.".to_vec() });
            put(&mut out, &ManifestItem::Dir { path: path.into(), attrs: Attrs::default() });
            Items::of(&out).collect::<Result<Vec<_>, _>>()
        };
        for path in ["", "a", "a/b", "..a", ".b/c."] {
            assert!(manifest(path).is_ok(), "{path}");
        }
        for path in [".", "a/.", "./a", "..", "a//b", "/a", "a/"] {
            assert!(manifest(path).is_err(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            Items::of(&bytes).for_each(drop);
        }
    }
}
