//! Hosts that programs there cannot use a session from, as far as they have said so.
use sheaf_core::{RangeSet, lock};
use sheaf_group::Client;
use sheaf_tree::{GateNews, SHUT_FRESH};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

/// What the hosts of a session lack, and why.
pub(crate) struct Shut {
    client: Client,
    /// By leaf, and whether it is only other users than the session's that it concerns. A host
    /// says it again; of one that does not any more, another server runs.
    told: Mutex<BTreeMap<(u32, bool), (String, Instant)>>,
}

impl Shut {
    pub fn new(client: Client) -> Self {
        Self { client, told: Mutex::default() }
    }

    /// Takes in what a host says.
    pub fn hear(&self, leaf: u32, news: GateNews<'_>) {
        let (why, of_others) = match news {
            GateNews::Shut(why) => (why, false),
            GateNews::ShutToOthers(why) => (why, true),
            GateNews::Entered => {
                lock(&self.told).remove(&(leaf, false));
                return;
            }
        };
        let why: String = why.chars().filter(|c| !c.is_control()).collect();
        let told = lock(&self.told).insert((leaf, of_others), (why.clone(), Instant::now()));
        if told.is_some_and(|(before, _)| before == why) {
            return;
        }
        let host = self.client.fold(&RangeSet::single(leaf));
        let who = if of_others { "other users' programs" } else { "programs" };
        tracing::warn!("{who} on {host} cannot use this session: {why}");
    }

    /// The hosts that lack gates, or those of other users, folded for each reason.
    pub fn said(&self, of_others: bool) -> Vec<(String, String)> {
        let mut by_why: BTreeMap<String, RangeSet> = BTreeMap::new();
        let mut told = lock(&self.told);
        told.retain(|_, (_, at)| at.elapsed() < SHUT_FRESH);
        for ((leaf, _), (why, _)) in told.iter().filter(|((_, others), _)| *others == of_others) {
            by_why.entry(why.clone()).or_default().union_with(&RangeSet::single(*leaf));
        }
        by_why.into_iter().map(|(why, hosts)| (self.client.fold(&hosts), why)).collect()
    }
}
