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
mod choices;
pub mod config;
mod environment;
mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod groups;
mod join;
mod keep;
mod sessions;
mod start;
pub mod tokens;
pub mod trust;
pub mod wire;

pub use address::{Address, Place, Purpose, Target};
pub use choices::Choices;
pub use config::Config;
pub use environment::Environment;
pub use error::{SessionError, io_text, one_line};
pub use join::{join, join_with_about};
pub use keep::{Open, Post, started};
pub use sessions::Sessions;
pub use start::{Connected, Start, limits, raise_descriptor_limit, registry};
