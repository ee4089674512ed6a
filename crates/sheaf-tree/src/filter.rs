//! Filters: how the answers of a wave are combined on the way up ([`sheaf_proto::filter`]), and how
//! those of users' modules are run.
pub use sheaf_proto::filter::*;

mod module;

pub(crate) use module::{CODE_EXITED, CODE_STUCK, end_when_held_up};
pub use module::{HeldUpListener, link_modules, tell_when_held_up, use_engine};

/// The guide's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/filters.md")]
struct Guide;
