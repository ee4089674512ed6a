//! Filters: how the answers of a wave are combined on the way up ([`sheaf_proto::filter`]), and how
//! those of users' modules are run.
pub use sheaf_proto::filter::*;

mod module;

pub use module::{link_modules, use_engine};

/// The guide's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/filters.md")]
struct Guide;
