//! `sheaf clean`: what Sheaf left is removed, what is used or worth keeping stays.
use rustix::process::Signal;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{NAME, Running, Up, wait_until};
use sheaf_testing::skipped;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

const NOBODY: u32 = 65534;

/// Makes a file or directory as old as one that no process is about to use.
fn age(path: &Path) {
    let old = SystemTime::now() - Duration::from_secs(3600);
    std::fs::File::open(path).unwrap().set_modified(old).unwrap();
}

/// Makes an old program in the cache.
fn cached(home: &Home, name: &str) -> PathBuf {
    let path = home.write(&format!(".cache/sheaf/bin/{name}"), "program\n");
    age(&path);
    age(path.parent().unwrap());
    path
}

fn clean(home: &Home, args: &[&str]) -> Run {
    std::fs::create_dir_all(home.path().join("shm")).unwrap();
    home.run(&[&["clean", "--buffers", "shm"], args].concat())
}

#[test]
fn clean_removes_old_programs_and_keeps_new_ones() {
    let home = Home::new();
    let (old, new) = (cached(&home, "aa/sheaf"), home.write(".cache/sheaf/bin/bb/new.1", "x"));
    let dry = clean(&home, &["-n"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert_eq!(dry.stdout, format!("would remove  4.0K {}\n", old.display()));
    let kept = format!(
        "kept {}: it is younger than 10 minutes, so a process may be about to use it\n",
        new.display()
    );
    assert_eq!(dry.stderr, format!("{kept}would remove 1 file or directory, 4.0K\n"));
    assert!(old.exists(), "a dry run removes nothing");
    let run = clean(&home, &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.stdout, format!("removed  4.0K {}\n", old.display()));
    assert!(!old.parent().unwrap().exists() && new.exists(), "{run:?}");
    let again = clean(&home, &[]);
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), ""), "{again:?}");
    assert_eq!(again.stderr, format!("{kept}nothing to remove\n"));
}

#[test]
fn clean_keeps_a_program_that_runs() {
    let home = Home::new();
    let path = cached(&home, "aa/sheaf");
    std::fs::copy("/bin/sleep", &path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    age(&path);
    let sleep = Running::start(std::process::Command::new(&path).arg("60"));
    let process = sleep.process().pid;
    let run = clean(&home, &[]);
    let kept = format!("kept {}: process {process} uses it\n", path.display());
    assert_eq!((run.code, run.stderr), (Some(0), format!("{kept}nothing to remove\n")));
    assert!(path.exists());
}

/// Without the library, the programs that a recorded shell starts later would not be recorded.
#[test]
fn clean_keeps_a_library_that_a_program_has_loaded() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let some = maps.lines().find(|line| line.ends_with("/libgcc_s.so.1"));
    let Some(library) = some.and_then(|line| Some(&line[line.find('/')?..])) else {
        skipped("no shared library is loaded here that could stand for one");
        return;
    };
    let home = Home::new();
    let path = cached(&home, "aa/libsheaf_trace.so");
    std::fs::copy(library, &path).unwrap();
    age(&path);
    let mut command = std::process::Command::new("/bin/sleep");
    let sleep = Running::start(command.arg("60").env("LD_PRELOAD", &path));
    let process = sleep.process().pid;
    let maps = format!("/proc/{process}/maps");
    wait_until("it is loaded", || std::fs::read_to_string(&maps).unwrap().contains("aa/libsheaf"));
    let run = clean(&home, &[]);
    let kept = format!("kept {}: process {process} uses it\n", path.display());
    assert_eq!((run.code, run.stderr), (Some(0), format!("{kept}nothing to remove\n")));
    assert!(path.exists());
}

#[test]
fn clean_never_follows_a_symbolic_link() {
    let home = Home::new();
    let precious = home.write("precious/file", "x");
    age(&precious);
    cached(&home, "aa/sheaf");
    let cache = home.path().join(".cache/sheaf");
    for (name, to) in [("bin/link", "precious"), ("bin/aa/file", "precious/file")] {
        symlink(home.path().join(to), cache.join(name)).unwrap();
    }
    let run = clean(&home, &[]);
    assert_eq!((run.code, run.stdout.lines().count()), (Some(0), 3), "{run:?}");
    assert!(precious.exists() && !cache.join("bin/link").is_symlink(), "{run:?}");
    // The cache itself.
    std::fs::remove_dir_all(&cache).unwrap();
    symlink(home.path().join("precious"), &cache).unwrap();
    let run = clean(&home, &[]);
    let why = "it is not a directory, and a symbolic link is not followed";
    assert_eq!(run.code, Some(4), "{run:?}");
    assert_eq!(run.stderr, format!("sheaf: {}: {why}\n", cache.display()));
    assert!(precious.exists(), "{run:?}");
}

#[test]
fn clean_refuses_a_directory_of_another_user() {
    let home = Home::new();
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can give a directory to another user");
    }
    let path = cached(&home, "aa/sheaf");
    let (mine, directory) = (cached(&home, "bb/sheaf"), path.parent().unwrap());
    std::os::unix::fs::chown(directory, Some(NOBODY), None).unwrap();
    let run = clean(&home, &[]);
    let why = "the directory belongs to user 65534, not to you";
    assert_eq!(run.code, Some(4), "{run:?}");
    let failed = format!("sheaf: {}: {why}\n", directory.display());
    assert!(run.stderr.starts_with(&failed), "{run:?}");
    assert!(path.exists() && !mine.exists(), "{run:?}");
}

#[test]
fn clean_works_as_an_unprivileged_user() {
    let home = Home::new();
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can become another user");
    }
    let path = cached(&home, "aa/sheaf");
    let chown = |path: &Path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    // The program itself may lie where this user cannot go.
    let program = home.path().join("program");
    std::fs::hard_link(sheaf_testing::built("sheaf"), &program)
        .or_else(|_| std::fs::copy(sheaf_testing::built("sheaf"), &program).map(drop))
        .unwrap();
    let foreign = home.write(".cache/sheaf/bin/cc/sheaf", "x");
    for path in [path.as_path(), &foreign] {
        path.ancestors().take_while(|above| above.starts_with(home.path())).for_each(chown);
    }
    chown(&home.runtime_dir());
    std::os::unix::fs::chown(foreign.parent().unwrap(), Some(0), Some(0)).unwrap();
    let mut command = home.command_of(program, &["clean", "--buffers", "/dev/shm"]);
    let run = Run::of(command.uid(NOBODY).gid(NOBODY).output().unwrap());
    let why = format!("{}: the directory belongs to user 0", foreign.parent().unwrap().display());
    assert!(run.code == Some(4) && run.stderr.contains(&why), "{run:?}");
    assert!(!path.exists() && foreign.exists(), "{run:?}");
}

#[test]
fn clean_keeps_a_session_that_runs_and_removes_a_killed_one() {
    let up = Up::new(&["--processes", "2"]);
    let files = || {
        let entries = std::fs::read_dir(up.home.runtime_dir().join("sheaf")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let before = files();
    let run = clean(&up.home, &["-y"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let kept = format!("kept {}: session {NAME} runs\n", up.socket().display());
    assert_eq!((run.stdout.as_str(), run.stderr.starts_with(&kept)), ("", true), "{run:?}");
    assert_eq!(files(), before);
    assert_eq!(up.run(&["cat", "n1:/etc/hostname"]).code, Some(0), "it still answers");
    up.session.signal(Signal::KILL);
    wait_until("the session has ended", || !up.session.runs());
    age(&up.socket().with_extension("log"));
    // Until somebody is told of its end, a command that is meant for it is for no others.
    let kept = format!(
        "kept {}: session {NAME} was killed: sheaf status forgets it\n",
        up.socket().display()
    );
    for args in [&["--dry-run"][..], &["-y"]] {
        let run = clean(&up.home, args);
        assert!(run.code == Some(0) && run.stderr.starts_with(&kept), "{run:?}");
        assert_eq!(files(), before, "{run:?}");
    }
    // Nor is it forgotten where nobody can read it.
    for (options, to) in [
        ("--quiet", ""),
        ("", "2> /dev/null"),
        ("", "2>&-"),
        ("", "2> /dev/full"),
        ("--json", "> /dev/null"),
        ("--json", "> /dev/full"),
        ("", "2>&1 | true"),
    ] {
        let script = format!("{{ sleep 0.2; \"$0\" \"$@\" {options}; }} {to}");
        up.home.shell(&["status"], &script);
        assert_eq!(files(), before, "{options} {to}");
    }
    let status = up.home.run(&["status"]);
    assert!(status.stderr.contains("has ended without saying why"), "{status:?}");
    let dry = clean(&up.home, &["--dry-run"]);
    assert!(dry.stdout.contains(".log"), "{dry:?}");
    let run = clean(&up.home, &["-y"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(dry.stdout.replace("would remove", "removed"), run.stdout);
    assert_eq!(files(), Vec::<String>::new(), "{run:?}");
}

#[test]
fn clean_keeps_recordings_that_no_trace_has() {
    let home = Home::new();
    let whole = home.write("shm/sheaf-trace-whole/life", "1");
    let damaged = home.write("shm/sheaf-trace-damaged/damaged-000001", "x");
    for path in [&whole, &damaged] {
        age(path.parent().unwrap());
    }
    let run = clean(&home, &[]);
    assert_eq!((run.code, run.stdout.lines().count()), (Some(0), 1), "{run:?}");
    assert!(run.stderr.contains(": 1 operations in it are in no trace:"), "{run:?}");
    assert!(!whole.exists() && damaged.exists(), "{run:?}");
    let run = clean(&home, &["--recordings"]);
    assert_eq!((run.code, damaged.exists()), (Some(0), false), "{run:?}");
}

#[test]
fn clean_keeps_a_recording_that_runs() {
    let home = Home::new();
    std::fs::create_dir(home.path().join("shm")).unwrap();
    let mut command = home.command(&["trace", "record", "--buffers", "shm", "--", "sleep", "60"]);
    let record = Running::start(command.stdin(Stdio::null()));
    let shm = home.path().join("shm");
    let made = || std::fs::read_dir(&shm).unwrap().next().map(|entry| entry.unwrap().path());
    wait_until("it records", || made().is_some());
    let made = made().unwrap();
    let run = clean(&home, &["--recordings"]);
    let kept = format!("kept shm/{}: ", made.file_name().unwrap().display());
    assert!(run.code == Some(0) && run.stderr.starts_with(&kept), "{run:?}");
    assert!(made.exists(), "{run:?}");
    record.signal(Signal::TERM);
    record.wait();
}

#[test]
fn clean_removes_on_the_hosts_of_a_session() {
    let home = Home::new();
    let old = cached(&home, "aa/sheaf");
    let dry = clean(&home, &["--processes", "1", "-n"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert_eq!(dry.stdout, format!("would remove  4.0K n1:{}\n", old.display()), "{dry:?}");
    assert!(old.exists(), "a dry run removes nothing");
    let json = clean(&home, &["--processes", "1", "--json"]);
    let record = json.stdout.lines().next().unwrap();
    assert!(record.contains("\"count\":1,\"hosts\":\"n1\""), "{json:?}");
    assert_eq!((json.code, old.exists()), (Some(0), false), "{json:?}");
    let again = clean(&home, &["--processes", "1"]);
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), ""), "{again:?}");
    assert!(again.stderr.starts_with("nothing to remove\n"), "{again:?}");
}

#[test]
fn clean_leaves_catalogs_of_archives() {
    let home = Home::new();
    let catalog = home.write(".cache/sheaf/archives/x.sqlite", "x");
    age(&catalog);
    let run = clean(&home, &[]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), "nothing to remove\n"), "{run:?}");
    assert!(catalog.exists());
}

#[test]
fn clean_keeps_directories_that_only_have_such_names() {
    let home = Home::new();
    let temporary = home.path().join("tmp");
    let kept = [
        home.write("shm/sheaf-trace-run1/trace.json", "{}"),
        home.write("shm/sheaf-trace-abc123/thesis", "x"),
        home.write("shm/sheaf-trace-abc124/life/file", "x"),
        home.write("shm/sheaf-trace-cli/src/main.rs", "x"),
        home.write("tmp/sheaf-demo-3999999/n1/etc/services", "x"),
    ];
    for path in &kept {
        path.ancestors().skip(1).take(2).for_each(age);
    }
    let run = Run::of(
        home.command(&["clean", "--buffers", "shm"]).env("TMPDIR", &temporary).output().unwrap(),
    );
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.stderr.contains("it contains trace.json, which no recording makes"), "{run:?}");
    assert!(kept.iter().all(|path| path.exists()), "{run:?}");
}

#[test]
fn clean_removes_the_directory_of_a_killed_tour_only() {
    let home = Home::new();
    let tour = home.write("tmp/sheaf-demo-3999999/.tour", "");
    let directory = tour.parent().unwrap();
    let clean = || {
        let mut command = home.command(&["clean", "--buffers", "none"]);
        Run::of(command.env("TMPDIR", home.path().join("tmp")).output().unwrap())
    };
    assert!(clean().stderr.contains("younger than 10 minutes"), "{:?}", clean());
    age(directory);
    let file = std::fs::File::open(&tour).unwrap();
    file.lock().unwrap();
    assert!(clean().stderr.contains("a tour runs"), "{:?}", clean());
    drop(file);
    let run = clean();
    assert_eq!((run.code, directory.exists()), (Some(0), false), "{run:?}");
}

#[test]
fn clean_does_not_enter_bind_mounts() {
    let home = Home::new();
    if !rustix::process::geteuid().is_root() {
        return skipped("only root mounts");
    }
    let precious = home.write("precious/file", "x");
    age(&precious);
    let point = home.path().join(".cache/sheaf/bin/m");
    std::fs::create_dir_all(&point).unwrap();
    std::fs::create_dir_all(home.path().join("shm")).unwrap();
    let script = format!(
        "mount --bind precious .cache/sheaf/bin/m && exec {} clean --buffers shm",
        sheaf_testing::built("sheaf")
    );
    let mut command = home.command(&[]);
    let environment: Vec<_> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    command = std::process::Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", &script]);
    let run = Run::of(command.current_dir(home.path()).envs(environment).output().unwrap());
    if run.stderr.contains("unshare failed") || run.stderr.contains("mount:") {
        return skipped("nothing can be mounted here");
    }
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stderr.contains("bin/m: a file system is mounted there"), "{run:?}");
    assert!(precious.exists(), "{run:?}");
}

#[test]
fn clean_keeps_a_program_that_runs_in_another_namespace() {
    let home = Home::new();
    if !rustix::process::geteuid().is_root() {
        return skipped("only root makes a namespace");
    }
    let path = cached(&home, "aa/sheaf");
    std::fs::copy("/bin/sleep", &path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    age(&path);
    let mut program = std::process::Command::new(&path).arg("1000").spawn().unwrap();
    std::fs::create_dir_all(home.path().join("shm")).unwrap();
    let mut command = home.command(&["clean", "--buffers", "shm"]);
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(ToOwned::to_owned)
        .collect();
    let environment: Vec<_> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    command = std::process::Command::new("unshare");
    command.args(["-p", "-f", "--mount-proc"]).args(words).envs(environment);
    let run = Run::of(command.current_dir(home.path()).output().unwrap());
    program.kill().unwrap();
    program.wait().unwrap();
    if run.stderr.contains("unshare failed") {
        return skipped("no namespace can be made here");
    }
    // Where the file system knows no leases, nothing tells of the process.
    if rustix::fs::statfs(&path).unwrap().f_type as u32 != 0xef53 {
        return skipped("the file system of temporary files is not ext4");
    }
    let why = "a process of another user or namespace uses it";
    assert!(run.stderr.contains(why) && path.exists(), "{run:?}");
}

#[test]
fn clean_keeps_a_file_of_a_clock_that_is_ahead() {
    let home = Home::new();
    let path = cached(&home, "aa/sheaf");
    let ahead = SystemTime::now() + Duration::from_secs(60);
    std::fs::File::open(&path).unwrap().set_modified(ahead).unwrap();
    let run = clean(&home, &[]);
    assert!(run.stderr.contains("younger than 10 minutes") && path.exists(), "{run:?}");
}
