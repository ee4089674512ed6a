//! Sheaf tree.
pub mod filter;
