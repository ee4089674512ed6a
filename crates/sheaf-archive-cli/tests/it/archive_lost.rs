//! Of what is lost or broken off: damage of the log, signals, and the tutorial, which loses a catalog.
use crate::archive::home;
use crate::archive_catalog::{catalog, catalogs, forget};
use sheaf_testing::built;
use sheaf_testing::home::Home;
use sheaf_testing::program::have;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn store_with_a_damaged_log_is_read_up_to_it_and_not_changed() {
    for is_gap in [true, false] {
        let home = home();
        for to in ["s::/1", "s::/2", "s::/3"] {
            let stored = home.run(&["archive", "store", "--create", "tree", to]);
            assert_eq!(stored.code, Some(0), "{stored:?}");
        }
        let log = home.path().join("s/objects/log");
        let count = fs::read_dir(&log).unwrap().count();
        let at = if is_gap { count - 1 } else { count };
        let lost = log.join(format!("{at:020}"));
        if is_gap {
            fs::rename(&lost, home.path().join("lost")).unwrap();
        } else {
            fs::write(&lost, "").unwrap();
        }
        let text = format!("sheaf: commit {at} of the archive's log is ");
        let verified = home.run(&["archive", "verify", "s::"]);
        assert!(verified.stderr.starts_with(&text), "{verified:?}");
        forget(&home);
        let reads: [&[&str]; 7] = [
            &["ls", "s::/1/tree"],
            &["find", "s::/1"],
            &["grep", "first", "s::/1/tree/a"],
            &["du", "s::/1"],
            &["stat", "s::/1/tree/a"],
            &["get", "s::/1/tree", "back"],
            &["verify", "s::/1"],
        ];
        for args in reads {
            let ended = home.run(&[&["archive"], args].concat());
            assert_eq!(ended.code, Some(4), "{ended:?}");
            assert!(ended.stderr.contains(&text), "{ended:?}");
            assert!(ended.stderr.contains("what was stored since is not known"), "{ended:?}");
        }
        assert_eq!(fs::read(home.path().join("back/tree/sub/b")).unwrap(), b"second\n");
        let none = home.run(&["archive", "ls", "s::/x*"]);
        assert_eq!(none.code, Some(4), "{none:?}");
        let writes: [&[&str]; 6] = [
            &["store", "tree", "s::/4"],
            &["rm", "-r", "s::/1"],
            &["mv", "s::/1", "s::/5"],
            &["chmod", "700", "s::/1"],
            &["repair", "--age", "0", "s::"],
            &["repack", "s::"],
        ];
        for args in writes {
            let ended = home.run(&[&["archive"], args].concat());
            assert_eq!(ended.code, Some(4), "{ended:?}");
            assert!(ended.stderr.starts_with(&text), "{ended:?}");
            assert!(ended.stderr.contains("back from a copy of the store"), "{ended:?}");
        }
        assert_eq!(fs::read_dir(&log).unwrap().count(), count - usize::from(is_gap));
        if is_gap {
            fs::rename(home.path().join("lost"), &lost).unwrap();
            let again = home.run(&["archive", "verify", "s::"]);
            assert_eq!(again.code, Some(0), "{again:?}");
        }
        give_up_the_end(&home, at, is_gap);
    }
}

/// What nobody knows any more is given up, and what somebody knows is not.
fn give_up_the_end(home: &Home, at: usize, is_whole: bool) {
    let give_up = |number: usize, options: &[&str]| {
        let number = number.to_string();
        let args = ["archive", "repair", "--drop-log-from", &number, "s::"];
        home.run(&[&args[..], options].concat())
    };
    let packs = || crate::archive_hosts::packs(home);
    let (log, before) = (home.path().join("s/objects/log"), packs());
    let commits = fs::read_dir(&log).unwrap().count();
    if is_whole {
        let known = give_up(at, &[]);
        assert_eq!(known.code, Some(2), "{known:?}");
        assert!(known.stderr.contains("so nothing is given up"), "{known:?}");
        forget(home);
        fs::remove_file(log.join(format!("{at:020}"))).unwrap();
    }
    let known = give_up(at - 1, &[]);
    assert_eq!(known.code, Some(2), "{known:?}");
    assert!(known.stderr.contains("so nothing is given up"), "{known:?}");
    let refused = give_up(at + 1, &[]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let text = format!(
        "sheaf: commit {} of the archive's log is not the first that is damaged or missing: commit {at} of",
        at + 1
    );
    assert!(refused.stderr.starts_with(&text), "{refused:?}");
    let would = give_up(at, &["--dry-run"]);
    assert!(would.stderr.starts_with("sheaf: would give up 1 commit of the log"), "{would:?}");
    assert_eq!(fs::read_dir(&log).unwrap().count(), commits - usize::from(is_whole));
    let given_up = give_up(at, &[]);
    assert_eq!(given_up.code, Some(0), "{given_up:?}");
    assert!(given_up.stderr.starts_with("sheaf: gave up 1 commit of the log"), "{given_up:?}");
    // The commit, and the version of it.
    assert_eq!(fs::read_dir(home.path().join("s/objects/dropped")).unwrap().count(), 2);
    assert_eq!(packs(), before, "what was stored since may be looked for");
    for args in [&["verify", "s::"][..], &["store", "tree", "s::/4"], &["verify", "s::"]] {
        let ended = home.run(&[&["archive"], args].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    assert_eq!(home.run(&["archive", "ls", "s::/1/tree/a"]).code, Some(0));
    let none = give_up(100, &[]);
    assert!(none.stderr.ends_with("missing: none is\n"), "{none:?}");
}

/// What only a catalog knows is read by it, kept, and written to the log again.
#[test]
fn log_that_has_lost_its_end_is_written_again_of_the_catalog() {
    for kept in [0, 2, 5] {
        let home = home();
        for args in [
            &["store", "--create", "tree", "s::/1"][..],
            &["store", "--no-packs", "tree", "s::/2"],
            &["mv", "s::/1", "s::/3"],
            &["store", "tree", "s::/4"],
            &["rm", "-r", "s::/2/tree/sub"],
            &["chmod", "600", "s::/4/tree/a"],
        ] {
            let ended = home.run(&[&["archive"], args].concat());
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
        let log = home.path().join("s/objects/log");
        let commits = fs::read_dir(&log).unwrap().count();
        let listed = home.run(&["archive", "find", "s::", "-printf", "%p %y %m %s %T@\\n"]).stdout;
        for number in kept + 1..=commits {
            fs::remove_file(log.join(format!("{number:020}"))).unwrap();
        }
        let what =
            format!("lost, from commit {} to {commits}, and nothing else does: keep it", kept + 1);
        let verified = home.run(&["archive", "verify", "s::"]);
        assert_ne!(verified.code, Some(0), "{verified:?}");
        assert!(verified.stderr.contains(&what), "{verified:?}");
        let read = home.run(&["archive", "find", "s::", "-printf", "%p %y %m %s %T@\\n"]);
        assert_eq!((read.code, &read.stdout), (Some(4), &listed), "{read:?}");
        for args in [&["store", "tree", "s::/5"][..], &["repair", "--age", "0", "s::"]] {
            let refused = home.run(&[&["archive"], args].concat());
            assert_eq!(refused.code, Some(4), "{refused:?}");
            assert!(refused.stderr.contains(&what), "{refused:?}");
        }
        // Without the catalog nobody knows, which is not taken for nothing being there.
        if kept == 0 {
            let (catalog, away) = (catalog(&home), home.path().join("away"));
            fs::rename(&catalog, &away).unwrap();
            let verified = home.run(&["archive", "verify", "s::"]);
            assert_eq!(verified.code, Some(4), "{verified:?}");
            assert!(verified.stderr.contains("the log may be lost"), "{verified:?}");
            let repaired = home.run(&["archive", "repair", "--age", "0", "s::"]);
            assert_eq!(repaired.code, Some(4), "{repaired:?}");
            assert!(
                repaired.stderr.contains("a version or a snapshot of the log is of commit"),
                "{repaired:?}"
            );
            fs::rename(&away, &catalog).unwrap();
        }
        let would = home.run(&["archive", "repair", "--restore-log", "--dry-run", "s::"]);
        assert!(would.stderr.starts_with("sheaf: would write "), "{would:?}");
        assert_eq!(fs::read_dir(&log).unwrap().count(), kept);
        let restored = home.run(&["archive", "repair", "--restore-log", "s::"]);
        assert_eq!(restored.code, Some(0), "{restored:?}");
        for _ in 0..2 {
            let read = home.run(&["archive", "find", "s::", "-printf", "%p %y %m %s %T@\\n"]);
            assert_eq!((read.code, &read.stdout), (Some(0), &listed), "{read:?}");
            let whole = home.run(&["archive", "verify", "s::"]);
            assert_eq!(whole.code, Some(0), "{whole:?}");
            forget(&home);
        }
        let none = home.run(&["archive", "repair", "--restore-log", "s::"]);
        assert_eq!(none.code, Some(2), "{none:?}");
        for args in
            [&["store", "tree", "s::/5"][..], &["repair", "--age", "0", "s::"], &["verify", "s::"]]
        {
            let ended = home.run(&[&["archive"], args].concat());
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
    }
}

#[test]
fn log_is_not_written_of_the_catalog_of_another_archive() {
    let home = home();
    home.run(&["archive", "store", "--create", "tree", "s::/1"]);
    let of_s = catalog(&home);
    for number in 0..9 {
        let to = format!("t::/{number}");
        home.run(&["archive", "store", "--create", "tree", &to]);
    }
    let of_t = catalogs(&home).into_iter().find(|file| *file != of_s).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        let with = |file: &Path| file.with_extension(format!("sqlite{suffix}"));
        if with(&of_t).exists() {
            fs::copy(with(&of_t), with(&of_s)).unwrap();
        }
    }
    let before = fs::read_dir(home.path().join("s/objects/log")).unwrap().count();
    let refused = home.run(&["archive", "repair", "--restore-log", "s::"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stderr.contains("is of another archive"), "{refused:?}");
    assert_eq!(fs::read_dir(home.path().join("s/objects/log")).unwrap().count(), before);
}

/// Of a store that another machine knows nothing of, but what is there.
#[test]
fn lost_last_commit_of_a_version_is_seen() {
    let home = home();
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    assert_eq!(run(&["store", "--create", "tree", "s::"]).code, Some(0));
    fs::write(home.path().join("tree/sub/later"), "later").unwrap();
    assert_eq!(run(&["store", "tree", "s::"]).code, Some(0));
    assert_eq!(run(&["get", "s::tree", "back"]).code, Some(0));
    let log = home.path().join("s/objects/log");
    let last = fs::read_dir(&log).unwrap().count();
    fs::remove_file(log.join(format!("{last:020}"))).unwrap();
    forget(&home);
    let told = format!("commit {last} of the archive's log is missing, as a version or a snapshot");
    for _ in 0..2 {
        for args in [
            &["ls", "s::tree"][..],
            &["get", "--delete", "--overwrite", "s::tree", "back"],
            &["store", "tree", "s::"],
            &["repair", "--age", "0", "s::"],
        ] {
            let ended = run(args);
            assert!(ended.code == Some(4) && ended.stderr.contains(&told), "{ended:?}");
        }
    }
    assert_eq!(fs::read(home.path().join("back/tree/sub/later")).unwrap(), b"later");
    let dropped = run(&["repair", "--drop-log-from", &last.to_string(), "s::"]);
    assert_eq!(dropped.code, Some(0), "{dropped:?}");
    assert_eq!(run(&["verify", "s::"]).code, Some(0));
    assert_eq!(run(&["store", "tree", "s::"]).code, Some(0));
    assert_eq!(run(&["cat", "s::tree/sub/later"]).stdout, "later");
}

/// Another machine has stored since, and that commit is lost; and versions that cannot be listed.
#[test]
fn delete_removes_nothing_where_the_log_may_have_lost_its_end() {
    let home = home();
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    assert_eq!(run(&["store", "--create", "tree", "s::"]).code, Some(0));
    fs::write(home.path().join("tree/sub/later"), "later").unwrap();
    let other = home.path().join("other");
    let other = ["--catalog", other.to_str().unwrap()];
    assert_eq!(run(&[&["store"], &other[..], &["tree", "s::"]].concat()).code, Some(0));
    assert_eq!(run(&[&["get"], &other[..], &["s::tree", "back"]].concat()).code, Some(0));
    let log = home.path().join("s/objects/log");
    let last = fs::read_dir(&log).unwrap().count();
    let commit = log.join(format!("{last:020}"));
    let lost = home.path().join("lost");
    fs::rename(&commit, &lost).unwrap();
    let kept = || {
        let ended = run(&["get", "--delete", "--overwrite", "s::tree", "back"]);
        assert_eq!(ended.code, Some(4), "{ended:?}");
        assert_eq!(fs::read(home.path().join("back/tree/sub/later")).unwrap(), b"later");
        ended.stderr
    };
    let told = kept();
    assert!(told.contains(&format!("commit {last} of the archive's log is missing")), "{told}");
    assert_eq!(run(&["ls", "s::tree"]).code, Some(4));
    let versions = home.path().join("s/objects/versions");
    fs::rename(&versions, home.path().join("versions")).unwrap();
    fs::write(&versions, "").unwrap();
    let told = kept();
    assert!(told.contains("versions: cannot be listed"), "{told}");
    forget(&home);
    assert_eq!(run(&["ls", "s::tree"]).code, Some(4));
    assert_eq!(run(&["store", "tree", "s::"]).code, Some(4));
    fs::remove_file(&versions).unwrap();
    fs::rename(home.path().join("versions"), &versions).unwrap();
    fs::rename(&lost, &commit).unwrap();
    let ended = run(&["get", "--delete", "--overwrite", "s::tree", "back"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(home.path().join("back/tree/sub/later").exists());
}

#[test]
fn something_else_in_the_place_of_a_commit_costs_that_commit() {
    for (kind, make) in [("pipe", "mkfifo"), ("link", "ln -s /etc/passwd"), ("socket", "")] {
        let home = home();
        let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
        for to in ["s::/1", "s::/2"] {
            assert_eq!(run(&["store", "--create", "tree", to]).code, Some(0));
        }
        let log = home.path().join("s/objects/log");
        let last = fs::read_dir(&log).unwrap().count();
        let commit = log.join(format!("{last:020}"));
        fs::remove_file(&commit).unwrap();
        if make.is_empty() {
            drop(std::os::unix::net::UnixListener::bind(&commit).unwrap());
        } else {
            let words: Vec<&str> = make.split(' ').collect();
            let made = Command::new(words[0]).args(&words[1..]).arg(&commit).status();
            assert!(made.unwrap().success());
        }
        forget(&home);
        let told = format!("commit {last} of the archive's log is damaged: it is no regular file");
        let read = run(&["cat", "s::/1/tree/a"]);
        assert_eq!((read.code, &read.stdout[..]), (Some(4), "first\n"), "{kind}: {read:?}");
        assert!(read.stderr.contains(&told), "{kind}: {read:?}");
        let refused = run(&["store", "tree", "s::/3"]);
        assert!(refused.code == Some(4) && refused.stderr.contains(&told), "{kind}: {refused:?}");
        let dropped = run(&["repair", "--drop-log-from", &last.to_string(), "s::"]);
        assert_eq!(dropped.code, Some(0), "{kind}: {dropped:?}");
        assert_eq!(run(&["store", "tree", "s::/3"]).code, Some(0), "{kind}");
        assert_eq!(run(&["verify", "s::"]).code, Some(0), "{kind}");
    }
}

/// As by a snapshot of its file system, or when a copy of it takes its place.
#[test]
fn store_that_was_put_back_goes_on_from_there() {
    let home = home();
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    assert_eq!(run(&["store", "--create", "tree", "s::"]).code, Some(0));
    let copy = |from: &str, to: &str| {
        let copied = Command::new("cp").args(["-a", from, to]).current_dir(home.path()).status();
        assert!(copied.unwrap().success());
    };
    copy("s", "before");
    let commits = fs::read_dir(home.path().join("s/objects/log")).unwrap().count();
    let first = commits + 1;
    fs::write(home.path().join("tree/sub/later"), "later").unwrap();
    assert_eq!(run(&["store", "tree", "s::"]).code, Some(0));
    fs::rename(home.path().join("s"), home.path().join("after")).unwrap();
    copy("before", "s");
    let refused = run(&["store", "tree", "s::"]);
    let remedy = format!("sheaf archive repair --drop-log-from {first}");
    assert!(refused.code == Some(4) && refused.stderr.contains(&remedy), "{refused:?}");
    let gone = run(&["repair", "--restore-log", "s::"]);
    assert!(gone.code == Some(4) && gone.stderr.contains(&remedy), "{gone:?}");
    let drop = |number: usize, more: &[&str]| {
        let number = number.to_string();
        run(&[&["repair", "--drop-log-from", &number, "s::"], more].concat())
    };
    let other = drop(commits, &[]);
    assert!(other.code == Some(4) && other.stderr.contains(&remedy), "{other:?}");
    let would = drop(first, &["--dry-run"]);
    let told = format!("that only the catalog knew, from {first} on");
    assert!(would.code == Some(0) && would.stderr.contains(&told), "{would:?}");
    assert_eq!(run(&["store", "tree", "s::"]).code, Some(4));
    let dropped = drop(first, &[]);
    assert!(dropped.code == Some(0) && dropped.stderr.contains(&told), "{dropped:?}");
    assert_eq!(run(&["verify", "s::"]).code, Some(0));
    let stored = run(&["store", "tree", "s::"]);
    assert_eq!((stored.code, &stored.stderr[..16]), (Some(0), "sheaf: stored 1 "), "{stored:?}");
    assert_eq!(run(&["cat", "s::tree/sub/later"]).stdout, "later");
    // Where all of it is there, nothing is given up.
    let again = drop(first, &[]);
    assert!(again.code == Some(2) && again.stderr.contains("nothing is given up"), "{again:?}");
    assert_eq!(run(&["verify", "s::"]).code, Some(0));
}

/// Each command of the tutorial, and what it says.
#[test]
fn tutorial_says_what_happens() {
    let home = Home::new();
    let text = include_str!("../../../../docs/archive.md");
    let (_, tutorial) = text.split_once("## Tutorial\n").unwrap();
    let (tutorial, _) = tutorial.split_once("\n## ").unwrap();
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in tutorial.lines() {
        if let Some(command) = line.strip_prefix("    $ ") {
            said.push((command, Vec::new()));
        } else if let Some(line) = line.strip_prefix("    ") {
            said.last_mut().unwrap().1.push(line);
        }
    }
    assert!(said.len() > 15, "{said:?}");
    let program = built("sheaf");
    let program = Path::new(&program).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    // Sizes of what is compressed are others each time.
    let without_sizes = |line: &str| match line.strip_prefix("sheaf: nothing refers to ") {
        Some(rest) => rest.split(" (").next().map(str::to_owned),
        None => Some(line.to_owned()),
    };
    for (command, lines) in said {
        if command.contains("tar ") && !have("zstd") {
            eprintln!("zstd is not here: packs are not read without Sheaf");
            continue;
        }
        let lines: Vec<_> = lines.into_iter().map(without_sizes).collect();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{{ {command}\n}} 2>&1")]).current_dir(home.path());
        shell.env("PATH", &path).env("LC_ALL", "C.UTF-8").env("HOME", home.path());
        let output = shell.output().unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        let output = output.lines().filter(|line| !line.is_empty());
        let output: Vec<_> = output.map(without_sizes).collect();
        assert_eq!(output, lines, "{command}");
    }
}

#[test]
fn interrupted_store_keeps_commits_and_a_rerun_completes_it() {
    let home = Home::new();
    for directory in 0..400 {
        let directory = home.path().join(format!("tree/{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..20 {
            fs::write(directory.join(file.to_string()), [file; 3000]).unwrap();
        }
    }
    let mut store = home.command(&["archive", "store", "--create", "tree", "s::"]);
    let mut store = store.stderr(std::process::Stdio::piped()).spawn().unwrap();
    sheaf_testing::sessions::wait_until("the store has some packs", || {
        crate::archive_hosts::packs(&home) > 20
    });
    let pid = rustix::process::Pid::from_child(&store);
    // It may have been done before.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    let ended = store.wait().unwrap();
    let mut told = String::new();
    std::io::Read::read_to_string(&mut store.stderr.take().unwrap(), &mut told).unwrap();
    if ended.code() == Some(130) {
        let text =
            "sheaf: interrupted: what was committed is archived; the same command does the rest\n";
        assert_eq!(told, text);
    } else {
        assert_eq!(ended.code(), Some(0), "{told}");
    }
    let rest = home.run(&["archive", "store", "tree", "s::"]);
    assert_eq!(rest.code, Some(0), "{rest:?}");
    assert_eq!(home.run(&["archive", "verify", "s::"]).code, Some(0));
    let found = home.run(&["archive", "find", "s::", "-type", "f"]);
    assert_eq!(found.stdout.lines().count(), 8000);
}

/// What is in a store's directory is the store's.
#[test]
fn nothing_goes_into_a_store_but_by_its_name() {
    let home = home();
    assert_eq!(home.run(&["archive", "store", "--create", "tree", "s::"]).code, Some(0));
    for args in [
        &["get", "s::tree/a", "s/objects"][..],
        &["get", "s::tree/a", "s/new"],
        &["store", "--create", "tree", "s/objects/in::"],
    ] {
        let refused = home.run(&[&["archive"], args].concat());
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(": is in a store of archives, "), "{refused:?}");
    }
    assert!(!home.path().join("s/new").exists() && !home.path().join("s/objects/in").exists());
    for name in ["host:/b::", "s3:bucket/b::", "sftp:host:/b::"] {
        let refused = home.run(&["archive", "store", "--create", "tree", name]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("a store is a directory of this machine"), "{refused:?}");
    }
    let meant = home.run(&["archive", "store", "--create", "tree", "./a:b::"]);
    assert_eq!(meant.code, Some(0), "{meant:?}");
    fs::create_dir_all(home.path().join("disk/lost+found")).unwrap();
    assert_eq!(home.run(&["archive", "store", "--create", "tree", "disk::"]).code, Some(0));
    let all = home.run(&["archive", "rm", "-r", "s::/*"]);
    assert_eq!(all.code, Some(2), "{all:?}");
    assert!(all.stderr.contains("--no-preserve-root"), "{all:?}");
    fs::remove_file(home.path().join("s/sheaf-archive")).unwrap();
    let lost = home.run(&["archive", "ls", "s::"]);
    assert!(lost.stderr.contains("write the line \"sheaf archive, version 1\" to it"), "{lost:?}");
    fs::write(home.path().join("s/sheaf-archive"), "sheaf archive, version 1\n").unwrap();
    assert_eq!(home.run(&["archive", "ls", "s::"]).stdout, "tree\n");
    let between = home.run(&["archive", "store", "tree", "--exclude", "a", "s::/y"]);
    assert_eq!(between.code, Some(0), "{between:?}");
    let alone = home.run(&["archive", "get", "s::tree"]);
    assert!(alone.stderr.contains("where to? The directory comes last"), "{alone:?}");
    for command in ["init", "create", "backup"] {
        let alone = home.run(&["archive", command, "d::"]);
        assert!(alone.stderr.ends_with("comes last; --create makes a store\n"), "{alone:?}");
    }
}

/// A store of two versions, `one` (of `tree`) and `two` (of `tree` with `later`), and a copy of the catalogs from
/// between; `args` are run after that.
fn two_versions() -> (Home, std::path::PathBuf) {
    let home = home();
    let archive = |args: &[&str]| {
        let run = home.run(&[&["archive"], args].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
    };
    archive(&["store", "--create", "--name", "one", "tree", "s::"]);
    let early = home.path().join("early");
    let copied = Command::new("cp").arg("-a").arg(home.path().join(".cache")).arg(&early).status();
    assert!(copied.unwrap().success());
    fs::write(home.path().join("tree/later"), "later").unwrap();
    archive(&["store", "--name", "two", "tree", "s::"]);
    (home, early)
}

/// The catalogs are those of this copy.
fn take_catalogs(home: &Home, from: &Path) {
    let cache = home.path().join(".cache");
    fs::remove_dir_all(&cache).unwrap();
    let copied = Command::new("cp").arg("-a").arg(from).arg(&cache).status();
    assert!(copied.unwrap().success());
}

/// The commits of the log, from the first on.
fn commits(home: &Home) -> Vec<std::path::PathBuf> {
    let log = fs::read_dir(home.path().join("s/objects/log")).unwrap();
    let mut commits: Vec<_> = log.map(|entry| entry.unwrap().path()).collect();
    commits.sort();
    commits
}

#[test]
fn log_that_is_restored_keeps_what_its_catalog_does_not_know() {
    let (home, early) = two_versions();
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    let all = commits(&home);
    // The catalog knows all but the last commit, of which there is a version.
    all[all.len() - 2..].iter().for_each(|commit| fs::remove_file(commit).unwrap());
    take_catalogs(&home, &early);
    let restored = run(&["repair", "--restore-log", "s::"]);
    let told = format!("commit {} of the archive's log is missing, as a version or", all.len());
    assert!(restored.code == Some(4) && restored.stderr.contains(&told), "{restored:?}");
    for args in [&["ls", "s::"][..], &["repair", "--age", "0", "s::"], &["store", "tree", "s::"]] {
        let ended = run(args);
        assert!(ended.code == Some(4) && ended.stderr.contains(&told), "{ended:?}");
    }
    assert_eq!(run(&["verify", "s::"]).code, Some(4));
    let dropped = run(&["repair", "--drop-log-from", &all.len().to_string(), "s::"]);
    assert_eq!(dropped.code, Some(0), "{dropped:?}");
    let verified = run(&["verify", "s::"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    let log = run(&["log", "s::"]).stdout;
    assert!(log.contains("one") && !log.contains("two"), "{log}");
}

#[test]
fn versions_follow_a_log_that_is_written_again_or_are_named() {
    for damage in ["the end is lost", "one is lost", "one is damaged"] {
        let (home, _) = two_versions();
        let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
        let all = commits(&home);
        // The first version is of the commit before the last.
        let (one, last) = (&all[all.len() - 2], &all[all.len() - 1]);
        match damage {
            "one is damaged" => fs::write(one, "garbage").unwrap(),
            _ => fs::remove_file(one).unwrap(),
        }
        if damage == "the end is lost" {
            fs::remove_file(last).unwrap();
        }
        let restore = |more: &[&str]| run(&[&["repair", "--restore-log", "s::"], more].concat());
        let dry = restore(&["--dry-run"]);
        let told = "would forget 1 version, as the log has lost what the archive was then: one";
        assert!(dry.code == Some(0) && dry.stderr.contains(told), "{damage}: {dry:?}");
        let restored = restore(&[]);
        assert!(restored.stderr.contains("forgot 1 version,"), "{damage}: {restored:?}");
        assert_eq!(restored.code, Some(0), "{damage}: {restored:?}");
        assert_eq!(run(&["repair", "--age", "0", "s::"]).code, Some(0), "{damage}");
        let verified = run(&["verify", "s::"]);
        assert_eq!(verified.code, Some(0), "{damage}: {verified:?}");
        forget(&home);
        assert_eq!(run(&["cat", "--at", "two", "s::tree/later"]).stdout, "later", "{damage}");
        assert_eq!(run(&["store", "tree", "s::"]).code, Some(0), "{damage}");
        assert_eq!(restore(&[]).code, Some(2), "{damage}: there is nothing to write");
    }
}

#[test]
fn snapshot_shows_that_the_log_has_lost_its_end() {
    let (home, _) = two_versions();
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    assert_eq!(run(&["forget", "--keep-last", "0", "s::"]).code, Some(0));
    let all = commits(&home);
    let snapshots = home.path().join("s/objects/snapshots");
    fs::create_dir_all(&snapshots).unwrap();
    fs::write(snapshots.join(format!("{:020}", all.len() + 1)), "").unwrap();
    let told = format!("commit {} of the archive's log is missing", all.len() + 1);
    for args in [&["ls", "s::"][..], &["get", "s::tree", "back"], &["store", "tree", "s::"]] {
        let ended = run(args);
        assert!(ended.code == Some(4) && ended.stderr.contains(&told), "{ended:?}");
    }
    assert_eq!(run(&["verify", "s::"]).code, Some(4));
    let dropped = run(&["repair", "--drop-log-from", &(all.len() + 1).to_string(), "s::"]);
    assert_eq!(dropped.code, Some(0), "{dropped:?}");
    assert_eq!(run(&["ls", "s::"]).code, Some(0));
}

#[test]
fn log_that_cannot_be_given_up_keeps_its_versions() {
    let (home, _) = two_versions();
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    let all = commits(&home);
    let damaged = all.len() - 1;
    let kept = fs::read(&all[damaged - 1]).unwrap();
    fs::write(&all[damaged - 1], "garbage").unwrap();
    forget(&home);
    let dropped = home.path().join("s/objects/dropped");
    fs::write(&dropped, "").unwrap();
    let drop = || run(&["repair", "--drop-log-from", &damaged.to_string(), "s::"]);
    assert_eq!(drop().code, Some(4));
    fs::remove_file(&dropped).unwrap();
    let garbage = fs::read(&all[damaged - 1]).unwrap();
    fs::write(&all[damaged - 1], kept).unwrap();
    let log = run(&["log", "s::"]).stdout;
    assert!(log.contains("one") && log.contains("two"), "{log}");
    fs::write(&all[damaged - 1], garbage).unwrap();
    forget(&home);
    assert_eq!(drop().code, Some(0));
    let kept: Vec<_> = fs::read_dir(&dropped).unwrap().map(|entry| entry.unwrap().path()).collect();
    let versions = kept.iter().filter(|path| path.extension().is_some()).count();
    assert_eq!((kept.len(), versions), (4, 2), "two commits and their versions: {kept:?}");
}

#[test]
fn versions_without_their_commits_are_all_named() {
    let (home, _) = two_versions();
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    let all = commits(&home);
    all[all.len() - 2..].iter().for_each(|commit| fs::remove_file(commit).unwrap());
    forget(&home);
    let verified = run(&["verify", "s::"]);
    let versions = verified.stderr.matches("bring the log back from a copy of the store").count();
    assert_eq!((verified.code, versions), (Some(4), 2), "{verified:?}");
}

#[test]
fn directory_in_the_place_of_a_version_is_forgotten() {
    let (home, _) = two_versions();
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    let mark = fs::read_dir(home.path().join("s/objects/versions")).unwrap().next().unwrap();
    let mark = mark.unwrap().path();
    fs::remove_file(&mark).unwrap();
    fs::create_dir(&mark).unwrap();
    let id = mark.file_name().unwrap().to_str().unwrap().split_once('-').unwrap().1.to_owned();
    assert_eq!(run(&["verify", "s::"]).code, Some(1));
    let forgotten = run(&["forget", "s::", &id]);
    assert_eq!(forgotten.code, Some(0), "{forgotten:?}");
    assert_eq!(run(&["verify", "s::"]).code, Some(0));
}
