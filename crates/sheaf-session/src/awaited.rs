//! What this program waits for on this machine and may never come: a command that answers, a file
//! that is a pipe. Whoever ends it for being late can name it.
use sheaf_core::lock;
use std::path::Path;
use std::sync::Mutex;

static AWAITED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Something is waited for as long as this lives.
pub(crate) struct LocalWait(String);

impl LocalWait {
    /// A file that is opened and read.
    pub fn file(path: &Path) -> Self {
        Self::begin(format!("{} to be read", path.display()))
    }

    /// A command of the shell.
    pub fn command(command: &str) -> Self {
        Self::begin(format!("command {command:?}"))
    }

    fn begin(what: String) -> Self {
        lock(&AWAITED).push(what.clone());
        Self(what)
    }
}

impl Drop for LocalWait {
    fn drop(&mut self) {
        let mut awaited = lock(&AWAITED);
        if let Some(at) = awaited.iter().rposition(|what| *what == self.0) {
            awaited.remove(at);
        }
    }
}

/// What is waited for now, in words that follow "waits for"; what was begun last is what keeps the
/// rest.
#[must_use]
pub fn now() -> Option<String> {
    lock(&AWAITED).last().cloned()
}
