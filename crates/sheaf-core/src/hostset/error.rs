//! What is wrong with a host set, and where.
use thiserror::Error;

/// A host set that cannot be read: one line, with the byte where the trouble starts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("host set, byte {position}: {problem}")]
pub struct ParseError {
    problem: String,
    position: usize,
}

impl ParseError {
    pub(crate) fn new(position: usize, problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), position }
    }

    /// Trouble that comes from elsewhere than the text, such as a group source that fails.
    #[must_use]
    pub fn unplaced(problem: &str) -> Self {
        Self::new(0, problem)
    }

    /// Byte offset into the text that was parsed.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// The groups that name each other in a circle, if that is the problem: the first ones, in
    /// their order.
    pub fn circle(&self) -> Option<impl Iterator<Item = &str>> {
        self.problem.split_once(super::evaluate::CYCLE).map(|(_, groups)| groups.split(" → "))
    }

    /// What is malformed, without the position.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// The same trouble, seen from a text in which this one starts at `offset`.
    pub(crate) fn shifted(mut self, offset: usize) -> Self {
        self.position += offset;
        self
    }
}
