//! How this node is: what it says of itself when it is asked, and what it remembers for that.
use super::survey::{Complete, Surveys};
use super::{Event, Node};
use crate::control;
use crate::frame::{Header, Kind, Violation};
use crate::links::{Link, LinkId, Way, late_after};
use crate::report::{
    Ask, LINKS_REPORTED_MAX, LastError, LinkReport, LinkState, NodeReport, Place, STREAMS_REPORTED_MAX,
    StreamReport, bounded,
};
use crate::stream::{Owner, Stream};
use crate::{Role, Time, own};
use sheaf_core::{Errno, RangeSet};
use std::time::Duration;

/// What a node remembers of itself; most have nothing.
#[derive(Debug, Default)]
pub(super) struct Diagnosis {
    host: String,
    pid: u32,
    last_error: Option<(Time, Errno, String)>,
    doors: Vec<(String, u64)>,
    surveys: Surveys,
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
        if lost.way == Way::Down {
            let text = format!("node {}: {cause}", lost.rank);
            self.note_error(now, errno, &text);
        } else if self.config.role != Role::Root {
            self.note_error(now, errno, &format!("parent: {cause}"));
        }
        if let Some(diagnosis) = &mut self.diagnosis {
            let complete = diagnosis.surveys.without(link);
            self.end_surveys(now, complete);
        }
    }

    /// Asks every node of the tree below (and this one) how it is. [`Event::Surveyed`] says when
    /// [`Node::take_survey`] gives the answers, after `timeout` at the latest.
    pub fn survey(&mut self, now: Time, timeout: Duration) -> u64 {
        self.begin_survey(now, Owner::App, 0, timeout)
    }

    /// The reports of a survey that is over, and how many were dropped for want of room.
    pub fn take_survey(&mut self, id: u64) -> Option<(Vec<NodeReport>, u32)> {
        self.diagnosis.as_mut()?.surveys.take(id)
    }

    /// Everybody below is asked how they are; the answers go to the link that it came over.
    ///
    /// Several may be under way, from several owners: each has a number of this node's own below it. Afterwards
    /// the owner hears an end, at the deadline at the latest, which each level shortens; or the link to it is
    /// gone, and the survey with it.
    pub(super) fn on_survey(
        &mut self,
        now: Time,
        link: LinkId,
        header: &Header,
        body: &[u8],
    ) -> Result<(), Violation> {
        let ask: Ask = control::decode(Kind::Survey, body)?;
        let timeout = Duration::from_millis(u64::from(ask.timeout_ms));
        self.begin_survey(now, Owner::Link(link), header.wave, timeout);
        Ok(())
    }

    fn begin_survey(&mut self, now: Time, owner: Owner, owners_id: u64, timeout: Duration) -> u64 {
        let surveys = &mut self.diagnosis.get_or_insert_default().surveys;
        let (id, complete) = surveys.begin(now, (owner, owners_id), timeout, &mut self.links);
        self.end_surveys(now, complete);
        id
    }

    /// An answer of a child to a survey: a node's own report, or that no more comes.
    ///
    /// May come late, of a survey that is over: it is nobody's. Reports are passed on as they come, so that a node
    /// holds none but what waits for its link, of which there is a bound; those beyond it are counted.
    pub(super) fn on_report(
        &mut self,
        now: Time,
        link: LinkId,
        header: &Header,
        body: &[u8],
    ) -> Result<(), Violation> {
        let surveys = &mut self.diagnosis.get_or_insert_default().surveys;
        let complete = surveys.on_report(link, header, body, &mut self.links)?;
        self.end_surveys(now, complete);
        Ok(())
    }

    /// Each with this node's own report: by now the children's answers have measured the links.
    fn end_surveys(&mut self, now: Time, Complete(ids): Complete) {
        for id in ids {
            let own = self.report(now);
            let Some(diagnosis) = &mut self.diagnosis else { return };
            if diagnosis.surveys.end(id, own, &mut self.links) {
                self.events.push_back(Event::Surveyed { survey: id });
            }
        }
    }

    /// Whether a survey waits for what is on `link`.
    pub(super) fn is_surveyed(&self, link: LinkId) -> bool {
        self.diagnosis.as_ref().is_some_and(|diagnosis| diagnosis.surveys.wait_for(link))
    }

    /// When the next survey's time is over.
    pub(super) fn survey_timeout(&self) -> Option<Time> {
        self.diagnosis.as_ref()?.surveys.next_timeout()
    }

    pub(super) fn expire_surveys(&mut self, now: Time) {
        if let Some(diagnosis) = &self.diagnosis {
            let due = diagnosis.surveys.due(now);
            self.end_surveys(now, due);
        }
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
                Role::Root => Place::Root,
                Role::Inner => Place::Inner,
                Role::Leaf => Place::Leaf,
            },
            depth: self.config.depth,
            host: diagnosis.host.clone(),
            pid: diagnosis.pid,
            uptime_ms: millis(now - Time(0)),
            links: links.map(|link| link_report(link, now, late_after(link, &self.config.tuning))).collect(),
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
        _ if !link.is_alive() => LinkState::Lost,
        _ if !link.is_attached() => LinkState::Waiting,
        _ if link.is_inside() => LinkState::Up,
        _ if !link.out().is_empty() && spoken > late_after => LinkState::Stuck,
        _ if now - link.heard > late_after => LinkState::Late,
        _ => LinkState::Up,
    };
    let down = link.way == Way::Down;
    LinkReport {
        child: down.then_some(link.rank),
        leaves: if down { own::hosts(link.leaves()) } else { RangeSet::new() },
        state,
        since_ms: millis(now - link.since),
        heard_ms: if link.is_inside() { 0 } else { millis(now - link.heard) },
        local: link.is_inside(),
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

fn stream_report(id: u32, stream: &Stream) -> StreamReport {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Registry;
    use crate::{Child, Config, Tuning};

    /// However a child's end is told: a survey does not wait for who cannot answer, and the error is noted.
    #[test]
    fn a_survey_does_not_wait_for_a_child_that_has_ended() {
        type Told = fn(&mut Node, Time, LinkId, Errno, &str);
        for told in [Node::link_lost as Told, Node::child_dead] {
            let child = Child { rank: 1, leaves: RangeSet::full(1) };
            let config = Config {
                rank: 0,
                role: Role::Root,
                depth: 0,
                leaves: RangeSet::full(1),
                children: vec![child],
                stream_base: 0,
                place: Default::default(),
                tuning: Tuning::default(),
            };
            let (now, link) = (Time(0), LinkId::new(0));
            let mut root = Node::new(config, Registry::with_builtins(), now);
            root.attach(now, link);
            let survey = root.survey(now, Duration::from_secs(60));
            assert!(root.take_survey(survey).is_none(), "the child has not answered");
            told(&mut root, now, link, Errno::HOSTDOWN, "killed");
            let (reports, dropped) = root.take_survey(survey).unwrap();
            let error = reports[0].last_error.as_ref().map(|error| error.text.as_str());
            assert_eq!((reports.len(), dropped, error), (1, 0, Some("node 1: killed")));
        }
    }
}
