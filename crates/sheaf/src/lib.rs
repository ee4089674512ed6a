//! Sheaf: the files of ten thousand machines, opened as one. This library is the façade: every
//! capability of the `sheaf` binary under one name.
//!
//! A tool is built from [`group`] (open many files, use one descriptor, get one combined answer)
//! over a [`tree`] (multicast down, reduction up). The words both speak are in [`core`].
//!
//! ```
//! use sheaf::core::RangeSet;
//! let answered: RangeSet = (0..64).filter(|leaf| *leaf != 7).collect();
//! assert_eq!(answered.to_string(), "0-6,8-63");
//! ```
#![forbid(unsafe_code)]

pub use sheaf_core as core;
pub use sheaf_file as file;
pub use sheaf_group as group;
pub use sheaf_tools as tools;
pub use sheaf_tree as tree;
