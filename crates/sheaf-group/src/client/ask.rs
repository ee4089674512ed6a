//! One request and its own answer.
use super::Session;
use super::interrupt::Interruptible;
use crate::aggregate::Partial;
use crate::error::GroupError;
use crate::message::Request;
use sheaf_tree::{Pending, Stream, WaveResult};
use std::time::Duration;

/// How long hosts have at least to undo what was begun, also when the time is over.
const UNDO_TIMEOUT_MIN: Duration = Duration::from_millis(500);

/// A request that was sent. Dropped, the hosts do it all the same, and what they say is thrown away.
pub(super) struct Asked<'a> {
    pending: Pending<'a>,
    interrupt: Interruptible,
}

impl Session {
    /// Sends a request. Dropped before it is sent whole, no host does it.
    pub(super) async fn send<'a>(
        &self,
        stream: &'a Stream,
        request: &Request,
        data: &[u8],
    ) -> Result<Asked<'a>, GroupError> {
        self.send_within(stream, request, data, self.patience()).await
    }

    async fn send_within<'a>(
        &self,
        stream: &'a Stream,
        request: &Request,
        data: &[u8],
        timeout: Duration,
    ) -> Result<Asked<'a>, GroupError> {
        let interrupt = self.inner.interrupts.begin();
        let pending = stream.request(0, &request.encode(data), timeout).await;
        Ok(Asked { pending: pending.map_err(|_| GroupError::Ended)?, interrupt })
    }

    /// One request and its answer.
    pub(super) async fn ask(
        &self,
        stream: &Stream,
        request: &Request,
        data: &[u8],
    ) -> Result<(Partial, WaveResult), GroupError> {
        self.send(stream, request, data).await?.answer().await
    }

    /// One request that has its answer whatever the user wants: it undoes something.
    pub(super) async fn insist(
        &self,
        stream: &Stream,
        request: &Request,
    ) -> Result<(Partial, WaveResult), GroupError> {
        let timeout = self.patience().max(UNDO_TIMEOUT_MIN);
        let asked = self.send_within(stream, request, b"", timeout).await?;
        let mut wave = asked.pending.answer().await;
        Ok((partial_of(&mut wave)?, wave))
    }
}

impl Asked<'_> {
    /// Waits for the answer; an interrupt ends that with what has come.
    pub async fn answer(mut self) -> Result<(Partial, WaveResult), GroupError> {
        let mut wave = tokio::select! {
            wave = self.pending.answer() => wave,
            () = self.interrupt.interrupted() => {
                self.pending.cancel();
                self.pending.answer().await
            }
        };
        Ok((partial_of(&mut wave)?, wave))
    }
}

fn partial_of(wave: &mut WaveResult) -> Result<Partial, GroupError> {
    match wave.payload.take() {
        Some(payload) => Partial::decode(&payload).map_err(|_| GroupError::Protocol),
        None => Ok(Partial::default()),
    }
}
