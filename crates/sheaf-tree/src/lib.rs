//! Multicast down, reduction up, over a tree of nodes that is never silently wrong.
#![forbid(unsafe_code)]

pub mod filter;
pub mod packet;
pub mod proto;
pub mod sim;
