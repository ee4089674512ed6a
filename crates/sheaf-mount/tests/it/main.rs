//! The owner of files by itself, and mounted by FUSE without a session between.
mod locks;
mod model;
mod owner;
mod support;
mod view;
