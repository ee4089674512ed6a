//! At the root: servers are introduced to each other.
use super::{EXPECT, Expect, INTRODUCE, Introduction, PEERS, PeerHost, PeerQuestion, Whereabouts};
use crate::gate::{ClientRules, EveryHost};
use crate::network::Network;
use crate::proto;
use crate::topology::Topology;
use sheaf_core::{Errno, RangeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the root waits for a host that is to expect another, or that is introduced.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

impl Network {
    /// At the root of a session: introduces its servers to each other, for as long as this is
    /// polled.
    pub async fn keep_introductions(&self, topology: &Topology) {
        let all: Arc<dyn ClientRules> = Arc::new(EveryHost);
        self.keep_introductions_for(topology, &all).await;
    }

    /// [`Network::keep_introductions`] of the servers that these rules allow to ask others. Those
    /// that are asked know the rights of the host that asks.
    pub async fn keep_introductions_for(&self, topology: &Topology, rules: &Arc<dyn ClientRules>) {
        let topology = Arc::new(topology.clone());
        let mut under_way = tokio::task::JoinSet::new();
        loop {
            let want = self.wanted(PEERS).await;
            while under_way.try_join_next().is_some() {}
            let Ok(question) = postcard::from_bytes::<PeerQuestion>(&want.note) else {
                tracing::warn!(leaf = want.leaf, "a host asks for no link that is known here");
                continue;
            };
            let PeerQuestion { number, leaf: to, relay } = question;
            let rights = rules.introduce(want.leaf);
            let (network, topology) = (self.clone(), Arc::clone(&topology));
            under_way.spawn(async move {
                let host = topology.leaf(want.leaf).map(|node| node.host());
                let who = rights.zip(host).map(|(rights, host)| PeerHost { host, rights });
                let Some(who) = who else {
                    tracing::warn!(
                        leaf = want.leaf,
                        "a host that is none of the clients was not introduced"
                    );
                    let to = Err(Errno::PERM);
                    return network.answer(want.leaf, &Introduction { number, to }).await;
                };
                if relay {
                    return network.relay_peers((want.leaf, who), number, to, &topology).await;
                }
                let to = network.introduce((want.leaf, who), to, &topology).await;
                network.answer(want.leaf, &Introduction { number, to }).await;
            });
        }
    }

    async fn introduce(
        &self,
        (from, who): (u32, PeerHost),
        to: u32,
        topology: &Topology,
    ) -> Result<Whereabouts, Errno> {
        let there = self.peer_rank(from, to, topology)?;
        let mut token = [0; 32];
        rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
            .map_err(|_| Errno::IO)?;
        let rank = self.peer_rank(to, from, topology)?;
        let expect = postcard::to_stdvec(&Expect { token, rank, who });
        let expect = expect.map_err(|_| Errno::ILSEQ)?;
        let address = self.tell(to, EXPECT, &expect).await?;
        let address = postcard::from_bytes(&address).map_err(|_| Errno::PROTO)?;
        Ok(Whereabouts { token, rank: there, address })
    }

    async fn answer(&self, leaf: u32, introduction: &Introduction) {
        let bytes =
            postcard::to_stdvec(introduction).expect("numbers and addresses can be encoded");
        if let Err(errno) = self.tell(leaf, INTRODUCE, &bytes).await {
            tracing::debug!(leaf, %errno, "an introduction did not arrive");
        }
    }

    /// The rank of `to`, if it is another host than `from`.
    fn peer_rank(&self, from: u32, to: u32, topology: &Topology) -> Result<u32, Errno> {
        let node = topology.leaf(to).filter(|_| to < self.leaf_count()).ok_or(Errno::NXIO)?;
        if from == to { Err(Errno::INVAL) } else { Ok(node.rank()) }
    }

    /// The root carries a link between two hosts, until one of them ends it.
    async fn relay_peers(
        &self,
        (from, who): (u32, PeerHost),
        number: u64,
        to: u32,
        topology: &Topology,
    ) {
        let carried = match self.peer_rank(from, to, topology) {
            Ok(_) => self.carry_peers((from, &who), number, to).await,
            Err(errno) => Err(errno),
        };
        if let Err(errno) = carried {
            self.answer(from, &Introduction { number, to: Err(errno) }).await;
        }
    }

    /// Says something to the service of one leaf; its answer.
    async fn tell(&self, leaf: u32, tag: i32, bytes: &[u8]) -> Result<bytes::Bytes, Errno> {
        let stream = self.open(PEERS, RangeSet::single(leaf), "pass", &[], proto::Sync::WaitForAll);
        stream.send(tag, bytes, Some(ANSWER_TIMEOUT)).await;
        let result = stream
            .recv_until(Instant::now() + ANSWER_TIMEOUT * 2)
            .await
            .map_err(|_| Errno::TIMEDOUT)?;
        let failed = result.coverage.failed.first().or(result.coverage.silent.first());
        match failed {
            Some((errno, _)) => Err(*errno),
            None => Ok(result.payload.unwrap_or_default()),
        }
    }
}
