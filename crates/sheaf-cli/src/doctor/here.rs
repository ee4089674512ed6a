//! What only this machine has: sessions, the ssh client, companions.
use super::Finding;
use crate::companion::COMPANIONS;
use sheaf_records::{Area, Severity};
use sheaf_session::{Environment, SESSION_VARIABLE, Sessions, gates};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// How long an ssh client may take to print its version.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Sessions of this user, and the one that the environment says is meant.
pub fn of_sessions(environment: &Environment) -> Vec<Finding> {
    let listed = Sessions::of(environment).running().and_then(|mut names| {
        names.extend(gates::here(environment)?);
        names.sort_unstable();
        names.dedup();
        Ok(names)
    });
    let running = match listed {
        Ok(running) => running,
        Err(error) => {
            let text = sheaf_session::one_line(&error);
            return vec![
                Finding::new(Severity::Problem, Area::Session, text)
                    .mended_by("correct the directory of sessions: $XDG_RUNTIME_DIR/sheaf"),
            ];
        }
    };
    let mut findings = Vec::new();
    if let Some(name) = environment.session().filter(|name| !running.contains(name)) {
        findings.push(
            Finding::new(
                Severity::Problem,
                Area::Session,
                format!("no session {name} runs, which {SESSION_VARIABLE} names"),
            )
            .mended_by(format!("start it: sheaf up --session {name}; or name another")),
        );
    }
    for name in running {
        findings.push(Finding::new(Severity::Ok, Area::Session, format!("session {name} runs")));
    }
    findings
}

/// The version of the ssh client that this command line begins with.
pub async fn of_client(command: &[String]) -> Option<Finding> {
    let program = command.first()?;
    if Path::new(program).file_name()? != "ssh" {
        return None;
    }
    let mut client = Command::new(program);
    client.arg("-V").stdin(Stdio::null()).kill_on_drop(true);
    let late = |_| Err(std::io::ErrorKind::TimedOut.into());
    Some(match timeout(CLIENT_TIMEOUT, client.output()).await.unwrap_or_else(late) {
        Ok(said) => {
            let text = String::from_utf8_lossy(&said.stderr);
            let version = text.split([',', '\n']).next().unwrap_or_default().to_owned();
            Finding::new(Severity::Ok, Area::Versions, format!("{program} is {version}"))
        }
        Err(error) => Finding::new(
            Severity::Note,
            Area::Versions,
            format!("{program} cannot be run: {error}"),
        )
        .mended_by("install an ssh client, if hosts are to be started over ssh"),
    })
}

/// The programs next to this one.
pub fn of_companions() -> Vec<Finding> {
    let finding = |companion: &&crate::companion::Companion| {
        let (program, command) = (companion.program, companion.command);
        match companion.installed() {
            Ok(Some(path)) => {
                let text = format!("{} does sheaf {command}", path.display());
                Finding::new(Severity::Ok, Area::Versions, text)
            }
            _ => Finding::new(
                Severity::Note,
                Area::Versions,
                format!("{program} is not installed, so sheaf {command} does nothing"),
            )
            .mended_by(format!("put {program} next to sheaf, or into lib/sheaf next to its bin")),
        }
    };
    COMPANIONS.iter().map(finding).collect()
}
