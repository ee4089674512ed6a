//! The commands that read and change files, on servers within the command.
use sheaf_testing::home::{Home, Run};
use std::io::Write;
use std::process::Stdio;

/// Four hosts: `a` is the same on all, `b` in two, and the third has one more.
struct Hosts {
    home: Home,
}

impl Hosts {
    fn new() -> Self {
        let home = Home::new();
        for host in 1..=4 {
            home.write(&format!("n{host}/d/a"), "same\n");
            home.write(&format!("n{host}/d/b"), &format!("line {}\n", host % 2));
        }
        home.write("n3/d/only", "x\n");
        for path in ["a", "b", "only"]
            .iter()
            .flat_map(|name| (1..=4).map(move |host| format!("n{host}/d/{name}")))
        {
            if let Ok(file) = std::fs::File::open(home.path().join(path)) {
                let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
                file.set_modified(time).unwrap();
            }
        }
        Self { home }
    }

    fn run(&self, args: &[&str]) -> Run {
        self.feed(args, b"")
    }

    fn feed(&self, args: &[&str], input: &[u8]) -> Run {
        let export = self.home.path().join("%h");
        let global = ["--embedded", "4", "--export", export.to_str().unwrap()];
        let mut command = self.home.command(&[&global, args].concat());
        command
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        Run::of(child.wait_with_output().unwrap())
    }

    #[track_caller]
    fn prints(&self, args: &[&str], expected: &str) {
        let run = self.run(args);
        assert_eq!(
            (run.stdout.as_str(), run.stderr.as_str(), run.code),
            (expected, "", Some(0)),
            "{args:?}"
        );
    }

    /// Changes files, and says so.
    #[track_caller]
    fn does(&self, args: &[&str], expected: &str) {
        let run = self.run(args);
        assert_eq!(
            (run.stdout.as_str(), run.stderr.as_str(), run.code),
            ("", expected, Some(0)),
            "{args:?}"
        );
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.home.path().join(path)).unwrap()
    }
}

#[test]
fn reports_fold_what_is_equal() {
    let hosts = Hosts::new();
    hosts.prints(&["ls", "/d"], "n[1-4]:/d/a\nn[1-4]:/d/b\nn3:/d/only\n");
    hosts.prints(
        &["stat", "-c", "%s %y", "/d/a"],
        "n[1-4]:/d/a:5 2023-11-14 22:13:20.000000000 +0000\n",
    );
    hosts.prints(
        &["sha", "/d/b"],
        "39d031a6c1c196352ec2aea7fb3dc91ff031888b841d140bc400baa403f2d4de  n[1,3]:/d/b\n\
         2ebec9f67113fe51018906ee270559e0067bd3a5ae0204702457c7cdedcecc01  n[2,4]:/d/b\n",
    );
    hosts.prints(&["du", "-b", "n[2-4]:/d/a"], "5\tn[2-4]:/d/a\n");
    hosts.prints(&["cat", "/d/a"], "same\n");
    hosts.prints(
        &["cat", "-n", "--heading", "/d/b"],
        "==> n[1,3]:/d/b <==\n     1\tline 1\n\n==> n[2,4]:/d/b <==\n     1\tline 0\n",
    );
    // Of two options that say the same thing differently the last counts.
    hosts.home.write("n1/h/.x", "");
    hosts.prints(&["ls", "-a", "-A", "n1:/h"], "n1:/h/.x\n");
    hosts.prints(&["ls", "-A", "-a", "n1:/h"], "n1:/h/.\nn1:/h/..\nn1:/h/.x\n");
    let long = hosts.run(&["ls", "-l", "--time-style", "full-iso", "n3:/d"]);
    let last = long.stdout.lines().last().unwrap();
    assert!(last.starts_with("n3:/d:-rw"), "{last}");
    assert!(last.ends_with(" 2 2023-11-14 22:13:20.000000000 +0000 only"), "{last}");
}

#[test]
fn reads_combine() {
    let hosts = Hosts::new();
    hosts.prints(&["read", "--aggregate", "avg", "--column", "2", ":/d/b"], "0.5\n");
    hosts.prints(
        &["read", "--aggregate", "lines", "/d/b"],
        "n[1,3]:/d/b:line 1\nn[2,4]:/d/b:line 0\n",
    );
    hosts.prints(&["read", "--aggregate", "count", "/d/*"], "9\n");
    hosts.prints(&["read", "--count", "4", "n[1-2]:/d/b"], "lineline");
    hosts.prints(&["read", "--aggregate", "equal", "/d/a"], "same\n");
    let differ = hosts.run(&["read", "--aggregate", "equal", "/d/b"]);
    assert_eq!(
        (
            differ.code,
            differ
                .stderr
                .contains("2 different ones; sheaf read -a classes or sheaf sha shows them\n")
        ),
        (Some(1), true)
    );
}

#[test]
fn changes_say_what_was_done_and_what_failed() {
    let hosts = Hosts::new();
    std::fs::remove_file(hosts.home.path().join("n2/d/a")).unwrap();
    let chmod = hosts.run(&["chmod", "-v", "600", "@all:/d/a"]);
    assert_eq!(chmod.code, Some(4));
    assert_eq!(
        chmod.stdout,
        "n[1,3-4]:/d/a: mode changed from 0644 (rw-r--r--) to 0600 (rw-------)\n"
    );
    assert_eq!(
        chmod.errors(),
        "mode set on n[1,3-4]: 3 files\n\
         n2:/d/a: No such file or directory (ENOENT), 1 of 4 members\nsheaf: 3 of 4 members succeeded, 1 failed\n"
    );
    hosts.does(&["mkdir", "-p", "@all:/new/dir"], "made on n[1-4]: 8 directories\n");
    hosts.does(&["ln", "-s", "../d/b", "@all:/new/link"], "linked on n[1-4]: 4 names\n");
    hosts.does(&["truncate", "-s", "4", "@all:/new/link"], "size set on n[1-4]: 4 files\n");
    assert_eq!(hosts.read("n4/d/b"), "line");
    hosts.does(&["rm", "-r", "@all:/new"], "removed on n[1-4]: 12 files and directories\n");
    hosts.does(&["rm", "-f", "@all:/new"], "removed: nothing\n");
    hosts.prints(&["--quiet", "mkdir", "@all:/new"], "");
    let refused = hosts.run(&["rm", "-rf", "@all:/"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""));
    assert!(hosts.home.path().join("n1/d/b").exists());
}

#[test]
fn written_bytes_come_from_data_or_standard_input() {
    let hosts = Hosts::new();
    hosts.does(
        &["write", "--append", "--data", "more\n", "@all:/d/a"],
        "written on n[1-4]: 4 files\n",
    );
    assert_eq!(hosts.read("n3/d/a"), "same\nmore\n");
    let long = "0123456789".repeat(150_000);
    let run = hosts.feed(&["write", "--create", "@all:/new"], long.as_bytes());
    assert_eq!((run.stderr.as_str(), run.code), ("written on n[1-4]: 4 files\n", Some(0)));
    assert!((1..=4).all(|host| hosts.read(&format!("n{host}/new")) == long));
    let exclusive = hosts.run(&["write", "--excl", "--data", "", "@all:/d/only"]);
    assert_eq!(
        (exclusive.code, exclusive.stderr.contains("n3:/d/only: File exists (EEXIST)")),
        (Some(4), true)
    );
    assert!(!hosts.home.path().join("n1/d/only").exists());
}

#[test]
fn json_has_an_object_for_each_entry_and_a_summary() {
    let hosts = Hosts::new();
    let run = hosts.run(&["--json", "sha", "-a", "blake3", "/d/a"]);
    let lines: Vec<serde_json::Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (lines[0]["hosts"].as_str(), lines[0]["path"].as_str()),
        (Some("n[1-4]"), Some("/d/a"))
    );
    assert_eq!(lines[1]["succeeded"], 4);
    let run = hosts.run(&["--json", "read", "--aggregate", "max", "--column", "2", "/d/b"]);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(run.stdout.lines().next().unwrap()).unwrap()["numbers"]
            [0],
        1.0
    );
}
