//! The tools as library functions over group operations.
//!
//! Each tool has a part that runs at the leaves, registered by name (see [`tools`]), and an
//! async function for the root that runs it on a [`sheaf_group::Client`]. The functions print
//! nothing: they hand on merged entries and say who contributed.
//!
//! Parallel Unix tools over group operations: TBON-FS, section 4.1 (after Gropp and Lusk, *Scalable
//! Unix Tools on Parallel Processors*, 1994, who mark each line with its host). Equal output of
//! several hosts is one entry with the set of these hosts.
#![forbid(unsafe_code)]

pub mod about;
pub mod cp;
pub mod edit;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod grep;
mod paths;
pub mod read;
pub mod report;
mod target;

pub use sheaf_group::entry;
pub use target::{ArgumentOrder, Target, ToolError};

/// Every tool, for the servers of a session.
#[must_use]
pub fn tools() -> sheaf_group::tool::Tools {
    let mut tools = sheaf_group::tool::Tools::default();
    cp::register(&mut tools);
    edit::register(&mut tools);
    about::register(&mut tools);
    grep::register(&mut tools);
    read::register(&mut tools);
    report::register(&mut tools);
    tools
}
