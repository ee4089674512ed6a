//! A tool at work on every host.
use super::fetch;
use super::{Class, Outcome, Session, errors_of};
use crate::aggregate::{Classes, Data, StatusSum};
use crate::entry::Merged;
use crate::error::GroupError;
use crate::message::{Answer, Request};
use sheaf_core::{Errno, RangeSet};
use sheaf_tree::Stream;

/// A tool's call. Its answer comes in batches: equal ones cross the tree once.
pub struct Call {
    session: Session,
    stream: Stream,
    members: RangeSet,
    /// Leaves that have more to say.
    more: RangeSet,
    start: Option<(String, Vec<u8>)>,
    outcome: Outcome,
}

impl Session {
    /// Starts `tool` with `params` on every host of `members`.
    ///
    /// # Errors
    /// [`GroupError::UnknownLeaf`] when a member is no leaf of the session.
    pub fn call(&self, members: &RangeSet, tool: &str, params: &[u8]) -> Result<Call, GroupError> {
        Ok(Call {
            session: self.clone(),
            stream: self.stream(members)?,
            members: members.clone(),
            more: members.clone(),
            start: Some((tool.to_owned(), params.to_vec())),
            outcome: Outcome::default(),
        })
    }
}

impl Call {
    /// Whether some host has more to say.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.more.is_empty()
    }

    /// The hosts it was started on.
    #[must_use]
    pub fn members(&self) -> &RangeSet {
        &self.members
    }

    /// Sends input to the tool on every host, once there is room for it: a host that does not
    /// keep up holds the sender back.
    pub async fn feed(&mut self, data: &[u8]) {
        if let Some((tool, params)) = self.start.take() {
            let request = Request::Call { tool, answer: Answer { eager: 0 } };
            self.stream.send(0, &request.encode(&params), None).await;
        }
        self.stream.send(0, &Request::Feed.encode(data), None).await;
    }

    /// The next batch of answers, folded entry by entry into `merged`. Returns whether there is
    /// more.
    ///
    /// # Errors
    /// [`GroupError::Protocol`] when an answer does not decode.
    pub async fn next_entries(&mut self, merged: &mut Merged) -> Result<bool, GroupError> {
        merged.next_batch();
        let classes = self.next_classes().await?;
        let lost = fetch::lines(&self.session, &self.stream, classes, merged).await?;
        for (errno, leaves) in &lost {
            self.outcome.add_silent(*errno, leaves);
        }
        self.count();
        Ok(self.has_more())
    }

    /// The next batch of answers, by content.
    ///
    /// # Errors
    /// [`GroupError::TooLarge`] when the distinct contents exceed the bound.
    pub async fn next_bodies(&mut self) -> Result<Vec<Class>, GroupError> {
        let classes = self.next_classes().await?;
        let classes = fetch::bodies(&self.session, &self.stream, classes).await?;
        for class in classes.iter().filter(|class| class.body.is_none()) {
            self.outcome.add_silent(Errno::HOSTDOWN, &class.members.leaves());
        }
        self.count();
        Ok(classes)
    }

    async fn next_classes(&mut self) -> Result<Classes, GroupError> {
        let answer = Answer { eager: self.more.first().unwrap_or(0) };
        let more = std::mem::take(&mut self.more);
        let (request, params) = match self.start.take() {
            Some((tool, params)) => (Request::Call { tool, answer }, params),
            None => (Request::More { leaves: more.clone(), answer }, Vec::new()),
        };
        let (mut partial, wave) = self.session.ask(&self.stream, &request, &params).await?;
        self.more = std::mem::take(&mut partial.more);
        // A host that had said everything before it was lost is not missing.
        self.outcome.add_coverage_of(&wave.coverage, &more);
        self.count();
        for error in errors_of(&mut partial) {
            self.outcome.add_error(error);
        }
        Ok(match partial.data {
            Data::Classes(classes) => classes,
            _ => Classes::default(),
        })
    }

    /// Every host that was not missing so far counts as one that succeeded.
    fn count(&mut self) {
        let answered = self.members.difference(&self.outcome.missing_hosts()).len();
        self.outcome.status = StatusSum { count: answered, ..StatusSum::default() };
    }

    /// What the hosts came to so far.
    #[must_use]
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Ends the call and gives what the hosts came to.
    #[must_use]
    pub fn finish(self) -> Outcome {
        self.outcome
    }
}
