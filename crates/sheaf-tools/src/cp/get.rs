//! Copying from hosts.
mod fetch;
mod local;
mod manifest;
mod pieces;
mod plan;
#[cfg(test)]
mod tests;

use super::options::{CopyOptions, Progress};
use super::put::Pace;
use crate::paths::{Cut, fail_unsaid};
use crate::target::{Target, ToolError, by_hosts, drop_unmatched};
use fetch::{Fetch, start_writing};
use local::Local;
use manifest::{AskedPath, Items, ManifestParams, ManifestTool};
use pieces::PiecesTool;
use plan::{Copy, CopyPlan};
use sheaf_core::{Errno, RangeSet, boot_id, lock};
use sheaf_file::{Export, FileIdentity, PathError, Pattern};
use sheaf_group::aggregate::StatusSum;
use sheaf_group::tool::Tools;
use sheaf_group::{Client, GroupError, Outcome};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

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
    drop(postcard::from_bytes::<Vec<pieces::CopyPiece>>(data));
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
    /// Files of this machine that are written in place and did not get all, with the hosts that they are of.
    pub cut: Vec<Cut>,
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
/// [`ToolError::Usage`] when an exact name is given to more than one path of one host; those of the group operation. What fails on hosts or of single
/// files is in the [`Got`].
pub async fn get(
    client: &Client,
    targets: &[Target],
    destination: &Path,
    options: &CopyOptions,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Got, ToolError> {
    let mut got = Got::default();
    check_asked(targets, options)?;
    let exact = options.exact_name.then(|| parted(destination));
    let (base, name) =
        exact.map_or((destination, None), |(base, name)| (base, Some(name.as_bytes().to_vec())));
    let mut plan = CopyPlan::new(name, options);
    // A directory is not copied into itself.
    let into = if options.recursive { above(base) } else { Vec::new() };
    // Each host sees all that it is asked for, so that names of one file stay one.
    for (hosts, paths) in by_hosts(targets) {
        let mut outcome = list(client, &hosts, (&paths, &into), options, &mut plan).await?;
        let asked = |path: &String| Target { members: hosts.clone(), path: path.clone() };
        drop_unmatched(&mut outcome, &paths.iter().map(asked).collect::<Vec<_>>());
        got.outcome.merge(outcome);
    }
    plan.drop_clashes(&mut got.outcome);
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
        got.cut = std::mem::take(&mut local.cut);
        (got.errors_more, got.files, got.bytes) = (local.errors_more, local.files, local.bytes);
    }
    got.outcome.fold_errors();
    got.outcome.count_once();
    got.count(&named, &unwritten);
    Ok(got)
}

/// Refuses what cannot be asked for.
fn check_asked(targets: &[Target], options: &CopyOptions) -> Result<(), ToolError> {
    if options.exact_name && !is_one(targets) {
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
    Ok(())
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

/// The identities of a directory of this machine and of those above it; of one that is still to be made,
/// those above.
fn above(dir: &Path) -> Vec<FileIdentity> {
    let there = dir.ancestors().map(|dir| if dir == Path::new("") { Path::new(".") } else { dir });
    let opened = there.filter_map(|dir| Export::open(dir).ok()).next();
    let top = opened.and_then(|export| export.find(Path::new("."), false).ok());
    // What cannot be looked at cannot be written either.
    top.and_then(|top| FileIdentity::of_all_above(&top).ok()).unwrap_or_default()
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
    asked: (&[String], &[FileIdentity]),
    options: &CopyOptions,
    plan: &mut CopyPlan,
) -> Result<Outcome, ToolError> {
    list_within(client, members, asked, options, (plan, MANIFEST_BYTES_MAX)).await
}

/// [`list`] with at most so many bytes of manifests.
async fn list_within(
    client: &Client,
    members: &RangeSet,
    (paths, into): (&[String], &[FileIdentity]),
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
        machine: boot_id(),
        into: into.to_vec(),
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
