//! Shell commands that answer questions about hosts: ClusterShell's group sources and `@command:`.
use super::SourceError;
use crate::awaited::LocalWait;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use sheaf_core::lock;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};

/// The most a command may answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Puts values in the place of `$NAME` and `${NAME}`; `$$` is a dollar, other names stay.
pub fn substitute(template: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let braced = rest.strip_prefix('{');
        let name_text = braced.unwrap_or(rest);
        let end = name_text
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(name_text.len());
        let (name, after) = name_text.split_at(end);
        let after = if braced.is_some() { after.strip_prefix('}') } else { Some(after) };
        let value = values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        match (value, after) {
            (Some(value), Some(after)) => {
                out.push_str(value);
                rest = after;
            }
            _ => out.push('$'),
        }
    }
    out.push_str(rest);
    out
}

/// Whether a name can be put into a command line without the shell reading it as anything else.
pub fn is_plain(name: &str) -> bool {
    !name.starts_with('-') && name.chars().all(|c| c.is_alphanumeric() || "_-.+=%/".contains(c))
}

/// Commands that run. None of them has been waited for, so that its number is no other's.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<Pid>> {
    lock(&RUNNING)
}

/// Ends the commands that run, with what they have started, as this program ends. Whoever waits for
/// one goes on waiting: that it was ended is not to be taken for its answer.
pub fn end_all() {
    let running = running();
    running.iter().for_each(|pid| end(*pid));
    std::mem::forget(running);
}

/// Ends a process and those below it. What has ended already cannot be ended, and need not.
fn end(pid: Pid) {
    // Stopped, it starts no more of them.
    let _ = kill_process(pid, Signal::STOP);
    let pid_text = pid.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{pid_text}/task/{pid_text}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).for_each(end);
    let _ = kill_process(pid, Signal::KILL);
}

/// Waits for a command that is one of those that run.
fn wait(child: &mut Child) -> std::io::Result<std::process::ExitStatus> {
    let pid = Pid::from_child(child);
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), ended))?;
    let mut running = running();
    running.retain(|other| *other != pid);
    child.wait()
}

/// What the error says of a command which was not run because nothing is to be run.
pub(super) const NOT_RUN: &str = "is not run here";

/// The error of a command which is not run because nothing is to be run.
pub(crate) fn not_run(command: &str) -> SourceError {
    SourceError(format!("command {command:?} {NOT_RUN}"))
}

/// What a command prints, run by the shell; its errors go to our stderr.
///
/// # Errors
/// When the command cannot be started, fails, or prints more than 64 MiB.
pub fn run(command: &str, directory: &Path) -> Result<String, SourceError> {
    let failed = |why: String| SourceError(format!("command {command:?}: {why}"));
    let _awaited = LocalWait::command(command);
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    running().push(Pid::from_child(&child));
    let mut answer = Vec::new();
    let read = match child.stdout.take() {
        Some(stdout) => stdout.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut answer),
        None => Ok(0),
    };
    let status = wait(&mut child).map_err(|error| failed(error.to_string()))?;
    read.map_err(|error| failed(error.to_string()))?;
    if answer.len() as u64 > ANSWER_BYTES_MAX {
        return Err(failed(format!("answered more than {ANSWER_BYTES_MAX} bytes")));
    }
    if !status.success() {
        return Err(failed(format!("ended with {status}")));
    }
    String::from_utf8(answer).map_err(|_| failed("answered something that is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_the_rest_stays() {
        let values = [("GROUP", "web"), ("CFGDIR", "/etc")];
        let done = |template| substitute(template, &values);
        assert_eq!(
            done("sed -n 's/^$GROUP:\\(.*\\)$/\\1/p' ${CFGDIR}/g"),
            "sed -n 's/^web:\\(.*\\)$/\\1/p' /etc/g"
        );
        assert_eq!(done("$f $$GROUP ${GROUP $"), "$f $GROUP ${GROUP $");
        assert_eq!(done("$GROUPS"), "$GROUPS");
    }

    #[test]
    fn names_the_shell_would_read_are_not_plain() {
        assert!(is_plain("rack-1.a"));
        for name in ["a b", "$(id)", "a;b", "`id`", "-n", "a'b", "a*"] {
            assert!(!is_plain(name), "{name}");
        }
    }

    #[test]
    fn failing_command_is_named() {
        let error = run("exit 3", Path::new("/")).unwrap_err();
        assert_eq!(error.to_string(), "command \"exit 3\": ended with exit status: 3");
        assert_eq!(run("echo n1; echo n2", Path::new("/")).unwrap(), "n1\nn2\n");
    }
}
