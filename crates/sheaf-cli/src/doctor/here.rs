//! What only this machine has: sessions, the ssh client, companions.
use super::Finding;
use crate::companion::COMPANIONS;
use sheaf_records::{Area, Severity};
use sheaf_session::{Environment, SESSION_VARIABLE, Sessions, gates};
use std::path::Path;
use std::process::{Command, Stdio};

/// Sessions of this user, and the one that `named` says is meant.
pub fn of_sessions(named: Option<&str>, environment: &Environment) -> Vec<Finding> {
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
    let name = named.map(str::to_owned).or_else(|| environment.session());
    let mut findings = Vec::new();
    if let Some(name) = name.filter(|name| !running.contains(name)) {
        let says = if named.is_some() { "--session" } else { SESSION_VARIABLE };
        findings.push(
            Finding::new(
                Severity::Problem,
                Area::Session,
                format!("no session {name} runs, which {says} names"),
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
pub fn of_client(command: &[String]) -> Option<Finding> {
    let program = command.first()?;
    if Path::new(program).file_name()? != "ssh" {
        return None;
    }
    let said = Command::new(program).arg("-V").stdin(Stdio::null()).output();
    Some(match said {
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
