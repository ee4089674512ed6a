//! Silent peers that are alive: the evidence that this process has of it.
//!
//! Silence does not mean death on one machine. The kernel reports when one of its processes ends,
//! so local links have few heartbeats. A local process that waits for a processor, or has not
//! begun, is vouched for. A stopped process is not.
use super::{Core, Route};
use crate::proto::{LinkId, Time};
use rustix::process::Pid;
use sheaf_core::ProcessStat;
use std::time::Duration;

/// Whoever waits for the processor is vouched for until it has had so much of it and still says
/// nothing: it computes without end.
const BUSY_MAX: Duration = Duration::from_secs(30);

/// What the kernel says that a process does: the letter in `/proc/PID/stat`.
fn state(pid: Pid) -> Option<u8> {
    doing(pid).map(|(state, _)| state)
}

/// The same, with how much of the processor its first thread has had.
fn doing(pid: Pid) -> Option<(u8, Duration)> {
    let pid = pid.as_raw_pid();
    let line = std::fs::read(format!("/proc/{pid}/task/{pid}/stat")).ok()?;
    let stat = ProcessStat::parse(&line)?;
    let (state, ticks) = (stat.state()?, stat.processor_ticks()?);
    let per_s = rustix::param::clock_ticks_per_second().max(1);
    Some((state, Duration::from_millis(ticks.saturating_mul(1000) / per_s)))
}

/// What a peer had come to when it was vouched for first since it was heard: the bytes that had
/// come from it, and how much of the processor it had had.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuietPeer {
    bytes: u64,
    busy: Duration,
}

/// Whether a process is stopped, by a signal or a debugger.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    matches!(state(pid), Some(b'T' | b't'))
}

impl QuietPeer {
    /// What is to be remembered of a peer that has sent so many bytes and had so much of the
    /// processor, and whether it may still be said to wait for that.
    fn look(before: Option<Self>, bytes: u64, busy: Duration) -> (Self, bool) {
        let since = before.filter(|before| before.bytes == bytes).unwrap_or(Self { bytes, busy });
        (since, busy.saturating_sub(since.busy) < BUSY_MAX)
    }
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

    fn has_alibi(&mut self, node: usize, link: LinkId) -> bool {
        let Route::Socket(at) = self.route(node, link) else { return false };
        let bytes = self.nodes[node].counters(link).bytes_in;
        let Some(port) = self.sockets[at].as_mut() else { return false };
        // It has spoken, and it is this process that has not listened.
        if rustix::io::ioctl_fionread(port.socket.fd()).is_ok_and(|waiting| waiting > 0) {
            return true;
        }
        let Some((state, busy)) = port.pid.and_then(doing) else { return false };
        match state {
            // It waits for the processor, as many others do.
            b'R' => {
                let (since, waits) = QuietPeer::look(port.silence, bytes, busy);
                port.silence = Some(since);
                waits
            }
            // It is being started. One that runs and sleeps would have answered, or hangs.
            b'S' | b'D' => bytes == 0,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, kill_process};
    use std::process::{Command, Stdio};
    use std::time::Instant;

    #[test]
    fn endlessly_computing_peer_has_no_liveness_evidence() {
        let second = Duration::from_secs(1);
        let (first, waits) = QuietPeer::look(None, 100, second * 500);
        assert!(waits, "what it has had of the processor before says nothing");
        let (same, waits) = QuietPeer::look(Some(first), 100, second * 529);
        assert!(waits);
        assert!(!QuietPeer::look(Some(same), 100, second * 530).1);
        assert!(QuietPeer::look(Some(same), 101, second * 530).1, "it has spoken");
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let deadline = Instant::now() + Duration::from_secs(60);
        while doing(pid).is_none_or(|(_, busy)| busy < Duration::from_millis(50)) {
            assert!(Instant::now() < deadline, "{:?}", doing(pid));
            std::thread::sleep(Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn stopped_process_is_distinguished_from_a_waiting_one() {
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
