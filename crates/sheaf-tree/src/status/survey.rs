//! The service by which nodes say how they are: at every node of every tree.
use crate::filter::Registry;
use crate::network::Network;
use crate::proto::report::{Bundle, FILTER, NodePlace, NodeReport};
use crate::proto::{Packet, Sync, own};
use crate::service::{Audience, Leaf, LeafHandle, Provider, Service, ServiceError, Services, Site};
use std::time::{Duration, Instant};

use super::Survey;

/// Its name.
pub(crate) const SURVEY: &str = "survey";

/// How long a node waits at most until its links have been measured, and how often it looks.
const MEASURE_TIME: Duration = Duration::from_millis(200);
const MEASURE_LOOK: Duration = Duration::from_millis(5);

/// Makes the service of a node.
pub(crate) struct Surveys;

impl Provider for Surveys {
    fn audience(&self) -> Audience {
        Audience::Everyone
    }

    /// What a node says of itself is no secret from whoever has been let in.
    fn heeds_callers(&self) -> bool {
        true
    }

    fn start(&self, _: &Site<'_>, handle: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        Ok(Box::new(Surveyed { handle }))
    }
}

struct Surveyed {
    handle: LeafHandle,
}

impl Service for Surveyed {
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        leaf.consumed(packet.stream, packet.frame_bytes);
        let Some(patience) = packet.expect else { return };
        let (handle, stream, wave) = (self.handle.clone(), packet.stream, packet.wave);
        // The node cannot be asked within a call from it.
        crate::task::spawn(async move {
            let until = Instant::now() + (patience / 4).min(MEASURE_TIME);
            while handle.with_node(|node, now| node.measure_links(now)) == Some(false)
                && Instant::now() < until
            {
                tokio::time::sleep(MEASURE_LOOK).await;
            }
            if let Some(mut report) = handle.with_node(|node, now| node.report(now)) {
                say_more(&handle, &mut report);
                let bundle = Bundle::of(&report).encode();
                handle.with(|leaf| leaf.reply(stream, wave, 0, &bundle));
            }
        });
    }
}

/// What is known beside the node itself.
fn say_more(handle: &LeafHandle, report: &mut NodeReport) {
    if let Some(counts) = handle.audit().map(|audit| audit.counts())
        && counts != Default::default()
    {
        report.doors = counts.named();
    }
    if let Some(peers) = handle.peer_links().filter(|_| report.place == NodePlace::Leaf) {
        (report.peers, report.peers_taken) = peers.report();
    }
}

impl Services {
    /// These filters, and what every program can do: say how its nodes are ([`Network::survey`]).
    #[must_use]
    pub fn new(filters: Registry) -> Self {
        Self::bare(filters).with(SURVEY, Surveys)
    }
}

impl Network {
    /// Asks every node of the tree how it is; waits at most about `timeout`. What does not answer
    /// by then is missing, and named by the node next to it.
    pub async fn survey(&self, timeout: Duration) -> Survey {
        let mut everybody = self.everyone();
        everybody.union_with(&self.inner_nodes());
        let stream = self.open(SURVEY, everybody, FILTER, &[], Sync::WaitForAll);
        stream.send(0, b"", Some(timeout)).await;
        // Beyond the deadline of the wave, which ends by itself.
        let result = stream.recv_until(Instant::now() + timeout * 2).await;
        // Nodes that are no leaves are known by their ranks here; of hosts those above them tell.
        let mut silent = own::ranks(&self.inner_nodes());
        let mut payload = None;
        if let Ok(result) = result {
            silent = silent.difference(&own::ranks(&result.coverage.ok));
            payload = result.payload;
        }
        let payload = payload.unwrap_or_default();
        let (mut reports, dropped) = Bundle::decode(&payload);
        // The question itself is no news.
        reports.iter_mut().for_each(|report| report.streams.retain(|open| open.id != stream.id()));
        let mut own = self.own_report();
        own.streams.retain(|open| open.id != stream.id());
        if !reports.iter().any(|report| report.rank == own.rank) {
            reports.push(own);
        }
        let mut survey = Survey::new(reports, dropped);
        silent = silent.difference(&survey.reports.iter().map(|report| report.rank).collect());
        survey.missing.union_with(&silent);
        survey
    }

    /// This process's own node alone, without asking anybody.
    #[must_use]
    pub fn own_report(&self) -> NodeReport {
        self.shared().peek(|core| {
            let now = core.now();
            core.nodes[0].report(now)
        })
    }
}
