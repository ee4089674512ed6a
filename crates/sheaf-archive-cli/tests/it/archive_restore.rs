//! Logs that have lost something in the middle, and catalogs that know some of it.
use sheaf_testing::home::{Home, Run};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

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

/// Killed between the commit and the marks: the same command again ends it.
#[test]
fn marks_of_a_restoring_that_was_broken_off_are_seen() {
    let stored = Stored::new(VERSIONS);
    let mark = fs::read_dir(stored.at("s/objects/versions"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{:020}", 4)))
        .unwrap();
    let kept = fs::read(&mark).unwrap();
    fs::write(stored.commit(4), "x").unwrap();
    let caches = stored.at("caches");
    let copied = Command::new("cp").arg("-a").arg(stored.at(".cache")).arg(&caches).status();
    assert!(copied.unwrap().success());
    assert_eq!(stored.repair(&["--restore-log"]).code, Some(0));
    // As it was then: the mark is there, and the catalog is not made again.
    fs::write(&mark, kept).unwrap();
    fs::remove_dir_all(stored.at(".cache")).unwrap();
    fs::rename(&caches, stored.at(".cache")).unwrap();
    let again = stored.repair(&["--restore-log"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    stored.check(&[1, 2, VERSIONS], "");
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
