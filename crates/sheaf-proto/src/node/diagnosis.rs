//! How this node is: what it says of itself when it is asked, and what it remembers for that.
use super::Node;
use crate::config::{NodeRole, Time};
use crate::links::{Link, LinkId, LinkWay, late_after};
use crate::own;
use crate::report::{
    LINKS_REPORTED_MAX, LastError, LinkReport, NodePlace, NodeReport, ReportedLink,
    STREAMS_REPORTED_MAX, StreamReport, bounded,
};
use crate::stream::NodeStream;
use sheaf_core::{Errno, RangeSet};
use std::time::Duration;

/// What a node remembers of itself; most have nothing.
#[derive(Debug, Default)]
pub(super) struct Diagnosis {
    host: String,
    pid: u32,
    last_error: Option<(Time, Errno, String)>,
    doors: Vec<(String, u64)>,
}

impl Node {
    /// Says where this node runs, for its reports.
    pub fn set_identity(&mut self, host: &str, pid: u32) {
        let diagnosis = self.diagnosis.get_or_insert_default();
        (diagnosis.host, diagnosis.pid) = (bounded(host), pid);
    }

    /// Sets the counts of this node's doors by name, for its reports.
    pub fn set_door_counts(&mut self, counts: Vec<(String, u64)>) {
        self.diagnosis.get_or_insert_default().doors = counts;
    }

    /// Notes what went wrong here, for reports; the last one stays.
    pub fn note_error(&mut self, now: Time, errno: Errno, text: &str) {
        self.diagnosis.get_or_insert_default().last_error = Some((now, errno, bounded(text)));
    }

    /// `link` is lost, which is an error unless it was a client's.
    pub(super) fn note_lost(&mut self, now: Time, link: LinkId, errno: Errno, cause: &str) {
        let lost = &mut self.links[link];
        lost.since = now;
        if lost.way == LinkWay::Down {
            let text = format!("node {}: {cause}", lost.rank);
            self.note_error(now, errno, &text);
        } else if self.config.role != NodeRole::Root {
            self.note_error(now, errno, &format!("parent: {cause}"));
        }
    }

    /// Asks the children, if the link to one of them has not been measured; whether all have been.
    pub fn measure_links(&mut self, now: Time) -> bool {
        let unmeasured = |link: &Link| {
            let there = link.is_live_child() && link.is_attached() && !link.is_inside();
            there && link.pulse.as_ref().is_none_or(|pulse| pulse.round_trip().is_none())
        };
        let measured = !self.links.iter().any(unmeasured);
        if !measured {
            self.links.ping_children(now);
        }
        measured
    }

    /// How this node is.
    #[must_use]
    pub fn report(&self, now: Time) -> NodeReport {
        let none = Diagnosis::default();
        let diagnosis = self.diagnosis.as_deref().unwrap_or(&none);
        // The own leaf is this node's business.
        let others = || self.links.iter().filter(|link| own::rank_of(link.rank).is_none());
        let links = others().take(LINKS_REPORTED_MAX);
        let mut ids: Vec<u32> = self.streams.keys().copied().collect();
        ids.sort_unstable();
        let told = ids.iter().take(STREAMS_REPORTED_MAX);
        NodeReport {
            rank: self.config.rank,
            place: match self.config.role {
                NodeRole::Root => NodePlace::Root,
                NodeRole::Inner => NodePlace::Inner,
                NodeRole::Leaf => NodePlace::Leaf,
            },
            depth: self.config.depth,
            host: diagnosis.host.clone(),
            pid: diagnosis.pid,
            uptime_ms: millis(now - Time(0)),
            links: links
                .map(|link| link_report(link, now, late_after(link, &self.config.tuning)))
                .collect(),
            links_more: others().count().saturating_sub(LINKS_REPORTED_MAX) as u32,
            streams: told.map(|&id| stream_report(id, &self.streams[&id])).collect(),
            streams_more: ids.len().saturating_sub(STREAMS_REPORTED_MAX) as u32,
            queued_bytes: self.queued_bytes(),
            last_error: diagnosis.last_error.as_ref().map(|(at, errno, text)| LastError {
                ago_ms: millis(now - *at),
                errno: *errno,
                text: text.clone(),
            }),
            doors: diagnosis.doors.clone(),
            peers: Vec::new(),
            peers_taken: 0,
        }
    }
}

impl Node {
    /// When anything last came over `link`.
    #[must_use]
    pub fn heard(&self, link: LinkId) -> Time {
        self.links[link].heard
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

fn link_report(link: &Link, now: Time, late_after: Duration) -> LinkReport {
    let spoken = now - link.spoke;
    let state = match link {
        _ if !link.is_alive() => ReportedLink::Lost,
        _ if !link.is_attached() => ReportedLink::Waiting,
        _ if link.is_inside() => ReportedLink::Up,
        _ if !link.out().is_empty() && spoken > late_after => ReportedLink::Stuck,
        _ if now - link.heard > late_after => ReportedLink::Late,
        _ => ReportedLink::Up,
    };
    let down = link.way == LinkWay::Down;
    LinkReport {
        child: down.then_some(link.rank),
        leaves: if down { own::hosts(link.leaves()) } else { RangeSet::new() },
        state,
        since_ms: millis(now - link.since),
        heard_ms: if link.is_inside() { 0 } else { millis(now - link.heard) },
        local: link.is_inside(),
        via: link.via,
        round_trip: link.pulse.as_ref().and_then(|pulse| pulse.round_trip()),
        clock: link.pulse.as_ref().and_then(|pulse| pulse.clock(now)),
        bytes_in: link.counters.bytes_in,
        bytes_out: link.counters.bytes_out,
        frames_in: link.counters.frames_in,
        queued_bytes: link.out().len() as u64,
        streams_waiting: link.waiting.len() as u32,
        reconnects: link.reconnects,
    }
}

fn stream_report(id: u32, stream: &NodeStream) -> StreamReport {
    let sent = stream.up.out.sent;
    StreamReport {
        id,
        members: stream.members().all().len(),
        window_bytes: stream.window,
        credit_up_bytes: stream.window.saturating_sub(sent.done - sent.acked),
        credit_down_bytes: stream.least_credit(),
        waves_open: stream.waves_open() as u32,
        kept_bytes: stream.queued_bytes() as u64,
    }
}
