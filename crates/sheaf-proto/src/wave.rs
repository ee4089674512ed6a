//! Waves: one packet from every member, counted once each.
//!
//! Most waves of a fast stream look alike and need no slot each ([`Steady`]); the others have one
//! ([`Slots`]). [`Waves`] is one or the other, and whoever wants slots gets them from it.
//!
//! MRNet, section 2.4, synchronisation filters: [`Sync`](crate::control::Sync) has the three modes
//! of the paper. In Sheaf a wave also has a number and may have a deadline, and its result names
//! the leaves that it counts. The paper does not define the result of a wave whose child is lost.
//! Here the wave ends without the lost leaves, and names them.
use crate::filter::Filter;
use crate::frame::Header;
use crate::stream::{ChildId, Members};
use std::time::Duration;

mod check;
mod mix;
mod slot;
mod slots;
mod steady;
#[cfg(test)]
mod tests;

pub(crate) use slot::{Flush, Slot};
pub(crate) use slots::Slots;
pub(crate) use steady::{Complete, Steady};

/// How many waves of one stream may be open at a node at once.
pub const WAVES_OPEN_MAX: u64 = 1 << 16;

/// The open waves of a stream.
pub(crate) enum Waves {
    /// They are all alike, and have no slots.
    Steady {
        steady: Steady,
        /// Without any wave; slots to be used again.
        idle: Slots,
    },
    /// Each has a slot.
    Slots(Slots),
}

impl Waves {
    /// The waves with a slot each, whatever they had. To be asked for before `members` change: what
    /// was contributed without slots is the data of all that a child has now.
    ///
    /// `cost` is what a contribution without slots counts for in the window.
    #[inline]
    pub fn slots(&mut self, members: &Members, filter: &dyn Filter, cost: usize) -> &mut Slots {
        if let Self::Steady { .. } = self {
            self.convert(members, filter, cost);
        }
        match self {
            Self::Slots(slots) => slots,
            Self::Steady { idle, .. } => idle,
        }
    }

    #[cold]
    fn convert(&mut self, members: &Members, filter: &dyn Filter, cost: usize) {
        if let Self::Steady { steady, mut idle } =
            std::mem::replace(self, Self::Slots(Slots::default()))
        {
            idle.resume(&steady, members, filter, cost);
            *self = Self::Slots(idle);
        }
    }

    /// From here on waves have no slots, of which there is none now.
    pub fn calm(&mut self, steady: impl FnOnce(u64) -> Steady) {
        if let Self::Slots(slots) = self {
            let idle = std::mem::take(slots);
            *self = Self::Steady { steady: steady(idle.base()), idle };
        }
    }

    /// Number of the first wave that is not over.
    pub fn base(&self) -> u64 {
        match self {
            Self::Steady { steady, .. } => steady.base(),
            Self::Slots(slots) => slots.base(),
        }
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        match self {
            Self::Steady { steady, .. } => steady.open(),
            Self::Slots(slots) => slots.numbers().count(),
        }
    }

    /// The slots, unless the waves have none.
    pub fn as_slots(&self) -> Option<&Slots> {
        match self {
            Self::Steady { .. } => None,
            Self::Slots(slots) => Some(slots),
        }
    }

    /// Gives a list of contributions back, to be used by a later wave.
    pub fn recycle(&mut self, from: Vec<Contribution>) {
        match self {
            Self::Steady { idle, .. } => idle.recycle(from),
            Self::Slots(slots) => slots.recycle(from),
        }
    }
}

/// What a child has done for a wave, in one word: flags, and the bytes to give credit for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Contribution(u32);

impl Contribution {
    /// So many bytes to give credit for.
    pub fn of(bytes: usize) -> Self {
        Self(bytes as u32 & Self::BYTES)
    }

    const DONE: u32 = 1 << 31;
    const FULL: u32 = 1 << 30;
    const TOLD: u32 = 1 << 29;
    /// It has contributed, and may do so again.
    const BEGUN: u32 = 1 << 28;
    const BYTES: u32 = Self::BEGUN - 1;

    fn done(self) -> bool {
        self.0 & Self::DONE != 0
    }
    /// All members of the child are in the payload.
    fn full(self) -> bool {
        self.0 & Self::FULL != 0
    }
    /// Its members were named in a partial that has gone up already.
    fn told(self) -> bool {
        self.0 & Self::TOLD != 0
    }
    fn begun(self) -> bool {
        self.0 & (Self::BEGUN | Self::FULL) != 0
    }
    pub fn bytes(self) -> u32 {
        self.0 & Self::BYTES
    }
    /// Takes the bytes to give credit for.
    fn take_bytes(&mut self) -> Self {
        let bytes = Self(self.0 & Self::BYTES);
        self.0 &= !Self::BYTES;
        bytes
    }
    fn add_bytes(&mut self, bytes: usize) {
        // The window keeps the bytes below this bound. The flags are safe even from a peer that
        // ignores its window.
        let sum = self.bytes().saturating_add(bytes as u32).min(Self::BYTES);
        self.0 = (self.0 & !Self::BYTES) | sum;
    }
}

/// A contribution as it arrived.
pub(crate) struct Arrival<'a> {
    pub child: ChildId,
    pub flags: u8,
    pub tag: i32,
    /// Bytes to give credit for.
    pub bytes: usize,
    /// Coverage block (unless full) and payload.
    pub body: &'a [u8],
}

impl<'a> Arrival<'a> {
    /// From the (last) frame that brought it.
    pub fn new(child: ChildId, header: &Header, body: &'a [u8]) -> Self {
        Self { child, flags: header.flags, tag: header.tag, bytes: header.cost(), body }
    }
}

/// What has to be done after a contribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// The wave is over already; the bytes are consumed.
    Drop,
    /// Wait for more.
    Wait,
    /// Pass it on at once.
    PassOn,
    /// The first contribution came: pass on what has come after this long.
    Later(Duration),
    /// Every child has done its part.
    Complete,
}
