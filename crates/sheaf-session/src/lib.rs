//! Sessions: a tree of file servers that a configuration names, started, joined, kept and ended.
//!
//! A [`Session`] is the main thing. [`Session::join`] joins one that runs, by its name;
//! [`Session::builder`] starts one. Underneath, a [`Config`] is what `sheaf.toml` says with the
//! caller's [`Choices`]; [`Session::find`] joins the session of it that runs, [`Start`] starts it,
//! and [`Reserved`] makes it one that others join. An [`Address`] is turned into hosts and a path.
//! [`Sessions`] are those that a user has running.
//!
//! Nothing here prints, reads a command line, handles signals or ends the process, and nothing
//! looks at an environment but the [`Environment`] that is given. Two things are the process's:
//! starting a tree raises its limit of descriptors as far as it may, and commands that list hosts
//! (`@command:`, group sources) run as its children, with its standard error.
//!
//! ```
//! use sheaf_session::{Environment, Session};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let session = Session::builder(&Environment::default()).embedded(4).start().await?;
//! assert_eq!(session.hosts().to_string(), "n[1-4]");
//! let target = session.address("n[2-3]:/etc/hosts")?;
//! assert_eq!(target.members.len(), 2);
//! session.end().await;
//! # Ok::<(), sheaf_session::SessionError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod address;
mod audit;
pub mod awaited;
mod builder;
mod choices;
mod clients;
pub mod config;
mod elsewhere;
mod environment;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gates;
mod gone;
pub mod groups;
mod join;
mod keep;
pub mod log;
mod past;
mod seat;
mod serving;
mod session;
mod sessions;
mod settings;
mod shut;
mod start;
pub mod tokens;
pub mod trust;
pub mod trusted;
mod users;
pub mod wire;

pub use address::{Address, Purpose, Side};
pub use audit::AuditMode;
pub use builder::SessionBuilder;
pub use choices::Choices;
pub use clients::{ClientSettings, ClientsMay};
pub use config::Config;
pub use environment::{Environment, SESSION_VARIABLE};
pub use error::{SessionError, io_text, one_line};
pub use gone::{Gone, NOT_STARTED, is_starting, is_unreached, is_untried, without_host};
pub use keep::{Come, Reachable, Reserved, is_hopeless, started};
pub use serving::{Serving, registry, services};
pub use session::{Lookup, Session, SessionIdentity};
pub use sessions::Sessions;
pub use start::{ServerProgram, Start, raise_descriptor_limit};
pub use users::Users;

pub use sheaf_core as core;
pub use sheaf_group as group;
pub use sheaf_tree as tree;
