//! Where the system gives no thread, or few descriptors.
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{Process, turn, wait_until};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Whoever keeps stacks small has small ones in mind that programs make, not theirs.
#[test]
fn small_stack_is_enough() {
    let home = Home::new();
    let sheaf = env!("CARGO_BIN_EXE_sheaf");
    for hosts in ["--embedded", "--processes"] {
        let line = format!("ulimit -s 64; exec {sheaf} {hosts} 3 grep -c . /etc/hostname");
        let mut command = Command::new("sh");
        command.args(["-c", &line]).current_dir(home.path()).env_clear();
        let own = home.command(&[]);
        command.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let run = Run::of(command.output().unwrap());
        let told = (run.code, run.stdout.as_str(), run.stderr.as_str());
        assert_eq!(told, (Some(0), "n[1-3]:/etc/hostname:1\n", ""), "{hosts}");
    }
}

/// A user who has no process but those of one test: limits of processes count all of a user's.
struct User {
    dir: TempDir,
    uid: u32,
}

impl User {
    /// `None` where only root could be one.
    fn new() -> Option<Self> {
        let has_prlimit = || Command::new("prlimit").arg("--version").output().is_ok();
        if !rustix::process::geteuid().is_root() || !has_prlimit() {
            sheaf_testing::skipped("it needs root and prlimit (util-linux)");
            return None;
        }
        let user = Self { dir: tempfile::tempdir().unwrap(), uid: 2_000_000 + std::process::id() };
        std::fs::set_permissions(user.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        // Where the program was built may be closed to others.
        std::fs::copy(env!("CARGO_BIN_EXE_sheaf"), user.program()).unwrap();
        std::fs::create_dir(user.home()).unwrap();
        chown(user.home(), Some(user.uid), Some(user.uid)).unwrap();
        Some(user)
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("sheaf")
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Runs the program with room for so many processes and threads.
    fn run(&self, processes: u64, args: &[&str]) -> Run {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nproc={processes}")).arg(self.program()).args(args);
        command.current_dir("/").env_clear().env("PATH", "/usr/bin:/bin");
        command.env("HOME", self.home());
        command.env("XDG_RUNTIME_DIR", self.home()).env("TMPDIR", self.home());
        command.uid(self.uid).gid(self.uid).stdin(Stdio::null());
        Run::of(command.output().unwrap())
    }
}

const ASKED: [&str; 4] = ["grep", "-c", "^root:", ":/etc/passwd"];

#[track_caller]
fn no_thread(run: &Run, hosts: &str) {
    assert_eq!(run.stdout, "", "{run:?}");
    let told = format!(
        "{hosts}:/etc/passwd: Resource temporarily unavailable (EAGAIN): its server has no thread"
    );
    assert!(run.stderr.starts_with(&told), "{run:?}");
    assert!(!run.stderr.contains("panicked"), "{run:?}");
}

#[test]
fn server_without_a_thread_says_so_at_once_and_works_again() {
    let _turn = turn();
    let Some(user) = User::new() else { return };
    no_thread(&user.run(1, &[&["--embedded", "4"], &ASKED[..]].concat()), "n[1-4]");

    let up = user.run(100, &["up", "--processes", "3", "--session", "x"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let grep = || user.run(100, &[&["--session", "x"], &ASKED[..]].concat());
    // Limits are looked at when a process or a thread is made.
    let pids = || {
        let entries = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
        let is_his = |metadata: std::fs::Metadata| metadata.uid() == user.uid;
        let theirs = entries.filter(|entry| entry.metadata().is_ok_and(is_his));
        theirs
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .collect::<Vec<_>>()
    };
    let limit = |most: u64| {
        for pid in pids() {
            let words = [format!("--pid={pid}"), format!("--nproc={most}:100")];
            let limited = Command::new("prlimit").args(words).uid(user.uid).gid(user.uid).status();
            assert!(limited.unwrap().success());
        }
    };
    limit(1);
    no_thread(&grep(), "n[1-3]");
    limit(100);
    let all = grep();
    assert_eq!((all.code, all.stderr.as_str()), (Some(0), ""), "{all:?}");
    assert!(all.stdout.starts_with("n[1-3]:/etc/passwd:"), "{all:?}");
    // Idle servers keep no thread.
    wait_until("threads without work end", || {
        pids().iter().filter_map(|pid| Process::of(*pid)).all(|process| process.threads() == 1)
    });
    assert_eq!(user.run(100, &["down", "x"]).code, Some(0));
}

#[test]
fn write_beyond_the_limit_of_a_file_ends_no_server() {
    let home = Home::new();
    home.write("n1/f", "old");
    let args = ["--processes", "1", "--export", "%h", "truncate", "-s", "1M", "n1:/f", "n1:/g"];
    let run = home.shell(&args, "ulimit -f 1; exec \"$0\" \"$@\"");
    assert_eq!(run.code, Some(4), "{run:?}");
    let told = "n1:/{f,g}: File too large (EFBIG), 2 of 2 members\n";
    assert!(run.stderr.contains(told), "{run:?}");
}

#[test]
fn root_opens_as_many_descriptors_as_it_may() {
    let home = Home::new();
    let args = ["--processes", "24", "--tree", "flat", "grep", "-c", "^root:", ":/etc/passwd"];
    let run = home.shell(&args, "ulimit -Sn 24; exec \"$0\" \"$@\"");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.stdout.starts_with("n[1-24]:/etc/passwd:"), "{run:?}");
}
