//! `cargo xtask test`: builds the tests of the workspace once, and runs those of a tier.
//!
//! All tiers build the same packages with the same features, so that one never builds again what
//! another has built.
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Packages whose integration tests need no process beside their own.
const WITHIN_A_PROCESS: [&str; 8] = [
    "sheaf-core",
    "sheaf-file",
    "sheaf-group",
    "sheaf-log",
    "sheaf-proto",
    "sheaf-session",
    "sheaf-tools",
    "sheaf-tree",
];
/// Where the tests are that need daemons, namespaces, FUSE or a browser: packages, and what the
/// names of the tests begin with.
const LAB: [(&str, &[&str]); 4] = [
    (
        "sheaf",
        &[
            "addresses::",
            "attach::",
            "chosen_hosts::",
            "gates::",
            "machines::",
            "mount",
            "names::",
            "peers::",
            "slurm::",
            "ssh_launch::",
        ],
    ),
    ("sheaf-archive", &["postgres::", "proxy::", "s3::", "stores::"]),
    ("sheaf-archive-cli", &["archive_s3::"]),
    ("sheaf-trace-cli", &["trace_kernel::", "trace_page::"]),
];
/// Packages whose tests compute all the time, and look at no clock: they run beside the others, which wait half
/// of their time, and give way to them.
const COMPUTE: [&str; 3] = ["sheaf-archive", "sheaf-core", "sheaf-proto"];
/// The package whose integration tests take longer than those of all others together.
const LONGEST: &str = "sheaf";
/// Its tests that run before its others. They wait most of their time, best while others compute.
const LONGEST_FIRST: &str = "ssh_launch::";
/// How much those that compute give way: as far as can be.
const GIVE_WAY: &str = "19";
/// What the harness ends with when tests have failed.
const HARNESS_FAILED: i32 = 101;
/// How many seeds of the simulator the quick tier runs.
const QUICK_SEEDS: &str = "300";

/// How many tests may pass only when they are run again, before that counts as a failure.
const UNSTEADY_MAX: usize = 3;
/// How long no test of a program may end. What hangs is to be seen before whoever waits for all gives up.
const SILENCE_MAX: Duration = Duration::from_secs(900);
/// How many processes are listed when that was too long.
const PROCESSES_MAX: usize = 300;
/// How many tests of the first lane run at a time.
const THREADS_PER_CORE: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tier {
    Quick,
    Lab,
    Full,
}

/// What is asked for.
pub struct Run {
    tier: Tier,
    words: Vec<String>,
    /// How many of the slowest tests are listed.
    slow: usize,
    /// Whether a test that fails is run again alone, and counts as unsteady if it passes.
    again: bool,
}

/// An executable of tests.
struct TestProgram {
    package: String,
    directory: PathBuf,
    /// Of one of the directory `tests`.
    is_integration: bool,
    path: PathBuf,
    silence_max: Duration,
}

/// Two lanes run one program each at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    First,
    Second,
}

/// Programs that have not begun.
struct Queue<'a> {
    /// The one that takes longest comes first.
    waiting: VecDeque<&'a TestProgram>,
    computing: VecDeque<&'a TestProgram>,
}

impl<'a> Queue<'a> {
    fn of(programs: &'a [TestProgram]) -> Self {
        let (computing, mut waiting): (VecDeque<_>, VecDeque<_>) =
            programs.iter().partition(|program| program.computes());
        let longest =
            |program: &&TestProgram| program.package != LONGEST || !program.is_integration;
        waiting.make_contiguous().sort_by_key(longest);
        Self { waiting, computing }
    }

    /// The next program for a lane: two that compute run side by side only when nothing else is
    /// left.
    fn next(&mut self, lane: Lane) -> Option<&'a TestProgram> {
        match lane {
            Lane::First => self.waiting.pop_front().or_else(|| self.computing.pop_back()),
            Lane::Second => self.computing.pop_front().or_else(|| self.waiting.pop_back()),
        }
    }
}

/// What programs of tests have told.
#[derive(Default)]
struct Ran<'a> {
    failed: Vec<String>,
    /// Tests that failed and are run again, of each program.
    to_run_again: Vec<(&'a TestProgram, Vec<String>)>,
    times: Vec<(Duration, String)>,
    /// Tests that passed, and that failed.
    counts: [u64; 2],
    failures: Failures,
}

/// The output of failed tests, to be read again at the end: the first lines of it.
#[derive(Default)]
struct Failures {
    lines: Vec<String>,
    is_inside: bool,
}

impl Failures {
    const LINES: usize = 200;
    const COLUMNS: usize = 500;

    /// Takes the next line of the harness's output.
    fn read(&mut self, line: &str) {
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            self.is_inside = true;
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.is_inside = false;
        }
        if self.is_inside && !line.is_empty() && self.lines.len() < Self::LINES {
            self.lines.push(line.chars().take(Self::COLUMNS).collect());
        }
    }
}

impl Ran<'_> {
    fn and(mut self, other: Self) -> Self {
        self.failed.extend(other.failed);
        self.to_run_again.extend(other.to_run_again);
        self.times.extend(other.times);
        self.failures.lines.extend(other.failures.lines);
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self
    }
}

impl Run {
    /// Reads the words behind `test`.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let (tier, mut rest) = words.split_first().ok_or(super::USAGE)?;
        let tier = match *tier {
            "quick" => Tier::Quick,
            "lab" => Tier::Lab,
            "full" => Tier::Full,
            other => return Err(format!("no tier is called {other}\n{}", super::USAGE)),
        };
        let (mut slow, mut again) = (0, false);
        loop {
            match rest {
                ["--slow", count, words @ ..] => {
                    slow = count.parse().map_err(|_| super::USAGE)?;
                    rest = words;
                }
                ["--again", words @ ..] => {
                    again = true;
                    rest = words;
                }
                _ => break,
            }
        }
        if let Some(option) = rest.iter().find(|word| word.starts_with('-')) {
            return Err(format!(
                "{option} is no option here; --slow N and --again come before the words\n{}",
                super::USAGE
            ));
        }
        if tier == Tier::Lab && !rest.is_empty() {
            return Err(
                "lab runs as a whole; full WORD… runs those whose names contain a word".to_owned()
            );
        }
        Ok(Self { tier, words: rest.iter().map(ToString::to_string).collect(), slow, again })
    }

    /// Builds and runs; whether all tests passed.
    pub fn all(&self) -> Result<bool, String> {
        let begun = Instant::now();
        let programs = build()?;
        println!("built in {:.0} s", begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        let queue = Mutex::new(Queue::of(&programs));
        let mut ran = std::thread::scope(|scope| {
            let beside = scope.spawn(|| self.each(&queue, Lane::Second));
            let ran = self.each(&queue, Lane::First)?;
            let beside = beside.join().map_err(|_| "a thread has panicked".to_owned())?;
            Ok::<_, String>(ran.and(beside?))
        })?;
        let unsteady = if self.again { run_again(&mut ran)? } else { Vec::new() };
        if self.tier == Tier::Full && self.words.is_empty() {
            let status = cargo().args(["test", "--workspace", "--doc"]).status();
            if !status.map_err(|error| format!("cargo: {error}"))?.success() {
                ran.failed.push("examples of the documentation".to_owned());
            }
        }
        ran.times.sort_unstable_by(|a, b| b.cmp(a));
        for (time, name) in ran.times.iter().take(self.slow) {
            println!("{:8.2} s  {name}", time.as_secs_f64());
        }
        println!("ran in {:.0} s", begun.elapsed().as_secs_f64());
        for line in &ran.failures.lines {
            println!("{line}");
        }
        for name in &ran.failed {
            println!("failed: {name}");
        }
        for name in &unsteady {
            println!("unsteady: {name} failed, and passed when it was run again alone");
        }
        if unsteady.len() > UNSTEADY_MAX {
            println!("failed: more than {UNSTEADY_MAX} tests are unsteady");
            ran.failed.push("unsteady tests".to_owned());
        }
        println!(
            "{} passed, {} failed, {} of them unsteady",
            ran.counts[0],
            ran.counts[1],
            unsteady.len()
        );
        if ran.failed.is_empty() && ran.counts == [0, 0] {
            return Err(format!("no test has a name that contains {}", self.words.join(" or ")));
        }
        Ok(ran.failed.is_empty())
    }

    /// Runs one program after the other, for as long as there are any.
    fn each<'a>(&self, queue: &Mutex<Queue<'a>>, lane: Lane) -> Result<Ran<'a>, String> {
        let mut ran = Ran::default();
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next(lane);
        while let Some(program) = next() {
            let Some(filters) = self.filters(program) else { continue };
            let begun = Instant::now();
            let (mut is_whole, mut failed) = (true, Vec::new());
            for filters in program.parts(filters) {
                match self.run(program, &filters, lane, &mut ran)? {
                    Some(names) => failed.extend(names),
                    None => is_whole = false,
                }
            }
            println!("{}: {:.0} s", program.name(), begun.elapsed().as_secs_f64());
            if !is_whole || !self.again && !failed.is_empty() {
                ran.failed.push(program.name());
            } else if !failed.is_empty() {
                ran.to_run_again.push((program, failed));
            }
        }
        Ok(ran)
    }

    /// What selects this tier's tests of a program: none at all, all (an empty list), or some.
    fn filters(&self, program: &TestProgram) -> Option<Vec<String>> {
        let of_tier: &[&str] = match self.tier {
            Tier::Full => &[],
            Tier::Quick => {
                let is_quick = WITHIN_A_PROCESS.contains(&program.package.as_str());
                if program.is_integration && !is_quick {
                    return None;
                }
                &[]
            }
            Tier::Lab => {
                let lab = LAB.iter().find(|(package, _)| *package == program.package);
                lab.filter(|_| program.is_integration)?.1
            }
        };
        let filters = if self.words.is_empty() {
            of_tier.iter().map(ToString::to_string).collect()
        } else {
            self.words.clone()
        };
        Some(filters)
    }

    /// Runs a program; returns which of its tests failed. A program that does not come to its end has
    /// failed as a whole (`None`).
    fn run(
        &self,
        program: &TestProgram,
        filters: &[String],
        lane: Lane,
        ran: &mut Ran,
    ) -> Result<Option<Vec<String>>, String> {
        let mut command = program.command();
        command.args(filters);
        if self.tier == Tier::Quick {
            command.env("SHEAF_SIM_MOST", QUICK_SEEDS);
        }
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            let per_core = if lane == Lane::Second { 1 } else { THREADS_PER_CORE };
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            command.env("RUST_TEST_THREADS", (cores * per_core).to_string());
        }
        if self.slow > 0 {
            // The harness has times for nightly compilers alone, unless it is told otherwise.
            command.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--report-time"]);
        }
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("{}: {error}", program.path.display()))?;
        let output = child.stdout.take().ok_or("no output")?;
        // Lines of two programs are not mixed: the second lane prints each program when it has ended.
        let (mut kept, mut failed) = (String::new(), Vec::new());
        let mut print = |line: &str| match lane {
            Lane::First => println!("{line}"),
            Lane::Second => kept.extend([line, "\n"]),
        };
        print(&format!("\n     Running {}", program.name()));
        let (told, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(output).lines();
            while lines.next().is_some_and(|line| told.send(line).is_ok()) {}
        });
        loop {
            let line = match lines.recv_timeout(program.silence_max) {
                Ok(line) => line.map_err(|error| format!("{}: {error}", program.name()))?,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let seconds = program.silence_max.as_secs();
                    print(&format!(
                        "{} is killed: no test has ended for {seconds} s",
                        program.name()
                    ));
                    print(&processes());
                    let _ = child.kill();
                    break;
                }
            };
            print(&line);
            ran.failures.read(&line);
            failed.extend(failed_test(&line).map(str::to_owned));
            let time = time_of(&line);
            ran.times.extend(time.map(|time| (time, format!("{} {line}", program.package))));
            for (count, passed_or_failed) in ran.counts.iter_mut().zip(["passed", "failed"]) {
                *count += count_of(&line, passed_or_failed);
            }
        }
        print!("{kept}");
        let status = child.wait().map_err(|error| format!("{}: {error}", program.name()))?;
        let has_ended = status.success() == failed.is_empty()
            && matches!(status.code(), Some(0 | HARNESS_FAILED));
        Ok(has_ended.then_some(failed))
    }
}

/// What runs on this machine, and what it waits for.
fn processes() -> String {
    let listed = Command::new("ps").args(["-eo", "pid,ppid,stat,etimes,wchan:24,args"]).output();
    let listed = listed.map(|listed| String::from_utf8_lossy(&listed.stdout).into_owned());
    let listed = listed.unwrap_or_else(|error| format!("ps: {error}"));
    listed.lines().take(PROCESSES_MAX).fold(String::new(), |all, line| all + line + "\n")
}

/// Runs tests that failed again, one at a time, while nothing else runs; returns those that pass now.
fn run_again(ran: &mut Ran) -> Result<Vec<String>, String> {
    let mut unsteady = Vec::new();
    for (program, names) in std::mem::take(&mut ran.to_run_again) {
        for name in names {
            println!("\n     Running {} again: {name}", program.name());
            let mut command = program.command();
            let status = command.args(["--exact", &name]).status();
            let status = status.map_err(|error| format!("{}: {error}", program.path.display()))?;
            let name = format!("{} {name}", program.package);
            if status.success() { &mut unsteady } else { &mut ran.failed }.push(name);
        }
    }
    Ok(unsteady)
}

/// The name in `test a::b ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    outcome.starts_with("FAILED").then(|| name.trim_end_matches(" - should panic"))
}

/// The time in `test a::b ... ok <1.234s>`.
fn time_of(line: &str) -> Option<Duration> {
    let time = line.strip_suffix("s>")?.rsplit_once('<')?.1;
    time.parse().ok().map(Duration::from_secs_f64)
}

/// The count before `word` in `test result: ok. 12 passed; 0 failed; …`.
fn count_of(line: &str, word: &str) -> u64 {
    let Some(counts) = line.strip_prefix("test result: ") else { return 0 };
    let words: Vec<&str> = counts.split([' ', ';']).collect();
    words.windows(2).find(|two| two[1] == word).and_then(|two| two[0].parse().ok()).unwrap_or(0)
}

impl TestProgram {
    fn computes(&self) -> bool {
        COMPUTE.contains(&self.package.as_str())
    }

    /// What selects the tests of each part of it that runs by itself, of those that `filters` select.
    fn parts(&self, filters: Vec<String>) -> Vec<Vec<String>> {
        if self.package != LONGEST || !self.is_integration || !filters.is_empty() {
            return vec![filters];
        }
        let first = LONGEST_FIRST.to_owned();
        vec![vec![first.clone()], vec!["--skip".to_owned(), first]]
    }

    fn command(&self) -> Command {
        let mut command =
            Command::new(if self.computes() { "nice".as_ref() } else { self.path.as_os_str() });
        if self.computes() {
            command.args(["-n", GIVE_WAY]).arg(&self.path);
        }
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }

    fn name(&self) -> String {
        let kind = if self.is_integration { "tests" } else { "units" };
        format!("{} {kind}", self.package)
    }
}

/// Cargo, without what the cargo that runs this program has set: build scripts that look at it (that of
/// `ring`) would build their packages again, each time that this is run another way.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let is_own = |name: &str| {
        ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix))
            || ["CARGO_BIN_NAME", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"].contains(&name)
    };
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_own) {
            command.env_remove(name);
        }
    }
    command
}

/// Builds the tests of the workspace; returns their programs.
fn build() -> Result<Vec<TestProgram>, String> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-run", "--message-format"]);
    command.arg("json-render-diagnostics");
    let child = command.stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("cargo: {error}"))?;
    let output = child.stdout.take().ok_or("no output of cargo")?;
    let mut programs = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| format!("cargo: {error}"))?;
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        programs.extend(test_program(&message));
    }
    let status = child.wait().map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("the tests cannot be built".to_owned());
    }
    programs.sort_unstable_by_key(|program| (program.is_integration, program.package.clone()));
    Ok(programs)
}

/// The program of tests that a message of cargo is about, if it is about one.
fn test_program(message: &Value) -> Option<TestProgram> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let directory = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    let is_integration = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "test");
    // A directory has the name of its package.
    let package = directory.file_name()?.to_str()?.to_owned();
    let path = PathBuf::from(message["executable"].as_str()?);
    Some(TestProgram { package, directory, is_integration, path, silence_max: SILENCE_MAX })
}

#[cfg(test)]
mod unit {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn program(package: &str) -> TestProgram {
        TestProgram {
            package: package.to_owned(),
            directory: PathBuf::new(),
            is_integration: true,
            path: PathBuf::new(),
            silence_max: SILENCE_MAX,
        }
    }

    #[test]
    fn lines_of_the_harness_have_times_and_counts() {
        assert_eq!(time_of("test a::b ... ok <1.500s>"), Some(Duration::from_millis(1500)));
        assert_eq!(time_of("test a::b ... ok"), None);
        let line =
            "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!((count_of(line, "passed"), count_of(line, "failed")), (12, 3));
        assert_eq!(count_of("12 passed", "passed"), 0);
    }

    #[test]
    fn failed_tests_are_known_by_their_lines() {
        assert_eq!(failed_test("test a::b ... FAILED <1.5s>"), Some("a::b"));
        assert_eq!(failed_test("test a::b - should panic ... FAILED"), Some("a::b"));
        assert_eq!(failed_test("test a::b ... ok <1.5s>"), None);
        assert_eq!(failed_test("test result: FAILED. 12 passed; 3 failed"), None);
    }

    /// A program of one test, as a shell script: it fails the first time, and `second` is how it ends then.
    fn program_failing_first(directory: &Path, second: &str) -> TestProgram {
        let path = directory.join("program");
        let script = format!(
            "#!/bin/sh\nif [ -e ran ]; then {second}; fi\n: >ran\n\
             echo 'test a ... FAILED'; echo 'test result: FAILED. 0 passed; 1 failed;'; exit 101\n"
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        TestProgram { path, directory: directory.to_owned(), ..program("sheaf-file") }
    }

    #[test]
    fn test_that_fails_is_run_again_only_if_asked_for() {
        let cases =
            [("exit 0", "--again", 0, 1), ("exit 101", "--again", 1, 0), ("exit 0", "", 1, 0)];
        for (number, (second, option, failed, again)) in cases.into_iter().enumerate() {
            let directory =
                std::env::temp_dir().join(format!("xtask-{}-{number}", std::process::id()));
            fs::create_dir(&directory).unwrap();
            let programs = [program_failing_first(&directory, second)];
            let words: Vec<&str> =
                ["full", option, "a"].into_iter().filter(|word| !word.is_empty()).collect();
            let run = Run::parse(&words).unwrap_or_else(|why| panic!("{why}"));
            let mut ran = run.each(&Mutex::new(Queue::of(&programs)), Lane::First).unwrap();
            let unsteady = run_again(&mut ran).unwrap();
            assert_eq!((ran.failed.len(), unsteady.len()), (failed, again), "{second} {option}");
            fs::remove_dir_all(directory).unwrap();
        }
    }

    #[test]
    fn program_that_hangs_is_killed_and_has_failed() {
        let directory = std::env::temp_dir().join(format!("xtask-hangs-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let hangs = program_failing_first(&directory, "sleep 60");
        fs::write(directory.join("ran"), "").unwrap();
        let programs = [TestProgram { silence_max: Duration::from_millis(200), ..hangs }];
        let run = Run::parse(&["full", "--again", "a"]).unwrap_or_else(|why| panic!("{why}"));
        let begun = Instant::now();
        let ran = run.each(&Mutex::new(Queue::of(&programs)), Lane::First).unwrap();
        assert_eq!((ran.failed, ran.to_run_again.len()), (vec![programs[0].name()], 0));
        assert!(begun.elapsed() < Duration::from_secs(50));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn output_of_failed_tests_is_kept() {
        let mut failures = Failures::default();
        let output = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nthread 'a' panicked\n\n\n\
                      failures:\n    a\n\ntest result: FAILED. 0 passed; 1 failed";
        output.lines().for_each(|line| failures.read(line));
        assert_eq!(failures.lines, ["---- a stdout ----", "thread 'a' panicked"]);
    }

    #[test]
    fn queue_gives_each_program_to_one_lane() {
        let programs = ["sheaf-core", "sheaf-file", "sheaf", "sheaf-proto"].map(program);
        let mut queue = Queue::of(&programs);
        let lanes = [Lane::First, Lane::Second, Lane::Second, Lane::Second, Lane::First];
        let packages = lanes.map(|lane| queue.next(lane).map(|program| program.package.as_str()));
        assert_eq!(
            packages,
            [Some("sheaf"), Some("sheaf-core"), Some("sheaf-proto"), Some("sheaf-file"), None]
        );
    }

    #[test]
    fn parts_of_the_longest_program_are_all_of_it() {
        let parts = program(LONGEST).parts(Vec::new());
        assert_eq!(parts, [vec![LONGEST_FIRST], vec!["--skip", LONGEST_FIRST]]);
        let words = vec!["lease_".to_owned()];
        assert_eq!(program(LONGEST).parts(words.clone()), [words]);
        assert_eq!(program("sheaf-core").parts(Vec::new()), [Vec::<String>::new()]);
    }

    /// They are read in lists of tests, and beside the rules of docs/semantics.md.
    #[test]
    fn names_of_tests_have_at_most_60_letters() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let (mut left, mut names) = (vec![root.join("crates"), root.join("xtask/src")], 0);
        while let Some(path) = left.pop() {
            if path.is_dir() {
                left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let mut lines = text.lines().map(str::trim);
            while lines.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
            {
                let function = lines.find_map(|line| Some(line.split_once("fn ")?.1));
                let (name, _) = function.and_then(|rest| rest.split_once('(')).unwrap();
                assert!(name.len() <= 60, "{name} in {}", path.display());
                names += 1;
            }
        }
        assert!(names > 1000, "{names}");
    }

    /// Paths in backquotes that exist neither below `crates` nor at the root, and crates that the
    /// page does not name or that do not exist.
    fn wrong_names(root: &Path, page: &str) -> Vec<String> {
        let crates = root.join("crates");
        let quoted: Vec<&str> = page.split('`').skip(1).step_by(2).collect();
        let paths = quoted.iter().filter(|word| word.contains('/') && !word.contains(' '));
        let missing = paths.filter(|path| !crates.join(path).exists() && !root.join(path).exists());
        let mut wrong: Vec<String> = missing.map(ToString::to_string).collect();
        let no_crate = |word: &&&str| {
            word.starts_with("sheaf-") && !word.contains('/') && !crates.join(word).is_dir()
        };
        wrong.extend(quoted.iter().filter(no_crate).map(ToString::to_string));
        let names = fs::read_dir(&crates).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        wrong.extend(names.filter(|name| !quoted.contains(&name.as_str())));
        wrong
    }

    #[test]
    fn architecture_names_each_crate_and_only_existing_paths() {
        const LINES_MAX: usize = 120;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let page = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
        assert_eq!(wrong_names(root, &page), [""; 0]);
        assert!(page.lines().count() <= LINES_MAX, "{}", page.lines().count());
        let made_up = format!("{page}`sheaf-core/src/nothing.rs` `sheaf-nothing` `no blank/here`");
        assert_eq!(wrong_names(root, &made_up), ["sheaf-core/src/nothing.rs", "sheaf-nothing"]);
        let less = page.replace("`sheaf-wasm`", "");
        assert_eq!(wrong_names(root, &less), ["sheaf-wasm"]);
    }

    #[test]
    fn tier_has_to_be_one_of_three() {
        assert!(Run::parse(&[]).is_err() && Run::parse(&["most"]).is_err());
        let run =
            Run::parse(&["full", "--slow", "3", "lease_"]).unwrap_or_else(|why| panic!("{why}"));
        assert!(run.tier == Tier::Full && run.slow == 3 && run.words == ["lease_"]);
        assert!(Run::parse(&["full", "--nocapture"]).is_err());
    }
}
