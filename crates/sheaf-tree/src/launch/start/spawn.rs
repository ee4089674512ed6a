//! Starting one process on this machine, with a descriptor that it is to inherit.
use super::push::{name_of_this_program, named, this_program};
use crate::launch::{LeafProgram, Program};
use crate::link::{Ancestor, DoorAddress};
use crate::topology::NodeRef;
use rustix::process::Signal;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};

/// The environment variable that tells a [`crate::launch::LeafProgram`] the number of the
/// descriptor that leads to its parent. Only the number is in the environment, nothing secret.
pub const LINK_VARIABLE: &str = "SHEAF_LINK";

/// The environment variable that tells a [`crate::launch::LeafProgram`] that the channel on its
/// standard error is to be let go of once it has joined.
pub const DETACH_VARIABLE: &str = "SHEAF_DETACH";

/// What is run at `child`, if it is a leaf with a program of somebody else's.
pub(in crate::launch) fn leaf_program(
    program: &Program,
    child: NodeRef<'_>,
    parent: &Ancestor,
) -> Option<LeafProgram> {
    let mut leaf = program.leaf.clone().filter(|_| child.leaf_index().is_some())?;
    if leaf.placed {
        let port = match &parent.address {
            DoorAddress::Tcp(all) => all.first().map_or(0, SocketAddr::port),
            DoorAddress::Abstract(_) => 0,
        };
        let host = child.parent().map(|above| above.host()).unwrap_or_default();
        let rank = parent.rank.to_string();
        leaf.args.extend([host, port.to_string(), rank, child.host(), child.rank().to_string()]);
    }
    Some(leaf)
}

/// Runs a program of somebody else's as a leaf, which inherits `channel`.
pub(in crate::launch) fn leaf_command(leaf: &LeafProgram, channel: OwnedFd) -> Command {
    let mut command = Command::new(&leaf.path);
    command.args(&leaf.args).stdin(Stdio::null());
    command.env(LINK_VARIABLE, channel.as_raw_fd().to_string());
    inherit(&mut command, channel);
    // A process group of its own: the terminal's Ctrl-C is for the root, which ends the others.
    command.process_group(0);
    command
}

/// What is started in place of a program to run it with another user's rights, and never asks.
pub(in crate::launch) const SUDO: [&str; 3] = ["sudo", "-n", "--"];

/// Starts a node of `program`, which is a server if `is_leaf`; `channel` (its link, or its
/// invitation) is its standard input or, for a leaf program of somebody else, a descriptor it
/// inherits.
pub(in crate::launch) fn run_program(
    program: &Program,
    is_leaf: bool,
    leaf: Option<&LeafProgram>,
    channel: OwnedFd,
) -> io::Result<Child> {
    let mut command = match leaf {
        Some(leaf) => leaf_command(leaf, channel),
        None => {
            let mut command = if program.sudo && is_leaf {
                let mut command = Command::new(SUDO[0]);
                command.args(&SUDO[1..]).arg(seen_by_others(&program.path));
                command
            } else {
                named(&program.path)
            };
            command.args(&program.args).stdin(Stdio::from(channel)).stdout(Stdio::null());
            command.process_group(0);
            command
        }
    };
    command.spawn()
}

/// The path of a program for another process than this one to start. What sudo allows has a name.
fn seen_by_others(path: &Path) -> PathBuf {
    if path == this_program()
        && let Some(name) = name_of_this_program()
    {
        return name;
    }
    let own = path.strip_prefix("/proc/self").ok();
    own.map_or_else(
        || path.to_owned(),
        |rest| Path::new("/proc").join(process::id().to_string()).join(rest),
    )
}

/// Lets the new process keep `fd` under its number. No other process that is started meanwhile
/// gets it: the mark that closes it is removed in the new process only.
#[allow(unsafe_code)]
fn inherit(command: &mut Command, fd: OwnedFd) {
    let keep = move || Ok(rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty())?);
    // SAFETY: between fork and exec only calls that are safe in a signal handler are allowed.
    // The closure makes one `fcntl` call and allocates nothing.
    unsafe { command.pre_exec(keep) };
}

/// Lets the new process be asked to end (by `SIGTERM`) when the thread that has started it ends,
/// however that comes.
#[allow(unsafe_code)]
pub(in crate::launch) fn end_with_this_thread(command: &mut Command) {
    let ask = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?);
    // SAFETY: as above. The closure makes one `prctl` call and allocates nothing.
    unsafe { command.pre_exec(ask) };
}

/// Gives the new process a session of its own, which has no terminal.
#[allow(unsafe_code)]
pub(in crate::launch) fn own_session(command: &mut Command) {
    let leave = || Ok(rustix::process::setsid().map(drop)?);
    // SAFETY: as above. The closure makes one `setsid` call and allocates nothing.
    unsafe { command.pre_exec(leave) };
}
