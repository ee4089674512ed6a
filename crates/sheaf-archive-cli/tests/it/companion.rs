//! The program `sheaf-archive` beside `sheaf`, and at hosts that lack it.
use sheaf_testing::built;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{Process, nothing_is_left, of_home, wait_until};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Puts `sheaf` there; a debug build is large.
fn link(to: &Path) {
    let from = built("sheaf");
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).unwrap();
    }
}

/// Two hosts, served by a copy of `sheaf` beside which there is nothing.
struct Bare {
    home: Home,
    sheaf: PathBuf,
}

impl Bare {
    fn up() -> Self {
        let home = Home::new();
        let sheaf = home.path().join("bare/sheaf");
        fs::create_dir(sheaf.parent().unwrap()).unwrap();
        link(&sheaf);
        for host in ["n1", "n2"] {
            home.write(&format!("hosts/{host}/d/file"), host);
        }
        let bare = Self { home, sheaf };
        let export = bare.home.path().join("hosts/%h").display().to_string();
        let up = bare.bare(&["--processes", "2", "--export", &export, "up", "--session", "s"]);
        assert_eq!(up.code, Some(0), "{up:?}");
        bare
    }

    /// Runs the copy.
    fn bare(&self, args: &[&str]) -> Run {
        Run::of(self.home.command_of(&self.sheaf, args).output().unwrap())
    }

    fn find(&self) -> Run {
        self.home.run(&["--session", "s", "archive", "find", ":/d"])
    }

    /// The program as it is kept.
    fn kept(&self) -> PathBuf {
        let programs = self.home.path().join(".cache/sheaf/bin");
        let mut kept: Vec<PathBuf> =
            fs::read_dir(programs).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(kept.len(), 1, "{kept:?}");
        kept.remove(0).join("sheaf-archive")
    }

    fn parts(&self) -> Vec<Process> {
        let is_part =
            |process: &Process| process.arguments().iter().any(|arg| arg == "--serve-part");
        of_home(&self.home).into_iter().filter(is_part).collect()
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let down = self.bare(&["down", "s"]);
        if !std::thread::panicking() {
            assert_eq!(down.code, Some(0), "{down:?}");
            nothing_is_left(&self.home);
        }
    }
}

const FOUND: &str = "n1:/d\nn1:/d/file\nn2:/d\nn2:/d/file\n";

fn sorted(run: &Run) -> String {
    let mut lines: Vec<&str> = run.stdout.split_inclusive('\n').collect();
    lines.sort_unstable();
    lines.concat()
}

#[test]
fn missing_program_is_named_with_its_package() {
    let home = Home::new();
    let sheaf = home.path().join("sheaf");
    link(&sheaf);
    for words in [&["archive", "ls"][..], &["--json", "archive", "ls"], &["help", "archive"]] {
        let run = Run::of(home.command_of(&sheaf, words).output().unwrap());
        assert_eq!(run.code, Some(2), "{run:?}");
        // With --json it is a record on standard output.
        let said = run.stderr.clone() + &run.stdout;
        assert!(
            said.contains("sheaf archive needs the program sheaf-archive, which is not installed"),
            "{run:?}"
        );
        assert!(said.contains("package sheaf-archive-cli"), "{run:?}");
    }
    // What needs no companion says what it lacks, and goes on.
    let run = Run::of(home.command_of(&sheaf, &["completions", "bash"]).output().unwrap());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.contains("no completions for sheaf archive"), "{}", run.stderr);
    assert!(run.stdout.contains("chmod"), "{}", run.stdout);
}

/// `sheaf` runs no file that a shell would have to run, and not itself: it takes the program from the next place.
#[test]
fn file_that_is_no_program_is_not_run() {
    let home = Home::new();
    let (bin, lib) = (home.path().join("bin"), home.path().join("lib/sheaf"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&lib).unwrap();
    let sheaf = bin.join("sheaf");
    link(&sheaf);
    let (beside, other) = (bin.join("sheaf-archive"), lib.join("sheaf-archive"));
    let run = || Run::of(home.command_of(&sheaf, &["archive", "--help"]).output().unwrap());
    let refuses = |why: &str| {
        let run = run();
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains(&format!("{} ({why})", beside.display())), "{run:?}");
    };
    for (content, why) in [(&b""[..], "is no program"), (b"echo run\n", "is no program")] {
        fs::write(&beside, content).unwrap();
        fs::set_permissions(&beside, PermissionsExt::from_mode(0o755)).unwrap();
        refuses(why);
    }
    fs::remove_file(&beside).unwrap();
    std::os::unix::fs::symlink("sheaf", &beside).unwrap();
    refuses("is this program itself");
    fs::remove_file(&beside).unwrap();
    fs::create_dir(&beside).unwrap();
    refuses("is no file");
    std::os::unix::fs::symlink(built("sheaf-archive"), &other).unwrap();
    let found = run();
    assert_eq!(found.code, Some(0), "{found:?}");
    assert!(found.stdout.contains("Usage: sheaf archive"), "{found:?}");
}

#[test]
fn host_without_the_program_is_sent_it_once() {
    let bare = Bare::up();
    let first = bare.find();
    assert_eq!((first.code, sorted(&first)), (Some(0), FOUND.to_owned()), "{first:?}");
    let about = fs::metadata(bare.kept()).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read(bare.kept()).unwrap(), fs::read(built("sheaf-archive")).unwrap());
    let again = bare.find();
    assert_eq!((again.code, sorted(&again)), (Some(0), FOUND.to_owned()), "{again:?}");
    assert_eq!(fs::metadata(bare.kept()).unwrap().ino(), about.ino(), "it was not sent again");
    wait_until("no part is left of a command that has ended", || bare.parts().is_empty());
}

#[test]
fn damaged_program_is_replaced_and_not_run() {
    let bare = Bare::up();
    assert_eq!(bare.find().code, Some(0));
    // It would say that it was run.
    let ran = bare.home.path().join("ran");
    let script = format!("#!/bin/sh\ntouch {}\n", ran.display());
    let kept = bare.kept();
    // What runs it may not have ended yet, and a file that runs is not written to.
    fs::remove_file(&kept).unwrap();
    fs::write(&kept, script).unwrap();
    fs::set_permissions(&kept, PermissionsExt::from_mode(0o700)).unwrap();
    let found = bare.find();
    assert_eq!((found.code, sorted(&found)), (Some(0), FOUND.to_owned()), "{found:?}");
    assert!(!ran.exists());
    assert_eq!(fs::read(bare.kept()).unwrap(), fs::read(built("sheaf-archive")).unwrap());
}

#[test]
fn host_that_cannot_keep_the_program_is_named_with_the_reason() {
    let bare = Bare::up();
    // There is a file in the way.
    bare.home.write(".cache/sheaf", "");
    let found = bare.find();
    assert_eq!(found.code, Some(3), "{found:?}");
    let why = "n[1-2]: sheaf-archive cannot be sent there: ";
    assert!(found.stderr.contains(why), "{}", found.stderr);
    assert!(found.stderr.contains("ENOTDIR"), "{}", found.stderr);
}

/// Global options before and behind the command, and a session of its own.
#[test]
fn embedded_servers_do_their_part_in_the_program_itself() {
    let home = Home::new();
    home.write("hosts/n1/d/file", "x");
    let export = home.path().join("hosts/%h").display().to_string();
    for words in [
        ["--embedded", "1", "--export", &export, "archive", "find", ":/d"],
        ["archive", "--embedded", "1", "--export", &export, "find", ":/d"],
    ] {
        let run = home.run(&words);
        assert_eq!((run.code, &*run.stdout), (Some(0), "n1:/d\nn1:/d/file\n"), "{run:?}");
    }
    assert!(!home.path().join(".cache").exists());
}
