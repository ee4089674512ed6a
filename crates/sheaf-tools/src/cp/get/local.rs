//! Writing what came from hosts: each host has a directory of its own and cannot leave it.
use super::super::options::CopyOptions;
use super::super::place::{Dir, DirId, Writer};
use super::Made;
use super::manifest::LINKED_FILES_MAX;
use super::plan::{CopiedContent, CopiedLink, Copy};
use crate::paths::Cut;
use rustix::fs::Mode;
use sheaf_core::{Errno, RangeSet};
use sheaf_file::{Export, FileIdentity, FileKind, Metadata, PathError, Staged};
use sheaf_group::Client;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories of hosts that are kept open.
const HOSTS_OPEN_MAX: usize = 64;

/// How much of a file is copied at once, in bytes.
const COPY_BYTES: usize = 256 << 10;

/// Failures on this machine that are told one by one.
const ERRORS_MAX: usize = 4096;

/// The directories of all hosts.
pub(super) struct Local {
    base: PathBuf,
    /// The directory at `base`.
    root: Export,
    /// What comes goes into `base` itself: it is of one host.
    is_exact: bool,
    client: Client,
    writer: Writer,
    open: HashMap<u32, Export>,
    /// Whose each directory of a host is.
    host_dirs: HashMap<(u64, u64), u32>,
    /// Files that could not be written, and so are not linked to.
    failed: HashSet<(u32, PathBuf)>,
    /// What has other names, by its first.
    pub named: HashSet<PathBuf>,
    /// The files that these are, by host.
    linked: HashMap<(u32, PathBuf), (u64, u64)>,
    /// Directories that could not be made, and so nothing is written beneath them: what is in their
    /// place may lead elsewhere.
    unmade: HashMap<u32, HashSet<PathBuf>>,
    /// Directories with attributes to set once everything is in them.
    closing: Vec<(u32, Copy, sheaf_file::Attributes, DirId)>,
    pub cut: Vec<Cut>,
    pub errors: Vec<PathError>,
    pub errors_more: u64,
    /// Of which paths that were named, and of which hosts, something could not be written.
    pub failed_named: HashMap<Arc<[u8]>, RangeSet>,
    pub files: u64,
    pub bytes: u64,
    pub made: Made,
}

/// The directory of this machine that everything goes into. It may be `made`, and is then no link that took its place.
fn open_base(base: &Path, made: bool) -> Result<Export, Errno> {
    if made {
        match std::fs::create_dir(base) {
            Ok(()) => {
                let above = base.parent().filter(|above| !above.as_os_str().is_empty());
                let above = Export::open(above.unwrap_or(Path::new(".")))?;
                return above.subdirectory(base.file_name().ok_or(Errno::NOENT)?);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
    Export::open(base)
}

impl Local {
    /// The directories beneath `base`, which is made if it is not there; with an exact name `base`
    /// itself.
    pub fn new(base: &Path, client: &Client, options: &CopyOptions) -> Result<Self, Errno> {
        let export = open_base(base, !options.exact_name)?;
        Ok(Self {
            base: base.to_owned(),
            is_exact: options.exact_name,
            client: client.clone(),
            writer: Writer::new(&export, options)?.here(),
            root: export,
            open: HashMap::new(),
            host_dirs: HashMap::new(),
            failed: HashSet::new(),
            named: HashSet::new(),
            linked: HashMap::new(),
            unmade: HashMap::new(),
            closing: Vec::new(),
            cut: Vec::new(),
            errors: Vec::new(),
            errors_more: 0,
            failed_named: HashMap::new(),
            files: 0,
            bytes: 0,
            made: Made::default(),
        })
    }

    /// A writer into the directory of one host.
    fn at(&mut self, leaf: u32) -> Result<Writer, Errno> {
        if let Some(export) = self.open.get(&leaf) {
            return Ok(self.writer.at(export));
        }
        let export = if self.is_exact { self.root.clone() } else { self.make_host_dir(leaf)? };
        // By a link of its user's, the directory of one may be that of another, whose files it would replace.
        let is_of = *self.host_dirs.entry(export.stat(Path::new("."))?.id()).or_insert(leaf);
        if is_of != leaf && !self.is_exact {
            return Err(Errno::NOTUNIQ);
        }
        if self.open.len() >= HOSTS_OPEN_MAX {
            self.open.clear();
        }
        self.open.insert(leaf, export.clone());
        Ok(self.writer.at(&export))
    }

    /// A writer of this path in the directory of one host; `ENOTDIR` beneath a directory that could
    /// not be made.
    fn of(&mut self, leaf: u32, path: &Path) -> Result<Writer, Errno> {
        if self.is_unmade(leaf, path) {
            return Err(Errno::NOTDIR);
        }
        let mut writer = self.at(leaf)?;
        // No link is on the way, whatever takes the place of a directory that was made.
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            writer = writer.hold_straight(dir)?;
        }
        // What has an exact name is what its user has named.
        let mut names = path.components();
        Ok(match (self.is_exact, names.next(), names.next()) {
            // The same may be copied again and again, and the host may have laid a link before.
            (true, Some(_), None) => writer.following_none(),
            (true, Some(top), Some(_)) => writer.within_tree().beneath(top.as_ref()),
            _ => writer.within_tree(),
        })
    }

    /// Whether a path is beneath a directory that could not be made. Every directory beneath such a one is one, too.
    fn is_unmade(&self, leaf: u32, path: &Path) -> bool {
        let unmade = self.unmade.get(&leaf).zip(path.parent());
        unmade.is_some_and(|(unmade, above)| unmade.contains(above))
    }

    /// The directory of one host, which is made if it does not exist.
    fn make_host_dir(&self, leaf: u32) -> Result<Export, Errno> {
        let name = self.host_name(leaf);
        // A host may have laid it, by a copy to this very name.
        let is_link = |there: Metadata| there.kind == FileKind::Symlink;
        if self.root.lstat(Path::new(&name)).is_ok_and(is_link)
            && self.root.leads_out(Path::new(&name))
        {
            return Err(Errno::ACCES);
        }
        match self.root.create_dir(Path::new(&name), Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.root.subdirectory(name.as_ref()),
            Err(errno) => Err(errno),
        }
    }

    fn host_dir(&self, leaf: u32) -> PathBuf {
        if self.is_exact { self.base.clone() } else { self.base.join(self.host_name(leaf)) }
    }

    fn host_name(&self, leaf: u32) -> String {
        self.client.host(leaf).unwrap_or_else(|| leaf.to_string())
    }

    pub fn make_dirs(&mut self, dirs: &[Copy]) {
        self.each(dirs.iter(), |local, leaf, copy| {
            let path = dot(&copy.local);
            let is_top = copy.local.as_os_str().is_empty();
            let writer = local.of(leaf, &copy.local).inspect_err(|_| {
                local.unmade.entry(leaf).or_default().insert(copy.local.clone());
            })?;
            // Of a directory that is only made for what is in it, the host has said nothing.
            let writer = if copy.remote.is_empty() { writer.keeping_nothing() } else { writer };
            let made = writer.make_dir(path, &copy.attrs, is_top);
            if made.is_err() {
                local.unmade.entry(leaf).or_default().insert(copy.local.clone());
            }
            let Dir { writer, closing, is_new } = made?;
            // Directories that are only made for what is in them are nothing that was asked for.
            if is_new && !copy.remote.is_empty() {
                local.made.add(leaf, true);
            }
            if let Some(attributes) = closing {
                let id = writer.dir_id(path)?;
                local.closing.push((leaf, copy.clone(), attributes, id));
            }
            Ok(())
        });
    }

    /// Writes a whole content to every place that has it.
    pub fn write(&mut self, content: &[u8], digest: &[u8; 32], copies: &[Copy]) {
        self.each(copies.iter(), |local, leaf, copy| {
            let writer = local.of(leaf, &copy.local)?;
            let mut staged = writer.begin(&copy.local, &copy.attrs, copy.has_holes, None)?;
            let filled = staged.write_at(0, content);
            local.end(leaf, copy, staged, filled, digest)
        });
    }

    pub fn begin(&mut self, leaf: u32, copy: &Copy) -> Result<Staged, Errno> {
        self.of(leaf, &copy.local)?.begin(&copy.local, &copy.attrs, copy.has_holes, None)
    }

    /// The files that would be written in place with a content, as far as they can be found; the
    /// writing says why others cannot.
    pub fn in_place(&mut self, content: &CopiedContent, most: usize) -> Vec<FileIdentity> {
        let mut found = Vec::new();
        for copy in &content.copies {
            for leaf in copy.leaves.iter().take(most - found.len().min(most)) {
                found.extend(self.in_place_at(leaf, &copy.local));
            }
        }
        found
    }

    /// The file that would be written in place at one path of one host.
    pub fn in_place_at(&mut self, leaf: u32, path: &Path) -> Option<FileIdentity> {
        self.of(leaf, path).and_then(|writer| writer.in_place(path)).ok().flatten()
    }

    pub fn finish(
        &mut self,
        leaf: u32,
        copy: &Copy,
        staged: Staged,
        digest: &[u8; 32],
    ) -> Result<(), Errno> {
        self.end(leaf, copy, staged, Ok(()), digest)
    }

    /// Ends a file that may have got all.
    fn end(
        &mut self,
        leaf: u32,
        copy: &Copy,
        staged: Staged,
        filled: Result<(), Errno>,
        digest: &[u8; 32],
    ) -> Result<(), Errno> {
        if let Err(errno) = filled {
            self.give_up(leaf, copy, &staged);
            return Err(errno);
        }
        let (size, is_direct) = (staged.size(), staged.is_direct());
        match self.at(leaf)?.finish(staged, &copy.attrs, digest) {
            Ok(written) => {
                // What an earlier try left in part is whole now.
                let path = self.path_of(leaf, copy);
                self.cut.retain(|cut| cut.path != path);
                self.may_link_written(leaf, copy, &written);
                self.wrote(leaf, size);
                Ok(())
            }
            Err(errno) => {
                if is_direct {
                    self.cut_at(leaf, copy, size);
                }
                Err(errno)
            }
        }
    }

    /// A file does not get more. What was written in place stays.
    pub fn give_up(&mut self, leaf: u32, copy: &Copy, staged: &Staged) {
        if staged.is_direct() {
            self.cut_at(leaf, copy, staged.size());
        }
    }

    fn cut_at(&mut self, leaf: u32, copy: &Copy, bytes: u64) {
        let path = self.path_of(leaf, copy);
        self.cut.retain(|cut| cut.path != path);
        if self.cut.len() < ERRORS_MAX {
            self.cut.push(Cut { path, leaves: RangeSet::single(leaf), bytes });
        }
    }

    fn path_of(&self, leaf: u32, copy: &Copy) -> String {
        self.host_dir(leaf).join(&copy.local).display().to_string()
    }

    /// Copies what `first` now has to all other places of a content.
    pub fn replicate(&mut self, content: &CopiedContent, first: (u32, &Copy)) {
        let from = match self.at(first.0).and_then(|writer| writer.export.open_read(&first.1.local))
        {
            Ok(file) => file,
            Err(errno) => return self.fail(first.0, first.1, errno),
        };
        let source = match FileIdentity::of(&from) {
            Ok(source) => source,
            Err(errno) => return self.fail(first.0, first.1, errno),
        };
        let mut buffer = vec![0; COPY_BYTES];
        self.each(content.copies.iter(), |local, leaf, copy| {
            if (leaf, &copy.local) == (first.0, &first.1.local) {
                return Ok(());
            }
            let writer = local.of(leaf, &copy.local)?;
            let staged = writer.begin(&copy.local, &copy.attrs, copy.has_holes, source.as_ref());
            if staged.as_ref().is_err_and(|errno| *errno == Errno::SAMEFILE) {
                // Another name of the file that has the content already.
                local.wrote(leaf, content.size);
                return Ok(());
            }
            let mut staged = staged?;
            let filled = local.fill(&mut staged, &from, &mut buffer, content.size);
            local.end(leaf, copy, staged, filled, &content.digest)
        });
    }

    fn fill(
        &self,
        staged: &mut Staged,
        from: &File,
        buffer: &mut [u8],
        size: u64,
    ) -> Result<(), Errno> {
        let mut at = 0;
        while at < size {
            if let Some(errno) = self.client.is_over() {
                return Err(errno);
            }
            let length = from.read_at(buffer, at)?;
            if length == 0 {
                break;
            }
            staged.write_at(at, &buffer[..length])?;
            at += length as u64;
        }
        Ok(())
    }

    pub fn make_links(&mut self, links: &[(Copy, CopiedLink)]) {
        for (copy, link) in links {
            self.each(std::iter::once(copy), |local, leaf, copy| {
                let writer = local.of(leaf, &copy.local)?;
                let made = match link {
                    CopiedLink::Symlink(target, source) => {
                        writer.symlink(&copy.local, target, &copy.attrs, source)
                    }
                    CopiedLink::Node(kind, rdev) => {
                        writer.node(&copy.local, *kind, *rdev, &copy.attrs)
                    }
                    // What has the name there is not what was to be linked to.
                    CopiedLink::Hardlink(file) if local.failed.contains(&(leaf, file.clone())) => {
                        Err(Errno::NOENT)
                    }
                    CopiedLink::Hardlink(file) => {
                        let expected = local.linked.get(&(leaf, file.clone())).copied();
                        writer.hard_link(file, &copy.local, expected)
                    }
                };
                let made = made?;
                if !matches!(link, CopiedLink::Hardlink(_)) {
                    local.may_link(leaf, copy, made);
                }
                local.made.add(leaf, false);
                Ok(())
            });
        }
    }

    /// Gives directories their attributes, innermost first.
    pub fn close_dirs(&mut self) {
        for (leaf, copy, attributes, id) in std::mem::take(&mut self.closing).into_iter().rev() {
            let path = dot(&copy.local);
            let closed = self
                .at(leaf)
                .and_then(|writer| writer.hold_again(path, id)?.close_dir(path, attributes));
            if let Err(errno) = closed {
                self.fail(leaf, &copy, errno);
            }
        }
    }

    /// A file cannot be had, and so nothing may be linked to it.
    pub fn lack(&mut self, copies: &[Copy]) {
        for copy in copies {
            let each = copy.leaves.iter().map(|leaf| (leaf, copy.local.clone()));
            self.failed.extend(each);
        }
    }

    fn each<'a>(
        &mut self,
        copies: impl Iterator<Item = &'a Copy>,
        mut act: impl FnMut(&mut Self, u32, &Copy) -> Result<(), Errno>,
    ) {
        for copy in copies {
            for leaf in copy.leaves.iter() {
                if let Err(errno) = act(self, leaf, copy) {
                    self.fail(leaf, copy, errno);
                }
            }
        }
    }

    /// The same of a file. What was written into a device that is there is no file, and has no other names.
    fn may_link_written(&mut self, leaf: u32, copy: &Copy, written: &Metadata) {
        if written.kind == FileKind::File {
            self.may_link(leaf, copy, written.id());
        } else {
            self.failed.insert((leaf, copy.local.clone()));
        }
    }

    /// Other names are links to what was made, and to nothing that takes its place.
    fn may_link(&mut self, leaf: u32, copy: &Copy, made: (u64, u64)) {
        if self.named.contains(&copy.local) && self.linked.len() < LINKED_FILES_MAX {
            self.linked.insert((leaf, copy.local.clone()), made);
        }
    }

    fn wrote(&mut self, leaf: u32, bytes: u64) {
        self.made.add(leaf, false);
        self.files += 1;
        self.bytes += bytes;
    }

    pub fn fail(&mut self, leaf: u32, copy: &Copy, errno: Errno) {
        self.failed.insert((leaf, copy.local.clone()));
        self.failed_named.entry(Arc::clone(&copy.named)).or_default().insert(leaf);
        if self.is_unmade(leaf, &copy.local) {
            // The directory has been told.
            return;
        }
        let path = self.host_dir(leaf).join(&copy.local);
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(PathError { path, errno });
        } else {
            self.errors_more += 1;
        }
    }
}

fn dot(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
