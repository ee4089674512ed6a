//! Searching files: what a leaf runs over each file, and how the root prints what all leaves found.
//!
//! [`GrepOptions`] travels to the leaves, where [`GrepOptions::compile`] makes the [`Engine`] that
//! searches file after file into a [`Sink`](crate::entry::Sink). The root prints the merged entries
//! with a [`GrepPrinter`](print::GrepPrinter).
//!
//! The engine is ripgrep's. Options mean what they mean to GNU grep, with these differences:
//! - patterns are regular expressions in the syntax of the `regex` crate (so `-E` changes nothing),
//!   and of several possible matches at one place the first alternative wins, not the longest;
//! - a file is binary when it has a NUL byte; bytes that are not UTF-8 do not make it so;
//! - `-o` shows no context, and what is not shown does not count for the exit status: neither an
//!   empty match under `-o`, nor, under `-L`, the lines of a file that is not listed;
//! - a line that a file has several times is one entry, unless numbers or each host are asked for.
//!
//! ```
//! use sheaf_tools::entry::{Answer, Merged};
//! use sheaf_tools::grep::GrepOptions;
//! let options = GrepOptions { patterns: vec!["^ntp".to_owned()], ..GrepOptions::default() };
//! let mut engine = options.compile()?;
//! let mut answer = Answer::new(options.answer_form());
//! let _ = engine.search_reader(&b"domain 53/udp\nntp 123/udp\n"[..], b"/etc/services", &mut answer);
//! let mut merged = Merged::new();
//! merged.fold_raw(0, &answer.into_bytes())?;
//! assert_eq!(merged.sorted()[0].entry.text, b"ntp 123/udp");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! TBON-FS, section 4.1.2, `pgrep`: equal lines of many files are one group. That tool finds plain
//! text; here patterns are regular expressions. It names files by strided ranges of group indices;
//! here an entry has a path and a set of hosts.
mod aside;
mod client;
mod collect;
mod damage;
mod decompress;
mod engine;
mod error;
mod options;
mod pattern;
pub mod print;
mod select;
mod template;
mod tool;

pub use client::{Found, HELD_BYTES, grep};
pub use engine::Engine;
pub use error::GrepError;
pub use options::{GrepOptions, GrepOutput, LINE_BYTES_MAX};
pub use select::PathFilter;
pub use template::Template;
pub use tool::register;

/// Decodes `data` as each thing that crosses the tree here, for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_any(data: &[u8]) {
    drop(postcard::from_bytes::<tool::GrepParams>(data));
}
