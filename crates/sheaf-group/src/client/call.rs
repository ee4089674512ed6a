//! A tool at work on every host.
use super::fetch;
use super::{Class, Client, Outcome, errors_of};
use crate::aggregate::{Classes, Data, StatusSum};
use crate::entry::Merged;
use crate::error::GroupError;
use crate::message::{AnswerMessage, Request};
use crate::observed;
use crate::server::TOOLS;
use sheaf_core::observer::{self, Begun, Ending, Layer, Observed};
use sheaf_core::{Errno, RangeSet};
use sheaf_tree::{Notice, Stream};
use std::collections::HashMap;
use std::time::Duration;

/// A tool's call. Its answer comes in batches: equal ones cross the tree once.
///
/// A call does not outlive a future of it that is dropped before its end: the hosts may or may not
/// have done what it was to bring. Nothing is sent then any more, [`Call::has_more`] stays true,
/// [`Call::next_entries`] and [`Call::next_bodies`] fail with [`GroupError::Torn`], and in the
/// outcome the hosts that had more to say are silent with `ECANCELED`.
pub struct Call {
    client: Client,
    stream: Stream,
    members: RangeSet,
    /// Leaves that have more to say.
    more: RangeSet,
    start: Option<(String, Vec<u8>)>,
    /// A future was dropped before its end, or failed: the hosts are not where we think they are.
    torn: bool,
    /// It changes something.
    changes: bool,
    /// Hosts that were gone before it began.
    gone: RangeSet,
    outcome: Outcome,
    /// Bytes that all hosts have answered with.
    bytes: u64,
    observed: Observed,
}

/// How long it is waited before a change for a session to say who is gone. Of a host that is found
/// to be gone only later it is not known that it was before.
const GREETING_TIME: Duration = Duration::from_millis(100);

/// Hosts that did not come to the end of a call that changes something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// They have ended before they were done, and said all that they have done.
    pub heard: RangeSet,
    /// What they have done is not known beyond what they said before: they are lost, and may still be
    /// at it, their server was replaced, or their answer does not decode.
    pub unknown: RangeSet,
}

impl Unfinished {
    /// Whether every host was done.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.heard.is_empty() && self.unknown.is_empty()
    }

    /// Takes in those of another call.
    pub fn merge(&mut self, other: &Self) {
        self.heard.union_with(&other.heard);
        self.unknown.union_with(&other.unknown);
    }
}

impl Client {
    /// Starts `tool` with `params` on every host of `members`.
    ///
    /// # Errors
    /// [`GroupError::UnknownLeaf`] when a member is no leaf of the session.
    pub fn call(&self, members: &RangeSet, tool: &str, params: &[u8]) -> Result<Call, GroupError> {
        let stream = self.stream(TOOLS, members)?;
        let observed = observer::observe(|| Begun {
            name: tool.as_bytes(),
            stream: stream.id(),
            members: members.len(),
            ..Begun::new("tool.call", Layer::Tool)
        });
        Ok(Call {
            client: self.clone(),
            stream,
            members: members.clone(),
            more: members.clone(),
            start: Some((tool.to_owned(), params.to_vec())),
            torn: false,
            changes: false,
            gone: RangeSet::new(),
            outcome: Outcome::default(),
            bytes: 0,
            observed,
        })
    }

    /// Hosts that are known to be gone.
    async fn gone(&self) -> RangeSet {
        // Whoever joins a session is told who is gone before it is told who is there.
        drop(self.network().ready(GREETING_TIME).await);
        let mut gone = RangeSet::new();
        for notice in self.network().notices() {
            match notice {
                Notice::Lost { leaves, .. } | Notice::Left { leaves, .. } => {
                    gone.union_with(&leaves)
                }
                Notice::Joined { leaves, .. } => gone = gone.difference(&leaves),
                _ => {}
            }
        }
        gone
    }
}

impl Call {
    /// The same of a tool that changes something. Once the session is over its hosts are asked for
    /// nothing more, and [`Call::conclude`] hears from those that were not done what they have
    /// changed.
    pub async fn that_changes(self) -> Self {
        let gone = self.client.gone().await;
        Self { changes: true, gone, ..self }
    }

    /// Whether some host has more to say.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.torn || !self.more.is_empty()
    }

    /// The hosts it was started on.
    #[must_use]
    pub fn members(&self) -> &RangeSet {
        &self.members
    }

    /// Whether any host still takes part: not all are lost or given up.
    #[must_use]
    pub fn has_hosts(&self) -> bool {
        self.stream.has_members()
    }

    /// Sends input to the tool on every host, once there is room for it: a host that does not
    /// keep up holds the sender back. One that takes nothing at all for as long as a host may be
    /// silent is given up, and holds back nobody any more; [`Call::finish`] names it.
    ///
    /// **Dropped** before its end, the call is over: the input would have a hole.
    pub async fn feed(&mut self, data: &[u8]) {
        if self.torn {
            return;
        }
        let outcome = self.expect_the_worst();
        if let Some((tool, params)) = self.start.take() {
            if let Some(patience) = self.client.patience_with_starting() {
                // Who is being started takes nothing yet, and that is not for want of a try.
                let _came = self.client.network().ready(patience).await;
            }
            let request = Request::Call { tool, answer: AnswerMessage { eager: 0 } };
            self.stream.send(0, request.encode(&params), None).await;
        }
        self.stream.send(0, Request::Feed.encode(data), None).await;
        // A question to nobody goes after it, and is answered once the input has been taken in or a
        // host shows that it is at it. Nobody looks at the answer; it is the tree that gives up who
        // gives none. (Its time begins when all before it has been sent, whoever held that up.)
        let question =
            Request::More { leaves: RangeSet::new(), answer: AnswerMessage { eager: 0 } }
                .encode(b"");
        let patience = self.client.patience_with_input(&self.members);
        drop(self.stream.request(0, &question, patience).await);
        self.torn = false;
        self.outcome = outcome;
    }

    /// The next batch of answers, folded entry by entry into `merged`. Returns whether there is
    /// more.
    ///
    /// **Dropped** before its end, the call is over, and `merged` may have a part of the batch.
    ///
    /// A host whose answer does not decode has failed with `EPROTO`, and is asked for no more.
    ///
    /// # Errors
    /// [`GroupError::TooLarge`] when the distinct entries exceed the bound; [`GroupError::Torn`]
    /// when the call was over before. The call is over then.
    pub async fn next_entries(&mut self, merged: &mut Merged) -> Result<bool, GroupError> {
        let mut outcome = self.begin()?;
        let result = self.entries(merged, &mut outcome).await;
        self.end(result, outcome)
    }

    /// The next batch of answers, by content.
    ///
    /// **Dropped** before its end, the call is over.
    ///
    /// # Errors
    /// [`GroupError::TooLarge`] when the distinct contents exceed the bound; otherwise as
    /// [`Call::next_entries`].
    pub async fn next_bodies(&mut self) -> Result<Vec<Class>, GroupError> {
        self.bodies_within(None).await
    }

    /// [`Call::next_bodies`] from hosts of which each has at most so many bytes to say: one that has more fails with
    /// `EPROTO`, alone.
    ///
    /// # Errors
    /// As [`Call::next_bodies`].
    pub async fn next_bodies_within(
        &mut self,
        most: &HashMap<u32, u64>,
    ) -> Result<Vec<Class>, GroupError> {
        self.bodies_within(Some(most)).await
    }

    async fn bodies_within(
        &mut self,
        most: Option<&HashMap<u32, u64>>,
    ) -> Result<Vec<Class>, GroupError> {
        let mut outcome = self.begin()?;
        let result = self.bodies(&mut outcome, most).await;
        self.end(result, outcome)
    }

    /// What these hosts have answered does not decode: they have failed with `EPROTO`, and are
    /// asked for no more.
    pub fn refuse(&mut self, leaves: &RangeSet) {
        self.give_up(Errno::PROTO, leaves);
        self.client.network().report_garbled(leaves);
    }

    /// Asks these hosts for no more: they have failed.
    pub fn give_up(&mut self, errno: Errno, leaves: &RangeSet) {
        tracing::warn!("{} is asked for no more: {errno}", self.client.fold(leaves));
        self.more = self.more.difference(leaves);
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.add_failed(errno, leaves);
        self.count(&mut outcome);
        self.outcome = outcome;
    }

    /// Begins what must not be dropped midway.
    fn begin(&mut self) -> Result<Outcome, GroupError> {
        if self.torn { Err(GroupError::Torn) } else { Ok(self.expect_the_worst()) }
    }

    /// Takes the outcome, and leaves the one that holds if nothing follows.
    fn expect_the_worst(&mut self) -> Outcome {
        self.torn = true;
        let mut worst = self.outcome.clone();
        worst.add_silent(Errno::CANCELED, &self.more);
        self.count(&mut worst);
        std::mem::replace(&mut self.outcome, worst)
    }

    fn end<T>(
        &mut self,
        result: Result<(T, RangeSet), GroupError>,
        mut outcome: Outcome,
    ) -> Result<T, GroupError> {
        let result = result.map(|(value, more)| {
            self.more = more;
            self.torn = false;
            value
        });
        if let Err(error) = &result {
            outcome.add_silent(error.errno(), &self.more);
        }
        self.count(&mut outcome);
        self.outcome = outcome;
        result
    }

    async fn entries(
        &mut self,
        merged: &mut Merged,
        outcome: &mut Outcome,
    ) -> Result<(bool, RangeSet), GroupError> {
        merged.next_batch();
        let (of, classes, more) = self.classes(outcome).await?;
        let lines = fetch::lines(&self.client, &self.stream, of, classes, merged).await?;
        for (errno, leaves) in &lines.lost {
            outcome.add_lost(*errno, leaves);
        }
        self.client.refuse(&lines.garbled, outcome);
        let more = more.difference(&lines.garbled);
        let goes_on = !more.is_empty() && (!self.changes || self.client.is_over().is_none());
        Ok((goes_on, more))
    }

    async fn bodies(
        &mut self,
        outcome: &mut Outcome,
        most: Option<&HashMap<u32, u64>>,
    ) -> Result<(Vec<Class>, RangeSet), GroupError> {
        let (of, classes, more) = self.classes(outcome).await?;
        let fetched = fetch::bodies(&self.client, &self.stream, of, classes, most).await?;
        self.client.refuse(&fetched.garbled, outcome);
        outcome.add_failed(Errno::PROTO, &fetched.refused);
        outcome.add_failed(Errno::MSGSIZE, &fetched.too_long);
        let more = more.difference(&fetched.garbled).difference(&fetched.too_long);
        let classes = fetched.classes;
        for class in classes.iter().filter(|class| class.body.is_none()) {
            outcome.add_silent(Errno::HOSTDOWN, &class.members.leaves());
        }
        Ok((classes, more))
    }

    /// The next answers by digest, the number of their request, and who has more to say.
    async fn classes(
        &mut self,
        outcome: &mut Outcome,
    ) -> Result<(u64, Classes, RangeSet), GroupError> {
        let answer = AnswerMessage { eager: self.more.first().unwrap_or(0) };
        let (request, params) = match self.start.take() {
            Some((tool, params)) => (Request::Call { tool, answer }, params),
            None => (Request::More { leaves: self.more.clone(), answer }, Vec::new()),
        };
        let (mut partial, mut wave) = if self.changes {
            self.client.ask_to_change(&self.stream, &request, &params).await?
        } else {
            self.client.ask(&self.stream, &request, &params).await?
        };
        self.bytes = self.bytes.saturating_add(partial.status.sum);
        let is_answer = |data: &Data| matches!(data, Data::Classes(_));
        self.client.fail_wrong(&mut partial, &mut wave, &self.more, is_answer);
        // A host has one answer at a time.
        let mut classes = match std::mem::take(&mut partial.data) {
            Data::Classes(classes) => classes,
            _ => Classes::default(),
        };
        let several = classes.leaves_with_several();
        self.client.fail(&mut wave, &several);
        classes.remove_leaves(&several);
        partial.more = partial.more.intersection(&wave.coverage.ok);
        // A host that had said everything before it was lost is not missing.
        outcome.add_coverage_of(&wave.coverage, &self.more);
        errors_of(&mut partial).into_iter().for_each(|error| outcome.push_error(error));
        outcome.fold_errors();
        classes.said().for_each(|members| outcome.heard.union_with(&members.leaves()));
        Ok((wave.wave, classes, partial.more))
    }

    /// Every host that was not missing so far counts as one that succeeded.
    fn count(&self, outcome: &mut Outcome) {
        let answered = self.members.difference(&outcome.missing_hosts()).len();
        outcome.status = StatusSum { count: answered, ..StatusSum::default() };
    }

    /// What the hosts came to so far.
    #[must_use]
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// [`Call::finish`] of a call that changes something. Hosts that did not come to their end say
    /// what they have done until now ([`Running::so_far`](crate::tool::Running::so_far)), which is
    /// folded into `merged`.
    ///
    /// # Errors
    /// [`GroupError::Ended`] when the session has ended.
    pub async fn conclude(self, merged: &mut Merged) -> Result<(Outcome, Unfinished), GroupError> {
        let mut unfinished = Unfinished::default();
        // Of what was not begun nothing is done.
        let (begun, changes) = (self.start.is_none(), self.changes);
        let (client, gone) = (self.client.clone(), self.gone.clone());
        let (outcome, stream) = self.end_with_stream();
        if !changes || !begun {
            return Ok((outcome, unfinished));
        }
        let (mut lost, mut there) = (RangeSet::new(), RangeSet::new());
        for (errno, leaves) in &outcome.silent {
            if *errno == Errno::HOSTDOWN { &mut lost } else { &mut there }.union_with(leaves);
        }
        if !there.is_empty() {
            unfinished.heard = last_words(&client, &stream, there.clone(), merged).await?;
        }
        unfinished.unknown = lost.difference(&gone);
        unfinished.unknown.union_with(&there.difference(&unfinished.heard));
        // A server that was started in the place of another (ESTALE) knows of no call.
        let garbled = outcome
            .failed
            .iter()
            .filter(|(errno, _)| matches!(*errno, Errno::PROTO | Errno::STALE));
        garbled.for_each(|(_, leaves)| unfinished.unknown.union_with(leaves));
        Ok((outcome, unfinished))
    }

    /// Ends the call and gives what the hosts came to. Those that had more to say are silent, with
    /// the reason why the session is over, or `ECANCELED`.
    #[must_use]
    pub fn finish(self) -> Outcome {
        self.end_with_stream().0
    }

    fn end_with_stream(self) -> (Outcome, Stream) {
        let mut outcome = self.outcome.clone();
        let unheard = self.more.difference(&outcome.missing_hosts());
        outcome.add_silent(self.client.is_over().unwrap_or(Errno::CANCELED), &unheard);
        self.count(&mut outcome);
        let bytes = self.bytes;
        self.observed.end(|| Ending::Ended { bytes, errno: observed::errno(&outcome) });
        (outcome, self.stream)
    }
}

/// Has `leaves` end what they are at, and folds what they have done into `merged`. Returns who has
/// said it.
async fn last_words(
    client: &Client,
    stream: &Stream,
    leaves: RangeSet,
    merged: &mut Merged,
) -> Result<RangeSet, GroupError> {
    let (request, patience) = (Request::Last { leaves }, client.patience_with_last_words());
    let asked = client.insist_within(stream, &request, patience);
    // Where there is no room for the question, because some host takes nothing, nobody can be
    // asked.
    let Ok(answered) = tokio::time::timeout(patience * 2, asked).await else {
        return Ok(RangeSet::new());
    };
    let mut heard = RangeSet::new();
    merged.next_batch();
    let (mut partial, _) = answered?;
    let wrong = partial.keep(|data| matches!(data, Data::Classes(_)));
    client.network().report_garbled(&wrong);
    if let Data::Classes(classes) = partial.data {
        for (_, class) in classes.into_sorted() {
            let (Some(body), leaves) = (class.body, class.members.leaves()) else { continue };
            // What a host has done is not known if its answer does not decode.
            if body.is_empty() || merged.fold_raw_set(&leaves, &body).is_ok() {
                heard.union_with(&leaves);
            } else {
                client.network().report_garbled(&leaves);
            }
        }
    }
    Ok(heard)
}
