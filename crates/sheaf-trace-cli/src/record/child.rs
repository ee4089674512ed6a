//! The program that is recorded, from its beginning to its end.
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use sheaf_core::ProcessStat;
use sheaf_trace::KernelCounts;
use std::fs::File;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus};
use tokio::signal::unix::{SignalKind, signal};

/// Runs it to its end; gives how it ended, and what the kernel counted of it and of all that it has
/// waited for, where that can be read.
///
/// Signals that end a process, or are the user's, are handed on; on SIGUSR1 it does what it is told
/// here. Those of a terminal's keys go to both: where this may be one, it is not sent again. What is
/// ignored here is ignored there, and stays so (`nohup`).
pub fn run(
    command: &mut Command,
    on_user_signal: Option<&dyn Fn()>,
) -> io::Result<(ExitStatus, Option<KernelCounts>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut heard = hear(HANDED_ON.into_iter().chain(OF_KEYS))?;
        // A file that becomes too large is an error for whoever writes it.
        let _too_large = hear([Signal::XFSZ])?;
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let counts = KernelCountsFile::open(&child);
        // It stays as it is until it is asked what became of it, and with it what was counted.
        let ended = tokio::task::spawn_blocking(move || wait(pid));
        tokio::pin!(ended);
        loop {
            let signal = tokio::select! {
                ended = &mut ended => {
                    ended.map_err(io::Error::other)??;
                    break;
                }
                Some(signal) = heard.recv() => signal,
            };
            if let Some(act) = on_user_signal.filter(|_| signal == Signal::USR1) {
                act();
                continue;
            }
            if OF_KEYS.contains(&signal) && is_in_foreground() {
                continue;
            }
            // It may just have ended.
            match kill_process(pid, signal) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let counts = counts.read();
        Ok((child.wait()?, counts))
    })
}

/// Signals that come, of these; those that are ignored stay so.
fn hear(
    signals: impl IntoIterator<Item = Signal>,
) -> io::Result<tokio::sync::mpsc::UnboundedReceiver<Signal>> {
    let ignored = ignored_signals()?;
    let (sender, heard) = tokio::sync::mpsc::unbounded_channel();
    for what in signals {
        if ignored >> (what.as_raw() - 1) & 1 != 0 {
            continue;
        }
        let mut stream = signal(SignalKind::from_raw(what.as_raw()))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            // Nobody hears more once the program has ended.
            while stream.recv().await.is_some() && sender.send(what).is_ok() {}
        });
    }
    Ok(heard)
}

/// Does this once a signal comes that ends a process: [`run`] has caught them for the program.
pub fn on_end_signal(act: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let wait = move || {
        let heard = runtime.block_on(async {
            let mut heard = hear([Signal::HUP, Signal::TERM].into_iter().chain(OF_KEYS)).ok()?;
            heard.recv().await
        });
        if heard.is_some() {
            act();
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}

/// What is sent to this process and meant for the program.
const HANDED_ON: [Signal; 9] = [
    Signal::HUP,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::POWER,
];
/// What a terminal's keys send to all processes in its foreground.
const OF_KEYS: [Signal; 2] = [Signal::INT, Signal::QUIT];

/// Whether a terminal's keys may have sent a signal to this process, and to the program with it. In a container
/// (PID namespace) that was entered from a terminal the group may be one from outside, which has no number there.
pub fn is_in_foreground() -> bool {
    std::fs::read("/proc/self/stat").is_ok_and(|stat| stat_is_in_foreground(&stat))
}

/// Of a line as in `/proc/PID/stat`: whether the group of the process is that of its terminal.
fn stat_is_in_foreground(line: &[u8]) -> bool {
    let Some(stat) = ProcessStat::parse(line) else { return false };
    let (group, terminal) = (stat.process_group(), stat.terminal());
    group.is_some()
        && stat.foreground_group() == group
        && terminal.is_some_and(|terminal| terminal != 0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_has_one_group_in_its_foreground() {
        assert!(stat_is_in_foreground(b"7 (a) b) S 1 7 5 34816 7 4194304 0"));
        assert!(!stat_is_in_foreground(b"7 (a) b) S 1 7 5 34816 9 4194304 0"));
        // Without a terminal, in a container as well.
        assert!(!stat_is_in_foreground(b"7 (a) S 1 7 5 0 -1 4194304 0"));
        assert!(!stat_is_in_foreground(b"7 (a) S 0 0 0 0 -1 4194304 0"));
        assert!(stat_is_in_foreground(b"7 (a) S 0 0 0 34816 0 4194304 0"));
        assert!(!stat_is_in_foreground(b"7 (a) S"));
    }
}
