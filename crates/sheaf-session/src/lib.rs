//! Sessions: a tree of file servers that a configuration names, started, joined, kept and ended.
//!
//! A [`Config`] is what `sheaf.toml` says with the caller's [`Choices`]: a cluster, its hosts, how they are
//! started. [`join`] finds the session of it that runs; [`Start`] starts one. An [`Address`] is turned into
//! leaves and a path. Nothing here prints, reads a command line, or looks at an environment but the
//! [`Environment`] that it is given.
//!
//! ```
//! use sheaf_session::{Choices, Config, Environment};
//! let choices = Choices { embedded: Some(4), ..Choices::default() };
//! let config = Config::load(&choices, &Environment::default())?;
//! assert_eq!(config.hosts()?.everyone(), "n[1-4]");
//! # Ok::<(), sheaf_session::SessionError>(())
//! ```
#![forbid(unsafe_code)]

pub mod address;
mod builder;
mod choices;
pub mod config;
mod environment;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod gone;
pub mod groups;
mod join;
mod keep;
mod session;
mod sessions;
mod start;
pub mod tokens;
pub mod trust;
pub mod wire;

pub use address::{Address, Purpose, Side};
pub use builder::Builder;
pub use choices::Choices;
pub use config::Config;
pub use environment::Environment;
pub use error::{SessionError, io_text, one_line};
pub use gone::{Gone, NOT_STARTED};
pub use keep::{Open, Post, started};
pub use session::{Found, Session};
pub use sessions::Sessions;
pub use start::{ServerProgram, Start, raise_descriptor_limit, registry};
