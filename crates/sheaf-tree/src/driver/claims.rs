//! Answers that somebody waits for by the number of their wave.
use crate::proto::WaveResult;
use rustc_hash::FxHashMap;
use std::task::{Context, Poll, Waker};

/// Who waits for which answer. A stream is here once a request with an answer of its own was sent
/// on it; from then on, what comes there and nobody waits for is thrown away at once.
#[derive(Default)]
pub(crate) struct Claims {
    streams: FxHashMap<u32, FxHashMap<u64, Claim>>,
}

#[derive(Default)]
struct Claim {
    waker: Option<Waker>,
    answer: Option<WaveResult>,
}

impl Claims {
    /// Somebody will wait for the answer to this request.
    pub fn add(&mut self, stream: u32, wave: u64) {
        self.streams.entry(stream).or_default().insert(wave, Claim::default());
    }

    /// Whether the stream's answers are given out by wave.
    pub fn has(&self, stream: u32) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Gives an answer to who waits for it.
    pub fn give(&mut self, stream: u32, result: WaveResult) {
        let claim = self.streams.get_mut(&stream).and_then(|claims| claims.get_mut(&result.wave));
        if let Some(claim) = claim.filter(|_| result.complete) {
            claim.answer = Some(result);
            if let Some(waker) = claim.waker.take() {
                waker.wake();
            }
        }
    }

    /// The answer, once it is there.
    pub fn poll(&mut self, stream: u32, wave: u64, cx: &Context<'_>) -> Poll<WaveResult> {
        let Some(claims) = self.streams.get_mut(&stream) else { return Poll::Pending };
        let claim = claims.entry(wave).or_default();
        match claim.answer.take() {
            Some(answer) => {
                claims.remove(&wave);
                Poll::Ready(answer)
            }
            None => {
                claim.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Nobody waits for this answer any more.
    pub fn drop_one(&mut self, stream: u32, wave: u64) {
        if let Some(claims) = self.streams.get_mut(&stream) {
            claims.remove(&wave);
        }
    }

    /// The stream is over.
    pub fn close(&mut self, stream: u32) {
        self.streams.remove(&stream);
    }
}
