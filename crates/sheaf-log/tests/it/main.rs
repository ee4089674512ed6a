//! From segments to rows, at a host and for its users.
mod looks;
mod users;
