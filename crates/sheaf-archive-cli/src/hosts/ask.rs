//! `sheaf archive find` and `grep` of files on hosts: who asks them.
use super::drive;
use super::text::{HostText, TextRules};
use super::work::{HostWork, WORK, WorkAnswer, WorkRequest, WorkTold};
use crate::find::{SystemNames, SystemWords, check_records, now};
use crate::local;
use crate::relocate::ArchiveCpArgs;
use anyhow::Result;
use sheaf_archive::{
    ArchiveError, ArchiveGrepOptions, ArchiveGrepOutput, FindError, FindExpression, FindNames,
    FindSettings, FindTime, HostStep, HostTold, HostsRoot, LocalCopyReport,
};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_cli::session::Opening;
use sheaf_core::files::Timestamp;
use sheaf_core::{Errno, lock};
use sheaf_session::address::Purpose;
use std::ffi::OsString;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Finds files of hosts.
pub fn find(names: &[OsString], tests: Vec<String>, global: &GlobalArgs) -> Result<Exit> {
    let output = Output::new(global);
    check_tests(&tests, output.json)?;
    let (json, is_terminal) = (output.json, output.stdout_is_terminal);
    let work = |paths| Ok(HostWork::Find { paths, tests, now: now(), json, is_terminal });
    let asked = ask(names, work, false, None, global)?;
    Ok(match asked {
        WorkOutcome { interrupted: true, .. } => Exit::Interrupted,
        WorkOutcome { hosts: 0, is_heard: false, .. } => Exit::Unreachable,
        WorkOutcome { lost: 0, failed: 0, .. } => Exit::Success,
        _ => Exit::Partial,
    })
}

/// Searches files of hosts.
pub fn grep(
    names: &[OsString],
    options: ArchiveGrepOptions,
    no_messages: bool,
    global: &GlobalArgs,
) -> Result<Exit> {
    let is_quiet = options.output == ArchiveGrepOutput::Quiet;
    let work = |paths| Ok(HostWork::Grep { paths, options });
    let asked = ask(names, work, no_messages, None, global)?;
    Ok(match asked {
        WorkOutcome { interrupted: true, .. } => Exit::Interrupted,
        WorkOutcome { is_selected: true, .. } if is_quiet => Exit::Success,
        WorkOutcome { hosts: 0, is_heard: false, .. } => Exit::Unreachable,
        WorkOutcome { lost: 1.., .. } => Exit::Partial,
        WorkOutcome { failed: 1.., .. } => Exit::Usage,
        WorkOutcome { is_selected: true, .. } => Exit::Success,
        _ => Exit::Unmatched,
    })
}

/// Copies files of hosts to other places of theirs.
pub fn copy(args: &ArchiveCpArgs, global: &GlobalArgs) -> Result<Exit> {
    let options = local::copy::options(args);
    let says = options.dry_run || global.verbose > 0;
    let work = |mut sources: Vec<String>| {
        let to = super::one_path(&sources.pop().unwrap_or_default())?;
        Ok(HostWork::Copy { sources, to, options, says })
    };
    let asked = ask(&args.names.all()?, work, false, Some("archive cp"), global)?;
    local::copy::tell(&asked.copied, options, global)?;
    Ok(match asked {
        WorkOutcome { interrupted: true, .. } => Exit::Interrupted,
        WorkOutcome { hosts: 0, is_heard: false, .. } => Exit::Unreachable,
        // Of attributes that are lost only the first of each name is told.
        WorkOutcome { lost: 0, failed: 0, copied: LocalCopyReport { failed: 0, .. }, .. } => {
            Exit::Success
        }
        _ => Exit::Partial,
    })
}

/// What is wrong with tests, before hosts are asked: names of users and files are theirs.
fn check_tests(tests: &[String], json: bool) -> Result<()> {
    struct AnyNames;
    impl FindNames for AnyNames {
        fn uid(&self, _: &str) -> Option<u32> {
            Some(0)
        }
        fn gid(&self, _: &str) -> Option<u32> {
            Some(0)
        }
        fn time(&self, text: &str) -> Option<Timestamp> {
            SystemNames.time(text)
        }
        fn time_of(&self, _: &str, _: FindTime) -> Option<Timestamp> {
            Some(Timestamp::default())
        }
    }
    let wrong = |error: FindError| Stop::usage(printable(&error.to_string()));
    let (words, now) = (Arc::new(SystemWords::new(false)), now());
    let settings = FindSettings { names: &AnyNames, words, now };
    let expression = FindExpression::new(tests, &settings).map_err(wrong)?;
    expression.check_hosts().map_err(wrong)?;
    check_records(&expression, json)
}

/// What came of it.
struct WorkOutcome {
    /// Those that answered to the end.
    hosts: usize,
    /// At least a part of an answer came.
    is_heard: bool,
    lost: usize,
    failed: u64,
    is_selected: bool,
    copied: LocalCopyReport,
    interrupted: bool,
}

fn ask(
    names: &[OsString],
    work: impl FnOnce(Vec<String>) -> Result<HostWork>,
    no_messages: bool,
    changes: Option<&'static str>,
    global: &GlobalArgs,
) -> Result<WorkOutcome> {
    let (mut opening, purpose) = match changes {
        Some(command) => (Opening::to_change(global)?, Purpose::Change(command)),
        None => (Opening::new(global)?, Purpose::Read),
    };
    opening.lift_deadline();
    let (members, paths) = super::places(names, opening.config(), purpose)?;
    let work = work(paths)?;
    opening.run(async |session, config, _| {
        let states = vec![WorkState::New; members.iter().count()];
        let client = session.client();
        let hosts: Vec<String> =
            members.iter().map(|leaf| client.host(leaf).unwrap_or_default()).collect();
        let rules = TextRules::new(&work, &hosts, Output::new(global).stdout_is_terminal);
        let texts = hosts.iter().map(|host| rules.of(host)).collect();
        let root = Arc::new(WorkRoot {
            ends_early: matches!(&work, HostWork::Grep { options, .. }
                if options.output == ArchiveGrepOutput::Quiet),
            work,
            no_messages,
            states: Mutex::new(states),
            texts: Mutex::new(texts),
            told: Mutex::default(),
            failed: AtomicU64::new(0),
            is_selected: AtomicBool::new(false),
            is_heard: AtomicBool::new(false),
            copied: Mutex::default(),
        });
        let driven = drive::drive(session, config, &members, WORK, &root, global).await?;
        Ok(WorkOutcome {
            hosts: driven.done,
            is_heard: root.is_heard.load(Ordering::Relaxed),
            lost: driven.lost,
            failed: root.failed.load(Ordering::Relaxed),
            is_selected: root.is_selected.load(Ordering::Relaxed),
            copied: *lock(&root.copied),
            interrupted: session.client().is_interrupted(),
        })
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkState {
    New,
    AtWork,
    Over,
}

/// Who asks hosts for more until there is no more.
struct WorkRoot {
    work: HostWork,
    no_messages: bool,
    /// One selected line is enough.
    ends_early: bool,
    states: Mutex<Vec<WorkState>>,
    texts: Mutex<Vec<HostText>>,
    told: Mutex<Vec<(usize, HostTold)>>,
    failed: AtomicU64,
    is_selected: AtomicBool,
    is_heard: AtomicBool,
    copied: Mutex<LocalCopyReport>,
}

impl WorkRoot {
    fn said(&self, host: usize, text: String) {
        lock(&self.told).push((host, HostTold::Said(text)));
    }

    /// Nothing more of a host counts.
    fn refuse(&self, host: usize, why: String) {
        lock(&self.states)[host] = WorkState::Over;
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.said(host, why);
    }

    /// Writes the text of an answer; whether it is one of this host.
    fn write(&self, host: usize, answer: &WorkAnswer) -> Result<bool, ArchiveError> {
        let mut texts = lock(&self.texts);
        let text = &mut texts[host];
        let taken = text.take(&answer.text).and_then(|mut taken| {
            if answer.is_over {
                taken.extend(text.end()?);
            }
            Ok(taken)
        });
        match taken {
            Ok(text) if text.is_empty() => Ok(true),
            Ok(text) => {
                let mut out = output::stdout();
                let written = out.write_all(&text).and_then(|()| out.flush());
                written.map_err(|error| unsaid(Errno::from_io(&error)))?;
                Ok(true)
            }
            Err(errno) => {
                self.refuse(host, format!("it speaks for another host: {errno}"));
                Ok(false)
            }
        }
    }

    fn has_enough(&self) -> bool {
        output::is_over() || (self.ends_early && self.is_selected.load(Ordering::Relaxed))
    }
}

impl HostsRoot for WorkRoot {
    fn next(&self, host: usize) -> Result<HostStep, ArchiveError> {
        let mut states = lock(&self.states);
        let request = match states[host] {
            WorkState::Over => return Ok(HostStep::Over),
            _ if self.has_enough() => return Ok(HostStep::Over),
            WorkState::New => WorkRequest::Begin(self.work.clone()),
            WorkState::AtWork => WorkRequest::More,
        };
        states[host] = WorkState::AtWork;
        let request = postcard::to_allocvec(&request).map_err(|_| unsaid(Errno::NOMEM))?;
        Ok(HostStep::Ask(request))
    }

    fn answered(&self, host: usize, answer: &[u8]) -> Result<(), ArchiveError> {
        let Ok(answer) = postcard::from_bytes::<WorkAnswer>(answer) else {
            self.refuse(host, "its answer cannot be read".to_owned());
            return Ok(());
        };
        if !answer.text.is_empty() || answer.is_selected || !answer.told.is_empty() {
            self.is_heard.store(true, Ordering::Relaxed);
        }
        if answer.is_selected {
            self.is_selected.store(true, Ordering::Relaxed);
        }
        if !self.write(host, &answer)? {
            return Ok(());
        }
        for told in answer.told {
            let is_failure = matches!(told, WorkTold::Failed(_));
            self.failed.fetch_add(u64::from(is_failure), Ordering::Relaxed);
            if !(is_failure && self.no_messages) {
                self.said(host, told.text());
            }
        }
        *lock(&self.copied) += answer.copied;
        if answer.is_over {
            lock(&self.states)[host] = WorkState::Over;
        }
        Ok(())
    }

    fn lost(&self, host: usize, why: &str) -> Result<(), ArchiveError> {
        lock(&self.states)[host] = WorkState::Over;
        self.said(host, why.to_owned());
        Ok(())
    }

    fn told(&self) -> Vec<(usize, HostTold)> {
        std::mem::take(&mut lock(&self.told))
    }
}

fn unsaid(errno: Errno) -> ArchiveError {
    let (path, doing) = ("standard output".into(), "cannot be written");
    ArchiveError::File { path, doing, errno }
}
