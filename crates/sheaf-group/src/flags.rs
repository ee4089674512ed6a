//! Flags of `gopen` beyond those of `open(2)`. They are above all bits the system uses.

/// A pipe in which there is nothing does not open (`EAGAIN`): whoever reads files whole does not
/// take it for an empty one.
pub const O_READY: u32 = 1 << 27;
/// Succeed when any file opens; those that do not are not members.
pub const O_BESTEFFORT: u32 = 1 << 28;
/// An operation on which some members fail returns the aggregate of the others; the errors are
/// read with `gstatus`.
pub const O_PARTIAL: u32 = 1 << 29;
/// A file that is named twice on a host (same device and inode) is one member.
pub const O_UNIQUE: u32 = 1 << 30;

/// All of them.
pub const GROUP_FLAGS: u32 = O_READY | O_BESTEFFORT | O_PARTIAL | O_UNIQUE;
