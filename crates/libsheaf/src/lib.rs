//! `libsheaf.so`: the tree for C and C++, with the interface of `sheaf.h`.
//!
//! A front end ([`front::Front`]) plans and starts a tree; its back ends ([`back::Back`]) are
//! programs of the user's that the tree starts at its leaves. Between them are nodes of Sheaf.
//! Packets are those of [`sheaf_tree::packet`]; the headers pack and unpack them. Other interfaces
//! stand on this one: MRNet's is made of headers over it, and is a crate of its own.
//!
//! A send goes out on the caller's thread, or, one of many behind one another, with the others soon
//! after. What arrives is read by the thread that waits for it (see [`reactor`]), and by one of the
//! library's while none does.

pub mod attach;
pub mod back;
pub mod down;
pub mod error;
pub mod event;
mod ffi;
pub mod filter;
pub mod find;
pub mod front;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod hub;
pub mod inbox;
pub mod meter;
pub mod node;
pub mod plan;
pub mod reactor;
pub mod topgen;
pub mod wire;

/// The service that back ends are.
pub const BACK_ENDS: &str = "back-ends";

/// The service of nodes to which back ends attach themselves.
pub const HUBS: &str = "back-ends-attach";

/// In place of a rank: what a filter made of the packets of several nodes.
pub const NO_RANK: u32 = u32::MAX;
