//! What became of operations, in words.
use super::readers::JoinedReaders;
use sheaf_core::{Errno, lock};
use std::collections::VecDeque;
use std::sync::Mutex;

/// Sessions of this machine (shells, say) of which the last operation is known.
const SESSIONS_MAX: usize = 64;

/// What became of the last operation: whoever asks hears of the own session first, so that two who work at once do
/// not hear of each other.
#[derive(Default)]
pub(crate) struct StatusTexts {
    texts: Mutex<VecDeque<(Option<u32>, String)>>,
    /// The processes that have read the joined content of the group's files.
    pub readers: JoinedReaders,
}

impl StatusTexts {
    pub fn put(&self, session: Option<u32>, text: String) {
        let mut texts = lock(&self.texts);
        texts.retain(|one| one.0 != session);
        texts.push_front((session, text));
        texts.truncate(SESSIONS_MAX);
    }

    /// Keeps what there is to say of an error.
    pub fn fail(&self, session: Option<u32>, (text, errno): (String, Errno)) -> Errno {
        self.put(session, text);
        errno
    }

    pub fn get(&self, session: Option<u32>) -> String {
        let texts = lock(&self.texts);
        let of_session = texts.iter().find(|one| one.0 == session && session.is_some());
        of_session.or(texts.front()).map(|one| one.1.clone()).unwrap_or_default()
    }
}

/// The session of a process; none where the system does not show it, nor where it was begun outside of the container
/// (PID namespace) of this process: the system calls all of those 0.
///
/// A process that begins another program closes files of the view meanwhile, and waits for the answer: until then
/// nobody can read its `stat`.
pub(crate) fn asking_session(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let sessions = status.lines().find_map(|line| line.strip_prefix("NSsid:"))?;
    // The first is its number here, those behind it are its numbers in containers.
    sessions.split_ascii_whitespace().next()?.parse().ok().filter(|session| *session != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn each_session_hears_of_its_own_first() {
        let texts = StatusTexts::default();
        assert_eq!(texts.get(Some(1)), "");
        texts.put(Some(1), "one".to_owned());
        texts.put(Some(2), "two".to_owned());
        assert_eq!(texts.get(Some(1)), "one");
        assert_eq!(texts.get(Some(3)), "two");
        assert_eq!(texts.fail(Some(1), ("three".to_owned(), Errno::IO)), Errno::IO);
        assert_eq!(texts.get(Some(1)), "three");
        assert_eq!(texts.get(Some(2)), "two");
        for session in 10..10 + 2 * SESSIONS_MAX as u32 {
            texts.put(Some(session), session.to_string());
        }
        assert_eq!(lock(&texts.texts).len(), SESSIONS_MAX);
    }

    #[test]
    fn process_has_a_session() {
        // The tests themselves may run in a container whose session is outside of it.
        let mut leader = Command::new("setsid").arg("cat").stdin(Stdio::piped()).spawn().unwrap();
        let began = Instant::now();
        while asking_session(leader.id()) != Some(leader.id()) {
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", asking_session(leader.id()));
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(leader.stdin.take());
        assert!(leader.wait().unwrap().success());
        assert_eq!(asking_session(u32::MAX), None);
    }
}
