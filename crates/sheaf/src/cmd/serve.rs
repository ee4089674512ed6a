//! `sheaf serve`: a server or an inner node, started by the node above it.
use crate::exit::{Exit, Stop};
use crate::session;
use anyhow::{Context, Result};
use clap::Args;
use sheaf_tree::launch::ServeError;
use std::io::{ErrorKind, IsTerminal};

/// Serve this host's files for the session that started it
///
/// The node above starts this and gives it everything it needs on standard
/// input. It reads no file of configuration.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct ServeArgs {}

/// Serves until the node above is gone.
pub fn run(_args: &ServeArgs) -> Result<Exit> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        let text = "serve is started by the node above it, not by hand; start a session with: sheaf up";
        return Err(Stop::usage(text).into());
    }
    session::raise_descriptor_limit();
    let link = rustix::io::fcntl_dupfd_cloexec(&stdin, 3).context("standard input")?;
    let null = std::fs::File::open("/dev/null").context("/dev/null")?;
    // The link is only closed when no copy of it is left.
    rustix::stdio::dup2_stdin(&null).context("standard input")?;
    match sheaf_tree::launch::serve(link, &session::registry(), &session::servers()) {
        // The node above ended before it said what to do: there is nobody to tell.
        Err(ServeError::Link(error)) if error.kind() == ErrorKind::UnexpectedEof => Ok(Exit::Failed),
        served => Ok(served.map(|()| Exit::Success)?),
    }
}
