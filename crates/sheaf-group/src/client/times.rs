//! How long answers were waited for, and who is slow to give them.
use super::Client;
use crate::message::Request;
use sheaf_core::RangeSet;
use sheaf_tree::{Coverage, Stream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whoever has not answered after so long is slow, which is said where everything is.
const SLOW: Duration = Duration::from_secs(1);
/// How long it may take to find out who that is.
const LOOK_TIME: Duration = Duration::from_millis(500);

/// What a client has asked so far, and how long it has waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// Requests that were answered.
    pub requests: u64,
    /// For groups to be opened.
    pub opening: Duration,
    /// For anything else.
    pub asking: Duration,
}

#[derive(Default)]
pub(super) struct TimesCount {
    requests: AtomicU64,
    opening_ns: AtomicU64,
    asking_ns: AtomicU64,
}

impl TimesCount {
    pub fn so_far(&self) -> RequestTimes {
        let time = |ns: &AtomicU64| Duration::from_nanos(ns.load(Ordering::Relaxed));
        RequestTimes {
            requests: self.requests.load(Ordering::Relaxed),
            opening: time(&self.opening_ns),
            asking: time(&self.asking_ns),
        }
    }

    fn add(&self, opens: bool, took: Duration) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let of = if opens { &self.opening_ns } else { &self.asking_ns };
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        of.fetch_add(ns, Ordering::Relaxed);
    }
}

/// A request that is under way.
pub(super) struct TimedRequest {
    client: Client,
    begun: Instant,
    what: &'static str,
    stream: u32,
    opens: bool,
}

impl TimedRequest {
    pub fn begin(client: &Client, stream: &Stream, request: &Request) -> Self {
        // With an operation in the same trip it is this that is waited for.
        let opens = matches!(request, Request::Open { then: None, .. } | Request::Settle);
        let (client, what) = (client.clone(), request.word());
        Self { client, begun: Instant::now(), what, stream: stream.id(), opens }
    }

    /// It was answered by these.
    pub fn answered(&self, wave: u64, coverage: &Coverage) {
        let took = self.begun.elapsed();
        self.client.inner.times.add(self.opens, took);
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let (what, stream, ms) = (self.what, self.stream, took.as_secs_f64() * 1e3);
        let ok = coverage.ok.len();
        let all = |of: &[(sheaf_core::Errno, RangeSet)]| -> u64 {
            of.iter().map(|(_, leaves)| leaves.len()).sum()
        };
        let (failed, silent) = (all(&coverage.failed), all(&coverage.silent));
        let lack = if failed + silent == 0 {
            String::new()
        } else {
            format!(", {failed} failed, {silent} silent")
        };
        tracing::debug!("stream {stream}, wave {wave}: {what}: {ok} answered{lack}: {ms:.1} ms");
    }

    /// Says who has not answered for long; is never ready.
    pub async fn tell_slow(&self) {
        let mut wait = SLOW;
        while tracing::enabled!(tracing::Level::DEBUG) {
            tokio::time::sleep(wait).await;
            wait *= 4;
            let slow = self.slow().await;
            let (what, stream) = (self.what, self.stream);
            let seconds = self.begun.elapsed().as_secs_f64();
            tracing::debug!("stream {stream}: {what}: waited for {seconds:.1} s; slow: {slow}");
        }
        std::future::pending().await
    }

    /// Hosts that say that they are at work, and those that say nothing.
    async fn slow(&self) -> String {
        let survey = self.client.network().survey(LOOK_TIME).await;
        let (mut answered, mut at_work) = (RangeSet::new(), RangeSet::new());
        for report in &survey.reports {
            let Some(leaf) = self.client.leaf(&report.host) else { continue };
            answered.union_with(&RangeSet::single(leaf));
            let is_asked = |open: &sheaf_tree::status::StreamReport| {
                open.id == self.stream && open.waves_open > 0
            };
            if report.streams.iter().any(is_asked) {
                at_work.union_with(&RangeSet::single(leaf));
            }
        }
        let say_nothing = self.client.network().everyone().difference(&answered);
        let told = [(at_work, "at work"), (say_nothing, "say nothing")];
        let told = told.iter().filter(|(leaves, _)| !leaves.is_empty());
        let told: Vec<String> =
            told.map(|(leaves, how)| format!("{} ({how})", self.client.fold(leaves))).collect();
        if told.is_empty() {
            "nobody: answers are on their way".to_owned()
        } else {
            told.join(", ")
        }
    }
}
