//! Programs that tests run to their end.
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a program may run before it counts as hanging.
const RUN_TIMEOUT: Duration = Duration::from_secs(120);
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Whether a program can be run at all; otherwise says that a test is skipped.
#[must_use]
pub fn have(program: &str) -> bool {
    let there =
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        crate::skipped(&format!("{program} is not installed"));
    }
    there
}

/// Ends a program that is still running when the test is over.
#[derive(Debug)]
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program to its end; what it printed must not be more than a pipe holds.
///
/// # Panics
/// When it cannot be started, or hangs.
pub fn run(command: &mut Command) -> Output {
    let mut child = Guard(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let deadline = Instant::now() + RUN_TIMEOUT;
    let status = loop {
        if let Some(status) = child.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "{command:?} hangs");
        std::thread::park_timeout(LOOK);
    };
    let read = |pipe: &mut dyn std::io::Read| {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    };
    let stdout = read(child.0.stdout.as_mut().unwrap());
    let stderr = read(child.0.stderr.as_mut().unwrap());
    Output { status, stdout, stderr }
}

/// [`run`] of a program that must succeed; gives what it printed.
///
/// # Panics
/// When it fails, with all that it said.
pub fn succeeds(command: &mut Command) -> String {
    let output = run(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}{errors}", output.status);
    text
}
