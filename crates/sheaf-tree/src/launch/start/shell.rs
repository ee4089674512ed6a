//! Scripts that the shells of hosts run over ssh. A host needs neither a server nor a copy of the
//! program for this.
//!
//! ```text
//! parent: ssh HOST sh -c …            host: its login shell runs a POSIX shell
//!                      <─ MARK begin
//!   script, on standard input ─>
//!                      <─ MARK line …
//!                      <─ MARK end
//! ```
//! The mark is random for each host, so no start-up file of a shell can print it by accident.
//! Everything that a host prints is bounded, and so is the time that it has.
use super::logins::{LoginPlace, Logins};
use super::ssh::{
    LOGIN, LoginShell, Repetitions, Ssh, SshFailure, command, detach, failure, is_silent,
    keep_last, phrase, said,
};
use crate::link::fill_random;
use rustix::process::{Pid, Signal, kill_process_group};
use sheaf_core::Errno;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout, timeout_at};

/// The most that a host may print for a script.
const OUTPUT_BYTES_MAX: u64 = 64 << 10;
/// How long ssh may take to end after the script has.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_millis(200);
/// How the causes of failed logins begin, of which some were no start.
const NOT_STARTED: &str = "not started: ";
/// The host's login shell has run a POSIX shell.
const BEGIN: &str = "begin";
/// The script has come to its end.
const END: &str = "end";

/// What the shell of a host printed for a script.
#[derive(Debug)]
pub struct ScriptOutput {
    /// The lines with the mark, without it, as the host printed them.
    pub lines: Vec<String>,
    /// The end of what was printed on standard output before the script began.
    pub noise: String,
    /// The end of what was printed on standard error.
    pub errors: String,
    /// When the script was sent.
    pub sent: SystemTime,
    /// How long after that its first line came.
    pub first_line_after: Option<Duration>,
    /// How it ended.
    pub end: ScriptEnd,
}

/// How a script ended on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptEnd {
    /// It came to its end.
    Whole,
    /// It had not ended after this long.
    Late(Duration),
    /// The connection was closed before its end.
    Closed,
    /// It printed more than a script may.
    TooLong,
}

/// Why a script did not begin on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptFailure {
    /// The error that this is.
    pub errno: Errno,
    /// In one phrase: what ssh or the host printed.
    pub cause: String,
    /// The login failed. Otherwise the login shell did not run the script.
    pub is_login: bool,
}

impl From<SshFailure> for ScriptFailure {
    fn from(failure: SshFailure) -> Self {
        let SshFailure { errno, cause, no_login, .. } = failure;
        let cause = cause.strip_prefix(NOT_STARTED).unwrap_or(&cause).to_owned();
        Self { errno, cause, is_login: no_login }
    }
}

/// Receives the number of a host, and what its shell printed.
pub type HostResults = dyn Fn(usize, Result<ScriptOutput, ScriptFailure>) + Send + Sync;

/// Runs `script` on each of `hosts`. `each` is called as soon as the script of a host has ended or
/// failed. The script gets the mark of its lines as the variable `m`, and has `limit` for itself.
///
/// At most as many logins are made at a time as a node of a tree makes.
pub async fn run_on_hosts(
    ssh: Ssh,
    hosts: &[String],
    (script, limit): (&str, Duration),
    each: Arc<HostResults>,
) {
    let logins = Logins::to(&ssh, hosts.iter().map(String::as_str)).await;
    let (ssh, script): (Arc<Ssh>, Arc<str>) = (Arc::new(ssh), script.into());
    let mut running = Vec::with_capacity(hosts.len());
    for (number, host) in hosts.iter().enumerate() {
        let place = logins.place().await;
        let (ssh, script, each, host) =
            (Arc::clone(&ssh), Arc::clone(&script), Arc::clone(&each), host.clone());
        running.push(crate::task::spawn(async move {
            let result = run_on_host(&ssh, &host, place, (&script, limit)).await;
            each(number, result.map_err(Into::into));
        }));
    }
    for one in running {
        // A task ends by itself, or with the runtime.
        let _ = one.await;
    }
}

/// Runs `script` in a shell of this machine.
///
/// # Errors
/// A shell that does not run.
pub async fn run_script_here(
    (script, limit): (&str, Duration),
) -> Result<ScriptOutput, ScriptFailure> {
    let mut shell = Command::new("/bin/sh");
    let mark = new_mark().map_err(|error| SshFailure::not_run(&error))?;
    shell.arg("-c").arg(opening(&mark)).kill_on_drop(true);
    detach(&mut shell);
    converse(shell, &mark, ((script, limit), limit), None).await.map_err(Into::into)
}

async fn run_on_host(
    ssh: &Ssh,
    host: &str,
    mut place: LoginPlace,
    script: (&str, Duration),
) -> Result<ScriptOutput, SshFailure> {
    let mut repetitions = Repetitions::default();
    loop {
        let mark = new_mark().map_err(|error| SshFailure::not_run(&error))?;
        let ssh_command = command(ssh, host, opening(&mark));
        let script = (script, ssh.login_timeout);
        match converse(ssh_command, &mark, script, Some(&mut place)).await {
            Err(mut failure) => {
                failure.lasting |= is_silent(&failure.cause, ssh.connect_timeout);
                repetitions.wait_after(failure, ssh, host, &place).await?;
            }
            done => return done,
        }
    }
}

/// What the login shell runs: on one line, without single quotes within and exclamation marks,
/// which login shells treat differently.
fn opening(mark: &str) -> String {
    format!("exec /bin/sh -c 'echo {mark} {BEGIN}; exec /bin/sh -s'")
}

/// A word that nothing else prints.
///
/// # Errors
/// A system without random bytes.
pub fn new_mark() -> io::Result<String> {
    let mut bytes = [0; 16];
    fill_random(&mut bytes)?;
    Ok(format!("sheaf-{:032x}", u128::from_ne_bytes(bytes)))
}

/// Opens a shell, sends it the script, and reads the lines of the script. A slow login leaves its
/// place to another one; a script that runs keeps it, so that not too many run at a time.
async fn converse(
    command: Command,
    mark: &str,
    ((script, limit), login_timeout): ((&str, Duration), Duration),
    place: Option<&mut LoginPlace>,
) -> Result<ScriptOutput, SshFailure> {
    let mut shell = LoginShell::open(command)?;
    let mut noise = Vec::new();
    let begin = format!("{mark} {BEGIN}");
    let meant = |line: &[u8]| {
        // A login file may print without ending its line.
        let at = line.windows(begin.len()).position(|part| part == begin.as_bytes())?;
        Some(line[..at].to_vec())
    };
    let login = said(&mut shell.from, meant, &mut noise, (LOGIN, login_timeout));
    let begun = match place {
        Some(place) => place.until(login).await,
        None => login.await,
    };
    match begun {
        Ok(before) => {
            keep_last(&mut noise, &before);
            let output = run(&mut shell, mark, (script, limit)).await;
            let LoginShell { mut child, mut errors, .. } = shell;
            if output.end != ScriptEnd::Whole {
                kill_group(&child);
            }
            let _ = timeout(LAST_WORDS_TIMEOUT, child.wait()).await;
            let _ = child.kill().await;
            let last = timeout(LAST_WORDS_TIMEOUT, &mut errors).await;
            // A master connection of the user's may keep the pipe.
            errors.abort();
            let errors = phrase(&last.ok().and_then(Result::ok).unwrap_or_default());
            Ok(ScriptOutput { noise: phrase(&noise), errors, ..output })
        }
        Err(why) => Err(failure(shell.child, shell.errors, why, &noise).await),
    }
}

/// Kills a shell that leads a session of its own, and what it has started on this machine.
fn kill_group(child: &Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(id) = id {
        // It may have ended by itself.
        let _ = kill_process_group(id, Signal::KILL);
    }
}

/// Sends the script and reads its lines.
async fn run(
    shell: &mut LoginShell,
    mark: &str,
    (script, limit): (&str, Duration),
) -> ScriptOutput {
    let (sent, begun) = (SystemTime::now(), Instant::now());
    let mut output = ScriptOutput {
        lines: Vec::new(),
        noise: String::new(),
        errors: String::new(),
        sent,
        first_line_after: None,
        end: ScriptEnd::Closed,
    };
    let deadline = begun + limit;
    let text = format!("m={mark}\n{script}");
    let send = async {
        shell.to.write_all(text.as_bytes()).await?;
        shell.to.shutdown().await
    };
    match timeout_at(deadline, send).await {
        // A host that has closed the connection may have printed why.
        Ok(_) => {}
        Err(_) => {
            output.end = ScriptEnd::Late(limit);
            return output;
        }
    }
    let mut from = (&mut shell.from).take(OUTPUT_BYTES_MAX);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = timeout_at(deadline, from.read_until(b'\n', &mut line)).await;
        output.end = match read {
            Err(_) => ScriptEnd::Late(limit),
            Ok(Ok(1..)) => match line.strip_prefix(mark.as_bytes()) {
                Some(meant) => {
                    let meant = String::from_utf8_lossy(meant);
                    let meant = meant.trim_start_matches([' ', '\t']).trim_end_matches('\n');
                    if meant == END {
                        ScriptEnd::Whole
                    } else {
                        output.first_line_after.get_or_insert_with(|| begun.elapsed());
                        output.lines.push(meant.to_owned());
                        continue;
                    }
                }
                None => continue,
            },
            Ok(_) if from.limit() == 0 => ScriptEnd::TooLong,
            Ok(_) => ScriptEnd::Closed,
        };
        return output;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    async fn run_here(script: &str, limit: Duration) -> ScriptOutput {
        run_script_here((script, limit)).await.unwrap()
    }

    #[test]
    fn login_shells_read_the_opening_alike() {
        let opening = opening(&new_mark().unwrap());
        assert!(!opening.contains(['!', '\n', '"', '$', '`', '\\']), "{opening}");
        assert_eq!(opening.matches('\'').count(), 2);
        assert_ne!(new_mark().unwrap(), new_mark().unwrap());
    }

    #[tokio::test]
    async fn lines_with_the_mark_are_those_of_the_script() {
        let script = "echo noise; printf '%s\\tone\\ttwo\\n' $m; echo sheaf- three; echo error >&2; \
                      echo $m four; echo $m end; echo $m five";
        let output = run_here(script, LIMIT).await;
        assert_eq!(
            (output.lines, output.end),
            (vec!["one\ttwo".into(), "four".into()], ScriptEnd::Whole)
        );
        assert_eq!((output.noise.as_str(), output.errors.as_str()), ("", "error"));
        assert!(output.first_line_after.is_some_and(|after| after < LIMIT));
    }

    #[tokio::test]
    async fn script_that_does_not_end_has_its_reason() {
        let short = Duration::from_millis(300);
        for (script, limit, end) in [
            ("sleep 60", short, ScriptEnd::Late(short)),
            ("echo $m one; exit 1", LIMIT, ScriptEnd::Closed),
            ("yes \"$m one\"", LIMIT, ScriptEnd::TooLong),
            ("yes noise", LIMIT, ScriptEnd::TooLong),
            ("head -c 100000 /dev/zero", LIMIT, ScriptEnd::TooLong),
        ] {
            let output = run_here(script, limit).await;
            assert_eq!(output.end, end, "{script}");
            assert!(output.lines.len() as u64 <= OUTPUT_BYTES_MAX, "{script}");
        }
    }
}
