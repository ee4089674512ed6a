//! Who a node expects, and what becomes of those who come to its door.
pub(super) mod nursery;
pub(super) mod reception;
