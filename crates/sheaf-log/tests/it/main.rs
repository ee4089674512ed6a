//! From segments to rows, at a host and for its users.
mod guests;
mod limits;
mod looks;
mod users;
