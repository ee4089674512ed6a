//! Hosts that programs there cannot use a session from, as far as they have said so.
use sheaf_core::{RangeSet, lock};
use sheaf_group::Client;
use sheaf_tree::{GateNews, SHUT_FRESH};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

/// What a host can lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lack {
    /// Client sockets of the session's user.
    Gate,
    /// Client sockets of other users.
    GateOfOthers,
    /// The file of its audit.
    Audit,
}

/// What the hosts of a session lack, and why.
pub(crate) struct Shut {
    client: Client,
    /// By leaf. A host says it again; of one that does not any more, another server runs.
    told: Mutex<BTreeMap<(u32, Lack), (String, Instant)>>,
}

impl Shut {
    pub fn new(client: Client) -> Self {
        Self { client, told: Mutex::default() }
    }

    /// Takes in what a host says.
    pub fn hear(&self, leaf: u32, news: GateNews<'_>) {
        let (why, lack) = match news {
            GateNews::Shut(why) => (why, Lack::Gate),
            GateNews::ShutToOthers(why) => (why, Lack::GateOfOthers),
            GateNews::Unaudited(why) => (why, Lack::Audit),
            GateNews::Entered => {
                lock(&self.told).remove(&(leaf, Lack::Gate));
                return;
            }
        };
        let why: String = why.chars().filter(|c| !c.is_control()).collect();
        if why.is_empty() {
            lock(&self.told).remove(&(leaf, lack));
            return;
        }
        let told = lock(&self.told).insert((leaf, lack), (why.clone(), Instant::now()));
        if told.is_some_and(|(before, _)| before == why) {
            return;
        }
        let host = self.client.fold(&RangeSet::single(leaf));
        match lack {
            Lack::Gate => tracing::warn!("programs on {host} cannot use this session: {why}"),
            Lack::GateOfOthers => {
                tracing::warn!("other users' programs on {host} cannot use this session: {why}");
            }
            Lack::Audit => tracing::warn!("changes on {host} are in no file of that host: {why}"),
        }
    }

    /// The hosts that lack this, folded for each reason.
    pub fn said(&self, of: Lack) -> Vec<(String, String)> {
        let mut by_why: BTreeMap<String, RangeSet> = BTreeMap::new();
        let mut told = lock(&self.told);
        told.retain(|_, (_, at)| at.elapsed() < SHUT_FRESH);
        for ((leaf, _), (why, _)) in told.iter().filter(|((_, lack), _)| *lack == of) {
            by_why.entry(why.clone()).or_default().union_with(&RangeSet::single(*leaf));
        }
        by_why.into_iter().map(|(why, hosts)| (self.client.fold(&hosts), why)).collect()
    }
}
