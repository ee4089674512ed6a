//! Asks hosts until there is nothing more for them.
use crate::progress::ArchiveProgress;
use crate::tell_name;
use anyhow::Result;
use sheaf_archive::{HostStep, HostTold, HostsRoot};
use sheaf_cli::companion::ARCHIVE;
use sheaf_cli::companion::fetch::{self, WantedProgram};
use sheaf_cli::companion::host::{BEGIN, ENDED};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, printable};
use sheaf_core::{Errno, RangeSet};
use sheaf_group::Client;
use sheaf_session::{Config, Gone, Session};
use sheaf_tree::proto::filter::builtin::null;
use sheaf_tree::{Stream, Sync};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The service of hosts.
const SERVICE: &str = "archive";
/// A host that does not answer within this is lost, unless less is said by `--timeout`. It answers
/// twice a second, whatever it is at.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// How often it is looked whether there is something for a host that is idle.
const IDLE_LOOK: Duration = Duration::from_millis(20);
/// When a host without a free thread is asked again.
const BUSY_LOOK: Duration = Duration::from_millis(50);

/// What came of the hosts.
#[derive(Default)]
pub struct Driven {
    /// Those that answered to the end.
    pub done: usize,
    /// Those that did not.
    pub lost: usize,
}

/// How the work of a host has ended.
enum HostEnd {
    Done,
    /// It does not answer, or not what it should.
    Lost(Errno),
}

/// Has the hosts `members`, which are those of `root` in their order, do their part. The requests have
/// this tag.
pub async fn drive<R: HostsRoot + 'static>(
    session: &Session,
    config: &Config,
    members: &RangeSet,
    tag: i32,
    root: &Arc<R>,
    global: &GlobalArgs,
) -> Result<Driven> {
    let (client, mut tasks, mut driven) = (session.client(), JoinSet::new(), Driven::default());
    let progress = ArchiveProgress::new(global);
    let patience = ANSWER_MAX.min(config.timeout.value);
    let names: Vec<String> =
        members.iter().map(|leaf| client.host(leaf).unwrap_or_default()).collect();
    let leaves: Vec<u32> = members.iter().collect();
    let wanted = WantedProgram::of_this_process(&ARCHIVE)?;
    let without = fetch::provide(client.network(), members, &wanted, patience).await?;
    let begin = bytes::Bytes::from(postcard::to_allocvec(&wanted)?);
    for (host, leaf) in leaves.iter().enumerate() {
        let one = RangeSet::from_iter([*leaf]);
        let stream = client.network().open(SERVICE, one, "null", b"", Sync::WaitForAll);
        if let Some((errno, _)) = without.why(*leaf) {
            tasks.spawn(async move { (host, Ok(HostEnd::Lost(errno))) });
            continue;
        }
        let drive = HostDrive {
            root: root.clone(),
            client: client.clone(),
            host,
            tag,
            begin: begin.clone(),
            patience,
        };
        tasks.spawn(async move { (host, drive.run(stream).await) });
    }
    loop {
        let ended = next(&mut tasks, || {
            progress.suspend(|| tell(&**root, client, &leaves));
            if let Some(done) = root.so_far() {
                progress.show_hosts(done, (driven.done + driven.lost, leaves.len()));
            }
        });
        let Some(ended) = ended.await else { break };
        let (host, end) = ended?;
        match end? {
            HostEnd::Done => driven.done += 1,
            HostEnd::Lost(errno) => {
                driven.lost += 1;
                let leaf = leaves[host];
                let mut why = why(errno, leaf, &session.gone(), &names[host], patience);
                if without.why(leaf).is_some_and(|(_, was_sent)| was_sent) {
                    why = format!(
                        "{} cannot be sent there: {why} (it is kept in $XDG_CACHE_HOME/sheaf or \
                         ~/.cache/sheaf of the user that serves)",
                        ARCHIVE.program
                    );
                }
                let root = root.clone();
                tokio::task::spawn_blocking(move || root.lost(host, &why)).await??;
            }
        }
    }
    progress.end();
    tell(&**root, client, &leaves);
    Ok(driven)
}

/// The next task that ends; meanwhile what there is to tell is told.
async fn next<T: 'static>(
    tasks: &mut JoinSet<T>,
    tell: impl Fn(),
) -> Option<Result<T, tokio::task::JoinError>> {
    const TELL: Duration = Duration::from_millis(200);
    loop {
        match tokio::time::timeout(TELL, tasks.join_next()).await {
            Ok(ended) => return ended,
            Err(_) => tell(),
        }
    }
}

/// Tells what there is by now. What several hosts say in the same words is told once.
fn tell(root: &dyn HostsRoot, client: &Client, leaves: &[u32]) {
    let (mut said, mut order): (HashMap<String, RangeSet>, Vec<String>) = Default::default();
    for (host, told) in root.told() {
        let Some(&leaf) = leaves.get(host) else { continue };
        match told {
            HostTold::Said(text) => {
                let hosts = said.entry(text).or_insert_with_key(|text| {
                    order.push(text.clone());
                    RangeSet::default()
                });
                hosts.insert(leaf);
            }
            HostTold::Stores(path) => {
                let host = client.host(leaf).unwrap_or_default();
                // A line is of one host.
                let path = path.as_os_str().as_bytes().split(|byte| *byte == b'\n');
                let path = path.collect::<Vec<_>>().join(&b"\\n"[..]);
                tell_name(&[host.as_bytes(), b":", &path].concat());
            }
        }
    }
    for text in order {
        let hosts = client.fold(&said[&text]);
        output::tell(format_args!("sheaf: {}", printable(&format!("{hosts}: {text}"))));
    }
}

/// Why a host is lost.
fn why(errno: Errno, leaf: u32, gone: &[Gone], name: &str, patience: Duration) -> String {
    if let Some(gone) = gone.iter().rev().find(|gone| gone.leaves.contains(leaf)) {
        let what = if gone.is_down() { "host is down" } else { "it does not serve" };
        let name_of = gone.errno.name().unwrap_or("EHOSTDOWN");
        return format!("{what} ({name_of}): {}", gone.cause.replace("%h", name));
    }
    match errno {
        Errno::NOSYS => {
            "its server has no service for archives (ENOSYS): it is another program, or \
                         another version"
                .to_owned()
        }
        ENDED => format!("its {} has ended (EPIPE)", ARCHIVE.program),
        Errno::TIMEDOUT => format!("no answer within {} s (ETIMEDOUT)", patience.as_secs_f64()),
        other => other.to_string(),
    }
}

/// The work of one host.
struct HostDrive<R> {
    root: Arc<R>,
    client: Client,
    host: usize,
    tag: i32,
    /// Which program its server is to run.
    begin: bytes::Bytes,
    patience: Duration,
}

impl<R: HostsRoot + 'static> HostDrive<R> {
    async fn run(&self, stream: Stream) -> Result<HostEnd> {
        if let Err(errno) = self.ask(&stream, BEGIN, self.begin.clone()).await {
            return Ok(HostEnd::Lost(errno));
        }
        // Whoever waits for Ctrl-C ends with what was done until then.
        while !self.client.is_interrupted() {
            let (root, host) = (self.root.clone(), self.host);
            match tokio::task::spawn_blocking(move || root.next(host)).await?? {
                HostStep::Over => break,
                HostStep::Wait => tokio::time::sleep(IDLE_LOOK).await,
                HostStep::Ask(request) => match self.ask(&stream, self.tag, request.into()).await {
                    Ok(answer) => {
                        let root = self.root.clone();
                        let take = move || root.answered(host, &answer);
                        tokio::task::spawn_blocking(take).await??;
                    }
                    Err(errno) => return Ok(HostEnd::Lost(errno)),
                },
            }
        }
        Ok(HostEnd::Done)
    }

    async fn ask(
        &self,
        stream: &Stream,
        tag: i32,
        request: bytes::Bytes,
    ) -> Result<Vec<u8>, Errno> {
        let begun = Instant::now();
        loop {
            let left = self.patience.saturating_sub(begun.elapsed());
            let asked = stream.request(tag, request.clone(), left).await;
            let asked = asked.map_err(|error| error.errno())?;
            let answer = asked.answer().await;
            let coverage = &answer.coverage;
            if let Some((errno, _)) = coverage.failed.iter().chain(&coverage.silent).next() {
                if *errno == Errno::AGAIN && begun.elapsed() < self.patience {
                    tokio::time::sleep(BUSY_LOOK).await;
                    continue;
                }
                return Err(*errno);
            }
            let payload = answer.payload.unwrap_or_default();
            let items = null::items(&payload).map_err(|_| Errno::BADMSG)?;
            return items.first().map(|item| item.to_vec()).ok_or(Errno::BADMSG);
        }
    }
}
