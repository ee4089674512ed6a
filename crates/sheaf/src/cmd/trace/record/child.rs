//! The program that is recorded, from its beginning to its end.
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use sheaf_trace::KernelCounts;
use std::fs::File;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

/// Runs it to its end; gives how it ended, and what the kernel counted of it and of all that it has
/// waited for, where that can be read.
///
/// Signals of the terminal are for the program, which has them, too: this one stays for as long as
/// it does. What else is sent to this process is handed on; on SIGUSR1 it does what it is told here.
/// What is ignored here is ignored there, and stays so (`nohup`).
pub fn run(
    command: &mut Command,
    on_user_signal: Option<&dyn Fn()>,
) -> io::Result<(ExitStatus, Option<KernelCounts>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let ignored = ignored_signals()?;
        let listen = |what: Signal| -> io::Result<Option<SignalStream>> {
            let is_ignored = ignored >> (what.as_raw() - 1) & 1 != 0;
            let heard = || signal(SignalKind::from_raw(what.as_raw()));
            if is_ignored { Ok(None) } else { heard().map(Some) }
        };
        let (mut interrupt, mut quit) = (listen(Signal::INT)?, listen(Signal::QUIT)?);
        let (mut end, mut hang_up) = (listen(Signal::TERM)?, listen(Signal::HUP)?);
        let (mut first, mut second) = (listen(Signal::USR1)?, listen(Signal::USR2)?);
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let counts = KernelCountsFile::open(&child);
        // It stays as it is until it is asked what became of it, and with it what was counted.
        let ended = tokio::task::spawn_blocking(move || wait(pid));
        tokio::pin!(ended);
        loop {
            let handed_on = tokio::select! {
                ended = &mut ended => {
                    ended.map_err(io::Error::other)??;
                    break;
                }
                () = heard(&mut first) => match on_user_signal {
                    Some(act) => {
                        act();
                        None
                    }
                    None => Some(Signal::USR1),
                },
                () = heard(&mut second) => Some(Signal::USR2),
                () = heard(&mut interrupt) => None,
                () = heard(&mut quit) => None,
                () = heard(&mut end) => Some(Signal::TERM),
                () = heard(&mut hang_up) => Some(Signal::HUP),
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

/// The next time that a signal comes; never, if nobody listens.
async fn heard(signals: &mut Option<SignalStream>) {
    let came = match signals {
        Some(signals) => signals.recv().await,
        None => None,
    };
    if came.is_none() {
        // No more come once the runtime ends.
        std::future::pending().await
    }
}

/// The signals that this process ignores, as whoever started it has wanted: a bit for each.
fn ignored_signals() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.ok_or_else(|| io::Error::other("/proc/self/status does not say which signals are ignored"))
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
