//! The tools as library functions over group operations.
//!
//! [`entry`] is what their answers are made of and how equal answers of many hosts are folded;
//! [`grep`] searches files.
#![forbid(unsafe_code)]

pub mod entry;
pub mod grep;
