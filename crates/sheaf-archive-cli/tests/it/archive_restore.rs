//! Logs that have lost something in the middle, and catalogs that know some of it.
use sheaf_testing::home::{Home, Run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Stores of a tree that grows: version `vN` has the files up to `fN`, and is of commit N + 1.
struct Stored {
    home: Home,
}

const VERSIONS: usize = 6;

impl Stored {
    /// With the catalog of after `known` versions; 0: none.
    fn new(known: usize) -> Self {
        let stored = Self { home: Home::new() };
        let (cache, kept) = (stored.at(".cache"), stored.at("kept"));
        for number in 1..=VERSIONS {
            stored.home.write(&format!("tree/f{number}"), &format!("{number}\n"));
            let name = format!("v{number}");
            let args = ["store", "--create", "--name", &name, "tree/.", "s::"];
            assert_eq!(stored.run(&args).code, Some(0));
            if number == known {
                let copied = Command::new("cp").arg("-a").arg(&cache).arg(&kept).status();
                assert!(copied.unwrap().success());
            }
        }
        fs::remove_dir_all(&cache).unwrap();
        if known > 0 {
            fs::rename(&kept, &cache).unwrap();
        }
        stored
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn commit(&self, number: usize) -> PathBuf {
        self.at("s/objects/log").join(format!("{number:020}"))
    }

    fn run(&self, args: &[&str]) -> Run {
        self.home.run(&[&["archive"], args].concat())
    }

    fn repair(&self, args: &[&str]) -> Run {
        self.run(&[&["repair", "s::"], args].concat())
    }

    /// That the archive has these versions and no others, each with its files, and can be used.
    fn check(&self, versions: &[usize], context: &str) {
        for cold in [false, true] {
            if cold {
                fs::remove_dir_all(self.at(".cache")).unwrap();
            }
            let verified = self.run(&["verify", "s::"]);
            assert_eq!(verified.code, Some(0), "{context}: {verified:?}");
            assert_eq!(self.repair(&["--age", "0"]).code, Some(0), "{context}");
            let log = self.run(&["log", "s::"]).stdout;
            for number in 1..=VERSIONS {
                let name = format!("v{number}");
                let is_there = versions.contains(&number);
                assert_eq!(log.contains(&name), is_there, "{context}: {name}: {log}");
                if is_there {
                    let listed = self.run(&["ls", "--at", &name, "s::"]);
                    let files: String = (1..=number).map(|file| format!("f{file}\n")).collect();
                    assert_eq!(listed.stdout, files, "{context}: {name}");
                }
            }
        }
        assert_eq!(self.run(&["store", "tree/.", "s::"]).code, Some(0), "{context}");
        assert_eq!(self.run(&["verify", "s::"]).code, Some(0), "{context}");
    }
}

#[test]
fn commits_behind_a_lost_one_are_written_again_with_it() {
    // One that ends behind the lost commit takes in the others, and then knows the last state alone.
    for (known, lost, left) in
        [(4, 4, vec![1, 2, 6]), (3, 4, vec![1, 2, 3, 4, 5, 6]), (6, 3, vec![1, 6])]
    {
        for damage in ["gone", "garbage", "pipe", "directory"] {
            let stored = Stored::new(known);
            let commit = stored.commit(lost);
            fs::remove_file(&commit).unwrap();
            match damage {
                "garbage" => fs::write(&commit, "x").unwrap(),
                "pipe" => assert!(Command::new("mkfifo").arg(&commit).status().unwrap().success()),
                "directory" => fs::create_dir(&commit).unwrap(),
                _ => {}
            }
            let context = format!("{known} {lost} {damage}");
            let read = stored.run(&["ls", "s::"]);
            // A catalog that has taken the commit in goes on.
            assert_eq!(read.code == Some(0), known >= lost, "{context}: {read:?}");
            assert!(!read.stderr.contains("another archive"), "{context}: {read:?}");
            let restored = stored.repair(&["--restore-log"]);
            assert_eq!(restored.code, Some(0), "{context}: {restored:?}");
            stored.check(&left, &context);
        }
    }
}

#[test]
fn catalog_s_commits_stay_where_a_later_one_is_lost_too() {
    let stored = Stored::new(4);
    fs::remove_file(stored.commit(3)).unwrap();
    fs::write(stored.commit(6), "x").unwrap();
    let refused = stored.repair(&["--restore-log"]);
    assert!(refused.code == Some(4) && refused.stderr.contains("--drop-log-from 6"), "{refused:?}");
    let dropped = stored.repair(&["--drop-log-from", "6"]);
    assert_eq!(dropped.code, Some(0), "{dropped:?}");
    let restored = stored.repair(&["--restore-log"]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    stored.check(&[1, 4], "");
}

/// Something that is no file, further on, would be in the way of a later commit.
#[test]
fn what_is_no_file_goes_with_the_commits() {
    for drops in [true, false] {
        let stored = Stored::new(if drops { 0 } else { VERSIONS });
        fs::remove_file(stored.commit(3)).unwrap();
        fs::remove_file(stored.commit(5)).unwrap();
        let made = Command::new("mkfifo").arg(stored.commit(5)).status();
        assert!(made.unwrap().success());
        fs::create_dir(stored.commit(8)).unwrap();
        let repaired = match drops {
            true => stored.repair(&["--drop-log-from", "3"]),
            false => stored.repair(&["--restore-log"]),
        };
        assert_eq!(repaired.code, Some(0), "{repaired:?}");
        stored.check(if drops { &[1] } else { &[1, VERSIONS] }, "");
    }
}

#[test]
fn commits_that_cannot_all_go_stay() {
    let stored = Stored::new(0);
    fs::remove_file(stored.commit(5)).unwrap();
    fs::create_dir(stored.commit(5)).unwrap();
    fs::write(stored.commit(5).join("x"), "").unwrap();
    let failed = stored.repair(&["--drop-log-from", "5"]);
    assert_eq!(failed.code, Some(4), "{failed:?}");
    assert!(stored.commit(6).is_file() && stored.commit(7).is_file());
    let versions = fs::read_dir(stored.at("s/objects/versions")).unwrap().count();
    assert_eq!(versions, VERSIONS);
    fs::remove_dir_all(stored.commit(5)).unwrap();
    assert_eq!(stored.repair(&["--drop-log-from", "5"]).code, Some(0));
    stored.check(&[1, 2, 3], "");
}

/// A name in the store may be any number.
#[test]
fn commit_of_a_number_that_none_has_is_given_up_in_time() {
    let stored = Stored::new(0);
    let far = stored.at("s/objects/log").join(format!("{:020}", i64::MAX));
    fs::write(&far, "x").unwrap();
    fs::remove_file(stored.commit(5)).unwrap();
    let dropped = stored.repair(&["--drop-log-from", "5"]);
    assert!(dropped.code == Some(0) && !far.exists(), "{dropped:?}");
    stored.check(&[1, 2, 3], "");
}

/// Killed at any moment, and done again: nothing that it would have kept is lost.
#[test]
fn restoring_that_is_killed_is_done_by_the_next() {
    let stored = Stored::new(1);
    let (whole, cache) = (stored.at("whole"), stored.at("cache"));
    let copy = |from: &PathBuf, to: &PathBuf| {
        let _ = fs::remove_dir_all(to);
        assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
    };
    fs::remove_file(stored.commit(2)).unwrap();
    copy(&stored.at("s"), &whole);
    copy(&stored.at(".cache"), &cache);
    let mut planned = 0;
    for round in 0..24 {
        copy(&whole, &stored.at("s"));
        copy(&cache, &stored.at(".cache"));
        let restore = ["archive", "repair", "s::", "--restore-log"];
        let mut child = stored.home.command(&restore).spawn().unwrap();
        let plan = stored.at("s/objects/restoring/plan");
        match round % 3 {
            0 => thread::sleep(Duration::from_millis(round)),
            _ => while !plan.exists() && child.try_wait().unwrap().is_none() {},
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if plan.exists() {
            planned += 1;
            for refused in [&["store", "tree/.", "s::"][..], &["repair", "s::"], &["ls", "s::"]] {
                let refused = stored.run(refused);
                let says = refused.stderr.contains("so does sheaf archive repair --restore-log");
                assert!(says && refused.code == Some(4), "{refused:?}");
            }
        }
        let again = stored.repair(&["--restore-log"]);
        assert!(matches!(again.code, Some(0 | 2)), "{round}: {again:?}");
        stored.check(&[1, 2, 3, 4, 5, 6], &round.to_string());
    }
    println!("{planned} of 24 were killed with a plan");
}

#[test]
fn top_of_an_archive_gives_no_rights_and_takes_some() {
    let home = Home::new();
    home.write("p/key", "secret");
    let shell = |script: &str| {
        let ran =
            Command::new("sh").args(["-c", script]).current_dir(home.path()).output().unwrap();
        assert!(ran.status.success());
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    };
    shell("chmod 700 p");
    let run = |args: &[&str]| assert_eq!(home.run(&[&["archive"], args].concat()).code, Some(0));
    run(&["store", "--create", "p/.", "s::"]);
    for (number, from) in ["s::/.", "s::"].into_iter().enumerate() {
        let to = format!("b{number}");
        run(&["get", from, &to]);
        assert_eq!(shell(&format!("stat -c %a {to}")), "700", "{from}");
    }
    shell("chmod 777 p; umask 077; mkdir t");
    run(&["store", "--create", "p", "t::"]);
    shell("mkdir -m 700 old");
    run(&["get", "--delete", "t::", "old"]);
    assert_eq!(shell("stat -c %a old"), "700");
}

/// A directory that is made for contents of a private one is private from the beginning, and has its attributes at the
/// end, also where a command was killed between.
#[test]
fn directory_that_is_made_for_contents_is_private_until_the_end() {
    let home = Home::new();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(home.path(), "user.tried", b"1", flags).is_err() {
        return sheaf_testing::skipped("needs a file system with extended attributes");
    }
    let content: Vec<u8> = (0..6u32 << 20).map(|at| (at / 5) as u8).collect();
    let mode = |name: &str| {
        let about = fs::metadata(home.path().join(name)).ok()?;
        Some(about.permissions().mode() & 0o7777)
    };
    for (number, kept) in [0o700, 0o755, 0o2770].into_iter().enumerate() {
        let tree = home.path().join(format!("tree{number}"));
        fs::create_dir_all(tree.join("p")).unwrap();
        fs::write(tree.join("p/file"), &content).unwrap();
        fs::set_permissions(tree.join("p"), PermissionsExt::from_mode(kept)).unwrap();
        fs::set_permissions(&tree, PermissionsExt::from_mode(kept)).unwrap();
        let store = format!("s{number}::");
        let from = tree.join(".");
        let args = ["archive", "store", "--create", from.to_str().unwrap(), &store];
        assert_eq!(home.run(&args).code, Some(0));
        for what in ["p/.", ""] {
            let (from, to) = (format!("{store}{what}"), format!("to{number}-{}", what.len()));
            let get = ["archive", "get", "--limit", "disk=3M", &from, &to];
            let mut child = home.command(&get).spawn().unwrap();
            while mode(&to).is_none() {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(100));
            let during = mode(&to).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(during & 0o777, 0o700, "{kept:o} {to}: {during:o}");
            let again = home.run(&["archive", "get", &from, &to]);
            assert_eq!(again.code, Some(0), "{again:?}");
            // The top of an archive gives no rights, but those that any directory has.
            let expected = if what.is_empty() { kept & 0o755 } else { kept };
            assert_eq!(mode(&to), Some(expected), "{kept:o} {to}");
        }
    }
    // One that was there is its user's, whatever its mode is.
    let own = home.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, PermissionsExt::from_mode(0o1700)).unwrap();
    assert_eq!(home.run(&["archive", "get", "s1::p/.", "own"]).code, Some(0));
    assert_eq!(mode("own"), Some(0o1700));
    // What nothing is got for is not made.
    let none = home.run(&["archive", "get", "--include", "nope", "s0::p/.", "none"]);
    assert!(none.code.is_some() && mode("none").is_none(), "{none:?}");
}
