//! One request and its own answer.
use super::Client;
use super::interrupt::Interruptible;
use super::times::TimedRequest;
use crate::aggregate::Partial;
use crate::error::GroupError;
use crate::message::Request;
use sheaf_core::Errno;
use sheaf_tree::{Coverage, Pending, Stream, WaveResult};
use std::time::{Duration, Instant};

/// How long hosts have at least to undo what was begun, also when the time is over.
const UNDO_TIMEOUT_MIN: Duration = Duration::from_millis(500);

/// A request that was sent. Dropped, the hosts do it all the same, and what they say is thrown
/// away.
pub(super) struct Asked<'a> {
    client: &'a Client,
    pending: Pending<'a>,
    timed: TimedRequest,
    interrupt: Interruptible,
    /// When it is cancelled.
    until: Option<Instant>,
}

impl Client {
    /// Sends a request. Dropped before it is sent whole, no host does it.
    pub(super) async fn send<'a>(
        &'a self,
        stream: &'a Stream,
        request: &Request,
        data: &[u8],
    ) -> Result<Asked<'a>, GroupError> {
        self.send_within(stream, request, data, self.patience()).await
    }

    async fn send_within<'a>(
        &'a self,
        stream: &'a Stream,
        request: &Request,
        data: &[u8],
        timeout: Duration,
    ) -> Result<Asked<'a>, GroupError> {
        let interrupt = self.inner.interrupts.begin();
        let timed = TimedRequest::begin(self, stream, request);
        let pending = stream.request(0, request.encode(data), timeout).await;
        let pending = pending.map_err(|_| GroupError::Ended)?;
        Ok(Asked { client: self, pending, timed, interrupt, until: None })
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

    /// One request and its answer, which is cancelled when the session's time is over: who does not
    /// answer by then is not given up, and can be asked what it has done.
    pub(super) async fn ask_to_change(
        &self,
        stream: &Stream,
        request: &Request,
        data: &[u8],
    ) -> Result<(Partial, WaveResult), GroupError> {
        let mut asked =
            self.send_within(stream, request, data, self.patience_with_change()).await?;
        asked.until = self.limits.deadline;
        asked.answer().await
    }

    /// One request that has its answer whatever the user wants: it undoes something.
    pub(super) async fn insist(
        &self,
        stream: &Stream,
        request: &Request,
    ) -> Result<(Partial, WaveResult), GroupError> {
        self.insist_within(stream, request, self.patience().max(UNDO_TIMEOUT_MIN)).await
    }

    pub(super) async fn insist_within(
        &self,
        stream: &Stream,
        request: &Request,
        timeout: Duration,
    ) -> Result<(Partial, WaveResult), GroupError> {
        let asked = self.send_within(stream, request, b"", timeout).await?;
        let mut wave = asked.pending.answer().await;
        asked.timed.answered(wave.wave, &wave.coverage);
        Ok((self.decoded(&mut wave), wave))
    }
}

impl Asked<'_> {
    /// Waits for the answer; an interrupt ends that with what has come.
    pub async fn answer(mut self) -> Result<(Partial, WaveResult), GroupError> {
        let late = async {
            match self.until {
                Some(until) => tokio::time::sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
        };
        let is_late = tokio::select! {
            mut wave = self.pending.answer() => {
                self.timed.answered(wave.wave, &wave.coverage);
                return Ok((self.client.decoded(&mut wave), wave));
            }
            () = self.interrupt.interrupted() => false,
            () = late => true,
            () = self.timed.tell_slow() => unreachable!("it is never ready"),
        };
        self.pending.cancel();
        let mut wave = self.pending.answer().await;
        self.timed.answered(wave.wave, &wave.coverage);
        if is_late {
            let Coverage { failed, silent, .. } = &mut wave.coverage;
            let cancelled =
                failed.iter_mut().chain(silent).filter(|(errno, _)| *errno == Errno::CANCELED);
            cancelled.for_each(|(errno, _)| *errno = Errno::TIMEDOUT);
        }
        Ok((self.client.decoded(&mut wave), wave))
    }
}
