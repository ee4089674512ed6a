//! A frame towards the leaves, as it waits for those who are to have it.
use super::HEADER_BYTES;
use bytes::Bytes;

/// A frame of a stream: in one piece, or with the part of a long packet that it carries left where
/// the application has it.
#[derive(Debug, Clone)]
pub(crate) struct DownFrame {
    /// The whole, or what precedes `body`.
    head: Bytes,
    body: Bytes,
}

impl From<Bytes> for DownFrame {
    fn from(whole: Bytes) -> Self {
        Self { head: whole, body: Bytes::new() }
    }
}

impl DownFrame {
    /// Of a header (and what else precedes the part) that announces `body` too.
    pub fn parted(head: Bytes, body: Bytes) -> Self {
        debug_assert!(head.len() >= HEADER_BYTES);
        Self { head, body }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// The flags in its header.
    #[inline]
    pub fn flags(&self) -> u8 {
        super::flags(&self.head)
    }

    /// What goes onto a link, in order; the second may be empty.
    #[inline]
    pub fn pieces(&self) -> (&Bytes, &Bytes) {
        (&self.head, &self.body)
    }

    /// The same, without keeping a buffer alive that it is a small part of.
    pub fn to_keep(&self, copy_bytes_max: usize) -> Self {
        let small = self.body.is_empty() && self.head.len() <= copy_bytes_max;
        if small { Bytes::copy_from_slice(&self.head).into() } else { self.clone() }
    }
}
