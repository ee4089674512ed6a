//! The nodes of a host that has joined by itself: its server is this process, inner nodes run beside it.
use super::push::this_program;
use super::serve::{ServeError, serve};
use super::spawn::fork;
use super::{Invitation, Program};
use crate::filter::Registry;
use crate::service::Services;
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::process::Child;
use std::time::{Duration, Instant};

/// How long nodes beside this one may take to end when it has.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const END_LOOK: Duration = Duration::from_millis(10);

/// Runs the node of the last of `invitations` in this process, and the others in processes beside it:
/// this program with `args`. They end with it.
///
/// # Errors
/// See [`ServeError`]. That one beside it fails is the tree's business.
pub fn serve_host(
    mut invitations: Vec<Invitation>,
    args: &[&str],
    registry: &Registry,
    services: &dyn Services,
) -> Result<(), ServeError> {
    let own = invitations.pop().ok_or(ServeError::Assignment)?;
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    let program = Program::new(this_program(), args);
    let mut beside = Beside(Vec::new());
    for invitation in invitations {
        let (theirs, ours) = io::pipe()?;
        beside.0.push(fork(&program, None, theirs.into())?);
        // A pipe takes this much at once.
        invitation.write(ours)?;
    }
    let (theirs, ours) = io::pipe()?;
    own.write(ours)?;
    serve(theirs.into(), registry, services)
}

/// Lets this process end with the one that started it.
///
/// # Errors
/// When the system does not know how.
pub fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?)
}

struct Beside(Vec<Child>);

impl Drop for Beside {
    fn drop(&mut self) {
        let ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        for child in self.0.iter_mut().filter_map(|child| (!ended(child)).then_some(child)) {
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
        let deadline = Instant::now() + END_TIMEOUT;
        while !self.0.iter_mut().all(ended) && Instant::now() < deadline {
            std::thread::sleep(END_LOOK);
        }
        for child in self.0.iter_mut().filter_map(|child| (!ended(child)).then_some(child)) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
