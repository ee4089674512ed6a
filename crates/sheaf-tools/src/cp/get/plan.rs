//! What is to be written here, from the manifests of all hosts: each distinct content once.
use super::super::message::{Attrs, Special};
use super::super::options::CopyOptions;
use super::super::place::LinkSource;
use super::manifest::{AskedPath, Items, ManifestItem};
use sheaf_core::varint::Malformed;
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_group::Outcome;
use sheaf_group::aggregate::ErrorClass;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// What an item is held in, beside its paths and attributes: one that says nearly nothing is held like any other.
const ITEM_BYTES: u64 = 256;

/// The same of an extended attribute.
const XATTR_BYTES: u64 = 64;

/// A path on hosts, and where it comes to beneath the directory of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copy {
    pub leaves: RangeSet,
    pub remote: Vec<u8>,
    /// The path that was named, which it is or lies beneath.
    pub named: Arc<[u8]>,
    /// Which of the paths and patterns that are asked for stands for that.
    pub of: u32,
    pub local: PathBuf,
    pub attrs: Attrs,
    pub has_holes: bool,
}

/// A content that one or more hosts have, at one or more paths.
#[derive(Debug)]
pub(super) struct CopiedContent {
    pub size: u64,
    pub digest: [u8; 32],
    pub copies: Vec<Copy>,
}

/// What is made without contents.
#[derive(Debug)]
pub(super) enum CopiedLink {
    /// With this text.
    Symlink(Vec<u8>, LinkSource),
    /// To this file beneath the directory of the host.
    Hardlink(PathBuf),
    Node(Special, u64),
}

impl Copy {
    /// The bytes of its paths and attributes.
    fn bytes(&self) -> u64 {
        let paths = self.remote.len() + self.local.as_os_str().len();
        let xattrs = self.attrs.xattrs.iter();
        let xattrs =
            xattrs.map(|xattr| XATTR_BYTES + (xattr.name.len() + xattr.value.len()) as u64);
        paths as u64 + xattrs.sum::<u64>()
    }

    /// It could not be had from its hosts.
    pub fn error(&self, errno: Errno) -> ErrorClass {
        error(errno, &self.remote, &self.named, &self.leaves)
    }
}

fn error(errno: Errno, path: &[u8], named: &[u8], leaves: &RangeSet) -> ErrorClass {
    let [path, named] = [path, named].map(String::from_utf8_lossy);
    ErrorClass::new(errno, path, MemberSet::of_leaves(0, leaves.clone())).beneath(named)
}

#[derive(Debug, Default)]
pub(super) struct CopyPlan {
    /// In the order in which they can be made.
    pub dirs: Vec<Copy>,
    /// Directories that are only made for what is in them, with the hosts, and what was named beneath them first.
    above: BTreeMap<PathBuf, (RangeSet, u32, Arc<[u8]>)>,
    pub contents: Vec<CopiedContent>,
    pub inline: Vec<(Copy, Vec<u8>)>,
    pub links: Vec<(Copy, CopiedLink)>,
    /// The paths that were named, of each host's own.
    pub named: HashMap<Arc<[u8]>, RangeSet>,
    /// What the one path is called here, in place of its own name.
    name: Option<Vec<u8>>,
    /// What is kept. Devices are made with `preserve` alone: a host may name any device of this machine.
    options: CopyOptions,
    /// Those that are not, by what they would be called here.
    refused: HashMap<PathBuf, RangeSet>,
    by_digest: HashMap<([u8; 32], u64), usize>,
}

/// Where the items of a batch are, at present.
#[derive(Default)]
struct Root {
    leaves: RangeSet,
    remote: Arc<[u8]>,
    of: u32,
    local: Vec<u8>,
    /// Where it is, if it is of this machine.
    here: Option<PathBuf>,
}

/// A path of hosts, beneath what was named.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Source<'a> {
    of: u32,
    named: &'a Arc<[u8]>,
    remote: &'a [u8],
}

impl CopyPlan {
    /// A plan of nothing yet, in which the one path that comes is called `name`, if that is given.
    pub fn new(name: Option<Vec<u8>>, options: &CopyOptions) -> Self {
        Self { name, options: options.clone(), ..Self::default() }
    }

    /// Takes in what all of `leaves` have, as far as it is held in `most` bytes. Returns in how many.
    ///
    /// # Errors
    /// `EPROTO` for what does not decode; `EMSGSIZE` for more.
    pub fn add(
        &mut self,
        leaves: &RangeSet,
        items: Items<'_>,
        asked: &[AskedPath],
        most: u64,
        outcome: &mut Outcome,
    ) -> Result<u64, Errno> {
        let mut held = 0;
        let mut root = Root::default();
        for item in items {
            held += ITEM_BYTES;
            let item = item.map_err(|Malformed| Errno::PROTO)?;
            if !item.is_asked_for(&self.options) {
                return Err(Errno::PROTO);
            }
            match item {
                ManifestItem::Root { of, path } => {
                    root = self.root(leaves, of, path, asked, outcome);
                    held += self.make_above(&root);
                }
                ManifestItem::Here { dir } => {
                    held += dir.len() as u64;
                    root.here = Some(path(&dir).to_owned());
                }
                ManifestItem::Error { path, beneath, errno } => {
                    held += (path.len() + beneath.len()) as u64;
                    outcome.push_error(error(Errno(errno), &path, &beneath, leaves));
                }
                // Its root was refused, which is an error once.
                item if root.leaves.is_empty() => drop(item),
                item => held += self.item(&root, item, asked, outcome),
            }
            if held > most {
                return Err(Errno::MSGSIZE);
            }
        }
        Ok(held)
    }

    /// Takes back all that was taken in of these hosts.
    pub fn forget(&mut self, leaves: &RangeSet) {
        self.retain(|copy| copy.leaves.difference(leaves));
        self.above.retain(|_, (of, ..)| {
            *of = of.difference(leaves);
            !of.is_empty()
        });
        for of in self.named.values_mut() {
            *of = of.difference(leaves);
        }
        self.named.retain(|_, of| !of.is_empty());
    }

    /// What a root is called here; nothing for one that was not asked for, or that leads out of the host's directory.
    fn local_root(&self, asked: Option<&AskedPath>, remote: &[u8]) -> Option<Vec<u8>> {
        let asked = asked.filter(|asked| asked.stands_for(remote))?;
        let local = self.name.clone().unwrap_or_else(|| asked.local_name(remote));
        is_beneath(&local).then_some(local)
    }

    fn root(
        &mut self,
        leaves: &RangeSet,
        of: u32,
        remote: Vec<u8>,
        asked: &[AskedPath],
        outcome: &mut Outcome,
    ) -> Root {
        let Some(local) = self.local_root(asked.get(of as usize), &remote) else {
            outcome.push_error(error(Errno::PROTO, &remote, b"", leaves));
            return Root::default();
        };
        let remote: Arc<[u8]> = remote.into();
        self.named.entry(Arc::clone(&remote)).or_default().union_with(leaves);
        Root { leaves: leaves.clone(), remote, of, local, here: None }
    }

    /// Lets the directories be made that a root is in. Returns the bytes of those that are new.
    fn make_above(&mut self, root: &Root) -> u64 {
        let mut held = 0;
        let above = path(&root.local).ancestors().skip(1);
        for above in above.filter(|above| !above.as_os_str().is_empty()) {
            let of = self.above.entry(above.to_owned()).or_insert_with(|| {
                held += above.as_os_str().len() as u64 + ITEM_BYTES;
                (RangeSet::new(), root.of, Arc::clone(&root.remote))
            });
            of.0.union_with(&root.leaves);
        }
        held
    }

    /// Takes in one thing. Returns the bytes that are held for its paths and attributes.
    fn item(
        &mut self,
        root: &Root,
        item: ManifestItem,
        asked: &[AskedPath],
        outcome: &mut Outcome,
    ) -> u64 {
        let Some((path, attrs, rest)) = self.parts(root, item, asked) else { return 0 };
        let attrs = self.options.kept(attrs);
        let has_holes = matches!(rest, Rest::File { has_holes: true, .. });
        let copy = Copy { has_holes, ..root.copy(&path, attrs) };
        let held = copy.bytes() + rest.bytes();
        if let Err(errno) = self.check(&copy, &rest) {
            outcome.push_error(copy.error(errno));
            return held;
        }
        match rest {
            Rest::Dir => self.dirs.push(copy),
            Rest::File { size, digest, .. } => {
                let at = *self.by_digest.entry((digest, size)).or_insert_with(|| {
                    self.contents.push(CopiedContent { size, digest, copies: Vec::new() });
                    self.contents.len() - 1
                });
                self.contents[at].copies.push(copy);
            }
            Rest::Inline(content) => self.inline.push((copy, content)),
            Rest::Link(link) => self.links.push((copy, link)),
        }
        held
    }

    /// The path, the attributes and the rest of what is neither a root nor an error.
    fn parts(
        &self,
        root: &Root,
        item: ManifestItem,
        asked: &[AskedPath],
    ) -> Option<(Vec<u8>, Attrs, Rest)> {
        Some(match item {
            ManifestItem::Root { .. } | ManifestItem::Here { .. } | ManifestItem::Error { .. } => {
                return None;
            }
            ManifestItem::Dir { path, attrs } => (path, attrs, Rest::Dir),
            ManifestItem::File { path, attrs, size, digest, has_holes } => {
                (path, attrs, Rest::File { size, digest, has_holes })
            }
            ManifestItem::Inline { path, attrs, content } => (path, attrs, Rest::Inline(content)),
            ManifestItem::Symlink { path, target, attrs } => {
                let name = crate::paths::name_of(self::path(&root.remote));
                let source = LinkSource::beneath(root.here.as_deref(), name, &path);
                (path, attrs, Rest::Link(CopiedLink::Symlink(target, source)))
            }
            ManifestItem::Node { path, kind, rdev, attrs } => {
                (path, attrs, Rest::Link(CopiedLink::Node(kind, rdev)))
            }
            ManifestItem::Hardlink { path, target, root: other } => {
                // What is not beneath a root that was asked for is refused by this.
                let above = match other {
                    None => root.local.clone(),
                    Some((of, other)) => {
                        self.local_root(asked.get(of as usize), &other).unwrap_or(b"..".to_vec())
                    }
                };
                let target = self::path(&joined(&above, &target)).to_owned();
                (path, Attrs::default(), Rest::Link(CopiedLink::Hardlink(target)))
            }
        })
    }

    /// Whether it may be made. Paths come from hosts, and none may lead out of the host's directory here.
    fn check(&mut self, copy: &Copy, rest: &Rest) -> Result<(), Errno> {
        let is_safe = |path: &Path| is_beneath(path.as_os_str().as_bytes());
        match rest {
            _ if !is_safe(&copy.local) => Err(Errno::PROTO),
            Rest::Link(CopiedLink::Hardlink(target)) if !is_safe(target) => Err(Errno::PROTO),
            Rest::Link(CopiedLink::Node(Special::CharDevice | Special::BlockDevice, _))
                if !self.options.preserve =>
            {
                self.refused.entry(copy.local.clone()).or_default().union_with(&copy.leaves);
                Err(Errno::PERM)
            }
            // What has the name there is not what was to be linked to.
            Rest::Link(CopiedLink::Hardlink(target))
                if self.refused.get(target).is_some_and(|of| !of.is_disjoint(&copy.leaves)) =>
            {
                Err(Errno::PERM)
            }
            _ => Ok(()),
        }
    }

    /// Puts the directories above all else in their place, and takes out what is in a directory that its hosts do not name: a link of theirs, or one that is here, could be in its
    /// place, and lead what is written there elsewhere.
    pub fn settle(&mut self, outcome: &mut Outcome) {
        let above =
            std::mem::take(&mut self.above).into_iter().map(|(local, (leaves, of, named))| {
                let attrs = Attrs { mode: 0o777, ..Attrs::default() };
                Copy { leaves, remote: Vec::new(), named, of, local, attrs, has_holes: false }
            });
        self.dirs.extend(above);
        // Outermost first, and what comes from hosts before what is only made for what is in it.
        self.dirs
            .sort_by(|a, b| (&a.local, a.remote.is_empty()).cmp(&(&b.local, b.remote.is_empty())));
        let mut dirs: HashMap<PathBuf, RangeSet> = HashMap::new();
        let mut has_home = |dirs: &HashMap<PathBuf, RangeSet>, copy: &mut Copy| {
            let above = copy.local.parent().filter(|above| !above.as_os_str().is_empty());
            let Some(above) = above else { return true };
            let none = RangeSet::new();
            let homeless = copy.leaves.difference(dirs.get(above).unwrap_or(&none));
            if !homeless.is_empty() {
                copy.leaves = copy.leaves.difference(&homeless);
                outcome.push_error(error(Errno::NOENT, &copy.remote, &copy.named, &homeless));
            }
            !copy.leaves.is_empty()
        };
        self.dirs.retain_mut(|dir| {
            let is_kept = has_home(&dirs, dir);
            if is_kept {
                dirs.entry(dir.local.clone()).or_default().union_with(&dir.leaves);
            }
            is_kept
        });
        for content in &mut self.contents {
            content.copies.retain_mut(|copy| has_home(&dirs, copy));
        }
        self.inline.retain_mut(|(copy, _)| has_home(&dirs, copy));
        self.links.retain_mut(|(copy, _)| has_home(&dirs, copy));
        self.drop_files_at_links(outcome);
        self.drop_names_of_nothing(outcome);
    }

    /// Takes out files that have the name of a link, pipe or device of their hosts: what is written there goes where that
    /// leads.
    fn drop_files_at_links(&mut self, outcome: &mut Outcome) {
        let mut links: HashMap<PathBuf, RangeSet> = HashMap::new();
        for (copy, link) in &self.links {
            if !matches!(link, CopiedLink::Hardlink(_)) {
                links.entry(copy.local.clone()).or_default().union_with(&copy.leaves);
            }
        }
        if links.is_empty() {
            return;
        }
        let mut is_left = |copy: &mut Copy| {
            let both = links.get(&copy.local).map(|of| of.intersection(&copy.leaves));
            if let Some(both) = both.filter(|both| !both.is_empty()) {
                copy.leaves = copy.leaves.difference(&both);
                outcome.push_error(error(Errno::EXIST, &copy.remote, &copy.named, &both));
            }
            !copy.leaves.is_empty()
        };
        for content in &mut self.contents {
            content.copies.retain_mut(&mut is_left);
        }
        self.inline.retain_mut(|(copy, _)| is_left(copy));
    }

    /// Takes out further names of what their hosts do not have: what is here by that name may be anything.
    fn drop_names_of_nothing(&mut self, outcome: &mut Outcome) {
        let firsts = self.links.iter().filter_map(|(_, link)| match link {
            CopiedLink::Hardlink(first) => Some((first.clone(), RangeSet::new())),
            _ => None,
        });
        let mut firsts: HashMap<PathBuf, RangeSet> = firsts.collect();
        if firsts.is_empty() {
            return;
        }
        let files = self.contents.iter().flat_map(|content| &content.copies);
        let others = self.links.iter().filter_map(|(copy, link)| match link {
            CopiedLink::Hardlink(_) => None,
            _ => Some(copy),
        });
        for copy in files.chain(self.inline.iter().map(|(copy, _)| copy)).chain(others) {
            if let Some(of) = firsts.get_mut(&copy.local) {
                of.union_with(&copy.leaves);
            }
        }
        self.links.retain_mut(|(copy, link)| {
            let CopiedLink::Hardlink(first) = link else { return true };
            let lost = copy.leaves.difference(&firsts[first]);
            if !lost.is_empty() {
                copy.leaves = copy.leaves.difference(&lost);
                outcome.push_error(error(Errno::NOENT, &copy.remote, &copy.named, &lost));
            }
            !copy.leaves.is_empty()
        });
    }

    /// Finds two paths of one host that would get one name here. The later one of what was named does not come from
    /// that host.
    pub fn drop_clashes(&mut self, outcome: &mut Outcome) {
        let mut refused: BTreeMap<(u32, Arc<[u8]>), RangeSet> = BTreeMap::new();
        for same in self.by_name().chunk_by(|a, b| a.local == b.local) {
            let mut sources: BTreeMap<Source<'_>, RangeSet> = BTreeMap::new();
            for copy in same {
                let source = Source { of: copy.of, named: &copy.named, remote: &copy.remote };
                sources.entry(source).or_default().union_with(&copy.leaves);
            }
            let mut taken: Vec<(Source<'_>, RangeSet)> = Vec::new();
            for (one, mut leaves) in sources {
                let root = (one.of, Arc::clone(one.named));
                if let Some(refused) = refused.get(&root) {
                    leaves = leaves.difference(refused);
                }
                let others = taken.iter().filter(|(other, _)| other.remote != one.remote);
                for (_, others) in others {
                    let both = leaves.intersection(others);
                    if both.is_empty() {
                        continue;
                    }
                    outcome.push_error(error(Errno::EXIST, one.remote, one.named, &both));
                    refused.entry(root.clone()).or_default().union_with(&both);
                    leaves = leaves.difference(&both);
                }
                // One host may claim any number of them.
                if !leaves.is_empty() {
                    taken.push((one, leaves));
                }
            }
        }
        if !refused.is_empty() {
            self.retain(|copy| match refused.get(&(copy.of, Arc::clone(&copy.named))) {
                Some(refused) => copy.leaves.difference(refused),
                None => copy.leaves.clone(),
            });
        }
    }

    /// Everything that gets a name here, by that name.
    fn by_name(&self) -> Vec<&Copy> {
        let contents = self.contents.iter().flat_map(|content| &content.copies);
        let links = self.links.iter().map(|(copy, _)| copy);
        let inline = self.inline.iter().map(|(copy, _)| copy);
        // A directory that is only made for what is in it gets in nobody's way.
        let dirs = self.dirs.iter().filter(|dir| !dir.remote.is_empty());
        let mut copies: Vec<&Copy> = contents.chain(links).chain(inline).chain(dirs).collect();
        copies.sort_by(|a, b| a.local.as_os_str().cmp(b.local.as_os_str()));
        copies
    }

    /// Leaves each copy to the hosts that `of` says; what has none goes.
    fn retain(&mut self, mut of: impl FnMut(&Copy) -> RangeSet) {
        let mut is_left = |copy: &mut Copy| {
            copy.leaves = of(copy);
            !copy.leaves.is_empty()
        };
        self.dirs.retain_mut(&mut is_left);
        self.inline.retain_mut(|(copy, _)| is_left(copy));
        self.links.retain_mut(|(copy, _)| is_left(copy));
        // The place of a content is its index here.
        self.contents.iter_mut().for_each(|content| content.copies.retain_mut(&mut is_left));
    }

    /// Whether something that is no directory gets this name.
    pub fn is_no_directory(&self, name: &Path) -> bool {
        let contents = self.contents.iter().flat_map(|content| &content.copies);
        let links = self.links.iter().map(|(copy, _)| copy);
        let inline = self.inline.iter().map(|(copy, _)| copy);
        contents.chain(links).chain(inline).any(|copy| copy.local == name)
    }

    /// Bytes that have to be fetched.
    pub fn bytes(&self) -> u64 {
        let wanted = self.contents.iter().filter(|content| !content.copies.is_empty());
        wanted.map(|content| content.size).fold(0, u64::saturating_add)
    }

    /// Everything that is not a directory, for a dry run.
    pub fn into_copies(self) -> Vec<Copy> {
        let contents = self.contents.into_iter().flat_map(|content| content.copies);
        let rest = self
            .inline
            .into_iter()
            .map(|(copy, _)| copy)
            .chain(self.links.into_iter().map(|(copy, _)| copy));
        contents.chain(rest).collect()
    }
}

/// What an item has beside its path.
enum Rest {
    Dir,
    File { size: u64, digest: [u8; 32], has_holes: bool },
    Inline(Vec<u8>),
    Link(CopiedLink),
}

impl Rest {
    fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Dir | Self::File { .. } | Self::Link(CopiedLink::Node(..)) => 0,
            Self::Inline(bytes) => bytes.len(),
            Self::Link(CopiedLink::Symlink(target, source)) => {
                let dir = source.dir.as_ref().map_or(0, |dir| dir.as_os_str().len());
                target.len() + source.name.len() + dir
            }
            Self::Link(CopiedLink::Hardlink(first)) => first.as_os_str().len(),
        };
        bytes as u64
    }
}

impl Root {
    fn copy(&self, relative: &[u8], attrs: Attrs) -> Copy {
        Copy {
            leaves: self.leaves.clone(),
            remote: joined(&self.remote, relative),
            named: Arc::clone(&self.remote),
            of: self.of,
            local: path(&joined(&self.local, relative)).to_owned(),
            attrs,
            has_holes: false,
        }
    }
}

fn joined(base: &[u8], relative: &[u8]) -> Vec<u8> {
    if relative.is_empty() || base.is_empty() {
        return [base, relative].concat();
    }
    let slash: &[u8] = if base.ends_with(b"/") { b"" } else { b"/" };
    [base, slash, relative].concat()
}

/// Whether a name that a host gave stays in the directory of that host.
fn is_beneath(name: &[u8]) -> bool {
    !name.contains(&0)
        && path(name).components().all(|component| matches!(component, Component::Normal(_)))
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::manifest::put;
    use super::*;

    fn file(path: &str, content: u8) -> ManifestItem {
        ManifestItem::File {
            path: path.into(),
            attrs: Attrs::default(),
            size: 3,
            digest: [content; 32],
            has_holes: false,
        }
    }

    /// [`CopyPlan::add`] of all of these.
    fn add(
        plan: &mut CopyPlan,
        leaves: &RangeSet,
        items: Vec<ManifestItem>,
        asked: &[AskedPath],
        outcome: &mut Outcome,
    ) {
        let mut batch = Vec::new();
        items.iter().for_each(|item| put(&mut batch, item));
        if let Err(errno) = plan.add(leaves, Items::of(&batch), asked, u64::MAX, outcome) {
            outcome.push_error(error(errno, b"", b"", leaves));
        }
    }

    fn root(path: &str) -> ManifestItem {
        ManifestItem::Root { of: 0, path: path.into() }
    }

    #[test]
    fn each_content_is_there_once() {
        let (mut plan, mut outcome) =
            (CopyPlan::new(None, &CopyOptions::archive()), Outcome::default());
        let patterns = [AskedPath::new("/etc")];
        add(
            &mut plan,
            &RangeSet::full(3),
            vec![root("/etc"), file("a", 1), file("b", 2)],
            &patterns,
            &mut outcome,
        );
        add(
            &mut plan,
            &RangeSet::single(7),
            vec![root("/etc"), file("c", 1)],
            &patterns,
            &mut outcome,
        );
        assert!(outcome.is_ok());
        assert_eq!((plan.contents.len(), plan.bytes()), (2, 6));
        let copies = &plan.contents[0].copies;
        let places: Vec<_> = copies
            .iter()
            .map(|copy| (copy.leaves.to_string(), copy.local.to_str().unwrap()))
            .collect();
        assert_eq!(places, [("0-2".to_owned(), "etc/a"), ("7".to_owned(), "etc/c")]);
        assert_eq!(copies[1].remote, b"/etc/c");
    }

    /// A host says that `d` is a link, and then that there is a file in it.
    #[test]
    fn file_in_a_link_is_refused() {
        let (mut plan, mut outcome) =
            (CopyPlan::new(None, &CopyOptions::archive()), Outcome::default());
        let dir = |path: &str| ManifestItem::Dir { path: path.into(), attrs: Attrs::default() };
        let target = b"../other".to_vec();
        let link = ManifestItem::Symlink { path: b"d".into(), target, attrs: Attrs::default() };
        let items = vec![root("/t"), dir(""), link, file("d/f", 1), file("f", 2), dir("d/e")];
        add(&mut plan, &RangeSet::single(0), items, &[AskedPath::new("/t")], &mut outcome);
        let items = vec![root("/t"), dir(""), dir("d"), file("d/f", 1)];
        add(&mut plan, &RangeSet::single(1), items, &[AskedPath::new("/t")], &mut outcome);
        plan.settle(&mut outcome);
        let told: Vec<_> = outcome
            .errors
            .iter()
            .map(|error| (error.path.as_str(), error.members.leaves()))
            .collect();
        let one = RangeSet::single(0);
        assert_eq!(told, [("/t/d/e", one.clone()), ("/t/d/f", one)]);
        let left = plan.contents.iter().flat_map(|content| &content.copies);
        let left: Vec<_> =
            left.map(|copy| (copy.local.as_path(), copy.leaves.to_string())).collect();
        let expected =
            [("t/d/f", "1"), ("t/f", "0")].map(|(at, of)| (Path::new(at), of.to_owned()));
        assert_eq!(left, expected);
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in ["../x", "/x", "a/../../x", "a\0b"] {
            let (mut plan, mut outcome) =
                (CopyPlan::new(None, &CopyOptions::archive()), Outcome::default());
            let items = vec![
                root("/etc"),
                file(name, 1),
                ManifestItem::Hardlink { path: b"ok".to_vec(), target: name.into(), root: None },
            ];
            add(&mut plan, &RangeSet::single(0), items, &[AskedPath::new("/etc")], &mut outcome);
            assert!(!outcome.errors.is_empty() && plan.contents.is_empty(), "{name:?}");
        }
    }

    #[test]
    fn root_that_was_not_asked_for_is_refused() {
        let patterns = ["/a/x", "/c/*/x", r"/q\*", "/d/"].map(AskedPath::new);
        for (of, path) in [
            (0, "/b/x"),
            (0, "/a/./x"),
            (0, "/a/x/"),
            (1, "/b/c/x"),
            (1, "/c/x"),
            (2, r"/q\*"),
            (4, "/a/x"),
        ] {
            let (mut plan, mut outcome) =
                (CopyPlan::new(None, &CopyOptions::archive()), Outcome::default());
            let items = vec![ManifestItem::Root { of, path: path.into() }, file("", 1)];
            add(&mut plan, &RangeSet::single(0), items, &patterns, &mut outcome);
            let told: Vec<_> = outcome.errors.iter().map(|error| error.errno).collect();
            assert_eq!((told, plan.contents.len()), (vec![Errno::PROTO], 0), "{of} {path}");
        }
        for (of, path) in [(0, "/a/x"), (1, "/c/d/x"), (2, "/q*"), (3, "/d/")] {
            let (mut plan, mut outcome) =
                (CopyPlan::new(None, &CopyOptions::archive()), Outcome::default());
            let items = vec![ManifestItem::Root { of, path: path.into() }, file("", 1)];
            add(&mut plan, &RangeSet::single(0), items, &patterns, &mut outcome);
            assert!(outcome.is_ok() && plan.contents.len() == 1, "{of} {path}");
        }
    }

    /// What patterns stand for is each host's own, and costs the others nothing.
    #[test]
    fn names_that_patterns_give_twice_cost_their_host_the_later() {
        let (mut plan, mut outcome) =
            (CopyPlan::new(None, &CopyOptions::archive()), Outcome::default());
        let patterns = ["/a/*", "/b/*"].map(AskedPath::new);
        let root = |of, path: &str| ManifestItem::Root { of, path: path.into() };
        let dir = |path: &str| ManifestItem::Dir { path: path.into(), attrs: Attrs::default() };
        let b = [root(1, "/b/x"), dir(""), file("f", 2), root(1, "/b/y"), file("", 3)];
        add(&mut plan, &RangeSet::full(3), b.to_vec(), &patterns, &mut outcome);
        let a = vec![root(0, "/a/x"), dir(""), file("f", 1)];
        add(&mut plan, &RangeSet::single(1), a, &patterns, &mut outcome);
        plan.drop_clashes(&mut outcome);
        let told: Vec<_> = outcome
            .errors
            .iter()
            .map(|error| (error.errno, error.path.as_str(), error.members.leaves().to_string()))
            .collect();
        assert_eq!(told, [(Errno::EXIST, "/b/x", "1".to_owned())]);
        let left = plan.contents.iter().flat_map(|content| &content.copies);
        let left: Vec<_> = left
            .map(|copy| (std::str::from_utf8(&copy.remote).unwrap(), copy.leaves.to_string()))
            .collect();
        let expected = [("/b/x/f", "0,2"), ("/b/y", "0-2"), ("/a/x/f", "1")];
        assert_eq!(left, expected.map(|(path, of)| (path, of.to_owned())));
    }

    #[test]
    fn two_sources_of_one_name_on_a_host_are_found() {
        let clash = |items: Vec<ManifestItem>, also: Vec<(u32, Vec<ManifestItem>)>| {
            let (mut plan, mut outcome) =
                (CopyPlan::new(None, &CopyOptions::archive()), Outcome::default());
            let patterns = ["/a/x", "/b/x", "/c/*/x", "/d"].map(AskedPath::new);
            add(&mut plan, &RangeSet::full(2), items, &patterns, &mut outcome);
            also.into_iter().for_each(|(leaf, items)| {
                add(&mut plan, &RangeSet::single(leaf), items, &patterns, &mut outcome);
            });
            assert!(outcome.is_ok());
            plan.drop_clashes(&mut outcome);
            let told = outcome.errors.iter().map(|error| {
                assert_eq!(error.errno, Errno::EXIST);
                format!("{} {}", error.members.leaves(), error.path)
            });
            told.collect::<Vec<_>>().join(", ")
        };
        let root = |of, path: &str| ManifestItem::Root { of, path: path.into() };
        let dir = |path: &str| ManifestItem::Dir { path: path.into(), attrs: Attrs::default() };
        let [a, b] = [vec![root(0, "/a/x"), file("", 1)], vec![root(1, "/b/x"), file("", 1)]];
        assert_eq!(clash(a.clone(), vec![]), "");
        // One path that was named twice is one file, and each host has a directory of its own.
        assert_eq!(clash(a.clone(), vec![(1, a.clone()), (2, b.clone())]), "");
        assert_eq!(clash(a.clone(), vec![(2, b.clone()), (1, b.clone())]), "1 /b/x");
        let dirs = |of, path: &str, name: &str| vec![root(of, path), dir(""), file(name, 1)];
        assert_eq!(clash(dirs(0, "/a/x", "p"), vec![(0, dirs(1, "/b/x", "q"))]), "0 /b/x");
        assert_eq!(
            clash(dirs(3, "/d", "e/x"), vec![(1, vec![root(2, "/c/d/x"), file("", 1)])]),
            ""
        );
        let nested = vec![(1, vec![root(2, "/c/d/x"), file("", 1)])];
        assert_eq!(clash(dirs(3, "/d", "x"), nested), "1 /d/x");
    }
}
