//! Groups of files as files.
//!
//! ```text
//! groups
//! └── NAME        a group, made by mkdir
//!     ├── ctl     its rules; takes commands
//!     ├── files   its members, one in each line
//!     ├── size    how many they are
//!     ├── data    what they hold, combined as is bound; what is written here is written to each
//!     ├── lines   their lines, equal ones once, with their hosts
//!     ├── sum     the sums of their numbers
//!     ├── stat    their attributes, equal ones once, with their hosts
//!     ├── status  what became of the last operation
//!     └── …       symbolic links to files that are members
//! ```
mod rules;

use crate::combined::{
    GROUP_FILES, GroupAsked, GroupFile, GroupReading, GroupWriting, StatusTexts, asking_session,
    no_length, refuse_saving, take,
};
use crate::message::{
    FileAnswer, FileCall, NodeAttributes, NodeName, NodeOp, ROOT, SetNodeAttributes,
};
use crate::own::{NAME_MAX, NamesSnapshot, OpenTable, OwnFiles, Snapshot, attributes, now, usage};
use rules::{GroupCommand, GroupRule, GroupRules};
use rustix::fs::OFlags;
use sheaf_core::files::{FileKind, Timestamp};
use sheaf_core::{Errno, lock};
use sheaf_group::{Client, Target};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot};

/// Groups at most. Each keeps its rules.
pub const GROUPS_MAX: usize = 10_000;
/// Rules of a group at most.
pub const GROUP_RULES_MAX: usize = 10_000;
/// A line of commands that has not ended.
const COMMAND_BYTES_MAX: usize = 64 << 10;
/// All hosts, in an address.
const EVERYONE: &str = "@all";
/// Where the number of a node says which group it is of.
const GROUP_SHIFT: u32 = 32;
/// Numbers of links are from here on.
const LINKS_FROM: u64 = 64;

/// What a node is.
enum GroupNode {
    Top,
    Directory(Arc<FileGroup>),
    File(Arc<FileGroup>, GroupFile),
    Link(Arc<FileGroup>, u64),
}

/// A group.
struct FileGroup {
    number: u64,
    state: Mutex<GroupState>,
    /// Changes of its rules, which take turns.
    changes: tokio::sync::Mutex<()>,
    statuses: StatusTexts,
}

struct GroupState {
    rules: GroupRules,
    changed: Timestamp,
    links: u64,
}

/// Something open.
enum GroupOpen {
    Names(NamesSnapshot),
    Reading(GroupReading),
    /// Commands; what stands behind the last end of a line, and how many lines there were.
    Commands(Arc<FileGroup>, Mutex<(Vec<u8>, usize)>),
    Writing(Arc<FileGroup>, Box<GroupWriting>),
}

/// Somebody wants to know what an address means.
pub struct AddressQuestion {
    text: String,
    answer: oneshot::Sender<Result<Target, String>>,
}

impl AddressQuestion {
    /// The address.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Says what it means, or what is wrong with it.
    pub fn answer(self, found: Result<Target, String>) {
        // Whoever has asked may be gone.
        drop(self.answer.send(found));
    }
}

/// All groups.
pub struct GroupsView {
    client: Client,
    asks: mpsc::Sender<AddressQuestion>,
    /// Where the view is: links lead to what lies below.
    point: PathBuf,
    state: Mutex<GroupsState>,
    open: OpenTable<GroupOpen>,
    /// Members are not written to.
    is_read_only: bool,
}

struct GroupsState {
    groups: BTreeMap<Vec<u8>, Arc<FileGroup>>,
    last: u64,
    changed: Timestamp,
}

impl FileGroup {
    fn directory(&self) -> NodeAttributes {
        let mode = libc::S_IFDIR | 0o700;
        attributes(self.number << GROUP_SHIFT, mode, 0, lock(&self.state).changed)
    }

    fn file(&self, file: GroupFile) -> NodeAttributes {
        let node = (self.number << GROUP_SHIFT) + 1 + file as u64;
        attributes(node, file.mode(), 0, lock(&self.state).changed)
    }

    fn link(&self, rule: &GroupRule, changed: Timestamp) -> NodeAttributes {
        let number = rule.link.as_ref().map_or(0, |link| link.1);
        let node = (self.number << GROUP_SHIFT) + LINKS_FROM + number;
        attributes(node, libc::S_IFLNK | 0o777, rule.said.len() as u64, changed)
    }

    fn listing(&self) -> NamesSnapshot {
        let mut entries: Vec<_> = GROUP_FILES
            .iter()
            .map(|(file, name)| (name.as_bytes().to_vec(), self.file(*file).node, FileKind::File))
            .collect();
        let state = lock(&self.state);
        entries.extend(state.rules.rules.iter().filter_map(|rule| {
            let (name, _) = rule.link.as_ref()?;
            Some((name.clone(), self.link(rule, state.changed).node, FileKind::Symlink))
        }));
        NamesSnapshot { entries, own: (self.number << GROUP_SHIFT, ROOT), end: None }
    }
}

impl GroupsView {
    /// No group yet. What addresses mean is asked by `asks`; the view is at `point`.
    #[must_use]
    pub fn new(client: &Client, point: &Path, asks: mpsc::Sender<AddressQuestion>) -> Self {
        let state = GroupsState { groups: BTreeMap::new(), last: 0, changed: now() };
        Self {
            client: client.clone(),
            asks,
            point: point.to_owned(),
            state: Mutex::new(state),
            open: OpenTable::default(),
            is_read_only: false,
        }
    }

    /// Groups can be made and read. Their files are not written to.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    fn node(&self, node: u64) -> Result<GroupNode, Errno> {
        if node == ROOT {
            return Ok(GroupNode::Top);
        }
        let (number, part) = (node >> GROUP_SHIFT, node & ((1 << GROUP_SHIFT) - 1));
        let state = lock(&self.state);
        let group = state.groups.values().find(|group| group.number == number);
        let group = group.ok_or(Errno::STALE)?.clone();
        Ok(match part {
            0 => GroupNode::Directory(group),
            part if part >= LINKS_FROM => GroupNode::Link(group, part - LINKS_FROM),
            part => {
                let file = usize::try_from(part - 1).ok().and_then(|at| GROUP_FILES.get(at));
                GroupNode::File(group, file.ok_or(Errno::STALE)?.0)
            }
        })
    }

    fn attributes(&self, node: u64) -> Result<NodeAttributes, Errno> {
        Ok(match self.node(node)? {
            GroupNode::Top => attributes(ROOT, libc::S_IFDIR | 0o700, 0, lock(&self.state).changed),
            GroupNode::Directory(group) => group.directory(),
            GroupNode::File(group, file) => group.file(file),
            GroupNode::Link(group, number) => {
                let state = lock(&group.state);
                group.link(state.rules.link_of(number)?, state.changed)
            }
        })
    }

    fn look_up(&self, at: &NodeName) -> Result<NodeAttributes, Errno> {
        match self.node(at.parent)? {
            GroupNode::Top => {
                let state = lock(&self.state);
                state.groups.get(&at.name).map(|group| group.directory()).ok_or(Errno::NOENT)
            }
            GroupNode::Directory(group) => match GroupFile::named(&at.name) {
                Some(file) => Ok(group.file(file)),
                None => {
                    let state = lock(&group.state);
                    let rule = state.rules.link(&at.name).ok_or(Errno::NOENT)?;
                    Ok(group.link(rule, state.changed))
                }
            },
            _ => Err(Errno::NOTDIR),
        }
    }

    /// Times are taken and kept nowhere; all else is as it is.
    async fn set_attributes(
        &self,
        node: u64,
        handle: Option<u64>,
        set: &SetNodeAttributes,
        pid: u32,
    ) -> Result<NodeAttributes, Errno> {
        if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
            return Err(Errno::PERM);
        }
        if let Some(length) = set.size {
            self.set_length(node, handle, length, pid).await?;
        }
        self.attributes(node)
    }

    async fn set_length(
        &self,
        node: u64,
        handle: Option<u64>,
        length: u64,
        pid: u32,
    ) -> Result<(), Errno> {
        let open = handle.map(|handle| self.open.get(handle)).transpose()?;
        if let Some(GroupOpen::Writing(group, writing)) = open.as_deref() {
            return writing.set_length(&self.client, &group.statuses, length).await;
        }
        Err(match self.node(node)? {
            GroupNode::File(_, GroupFile::Data) if self.is_read_only => Errno::ROFS,
            GroupNode::File(group, GroupFile::Data) => {
                group.statuses.fail(asking_session(pid), no_length())
            }
            GroupNode::File(_, GroupFile::Ctl) => Errno::OPNOTSUPP,
            _ => Errno::ACCES,
        })
    }

    /// `mkdir`.
    fn make(&self, at: NodeName, mode: u32) -> Result<NodeAttributes, Errno> {
        if !matches!(self.node(at.parent)?, GroupNode::Top) || mode & libc::S_IFMT != libc::S_IFDIR
        {
            return Err(Errno::PERM);
        }
        if at.name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let mut state = lock(&self.state);
        if state.groups.contains_key(&at.name) {
            return Err(Errno::EXIST);
        }
        if state.groups.len() >= GROUPS_MAX {
            return Err(Errno::NOSPC);
        }
        state.last += 1;
        state.changed = now();
        let own = GroupState { rules: GroupRules::default(), changed: state.changed, links: 0 };
        let group = Arc::new(FileGroup {
            number: state.last,
            state: Mutex::new(own),
            changes: tokio::sync::Mutex::default(),
            statuses: StatusTexts::default(),
        });
        let made = group.directory();
        state.groups.insert(at.name, group);
        Ok(made)
    }

    async fn remove(&self, at: &NodeName, is_directory: bool) -> Result<(), Errno> {
        match (self.node(at.parent)?, is_directory) {
            (GroupNode::Top, true) => {
                let mut state = lock(&self.state);
                state.groups.remove(&at.name).ok_or(Errno::NOENT)?;
                state.changed = now();
                Ok(())
            }
            (GroupNode::Top, false) => Err(Errno::ISDIR),
            (GroupNode::Directory(_), _) if GroupFile::named(&at.name).is_some() => {
                Err(Errno::PERM)
            }
            (GroupNode::Directory(group), false) => {
                let _turn = group.changes.lock().await;
                let mut state = lock(&group.state);
                let is_it =
                    |rule: &GroupRule| rule.link.as_ref().is_some_and(|link| link.0 == at.name);
                let place = state.rules.rules.iter().position(is_it).ok_or(Errno::NOENT)?;
                state.rules.rules.remove(place);
                state.changed = now();
                Ok(())
            }
            _ => Err(Errno::NOTDIR),
        }
    }

    /// Gives a group another name.
    fn rename(&self, from: &NodeName, to: NodeName, flags: u32) -> Result<(), Errno> {
        let both = (self.node(from.parent)?, self.node(to.parent)?);
        if !matches!(both, (GroupNode::Top, GroupNode::Top)) || flags & !libc::RENAME_NOREPLACE != 0
        {
            return Err(Errno::PERM);
        }
        if to.name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let mut state = lock(&self.state);
        if state.groups.contains_key(&to.name) && from.name != to.name {
            return Err(Errno::EXIST);
        }
        let group = state.groups.remove(&from.name).ok_or(Errno::NOENT)?;
        state.groups.insert(to.name, group);
        state.changed = now();
        Ok(())
    }

    /// `ln -s`: what the link leads to is a member.
    async fn link(&self, at: NodeName, text: Vec<u8>, pid: u32) -> Result<NodeAttributes, Errno> {
        let GroupNode::Directory(group) = self.node(at.parent)? else { return Err(Errno::PERM) };
        if at.name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let is_there = |state: &GroupState| {
            GroupFile::named(&at.name).is_some() || state.rules.link(&at.name).is_some()
        };
        let _turn = group.changes.lock().await;
        if is_there(&lock(&group.state)) {
            return Err(Errno::EXIST);
        }
        let address = address_of(&self.point, &text).ok_or(Errno::INVAL)?;
        let target = self.resolve(address).await.map_err(|why| {
            group.statuses.fail(asking_session(pid), (format!("ln: {why}\n"), Errno::INVAL))
        })?;
        let mut state = lock(&group.state);
        if is_there(&state) {
            return Err(Errno::EXIST);
        }
        let full = |full| group.statuses.fail(asking_session(pid), full);
        check_room(&state.rules).map_err(full)?;
        state.links += 1;
        state.changed = now();
        let link = Some((at.name, state.links));
        let rule = GroupRule { link, said: text, target };
        let made = group.link(&rule, state.changed);
        state.rules.rules.push(rule);
        Ok(made)
    }

    async fn resolve(&self, text: String) -> Result<Target, String> {
        let (answer, answered) = oneshot::channel();
        let nobody = |_| "the session has ended".to_owned();
        let asked = AddressQuestion { text, answer };
        self.asks.send(asked).await.map_err(|_| nobody(()))?;
        answered.await.map_err(|_| nobody(()))?
    }

    async fn open(&self, node: u64, flags: u32, pid: u32) -> Result<FileAnswer, Errno> {
        let flags = OFlags::from_bits_retain(flags);
        let (group, file) = match self.node(node)? {
            GroupNode::Top => return Ok(self.opened(GroupOpen::Names(self.listing()))),
            GroupNode::Directory(group) => {
                return Ok(self.opened(GroupOpen::Names(group.listing())));
            }
            GroupNode::Link(..) => return Err(Errno::LOOP),
            GroupNode::File(group, file) => (group, file),
        };
        let access = flags & OFlags::ACCMODE;
        if access == OFlags::RDONLY {
            let read = self.read(&group, file, pid).await?;
            return Ok(self.opened(GroupOpen::Reading(read)));
        }
        // What is read is of the moment of opening, so there is nothing that was both.
        match file {
            GroupFile::Ctl if access == OFlags::WRONLY => {
                Ok(self.opened(GroupOpen::Commands(group, Mutex::default())))
            }
            GroupFile::Data if self.is_read_only => Err(Errno::ROFS),
            GroupFile::Data if access == OFlags::WRONLY => {
                let targets = lock(&group.state).rules.targets();
                let session = asking_session(pid);
                refuse_saving(&group.statuses, &targets, flags, pid)
                    .map_err(|failed| group.statuses.fail(session, failed))?;
                let opened = GroupWriting::open(&self.client, &targets, flags, session).await;
                let writing = opened.map_err(|failed| group.statuses.fail(session, failed))?;
                Ok(self.opened(GroupOpen::Writing(group, Box::new(writing))))
            }
            GroupFile::Ctl | GroupFile::Data => Err(Errno::OPNOTSUPP),
            _ => Err(Errno::ACCES),
        }
    }

    fn opened(&self, what: GroupOpen) -> FileAnswer {
        FileAnswer::Opened(self.open.keep(what))
    }

    fn listing(&self) -> NamesSnapshot {
        let state = lock(&self.state);
        let entry = |(name, group): (&Vec<u8>, &Arc<FileGroup>)| {
            (name.clone(), group.number << GROUP_SHIFT, FileKind::Directory)
        };
        NamesSnapshot {
            entries: state.groups.iter().map(entry).collect(),
            own: (ROOT, ROOT),
            end: None,
        }
    }

    /// What a file shows at this moment.
    async fn read(
        &self,
        group: &FileGroup,
        file: GroupFile,
        pid: u32,
    ) -> Result<GroupReading, Errno> {
        let session = asking_session(pid);
        let text = match file {
            GroupFile::Ctl => Some(lock(&group.state).rules.text()),
            GroupFile::Status => Some(group.statuses.get(session)),
            _ => None,
        };
        if let Some(text) = text {
            return Ok(GroupReading::Whole(Snapshot { bytes: text.into_bytes(), end: None }));
        }
        let (targets, binding) = {
            let state = lock(&group.state);
            (state.rules.targets(), state.rules.binding.clone())
        };
        let statuses = &group.statuses;
        let asked =
            GroupAsked { file, targets: &targets, binding: &binding, missing: None, session, pid };
        take(&self.client, statuses, asked).await
    }

    /// Takes commands; nothing is done unless all that are whole can be.
    async fn command(
        &self,
        group: &FileGroup,
        pending: &Mutex<(Vec<u8>, usize)>,
        data: &[u8],
        is_end: bool,
        pid: u32,
    ) -> Result<(), Errno> {
        let (text, before) = {
            let mut pending = lock(pending);
            pending.0.extend_from_slice(data);
            let whole = match pending.0.iter().rposition(|byte| *byte == b'\n') {
                _ if is_end => pending.0.len(),
                Some(end) => end + 1,
                None if pending.0.len() > COMMAND_BYTES_MAX => return Err(Errno::INVAL),
                None => return Ok(()),
            };
            let rest = pending.0.split_off(whole);
            let text = std::mem::replace(&mut pending.0, rest);
            let before = pending.1;
            pending.1 += text.iter().filter(|byte| **byte == b'\n').count();
            (text, before)
        };
        let session = asking_session(pid);
        let failed = |line: usize, why: String| {
            let text = format!("ctl: line {}: {why}\n", before + line + 1);
            group.statuses.fail(session, (text, Errno::INVAL))
        };
        let text = String::from_utf8(text).map_err(|_| failed(0, "not UTF-8".to_owned()))?;
        let _turn = group.changes.lock().await;
        let (mut rules, mut links) = {
            let state = lock(&group.state);
            (state.rules.clone(), state.links)
        };
        let mut count = 0;
        for (line, command) in text.lines().enumerate() {
            let Some(command) = GroupCommand::parse(command).map_err(|why| failed(line, why))?
            else {
                continue;
            };
            count += 1;
            match command {
                // What is read from here can be written again.
                GroupCommand::Add(said) if rules.has(&said) => {}
                GroupCommand::Link(name, said) if rules.has_link(&name, &said) => {}
                GroupCommand::Link(name, said) => {
                    check_room(&rules).map_err(|full| group.statuses.fail(session, full))?;
                    check_link(&rules, &name).map_err(|why| failed(line, why))?;
                    let address = address_of(&self.point, said.as_bytes()).unwrap_or(said.clone());
                    let target = self.resolve(address).await.map_err(|why| failed(line, why))?;
                    links += 1;
                    let link = Some((name.into_bytes(), links));
                    rules.rules.push(GroupRule { link, said: said.into_bytes(), target });
                }
                GroupCommand::Add(said) => {
                    check_room(&rules).map_err(|full| group.statuses.fail(session, full))?;
                    let address = address_of(&self.point, said.as_bytes()).unwrap_or(said.clone());
                    let target = self.resolve(address).await.map_err(|why| failed(line, why))?;
                    rules.rules.push(GroupRule { link: None, said: said.into_bytes(), target });
                }
                GroupCommand::Remove(said) => {
                    rules.remove(&said).map_err(|why| failed(line, why))?;
                }
                GroupCommand::Bind(binding) => rules.binding = binding,
                GroupCommand::Clear => rules = GroupRules::default(),
            }
        }
        if count > 0 {
            let mut state = lock(&group.state);
            (state.rules, state.links, state.changed) = (rules, links, now());
            let s = if count == 1 { "" } else { "s" };
            group.statuses.put(session, format!("ctl: {count} command{s}\n"));
        }
        Ok(())
    }

    async fn write(
        &self,
        handle: u64,
        offset: u64,
        data: &[u8],
        pid: u32,
    ) -> Result<FileAnswer, Errno> {
        match &*self.open.get(handle)? {
            GroupOpen::Commands(group, pending) => {
                self.command(group, pending, data, false, pid).await?;
            }
            GroupOpen::Writing(group, writing) => {
                writing.write(&self.client, &group.statuses, data, offset).await?;
            }
            _ => return Err(Errno::BADF),
        }
        Ok(FileAnswer::Count(data.len() as u64))
    }

    /// A descriptor was closed.
    async fn flush(&self, handle: u64, pid: u32) -> Result<(), Errno> {
        match &*self.open.get(handle)? {
            GroupOpen::Commands(group, pending) => {
                self.command(group, pending, &[], true, pid).await
            }
            GroupOpen::Writing(group, writing) => {
                writing.tell(&self.client, &group.statuses);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn sync(&self, handle: u64) -> Result<(), Errno> {
        match &*self.open.get(handle)? {
            GroupOpen::Writing(group, writing) => writing.sync(&self.client, &group.statuses).await,
            _ => Ok(()),
        }
    }

    async fn release(&self, handle: u64) -> Result<(), Errno> {
        match &*self.open.remove(handle)? {
            GroupOpen::Writing(group, writing) => {
                writing.close(&self.client, &group.statuses).await
            }
            _ => Ok(()),
        }
    }
}

fn check_room(rules: &GroupRules) -> Result<(), (String, Errno)> {
    if rules.rules.len() < GROUP_RULES_MAX {
        return Ok(());
    }
    let text = format!("a group has at most {GROUP_RULES_MAX} rules; one may be a pattern\n");
    Err((text, Errno::NOSPC))
}

/// Whether a link can have this name.
fn check_link(rules: &GroupRules, name: &str) -> Result<(), String> {
    let is_name = !name.is_empty() && !name.contains('/') && !matches!(name, "." | "..");
    if !is_name || name.len() > NAME_MAX || GroupFile::named(name.as_bytes()).is_some() {
        return Err(format!("{name}: no link can have this name"));
    }
    match rules.link(name.as_bytes()) {
        None => Ok(()),
        Some(rule) => {
            let said = String::from_utf8_lossy(&rule.said);
            Err(format!("{name}: there is a link that leads to {said}: rm takes it away"))
        }
    }
}

/// The address that a link, or a command, means by a path in the view: `…/hosts/H/PATH` or `…/all/PATH`. Other
/// texts are addresses themselves.
fn address_of(point: &Path, text: &[u8]) -> Option<String> {
    let path = Path::new(OsStr::from_bytes(text));
    let inside = match path.strip_prefix(point) {
        Ok(inside) => inside.to_owned(),
        // As seen from a group.
        Err(_) if text.starts_with(b"../../") => path.iter().skip(2).collect(),
        Err(_) => return String::from_utf8(text.to_vec()).ok(),
    };
    let mut parts = inside.components();
    let hosts = match parts.next()? {
        Component::Normal(name) if name == "hosts" => parts.next()?.as_os_str().to_str()?,
        Component::Normal(name) if name == "all" => EVERYONE,
        _ => return None,
    };
    let rest = parts.as_path().to_str()?;
    // It is a name, whatever stands in it. Not all hosts need to have what is in the merge of all, as is with what
    // a pattern stands for.
    let mut needs_pattern = hosts == EVERYONE;
    let mut literal = String::new();
    for char in rest.chars() {
        match char {
            '*' | '?' | '[' | ']' | '{' | '}' | '\\' => literal.extend(['\\', char]),
            _ if needs_pattern && char.is_alphanumeric() => {
                literal.extend(['[', char, ']']);
                needs_pattern = false;
            }
            _ => literal.push(char),
        }
    }
    Some(format!("{hosts}:/{literal}"))
}

impl OwnFiles for GroupsView {
    async fn answer(
        &self,
        call: FileCall,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<FileAnswer, Errno> {
        let pid = call.pid;
        let done = |result: Result<(), Errno>| result.map(|()| FileAnswer::Done);
        match call.op {
            NodeOp::Lookup(at) => self.look_up(&at).map(FileAnswer::Node),
            NodeOp::Forget(_) => Ok(FileAnswer::Done),
            NodeOp::Attributes { node, .. } => self.attributes(node).map(FileAnswer::Node),
            NodeOp::SetAttributes { node, handle, set } => {
                self.set_attributes(node, handle, &set, pid).await.map(FileAnswer::Node)
            }
            NodeOp::ReadLink { node } => {
                let GroupNode::Link(group, number) = self.node(node)? else {
                    return Err(Errno::INVAL);
                };
                let state = lock(&group.state);
                out.extend_from_slice(&state.rules.link_of(number)?.said);
                Ok(FileAnswer::Bytes)
            }
            NodeOp::Make { at, with, .. } => self.make(at, with.mode).map(FileAnswer::Node),
            NodeOp::Symlink { at, target } => {
                self.link(at, target, pid).await.map(FileAnswer::Node)
            }
            NodeOp::Remove { at, is_directory } => done(self.remove(&at, is_directory).await),
            NodeOp::Rename { from, to, flags } => done(self.rename(&from, to, flags)),
            NodeOp::Open { node, flags } => self.open(node, flags, pid).await,
            NodeOp::Read { handle, offset, size } => match &*self.open.get(handle)? {
                GroupOpen::Reading(reading) => reading.read(offset, size, out).await,
                _ => Err(Errno::BADF),
            },
            NodeOp::Write { handle, offset, .. } => self.write(handle, offset, data, pid).await,
            NodeOp::Flush { handle, .. } => done(self.flush(handle, pid).await),
            NodeOp::Sync { handle, .. } => done(self.sync(handle).await),
            NodeOp::Release { handle, .. } => done(self.release(handle).await),
            NodeOp::ReadDirectory { handle, offset, size, .. } => match &*self.open.get(handle)? {
                GroupOpen::Names(listing) => listing.read(offset, size),
                _ => Err(Errno::NOTDIR),
            },
            NodeOp::FileSystem { .. } => Ok(FileAnswer::Usage(usage())),
            NodeOp::Access { node, mask } => {
                let found = self.attributes(node)?;
                let may = (found.mode >> 6) & 0o7;
                done(if mask & !may == 0 { Ok(()) } else { Err(Errno::ACCES) })
            }
            NodeOp::Create { .. } | NodeOp::Link { .. } | NodeOp::Temporary { .. } => {
                Err(Errno::PERM)
            }
            NodeOp::GetXattr { .. } => Err(Errno::NODATA),
            NodeOp::ListXattr { size: 0, .. } => Ok(FileAnswer::Count(0)),
            NodeOp::ListXattr { .. } => Ok(FileAnswer::Bytes),
            _ => Err(Errno::OPNOTSUPP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_the_view_are_addresses() {
        let of = |text: &str| address_of(Path::new("/sheaf"), text.as_bytes());
        assert_eq!(of("/sheaf/hosts/n1/var/log").as_deref(), Some("n1:/var/log"));
        assert_eq!(of("../../hosts/n1/a*b").as_deref(), Some(r"n1:/a\*b"));
        assert_eq!(of("../../all/etc/x").as_deref(), Some("@all:/[e]tc/x"));
        assert_eq!(of("n[1-3]:/etc/*.conf").as_deref(), Some("n[1-3]:/etc/*.conf"));
        assert_eq!(of("/sheaf/groups/x"), None);
        assert_eq!(of("/sheaf/hosts"), None);
    }
}
