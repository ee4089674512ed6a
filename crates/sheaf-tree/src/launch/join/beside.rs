//! The nodes of a host that has joined by itself: its server is this process, inner nodes run
//! beside it.
use super::serve::{ServeError, serve_joined};
use crate::driver::{OwnFault, Shared};
use crate::launch::start::family::death;
use crate::launch::start::push::this_program;
use crate::launch::start::spawn::run_program;
use crate::launch::{Invitation, Program};
use crate::service::Services;
use rustix::process::{Pid, Signal, kill_process};
use sheaf_core::lock;
use std::io;
use std::process::Child;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long nodes beside this one may take to end when it has.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const END_LOOK: Duration = Duration::from_millis(10);
/// How often it is looked whether one has ended by itself, and how long after that it is started
/// again: when the session is over, this process ends before. While nothing helps, the pause
/// doubles.
const AGAIN_LOOK: Duration = Duration::from_millis(500);
const AGAIN_PAUSE_MIN: Duration = Duration::from_secs(2);
const AGAIN_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Runs the node of the last of `invitations` in this process, and the others in processes beside
/// it: this program with `args`. They end with it, and are started again when they end before.
/// Whoever asks it to end has ended a whole job if it is `in_job`, and tells its root why; so it
/// leaves a little later.
///
/// # Errors
/// See [`ServeError`]. That one beside it fails is the tree's business.
pub fn serve_host(
    mut invitations: Vec<Invitation>,
    (args, in_job): (&[&str], bool),
    services: &Services,
) -> Result<(), ServeError> {
    let own = invitations.pop().ok_or(ServeError::Assignment)?;
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    let program = Program::new(this_program(), args);
    let mut nodes = Vec::new();
    for invitation in invitations {
        nodes.push(NodeBeside::start(&program, invitation)?);
    }
    let node = Arc::new(OnceLock::new());
    let _beside = Beside::keep(program, nodes, Arc::clone(&node));
    let (theirs, ours) = io::pipe()?;
    own.write(ours)?;
    serve_joined(theirs.into(), in_job, &node, services)
}

/// Lets this process end with the one that started it.
///
/// # Errors
/// When the system does not know how.
pub fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?)
}

/// A node beside this process.
struct NodeBeside {
    invitation: Invitation,
    child: Child,
    begun: Instant,
    /// When it was seen that it has ended, and how long after that it is started again.
    ended: Option<Instant>,
    pause: Duration,
}

impl NodeBeside {
    fn start(program: &Program, invitation: Invitation) -> io::Result<Self> {
        let child = spawn(program, &invitation)?;
        Ok(Self { invitation, child, begun: Instant::now(), ended: None, pause: AGAIN_PAUSE_MIN })
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Lets the tree know if it has ended by a fault: from here alone can that be seen.
    fn tell_of_fault(&mut self, server: &OnceLock<Weak<Shared>>) {
        let Ok(Some(status)) = self.child.try_wait() else { return };
        let death = death(status);
        let is_sure = death.fault == OwnFault::Yes;
        if let Some(server) = server.get().and_then(Weak::upgrade).filter(|_| is_sure) {
            server.with_node(0, |node| node.tell_of_crash(self.invitation.rank, &death.how));
        }
    }

    fn tell_of_end(&mut self) {
        let cause = match self.child.try_wait() {
            Ok(Some(status)) => death(status).how,
            Ok(None) => return,
            Err(error) => format!("what has become of its process is not known: {error}"),
        };
        let (rank, pause) = (self.invitation.rank, self.pause.as_secs());
        tracing::info!(rank, cause, "a node beside this one is started again in {pause} s");
    }

    /// Starts it again, if it has ended long enough ago.
    fn look_after(&mut self, program: &Program, server: &OnceLock<Weak<Shared>>) {
        if !self.has_ended() {
            return;
        }
        if self.ended.is_none() {
            self.tell_of_fault(server);
            if self.begun.elapsed() > AGAIN_PAUSE_MAX {
                self.pause = AGAIN_PAUSE_MIN;
            }
            self.tell_of_end();
        }
        if self.ended.get_or_insert_with(Instant::now).elapsed() < self.pause {
            return;
        }
        (self.ended, self.begun) = (None, Instant::now());
        self.pause = (self.pause * 2).min(AGAIN_PAUSE_MAX);
        match spawn(program, &self.invitation) {
            Ok(child) => self.child = child,
            Err(error) => tracing::warn!(%error, "a node beside this one was not started again"),
        }
    }
}

fn spawn(program: &Program, invitation: &Invitation) -> io::Result<Child> {
    let (theirs, ours) = io::pipe()?;
    let child = run_program(program, false, None, theirs.into())?;
    // A pipe takes this much at once.
    invitation.write(ours)?;
    Ok(child)
}

/// The nodes beside this process, and whether they are to end.
struct NodesBeside {
    all: Vec<NodeBeside>,
    over: bool,
}

/// Keeps the nodes beside this process running until it is dropped: when one is lost, the tree has
/// its place for it still.
struct Beside {
    nodes: Arc<Mutex<NodesBeside>>,
    keeper: Option<JoinHandle<()>>,
}

impl Beside {
    fn keep(program: Program, all: Vec<NodeBeside>, server: Arc<OnceLock<Weak<Shared>>>) -> Self {
        let none = all.is_empty();
        let nodes = Arc::new(Mutex::new(NodesBeside { all, over: false }));
        let shared = Arc::clone(&nodes);
        let keep = move || {
            while !lock(&shared).look_after(&program, &server) {
                std::thread::park_timeout(AGAIN_LOOK);
            }
        };
        // Where there is no thread for it, a node that is lost stays so.
        let begin = || std::thread::Builder::new().name("beside".to_owned()).spawn(keep);
        let warn = |error| tracing::warn!(%error, "nodes beside this one are not looked after");
        Self { nodes, keeper: (!none).then(begin).and_then(|begun| begun.map_err(warn).ok()) }
    }
}

impl NodesBeside {
    /// Starts again what has ended; whether nothing is to be looked after any more.
    fn look_after(&mut self, program: &Program, server: &OnceLock<Weak<Shared>>) -> bool {
        if !self.over {
            self.all.iter_mut().for_each(|node| node.look_after(program, server));
        }
        self.over
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let mut nodes = lock(&self.nodes);
        nodes.over = true;
        for node in nodes.all.iter_mut().filter_map(|node| (!node.has_ended()).then_some(node)) {
            let _ = kill_process(Pid::from_child(&node.child), Signal::TERM);
        }
        let deadline = Instant::now() + END_TIMEOUT;
        while !nodes.all.iter_mut().all(NodeBeside::has_ended) && Instant::now() < deadline {
            std::thread::sleep(END_LOOK);
        }
        for node in nodes.all.iter_mut().filter_map(|node| (!node.has_ended()).then_some(node)) {
            let _ = node.child.kill();
            let _ = node.child.wait();
        }
        drop(nodes);
        if let Some(keeper) = self.keeper.take() {
            keeper.thread().unpark();
            let _ = keeper.join();
        }
    }
}
