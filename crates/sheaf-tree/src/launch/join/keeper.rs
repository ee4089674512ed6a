//! Who waits for the end of an inner node that was started over a channel: a small process on its
//! host, as its parent there. When it has ended by a fault (of a filter, nearly always), that is
//! told to the node above, over a connection like the node's own. Nobody else can see how it ended.
//!
//! It is a copy of the process that has taken the invitation, which ends with the channel.
use super::invitation::Invitation;
use super::invited::{INNER_BYTE, LEAF_BYTE, UNREACHED_BYTE, null};
use crate::driver::OwnFault;
use crate::launch::start::brood::{fork, is_alone};
use crate::launch::start::family::death;
use crate::launch::start::push::{named, this_program};
use crate::link::tls::Keys;
use crate::link::wire::{WireCaller, report_end};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

/// How long the node above, and each beyond it, may take to hear of the end.
const TELL_TIMEOUT: Duration = Duration::from_secs(5);
/// What lists of processes call such a process.
const NAME: &std::ffi::CStr = c"sheaf-keeper";

/// What follows from its code, or from what follows it.
const ENDED_BYTE: u8 = b'e';
const FAILED_BYTE: u8 = b'f';
/// The most that is said of a failure.
const FAILURE_BYTES_MAX: u64 = 1 << 10;

/// What has become of a node that was to be started.
pub(super) enum KeptNode {
    /// It belongs to the tree; the channel is not needed any more when this is closed.
    Joined(PipeReader),
    /// Nobody answers where its parent is to be.
    Unreached,
    /// It has ended before, with this code.
    Ended(i32),
}

/// Starts a node: this program with `args`, and `invitation` to read.
pub(super) fn start(invitation: &Invitation, args: &[&str]) -> io::Result<KeptNode> {
    let (mut said, say) = io::pipe()?;
    if is_alone() {
        if fork()?.is_none() {
            drop(said);
            keep_and_end(invitation, args, say);
        }
        drop(say);
    } else {
        // A copy of a process with threads can do nothing; then nobody waits for the node's end.
        let (invitation, args) =
            (invitation.clone(), args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        std::thread::Builder::new().spawn(move || {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            begin(&invitation, &args, &say);
        })?;
    }
    let mut byte = [0];
    said.read_exact(&mut byte)?;
    match byte[0] {
        LEAF_BYTE | INNER_BYTE => Ok(KeptNode::Joined(said)),
        UNREACHED_BYTE => Ok(KeptNode::Unreached),
        ENDED_BYTE => {
            said.read_exact(&mut byte)?;
            Ok(KeptNode::Ended(byte[0].into()))
        }
        _ => {
            let mut text = String::new();
            said.take(FAILURE_BYTES_MAX).read_to_string(&mut text)?;
            Err(io::Error::other(text))
        }
    }
}

/// In the copy: all that it ever does.
fn keep_and_end(invitation: &Invitation, args: &[&str], say: PipeWriter) -> ! {
    // A name for people alone; and what becomes of the channel is not to concern it.
    let _ = rustix::thread::set_name(NAME);
    let _ = rustix::process::setsid();
    if let Some(mut node) = begin(invitation, args, &say) {
        // From here on nothing holds the channel, which ends with the one that has taken it.
        if let Some(null) = null() {
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
        drop(say);
        if let Ok(status) = node.wait() {
            tell(invitation, status);
        }
    }
    std::process::exit(0)
}

/// Starts the node, says what has become of it, and returns when it needs the channel no more: with
/// it, if its end is worth waiting for.
fn begin(invitation: &Invitation, args: &[&str], mut say: &PipeWriter) -> Option<Child> {
    let begun = begin_with(invitation, args, say);
    if let Err(error) = &begun {
        let _ = say.write_all(&[FAILED_BYTE]).and_then(|()| write!(say, "{error}"));
    }
    begun.ok().flatten()
}

fn begin_with(
    invitation: &Invitation,
    args: &[&str],
    mut say: &PipeWriter,
) -> io::Result<Option<Child>> {
    let mut node =
        named(&this_program()).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(to) = node.stdin.take() {
        invitation.write(to)?;
    }
    let (mut from, mut byte) = (node.stdout.take(), [0]);
    let mut read = || from.as_mut().map_or(Ok(0), |from| from.read(&mut byte));
    let has_spoken = read()? > 0;
    match byte[0] {
        LEAF_BYTE | INNER_BYTE if has_spoken => {}
        UNREACHED_BYTE if has_spoken => {
            node.wait()?;
            say.write_all(&[UNREACHED_BYTE])?;
            return Ok(None);
        }
        _ => {
            let code = node.wait()?.code().unwrap_or(1);
            say.write_all(&[ENDED_BYTE, u8::try_from(code).unwrap_or(1)])?;
            return Ok(None);
        }
    }
    say.write_all(&byte)?;
    let is_inner = byte[0] == INNER_BYTE;
    // It closes this when its children are started, or ends.
    if let Some(from) = &mut from {
        let _ = from.read(&mut byte);
    }
    Ok(is_inner.then_some(node))
}

/// Tells the node above, or one above that, how the node of `invitation` has ended.
fn tell(invitation: &Invitation, status: ExitStatus) {
    if death(status).fault == OwnFault::No {
        return;
    }
    let Invitation { secret, rank, host, ancestors, .. } = invitation;
    let Ok(keys) = invitation.credentials.as_ref().map(Keys::new).transpose() else { return };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    let user = rustix::process::geteuid();
    let caller = WireCaller { secret, keys: keys.as_ref(), rank: *rank, host, user };
    runtime.block_on(async {
        for ancestor in ancestors {
            let told = report_end(ancestor, &caller, status.into_raw());
            if matches!(tokio::time::timeout(TELL_TIMEOUT, told).await, Ok(Ok(()))) {
                return;
            }
        }
    });
}
