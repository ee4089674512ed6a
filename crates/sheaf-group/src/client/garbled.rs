//! Answers that do not decode: each fails its own host, by name, with `EPROTO`.
//!
//! A node refuses a contribution that is malformed, and the leaves below the child that sent it
//! have failed with `EBADMSG` in that wave. A body is opaque to the tree, so only the client sees
//! that a tool's answer is malformed. Either way the client reports the host to the tree
//! ([`Network::report_garbled`](sheaf_tree::Network::report_garbled)), which closes the link of a
//! host that is reported twice.
use super::{Client, Outcome};
use crate::aggregate::{Data, Partial};
use sheaf_core::{Errno, RangeSet};
use sheaf_tree::WaveResult;
use std::sync::Arc;

impl Client {
    /// The answer in a wave. Hosts whose contribution is malformed are among those that failed.
    pub(super) fn decoded(&self, wave: &mut WaveResult) -> Partial {
        for (errno, leaves) in &mut wave.coverage.failed {
            if *errno == Errno::BADMSG {
                *errno = Errno::PROTO;
                self.network().report_garbled(leaves);
            }
        }
        let Some(payload) = wave.payload.take() else { return Partial::default() };
        Partial::decode(&payload).unwrap_or_else(|_| {
            // The filter of this node has decoded each part of it, so this is nobody's own fault.
            let all = std::mem::take(&mut wave.coverage.ok);
            wave.coverage.fail(Errno::PROTO, &all);
            Partial::default()
        })
    }

    /// Counts hosts whose answer does not decode as failed, and reports them to the tree.
    pub(super) fn refuse(&self, leaves: &RangeSet, outcome: &mut Outcome) {
        if !leaves.is_empty() {
            tracing::warn!("an answer of {} does not decode", self.fold(leaves));
            outcome.add_failed(Errno::PROTO, leaves);
            outcome.heard = outcome.heard.difference(leaves);
            self.network().report_garbled(leaves);
        }
    }

    /// Fails hosts that answered with another kind of data than `is_wanted`, and those of `members`
    /// that have said nothing of what was asked for: neither data nor an error.
    pub(super) fn fail_wrong(
        &self,
        partial: &mut Partial,
        wave: &mut WaveResult,
        members: &RangeSet,
        is_wanted: impl Fn(&Data) -> bool,
    ) {
        let mut wrong = partial.keep(is_wanted);
        let answered = wave.coverage.ok.intersection(members);
        wrong.union_with(&answered.difference(&partial.leaves()));
        self.fail(wave, &wrong);
    }

    /// Fails hosts whose answer is none.
    pub(super) fn fail(&self, wave: &mut WaveResult, leaves: &RangeSet) {
        if leaves.is_empty() {
            return;
        }
        tracing::warn!("what {} sent is no answer", self.fold(leaves));
        wave.coverage.ok = Arc::new(wave.coverage.ok.difference(leaves));
        wave.coverage.fail(Errno::PROTO, leaves);
        self.network().report_garbled(leaves);
    }
}

#[cfg(test)]
mod tests;
