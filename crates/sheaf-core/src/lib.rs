//! The words of Sheaf: host sets, range sets, member sets, statuses and errors.
//!
//! Nothing here does I/O, but to ask the kernel who it is. Every other crate speaks in these types, so that one noun has one
//! meaning: a [`RangeSet`] is a set of leaves, a [`MemberSet`] a set of members of a group, an
//! [`Errno`] the reason one of them failed. What does an operation tells it to an
//! [`Observer`](observer::Observer), so that a trace sees it and neither knows the other.
//!
//! ```
//! use sheaf_core::RangeSet;
//! let all = RangeSet::full(64);
//! let lost: RangeSet = [3, 7, 8, 9].into_iter().collect();
//! assert_eq!(all.difference(&lost).len(), 60);
//! assert_eq!(lost.to_string(), "3,7-9");
//! ```
#![deny(unsafe_code)]

mod boot;
mod errno;
pub mod files;
pub mod filter_abi;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod hostset;
mod lock;
mod memberset;
pub mod observer;
pub mod place;
mod rangeset;
mod unprintable;
pub mod varint;

pub use boot::{boot_id, machine_names};
pub use errno::Errno;
pub use lock::lock;
pub use memberset::MemberSet;
pub use rangeset::{RANGES_MAX, RangeSet};
pub use sheaf_recorder::ProcessStat;
pub use unprintable::is_unprintable;
