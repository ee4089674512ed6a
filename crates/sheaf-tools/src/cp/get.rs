//! Copying from hosts.
mod local;
mod manifest;
mod pieces;
mod plan;
#[cfg(test)]
mod tests;

use super::PIECE_BYTES;
use super::options::{CopyOptions, Progress};
use super::put::Pace;
use crate::paths::fail_unsaid;
use crate::target::{Target, ToolError, by_members, drop_unmatched};
use local::Local;
use manifest::{AskedPath, Items, ManifestParams, ManifestTool};
use pieces::{CopyPiece, Lack, PIECES_MAX, PiecesTool};
use plan::{Clash, CopiedContent, CopiedLink, Copy, CopyPlan};
use sheaf_core::{Errno, RangeSet, lock};
use sheaf_file::{PathError, Pattern};
use sheaf_group::aggregate::StatusSum;
use sheaf_group::tool::Tools;
use sheaf_group::{Client, GroupError, Outcome};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::oneshot;

/// The most bytes of manifests, equal ones counted once, that the root holds.
const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// What is held of all manifests is at most so many times as long: of most files it is about twice as long.
const HELD_PER_BYTE: u64 = 4;

/// When all manifests are longer than that, the host with the longest one fails, if its own has at
/// least this part of them. Of many that are shorter no single one is at fault.
const LONG_SHARE: u64 = 16;

/// The least and the most bytes of one host's batch.
const BATCH_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=4 << 20;

/// How much longer a batch is than it has to be, at most: by one item.
const BATCH_MORE_MAX: u64 = 4 << 20;

/// Hosts that do not answer when they are asked for a content, one after the other, before it is given up.
const SILENT_MAX: usize = 8;

/// Places that cannot be written, for a reason that others may share, before a content is given up.
const FULL_MAX: usize = 8;

/// Files that would be written in place with a content, which hosts compare with their own.
const IN_PLACE_MAX: usize = 8;

/// Makes the leaves' part known to servers.
pub(super) fn register(tools: &mut Tools) {
    tools.register(manifest::TOOL, ManifestTool);
    tools.register(pieces::TOOL, PiecesTool);
}

/// Decodes `data` as each thing that crosses the tree here, for fuzzing.
#[cfg(feature = "fuzzing")]
pub(super) fn decode_any(data: &[u8]) {
    Items::of(data).for_each(drop);
    drop(postcard::from_bytes::<ManifestParams>(data));
    drop(postcard::from_bytes::<Vec<CopyPiece>>(data));
}

/// What copying from hosts came to.
#[derive(Debug, Default)]
pub struct Got {
    /// Which hosts and paths failed; the status counts the paths that were named, on each host,
    /// from which everything came. `EBADMSG` is a file that changed while it was copied.
    pub outcome: Outcome,
    /// Paths of this machine that could not be written.
    pub errors: Vec<PathError>,
    /// How many more there were.
    pub errors_more: u64,
    /// Paths that were named, on each host, of which something could not be written here and
    /// nothing failed there.
    pub lost_here: u64,
    /// What a dry run has to say.
    pub planned: Vec<PlannedCopy>,
    /// How much was fetched.
    pub fetched: Progress,
    /// Files written on this machine.
    pub files: u64,
    /// Bytes written into them.
    pub bytes: u64,
    /// What was made on this machine, or what a dry run says would be.
    pub made: Made,
}

/// What was made, and of which hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// Files, links and special files.
    pub files: u64,
    /// Directories that were not there. A dry run from hosts does not look, and takes them all as
    /// new.
    pub dirs: u64,
    /// The hosts to which, or from which, anything was copied.
    pub leaves: RangeSet,
}

impl Made {
    /// One of them from a host.
    pub(super) fn add(&mut self, leaf: u32, is_dir: bool) {
        let count = if is_dir { &mut self.dirs } else { &mut self.files };
        *count += 1;
        self.leaves.insert(leaf);
    }

    /// What a plan comes to.
    fn planned(dirs: &[Copy], files: &[PlannedCopy]) -> Self {
        let mut made = Self::default();
        for dir in dirs.iter().filter(|dir| !dir.remote.is_empty()) {
            made.dirs += dir.leaves.len();
            made.leaves.union_with(&dir.leaves);
        }
        for file in files {
            made.files += file.leaves.len();
            made.leaves.union_with(&file.leaves);
        }
        made
    }
}

/// A file that would be copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCopy {
    /// The hosts that have it.
    pub leaves: RangeSet,
    /// Its path there.
    pub remote: Vec<u8>,
    /// Its path here, beneath the directory of each host; whole with an exact name.
    pub local: PathBuf,
}

/// Copies paths and patterns of hosts into `destination`, beneath a directory for each host. With
/// an exact name, `destination` itself is what one path of one host becomes.
///
/// # Errors
/// [`ToolError::Local`] when the destination is no directory and cannot become one;
/// [`ToolError::Usage`] when two paths of one host would get one name, or an exact one is given to
/// more than one path of one host; those of the group operation. What fails on hosts or of single
/// files is in the [`Got`].
pub async fn get(
    client: &Client,
    targets: &[Target],
    destination: &Path,
    options: &CopyOptions,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Got, ToolError> {
    let mut got = Got::default();
    let exact = options.exact_name.then(|| parted(destination));
    if exact.is_some() && !is_one(targets) {
        let text =
            "only one path of one host, and no pattern, can have the destination's name".to_owned();
        return Err(ToolError::Usage(text));
    }
    if let Some(target) = targets.iter().find(|target| AskedPath::new(&target.path).leads_back()) {
        let text = format!(
            "{}: .. behind a wildcard leads out of what it found: write the path without it",
            target.path
        );
        return Err(ToolError::Usage(text));
    }
    let (base, name) =
        exact.map_or((destination, None), |(base, name)| (base, Some(name.as_bytes().to_vec())));
    let mut plan = CopyPlan::new(name, options);
    for (hosts, paths) in by_members(targets) {
        let mut outcome = list(client, &hosts, &paths, options, &mut plan).await?;
        let asked = |path: &String| Target { members: hosts.clone(), path: path.clone() };
        drop_unmatched(&mut outcome, &paths.iter().map(asked).collect::<Vec<_>>());
        got.outcome.merge(outcome);
    }
    let is_typed = |path: &[u8]| targets.iter().any(|target| target.path.as_bytes() == path);
    if let Some(Clash { leaf, paths, local }) = plan.drop_clashes(is_typed, &mut got.outcome) {
        let host = client.host(leaf).unwrap_or_else(|| leaf.to_string());
        let [one, other] = paths.map(|path| String::from_utf8_lossy(&path).into_owned());
        let local = local.display();
        let text = format!(
            "{host}: {one} and {other} would both become {host}/{local}; nothing was copied"
        );
        return Err(ToolError::Usage(text));
    }
    plan.settle(&mut got.outcome);
    let bytes = destination.as_os_str().as_bytes();
    if options.exact_name
        && (bytes.ends_with(b"/") || bytes.ends_with(b"/."))
        && plan.is_no_directory(Path::new(parted(destination).1))
    {
        let path = destination.display().to_string();
        return Err(ToolError::Local { path, errno: Errno::NOTDIR });
    }
    got.fetched.bytes_total = Some(plan.bytes());
    progress(got.fetched);
    let named = std::mem::take(&mut plan.named);
    let mut unwritten = HashMap::new();
    if options.dry_run {
        let in_base = |local: PathBuf| if options.exact_name { base.join(local) } else { local };
        let planned = |copy: Copy| PlannedCopy {
            leaves: copy.leaves,
            remote: copy.remote,
            local: in_base(copy.local),
        };
        let dirs = std::mem::take(&mut plan.dirs);
        got.planned = plan.into_copies().into_iter().map(planned).collect();
        got.made = Made::planned(&dirs, &got.planned);
    } else {
        let local = Local::new(base, client, options)
            .map_err(|errno| ToolError::Local { path: destination.display().to_string(), errno })?;
        let local = Arc::new(Mutex::new(local));
        let pace = Pace::new(options.rate_max);
        let writer = start_writing(&local)?;
        let in_place = options.in_place;
        let liars = RangeSet::new();
        Fetch { client, writer, got: &mut got, pace, progress, in_place, liars }.all(plan).await?;
        let mut local = lock(&local);
        unwritten = std::mem::take(&mut local.failed_named);
        got.errors = std::mem::take(&mut local.errors);
        got.made = std::mem::take(&mut local.made);
        (got.errors_more, got.files, got.bytes) = (local.errors_more, local.files, local.bytes);
    }
    got.outcome.fold_errors();
    got.outcome.count_once();
    got.count(&named, &unwritten);
    Ok(got)
}

/// Paths that were named, with the hosts that they are of.
type NamedSources = HashMap<Arc<[u8]>, RangeSet>;

impl Got {
    /// Counts the members of which everything came, and those that could not all be written.
    fn count(&mut self, named: &NamedSources, unwritten: &NamedSources) {
        let missing = self.outcome.missing_hosts();
        let mut failed: HashMap<&str, RangeSet> = HashMap::new();
        for error in &self.outcome.errors {
            failed.entry(error.named()).or_default().union_with(&error.members.leaves());
        }
        let mut whole = 0;
        for (path, leaves) in named {
            let mut good = leaves.difference(&missing);
            if let Some(failed) = failed.get(&*String::from_utf8_lossy(path)) {
                good = good.difference(failed);
            }
            let lost = unwritten.get(path).map_or(0, |lost| lost.intersection(&good).len());
            self.lost_here += lost;
            whole += good.len() - lost;
        }
        self.outcome.status = StatusSum { count: whole, ..StatusSum::default() };
    }
}

/// A destination as the directory that it is in, and its name there; what has no name is the
/// directory.
fn parted(destination: &Path) -> (&Path, &OsStr) {
    match (destination.parent(), destination.file_name()) {
        (Some(parent), Some(name)) if parent.as_os_str().is_empty() => (Path::new("."), name),
        (Some(parent), Some(name)) => (parent, name),
        _ => (destination, OsStr::new("")),
    }
}

/// Whether one path of one host is asked for.
fn is_one(targets: &[Target]) -> bool {
    let [target] = targets else { return false };
    target.members.len() == 1
        && Pattern::new(&target.path).is_ok_and(|pattern| pattern.is_literal())
}

/// Asks every host for its manifest, and adds to the plan.
async fn list(
    client: &Client,
    members: &RangeSet,
    paths: &[String],
    options: &CopyOptions,
    plan: &mut CopyPlan,
) -> Result<Outcome, ToolError> {
    list_within(client, members, paths, options, (plan, MANIFEST_BYTES_MAX)).await
}

/// [`list`] with at most so many bytes of manifests.
async fn list_within(
    client: &Client,
    members: &RangeSet,
    paths: &[String],
    options: &CopyOptions,
    (plan, bytes_max): (&mut CopyPlan, u64),
) -> Result<Outcome, ToolError> {
    let asked: Vec<AskedPath> = paths.iter().map(|path| AskedPath::new(path)).collect();
    let limits = client.limits();
    // Even if all manifests differ, those of one batch fit.
    let all_bytes = limits.bytes_max.min(bytes_max / 4);
    let batch_bytes =
        (all_bytes / members.len().max(1)).clamp(*BATCH_BYTES.start(), *BATCH_BYTES.end());
    let params = ManifestParams {
        paths: paths.to_vec(),
        options: options.clone(),
        batch_bytes: batch_bytes as u32,
        batch_ms: u32::try_from((limits.timeout / 4).as_millis()).unwrap_or(u32::MAX),
    };
    let params = postcard::to_stdvec(&params).map_err(|_| ToolError::Protocol)?;
    // A host that says nothing leaves a quarter of the time for what the others have; one that is being started, half.
    let is_starting = client.are_starting(members) == Some(false);
    let left = limits.deadline.map(|at| at.saturating_duration_since(Instant::now()));
    let left = left.map(|left| if is_starting { left / 2 } else { left / 4 * 3 });
    let timeout = left.map_or(limits.timeout, |left| left.min(limits.timeout));
    let limits = limits.with_bytes_max(bytes_max).with_timeout(timeout);
    let mut call = client.with_limits(limits).call(members, manifest::TOOL, &params)?;
    let held_max = bytes_max.saturating_mul(HELD_PER_BYTE);
    let mut lengths = ManifestLengths::default();
    let (mut said, mut refused) = (Outcome::default(), RangeSet::new());
    let most = batch_bytes + BATCH_MORE_MAX;
    let most: HashMap<u32, u64> = members.iter().map(|leaf| (leaf, most)).collect();
    while call.has_more() && client.is_over().is_none() {
        for class in call.next_bodies_within(&most).await? {
            let Some(body) = class.body else { continue };
            let leaves = class.members.leaves().difference(&refused);
            match plan.add(&leaves, Items::of(&body), &asked, held_max, &mut said) {
                // What is not held is heard all the same.
                Ok(held) => {
                    lengths.add(&leaves, held.max(body.len() as u64 * HELD_PER_BYTE));
                }
                Err(errno) => {
                    if errno == Errno::PROTO {
                        call.refuse(&leaves);
                    } else {
                        call.give_up(errno, &leaves);
                    }
                    refused.union_with(&leaves);
                }
            }
            while lengths.total > held_max {
                // A manifest without an end costs its own host, not the others.
                let longest = lengths.longest().filter(|(_, len)| *len >= held_max / LONG_SHARE);
                let Some((longest, _)) = longest else {
                    return Err(GroupError::TooLarge { bytes_max }.into());
                };
                call.give_up(Errno::MSGSIZE, &longest);
                lengths.forget(&longest);
                refused.union_with(&longest);
            }
        }
        plan.forget(&refused);
        lengths.forget(&refused);
    }
    let mut outcome = call.finish();
    fail_unsaid(&mut outcome, members);
    outcome.merge(said);
    Ok(outcome)
}

/// The bytes of the manifests so far; those of hosts that have sent the same count once.
#[derive(Default)]
struct ManifestLengths {
    of: HashMap<RangeSet, u64>,
    total: u64,
}

impl ManifestLengths {
    fn add(&mut self, leaves: &RangeSet, bytes: u64) {
        if !leaves.is_empty() {
            *self.of.entry(leaves.clone()).or_default() += bytes;
            self.total += bytes;
        }
    }

    /// The hosts with the longest manifest, and its length.
    fn longest(&self) -> Option<(RangeSet, u64)> {
        let of = |leaf| {
            let parts = self.of.iter().filter(|(leaves, _)| leaves.contains(leaf));
            parts.map(|(_, bytes)| bytes).sum::<u64>()
        };
        // Hosts that have sent the same are told apart by their first alone.
        let firsts = self.of.keys().filter_map(RangeSet::first);
        let longest = firsts.map(|leaf| (of(leaf), Reverse(leaf))).max();
        let (len, Reverse(first)) = longest?;
        let mut leaves = RangeSet::single(first);
        for same in self.of.keys().filter(|same| same.contains(first)) {
            same.iter().filter(|leaf| of(*leaf) == len).for_each(|leaf| leaves.insert(leaf));
        }
        Some((leaves, len))
    }

    fn forget(&mut self, leaves: &RangeSet) {
        if leaves.is_empty() {
            return;
        }
        for (of, bytes) in std::mem::take(self).of {
            let left = of.difference(leaves);
            if !left.is_empty() {
                self.add(&left, bytes);
            }
        }
    }
}

/// Something to write.
type Write = Box<dyn FnOnce(&mut Local) + Send>;

/// Starts the thread that writes until the sender is dropped: the tree has to go on meanwhile.
fn start_writing(local: &Arc<Mutex<Local>>) -> Result<Sender<Write>, ToolError> {
    let (send, writes) = channel::<Write>();
    let local = Arc::clone(local);
    let write_all = move || {
        let locked = || lock(&local);
        writes.iter().for_each(|write| write(&mut locked()));
    };
    let started = std::thread::Builder::new().name("sheaf-cp".to_owned()).spawn(write_all);
    started.map_err(|error| ToolError::Local {
        path: "a thread to write with".to_owned(),
        errno: error.into(),
    })?;
    Ok(send)
}

/// Fetching and writing.
struct Fetch<'a> {
    client: &'a Client,
    writer: Sender<Write>,
    got: &'a mut Got,
    pace: Pace,
    progress: &'a mut (dyn FnMut(Progress) + Send),
    /// Files are written in place, and so must not be their own sources.
    in_place: bool,
    /// Hosts that have given something else than the content which they said.
    liars: RangeSet,
}

impl Fetch<'_> {
    async fn all(mut self, mut plan: CopyPlan) -> Result<(), ToolError> {
        let (dirs, inline, links) = (
            std::mem::take(&mut plan.dirs),
            std::mem::take(&mut plan.inline),
            std::mem::take(&mut plan.links),
        );
        let named = links.iter().filter_map(|(_, link)| match link {
            CopiedLink::Hardlink(first) => Some(first.clone()),
            _ => None,
        });
        let named = named.collect();
        // Links are there before files: what is written through one goes where it leads in the end. Other names come last.
        let (links, first): (Vec<_>, Vec<_>) =
            links.into_iter().partition(|(_, link)| matches!(link, CopiedLink::Hardlink(_)));
        self.here(move |local| {
            local.named = named;
            local.make_dirs(&dirs);
            local.make_links(&first);
        })
        .await;
        let (small, mut large): (Vec<CopiedContent>, Vec<CopiedContent>) = plan
            .contents
            .into_iter()
            .filter(|content| !content.copies.is_empty())
            .partition(|content| content.size <= PIECE_BYTES);
        self.small(small).await?;
        // One without an end keeps no other one from its place.
        large.sort_by_key(|content| content.size);
        for content in large {
            self.large(content).await?;
        }
        if let Some(errno) = self.client.is_over() {
            // What came with the manifests is not written any more either.
            let unwritten =
                inline.iter().map(|(copy, _)| copy).chain(links.iter().map(|(copy, _)| copy));
            unwritten.for_each(|copy| self.got.outcome.add_silent(errno, &copy.leaves));
            return Ok(());
        }
        let client = self.client.clone();
        let write = move |local: &mut Local| {
            let mut unwritten = None;
            // Hard links come after files, which they name. Directories get their attributes
            // when all that is in them is there.
            for (copy, content) in inline {
                match client.is_over() {
                    Some(errno) => {
                        let (_, leaves) = unwritten.get_or_insert((errno, RangeSet::new()));
                        leaves.union_with(&copy.leaves);
                    }
                    None => local.write(&content, blake3::hash(&content).as_bytes(), &[copy]),
                }
            }
            match &mut unwritten {
                Some((_, leaves)) => {
                    links.iter().for_each(|(copy, _)| leaves.union_with(&copy.leaves));
                }
                None => local.make_links(&links),
            }
            local.close_dirs();
            unwritten
        };
        if let Some((errno, leaves)) = self.here(write).await {
            self.got.outcome.add_silent(errno, &leaves);
        }
        Ok(())
    }

    /// Writes, on the thread that may block.
    async fn here<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Local) -> T + Send + 'static,
    ) -> T {
        let (done, written) = oneshot::channel();
        let write = move |local: &mut Local| drop(done.send(act(local)));
        // If the writer is gone, nobody will say that this was done.
        let _ = self.writer.send(Box::new(write));
        written.await.expect("the writer works until this is dropped, unless it has panicked")
    }

    /// Contents that fit in one wave, many at a time.
    async fn small(&mut self, contents: Vec<CopiedContent>) -> Result<(), ToolError> {
        // They are taken from the end. None is longer than a piece, so one always fits.
        let mut waiting: Vec<Wanted> = contents.into_iter().rev().map(Wanted::new).collect();
        while !waiting.is_empty() {
            let (mut asked, mut pieces) = (Vec::new(), Vec::new());
            let mut bytes = 0;
            while asked.len() < PIECES_MAX
                && let Some(wanted) =
                    waiting.pop_if(|next| bytes + next.content.size <= PIECE_BYTES)
            {
                bytes += wanted.content.size;
                if let Some(holder) = wanted.holder(&self.liars) {
                    pieces.push(piece(&wanted.content, holder, 0));
                    asked.push(wanted);
                }
            }
            if self.in_place {
                let find = move |local: &mut Local| {
                    for (wanted, piece) in asked.iter().zip(&mut pieces) {
                        piece.apart = local.in_place(&wanted.content, IN_PLACE_MAX);
                    }
                    (asked, pieces)
                };
                (asked, pieces) = self.here(find).await;
            }
            let answers = self.ask(&pieces, bytes).await?;
            let mut whole = Vec::new();
            for ((mut wanted, piece), answer) in asked.into_iter().zip(pieces).zip(answers) {
                match answer.and_then(|body| verified(body, &wanted.content)) {
                    Ok(body) => {
                        self.got.fetched.files += 1;
                        whole.push((wanted.content, body));
                    }
                    Err(lack) if self.has_more(&mut wanted, piece.leaf, lack) => {
                        tracing::debug!(
                            ?lack,
                            "a copy of a content was not had from {}",
                            piece.leaf
                        );
                        waiting.push(wanted);
                    }
                    Err(lack) => self.lack(wanted.content, lack).await,
                }
            }
            let client = self.client.clone();
            let write = move |local: &mut Local| {
                let mut whole = whole.into_iter();
                while client.is_over().is_none()
                    && let Some((content, body)) = whole.next()
                {
                    local.write(&body, &content.digest, &content.copies);
                }
                whole.map(|(content, _)| content).collect::<Vec<_>>()
            };
            for unwritten in self.here(write).await {
                let errno = self.client.is_over().unwrap_or(Errno::CANCELED);
                self.lack(unwritten, Lack::Silent(errno)).await;
            }
        }
        Ok(())
    }

    /// A host has not given a content: whether another one can be asked for it.
    fn has_more(&mut self, wanted: &mut Wanted, leaf: u32, lack: Lack) -> bool {
        wanted.tried.insert(leaf);
        match lack {
            Lack::Silent(_) => wanted.silent += 1,
            // Its file may have changed; or it claims what it does not have.
            Lack::Failed(Errno::BADMSG | Errno::PROTO) => self.liars.insert(leaf),
            Lack::Failed(_) => {}
        }
        wanted.silent < SILENT_MAX
            && self.client.is_over().is_none()
            && wanted.holder(&self.liars).is_some()
    }

    /// A content that takes several waves: to one place, and from there to the others.
    async fn large(&mut self, content: CopiedContent) -> Result<(), ToolError> {
        let each = content.copies.iter().enumerate();
        let places: Vec<(usize, u32)> =
            each.flat_map(|(at, copy)| copy.leaves.iter().map(move |leaf| (at, leaf))).collect();
        let mut wanted = Wanted::new(content);
        let (mut place, mut full) = (0, 0);
        let last = loop {
            let Some((at, leaf)) = places.get(place).copied() else { return Ok(()) };
            let copy = wanted.content.copies[at].clone();
            match self.bring(&mut wanted, leaf, &copy).await? {
                Ok(()) => {
                    self.got.fetched.files += 1;
                    let content = wanted.content;
                    self.here(move |local| local.replicate(&content, (leaf, &copy))).await;
                    return Ok(());
                }
                Err(CopyTrouble::Local(errno)) => {
                    self.here(move |local| local.fail(leaf, &copy, errno)).await;
                    place += 1;
                    full += usize::from(matches!(
                        errno,
                        Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::IO
                    ));
                    if full >= FULL_MAX {
                        break errno;
                    }
                }
                Err(CopyTrouble::Mixed) => {}
                Err(CopyTrouble::Lack(holder, lack)) => {
                    if !self.has_more(&mut wanted, holder, lack) {
                        self.lack(wanted.content, lack).await;
                        return Ok(());
                    }
                }
            }
        };
        // Where so many places cannot be written, the others are not tried.
        self.here(move |local| {
            for (at, leaf) in &places[place..] {
                local.fail(*leaf, &wanted.content.copies[*at], last);
            }
        })
        .await;
        Ok(())
    }

    /// Fetches a content to one place.
    async fn bring(
        &mut self,
        wanted: &mut Wanted,
        leaf: u32,
        copy: &Copy,
    ) -> Result<Result<(), CopyTrouble>, ToolError> {
        if self.in_place {
            let same = self.sources(&wanted.content, leaf, copy).await?;
            // What one host says of its file is nothing about the others' places.
            wanted.tried.union_with(&same);
            if same.contains(leaf) || wanted.holder(&self.liars).is_none() {
                return Ok(Err(CopyTrouble::Local(Errno::SAMEFILE)));
            }
        }
        let copy_here = copy.clone();
        let mut staged = match self.here(move |local| local.begin(leaf, &copy_here)).await {
            Ok(staged) => staged,
            Err(errno) => return Ok(Err(CopyTrouble::Local(errno))),
        };
        let size = wanted.content.size;
        let (mut at, mut from) = (0, RangeSet::new());
        while at < size {
            let Some(holder) = wanted.holder(&self.liars) else {
                return Ok(Err(CopyTrouble::Local(Errno::PROTO)));
            };
            let piece = piece(&wanted.content, holder, at);
            let (holder, len) = (piece.leaf, u64::from(piece.len));
            let answer =
                self.ask(&[piece], len).await?.pop().unwrap_or(Err(Lack::Failed(Errno::PROTO)));
            let body = match answer {
                Ok(body) if body.len() as u64 == len => body,
                Ok(_) => return Ok(Err(CopyTrouble::Lack(holder, Lack::Failed(Errno::BADMSG)))),
                // Whoever has the same content can go on where the other was lost.
                Err(lack @ Lack::Silent(_)) if self.has_more(wanted, holder, lack) => continue,
                Err(lack) => return Ok(Err(CopyTrouble::Lack(holder, lack))),
            };
            from.insert(holder);
            let (written, back) = self.here(move |_| (staged.write_at(at, &body), staged)).await;
            if let Err(errno) = written {
                return Ok(Err(CopyTrouble::Local(errno)));
            }
            staged = back;
            at += len;
        }
        let (copy, digest) = (copy.clone(), wanted.content.digest);
        Ok(match self.here(move |local| local.finish(leaf, &copy, staged, &digest)).await {
            Ok(()) => Ok(()),
            // The contents are not those of the manifest: another host may have them.
            Err(Errno::BADMSG) if from.len() > 1 => Err(CopyTrouble::Mixed),
            Err(Errno::BADMSG) => match from.first() {
                Some(holder) => Err(CopyTrouble::Lack(holder, Lack::Failed(Errno::BADMSG))),
                None => Err(CopyTrouble::Local(Errno::BADMSG)),
            },
            Err(errno) => Err(CopyTrouble::Local(errno)),
        })
    }

    /// The hosts of which the file that would be written in place is the one that they would send.
    async fn sources(
        &mut self,
        content: &CopiedContent,
        leaf: u32,
        copy: &Copy,
    ) -> Result<RangeSet, ToolError> {
        let local = copy.local.clone();
        let there = self.here(move |all| all.in_place_at(leaf, &local)).await;
        let Some(there) = there else { return Ok(RangeSet::new()) };
        // Hosts compare it with their own files, and send nothing.
        let mut questions = Vec::new();
        let mut asked = RangeSet::new();
        for copy in &content.copies {
            for leaf in copy.leaves.difference(&asked).iter().take(PIECES_MAX - questions.len()) {
                let piece = piece(content, (leaf, &copy.remote), 0);
                questions.push(CopyPiece { len: 0, apart: vec![there.clone()], ..piece });
            }
            asked.union_with(&copy.leaves);
        }
        let answers = self.ask(&questions, 0).await?;
        let said = questions.iter().zip(answers);
        let same = |answer| matches!(answer, Err(Lack::Failed(Errno::SAMEFILE)));
        Ok(said.filter_map(|(asked, answer)| same(answer).then_some(asked.leaf)).collect())
    }

    /// One wave.
    async fn ask(
        &mut self,
        pieces: &[CopyPiece],
        bytes: u64,
    ) -> Result<Vec<Result<Vec<u8>, Lack>>, ToolError> {
        if let Some(errno) = self.client.is_over() {
            return Ok(pieces.iter().map(|_| Err(Lack::Silent(errno))).collect());
        }
        let answers = pieces::fetch(self.client, pieces).await?;
        self.got.fetched.bytes +=
            answers.iter().flatten().map(|body| body.len() as u64).sum::<u64>();
        (self.progress)(self.got.fetched);
        tokio::select! {
            _ = self.client.over() => {}
            () = self.pace.wait(bytes) => {}
        }
        Ok(answers)
    }

    /// Nobody gives this content.
    async fn lack(&mut self, content: CopiedContent, lack: Lack) {
        for copy in &content.copies {
            match lack {
                Lack::Silent(errno) => self.got.outcome.add_silent(errno, &copy.leaves),
                Lack::Failed(errno) => self.got.outcome.push_error(copy.error(errno)),
            }
        }
        self.here(move |local| local.lack(&content.copies)).await;
    }
}

/// A content, and which hosts have not given it.
struct Wanted {
    content: CopiedContent,
    tried: RangeSet,
    /// How many of them did not answer.
    silent: usize,
}

impl Wanted {
    fn new(content: CopiedContent) -> Self {
        Self { content, tried: RangeSet::new(), silent: 0 }
    }

    /// The host to ask next, with its path of the content: those that have given what is not the content they said come last.
    fn holder(&self, liars: &RangeSet) -> Option<(u32, &[u8])> {
        let find = |passed_over: &RangeSet| {
            self.content.copies.iter().find_map(|copy| {
                let left = copy.leaves.difference(passed_over);
                Some((left.first()?, &copy.remote[..]))
            })
        };
        let mut last = self.tried.clone();
        last.union_with(liars);
        find(&last).or_else(|| find(&self.tried))
    }
}

/// Why a content did not come to a place.
enum CopyTrouble {
    Local(Errno),
    /// What came from several hosts is not the content, and it is not known whose part is wrong.
    Mixed,
    /// This host has not given it.
    Lack(u32, Lack),
}

fn piece(content: &CopiedContent, (leaf, path): (u32, &[u8]), offset: u64) -> CopyPiece {
    let len = (content.size - offset).min(PIECE_BYTES) as u32;
    CopyPiece { leaf, path: path.to_vec(), offset, len, apart: Vec::new() }
}

fn verified(body: Vec<u8>, content: &CopiedContent) -> Result<Vec<u8>, Lack> {
    let is_same =
        body.len() as u64 == content.size && *blake3::hash(&body).as_bytes() == content.digest;
    if is_same { Ok(body) } else { Err(Lack::Failed(Errno::BADMSG)) }
}
