//! Packets that a filter sends down, to the members below its node.
use super::FilterError;
use bytes::Bytes;
use sheaf_core::Errno;

/// The longest reply, in bytes; it travels in one frame.
pub const REPLY_BYTES_MAX: usize = 64 << 10;

/// The most replies that one wave may cause at one node.
pub const REPLIES_PER_WAVE_MAX: usize = 256;

/// A packet on its way down from a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterReply {
    /// The packet's tag.
    pub tag: i32,
    /// Its bytes.
    pub payload: Bytes,
}

/// The replies of one wave at one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replies {
    list: Vec<FilterReply>,
}

impl Replies {
    /// Adds one.
    ///
    /// # Errors
    /// `EMSGSIZE` when it is longer than [`REPLY_BYTES_MAX`]; the same when there are
    /// [`REPLIES_PER_WAVE_MAX`] already.
    pub fn push(&mut self, tag: i32, payload: impl Into<Bytes>) -> Result<(), FilterError> {
        let payload = payload.into();
        if payload.len() > REPLY_BYTES_MAX {
            let message = format!("a reply of {} bytes exceeds {REPLY_BYTES_MAX}", payload.len());
            return Err(FilterError::new(Errno::MSGSIZE, message));
        }
        if self.list.len() >= REPLIES_PER_WAVE_MAX {
            let message = format!("a wave caused more than {REPLIES_PER_WAVE_MAX} replies");
            return Err(FilterError::new(Errno::MSGSIZE, message));
        }
        self.list.push(FilterReply { tag, payload });
        Ok(())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl IntoIterator for Replies {
    type Item = FilterReply;
    type IntoIter = std::vec::IntoIter<FilterReply>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}
