//! From the tree into the inbox.
use super::{FrontStream, FrontStreams};
use crate::error::{Error, ErrorCode};
use crate::event::{self, EventDescriptor, Events};
use crate::inbox::{Inbox, Message};
use crate::wire::{CLOSED_TAG, Control, PARAMS_TAG, Parcel, UpwardMessage, WAVES_STEP};
use bytes::Bytes;
use sheaf_core::{Errno, lock};
use sheaf_tree::filter::builtin::null;
use sheaf_tree::{Coverage, Stream, WaveResult};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// Carries the results of a stream of the tree into the inbox.
pub(super) struct Pump {
    pub id: u32,
    pub upward: UpwardMessage,
    pub stream: Arc<Stream>,
    pub inbox: Arc<Inbox>,
    pub events: Arc<Events>,
    pub source: u32,
    /// Waves may stay unfinished for ever.
    pub loose: bool,
    /// The streams that are open, of which members say that they have left.
    pub streams: Weak<Mutex<FrontStreams>>,
    /// What carried the application's stream before; its packets come first.
    pub before: Option<Predecessor>,
    pub leaving: Arc<Leaving>,
    /// Dropped when nothing more comes.
    pub done: oneshot::Sender<()>,
}

/// A stream of the tree that another one takes the place of.
pub(super) struct Predecessor {
    pub entry: Arc<FrontStream>,
    /// Ends when all that came on it has been handed on.
    pub done: oneshot::Receiver<()>,
}

/// Says to a pump that members may have left.
#[derive(Default)]
pub(super) struct Leaving {
    pub some: Notify,
    /// Another stream of the tree carries the application's stream on.
    pub moved: AtomicBool,
}

/// How often it is looked whether members that have said so have left.
const LEFT_LOOK: Duration = Duration::from_millis(5);
/// How long they may take while nothing else comes from them.
const LEFT_TIMEOUT: Duration = Duration::from_secs(30);

impl Pump {
    pub async fn run(mut self) {
        if let Some(Predecessor { entry, done }) = self.before.take() {
            // It ends in any case: with its members, or after its time.
            let _ = done.await;
            drop(entry);
        }
        let (mut results, mut messages) = (Vec::new(), Vec::new());
        let mut ahead = Ahead::default();
        let mut until = None;
        while self.next(&mut results, &mut until).await {
            for result in results.drain(..) {
                if self.loose
                    && let Some(wave) = ahead.note(&result)
                {
                    self.stream.send(0, &Control::CatchUp { wave }.encode(), None).await;
                }
                let lost = lost(&result.coverage);
                // What a wave that waits for all is without a part of it would pass for the whole.
                if let Some(payload) = result.payload.filter(|_| self.loose || lost.is_none())
                    && let Err(error) = self.unpack(result.tag, payload, &mut messages)
                {
                    self.tell(
                        event::CLASS_ERROR,
                        event::error::INTERNAL,
                        self.source,
                        error.message,
                    );
                }
                messages.extend(lost.map(Err));
            }
            self.deliver(&mut messages);
            self.inbox.room(self.id).await;
        }
        if !self.leaving.moved.load(Ordering::Relaxed) {
            self.inbox.close(self.id);
        }
        drop(self.done);
    }

    /// Takes what has come; `false` when nothing can come any more, as every member has left.
    /// Until `until`, members are about to leave.
    async fn next(&self, results: &mut Vec<WaveResult>, until: &mut Option<Instant>) -> bool {
        loop {
            let look = async {
                match *until {
                    None => self.leaving.some.notified().await,
                    Some(_) => tokio::time::sleep(LEFT_LOOK).await,
                }
            };
            tokio::select! {
                biased;
                () = self.stream.recv_batch(results) => {
                    // While something comes, it is not over.
                    *until = until.map(|_| Instant::now() + LEFT_TIMEOUT);
                    return true;
                }
                () = look => {}
            }
            let now = Instant::now();
            let end = *until.get_or_insert(now + LEFT_TIMEOUT);
            if !self.stream.has_members() {
                // Whatever members had sent is here by now.
                return tokio::time::timeout(Duration::ZERO, self.stream.recv_batch(results))
                    .await
                    .is_ok();
            }
            if now >= end {
                if self.leaving.moved.load(Ordering::Relaxed) {
                    return false;
                }
                *until = None;
            }
        }
    }

    /// Hands on what the application is to have.
    fn deliver(&self, messages: &mut Vec<Result<Message, String>>) {
        if messages.is_empty() {
            return;
        }
        self.inbox.push_all(self.id, messages);
        if self.events.wants_data() {
            self.tell(event::CLASS_DATA, 0, crate::NO_RANK, String::new());
        }
    }

    fn tell(&self, class: u32, kind: u32, rank: u32, text: String) {
        self.events.push(EventDescriptor {
            class,
            kind,
            rank,
            parent: crate::NO_RANK,
            stream: self.id,
            text,
        });
    }

    /// The packets of a wave.
    fn unpack(
        &self,
        tag: i32,
        payload: Bytes,
        messages: &mut Vec<Result<Message, String>>,
    ) -> Result<(), Error> {
        let message =
            |tag, source, packet| Message { stream: self.id, tag, source, packet, owed: None };
        let parcels = match self.upward {
            UpwardMessage::Packets => {
                messages.push(Ok(message(tag, self.source, payload)));
                return Ok(());
            }
            UpwardMessage::Lists => Parcel::list(payload)?,
            UpwardMessage::Parcels => items(&payload)?,
        };
        for Parcel { tag, source, packet } in parcels {
            match tag {
                PARAMS_TAG => {}
                CLOSED_TAG => self.closed(&packet),
                _ => messages.push(Ok(message(tag, source, packet))),
            }
        }
        Ok(())
    }
}

impl Pump {
    /// A back end has closed a stream.
    fn closed(&self, packet: &Bytes) {
        let Ok(id) = <[u8; 4]>::try_from(&packet[..]).map(u32::from_le_bytes) else { return };
        let streams = self.streams.upgrade();
        if let Some(entry) = streams.and_then(|streams| lock(&streams).get(&id).cloned()) {
            entry.leaving.some.notify_one();
        }
    }
}

/// What a filter that failed has cost a wave; members themselves only give up waves.
fn lost(coverage: &Coverage) -> Option<String> {
    let failed = coverage.failed.iter().filter(|(errno, _)| *errno != Errno::CANCELED);
    let (errnos, counts): (Vec<String>, Vec<u64>) =
        failed.map(|(errno, leaves)| (errno.to_string(), leaves.len())).unzip();
    let (causes, count) = (errnos.join(", "), counts.iter().sum::<u64>());
    (count > 0).then(|| {
        format!(
            "a filter failed, and what {count} back ends have sent is lost: {causes}; an event \
             says where"
        )
    })
}

/// The parcels in the list that the filter `null` makes.
fn items(payload: &Bytes) -> Result<Vec<Parcel>, Error> {
    let items =
        null::items(payload).map_err(|error| Error::new(ErrorCode::Packet, error.message))?;
    let mut parcels = Vec::with_capacity(items.len());
    for item in items {
        parcels.extend(Parcel::list(payload.slice_ref(item))?);
    }
    Ok(parcels)
}

/// How far the waves of a stream have come that does not wait for all.
#[derive(Default)]
struct Ahead {
    /// Waves before this are over.
    done: u64,
    /// Waves after it that are over.
    over: BTreeSet<u64>,
    newest: u64,
    asked: u64,
}

impl Ahead {
    /// Notes a result; gives the wave up to which idle members must catch up, if it is time.
    fn note(&mut self, result: &WaveResult) -> Option<u64> {
        self.newest = self.newest.max(result.wave);
        if result.complete {
            self.over.insert(result.wave);
            while self.over.remove(&self.done) {
                self.done += 1;
            }
        }
        // Everyone has followed the last word: the next one may be said.
        (self.done >= self.asked && self.newest >= self.asked + WAVES_STEP).then(|| {
            self.asked = self.newest;
            self.newest
        })
    }
}
