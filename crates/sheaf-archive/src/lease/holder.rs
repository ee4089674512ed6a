//! Which process holds a lease, as its object says.
use crate::pack::member::PackId;
use rustix::process::{Pid, test_kill_process};
use sheaf_core::lock;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;

const FIRST_LINE: &str = "sheaf lease, version 1";
const HOST_BYTES_MAX: usize = 64;

/// A process of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holder {
    host: String,
    /// Of the machine's run, and of its process numbers: together they say what a number means.
    boot: String,
    namespace: String,
    process: u32,
    /// When the process was started, in ticks since the machine was.
    started: u64,
}

impl Holder {
    /// The process that this is.
    pub fn this_process() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect();
        let process = std::process::id();
        Self {
            host: plain(rustix::system::uname().nodename().to_string_lossy().as_ref()),
            boot: plain(boot.trim()),
            namespace: digits(&namespace.to_string_lossy()),
            process,
            started: status_of(process).map_or(0, |(_, started)| started),
        }
    }

    pub fn text(&self) -> String {
        let Self { host, boot, namespace, process, started } = self;
        format!(
            "{FIRST_LINE}\nhost {host}\nboot {boot}\nnamespace {namespace}\nprocess {process}\n\
             started {started}\n"
        )
    }

    /// What a text says; nothing if it is none of a lease.
    pub fn of(text: &[u8]) -> Option<Self> {
        let mut lines = str::from_utf8(text).ok()?.lines();
        if lines.next() != Some(FIRST_LINE) {
            return None;
        }
        let mut holder = Self::default();
        for (name, value) in lines.filter_map(|line| line.split_once(' ')) {
            match name {
                "host" => holder.host = plain(value),
                "boot" => holder.boot = plain(value),
                "namespace" => holder.namespace = plain(value),
                "process" => holder.process = value.parse().ok()?,
                "started" => holder.started = value.parse().ok()?,
                _ => {}
            }
        }
        Some(holder)
    }

    /// Whether the process that held a lease has ended, as far as that can be known here: it was one
    /// of this machine.
    pub fn has_ended(&self, lease: PackId) -> bool {
        let this = Self::this_process();
        let is_here = !self.boot.is_empty()
            && !self.namespace.is_empty()
            && (&self.boot, &self.namespace) == (&this.boot, &this.namespace);
        if !is_here || self.process == 0 {
            return false;
        }
        if self.process == this.process {
            return self.started != this.started || !Holders::has(lease);
        }
        let Some(pid) = i32::try_from(self.process).ok().and_then(Pid::from_raw) else {
            return false;
        };
        if test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
            return true;
        }
        // A process of another user may hide this.
        status_of(self.process).is_some_and(|(is_over, started)| is_over || started != self.started)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host[..], self.process) {
            ("", _) | (_, 0) => f.write_str("another command"),
            (host, process) => write!(f, "process {process} of host {host}"),
        }
    }
}

/// A value that may be printed.
fn plain(text: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.chars().filter(is_plain).take(HOST_BYTES_MAX).collect()
}

/// Whether a process has ended (and its parent has not noticed yet), and when it was started.
fn status_of(process: u32) -> Option<(bool, u64)> {
    let text = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    // A name may have anything in it.
    let behind = text.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = str::from_utf8(&text[behind..]).ok()?.split_ascii_whitespace();
    let is_over = matches!(fields.next()?, "Z" | "X");
    Some((is_over, fields.nth(18)?.parse().ok()?))
}

/// Leases that this process holds.
pub(super) struct Holders;

static HELD: Mutex<BTreeSet<[u8; 16]>> = Mutex::new(BTreeSet::new());

impl Holders {
    pub fn enter(lease: PackId) {
        lock(&HELD).insert(lease.0);
    }

    pub fn leave(lease: PackId) {
        lock(&HELD).remove(&lease.0);
    }

    fn has(lease: PackId) -> bool {
        lock(&HELD).contains(&lease.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_is_read_from_its_text() {
        let this = Holder::this_process();
        assert!(this.started > 0 && !this.boot.is_empty() && !this.namespace.is_empty());
        assert_eq!(Holder::of(this.text().as_bytes()), Some(this.clone()));
        // A later version may say more.
        assert_eq!(Holder::of((this.text() + "more to say\n").as_bytes()), Some(this));
        for text in ["", "sheaf lease, version 2\n", "sheaf lease, version 1\nprocess x\n"] {
            assert_eq!(Holder::of(text.as_bytes()), None, "{text:?}");
        }
        let hostile = Holder::of(b"sheaf lease, version 1\nhost a\x1b[31mb\nprocess 7\n").unwrap();
        assert_eq!(hostile.to_string(), "process 7 of host a31mb");
    }

    #[test]
    fn holder_of_ended_process_is_known_on_its_machine() {
        let lease = PackId([1; 16]);
        let this = Holder::this_process();
        assert!(this.has_ended(lease), "this process does not hold it");
        Holders::enter(lease);
        assert!(!this.has_ended(lease));
        assert!(
            Holder { started: 1, ..this.clone() }.has_ended(lease),
            "its number was taken again"
        );
        Holders::leave(lease);
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let started = status_of(other.id()).unwrap().1;
        let running = Holder { process: other.id(), started, ..this.clone() };
        assert!(!running.has_ended(lease));
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(running.has_ended(lease));
        for unknown in [
            Holder { boot: "another".to_owned(), ..running.clone() },
            Holder { namespace: "1".to_owned(), ..running.clone() },
            Holder { boot: String::new(), ..running.clone() },
        ] {
            assert!(!unknown.has_ended(lease), "{unknown:?}");
        }
    }
}
