//! What the facts of one host mean for its servers.
use super::facts::{CachedProgram, Directory, Fact, Fitness, HostLibc, HostTime, Place, Room};
use super::wanted::{KERNEL_MIN, NeededLibc, Wanted};
use super::{Finding, Measure};
use sheaf_records::{Area, Severity};
use sheaf_tools::report::human;
use sheaf_tree::launch::is_path_of_hosts;
use std::time::{Duration, SystemTime};

/// A clock that differs by more is a note.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(1);
/// A file system with less free space is a note.
const SPACE_MIN_BYTES: u64 = 16 << 20;
/// A program needs these: directories of its own, a file while it comes, and its name.
const INODES_MIN: u64 = 4;
/// A server with a lower limit of open files is short of them.
const FILES_MIN: u64 = 1_024;
/// What a shell exits with when `doctor --reach` has not got through.
const UNREACHED: u32 = 3;

/// What there is to compare the facts of a host with.
pub struct Context<'a> {
    pub wanted: &'a Wanted,
    /// When the host was asked for the time, and how long its answer took.
    pub asked: (SystemTime, Option<Duration>),
    /// What a host prints that has reached the root's listener.
    pub token: Option<&'a str>,
    /// Hosts that do not reach the root have no link.
    pub needs_reach: bool,
}

/// The findings of one host, from its facts.
pub fn findings(facts: &[Fact], context: &Context<'_>) -> Vec<Finding> {
    let mut host = Host { facts, context, findings: Vec::new() };
    for fact in facts {
        host.add_fact(fact);
    }
    host.add_cache();
    host.findings
}

struct Host<'a> {
    facts: &'a [Fact],
    context: &'a Context<'a>,
    findings: Vec<Finding>,
}

impl Host<'_> {
    fn ok(&mut self, area: Area, text: impl Into<String>) {
        self.findings.push(Finding::new(Severity::Ok, area, text));
    }

    fn note(&mut self, area: Area, text: impl Into<String>, remedy: impl Into<String>) {
        self.findings.push(Finding::new(Severity::Note, area, text).mended_by(remedy));
    }

    fn problem(&mut self, area: Area, text: impl Into<String>, remedy: impl Into<String>) {
        self.findings.push(Finding::new(Severity::Problem, area, text).mended_by(remedy));
    }

    fn add_fact(&mut self, fact: &Fact) {
        match fact {
            Fact::At(_) | Fact::Directory(_) => {}
            Fact::Clock(time) => self.add_clock(*time),
            Fact::Account { uid, user, shell } => {
                let user = if user.is_empty() { format!("user {uid}") } else { user.clone() };
                self.ok(Area::Login, format!("commands run as {user}"));
                self.ok(Area::Shell, format!("the login shell {shell} runs /bin/sh"));
            }
            Fact::System { os, machine, kernel } => self.add_system(os, machine, kernel),
            Fact::Libc(libc) => self.add_libc(*libc),
            Fact::Files { soft, hard } => self.add_files(*soft, *hard),
            Fact::Unchecked => self.note(
                Area::Cache,
                "sha256sum does not exist: only the size of the program is checked",
                "install coreutils there",
            ),
            Fact::Program(program) => self.add_program(program),
            Fact::Run { place, path, outcome } => self.add_run(*place, path, outcome.as_ref()),
            Fact::Sudo(outcome) => self.add_sudo(outcome.as_ref()),
            Fact::Space { path, room, exists } => self.add_space(path, *room, *exists),
            Fact::Sshd(version) if version.is_empty() => {}
            Fact::Sshd(version) => self.ok(Area::Versions, format!("its sshd is {version}")),
            Fact::Fuse { device, helper, namespaces } => {
                self.add_fuse(*device, *helper, *namespaces);
            }
            Fact::Reach(outcome) => self.add_reach(outcome.as_ref()),
        }
    }

    fn add_clock(&mut self, HostTime { time, is_whole }: HostTime) {
        let (sent, Some(round_trip)) = self.context.asked else { return };
        // A whole second has passed by half on average.
        let half_second = if is_whole { 0.5 } else { 0.0 };
        let asked = sent + round_trip / 2;
        let seconds = match time.duration_since(asked) {
            Ok(ahead) => ahead.as_secs_f64(),
            Err(behind) => -behind.duration().as_secs_f64(),
        } + half_second;
        let uncertainty = round_trip.as_secs_f64() / 2.0 + half_second;
        let differs = seconds.abs() - uncertainty > CLOCK_DIFFERENCE_MAX.as_secs_f64();
        let measure = Measure { value: seconds, uncertainty };
        let finding = if differs {
            let text =
                "its clock differs from this machine's, so times of files and of traces do too";
            Finding::new(Severity::Note, Area::Clock, text)
                .mended_by("let a service such as chrony set the clock of both")
        } else {
            Finding::new(Severity::Ok, Area::Clock, "its clock agrees with this machine's")
        };
        self.findings.push(finding.with_measure(measure));
    }

    fn add_system(&mut self, os: &str, machine: &str, kernel: &str) {
        let wanted = self.context.wanted;
        // A program that is installed there is built for it.
        let must_fit = wanted.installed.is_none();
        let other = "install the build for it there, and name its path: program = \"…\"";
        if os != "Linux" {
            let text = format!("its system is {os}, and servers need Linux");
            return self.problem(Area::System, text, "leave it out: -x %h");
        }
        if must_fit && !wanted.runs_on(machine) {
            let text =
                format!("its processor is {machine}, and this program is for {}", wanted.machine);
            self.problem(Area::System, text, other);
        }
        let numbers: Vec<u32> = kernel
            .split(|c: char| !c.is_ascii_digit())
            .map_while(|part| part.parse().ok())
            .collect();
        let (major, minor) = KERNEL_MIN;
        match numbers[..] {
            [a, b, ..] if (a, b) < KERNEL_MIN => {
                let text =
                    format!("its kernel is {kernel}, and servers need {major}.{minor} or newer");
                self.problem(
                    Area::System,
                    text,
                    "boot a newer kernel there, or leave it out: -x %h",
                );
            }
            _ => self.ok(Area::System, format!("{os} {kernel} on {machine}")),
        }
    }

    fn add_libc(&mut self, libc: HostLibc) {
        let wanted = self.context.wanted;
        let NeededLibc::Glibc(needed) = wanted.libc else { return };
        if wanted.installed.is_some() {
            return;
        }
        let needs = format!("this program needs glibc 2.{needed} or newer");
        let remedy = "use the static programs, which need no C library (docs/install.md)";
        match libc {
            HostLibc::Glibc(minor) if minor >= needed => {
                self.ok(Area::System, format!("its C library is glibc 2.{minor}"));
            }
            HostLibc::Glibc(minor) => {
                self.problem(
                    Area::System,
                    format!("its C library is glibc 2.{minor}, and {needs}"),
                    remedy,
                );
            }
            HostLibc::Musl => {
                self.problem(Area::System, format!("its C library is musl, and {needs}"), remedy);
            }
            HostLibc::Unknown if self.has_run() => {}
            HostLibc::Unknown => {
                self.note(Area::System, format!("its C library is not known, and {needs}"), remedy);
            }
        }
    }

    /// Whether the cached program has run there.
    fn has_run(&self) -> bool {
        let runs = |fact: &Fact| {
            matches!(fact, Fact::Run { place: Place::Cache, outcome: Some((0, _)), .. })
        };
        self.facts.iter().any(runs)
    }

    fn add_files(&mut self, soft: Option<u64>, hard: Option<u64>) {
        let words = |limit: Option<u64>| {
            limit.map_or("any number of".to_owned(), |files| files.to_string())
        };
        // A server raises its limit as far as it may.
        match hard.filter(|hard| *hard < FILES_MIN) {
            Some(hard) => self.note(
                Area::Limits,
                format!("a process may open {hard} files at most"),
                format!("raise the hard limit (ulimit -Hn) to {FILES_MIN} or more"),
            ),
            None => self.ok(
                Area::Limits,
                format!(
                    "a process may open {} files, and up to {} if it asks",
                    words(soft),
                    words(hard)
                ),
            ),
        }
    }

    fn add_program(&mut self, program: &CachedProgram) {
        let CachedProgram { path, bytes, .. } = program;
        if self.is_intact(program) {
            return self
                .ok(Area::Versions, format!("its cache has {path}, {}", human::size(*bytes)));
        }
        let text = format!("{path} is damaged: its {bytes} bytes are not those of its name");
        let remedy = if program.digest == self.context.wanted.hash {
            "the next start replaces it; after a crash, check the file system"
        } else {
            "remove it: sheaf clean -w %h; after a crash, check the file system"
        };
        self.note(Area::Cache, text, remedy);
    }

    fn is_intact(&self, program: &CachedProgram) -> bool {
        let wanted = self.context.wanted;
        match &program.sum {
            Some(sum) => *sum == program.digest,
            None if program.digest == wanted.hash => program.bytes == wanted.bytes,
            None => program.bytes > 0,
        }
    }

    fn add_run(&mut self, place: Place, path: &str, outcome: Option<&(u32, String)>) {
        let wanted = self.context.wanted;
        match (place, outcome) {
            (_, Some((0, version))) if *version == wanted.version => {
                self.ok(Area::Exec, format!("{path} runs: {version}"));
            }
            // Its digest is that of this program.
            (Place::Cache, Some((0, version))) => {
                self.ok(Area::Exec, format!("{path} runs: {version}"))
            }
            (Place::Cache, outcome) => self.problem(
                Area::Exec,
                format!("{path} does not run{}", words_of(outcome)),
                "see whether the host forbids it (noexec, SELinux, AppArmor), or set program",
            ),
            (Place::Setting, Some((0, version))) => self.problem(
                Area::Versions,
                format!("{path} is {version}, and this is {}", wanted.version),
                "install the same version there",
            ),
            (Place::Setting, None) => self.problem(
                Area::Exec,
                format!("{path} does not exist or cannot run (setting program)"),
                "install the same version there, or remove the setting program",
            ),
            (Place::Setting, outcome) => self.problem(
                Area::Exec,
                format!("{path} does not run{}", words_of(outcome)),
                "install a build for this host there, or remove the setting program",
            ),
            (Place::Path, Some((0, version))) => self.note(
                Area::Versions,
                format!("{path} is {version}, and this is {}", wanted.version),
                "commands that are typed there may not join sessions of this version",
            ),
            (Place::Path, outcome) => self.note(
                Area::Versions,
                format!("{path} does not run{}", words_of(outcome)),
                "install a build for this host there, or remove it",
            ),
        }
    }

    fn add_sudo(&mut self, outcome: Option<&(u32, String)>) {
        let Some((code, said)) = outcome else {
            let remedy = "install sudo there, or log in as the user who is to serve: -l USER";
            return self.problem(Area::Sudo, "sudo does not exist", remedy);
        };
        if *code == 0 {
            return self.ok(Area::Sudo, "sudo -n runs programs");
        }
        let remedy = if said.contains("tty") {
            "let it run without a terminal, in sudoers: Defaults:USER !requiretty"
        } else {
            "let it run without a password, in sudoers: USER ALL=(ALL) NOPASSWD: ALL"
        };
        self.problem(
            Area::Sudo,
            format!("sudo -n does not run programs{}", words_of(outcome)),
            remedy,
        );
    }

    fn add_space(&mut self, path: &str, room: Option<Room>, exists: bool) {
        let is_user = path.starts_with("/run/user/");
        match room {
            _ if !exists && is_user => {}
            _ if !exists && path == "/dev/shm" => self.note(
                Area::Space,
                "/dev/shm does not exist, where recordings keep their operations",
                "mount a tmpfs there, or record with trace record --buffers DIR",
            ),
            _ if !exists => self.note(
                Area::Space,
                format!("{path} does not exist"),
                format!("make it: mkdir -m 1777 {}", word(path)),
            ),
            None => self.note(
                Area::Space,
                format!("the free space of {path} is not known"),
                "see df there",
            ),
            Some(Room { available, .. }) => {
                let measure = Measure { value: available as f64, uncertainty: 0.0 };
                let finding = if available < SPACE_MIN_BYTES {
                    Finding::new(
                        Severity::Note,
                        Area::Space,
                        format!("{path} has little free space"),
                    )
                    .mended_by("remove files there, or make its file system larger")
                } else {
                    Finding::new(Severity::Ok, Area::Space, format!("{path} has free space"))
                };
                self.findings.push(finding.with_measure(measure));
            }
        }
    }

    fn add_fuse(&mut self, device: bool, helper: bool, namespaces: bool) {
        let is_root = self.facts.iter().any(|fact| matches!(fact, Fact::Account { uid: 0, .. }));
        // Root mounts without the helper.
        let lacks = match (device, helper || is_root) {
            (true, true) => {
                let without = if namespaces { "" } else { ", but no user namespaces" };
                return self.ok(Area::Versions, format!("it has FUSE for mounted views{without}"));
            }
            (false, true) => "/dev/fuse cannot be opened",
            (true, false) => "fusermount3 does not exist",
            (false, false) => "/dev/fuse cannot be opened, and fusermount3 does not exist",
        };
        self.note(
            Area::Versions,
            format!("no view can be mounted there: {lacks}"),
            "install fuse3 there, if it is to have mounted views",
        );
    }

    fn add_reach(&mut self, outcome: Option<&(u32, String)>) {
        let untried = "start a session there once, and examine it again";
        match outcome {
            Some((0, said)) if self.context.token == Some(said.as_str()) => {
                self.ok(Area::Ports, "it reaches this machine over TCP");
            }
            Some((0, _)) => self.note(
                Area::Ports,
                "what it reaches over TCP is not this machine",
                "see which proxy or other machine has this address there: setting listen",
            ),
            Some((UNREACHED, said)) => {
                let said = said.strip_prefix("sheaf: ").unwrap_or(said);
                let text = format!("it does not reach this machine over TCP: {said}");
                if self.context.needs_reach {
                    self.problem(
                        Area::Ports,
                        text,
                        "open the way (settings listen and ports), or set link = \"auto\"",
                    );
                } else {
                    self.note(
                        Area::Ports,
                        text + "; its link goes through ssh",
                        "open the way: settings listen and ports",
                    );
                }
            }
            outcome @ Some(_) => self.note(
                Area::Ports,
                format!("TCP was not tried: its program failed{}", words_of(outcome)),
                "install the same version there",
            ),
            None => self.note(
                Area::Ports,
                "TCP was not tried: it does not have this program yet",
                untried,
            ),
        }
    }

    /// Where the program is kept, or can be.
    fn add_cache(&mut self) {
        let wanted = self.context.wanted;
        let directories: Vec<Directory> =
            self.facts.iter().filter_map(directory).cloned().collect();
        if wanted.installed.is_some() || directories.is_empty() {
            return;
        }
        for directory in directories.iter().filter(|directory| directory.is_open) {
            let path = &directory.path;
            let text = format!("other users can write to {path}, and so replace the program");
            self.problem(Area::Cache, text, format!("chmod go-w {}", word(path)));
        }
        let has_program = self.facts.iter().any(|fact| match fact {
            Fact::Program(program) => program.digest == wanted.hash && self.is_intact(program),
            _ => false,
        });
        let reasons: Vec<(&Directory, Option<String>)> =
            directories.iter().map(|directory| (directory, unfitness(directory, wanted))).collect();
        let fit = reasons.iter().find(|(_, why)| why.is_none()).map(|(directory, _)| *directory);
        let told: Vec<String> = reasons
            .iter()
            .filter(|(directory, _)| directory.fitness != Fitness::Absent)
            .map_while(|(directory, why)| {
                why.as_ref().map(|why| format!("{}: {why}", directory.path))
            })
            .collect();
        let area = if directories[0].fitness == Fitness::NoExec { Area::Exec } else { Area::Cache };
        let remedy = remedy(&directories[0]);
        match fit {
            _ if has_program => self.ok(Area::Cache, "the program is in its cache"),
            Some(directory) if told.is_empty() => {
                self.ok(Area::Cache, format!("the program will be kept in {}", directory.path));
            }
            Some(directory) => {
                let text =
                    format!("{}; the program is kept in {}", told.join("; "), directory.path);
                self.note(area, text, remedy);
            }
            None => {
                let text = format!("the program can be kept nowhere: {}", told.join("; "));
                self.problem(area, text, remedy);
            }
        }
    }
}

fn directory(fact: &Fact) -> Option<&Directory> {
    match fact {
        Fact::Directory(directory) => Some(directory),
        _ => None,
    }
}

/// Why the program cannot be kept in a directory.
fn unfitness(directory: &Directory, wanted: &Wanted) -> Option<String> {
    let Directory { tried, owner, .. } = directory;
    // The system's reason stands at the end.
    let why = directory.why.rsplit(": ").next().unwrap_or_default();
    Some(match directory.fitness {
        Fitness::Absent => "it does not exist".to_owned(),
        Fitness::Relative => "its path is relative".to_owned(),
        Fitness::Link => "it is a symbolic link".to_owned(),
        Fitness::File => format!("{tried} is not a directory"),
        Fitness::Other => match owner {
            Some(owner) => format!("it belongs to user {owner}"),
            None => "it belongs to another user".to_owned(),
        },
        Fitness::Way => format!("another user owns {tried}, or can write to it"),
        Fitness::Unwritable => format!("no file can be made in {tried}: {why}"),
        Fitness::Full => format!("no file can be written in {tried}: {why}"),
        Fitness::NoExec => "no program can run there (noexec)".to_owned(),
        Fitness::NoRun => format!("a script does not run there: {why}"),
        Fitness::Fit => {
            let room = directory.room.filter(|room| room.available < wanted.bytes);
            let inodes = directory.inodes.filter(|inodes| inodes.available < INODES_MIN);
            match (room, inodes) {
                (Some(_), _) => {
                    format!("too little space is free for {}", human::size(wanted.bytes))
                }
                (None, Some(_)) => "no inodes are free".to_owned(),
                (None, None) => return None,
            }
        }
    })
}

fn remedy(directory: &Directory) -> String {
    let path = word(&directory.path);
    let or = "or name another directory: remote_dir = \"…\"";
    match directory.fitness {
        Fitness::Fit | Fitness::Full => format!("remove files there, {or}"),
        Fitness::NoExec | Fitness::NoRun => {
            "name a directory from which programs run: remote_dir = \"…\"; or install the program: \
             program = \"…\""
                .to_owned()
        }
        Fitness::Other => format!("remove {path}, {or}"),
        Fitness::Way => {
            format!("let only root and the user write to {}, {or}", word(&directory.tried))
        }
        Fitness::Link | Fitness::File => format!("put a directory in its place, {or}"),
        Fitness::Absent | Fitness::Relative | Fitness::Unwritable => {
            format!("let the user write to {path}, {or}")
        }
    }
}

/// A path of a host as a word of a command that a person may copy: no shell reads it as anything
/// else.
fn word(path: &str) -> &str {
    if is_path_of_hosts(path) { path } else { "DIR" }
}

/// What a program that failed printed, and its exit code.
fn words_of(outcome: Option<&(u32, String)>) -> String {
    match outcome {
        Some((code, said)) if said.is_empty() => format!(" (exit code {code})"),
        Some((_, said)) => format!(": {said}"),
        None => String::new(),
    }
}
