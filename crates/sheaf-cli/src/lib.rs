//! The parts that all programs of Sheaf share: global options, sessions, output, exit status.
//!
//! `sheaf` is the program that people call. Heavy capabilities are programs of their own beside it
//! ([`companion`]), which read the same options, open sessions in the same way ([`session`]) and
//! report in the same way ([`output`]). Nothing here is meant for other programs: those use
//! `sheaf-session`.
#![allow(missing_docs, clippy::missing_errors_doc)] // No program but Sheaf's own uses this.

pub mod addresses;
pub mod arguments;
pub mod cli;
pub mod companion;
pub mod doctor;
pub mod exit;
pub mod leftovers;
pub mod log;
pub mod mode;
pub mod notices;
pub mod options;
pub mod output;
pub mod program;
pub mod secret;
pub mod session;
pub mod size;
pub mod stdio;
