//! Sheaf: the files of ten thousand machines, opened as one. This library is the façade: every
//! capability of the `sheaf` binary under one name.
//!
//! A [`Session`] is a running tree of file servers, started or joined. Its [`Client`] opens a path
//! on many hosts as one [`Group`](group::Group): an operation on it is done by every host at once,
//! and the answers are combined on the way back. [`tools`] (grep, cat, cp, …) and [`group`]
//! operations take a [`Target`], which is what an address such as `n[1-4]:/etc/*.conf` comes to.
//! Below them are the [`tree`] (multicast down, reduction up), to which a program can add services
//! of its own, and the words that all speak, in [`core`].
//!
//! ```
//! use sheaf::group::message::DataAggregation;
//! use sheaf::{Environment, Session};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! // Eight servers in this process; `.cluster("lab")` would start those of a `sheaf.toml`, and
//! // `Session::join(&environment, "lab")` join a session that `sheaf up lab` has started.
//! let session = Session::builder(&Environment::default()).embedded(8).start().await?;
//! let target = session.address("n[1-4]:/proc/loadavg")?;
//! let group = session.client().gopenat(&target.members, &target.path, 0, 0).await?;
//! let average = DataAggregation::by_name("average", &[1], 1 << 20, 0).expect("there is such a one");
//! let reading = group.read(64, average).await?;
//! println!("{:?} on {} hosts", reading.value, reading.outcome.status.count);
//! session.end().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`services`] lists what the servers of a session do, by name; a session that is started without
//! a choice has all of it. [`mount`] is the mounted view. With the feature `archive`, the module
//! `archive` keeps trees of files in a store; with `trace`, the module `trace` records operations and
//! reports on them.
//!
//! `examples/` has a program for each: `cargo run --example group_read`.
#![forbid(unsafe_code)]

#[cfg(feature = "archive")]
pub use sheaf_archive as archive;
pub use sheaf_core as core;
pub use sheaf_file as file;
pub use sheaf_group as group;
pub use sheaf_mount as mount;
pub use sheaf_session as session;
pub use sheaf_tools as tools;
#[cfg(feature = "trace")]
pub use sheaf_trace as trace;
pub use sheaf_tree as tree;

pub use sheaf_group::{Client, Target};
pub use sheaf_session::{Environment, Session, SessionError, one_line, services};

use std::error::Error;
use std::process::ExitCode;

/// The exit code with which the command `sheaf` ends for such an error: 2 for what cannot be meant,
/// 3 where no session can be had, 4 for anything else. [`one_line`] says what it is.
#[must_use]
pub fn exit_code(error: &(dyn Error + 'static)) -> ExitCode {
    match error.downcast_ref::<SessionError>() {
        Some(error) if error.is_usage() => ExitCode::from(2),
        Some(error) if error.is_unreachable() => ExitCode::from(3),
        _ => ExitCode::from(4),
    }
}
