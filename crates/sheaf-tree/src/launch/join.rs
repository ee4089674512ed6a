//! How a node, a host or a client comes into a session that runs.
pub mod attach;
pub(super) mod attached;
pub(super) mod beside;
pub(super) mod client;
pub(super) mod desk;
pub mod invitation;
pub(super) mod invited;
pub(super) mod keeper;
mod machine;
pub(super) mod peer;
pub(super) mod place;
pub(super) mod search;
pub(super) mod serve;
mod sole;
