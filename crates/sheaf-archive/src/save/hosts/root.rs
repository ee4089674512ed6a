//! The part of the root: it has the catalog, gives directories to hosts, and commits what they did.
//!
//! Only the root commits. A host's records count only for the directories that the host holds. The
//! records of a host that was given up count for none, however late they arrive.
mod contents;
#[cfg(test)]
mod tests;
mod waiting;

use super::message::{
    BeginSave, DeskAnswer, FromHost, HostRecord, LinkKey, MESSAGE_BYTES, SaveItem, SourceIs,
    ToHost, encoded,
};
use crate::archive::{Archive, ArchiveError, ArchiveEvent};
use crate::catalog::{Checked, DirectoryChange};
use crate::hosts::{AskedNumbers, HostNumbers, HostStep, HostTold, HostsRoot, StoreMark};
use crate::lease::Writing;
use crate::name::FileName;
use crate::path::ArchivePath;
use crate::save::commits::{Commits, ReplacingChange};
use crate::save::links::StoredLink;
use crate::save::replace::{FileStamp, REPLACED_MAX, make_room};
use crate::save::{
    FileIgnores, SaveExclude, SaveReport, SavedDirectory, directory, make_directories,
};
use crate::schedule::ScheduleLimits;
use contents::RootContents;
use sheaf_core::{Errno, lock};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use waiting::{WaitingDirectories, WaitingDirectory};

/// Directories in one message at most.
const WORKS_MAX: usize = 64;
/// Names of archived directories that a host is told of one; of more it asks for each.
const DIRECTORIES_TOLD_MAX: usize = 1024;

/// Changes of one directory in one answer at most, which come as packs are written: each is a commit of its own.
const CHANGES_MAX: usize = 256;

/// Files with several names that are remembered after all of their names have come: who begins a lost
/// host's directories again may ask once more.
const LINKS_KEPT_MAX: usize = 1 << 20;

/// What hosts store, and where it goes.
#[derive(Clone, Debug)]
pub struct SaveRootOptions {
    /// The store, as hosts are to call it.
    pub store: Vec<u8>,
    /// Absolute paths on hosts; of one that ends with `/.` it is what is in the directory.
    pub sources: Vec<PathBuf>,
    /// The archived directory.
    pub to: ArchivePath,
    /// All hosts see the same files, and each directory is stored by one of them. Where they do not,
    /// what each has goes into a directory of its name.
    pub is_shared: bool,
    /// Directories at once on each host; 0 for as many as it likes.
    pub workers: u32,
    /// As in [`SaveOptions`](crate::SaveOptions).
    pub member_bytes_max: u64,
    /// As in [`SaveOptions`](crate::SaveOptions).
    pub pack_bytes: u64,
    /// As in [`SaveOptions`](crate::SaveOptions).
    pub part_bytes: u64,
    /// As in [`SaveOptions`](crate::SaveOptions).
    pub zstd: Option<i32>,
    /// As in [`SaveOptions`](crate::SaveOptions).
    pub checksum: bool,
    /// As in [`SaveOptions`](crate::SaveOptions).
    pub ignores: FileIgnores,
    /// As in [`SaveOptions`](crate::SaveOptions).
    pub dry_run: bool,
    /// As in [`SaveOptions`](crate::SaveOptions).
    pub tell_names: bool,
    /// As in [`SaveOptions`](crate::SaveOptions).
    pub one_file_system: bool,
    /// As in [`SaveOptions`](crate::SaveOptions), for each host by itself.
    pub limits: ScheduleLimits,
    /// What of the sources is left out.
    pub exclude: SaveExclude,
    /// Hosts are asked for their numbers at the end.
    pub numbers: bool,
}

/// Files of many hosts on their way into an archive, at the root.
pub struct SaveRoot {
    archive: Arc<Archive>,
    /// The lease is this process's: hosts write what is committed here.
    _writing: Writing,
    mark: StoreMark,
    options: SaveRootOptions,
    state: Mutex<RootState>,
}

#[derive(Default)]
struct RootState {
    hosts: Vec<RootHost>,
    pools: Vec<RootPool>,
    commits: Commits,
    given: u64,
    /// Files with several names.
    links: HashMap<LinkKey, LinkHolder>,
    contents: RootContents,
    report: SaveReport,
    told: Vec<(usize, HostTold)>,
}

#[derive(Default)]
struct RootHost {
    name: String,
    is_asked: bool,
    has_begun: bool,
    /// It is of no more use.
    is_lost: bool,
    numbers: AskedNumbers,
    given: BTreeMap<u64, GivenDirectory>,
    wants: u32,
    answers: Vec<(u64, DeskAnswer)>,
}

/// Hosts that see the same files, and what is to be done there.
#[derive(Default)]
struct RootPool {
    hosts: Vec<usize>,
    sources: Option<Vec<SourceIs>>,
    waiting: WaitingDirectories,
    /// Directories that are archived as files, which make room for them when all else is stored.
    replaced: Vec<(WaitingDirectory, FileStamp)>,
}

/// A directory that a host has in hand.
struct GivenDirectory {
    of: WaitingDirectory,
    /// The commit that has changed it last.
    changed: u64,
    report: SaveReport,
}

/// A file with several names, of which one is being stored or was.
struct LinkHolder {
    by: usize,
    stored: Option<StoredLink>,
    /// Who waits for it, and under which number.
    waiting: VecDeque<(usize, u64)>,
    /// How many names have come.
    names: u32,
}

impl SaveRoot {
    /// Of hosts of these names. The archived directory is made, if it is not there.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn new(
        archive: Arc<Archive>,
        options: SaveRootOptions,
        hosts: Vec<String>,
    ) -> Result<Self, ArchiveError> {
        let writing = archive.writing();
        if !options.dry_run {
            make_directories(&archive, &options.to)?;
            writing.hold()?;
        }
        let mark = StoreMark::of(&archive)?;
        let mut state = RootState::default();
        let pools = if options.is_shared { hosts.len().min(1) } else { hosts.len() };
        state.pools.resize_with(pools, RootPool::default);
        for (number, name) in hosts.into_iter().enumerate() {
            state.pools[number.min(pools - 1)].hosts.push(number);
            state.hosts.push(RootHost { name, ..RootHost::default() });
        }
        Ok(Self { archive, _writing: writing, mark, options, state: Mutex::new(state) })
    }

    fn begin(&self) -> Vec<u8> {
        let of = &self.options;
        encoded(&ToHost::Begin(Box::new(BeginSave {
            store: of.store.clone(),
            mark: self.mark,
            sources: of.sources.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect(),
            workers: of.workers,
            member_bytes_max: of.member_bytes_max,
            pack_bytes: of.pack_bytes,
            part_bytes: of.part_bytes,
            zstd: of.zstd,
            checksum: of.checksum,
            ignores: of.ignores,
            dry_run: of.dry_run,
            tell_names: of.tell_names,
            one_file_system: of.one_file_system,
            limits: of.limits,
            exclude: of.exclude.globs().to_vec(),
            is_shared: of.is_shared,
        })))
    }

    /// Directories for a host that has room for them: its share of what waits, so that the others
    /// have something, too.
    fn works(&self, state: &mut RootState, host: usize) -> Result<Vec<SaveItem>, ArchiveError> {
        let (mut works, mut bytes) = (Vec::new(), 0);
        let pool = state.pool_of(host);
        let others = state.pools[pool].hosts.iter().filter(|&&host| !state.hosts[host].is_lost);
        let share = state.pools[pool].waiting.len().div_ceil(2 * others.count().max(1));
        let many = share.min(WORKS_MAX).min(state.hosts[host].wants as usize);
        while works.len() < many
            && bytes < MESSAGE_BYTES
            && let Some(of) = state.pools[pool].waiting.pop()
        {
            let item = self.item(state, host, of)?;
            bytes += encoded(&item).len();
            works.push(item);
            state.hosts[host].wants -= 1;
        }
        Ok(works)
    }

    /// Gives a directory to a host.
    fn item(
        &self,
        state: &mut RootState,
        host: usize,
        mut of: WaitingDirectory,
    ) -> Result<SaveItem, ArchiveError> {
        let rows = self.archive.catalog().rows_of(&of.to)?;
        // Single files come without a `Begun`, and a change needs to know its directory.
        if of.files.is_some() {
            let is = SavedDirectory::new(of.to.clone(), None, directory::made_now(), 0);
            of.is = Some(Arc::new(is));
        }
        // The host compares with these rows: its changes are refused where another writer comes
        // between.
        if let Some(is) = &of.is {
            is.since.store(rows.changed, Ordering::Relaxed);
        }
        state.given += 1;
        let item = SaveItem {
            id: state.given,
            source: of.source,
            path: of.path.clone(),
            files: of.files.clone(),
            to: of.to.clone(),
            directories: self.directories_in(&of.to)?,
            rows,
        };
        let given =
            GivenDirectory { of, changed: item.rows.changed, report: SaveReport::default() };
        state.hosts[host].given.insert(item.id, given);
        Ok(item)
    }

    /// The names of the directories that are archived in one, in their order, if they are not too many.
    fn directories_in(&self, path: &ArchivePath) -> Result<Option<Vec<Vec<u8>>>, ArchiveError> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let catalog = self.archive.catalog();
        while let Some((name, _)) =
            catalog.directory_behind(path, names.last().map(Vec::as_slice))?
        {
            if names.len() >= DIRECTORIES_TOLD_MAX {
                return Ok(None);
            }
            names.push(name);
        }
        Ok(Some(names))
    }

    /// A host has said what its sources are.
    fn begun(
        &self,
        state: &mut RootState,
        host: usize,
        are: &[Result<SourceIs, Errno>],
    ) -> Result<(), ArchiveError> {
        let options = &self.options;
        if are.len() != options.sources.len() {
            return self.lose(state, host, UNREADABLE);
        }
        let pool = state.pool_of(host);
        if options.is_shared {
            let missing = are.iter().zip(&options.sources).find_map(|(is, path)| {
                is.err().map(|errno| format!("{}: cannot be stored: {errno}", path.display()))
            });
            if let Some(missing) = missing {
                state.failed(1);
                return self.lose(state, host, &missing);
            }
        }
        let this = &mut state.hosts[host];
        this.has_begun = true;
        this.wants = 1;
        let known: Vec<SourceIs> = are.iter().filter_map(|is| is.ok()).collect();
        if let Some(first) = &state.pools[pool].sources {
            if *first != known {
                let why = "sees other files under these names than the first host (inode): they are \
                           not shared";
                state.failed(1);
                return self.lose(state, host, why);
            }
            return Ok(());
        }
        let to = match options.is_shared {
            true => options.to.clone(),
            false => options.to.join(state.hosts[host].name.as_bytes()),
        };
        if !known.is_empty() && !options.dry_run {
            make_directories(&self.archive, &to)?;
        }
        self.queue(state, host, are, &to);
        state.pools[pool].sources = Some(known);
        Ok(())
    }

    /// What is named is what there is to do first.
    fn queue(
        &self,
        state: &mut RootState,
        host: usize,
        are: &[Result<SourceIs, Errno>],
        to: &ArchivePath,
    ) {
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        for (number, (is, path)) in (0..).zip(are.iter().zip(&self.options.sources)) {
            let name = (!path.as_os_str().as_bytes().ends_with(b"/.")).then(|| path.file_name());
            let name = name.flatten();
            if let (Ok(is), Some(name)) = (is, name)
                && self.options.exclude.fits(name, is.is_directory, || path.clone(), 0)
            {
                state.report.skipped = state.report.skipped.saturating_add(1);
                continue;
            }
            match (is, name) {
                (Err(errno), _) => {
                    state.failed(1);
                    let text = format!("{}: cannot be stored: {errno}", path.display());
                    state.said(host, text);
                }
                (Ok(SourceIs { is_directory: false, .. }), Some(_)) => files.push(number),
                (Ok(_), name) => {
                    let to = name.map_or_else(|| to.clone(), |name| to.join(name.as_bytes()));
                    directories.push(WaitingDirectory::new(number, ArchivePath::ROOT, to, None));
                }
            }
        }
        let pool = state.pool_of(host);
        let waiting = &mut state.pools[pool].waiting;
        // The last is given first. The files come before the directories, which make more work.
        for directory in directories.into_iter().rev() {
            waiting.push(directory);
        }
        if !files.is_empty() {
            let of = WaitingDirectory::new(0, ArchivePath::ROOT, to.clone(), None);
            waiting.push(WaitingDirectory { files: Some(files), ..of });
        }
    }

    fn record(
        &self,
        state: &mut RootState,
        host: usize,
        record: HostRecord,
    ) -> Result<(), ArchiveError> {
        match record {
            HostRecord::Begun { is, .. } if !is.is_valid() => self.lose(state, host, UNREADABLE)?,
            HostRecord::Begun { id, is } => {
                if let Some(given) = state.hosts[host].given.get_mut(&id)
                    && given.of.is.is_none()
                {
                    let (path, above) = (given.of.to.clone(), given.of.above.clone());
                    let is = SavedDirectory::new(path, above, is, given.changed);
                    given.of.is = Some(Arc::new(is));
                }
            }
            HostRecord::Found { id, name } => {
                let (pool, pools) = (state.pool_of(host), state.pools.len());
                let waiting = &mut state.pools[pool].waiting;
                if let Some(above) = state.hosts[host].found(id, &name)
                    && !waiting.push_below(id, above, &name, pools)
                {
                    self.lose(state, host, TOO_MANY)?;
                }
            }
            HostRecord::InTheWay { id, name, was } => {
                let pool = state.pool_of(host);
                if let Some(above) = state.hosts[host].found(id, &name) {
                    let found = above.below(&name);
                    self.in_the_way(state, (host, pool), found, was);
                }
            }
            HostRecord::Change { id, change, report } => {
                self.change(state, host, id, change, report)?;
            }
            HostRecord::Done { id, report } => {
                state.forget_contents(host, id);
                if let Some(given) = state.hosts[host].given.remove(&id) {
                    let mut all = given.report + report;
                    // What was stored by one that was lost is not told twice.
                    all.unchanged = all.unchanged.saturating_sub(given.of.kept.stored);
                    state.report = state.report + all + given.of.kept;
                }
            }
            HostRecord::Told { text } => state.said(host, text),
            HostRecord::Stores { .. } if !self.options.tell_names => {
                self.lose(state, host, UNREADABLE)?;
            }
            HostRecord::Stores { path } => {
                let path = PathBuf::from(OsString::from_vec(path));
                state.told.push((host, HostTold::Stores(path)));
            }
            HostRecord::IsDirectory { ask, path } => {
                let is = self.archive.catalog().directory(&path)?.is_some();
                state.hosts[host].answers.push((ask, DeskAnswer::IsDirectory(is)));
            }
            // Hosts with files of their own ask nobody.
            HostRecord::Link { .. } | HostRecord::Linked { .. } if !self.options.is_shared => {
                self.lose(state, host, UNREADABLE)?;
            }
            // What others are told of is checked here.
            HostRecord::Linked { stored: Some(stored), .. } if !stored.as_is.is_valid() => {
                self.lose(state, host, UNREADABLE)?;
            }
            HostRecord::Stored { object: Some(object), .. } if !object.is_valid() => {
                self.lose(state, host, UNREADABLE)?;
            }
            HostRecord::Link { ask, key } => state.link(host, ask, key),
            HostRecord::Linked { key, stored } => state.linked(host, key, stored),
            HostRecord::Large { id, name, part } => state.large(host, (host, id, name, part)),
            HostRecord::Content { ask, id, name, part } => {
                state.content(host, ask, (host, id, name, part));
            }
            HostRecord::Stored { id, object } => state.stored(host, id, object),
            HostRecord::Broken { text } => self.lose(state, host, &text)?,
        }
        Ok(())
    }

    /// A directory of a host is archived as a file.
    fn in_the_way(
        &self,
        state: &mut RootState,
        (host, pool): (usize, usize),
        of: WaitingDirectory,
        was: FileStamp,
    ) {
        if self.options.dry_run {
            let path = of.to.as_relative();
            let told = ArchiveEvent::Replaced { path, was: "a file" };
            return state.said(host, told.to_string());
        }
        if state.pools[pool].replaced.len() < REPLACED_MAX {
            return state.pools[pool].replaced.push((of, was));
        }
        state.failed(1);
        let error = ArchiveError::InTheWay { path: of.to, what: "a file" };
        state.said(host, error.to_string());
    }

    /// Has archived files make room for directories, when hosts have nothing else to do; whether there is
    /// something to store by that.
    fn make_room(&self, state: &mut RootState, host: usize) -> Result<bool, ArchiveError> {
        let pool = state.pool_of(host);
        let replaced = std::mem::take(&mut state.pools[pool].replaced);
        if replaced.is_empty() {
            return Ok(false);
        }
        // What is stored beside the file is archived before.
        state.commits.flush(&self.archive)?;
        for (of, was) in replaced {
            match make_room(&self.archive, &of.to, was)? {
                Ok(true) => {
                    let path = of.to.as_relative();
                    let told = ArchiveEvent::Replaced { path, was: "a file" };
                    state.said(host, told.to_string());
                    let of = WaitingDirectory { above: None, ..of };
                    state.pools[pool].waiting.push(of);
                }
                Ok(false) => {}
                Err(error) => {
                    state.failed(1);
                    state.said(host, error.to_string());
                }
            }
        }
        Ok(!state.pools[pool].waiting.is_empty())
    }

    fn change(
        &self,
        state: &mut RootState,
        host: usize,
        id: u64,
        change: ReplacingChange,
        report: SaveReport,
    ) -> Result<(), ArchiveError> {
        // A host that was given up holds no directory any more, so its late changes do not count.
        let Some(given) = state.hosts[host].given.get_mut(&id) else { return Ok(()) };
        let is_own = |is: &Arc<SavedDirectory>| is_own(&change.change, &is.path);
        let Some(is) = given.of.is.clone().filter(is_own) else {
            return self.lose(state, host, UNREADABLE);
        };
        given.report = given.report + report;
        state.commits.push(&self.archive, &is, change, report)
    }

    /// Nothing more comes of a host. What it had in hand is for the others that see the same files.
    fn lose(&self, state: &mut RootState, host: usize, why: &str) -> Result<(), ArchiveError> {
        let this = &mut state.hosts[host];
        if std::mem::replace(&mut this.is_lost, true) {
            return Ok(());
        }
        let given = std::mem::take(&mut this.given);
        // What it has handed in is archived before anybody else looks at these directories.
        state.commits.flush(&self.archive)?;
        let pool = state.pool_of(host);
        for (_, given) in given {
            let report = given.report;
            let kept = SaveReport {
                stored: report.stored,
                stored_bytes: report.stored_bytes,
                ..SaveReport::default()
            };
            let kept = given.of.kept + kept;
            state.pools[pool].waiting.push(WaitingDirectory { kept, ..given.of });
        }
        state.give_links_up(host);
        state.give_contents_up(host);
        let is_left = |&host: &usize| !state.hosts[host].is_lost;
        let mut text = why.to_owned();
        if state.pools[pool].hosts.iter().any(is_left) {
            text.push_str("; the other hosts do its part");
        } else {
            // No other host sees these files. What is committed of them counts as stored all the
            // same.
            let (undone, kept) = state.pools[pool].waiting.take();
            let replaced = std::mem::take(&mut state.pools[pool].replaced);
            state.failed((undone + replaced.len()).max(1) as u64);
            state.report = state.report + kept;
        }
        state.said(host, text);
        Ok(())
    }

    /// How far it is.
    pub fn report(&self) -> SaveReport {
        lock(&self.state).report
    }

    /// What hosts have told of what they did it with, by their numbers.
    pub fn numbers(&self) -> Vec<(usize, HostNumbers)> {
        let mut state = lock(&self.state);
        let hosts = state.hosts.iter_mut().enumerate();
        hosts.filter_map(|(number, host)| Some((number, host.numbers.take()?))).collect()
    }

    /// Commits the rest; what was done, and what was refused.
    ///
    /// # Errors
    /// When it cannot be committed.
    pub fn finish(&self) -> Result<(SaveReport, Vec<ArchiveError>), ArchiveError> {
        let mut state = lock(&self.state);
        let refused = std::mem::take(&mut state.commits).finish(&self.archive)?;
        state.report = refused.taken_from(state.report);
        Ok((state.report, refused.errors))
    }
}

impl HostsRoot for SaveRoot {
    fn so_far(&self) -> Option<(u64, u64)> {
        let report = self.report();
        Some((report.stored.saturating_add(report.unchanged), report.stored_bytes))
    }

    fn next(&self, host: usize) -> Result<HostStep, ArchiveError> {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let this = &mut state.hosts[host];
        if this.is_lost {
            return Ok(HostStep::Over);
        }
        if !this.is_asked {
            this.is_asked = true;
            return Ok(HostStep::Ask(self.begin()));
        }
        let pool = state.pool_of(host);
        let mut is_at_work = state.has_contents(host);
        let works = if is_at_work { Vec::new() } else { self.works(state, host)? };
        let contents = state.contents_for(host);
        let this = &mut state.hosts[host];
        let answers = std::mem::take(&mut this.answers);
        is_at_work |= !this.given.is_empty() || !contents.is_empty() || !answers.is_empty();
        if is_at_work {
            return Ok(HostStep::Ask(encoded(&ToHost::Go { works, answers, contents })));
        }
        let pool = &state.pools[pool];
        // A host without work stays: the others may find directories, or be lost with what they
        // have.
        let in_hand = |&host: &usize| {
            let host = &state.hosts[host];
            !host.is_lost && (!host.given.is_empty() || !host.has_begun)
        };
        let is_over = pool.waiting.is_empty() && !pool.hosts.iter().any(in_hand);
        if !is_over {
            return Ok(HostStep::Wait);
        }
        if self.make_room(state, host)? {
            let works = self.works(state, host)?;
            let (answers, contents) = (Vec::new(), Vec::new());
            return Ok(HostStep::Ask(encoded(&ToHost::Go { works, answers, contents })));
        }
        if self.options.numbers && state.hosts[host].numbers.are_to_be_asked() {
            return Ok(HostStep::Ask(encoded(&ToHost::Numbers)));
        }
        Ok(HostStep::Over)
    }

    fn answered(&self, host: usize, answer: &[u8]) -> Result<(), ArchiveError> {
        let mut state = lock(&self.state);
        let state = &mut *state;
        if state.hosts[host].is_lost {
            return Ok(());
        }
        match postcard::from_bytes(answer) {
            Ok(FromHost::Begun(Ok(are))) => self.begun(state, host, &are),
            Ok(FromHost::Begun(Err(why))) => self.lose(state, host, &why),
            Ok(FromHost::Went { records, wants }) => {
                state.hosts[host].wants = wants;
                let mut changes: HashMap<u64, usize> = HashMap::new();
                for record in records {
                    // Nothing counts of what a lost host says behind that.
                    if state.hosts[host].is_lost {
                        break;
                    }
                    match postcard::from_bytes(&record) {
                        Ok(record) => {
                            if let HostRecord::Change { id, change, .. } = &record {
                                let of = changes.entry(*id).or_default();
                                *of += 1;
                                if *of > CHANGES_MAX || is_nothing(change) {
                                    return self.lose(state, host, UNREADABLE);
                                }
                            }
                            self.record(state, host, record)?;
                        }
                        Err(_) => return self.lose(state, host, UNREADABLE),
                    }
                }
                Ok(())
            }
            Ok(FromHost::Numbers(numbers)) => {
                state.hosts[host].numbers = AskedNumbers::Told(numbers);
                Ok(())
            }
            Err(_) => self.lose(state, host, UNREADABLE),
        }
    }

    fn lost(&self, host: usize, why: &str) -> Result<(), ArchiveError> {
        self.lose(&mut lock(&self.state), host, why)
    }

    fn told(&self) -> Vec<(usize, HostTold)> {
        std::mem::take(&mut lock(&self.state).told)
    }
}

/// Whether a change changes nothing.
fn is_nothing(ReplacingChange { change, replaced }: &ReplacingChange) -> bool {
    let none =
        DirectoryChange { path: change.path.clone(), since: change.since, ..Default::default() };
    replaced.is_empty() && *change == none
}

/// Whether a change says only what is in this directory: a host that moved or removed others would do so to those of
/// other hosts.
fn is_own(change: &DirectoryChange, path: &ArchivePath) -> bool {
    change.path == *path && change.tree.is_none() && !change.removed && change.is_valid()
}

const TOO_MANY: &str =
    "more directories wait to be stored there than are kept in memory (1 GiB of all hosts)";
const UNREADABLE: &str = "its answer is none: it is another version";

impl RootHost {
    /// A directory was found in one that the host has in hand, which is returned.
    fn found(&mut self, id: u64, name: &[u8]) -> Option<&WaitingDirectory> {
        // It becomes a part of a path: another value would lead out of the directory.
        let given = self.given.get_mut(&id).filter(|_| FileName::is_name(name))?;
        // They come in their order, so that who begins again finds nothing twice.
        if *name <= given.of.found[..] {
            return None;
        }
        given.of.found = name.to_vec();
        Some(&given.of)
    }
}

impl RootState {
    fn failed(&mut self, count: u64) {
        self.report.failed = self.report.failed.saturating_add(count);
    }

    fn said(&mut self, host: usize, text: String) {
        self.told.push((host, HostTold::Said(text)));
    }

    fn pool_of(&self, host: usize) -> usize {
        host.min(self.pools.len() - 1)
    }

    /// A host wants to store a name of a file with several.
    fn link(&mut self, host: usize, ask: u64, key: LinkKey) {
        let (mut answer, is_full) = (None, self.links.len() >= LINKS_KEPT_MAX);
        let link = self.links.entry(key).or_insert_with(|| {
            answer = Some(DeskAnswer::Link(None));
            LinkHolder { by: host, stored: None, waiting: VecDeque::new(), names: 0 }
        });
        link.names += 1;
        let is_last = link.names >= key.names && is_full;
        if let Some(stored) = &link.stored {
            answer = Some(DeskAnswer::Link(Some(Box::new(stored.clone()))));
            if is_last {
                self.links.remove(&key);
            }
        } else if answer.is_none() {
            link.waiting.push_back((host, ask));
        }
        self.hosts[host].answers.extend(answer.map(|answer| (ask, answer)));
    }

    /// A file with several names is stored, or was not.
    fn linked(&mut self, host: usize, key: LinkKey, stored: Option<StoredLink>) {
        let Some(link) = self.links.get_mut(&key).filter(|link| link.by == host) else { return };
        let Some(stored) = stored else { return self.next_by(key) };
        for (host, ask) in std::mem::take(&mut link.waiting) {
            let answer = DeskAnswer::Link(Some(Box::new(stored.clone())));
            self.hosts[host].answers.push((ask, answer));
        }
        link.stored = Some(stored);
    }

    /// Who waits for a file is the one who stores it.
    fn next_by(&mut self, key: LinkKey) {
        let Some(link) = self.links.get_mut(&key) else { return };
        match link.waiting.pop_front() {
            Some((host, ask)) => {
                link.by = host;
                self.hosts[host].answers.push((ask, DeskAnswer::Link(None)));
            }
            None => drop(self.links.remove(&key)),
        }
    }

    /// A lost host stores no file.
    fn give_links_up(&mut self, host: usize) {
        let mut open = Vec::new();
        for (key, link) in &mut self.links {
            link.waiting.retain(|(waiting, _)| *waiting != host);
            if link.by == host && link.stored.is_none() {
                open.push(*key);
            }
        }
        for key in open {
            self.next_by(key);
        }
    }
}
