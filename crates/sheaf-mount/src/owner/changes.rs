//! What views change on this host, for the audit of the session.
//!
//! A program in a view makes a request of each system call, so equal changes of one user are one record, which has
//! the paths of a second. A file that is opened for writing is named once, and not for each write.
use super::links::{below, path};
use super::nodes::KnownNodes;
use crate::message::{FileCaller, NodeName, NodeOp, SetNodeAttributes};
use rustix::fs::{FileType, OFlags};
use sheaf_core::{Errno, lock};
use sheaf_group::audit::{Change, ChangeEnd, ChangeLog, ChangeRecord, PATHS_MAX};
use sheaf_tree::service::{Caller, LeafHandle};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;

/// How long equal changes are gathered.
const GATHER_TIME: Duration = Duration::from_secs(1);
/// Records of a while, from which on modes and owners are left out of them.
const COMMANDS_MAX: usize = 16;
/// Changes with paths of their own that are gathered at most.
const GATHERED_MAX: usize = 4096;

/// The audit of what views change on the hosts of this process. The default keeps nothing.
#[derive(Clone, Default)]
pub struct ViewAudit(Option<Arc<Recorder>>);

struct Recorder {
    log: Arc<dyn ChangeLog>,
    gathered: Mutex<GatheredChanges>,
    /// On which they are written when their time is over.
    runtime: OnceLock<Handle>,
}

#[derive(Default)]
struct GatheredChanges {
    changes: BTreeMap<ChangeKey, Gathered>,
    /// How many different ones, of all of them.
    count: usize,
}

/// What is one record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ChangeKey {
    host: String,
    /// The host of the view, and the user there; nothing for the session's user at the root.
    who: Option<(String, u32)>,
    command: String,
    end: KeyEnd,
}

/// How equal changes have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KeyEnd {
    Done,
    Refused(Errno),
    /// In a part of its steps, it may be.
    Failed,
}

struct Gathered {
    number: u64,
    leaf: LeafHandle,
    caller: Caller,
    /// The paths of each change.
    paths: BTreeSet<Vec<String>>,
    more: usize,
}

/// Where views change something.
pub(super) struct ChangePlace<'a> {
    pub host: &'a str,
    pub leaf: &'a LeafHandle,
    /// Who has the lane.
    pub lane: &'a Caller,
    pub who: &'a FileCaller,
}

/// What a request changes: the command, and the files' paths.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ViewChange {
    command: String,
    /// It is several calls, of which the first may be done when another fails.
    has_steps: bool,
    paths: Vec<String>,
}

impl ViewAudit {
    /// One whose records this log keeps.
    #[must_use]
    pub fn kept_in(log: Arc<dyn ChangeLog>) -> Self {
        let (gathered, runtime) = Default::default();
        Self(Some(Arc::new(Recorder { log, gathered, runtime })))
    }

    /// What is gathered is written by this.
    pub(super) fn is_written_on(&self, runtime: Handle) {
        self.0.iter().for_each(|recorder| drop(recorder.runtime.set(runtime.clone())));
    }

    /// What a request is going to change, if that is recorded.
    pub(super) fn of(&self, nodes: &KnownNodes, op: &NodeOp) -> Option<ViewChange> {
        let recorder = self.0.as_ref()?;
        // Most requests change nothing.
        let (command, places) = change_of(op)?;
        if !recorder.log.is_kept() {
            return None;
        }
        let paths = places.iter().map(|place| place.path(nodes)).collect();
        let has_steps = matches!(op, NodeOp::SetAttributes { .. }) && command.contains(", ");
        Some(ViewChange { command, has_steps, paths })
    }

    /// It was done, or has failed with this.
    pub(super) fn add(&self, change: ViewChange, at: &ChangePlace<'_>, failed: Option<Errno>) {
        let Some(recorder) = &self.0 else { return };
        let end = match failed {
            None => KeyEnd::Done,
            Some(_) if change.has_steps => KeyEnd::Failed,
            Some(errno @ (Errno::ACCES | Errno::PERM | Errno::ROFS)) => KeyEnd::Refused(errno),
            // There was nothing to be changed.
            Some(_) => return,
        };
        let who = view_user(at.lane, at.who);
        let (host, command) = (at.host.to_owned(), change.command);
        let mut key = ChangeKey { host, who, command, end };
        let mut gathered = lock(&recorder.gathered);
        // One mode after the other would fill the log.
        if gathered.changes.len() >= COMMANDS_MAX && !gathered.changes.contains_key(&key) {
            key.command =
                key.command.split_inclusive(' ').take(2).collect::<String>().trim().to_owned();
        }
        if gathered.changes.is_empty() && !recorder.write_later() {
            drop(gathered);
            return recorder.write_at_once(key, change.paths, at);
        }
        let of = gathered.changes.entry(key).or_insert_with_key(|key| {
            let caller = key.caller(at.who);
            let said = Change::new(key.command.as_str(), change.paths.iter().cloned());
            let (host, end) = (at.host, None);
            let record = ChangeRecord { number: 0, host, caller: &caller, change: &said, end };
            let number = recorder.log.begin(at.leaf, &record);
            Gathered { number, leaf: at.leaf.clone(), caller, paths: BTreeSet::new(), more: 0 }
        });
        if of.paths.contains(&change.paths) {
            return;
        }
        if of.paths.len() < PATHS_MAX {
            of.paths.insert(change.paths);
            gathered.count += 1;
        } else {
            of.more += change.paths.len();
        }
        if gathered.count >= GATHERED_MAX {
            let over = std::mem::take(&mut *gathered);
            drop(gathered);
            recorder.write(over);
        }
    }

    /// Writes what is gathered: a program does this before it ends.
    pub fn write(&self) {
        self.0.iter().for_each(|recorder| recorder.write_all());
    }
}

impl Recorder {
    /// Lets what is gathered from now on be written in a while. `false` where nobody would do that.
    fn write_later(self: &Arc<Self>) -> bool {
        let Some(runtime) = self.runtime.get() else { return false };
        let recorder = Arc::clone(self);
        runtime.spawn(async move {
            tokio::time::sleep(GATHER_TIME).await;
            // Into a file.
            tokio::task::spawn_blocking(move || recorder.write_all());
        });
        true
    }

    fn write_all(&self) {
        let gathered = std::mem::take(&mut *lock(&self.gathered));
        self.write(gathered);
    }

    fn write(&self, gathered: GatheredChanges) {
        for (key, Gathered { number, leaf, caller, paths, more }) in gathered.changes {
            let change = Change::new(key.command.as_str(), paths.into_iter().flatten());
            let change = Change { more: change.more + more, ..change };
            let end = Some(key.end());
            let host = key.host.as_str();
            self.log
                .keep(&leaf, &ChangeRecord { number, host, caller: &caller, change: &change, end });
        }
    }

    fn write_at_once(&self, key: ChangeKey, paths: Vec<String>, at: &ChangePlace<'_>) {
        let (caller, change) = (key.caller(at.who), Change::new(key.command.as_str(), paths));
        let (host, end) = (at.host, Some(key.end()));
        self.log.keep(
            at.leaf,
            &ChangeRecord { number: 0, host, caller: &caller, change: &change, end },
        );
    }
}

impl ChangeKey {
    fn end(&self) -> ChangeEnd {
        match self.end {
            KeyEnd::Done => ChangeEnd::Done,
            KeyEnd::Refused(errno) => ChangeEnd::Refused(errno),
            KeyEnd::Failed => ChangeEnd::Failed(1),
        }
    }

    fn caller(&self, who: &FileCaller) -> Caller {
        let Some((host, uid)) = self.who.clone() else { return Caller::Owner };
        let (gids, rights) = Default::default();
        Caller::User { uid, gid: who.gid, gids, host, is_owner: false, rights }
    }
}

/// The host of a view and the user there; the host is empty at the root.
fn view_user(lane: &Caller, who: &FileCaller) -> Option<(String, u32)> {
    match lane {
        Caller::Owner if who.uid == rustix::process::geteuid().as_raw() => None,
        Caller::Owner => Some((String::new(), who.uid)),
        Caller::User { host, .. } | Caller::Host { host, .. } => Some((host.clone(), who.uid)),
    }
}

/// How a request names a file.
enum Place<'a> {
    Node(u64),
    Name(&'a NodeName),
}

impl Place<'_> {
    /// The path below the export, in words where that alone would mislead.
    fn path(&self, nodes: &KnownNodes) -> String {
        let (node, name) = match self {
            Self::Node(node) => (*node, None),
            Self::Name(at) => (at.parent, Some(&*at.name)),
        };
        let Some((found, at)) = nodes.fd(node).ok().and_then(|fd| Some((path(&*fd).ok()?, fd)))
        else {
            return last_names(nodes, node, name);
        };
        let root = path(&*nodes.served.root).ok();
        let (mut found, outside) =
            match root.and_then(|root| below(&found, &root).map(<[u8]>::to_vec)) {
                Some(found) => (found, ""),
                None => (found, " (outside of what is served)"),
            };
        if let Some(name) = name {
            found.push(b'/');
            found.extend_from_slice(name);
        }
        let found =
            String::from_utf8_lossy(found.strip_prefix(b"/").unwrap_or(&found)).into_owned();
        // It has the name by which it was found, and its user may have used another.
        let names = match (name, rustix::fs::fstat(&*at)) {
            (None, Ok(about)) if about.st_nlink > 1 && !is_directory(about.st_mode) => {
                format!(" (inode {}, {} names)", about.st_ino, about.st_nlink)
            }
            (None, Ok(about)) if found.ends_with(DELETED) && about.st_nlink > 0 => {
                format!(" (inode {}, under another name)", about.st_ino)
            }
            _ => String::new(),
        };
        format!("/{found}{outside}{names}")
    }
}

/// The last names of what has too long a path, as far as they are known.
fn last_names(nodes: &KnownNodes, node: u64, name: Option<&[u8]>) -> String {
    let mut names: Vec<Vec<u8>> = name.map(<[u8]>::to_vec).into_iter().collect();
    let mut above = node;
    while names.len() < LAST_NAMES
        && let Some((parent, name)) = nodes.place(above)
    {
        names.push(name.into());
        above = parent;
    }
    let names = names.iter().rev().map(|name| String::from_utf8_lossy(name).into_owned());
    format!("…/{}", names.collect::<Vec<_>>().join("/"))
}

/// So many names are told of a path that the system does not say.
const LAST_NAMES: usize = 16;

/// What the system says behind the name of a file that is gone.
const DELETED: &str = " (deleted)";

fn is_directory(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::Directory
}

/// The command in the audit, and which files it names.
fn change_of(op: &NodeOp) -> Option<(String, Vec<Place<'_>>)> {
    let named = |command: &str, places| Some((format!("view {command}"), places));
    match op {
        NodeOp::Open { node, flags } | NodeOp::OpenLent { node, flags, .. }
            if op.changes_files() =>
        {
            let truncates = OFlags::from_bits_retain(*flags).contains(OFlags::TRUNC);
            let how = if truncates { "open for writing truncate" } else { "open for writing" };
            named(how, vec![Place::Node(*node)])
        }
        NodeOp::Create { at, .. } => named("create", vec![Place::Name(at)]),
        NodeOp::Temporary { parent, .. } => named("create O_TMPFILE", vec![Place::Node(*parent)]),
        NodeOp::SetAttributes { node, set, .. } => named(&set_by(set)?, vec![Place::Node(*node)]),
        NodeOp::Make { at, with, .. } => {
            let is_directory = FileType::from_raw_mode(with.mode) == FileType::Directory;
            named(if is_directory { "mkdir" } else { "mknod" }, vec![Place::Name(at)])
        }
        NodeOp::Symlink { at, .. } => named("symlink", vec![Place::Name(at)]),
        NodeOp::Remove { at, is_directory } => {
            named(if *is_directory { "rmdir" } else { "unlink" }, vec![Place::Name(at)])
        }
        NodeOp::Rename { from, to, .. } => {
            named("rename", vec![Place::Name(from), Place::Name(to)])
        }
        NodeOp::Link { node, to } => named("link", vec![Place::Node(*node), Place::Name(to)]),
        NodeOp::SetXattr { node, .. } => named("setxattr", vec![Place::Node(*node)]),
        NodeOp::RemoveXattr { node, .. } => named("removexattr", vec![Place::Node(*node)]),
        // The rest changes what was opened for writing, or nothing.
        _ => None,
    }
}

/// The system calls that set these attributes.
fn set_by(set: &SetNodeAttributes) -> Option<String> {
    let id = |id: Option<u32>| id.map(|id| id.to_string()).unwrap_or_default();
    let chown = || format!("chown {}:{}", id(set.uid), id(set.gid));
    let calls = [
        set.mode.map(|mode| format!("chmod {:o}", mode & 0o7777)),
        (set.uid.is_some() || set.gid.is_some()).then(chown),
        set.size.map(|_| "truncate".to_owned()),
        (set.atime.is_some() || set.mtime.is_some()).then(|| "utimes".to_owned()),
    ];
    let calls: Vec<String> = calls.into_iter().flatten().collect();
    (!calls.is_empty()).then(|| calls.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{NodeMaking, ROOT};

    #[test]
    fn requests_that_change_files_are_named_by_their_calls() {
        let at = || NodeName { parent: ROOT, name: b"f".to_vec() };
        let (node, with) = (7, NodeMaking::default());
        let set = |set| NodeOp::SetAttributes { node, handle: None, set };
        let both = SetNodeAttributes {
            mode: Some(0o100_640),
            gid: Some(3),
            size: Some(0),
            ..SetNodeAttributes::default()
        };
        let writing = (libc::O_WRONLY | libc::O_TRUNC) as u32;
        for (op, expected) in [
            (NodeOp::Open { node, flags: 0 }, None),
            (NodeOp::Open { node, flags: writing }, Some("view open for writing truncate")),
            (NodeOp::Create { at: at(), with, flags: 0 }, Some("view create")),
            (NodeOp::Make { at: at(), with, rdev: 0 }, Some("view mknod")),
            (NodeOp::Rename { from: at(), to: at(), flags: 0 }, Some("view rename")),
            (set(both), Some("view chmod 640, chown :3, truncate")),
            (set(SetNodeAttributes::default()), None),
            (NodeOp::Write { handle: 1, offset: 0, flags: 0 }, None),
            (NodeOp::Lookup(at()), None),
        ] {
            let command = change_of(&op).map(|(command, _)| command);
            assert_eq!(command.as_deref(), expected, "{op:?}");
        }
    }

    #[test]
    fn user_of_a_view_is_that_of_its_host() {
        let who = FileCaller { uid: 1001, gid: 1, gids: vec![] };
        let own = FileCaller { uid: rustix::process::geteuid().as_raw(), gid: 1, gids: vec![] };
        let rights = Default::default();
        let host = Caller::Host { host: "n2".to_owned(), rights };
        assert_eq!(view_user(&host, &who), Some(("n2".to_owned(), 1001)));
        assert_eq!(view_user(&host, &own), Some(("n2".to_owned(), own.uid)));
        assert_eq!(view_user(&Caller::Owner, &own), None);
        assert_eq!(view_user(&Caller::Owner, &who), Some((String::new(), 1001)));
    }
}
