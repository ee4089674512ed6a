//! Rounds of asking all hosts for what they have taken.
use super::TraceServeArgs;
use crate::record::now_ns;
use anyhow::{Result, anyhow};
use sheaf_core::{Errno, RangeSet};
use sheaf_group::Client;
use sheaf_session::config::own_name;
use sheaf_session::{Gone, is_unreached};
use sheaf_trace::TraceError;
use sheaf_trace::served::{
    COLLECT, CollectRequest, RowFilter, ServedStore, ServedTotals, TRACE_MERGE, TRACE_SERVICE,
    TraceBatch,
};
use sheaf_tree::{Coverage, Stream, Sync};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A host that does not answer within this is asked again in the next round.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Rows of all hosts in one round, and what each may give at least.
const ROUND_ROWS: usize = 2 << 20;
const HOST_ROWS_MIN: usize = 1 << 10;
const HOST_ROWS_MAX: usize = 64 << 10;
/// Exchanges before anything is recorded: the quickest say most of the clocks.
const CLOCK_ROUNDS: usize = 8;

/// What a round has brought beside rows.
#[derive(Debug, Default)]
pub struct RoundNews {
    /// More is there than it could bring.
    pub more: bool,
    /// What is to be told.
    pub told: Vec<String>,
}

pub struct Rounds<'a> {
    client: &'a Client,
    members: &'a RangeSet,
    stream: Stream,
    store: ServedStore,
    request: CollectRequest,
    /// Who did not give anything in the last round, and why.
    failing: BTreeMap<u32, Errno>,
    /// What was told of hosts.
    told: BTreeSet<String>,
    /// What is missing, or may be.
    missing: BTreeSet<String>,
}

impl<'a> Rounds<'a> {
    pub fn begin(
        client: &'a Client,
        members: &'a RangeSet,
        args: &TraceServeArgs,
        filter: RowFilter,
        (store, collector): (ServedStore, u64),
    ) -> Self {
        let count = usize::try_from(members.len()).unwrap_or(usize::MAX).max(1);
        let rows_max = (ROUND_ROWS / count).clamp(HOST_ROWS_MIN, HOST_ROWS_MAX);
        let request = CollectRequest {
            collector,
            buffers: args.buffers.clone(),
            user: args.of_user.clone(),
            rows_max: u32::try_from(rows_max).unwrap_or(u32::MAX),
            spool_bytes_max: args.spool_mib << 20,
            filter,
            places: Vec::new(),
        };
        let open = |network: &sheaf_tree::Network| {
            network.open(TRACE_SERVICE, members.clone(), TRACE_MERGE, b"", Sync::WaitForAll)
        };
        Self {
            client,
            members,
            stream: open(client.network()),
            store,
            request,
            failing: BTreeMap::new(),
            told: BTreeSet::new(),
            missing: BTreeSet::new(),
        }
    }

    /// Asks so often that the clocks are known.
    pub async fn measure_clocks(&mut self) -> Result<RoundNews> {
        let mut all = RoundNews::default();
        let rows_max = std::mem::take(&mut self.request.rows_max);
        for _ in 0..CLOCK_ROUNDS {
            all.told.extend(self.next().await?.told);
        }
        self.request.rows_max = rows_max;
        Ok(all)
    }

    /// Asks all hosts, and stores what they give.
    pub async fn next(&mut self) -> Result<RoundNews> {
        let place = |leaf| self.store.place(&self.client.host(leaf).unwrap_or_default(), leaf);
        self.request.places = self.members.iter().map(place).collect();
        let asked = self.request.encode();
        let sent_ns = now_ns();
        self.stream.send(COLLECT, asked, Some(ANSWER_MAX)).await;
        let answer = self.stream.recv().await;
        let came_ns = now_ns();
        let mut news = RoundNews::default();
        self.note(&answer.coverage, &mut news);
        if let Some(payload) = &answer.payload {
            let batch = TraceBatch::decode(payload)
                .map_err(|why| anyhow!("what hosts have recorded came damaged: {why}"))?;
            for part in &batch.parts {
                news.more |= part.more;
                let host = &part.host;
                if part.is_full {
                    let limit = self.request.spool_bytes_max >> 20;
                    self.tell(&mut news, format!(
                        "{host}: it keeps {limit} MiB that are not stored yet (--spool-mib); operations \
                         beyond that are counted as lost"
                    ));
                }
                for damage in &part.damaged {
                    self.missing.insert(format!("{host}: {damage}"));
                    self.tell(&mut news, format!("{host}: {damage}"));
                }
            }
            self.store.add(batch, sent_ns, came_ns)?;
        }
        for trouble in self.store.troubles() {
            self.tell(&mut news, trouble);
        }
        Ok(news)
    }

    fn tell(&mut self, news: &mut RoundNews, text: String) {
        if self.told.insert(text.clone()) {
            news.told.push(text);
        }
    }

    /// Who does not give anything, and who does again.
    fn note(&mut self, coverage: &Coverage, news: &mut RoundNews) {
        let mut failing = BTreeMap::new();
        for (errno, leaves) in coverage.failed.iter().chain(&coverage.silent) {
            failing.extend(leaves.iter().map(|leaf| (leaf, *errno)));
        }
        let mut by_cause: BTreeMap<Errno, RangeSet> = BTreeMap::new();
        for (&leaf, &errno) in &failing {
            if self.failing.get(&leaf) != Some(&errno) {
                by_cause.entry(errno).or_default().insert(leaf);
            }
        }
        for (errno, leaves) in by_cause {
            let hosts = self.client.fold(&leaves);
            news.told.push(format!("{hosts}: nothing can be taken there: {}", cause(errno)));
        }
        let back: RangeSet =
            self.failing.keys().copied().filter(|leaf| !failing.contains_key(leaf)).collect();
        if !back.is_empty() {
            let hosts = self.client.fold(&back);
            news.told.push(format!("{hosts}: what is recorded there is taken again"));
        }
        self.failing = failing;
    }

    /// There is no time for what hosts have still.
    pub fn break_off(&mut self) {
        self.missing.insert(
            "hosts have more than could be taken in time: sheaf trace serve with the same --output \
             goes on with it"
                .to_owned(),
        );
    }

    /// Nothing can be taken or stored any more: what hosts give was not taken from them.
    pub fn stop(&mut self, error: &anyhow::Error) {
        self.missing.insert(format!(
            "{error:#}: what hosts have beyond that stays there for a while: sheaf trace serve with \
             the same --output goes on with it"
        ));
    }

    /// Tells hosts what is stored, so that they keep none of it for the next trace. What goes wrong
    /// with that is noted as in any other round.
    pub async fn take_leave(&mut self) {
        self.request.rows_max = 0;
        if let Err(error) = self.next().await {
            self.stop(&error);
        }
    }

    /// Why nothing can be taken of any host, if so; `gone` is what was noticed of those that are not
    /// there.
    pub fn refusal(&self, gone: &[Gone]) -> Option<String> {
        if !self.members.iter().all(|leaf| self.failing.contains_key(&leaf)) {
            return None;
        }
        let mut texts = Vec::new();
        for (errno, mut leaves) in self.by_cause() {
            for gone in gone {
                let those = leaves.intersection(&gone.leaves);
                if those.is_empty() {
                    continue;
                }
                leaves = leaves.difference(&those);
                let hosts = self.client.fold(&those);
                let cause = gone.cause.replace("%h", &hosts);
                let own = own_name();
                let is_here = hosts == "localhost" || hosts == own;
                let hint = if is_here && is_unreached(&gone.cause) {
                    " (-w reaches hosts over ssh; without -w it is this machine alone)"
                } else {
                    ""
                };
                texts.push(format!("{hosts}: nothing can be taken there: {cause}{hint}"));
            }
            if !leaves.is_empty() {
                let (hosts, cause) = (self.client.fold(&leaves), cause(errno));
                texts.push(format!("{hosts}: nothing can be taken there: {cause}"));
            }
        }
        Some(texts.join("; "))
    }

    /// Who does not give anything, by why.
    fn by_cause(&self) -> BTreeMap<Errno, RangeSet> {
        let mut by_cause: BTreeMap<Errno, RangeSet> = BTreeMap::new();
        for (&leaf, &errno) in &self.failing {
            by_cause.entry(errno).or_default().insert(leaf);
        }
        by_cause
    }

    /// Ends a trace of which there is nothing yet, and takes it away.
    pub fn discard(self) -> Result<(), TraceError> {
        self.store.discard()
    }

    /// Ends the trace; gives what is missing of it, and what was told, too.
    pub fn finish(mut self) -> (ServedTotals, Vec<String>, BTreeSet<String>) {
        for (errno, leaves) in self.by_cause() {
            let (hosts, cause) = (self.client.fold(&leaves), cause(errno));
            self.missing.insert(format!(
                "{hosts}: what was recorded there at the end is not in the trace: {cause}"
            ));
        }
        (self.store.finish(), self.missing.into_iter().collect(), self.told)
    }
}

/// What an error is of whoever takes what programs record.
pub fn cause(errno: Errno) -> String {
    match errno {
        Errno::BUSY => {
            "somebody else takes it, or another host of the same machine (EBUSY); --buffers says \
             where each records"
                .to_owned()
        }
        Errno::INVAL => "its server knows no such user (EINVAL)".to_owned(),
        Errno::NOENT => "there is no such directory there (ENOENT; --buffers)".to_owned(),
        Errno::MFILE => {
            "this user has as many directories or requests there as one user may have at once, or \
             the server has no descriptor left (EMFILE)"
                .to_owned()
        }
        Errno::NOSYS => "its server has no service for that (ENOSYS)".to_owned(),
        Errno::AGAIN => {
            "another server of that machine takes it (EAGAIN); --buffers 'DIR/%h' gives each a \
             directory of its own"
                .to_owned()
        }
        other => other.to_string(),
    }
}
