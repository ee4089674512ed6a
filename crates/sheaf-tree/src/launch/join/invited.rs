//! A host's side of a start over a channel that is to end: `sheaf serve --invited`.
//!
//! The process that the channel knows stays in front: it takes the invitation, starts the node in
//! a session of its own, and ends when the node needs the channel no more.
use super::invitation::Over;
use super::keeper::{self, KeptNode};
use crate::launch::start::push::{JOINED, LINKED, MARK, READY};
use crate::launch::start::spawn::{DETACH_VARIABLE, leaf_command};
use crate::launch::{Invitation, LeafProgram};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long the parent may take to send the invitation.
const INVITATION_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a leaf's program may take to join.
const LEAF_TIMEOUT: Duration = Duration::from_secs(15);
/// The first descriptor that has no meaning by its number.
const FIRST_OWN: i32 = 3;
/// A process that ends closes its descriptors so long before that can be seen.
const LEAF_LOOK: Duration = Duration::from_millis(20);
/// What a node writes to its standard output once it belongs to the tree.
pub(super) const LEAF_BYTE: u8 = b'j';
/// The same of one that combines.
pub(super) const INNER_BYTE: u8 = b'i';
/// And when nobody answers where its parent is to be.
pub(super) const UNREACHED_BYTE: u8 = b'u';

/// The two ends of the login that has started this process, as sshd names them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Login<'a> {
    /// Where it came from: there the node above can be reached.
    pub parent: Option<&'a str>,
    /// The address of this host that it came to.
    pub own: Option<&'a str>,
}

impl<'a> Login<'a> {
    /// What sshd says of a login in `SSH_CONNECTION`.
    #[must_use]
    pub fn of(connection: &'a str) -> Self {
        let mut words = connection.split_whitespace();
        Self { parent: words.next(), own: words.nth(1) }
    }
}

/// What has become of an invitation.
#[derive(Debug)]
pub enum Invited {
    /// The node needs nothing more (`None`), or has ended with this code before it had joined.
    Done(Option<i32>),
    /// The channel is the link, and this process the node: [`crate::launch::serve_here`] goes on.
    Here(Box<LinkedNode>),
}

/// A channel that is the link of a node.
#[derive(Debug)]
pub struct LinkedNode {
    pub(in crate::launch) invitation: Invitation,
    pub(in crate::launch) from: OwnedFd,
    /// Where to write, when it is not where to read.
    pub(in crate::launch) to: Option<OwnedFd>,
    /// An address of this host.
    pub(in crate::launch) own: Option<IpAddr>,
}

/// Takes an invitation from `stdin` and starts a node with it: this program with `args`.
///
/// # Errors
/// When there is no invitation, or no process can be started.
pub fn invited(stdin: impl AsFd, login: &Login<'_>, args: &[&str]) -> io::Result<Invited> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{MARK}{READY} {}", login.parent.unwrap_or("-"))?;
    stdout.flush()?;
    let mut invitation = Invitation::read(stdin, INVITATION_TIMEOUT)?;
    if let Some(leaf) = invitation.leaf.take() {
        let ended = start_leaf(&leaf, &invitation)?;
        if ended.is_none() {
            writeln!(stdout, "{MARK}{JOINED}")?;
            stdout.flush()?;
        }
        return Ok(Invited::Done(ended));
    }
    if invitation.over == Over::Channel {
        return take_channel(&mut stdout, invitation, login);
    }
    match keeper::start(&invitation, args)? {
        KeptNode::Unreached => take_channel(&mut stdout, invitation, login),
        KeptNode::Ended(code) => Ok(Invited::Done(Some(code))),
        KeptNode::Joined(mut needed) => {
            writeln!(stdout, "{MARK}{JOINED}")?;
            stdout.flush()?;
            let _ = needed.read(&mut [0]);
            Ok(Invited::Done(None))
        }
    }
}

/// Says that the channel is the link from here on, and takes it from standard input and output,
/// which nothing else that runs here is to touch.
fn take_channel(
    stdout: &mut impl Write,
    invitation: Invitation,
    login: &Login<'_>,
) -> io::Result<Invited> {
    writeln!(stdout, "{MARK}{LINKED}")?;
    stdout.flush()?;
    let from = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST_OWN)?;
    let to = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), FIRST_OWN)?;
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    rustix::stdio::dup2_stdout(std::fs::OpenOptions::new().write(true).open("/dev/null")?)?;
    let (here, there) = (fstat(&from)?, fstat(&to)?);
    let is_one = FileType::from_raw_mode(here.st_mode) == FileType::Socket
        && (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino);
    let own = login.own.and_then(|own| own.parse().ok());
    Ok(Invited::Here(Box::new(LinkedNode { invitation, from, to: (!is_one).then_some(to), own })))
}

/// Starts a program of somebody else's as a leaf, and waits until it has joined; gives how it ended
/// if it did so before.
fn start_leaf(leaf: &LeafProgram, invitation: &Invitation) -> io::Result<Option<i32>> {
    let (theirs, ours) = io::pipe()?;
    // A pipe takes this much at once.
    invitation.write(&ours)?;
    let mut command = leaf_command(leaf, theirs.into());
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", leaf.path.display()))
    };
    let mut node =
        command.stdout(Stdio::null()).env(DETACH_VARIABLE, "1").spawn().map_err(named)?;
    // The command holds this end too.
    drop(command);
    let deadline = Instant::now() + LEAF_TIMEOUT;
    while Instant::now() < deadline {
        // It lets go of the other end when it has joined, or ends.
        let mut closed = [PollFd::new(&ours, PollFlags::empty())];
        poll(&mut closed, Some(&Timespec::try_from(LEAF_LOOK).expect("it is short")))?;
        if closed[0].revents().is_empty() {
            continue;
        }
        let ended = Instant::now() + LEAF_LOOK;
        while Instant::now() < ended {
            if let Some(status) = node.try_wait()? {
                return Ok(Some(status.code().unwrap_or(1)));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        return Ok(None);
    }
    let late =
        format!("{} does not join the tree: is it linked with libsheaf?", leaf.path.display());
    node.kill()?;
    Err(io::Error::new(io::ErrorKind::TimedOut, late))
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

/// Has this process, and those that it starts, go on when a terminal goes away or its login ends:
/// nodes end with their parents.
#[allow(unsafe_code)]
pub fn ignore_hangup() {
    // SAFETY: no handler is installed that could run at any moment; the call cannot fail for this
    // signal.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

/// Has a write beyond the limit of a file's size fail with `EFBIG`: the signal would end the server,
/// and with it the work of all others.
#[allow(unsafe_code)]
pub fn ignore_size_limit() {
    // SAFETY: as of [`ignore_hangup`].
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Leaves root's session keyring: threads that act for other users would still possess its keys.
/// To be called before there are other threads, which keep what they begin with.
#[allow(unsafe_code)]
pub fn leave_keyring() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (join, no_name): (libc::c_int, *const libc::c_char) =
        (KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null());
    // SAFETY: the call takes a name or none, and changes the keyring of this thread alone. A kernel
    // without keyrings refuses it, and has no keys.
    unsafe { libc::syscall(libc::SYS_keyctl, join, no_name) };
}

/// An operation of `keyctl(2)`: a new session keyring, with nothing in it.
const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;

/// Says that nobody answers where the node's parent is to be.
pub(in crate::launch) fn say_unreached() {
    let mut stdout = io::stdout();
    // Whoever started it may be gone.
    let _ = stdout.write_all(&[UNREACHED_BYTE]).and_then(|()| stdout.flush());
}

/// Says that the node belongs to the tree; what goes wrong from now on, the tree tells.
pub(in crate::launch) fn say_joined(is_leaf: bool) {
    let mut stdout = io::stdout();
    let byte = if is_leaf { LEAF_BYTE } else { INNER_BYTE };
    // Whoever started it may be gone.
    let _ = stdout.write_all(&[byte]).and_then(|()| stdout.flush());
    if let Some(null) = null() {
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Closes the channel once `starting` is done: children may be started with what came over it.
pub(in crate::launch) async fn let_go_after(starting: Option<tokio::task::JoinHandle<()>>) {
    if let Some(starting) = starting {
        let _ = starting.await;
    }
    if let Some(null) = null() {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

pub(super) fn null() -> Option<std::fs::File> {
    std::fs::OpenOptions::new().write(true).open("/dev/null").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of this thread's session keyring.
    #[allow(unsafe_code)]
    fn session_keyring() -> libc::c_long {
        const KEYCTL_GET_KEYRING_ID: libc::c_int = 0;
        const KEY_SPEC_SESSION_KEYRING: libc::c_int = -3;
        let create: libc::c_int = 0;
        // SAFETY: only numbers are handed over.
        unsafe {
            libc::syscall(libc::SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, create)
        }
    }

    #[test]
    fn server_of_root_has_a_session_keyring_of_its_own() {
        let keyrings = std::thread::spawn(|| {
            let before = session_keyring();
            leave_keyring();
            (before, session_keyring())
        });
        let (before, after) = keyrings.join().unwrap();
        if after == -1 {
            return;
        }
        assert_eq!(before != after, rustix::process::geteuid().is_root());
    }
}
