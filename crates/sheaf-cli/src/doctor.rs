//! Examinations of hosts over ssh, and of this machine: what keeps servers from starting.
//!
//! A POSIX shell on the host runs one script (`doctor/examine.sh`), so a host is examined also where
//! no server starts. The script changes nothing: to see whether files can be
//! written and programs run, it makes a file and removes it. Its lines are decoded (`facts`),
//! compared with what this program needs (`wanted`), and become findings (`findings`).
mod facts;
mod findings;
mod fold;
pub mod here;
pub mod listener;
mod remedies;
mod wanted;

use facts::Fact;
use findings::Context;
use sheaf_core::{Errno, lock};
use sheaf_records::{Area, Severity};
use sheaf_session::config::Launch;
use sheaf_session::{Config, without_host};
use sheaf_tree::launch::{
    ScriptEnd, ScriptFailure, ScriptOutput, Ssh, run_on_hosts, run_script_here,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use fold::{FoldedFinding, fold};
pub use wanted::Wanted;

const SCRIPT: &str = include_str!("doctor/examine.sh");
/// How long an examination may take on a host after the login, in timeouts of a login.
const EXAMINATION_LOGINS: u32 = 2;
/// How long it may take on this machine.
const OWN_EXAMINATION_TIMEOUT: Duration = Duration::from_secs(40);

/// The most lines that the script prints: it lists few programs of each directory.
const FACTS_MAX: usize = 200;

/// One thing that was found out about a host. In its texts, `%h` stands for the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub severity: Severity,
    pub area: Area,
    pub text: String,
    pub remedy: Option<String>,
    /// Why the host was not examined, or not to the end.
    pub errno: Option<Errno>,
    pub measure: Option<Measure>,
}

/// A number that belongs to a finding: seconds of a clock, or bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    pub value: f64,
    pub uncertainty: f64,
}

impl Finding {
    pub fn new(severity: Severity, area: Area, text: impl Into<String>) -> Self {
        Self { severity, area, text: text.into(), remedy: None, errno: None, measure: None }
    }

    #[must_use]
    pub fn mended_by(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    #[must_use]
    fn with_measure(self, measure: Measure) -> Self {
        Self { measure: Some(measure), ..self }
    }

    /// That a host was not examined to its end.
    fn failure(area: Area, errno: Errno, text: impl Into<String>, remedy: &str) -> Self {
        let finding = Self::new(Severity::Problem, area, text).mended_by(remedy);
        Self { errno: Some(errno), ..finding }
    }
}

/// How hosts are examined.
pub struct Examination {
    pub wanted: Wanted,
    /// The directories in which a host keeps the program, as words of a shell.
    pub directories: String,
    /// Servers are started through sudo.
    pub sudo: bool,
    /// Where the root listens, if hosts are to try it.
    pub root: Option<RootListener>,
}

/// A listener of this machine that hosts try to reach.
pub struct RootListener {
    /// The address, if it is not the one from which a host's ssh comes.
    pub address: Option<String>,
    pub port: u16,
    /// What it sends to those that connect.
    pub token: String,
    /// Hosts that do not reach it have no link.
    pub is_needed: bool,
}

/// What was found out about one host, or this machine.
#[derive(Debug)]
pub struct Examined {
    pub findings: Vec<Finding>,
    /// Whether it answered at all.
    pub has_answered: bool,
}

/// The hosts that have been examined so far, each in its place.
pub type HostsFound = Mutex<Vec<Option<Examined>>>;

impl Examined {
    /// Whether it was examined to the end.
    pub fn is_whole(&self) -> bool {
        self.findings.iter().all(|finding| finding.errno.is_none())
    }
}

impl Examination {
    /// Examines hosts. `found` has a place for each, which is filled as soon as it has been examined.
    pub async fn of_hosts(
        self: Arc<Self>,
        ssh: Ssh,
        hosts: &Arc<[String]>,
        found: &Arc<HostsFound>,
    ) {
        let script = self.script(true);
        let limit = ssh.login_timeout * EXAMINATION_LOGINS;
        let (names, found) = (Arc::clone(hosts), Arc::clone(found));
        let each = move |number: usize, result: Result<ScriptOutput, ScriptFailure>| {
            let examined = match result {
                Ok(output) => self.examined(&output, true),
                Err(failure) => not_begun(failure, &names[number]),
            };
            lock(&found)[number] = Some(examined);
        };
        run_on_hosts(ssh, hosts, (&script, limit), Arc::new(each)).await;
    }

    /// Examines this machine.
    pub async fn of_this_machine(&self) -> Examined {
        let script = self.script(false);
        match run_script_here((&script, OWN_EXAMINATION_TIMEOUT)).await {
            Ok(output) => self.examined(&output, false),
            Err(failure) => not_begun(failure, ""),
        }
    }

    /// The script with its variables. No text of them is read by a shell as anything else: digests
    /// are hexadecimal, and paths are those of [`sheaf_tree::launch::is_path_of_hosts`].
    fn script(&self, is_remote: bool) -> String {
        let Wanted { hash, bytes, installed, .. } = &self.wanted;
        let root = self.root.as_ref().filter(|_| is_remote);
        let port = root.map(|root| root.port.to_string()).unwrap_or_default();
        let address = root.and_then(|root| root.address.as_deref()).unwrap_or_default();
        let (sudo, program) = (u8::from(self.sudo), installed.as_deref().unwrap_or_default());
        format!(
            "hash={hash} size={bytes} sudo={sudo} port={port} address={address}\nprogram={program}\n{}",
            SCRIPT.replace("DIRS", &self.directories)
        )
    }

    /// The findings of what a host printed.
    fn examined(&self, output: &ScriptOutput, is_remote: bool) -> Examined {
        let facts: Result<Vec<Fact>, _> = output.lines.iter().map(|line| Fact::of(line)).collect();
        let is_whole = output.end != ScriptEnd::TooLong;
        let Some(facts) = facts.ok().filter(|facts| !is_whole || facts.len() <= FACTS_MAX) else {
            let text = "it answers what the examination does not ask";
            let remedy = "see what its /bin/sh prints: ssh %h /bin/sh -c true";
            let failure = Finding::failure(Area::Examination, Errno::PROTO, text, remedy);
            return Examined { findings: vec![failure], has_answered: true };
        };
        let context = Context {
            wanted: &self.wanted,
            asked: (output.sent, output.first_line_after.filter(|_| is_remote)),
            token: self.root.as_ref().map(|root| root.token.as_str()),
            needs_reach: self.root.as_ref().is_some_and(|root| root.is_needed),
        };
        let mut findings = findings::findings(&facts, &context);
        findings.extend(noise(output));
        let at = facts.iter().rev().find_map(|fact| match fact {
            Fact::At(what) => Some(what.as_str()),
            _ => None,
        });
        findings.extend(unfinished(output, at.unwrap_or("its begin")));
        Examined { findings, has_answered: true }
    }
}

impl Examined {
    /// A host that was not examined because the command has ended.
    pub fn untried(errno: Errno, text: &str) -> Self {
        let failure = Finding::failure(
            Area::Examination,
            errno,
            text,
            "examine it again: sheaf doctor -w %h",
        );
        Self { findings: vec![failure], has_answered: false }
    }
}

/// The command that finds out why hosts were not started over ssh.
pub fn command_for(config: &Config, hosts: &str) -> Option<String> {
    if config.launch() != Launch::Ssh || hosts.is_empty() {
        return None;
    }
    let name = &config.cluster.name.value;
    let cluster = if config.is_ad_hoc() { String::new() } else { format!("-C {name} ") };
    Some(format!("sheaf doctor {cluster}-w '{hosts}'"))
}

/// That a host, or its shell, lets nothing run.
fn not_begun(failure: ScriptFailure, host: &str) -> Examined {
    let ScriptFailure { errno, cause, is_login } = failure;
    let area = if is_login { Area::Login } else { Area::Shell };
    let cause = without_host(&cause, host);
    let remedy = remedies::of_login(&cause);
    Examined {
        findings: vec![Finding::failure(area, errno, cause, remedy)],
        has_answered: !is_login,
    }
}

/// What start-up files print.
fn noise(output: &ScriptOutput) -> Vec<Finding> {
    let note = |text: String| {
        Finding::new(Severity::Note, Area::Shell, text)
            .mended_by("let start-up files such as .bashrc print in interactive shells only")
    };
    let mut notes = Vec::new();
    if !output.noise.is_empty() {
        notes.push(note(format!(
            "its login shell prints before it runs a command: {}",
            output.noise
        )));
    }
    // Of an examination that failed they may be the reason.
    if !output.errors.is_empty() && output.end == ScriptEnd::Whole {
        notes.push(note(format!("its login shell prints errors: {}", output.errors)));
    }
    notes
}

/// That the script did not come to its end.
fn unfinished(output: &ScriptOutput, at: &str) -> Option<Finding> {
    let (errno, text, remedy) = match output.end {
        ScriptEnd::Whole => return None,
        ScriptEnd::Late(limit) => (
            Errno::TIMEDOUT,
            format!("its examination did not end within {} s: {at}", limit.as_secs_f32()),
            "see what hangs there, such as a file system whose server is gone: ssh %h df",
        ),
        ScriptEnd::Closed => (
            Errno::PROTO,
            format!("its examination ended too soon: {at}"),
            "see whether the host or the network ends connections: ssh -v %h",
        ),
        ScriptEnd::TooLong => (
            Errno::PROTO,
            format!("it printed more than an examination may: {at}"),
            "see what its /bin/sh prints: ssh %h /bin/sh -c true",
        ),
    };
    let errors = match output.errors.as_str() {
        "" => String::new(),
        errors => format!("; it printed: {errors}"),
    };
    Some(Finding::failure(Area::Examination, errno, text + &errors, remedy))
}
