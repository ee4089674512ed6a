//! The program that is recorded, from its beginning to its end.
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use sheaf_trace::KernelCounts;
use std::fs::File;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus};
use tokio::signal::unix::{SignalKind, signal};

/// Runs it to its end; gives how it ended, and what the kernel counted of it and of all that it has
/// waited for, where that can be read.
///
/// Signals of the terminal are for the program, which has them, too: this one stays for as long as
/// it does. What asks this process to end is handed on; on SIGUSR1 it does what it is told here.
pub fn run(
    command: &mut Command,
    on_user_signal: Option<&dyn Fn()>,
) -> io::Result<(ExitStatus, Option<KernelCounts>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut quit) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::quit())?);
        let (mut end, mut hang_up) =
            (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        // Without a use for it, it has its usual effect.
        let mut user_signal =
            on_user_signal.map(|_| signal(SignalKind::user_defined1())).transpose()?;
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let counts = KernelCountsFile::open(&child);
        // It stays as it is until it is asked what became of it, and with it what was counted.
        let ended = tokio::task::spawn_blocking(move || wait(pid));
        tokio::pin!(ended);
        loop {
            let asked = async {
                match &mut user_signal {
                    Some(signals) => signals.recv().await,
                    None => std::future::pending().await,
                }
            };
            let handed_on = tokio::select! {
                ended = &mut ended => {
                    ended.map_err(io::Error::other)??;
                    break;
                }
                _ = asked => {
                    on_user_signal.into_iter().for_each(|act| act());
                    None
                }
                _ = interrupt.recv() => None,
                _ = quit.recv() => None,
                _ = end.recv() => Some(Signal::TERM),
                _ = hang_up.recv() => Some(Signal::HUP),
            };
            if let Some(signal) = handed_on {
                // It may just have ended.
                match kill_process(pid, signal) {
                    Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let counts = counts.read();
        Ok((child.wait()?, counts))
    })
}

/// What the kernel counts of a process. Once it has ended its file is root's: others read it then if
/// they have opened it before.
struct KernelCountsFile {
    path: String,
    opened: Option<File>,
}

impl KernelCountsFile {
    fn open(child: &Child) -> Self {
        let path = format!("/proc/{}/io", child.id());
        let opened = File::open(&path).ok();
        Self { path, opened }
    }

    /// `None` where it cannot be read, as of a process with other rights.
    fn read(self) -> Option<KernelCounts> {
        let mut text = String::new();
        let mut opened = self.opened.or_else(|| File::open(&self.path).ok())?;
        opened.read_to_string(&mut text).ok()?;
        KernelCounts::parse(&text)
    }
}

/// Waits until it has ended, and leaves it there.
fn wait(pid: Pid) -> io::Result<()> {
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
