//! The root's side of copying to hosts.
use super::message::{PutParams, Totals};
use super::options::{CopyOptions, Progress};
use super::place::PLANS;
use super::source::{Filled, Sent, Source, Stopped, read_all};
use crate::paths::name_of;
use crate::paths::{Cut, Effect};
use crate::target::{Target, ToolError};
use sheaf_core::{Errno, RangeSet, lock};
use sheaf_file::PathError;
use sheaf_group::aggregate::StatusSum;
use sheaf_group::entry::{Entry, EntryKind, Merged};
use sheaf_group::{Call, Client, Outcome, Unfinished};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Name of the tool at the leaves.
pub(super) const TOOL: &str = "cp.put";

/// Packets that are read ahead of the one being sent.
const PACKETS_AHEAD_MAX: usize = 2;

/// What copying to hosts came to.
#[derive(Debug)]
pub struct Put {
    /// Which hosts and paths failed; the status counts the hosts where everything is as asked: the
    /// destination of each is the member.
    pub outcome: Outcome,
    /// Files of this machine that could not be read, and so were not copied.
    pub errors: Vec<PathError>,
    /// How many more there were.
    pub errors_more: u64,
    /// What hosts wrote, by equal numbers.
    pub totals: Vec<(Totals, RangeSet)>,
    /// Files that were written in place, did not get all, and are not as they were.
    pub cut: Vec<Cut>,
    /// Hosts that did not come to the end.
    pub unfinished: Unfinished,
    /// What a dry run has to say, folded over hosts: `create`, `replace` or `enter` for each path.
    pub lines: Merged,
    /// How much was read and sent.
    pub sent: Progress,
    /// Something could be read, so that hosts were asked for something.
    is_asked: bool,
}

/// Copies `sources` to `target`. A directory that is there is copied into, otherwise the path of
/// the target is the new name.
///
/// # Errors
/// [`ToolError::Usage`] when there is nothing to copy, or when two sources would get one name;
/// [`ToolError::Local`] when no thread can be started to read it; [`ToolError::Protocol`] for
/// answers that do not decode; those of the group operation. What fails on hosts or of single files
/// is in the [`Put`].
pub async fn put(
    client: &Client,
    sources: Vec<Source>,
    target: &Target,
    options: &CopyOptions,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Put, ToolError> {
    put_at_pace(client, sources, target, options, &Pace::new(options.rate_max), progress).await
}

/// [`put`], at a pace that others may keep as well.
pub(super) async fn put_at_pace(
    client: &Client,
    sources: Vec<Source>,
    target: &Target,
    options: &CopyOptions,
    pace: &Pace,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Put, ToolError> {
    if sources.is_empty() || target.members.is_empty() {
        return Err(ToolError::Usage("there is nothing to copy, or no host to copy to".to_owned()));
    }
    if sources.len() > 1 && options.exact_name {
        return Err(ToolError::Usage(
            "several sources cannot all have the destination's name".to_owned(),
        ));
    }
    check_names(&sources, options)?;
    let bytes_total = sizes(&sources);
    let into = sources.len() > 1;
    let params = PutParams { destination: target.path.clone(), into, options: options.clone() };
    let params = postcard::to_stdvec(&params).map_err(|_| ToolError::Protocol)?;
    let call = client.call(&target.members, TOOL, &params)?;
    let mut call = Effect::of_change(options.dry_run).call(call).await;
    let (send, mut packets) = mpsc::channel(PACKETS_AHEAD_MAX);
    let reading = start_reading(sources, options.clone(), send)?;
    let mut sent = Progress { bytes_total, ..Progress::default() };
    let mut tell = |files, bytes| {
        (sent.files, sent.bytes) = (files, bytes);
        progress(sent);
    };
    let fed = feed(client, &mut call, &mut packets, pace, &mut tell).await;
    // A reader that still waits for room or for its own input is told that nobody listens.
    drop(packets);
    let mut put = Put { is_asked: true, ..Put::nothing() };
    match fed {
        Ok(is_all_sent) => {
            while call.next_entries(&mut put.lines).await? {}
            (put.outcome, put.unfinished) = call.conclude(&mut put.lines).await?;
            // A reader of a pipe may never end.
            if is_all_sent {
                match reading.await {
                    Ok(Ok(Sent { errors, errors_more, is_anything })) => {
                        (put.errors, put.errors_more, put.is_asked) =
                            (errors, errors_more, is_anything);
                    }
                    // It was told that nobody listens any more, which the hosts' outcome says.
                    Ok(Err(Stopped)) => {}
                    // What it has not come to is not known.
                    Err(_) => return Err(reading_broke_off()),
                }
            }
        }
        Err(errno) => {
            put.outcome.add_silent(errno, &target.members);
            (_, put.unfinished) = call.conclude(&mut put.lines).await?;
        }
    }
    put.sent = sent;
    put.sum_up(&target.members);
    Ok(put)
}

/// The thread that reads the sources has ended before it was done.
fn reading_broke_off() -> ToolError {
    ToolError::Local { path: "the reading of what is copied".to_owned(), errno: Errno::IO }
}

/// Refuses sources of which one would overwrite, or be mixed with, what another has just become.
pub(super) fn check_names(sources: &[Source], options: &CopyOptions) -> Result<(), ToolError> {
    let mut taken: HashMap<Vec<u8>, &Path> = HashMap::new();
    for source in sources {
        let Source::Path(path) = source else { continue };
        for name in names_made(path, options) {
            let shown = String::from_utf8_lossy(&name).into_owned();
            if let Some(other) = taken.insert(name, path) {
                let (other, path) = (other.display(), path.display());
                let text =
                    format!("{other} and {path} would both become {shown}; nothing was copied");
                return Err(ToolError::Usage(text));
            }
        }
    }
    Ok(())
}

/// What a source makes in a destination: its own name, or those of what is in it, where the
/// directory itself is the destination.
fn names_made(path: &Path, options: &CopyOptions) -> Vec<Vec<u8>> {
    let name = name_of(path);
    if !name.is_empty() || !options.recursive {
        return if name.is_empty() { Vec::new() } else { vec![name.to_vec()] };
    }
    // Of a directory that cannot be read nothing is copied, and reading it will say why.
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_encoded_bytes()).collect()
}

type SourceReading = tokio::sync::oneshot::Receiver<Result<Sent, Stopped>>;

/// Reads on a thread of its own, which may block for ever on a pipe without keeping the runtime
/// from its end.
fn start_reading(
    sources: Vec<Source>,
    options: CopyOptions,
    send: mpsc::Sender<Filled>,
) -> Result<SourceReading, ToolError> {
    let (done, reading) = tokio::sync::oneshot::channel();
    let read = move || {
        let mut send = |filled: Filled| send.blocking_send(filled).map_err(|_| Stopped);
        // Whoever does not wait any more does not miss it.
        let _ = done.send(read_all(sources, &options, &mut send));
    };
    let started = std::thread::Builder::new().name("sheaf-cp".to_owned()).spawn(read);
    started.map_err(|error| ToolError::Local {
        path: "a thread to read with".to_owned(),
        errno: error.into(),
    })?;
    Ok(reading)
}

/// Sends packets as they are read. Stops with `ECANCELED` at an interrupt, with `ETIMEDOUT` at the
/// session's deadline; gives `false` when no host is left before all is sent.
async fn feed(
    client: &Client,
    call: &mut Call,
    packets: &mut mpsc::Receiver<Filled>,
    pace: &Pace,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<bool, Errno> {
    let mut so_far = 0;
    while call.has_hosts() {
        let filled = tokio::select! {
            errno = client.over() => return Err(errno),
            filled = packets.recv() => filled,
        };
        let Some(Filled { bytes, files_done, contents_done }) = filled else { return Ok(true) };
        tokio::select! {
            errno = client.over() => return Err(errno),
            () = call.feed(&bytes) => {}
        }
        progress(files_done, contents_done);
        tokio::select! {
            errno = client.over() => return Err(errno),
            () = pace.wait(contents_done - so_far) => {}
        }
        so_far = contents_done;
    }
    Ok(false)
}

/// Keeps to a rate, with all others that have the same.
#[derive(Clone)]
pub(super) struct Pace {
    rate_max: Option<u64>,
    next: Arc<Mutex<Instant>>,
}

impl Pace {
    pub fn new(rate_max: Option<u64>) -> Self {
        let next = Arc::new(Mutex::new(Instant::now()));
        Self { rate_max: rate_max.filter(|&rate| rate > 0), next }
    }

    /// Waits as long as `bytes` take, behind those that wait already.
    pub async fn wait(&self, bytes: u64) {
        let Some(rate) = self.rate_max else { return };
        let until = {
            let mut next = lock(&self.next);
            *next = next.max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / rate as f64);
            *next
        };
        tokio::time::sleep_until(until.into()).await;
    }
}

/// How many bytes there are, if all sources are plain files.
fn sizes(sources: &[Source]) -> Option<u64> {
    let size = |source: &Source| match source {
        Source::Path(path) => {
            std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|file| file.len())
        }
        Source::Open(_) | Source::Reader(_) => None,
    };
    sources.iter().map(size).sum()
}

impl Put {
    /// Before anything is copied.
    pub(super) fn nothing() -> Self {
        Self {
            outcome: Outcome::default(),
            errors: Vec::new(),
            errors_more: 0,
            totals: Vec::new(),
            cut: Vec::new(),
            unfinished: Unfinished::default(),
            lines: Merged::new().with_order(false),
            sent: Progress::default(),
            is_asked: false,
        }
    }

    /// Takes in what another copy, to other hosts, came to.
    pub(super) fn take_in(&mut self, other: Self) -> Result<(), ToolError> {
        self.outcome.merge(other.outcome);
        self.errors.extend(other.errors);
        self.errors_more += other.errors_more;
        for (totals, leaves) in other.totals {
            match self.totals.iter_mut().find(|(known, _)| *known == totals) {
                Some((_, known)) => known.union_with(&leaves),
                None => self.totals.push((totals, leaves)),
            }
        }
        self.cut.extend(other.cut);
        self.unfinished.merge(&other.unfinished);
        let mut partial = Vec::new();
        other.lines.encode_partial(&mut partial);
        self.lines.fold_partial(&partial).map_err(|_| ToolError::Protocol)?;
        self.sent.files += other.sent.files;
        self.sent.bytes += other.sent.bytes;
        self.is_asked |= other.is_asked;
        Ok(())
    }

    /// Takes errors and totals out of the entries.
    fn sum_up(&mut self, members: &RangeSet) {
        // Of a dry run, what would become of each path.
        let is_answer = |entry: &Entry<'_>| match entry.kind {
            EntryKind::Line => PLANS.contains(&entry.text),
            kind => matches!(kind, EntryKind::Count | EntryKind::Part),
        };
        self.outcome.add_failed(Errno::PROTO, &self.lines.refuse(&is_answer));
        self.outcome.add_errors(&self.lines);
        for entry in self.lines.sorted() {
            let (path, text, leaves) = (entry.path, entry.entry.text, entry.leaves.clone());
            match entry.entry.kind {
                EntryKind::Count => match postcard::from_bytes(text) {
                    Ok(totals) => self.totals.push((totals, leaves)),
                    Err(_) => self.outcome.add_failed(Errno::PROTO, &leaves),
                },
                EntryKind::Part => {
                    let bytes = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
                    let path = String::from_utf8_lossy(path).into_owned();
                    match bytes {
                        Some(bytes) => self.cut.push(Cut { path, leaves, bytes }),
                        None => self.outcome.add_failed(Errno::PROTO, &leaves),
                    }
                }
                _ => {}
            }
        }
        // A host may say twice how far it came.
        self.totals.sort_by_key(|(totals, leaves)| (Reverse(totals.made()), leaves.first()));
        let mut seen = RangeSet::new();
        for (_, leaves) in &mut self.totals {
            *leaves = leaves.difference(&seen);
            seen.union_with(leaves);
        }
        self.totals.retain(|(_, leaves)| !leaves.is_empty());
        self.totals.sort_by_key(|(_, leaves)| leaves.first());
        self.outcome.status = StatusSum::default();
        if !self.is_asked {
            return;
        }
        let mut failed = self.outcome.missing_hosts();
        self.lines.errors().iter().for_each(|error| failed.union_with(error.leaves));
        for leaf in members.difference(&failed).iter() {
            match self.totals.iter().find(|(_, leaves)| leaves.contains(leaf)) {
                Some((totals, _)) => self.outcome.status.add(totals.bytes),
                // It says nothing of what it has done.
                None => self.outcome.add_failed(Errno::PROTO, &RangeSet::single(leaf)),
            }
        }
    }
}
