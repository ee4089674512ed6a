//! A function of a module in place of a node's filter: packets in, packets out.
//!
//! In front of each packet's bytes stands the rank of its sender, as `sheaf.h` has it.
use crate::wire::Parcel;
use bytes::{Buf, Bytes};
use sheaf_core::Errno;
use sheaf_tree::filter::{
    Accumulator, Emit, Filter, FilterError, Input, NodeInfo, Registry, packets,
};

/// Bytes of the sender in front of a packet.
const SENDER_BYTES: usize = 4;

/// One function, for one stream at one node.
pub struct FilterModule {
    filter: Box<dyn Filter>,
    wave: Box<dyn Accumulator>,
}

impl FilterModule {
    /// The function that `name` says (`module:HASH:FUNCTION`), of a module that is here.
    ///
    /// # Errors
    /// When there is no such module or function.
    pub fn new(
        name: &str,
        params: &[u8],
        modules: &Registry,
        info: &NodeInfo,
    ) -> Result<Self, FilterError> {
        let filter = modules.instantiate(name, params, info)?;
        let wave = filter.accumulator();
        Ok(Self { filter, wave })
    }

    /// Runs it once.
    ///
    /// # Errors
    /// What it says, or has thrown; nothing it gave in that call counts then.
    pub fn run(
        &mut self,
        packets: &[Parcel],
        out: &mut Vec<Parcel>,
        back: &mut Vec<Parcel>,
    ) -> Result<(), FilterError> {
        let mut payload = Vec::new();
        for (child, parcel) in (0..).zip(packets) {
            payload.clear();
            payload.extend_from_slice(&parcel.source.to_le_bytes());
            payload.extend_from_slice(&parcel.packet);
            let (rank, tag, payload) = (parcel.source, parcel.tag, &payload[..]);
            let folded =
                self.wave.fold(Input { child, rank, tag, raw: true, leaves: None, payload });
            // What was folded before is not for the next wave.
            folded.inspect_err(|_| self.wave = self.filter.accumulator())?;
        }
        let mut list = Vec::new();
        self.wave.finish(Emit::Result, &mut list)?;
        let list = Bytes::from(list);
        for (tag, data) in packets::decode(&list)? {
            out.push(parcel(tag, list.slice_ref(data))?);
        }
        for reply in self.wave.replies() {
            back.push(parcel(reply.tag, reply.payload)?);
        }
        Ok(())
    }

    /// Gives it other parameters from the next run on; it keeps its state.
    pub fn set_params(&mut self, params: &[u8]) {
        self.filter.set_params(params);
    }

    /// What it has kept, for the node that takes over.
    pub fn state(&mut self) -> Option<Vec<u8>> {
        self.filter.state()
    }

    /// Takes in what another node's has kept.
    ///
    /// # Errors
    /// What it says.
    pub fn absorb(&mut self, state: &[u8]) -> Result<(), FilterError> {
        self.filter.absorb(state)
    }
}

fn parcel(tag: i32, mut data: Bytes) -> Result<Parcel, FilterError> {
    if data.len() < SENDER_BYTES {
        return Err(FilterError::new(Errno::BADMSG, "a filter gave a packet without its sender"));
    }
    let source = data.get_u32_le();
    Ok(Parcel { tag, source, packet: data })
}
