//! Surveys: every node is asked how it is, and says so. Reports travel up as they are, each node's
//! own; a node that has heard the end from every child says that nothing more comes.
use super::{Event, Node};
use crate::control;
use crate::frame::{Header, Kind, Violation};
use crate::links::late_after;
use crate::links::{Link, LinkId, Way};
use crate::report::{
    self, Answer, Ask, LINKS_REPORTED_MAX, LastError, LinkReport, LinkState, NodeReport, Place, REPORTS_MAX,
    STREAMS_REPORTED_MAX, StreamReport, bounded,
};
use crate::stream::{Owner, Stream};
use crate::{Role, Time};
use sheaf_core::{Errno, RangeSet};
use std::time::Duration;

/// The most surveys under way at a node; the oldest ends when one more begins.
pub const SURVEYS_MAX: usize = 16;
/// Reports wait for a link up to this many bytes; beyond it they are dropped, and counted.
const REPORTS_OUT_BYTES_MAX: usize = 8 << 20;
/// The longest a survey may take.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// What a node remembers for surveys; most have nothing.
#[derive(Debug, Default)]
pub(super) struct Diagnosis {
    host: String,
    pid: u32,
    last_error: Option<(Time, Errno, String)>,
    doors: Vec<(String, u64)>,
    next_survey: u64,
    surveys: Vec<Pending>,
    /// Surveys of this process that are over.
    finished: Vec<(u64, Vec<NodeReport>, u32)>,
}

/// A survey under way.
#[derive(Debug)]
struct Pending {
    id: u64,
    owner: Owner,
    /// What its owner calls it.
    owners_id: u64,
    /// Links to children that have not said that nothing more comes.
    waiting: Vec<LinkId>,
    deadline: Time,
    /// Reports, if the owner is this process.
    reports: Vec<NodeReport>,
    dropped: u32,
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

    /// Asks every node of the tree below (and this one) how it is. [`Event::Surveyed`] says when
    /// [`Node::take_survey`] gives the answers, after `timeout` at the latest.
    pub fn survey(&mut self, now: Time, timeout: Duration) -> u64 {
        self.begin_survey(now, Owner::App, 0, timeout)
    }

    /// The reports of a survey that is over, and how many were dropped for want of room.
    pub fn take_survey(&mut self, id: u64) -> Option<(Vec<NodeReport>, u32)> {
        let finished = &mut self.diagnosis.as_mut()?.finished;
        let at = finished.iter().position(|(have, ..)| *have == id)?;
        let (_, reports, dropped) = finished.swap_remove(at);
        Some((reports, dropped))
    }

    /// Everybody below is asked how they are; the answers go to the link that it came over.
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
        let timeout = timeout.min(TIMEOUT_MAX);
        let diagnosis = self.diagnosis.get_or_insert_default();
        diagnosis.next_survey += 1;
        let id = diagnosis.next_survey;
        if diagnosis.surveys.len() >= SURVEYS_MAX {
            let oldest = diagnosis.surveys[0].id;
            self.end_survey(now, oldest);
        }
        // Each level answers before the one above it gives up.
        let ask = Ask { timeout_ms: (timeout * 7 / 8).as_millis() as u32 };
        let frame = control::control(Header { wave: id, ..Header::new(Kind::Survey) }, &ask);
        let mut waiting = Vec::new();
        self.links.ping_children(now);
        for at in self.links.ids() {
            let link = &self.links[at];
            if link.is_live_child() && link.is_attached() {
                waiting.push(at);
                self.links.send(at, &frame);
            }
        }
        let deadline = now + timeout;
        let pending = Pending { id, owner, owners_id, waiting, deadline, reports: Vec::new(), dropped: 0 };
        self.diagnosis.get_or_insert_default().surveys.push(pending);
        self.end_survey_if_complete(now, id);
        id
    }

    /// One answer to a survey, or that no more comes. Of one that is over here it is nobody's.
    pub(super) fn on_report(
        &mut self,
        now: Time,
        link: LinkId,
        header: &Header,
        body: &[u8],
    ) -> Result<(), Violation> {
        let answer = report::decode(body)?;
        let id = header.wave;
        let Some(pending) = self.pending_survey(id) else { return Ok(()) };
        if !pending.waiting.contains(&link) {
            return Ok(());
        }
        match answer {
            Answer::Node(_) => self.pass_answer(id, answer),
            Answer::End { dropped } => {
                pending.waiting.retain(|&waiting| waiting != link);
                pending.dropped = pending.dropped.saturating_add(dropped);
                self.end_survey_if_complete(now, id);
            }
        }
        Ok(())
    }

    fn pending_survey(&mut self, id: u64) -> Option<&mut Pending> {
        self.diagnosis.as_mut()?.surveys.iter_mut().find(|pending| pending.id == id)
    }

    /// Hands an answer to whoever asked.
    fn pass_answer(&mut self, id: u64, answer: Answer) {
        let Some(pending) = self.pending_survey(id) else { return };
        match (pending.owner, answer) {
            (Owner::App, Answer::Node(_)) if pending.reports.len() >= REPORTS_MAX => pending.dropped += 1,
            (Owner::App, Answer::Node(report)) => pending.reports.push(*report),
            (Owner::App, Answer::End { .. }) => {}
            (Owner::Link(link), answer) => {
                let header = Header { wave: pending.owners_id, ..Header::new(Kind::Report) };
                if !self.links[link].is_alive() {
                    return;
                }
                let last = matches!(answer, Answer::End { .. });
                if !last && self.links[link].out().len() > REPORTS_OUT_BYTES_MAX {
                    if let Some(pending) = self.pending_survey(id) {
                        pending.dropped = pending.dropped.saturating_add(1);
                    }
                    return;
                }
                self.links.send(link, control::control(header, &answer));
            }
        }
    }

    fn end_survey_if_complete(&mut self, now: Time, id: u64) {
        if self.pending_survey(id).is_some_and(|pending| pending.waiting.is_empty()) {
            self.end_survey(now, id);
        }
    }

    /// Ends a survey with what has come, and with this node's own report: by now the children's answers
    /// have measured the links.
    fn end_survey(&mut self, now: Time, id: u64) {
        let own = Answer::Node(Box::new(self.report(now)));
        self.pass_answer(id, own);
        let dropped = self.pending_survey(id).map_or(0, |pending| pending.dropped);
        self.pass_answer(id, Answer::End { dropped });
        let Some(diagnosis) = &mut self.diagnosis else { return };
        let Some(at) = diagnosis.surveys.iter().position(|pending| pending.id == id) else { return };
        let pending = diagnosis.surveys.remove(at);
        if pending.owner == Owner::App {
            if diagnosis.finished.len() >= SURVEYS_MAX {
                diagnosis.finished.remove(0);
            }
            diagnosis.finished.push((id, pending.reports, pending.dropped));
            self.events.push_back(Event::Surveyed { survey: id });
        }
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
        self.survey_without(now, link);
    }

    /// `link` is gone: surveys that waited for it wait no more, and those asked over it are over.
    fn survey_without(&mut self, now: Time, link: LinkId) {
        let Some(diagnosis) = &mut self.diagnosis else { return };
        diagnosis.surveys.retain(|pending| pending.owner != Owner::Link(link));
        let mut touched = Vec::new();
        for pending in diagnosis.surveys.iter_mut().filter(|pending| pending.waiting.contains(&link)) {
            pending.waiting.retain(|&waiting| waiting != link);
            touched.push(pending.id);
        }
        for id in touched {
            self.end_survey_if_complete(now, id);
        }
    }

    /// Whether a survey waits for what is on `link`.
    pub(super) fn is_surveyed(&self, link: LinkId) -> bool {
        let waits =
            |diagnosis: &Diagnosis| diagnosis.surveys.iter().any(|survey| survey.waiting.contains(&link));
        self.diagnosis.as_deref().is_some_and(waits)
    }

    /// When the next survey's time is over.
    pub(super) fn survey_timeout(&self) -> Option<Time> {
        self.diagnosis.as_ref()?.surveys.iter().map(|pending| pending.deadline).min()
    }

    pub(super) fn expire_surveys(&mut self, now: Time) {
        let Some(diagnosis) = &self.diagnosis else { return };
        let due = diagnosis.surveys.iter().filter(|pending| pending.deadline <= now);
        for id in due.map(|pending| pending.id).collect::<Vec<_>>() {
            self.end_survey(now, id);
        }
    }

    /// How this node is.
    #[must_use]
    pub fn report(&self, now: Time) -> NodeReport {
        let none = Diagnosis::default();
        let diagnosis = self.diagnosis.as_deref().unwrap_or(&none);
        let links = self.links.iter().take(LINKS_REPORTED_MAX);
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
            links_more: self.links.len().saturating_sub(LINKS_REPORTED_MAX) as u32,
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
        leaves: if down { link.leaves().clone() } else { RangeSet::new() },
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
