//! Requests that have answers of their own, however many are under way on a stream.
use super::{Stream, StreamError};
use crate::proto::{Outgoing, PacketContent, WaveResult};
use sheaf_core::{Errno, RangeSet, lock};
use std::future::poll_fn;
use std::time::Duration;

impl Stream {
    #[cold]
    fn note_lacking(&self, leaves: &RangeSet) {
        let mut lacking = lock(&self.inner.lacking);
        lacking.entry(self.service.clone()).or_default().union_with(leaves);
    }

    /// Asks every member, once there is room for it, and gives what the answer can be waited for
    /// with. Members that do not answer in time take no more part in the stream, as with
    /// [`Stream::ask`]. Any number of tasks may do this at once: requests reach the members in the
    /// order in which these futures were first polled, and each has its own answer. A stream on
    /// which this is used waits for all ([`crate::Sync::WaitForAll`]), and is not used with
    /// [`Stream::recv`].
    ///
    /// **Dropped** before it is done, no member gets the request; afterwards all do. Others'
    /// requests are not touched by either.
    ///
    /// # Errors
    /// [`StreamError::Ended`] when the stream is closed.
    pub async fn request(
        &self,
        tag: i32,
        payload: impl Into<PacketContent<'_>>,
        timeout: Duration,
    ) -> Result<Pending<'_>, StreamError> {
        let outgoing = Outgoing::new(tag, payload, Some(timeout)).once();
        let wave = self.send_packet(outgoing, true).await.ok_or(StreamError::Ended)?;
        Ok(Pending { stream: self, wave })
    }
}

/// A request that was sent, and whose answer is to come. Dropped, the members work on it all the
/// same, and the answer is thrown away when it comes.
#[derive(Debug)]
#[must_use = "dropping it throws the answer away"]
pub struct Pending<'a> {
    stream: &'a Stream,
    wave: u64,
}

impl Pending<'_> {
    /// The number of its wave.
    #[must_use]
    pub fn wave(&self) -> u64 {
        self.wave
    }

    /// Ends the wave early: it completes with what there is.
    pub fn cancel(&self) {
        self.stream.cancel(Some(self.wave));
    }

    /// Waits for the answer, which can be had once. Dropped, the future has no effect: the answer
    /// can be waited for again.
    pub async fn answer(&self) -> WaveResult {
        let answer = poll_fn(|cx| {
            self.stream
                .inner
                .shared
                .peek(|core| core.mailbox.claims.poll(self.stream.id, self.wave, cx))
        })
        .await;
        for (_, leaves) in answer.coverage.failed.iter().filter(|(why, _)| *why == Errno::NOSYS) {
            self.stream.note_lacking(leaves);
        }
        answer
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.stream
            .inner
            .shared
            .peek(|core| core.mailbox.claims.drop_one(self.stream.id, self.wave));
    }
}

/// A packet of which a part was sent. Dropped before the last part, nobody waits for an answer to
/// it: members drop the parts when they hear of it, or when the next packet begins.
pub(super) struct UnderWay<'a> {
    pub stream: &'a Stream,
    pub wave: Option<u64>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(wave) = self.wave {
            self.stream
                .inner
                .shared
                .peek(|core| core.mailbox.claims.drop_one(self.stream.id, wave));
            self.stream.cancel(Some(wave));
        }
    }
}
