//! Starting one process on this machine, with a descriptor that it is to inherit.
use super::Program;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The environment variable that tells a [`super::LeafProgram`] the number of the descriptor that
/// leads to its parent. Only the number is in the environment, nothing secret.
pub const LINK_VARIABLE: &str = "SHEAF_LINK";

/// Starts a node of `program`; `channel` (its link, or its invitation) is its standard input or,
/// for a leaf program of somebody else, a descriptor it inherits.
pub(super) fn fork(program: &Program, is_leaf: bool, channel: OwnedFd) -> io::Result<Child> {
    let leaf = program.leaf.as_ref().filter(|_| is_leaf);
    let mut command = match leaf {
        Some(leaf) => {
            let mut command = Command::new(&leaf.path);
            command.args(&leaf.args).stdin(Stdio::null());
            command.env(LINK_VARIABLE, channel.as_raw_fd().to_string());
            inherit(&mut command, channel);
            command
        }
        None => {
            let mut command = Command::new(&program.path);
            command.args(&program.args).stdin(Stdio::from(channel)).stdout(Stdio::null());
            command
        }
    };
    // A process group of its own: the terminal's Ctrl-C is for the root, which ends the others.
    command.process_group(0);
    command.spawn()
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
