//! A host's side of a start over a channel that is to end: `sheaf serve --invited`.
//!
//! The process that the channel knows stays in front: it takes the invitation, starts the node in
//! a session of its own, and ends when the node needs the channel no more.
use super::Invitation;
use super::push::{JOINED, MARK, READY, this_program};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long the parent may take to send the invitation.
const INVITATION_TIMEOUT: Duration = Duration::from_secs(30);
/// What a node writes to its standard output once it belongs to the tree.
const JOINED_BYTE: u8 = b'j';

/// Takes an invitation from `stdin` and starts a node with it: this program with `args`. Returns
/// how the node ended if it did so before it had joined, `None` once it needs nothing more.
///
/// `parent` is the address of the other end of the channel, when it is known.
///
/// # Errors
/// When there is no invitation, or no process can be started.
pub fn invited(stdin: impl AsFd, parent: Option<&str>, args: &[&str]) -> io::Result<Option<i32>> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{MARK}{READY} {}", parent.unwrap_or("-"))?;
    stdout.flush()?;
    let invitation = Invitation::read(stdin, INVITATION_TIMEOUT)?;
    let mut node =
        Command::new(this_program()).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(to) = node.stdin.take() {
        invitation.write(to)?;
    }
    let Some(mut from) = node.stdout.take() else { return Ok(None) };
    let mut said = [0];
    if from.read(&mut said)? == 0 || said[0] != JOINED_BYTE {
        return Ok(Some(node.wait()?.code().unwrap_or(1)));
    }
    writeln!(stdout, "{MARK}{JOINED}")?;
    stdout.flush()?;
    // It closes this when its children are started, or ends.
    let _ = from.read(&mut said);
    Ok(None)
}

/// What a node started by [`invited`] does first: nothing that happens to the channel is to
/// concern it.
///
/// # Errors
/// When there is no such session to be had.
pub fn leave_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Says that the node belongs to the tree; what goes wrong from now on, the tree tells.
pub(super) fn say_joined() {
    let mut stdout = io::stdout();
    // Whoever started it may be gone.
    let _ = stdout.write_all(&[JOINED_BYTE]).and_then(|()| stdout.flush());
    if let Some(null) = null() {
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Closes the channel once `starting` is done: children may be started with what came over it.
pub(super) async fn let_go_after(starting: Option<tokio::task::JoinHandle<()>>) {
    if let Some(starting) = starting {
        let _ = starting.await;
    }
    if let Some(null) = null() {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

fn null() -> Option<std::fs::File> {
    std::fs::OpenOptions::new().write(true).open("/dev/null").ok()
}
