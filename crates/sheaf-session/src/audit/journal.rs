//! Lines for the system's journal, or for syslog where there is no journal.
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the journal listens, and where syslog does.
const JOURNAL: &str = "/run/systemd/journal/socket";
const SYSLOG: &str = "/dev/log";
/// The priority of a line: facility authpriv (10), severity info (6), as RFC 5424 has them.
const PRIORITY: u8 = 10 * 8 + 6;

/// The journal of a system.
pub(crate) struct Journal {
    journal: PathBuf,
    syslog: PathBuf,
    /// That a line was lost has been logged.
    is_told: AtomicBool,
}

impl Journal {
    pub fn of_system() -> Self {
        Self::at(Path::new(JOURNAL), Path::new(SYSLOG))
    }

    fn at(journal: &Path, syslog: &Path) -> Self {
        let (journal, syslog) = (journal.to_owned(), syslog.to_owned());
        Self { journal, syslog, is_told: AtomicBool::new(false) }
    }

    /// Sends a line, which has no line break. It never waits: a line that the system does not take
    /// is lost there, and the first is logged.
    pub fn send(&self, session: &str, line: &str) {
        if let Err(error) = self.try_send(session, line)
            && !self.is_told.swap(true, Ordering::Relaxed)
        {
            tracing::error!(%error, "the system's journal does not take the audit");
        }
    }

    fn try_send(&self, session: &str, line: &str) -> io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let fields = format!(
            "MESSAGE={line}\nPRIORITY=6\nSYSLOG_FACILITY=10\nSYSLOG_IDENTIFIER=sheaf\n\
             SHEAF_SESSION={session}\n"
        );
        match socket.send_to(fields.as_bytes(), &self.journal) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            sent => return sent.map(drop),
        }
        let pid = std::process::id();
        let text = format!("<{PRIORITY}>sheaf[{pid}]: session {session}: {line}");
        socket.send_to(text.as_bytes(), &self.syslog).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 1024];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    #[test]
    fn journal_is_asked_before_syslog() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, syslog) = (dir.path().join("journal"), dir.path().join("syslog"));
        let log = UnixDatagram::bind(&syslog).unwrap();
        let lines = Journal::at(&journal, &syslog);
        lines.send("lab", "audit: one");
        let text = receive(&log);
        assert!(text.starts_with("<86>sheaf["), "{text}");
        assert!(text.ends_with("]: session lab: audit: one"), "{text}");
        let native = UnixDatagram::bind(&journal).unwrap();
        lines.send("lab", "audit: two");
        let fields = receive(&native);
        assert!(fields.starts_with("MESSAGE=audit: two\nPRIORITY=6\n"), "{fields}");
        assert!(fields.ends_with("SHEAF_SESSION=lab\n"), "{fields}");
        // Nobody listens any more, which holds up nothing.
        drop(native);
        lines.send("lab", "audit: three");
        assert!(lines.is_told.load(Ordering::Relaxed));
    }
}
