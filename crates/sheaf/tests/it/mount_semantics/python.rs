//! A process on a host that does what it is told, a line each.
use super::hosts::ViewHosts;
use sheaf_testing::program::Guard;
use sheaf_testing::sessions::SOON;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

const PROGRAM: &str = "/usr/bin/python3";
/// Evaluates or executes each line, and says what came of it.
const SCRIPT: &str = "
import sys, os, fcntl, mmap, errno, signal, socket, stat, struct, time
class L:
    'Locks of ranges, as fcntl(2) has them.'
    def wait(f, kind, start=0, length=0): fcntl.lockf(f, kind, length, start)
    def set(f, kind, start=0, length=0):
        fcntl.lockf(f, kind if kind == fcntl.LOCK_UN else kind | fcntl.LOCK_NB, length, start)
print('ok', os.getpid(), flush=True)
for line in sys.stdin:
    try:
        try: code = compile(line, 'line', 'eval')
        except SyntaxError: exec(line); print('ok', flush=True); continue
        print('ok', eval(code), flush=True)
    except OSError as error: print(errno.errorcode.get(error.errno, error), flush=True)
    except Exception as error: print('wrong', repr(error), flush=True)
";

/// Such a process. Dropped, it is killed.
pub struct Python {
    _process: Guard,
    stdin: ChildStdin,
    lines: Receiver<String>,
    /// Its number on its host.
    pub pid: String,
}

/// Whether there can be any; if not it is said.
pub fn have_python() -> bool {
    let have = Path::new(PROGRAM).exists();
    if !have {
        sheaf_testing::skipped(&format!("there is no {PROGRAM}"));
    }
    have
}

impl Python {
    /// One of root's.
    pub fn new(hosts: &ViewHosts, host: usize) -> Self {
        Self::of_user(hosts, host, 0, 0, "")
    }

    /// One of a user with a group and more groups, by number.
    pub fn of_user(hosts: &ViewHosts, host: usize, uid: u32, gid: u32, groups: &str) -> Self {
        let (uid, gid) = (uid.to_string(), gid.to_string());
        let groups = match groups {
            "" => "--clear-groups".to_owned(),
            groups => format!("--groups={groups}"),
        };
        let args = ["--reuid", &uid, "--regid", &gid, &groups, "--", PROGRAM, "-Ic", SCRIPT];
        let mut command = hosts.machines.command(host, "setpriv", &args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            while lines.next().is_some_and(|line| tell.send(line).is_ok()) {}
        });
        let mut python = Self { _process: Guard(child), stdin, lines, pid: String::new() };
        python.pid = python.answer(SOON).unwrap().trim_start_matches("ok ").to_owned();
        python
    }

    /// Tells it what to do.
    pub fn begin(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// What came of what it was told first of what it has not answered: `ok` and the value, or the name of an
    /// error; nothing if it takes longer than this.
    pub fn answer(&mut self, patience: Duration) -> Option<String> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some("ended".to_owned()),
        }
    }

    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        self.begin(line);
        let answer = self.answer(SOON);
        answer.unwrap_or_else(|| panic!("{line}: no answer within {SOON:?}"))
    }

    /// What must be done.
    #[track_caller]
    pub fn must(&mut self, line: &str) -> String {
        let answer = self.ask(line);
        assert!(answer.starts_with("ok"), "{line}: {answer}");
        answer.trim_start_matches("ok").trim_start().to_owned()
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.begin("os.kill(os.getpid(), 9)");
        assert_eq!(self.answer(SOON).as_deref(), Some("ended"));
    }
}
