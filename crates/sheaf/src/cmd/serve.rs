//! `sheaf serve`: a server or an inner node, started by the node above it.
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;

/// Serve this host's files for the session that started it
///
/// The node above starts this and gives it everything it needs on standard
/// input. It reads no file of configuration.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct ServeArgs {}

/// Serves until the node above is gone.
pub fn run(_args: &ServeArgs) -> Result<Exit> {
    super::needs_a_tree("serve")
}
