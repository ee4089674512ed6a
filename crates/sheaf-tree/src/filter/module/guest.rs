//! What both kinds of modules have in common: gathering a wave, calling, and taking what comes.
use crate::filter::builtin::GATHERED_BYTES_MAX;
use crate::filter::packets::{self, PACKETS_MAX};
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, LinkClocks, Replies};
use sheaf_core::filter_abi::EntryPoint;
use sheaf_core::{Errno, lock};
use std::sync::{Arc, Mutex};

/// A packet of a wave, as a guest sees it.
#[derive(Debug, Clone, Default)]
pub(super) struct GuestPacket {
    pub tag: i32,
    pub child: u32,
    pub rank: u32,
    pub raw: bool,
    pub clock_offset_ns: i64,
    pub clock_error_ns: u64,
    pub data: Vec<u8>,
}

/// What a call has sent.
#[derive(Debug, Default)]
pub(super) struct SentByGuest {
    pub outputs: Vec<(i32, Vec<u8>)>,
    outputs_bytes: usize,
    pub replies: Replies,
    /// What it says of its failure.
    pub message: Option<String>,
    /// A bound that it ran into: whatever it returns, the call has failed.
    pub fault: Option<FilterError>,
}

impl SentByGuest {
    /// Takes a packet for the parent. The errno that the guest gets, 0 when there is room.
    pub fn output(&mut self, tag: i32, data: &[u8]) -> i32 {
        self.outputs_bytes = self.outputs_bytes.saturating_add(data.len());
        if self.outputs.len() >= PACKETS_MAX || self.outputs_bytes > GATHERED_BYTES_MAX {
            let message = format!(
                "the filter gave more than {PACKETS_MAX} packets or {GATHERED_BYTES_MAX} bytes in \
                 one wave"
            );
            return self.exceeded(FilterError::new(Errno::MSGSIZE, message));
        }
        self.outputs.push((tag, data.to_vec()));
        0
    }

    /// Takes a packet for the members below.
    pub fn reply(&mut self, tag: i32, data: &[u8]) -> i32 {
        match self.replies.push(tag, data.to_vec()) {
            Ok(()) => 0,
            Err(error) => self.exceeded(error),
        }
    }

    /// Takes the reason of a failure.
    pub fn fail(&mut self, text: &[u8]) {
        const TEXT_BYTES_MAX: usize = 512;
        let text = String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX)]);
        // One line, and nothing that a terminal obeys, whoever has written it.
        let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
        self.message =
            Some(plain.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "));
    }

    fn exceeded(&mut self, error: FilterError) -> i32 {
        let errno = error.errno.0;
        self.fault.get_or_insert(error);
        errno
    }

    /// What a call that returned `status` comes to.
    pub fn outcome(self, status: i32) -> Result<Self, FilterError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if status == 0 {
            return Ok(self);
        }
        let errno = if (1..4096).contains(&status) { Errno(status) } else { Errno::IO };
        let message = self.message.unwrap_or_else(|| format!("the filter returned {status}"));
        Err(FilterError::new(errno, message))
    }
}

/// One instance of a module's function: for one stream at one node.
pub(super) trait Guest: Send {
    /// Calls it, or its companion; without one the call gives nothing.
    fn call(
        &mut self,
        entry: EntryPoint,
        emit: Emit,
        inputs: &[GuestPacket],
    ) -> Result<SentByGuest, FilterError>;

    /// Whether there is something to call.
    fn has(&self, entry: EntryPoint) -> bool;

    /// Gives it other parameters from the next call on.
    fn set_params(&mut self, params: &[u8]);
}

/// What the waves of one stream at one node share.
struct SharedGuest {
    guest: Box<dyn Guest>,
    /// Outputs that came of taking over another node's state; they go with the next wave.
    owed: Vec<(i32, Vec<u8>)>,
}

impl Drop for SharedGuest {
    fn drop(&mut self) {
        if self.guest.has(EntryPoint::Destroy) {
            // Nobody is left who could be told.
            let _ = self.guest.call(EntryPoint::Destroy, Emit::Partial, &[]);
        }
    }
}

/// A function of a module as a filter.
pub(super) struct ModuleFilter {
    shared: Arc<Mutex<SharedGuest>>,
    clocks: Arc<LinkClocks>,
}

impl ModuleFilter {
    pub fn new(guest: Box<dyn Guest>, clocks: Arc<LinkClocks>) -> Self {
        Self { shared: Arc::new(Mutex::new(SharedGuest { guest, owed: Vec::new() })), clocks }
    }
}

impl Filter for ModuleFilter {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(GuestGathered {
            shared: Arc::clone(&self.shared),
            clocks: Arc::clone(&self.clocks),
            packets: Vec::new(),
            bytes: 0,
            replies: Replies::default(),
        })
    }

    fn in_child_order(&self) -> bool {
        true
    }

    fn state(&mut self) -> Option<Vec<u8>> {
        let mut shared = lock(&self.shared);
        if !shared.guest.has(EntryPoint::State) {
            return None;
        }
        let sent = shared.guest.call(EntryPoint::State, Emit::Partial, &[]);
        let sent = sent.inspect_err(|error| {
            tracing::warn!(%error, "a filter does not say its state, which is not handed on");
        });
        let sent = sent.ok()?;
        sent.outputs.into_iter().next().map(|(_, bytes)| bytes)
    }

    fn set_params(&mut self, params: &[u8]) -> bool {
        lock(&self.shared).guest.set_params(params);
        true
    }

    fn absorb(&mut self, state: &[u8]) -> Result<(), FilterError> {
        let mut shared = lock(&self.shared);
        if !shared.guest.has(EntryPoint::Absorb) {
            return Ok(());
        }
        let packet = GuestPacket {
            data: state.to_vec(),
            clock_error_ns: u64::MAX,
            ..GuestPacket::default()
        };
        let sent = shared.guest.call(EntryPoint::Absorb, Emit::Partial, &[packet])?;
        shared.owed.extend(sent.outputs);
        Ok(())
    }
}

/// The packets of one wave until it is complete.
struct GuestGathered {
    shared: Arc<Mutex<SharedGuest>>,
    clocks: Arc<LinkClocks>,
    packets: Vec<GuestPacket>,
    bytes: usize,
    replies: Replies,
}

impl Accumulator for GuestGathered {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        if self.bytes.saturating_add(input.payload.len()) > GATHERED_BYTES_MAX {
            let message = format!("a wave has more than {GATHERED_BYTES_MAX} bytes at one node");
            return Err(FilterError::new(Errno::MSGSIZE, message));
        }
        let clock = self.clocks.get(input.rank);
        let packet = |tag, data: &[u8]| GuestPacket {
            tag,
            child: input.child,
            rank: input.rank,
            raw: input.raw,
            clock_offset_ns: clock.map_or(0, |clock| clock.offset_ns),
            clock_error_ns: clock.map_or(u64::MAX, |clock| clock.error_ns),
            data: data.to_vec(),
        };
        if input.raw {
            self.packets.push(packet(input.tag, input.payload));
        } else {
            let list = packets::decode(input.payload)?;
            self.packets.extend(list.into_iter().map(|(tag, data)| packet(tag, data)));
        }
        self.bytes += input.payload.len();
        Ok(())
    }

    fn finish(&mut self, emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        self.bytes = 0;
        let inputs = std::mem::take(&mut self.packets);
        let mut shared = lock(&self.shared);
        let mut outputs = std::mem::take(&mut shared.owed);
        // As its children gave nothing, there is nothing to combine.
        if !inputs.is_empty() {
            match shared.guest.call(EntryPoint::Wave, emit, &inputs) {
                Ok(sent) => {
                    outputs.extend(sent.outputs);
                    self.replies = sent.replies;
                }
                Err(error) => {
                    shared.owed = outputs;
                    return Err(error);
                }
            }
        }
        packets::encode_into(&outputs, out);
        Ok(())
    }

    fn replies(&mut self) -> Replies {
        std::mem::take(&mut self.replies)
    }
}
