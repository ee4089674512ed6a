//! Group file operations: many files on many hosts, opened and operated on as one.
//!
//! A [`Client`] joins a running tree with the names of its hosts. [`Client::gopenat`] opens a
//! path on a set of hosts and gives a [`Group`]; one operation on it is done by every host at
//! once, and the answers are combined in the tree ([`aggregate`]). [`Client::call`] runs a
//! [`tool`] on every host in the same way. The servers' side is [`Servers`]. [`blocking`] has the
//! same calls for programs without an async runtime, and a runnable example.
//!
//! Operations on groups, calls of tools and what servers do with files are told to the
//! [observer](sheaf_core::observer) of their process.
//!
//! Group file operations are after TBON-FS (Brim and Miller, *Group File Operations for Scalable
//! Tools and Middleware*), section 2. Figure 1 there is the oracle of the tests: a loop over the
//! members, whose result an operation must equal. Sheaf differs in that an operation returns its
//! value *and* the status of each member, where section 2.4 returns `E_GROUP` and needs a second
//! call, `gstatus`.
#![forbid(unsafe_code)]

pub mod aggregate;
pub mod audit;
pub mod blocking;
mod client;
pub mod entry;
mod error;
pub mod flags;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod message;
mod observed;
mod server;
mod stat;
mod target;
pub mod tool;

pub use client::{
    Call, Class, Client, Group, Limits, Outcome, Reading, RequestTimes, Unfinished, Value,
};
pub use error::GroupError;
pub use server::{GROUPS, Servers, THREADS_MAX, TOOLS, USER_THREADS_MAX, service_config};
pub use stat::Stat;
pub use target::Target;
