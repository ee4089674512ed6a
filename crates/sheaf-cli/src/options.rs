//! The options of every command, and the types of their values.
mod global;
mod named;

pub use global::{Color, GlobalArgs, option_for_hosts};
pub use named::Named;
