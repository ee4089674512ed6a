//! Peers that say nothing, and live: what can be seen of them from here.
use super::{Core, Route};
use crate::proto::{LinkId, Time};
use rustix::process::Pid;

/// What the kernel says that a process does: the letter in `/proc/PID/stat`.
fn state(pid: Pid) -> Option<u8> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The name before may hold anything, also parentheses.
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(name_end + 2).copied()
}

/// Whether a process is stopped, by a signal or a debugger.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    matches!(state(pid), Some(b'T' | b't'))
}

impl Core {
    /// Vouches for peers of `node` that would be given up now, and have only had no chance to
    /// speak.
    pub(super) fn vouch(&mut self, now: Time, node: usize) {
        for link in self.nodes[node].overdue(now) {
            if self.has_alibi(node, link) {
                self.nodes[node].vouch(now, link);
            }
        }
    }

    fn has_alibi(&self, node: usize, link: LinkId) -> bool {
        let Route::Socket(at) = self.route(node, link) else { return false };
        let Some(port) = self.sockets[at].as_ref() else { return false };
        // It has spoken, and it is this process that has not listened.
        if rustix::io::ioctl_fionread(port.socket.fd()).is_ok_and(|waiting| waiting > 0) {
            return true;
        }
        let Some(state) = port.pid.and_then(state) else { return false };
        let has_spoken = self.nodes[node].counters(link).bytes_in > 0;
        match state {
            // It waits for the processor, as many others do.
            b'R' => true,
            // It is being started. One that runs and sleeps would have answered, or hangs.
            b'S' | b'D' => !has_spoken,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, kill_process};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn who_waits_is_told_from_who_is_stopped() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let deadline = Instant::now() + Duration::from_secs(20);
        let wait_for = |wanted: u8| {
            while state(pid) != Some(wanted) {
                assert!(Instant::now() < deadline, "{:?}", state(pid));
                std::thread::yield_now();
            }
        };
        wait_for(b'S');
        kill_process(pid, Signal::STOP).unwrap();
        wait_for(b'T');
        assert!(is_stopped(pid));
        kill_process(pid, Signal::KILL).unwrap();
        child.wait().unwrap();
        assert_eq!(state(pid), None);
    }
}
