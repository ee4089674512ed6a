//! The command that runs while a trace is taken.
use crate::record::{child, places};
use rustix::process::{Pid, Signal, kill_process};
use sheaf_cli::exit::{Exit, io_text};
use sheaf_cli::output::{self, printable};
use sheaf_group::Client;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

/// One that was told to end has so long until it is said that it is waited for.
const SILENT: Duration = Duration::from_secs(1);
/// What a shell says of a program that SIGTERM has ended.
const ENDED_BY_TERM: i32 = 128 + Signal::TERM.as_raw();

/// What runs meanwhile, if anything does.
#[derive(Default)]
pub struct Meanwhile {
    command: Vec<OsString>,
    program: Option<PathBuf>,
    child: Option<Child>,
    /// Sent to this process alone: no key of a terminal sends it.
    terminate: Option<SignalStream>,
    interrupt: Option<SignalStream>,
    /// When it was told to end.
    told: Option<Instant>,
    /// That was sent as somebody has interrupted this process alone.
    is_interrupted: bool,
    is_awaited: bool,
}

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandState {
    Runs,
    /// With this exit code; nobody's where there is none, and the user wants an end.
    Ended(Option<i32>),
}

impl Meanwhile {
    /// Finds what is to be run: else gives what a shell would end with, and why.
    pub fn find(command: &[OsString]) -> Result<Self, (i32, String)> {
        let program = command.first().map(|name| places::find_program(name)).transpose()?;
        let command = command.to_vec();
        Ok(Self { command, program, ..Self::default() })
    }

    /// Whether there is something to run.
    pub fn is_any(&self) -> bool {
        self.program.is_some()
    }

    /// Begins it; what it ends with where it cannot be run.
    ///
    /// # Errors
    /// When signals cannot be listened for.
    pub fn start(&mut self) -> io::Result<Option<i32>> {
        let Some(program) = &self.program else { return Ok(None) };
        self.terminate = Some(signal(SignalKind::terminate())?);
        self.interrupt = Some(signal(SignalKind::interrupt())?);
        let spawned = Command::new(program).arg0(&self.command[0]).args(&self.command[1..]).spawn();
        match spawned {
            Ok(child) => self.child = Some(child),
            Err(error) => {
                let text = io_text(program, &error);
                output::tell(format_args!("sheaf: cannot run {}", printable(&text)));
                return Ok(Some(places::NOT_RUN));
            }
        }
        Ok(None)
    }

    /// Looks whether it has ended. A user who wants an end wants its end first: what it does until
    /// then belongs to the trace.
    pub fn look(&mut self, client: &Client) -> io::Result<CommandState> {
        let is_to_end = client.is_interrupted();
        let Some(child) = &mut self.child else {
            return Ok(if is_to_end { CommandState::Ended(None) } else { CommandState::Runs });
        };
        if let Some(status) = child.try_wait()? {
            let is_ended_here = self.is_interrupted && code_of(status) == ENDED_BY_TERM;
            let code = if is_ended_here { Exit::Interrupted as i32 } else { code_of(status) };
            return Ok(CommandState::Ended(Some(code)));
        }
        if !is_to_end {
            return Ok(CommandState::Runs);
        }
        match self.told {
            None => {
                self.told = Some(Instant::now());
                let mut now = Context::from_waker(Waker::noop());
                let mut is_told = |heard: &mut SignalStream| heard.poll_recv(&mut now).is_ready();
                // Where it may have been a terminal's key, the command has heard it, too.
                let is_key = !self.terminate.as_mut().is_some_and(&mut is_told);
                self.is_interrupted = is_key && self.interrupt.as_mut().is_some_and(&mut is_told);
                let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
                if let Some(pid) = pid.filter(|_| !(is_key && child::is_in_foreground())) {
                    match kill_process(pid, Signal::TERM) {
                        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Some(told) if told.elapsed() >= SILENT && !self.is_awaited => {
                self.is_awaited = true;
                output::tell(format_args!(
                    "sheaf: COMMAND is waited for, which has not ended yet (the same again: it is not)"
                ));
            }
            Some(_) => {}
        }
        Ok(CommandState::Runs)
    }
}

fn code_of(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
