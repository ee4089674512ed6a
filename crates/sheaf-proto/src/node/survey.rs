//! Surveys: every node is asked how it is, and says so. Reports travel up as they are, each node's
//! own; a node that has heard the end from every child says that nothing more comes.
use crate::Time;
use crate::control;
use crate::frame::{Header, Kind, Violation};
use crate::links::{LinkId, Links};
use crate::report::{self, Answer, Ask, NodeReport, REPORTS_MAX};
use crate::stream::Owner;
use std::time::Duration;

/// The most surveys under way at a node; the oldest ends when one more begins.
pub const SURVEYS_MAX: usize = 16;
/// Reports wait for a link up to this many bytes; beyond it they are dropped, and counted.
const REPORTS_OUT_BYTES_MAX: usize = 8 << 20;
/// The longest a survey may take.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// Surveys of one node.
#[derive(Debug, Default)]
pub(super) struct Surveys {
    last: u64,
    pending: Vec<Pending>,
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

/// Surveys that end now: whoever holds them says how this node is, and calls [`Surveys::end`] for each.
#[must_use]
pub(super) struct Complete(pub Vec<u64>);

impl Surveys {
    /// Asks the children, for at most `timeout`; gives what the survey is called here, and those that end: this
    /// one if nobody is asked, and the oldest where there are too many.
    pub fn begin(
        &mut self,
        now: Time,
        (owner, owners_id): (Owner, u64),
        timeout: Duration,
        links: &mut Links,
    ) -> (u64, Complete) {
        let timeout = timeout.min(TIMEOUT_MAX);
        self.last += 1;
        let id = self.last;
        let mut complete = Vec::new();
        if self.pending.len() >= SURVEYS_MAX {
            complete.push(self.pending[0].id);
        }
        // Each level answers before the one above it gives up.
        let ask = Ask { timeout_ms: (timeout * 7 / 8).as_millis() as u32 };
        let frame = control::control(Header { wave: id, ..Header::new(Kind::Survey) }, &ask);
        let mut waiting = Vec::new();
        links.ping_children(now);
        for at in links.ids() {
            let link = &links[at];
            if link.is_live_child() && link.is_attached() {
                waiting.push(at);
                links.send(at, &frame);
            }
        }
        if waiting.is_empty() {
            complete.push(id);
        }
        let deadline = now + timeout;
        let pending = Pending { id, owner, owners_id, waiting, deadline, reports: Vec::new(), dropped: 0 };
        self.pending.push(pending);
        (id, Complete(complete))
    }

    /// One answer to a survey, or that no more comes. Of one that is over here it is nobody's.
    pub fn on_report(
        &mut self,
        link: LinkId,
        header: &Header,
        body: &[u8],
        links: &mut Links,
    ) -> Result<Complete, Violation> {
        let answer = report::decode(body)?;
        let Some(pending) = self.find(header.wave) else { return Ok(Complete(Vec::new())) };
        if !pending.waiting.contains(&link) {
            return Ok(Complete(Vec::new()));
        }
        match answer {
            Answer::Node(_) => pending.pass(answer, links),
            Answer::End { dropped } => {
                pending.waiting.retain(|&waiting| waiting != link);
                pending.dropped = pending.dropped.saturating_add(dropped);
            }
        }
        Ok(Complete(if pending.waiting.is_empty() { vec![pending.id] } else { Vec::new() }))
    }

    fn find(&mut self, id: u64) -> Option<&mut Pending> {
        self.pending.iter_mut().find(|pending| pending.id == id)
    }

    /// Ends a survey with what has come, and with this node's `own` report. Whether it was this process's.
    pub fn end(&mut self, id: u64, own: NodeReport, links: &mut Links) -> bool {
        let Some(at) = self.pending.iter().position(|pending| pending.id == id) else { return false };
        let mut pending = self.pending.remove(at);
        pending.pass(Answer::Node(Box::new(own)), links);
        pending.pass(Answer::End { dropped: pending.dropped }, links);
        let is_own = pending.owner == Owner::App;
        if is_own {
            if self.finished.len() >= SURVEYS_MAX {
                self.finished.remove(0);
            }
            self.finished.push((id, pending.reports, pending.dropped));
        }
        is_own
    }

    /// The reports of a survey of this process that is over, and how many were dropped for want of room.
    pub fn take(&mut self, id: u64) -> Option<(Vec<NodeReport>, u32)> {
        let at = self.finished.iter().position(|(have, ..)| *have == id)?;
        let (_, reports, dropped) = self.finished.swap_remove(at);
        Some((reports, dropped))
    }

    /// `link` is gone: surveys that waited for it wait no more, and those asked over it are over.
    pub fn without(&mut self, link: LinkId) -> Complete {
        self.pending.retain(|pending| pending.owner != Owner::Link(link));
        let mut complete = Vec::new();
        for pending in self.pending.iter_mut().filter(|pending| pending.waiting.contains(&link)) {
            pending.waiting.retain(|&waiting| waiting != link);
            if pending.waiting.is_empty() {
                complete.push(pending.id);
            }
        }
        Complete(complete)
    }

    /// Whether one waits for what is on `link`.
    pub fn wait_for(&self, link: LinkId) -> bool {
        self.pending.iter().any(|pending| pending.waiting.contains(&link))
    }

    /// When the next one's time is over.
    pub fn next_timeout(&self) -> Option<Time> {
        self.pending.iter().map(|pending| pending.deadline).min()
    }

    /// Those whose time is over.
    pub fn due(&self, now: Time) -> Complete {
        let due = self.pending.iter().filter(|pending| pending.deadline <= now);
        Complete(due.map(|pending| pending.id).collect())
    }
}

impl Pending {
    /// Hands an answer to whoever asked.
    fn pass(&mut self, answer: Answer, links: &mut Links) {
        match (self.owner, answer) {
            (Owner::App, Answer::Node(_)) if self.reports.len() >= REPORTS_MAX => self.dropped += 1,
            (Owner::App, Answer::Node(report)) => self.reports.push(*report),
            (Owner::App, Answer::End { .. }) => {}
            (Owner::Link(link), _) if !links[link].is_alive() => {}
            (Owner::Link(link), Answer::Node(_)) if links[link].out().len() > REPORTS_OUT_BYTES_MAX => {
                self.dropped = self.dropped.saturating_add(1);
            }
            (Owner::Link(link), answer) => {
                let header = Header { wave: self.owners_id, ..Header::new(Kind::Report) };
                links.send(link, control::control(header, &answer));
            }
        }
    }
}
