//! Commands that change files: what they refuse, ask, and say.
use crate::support::{Home, Run};

/// Four hosts with files of their own.
struct Hosts {
    home: Home,
}

impl Hosts {
    fn new() -> Self {
        let home = Home::new();
        for host in 1..=4 {
            home.write(&format!("n{host}/d/a"), "a\n");
            home.write(&format!("n{host}/d/b"), "b\n");
        }
        Self { home }
    }

    fn run(&self, args: &[&str]) -> Run {
        let export = self.home.path().join("%h");
        let global = ["--embedded", "4", "--export", export.to_str().unwrap()];
        self.home.run(&[&global, args].concat())
    }

    /// The one line of a usage error, after which everything is as it was.
    #[track_caller]
    fn refuses(&self, args: &[&str]) -> String {
        let run = self.run(args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}: {run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{args:?}: {run:?}");
        assert!(self.are_untouched(), "{args:?}");
        run.stderr
    }

    fn are_untouched(&self) -> bool {
        (1..=4).all(|host| self.names(host, "d") == ["a", "b"] && self.names(host, "") == ["d"])
    }

    fn names(&self, host: u32, dir: &str) -> Vec<String> {
        names(&self.home.path().join(format!("n{host}")).join(dir))
    }
}

fn names(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_relative_path_on_hosts_is_refused() {
    let hosts = Hosts::new();
    hosts.home.write("local", "x");
    let told: String = [
        &["cat", "d/a"][..],
        &["ls", "."],
        &["grep", "x", "n1:./d/a"],
        &["stat", "n1:"],
        &["read", ":../d/a"],
        &["sha", "n[1-4]:{d,e}/a"],
        &["rm", "-rf", "n[1-4]:d"],
        &["rm", "-rf", ":d"],
        &["write", "--data", "x", "n1:d/a"],
        &["chmod", "0", "@all:d/a"],
        &["ln", "d/a", ":/d/c"],
        &["cp", "local", ":d/"],
        &["cp", "n1:d/a", "."],
    ]
    .iter()
    .map(|args| hosts.refuses(args))
    .collect();
    insta::assert_snapshot!(told);
}

#[test]
fn whoever_changes_files_says_on_which_hosts() {
    let hosts = Hosts::new();
    let told: String = [
        &["rm", "-rf", "/d"][..],
        &["rm", "-rf", "n1:/d", "/d"],
        &["rm", "-rf", "d"],
        &["write", "--data", "x", "/d/a"],
        &["chmod", "0", "/d/a"],
        &["chown", "1", "/d/a"],
        &["truncate", "-s", "0", "/d/a"],
        &["mkdir", "/d/c"],
        &["ln", "-s", "a", "/d/c"],
    ]
    .iter()
    .map(|args| hosts.refuses(args))
    .collect();
    insta::assert_snapshot!(told);
    for (dir, hosts_said) in [("x", ":"), ("y", "@all:"), ("z", "n[1-4]:")] {
        let run = hosts.run(&["mkdir", &format!("{hosts_said}/{dir}")]);
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    assert_eq!(hosts.names(4, ""), ["d", "x", "y", "z"]);
}

#[test]
fn on_this_machine_alone_a_path_starts_at_the_working_directory() {
    let home = Home::new();
    // A name that would be a pattern.
    let dir = home.path().join("a[1]{b,c}*");
    let file = dir.join("d/f");
    home.write("a[1]{b,c}*/d/f", "one\n");
    home.write("a1b/d/f", "another\n");
    let run = |args: &[&str]| {
        let run = Run::of(home.command(args).current_dir(&dir).output().unwrap());
        assert_eq!(run.code, Some(0), "{args:?}: {run:?}");
        run.stdout
    };
    assert_eq!(run(&["cat", "d/f"]), "one\n");
    assert_eq!(run(&["cat", "./d/*"]), "one\n");
    assert_eq!(run(&["cat", ":../a1b/d/f"]), "another\n");
    assert!(run(&["ls", "."]).trim_end().ends_with("a[1]{b,c}*/d"));
    run(&["mkdir", "e"]);
    run(&["truncate", "-s", "2", "e/g"]);
    run(&["chmod", "600", "e/g", "@all:d/f"]);
    run(&["ln", "d/f", "e/same"]);
    run(&["ln", "-s", "same", "e/link"]);
    run(&["cp", "d/f", ":e/copied"]);
    run(&["cp", ":e/copied", "."]);
    run(&["write", "--data", "two\n", "e/copied"]);
    assert_eq!(run(&["cat", "e/link"]), "one\n");
    assert_eq!(names(&dir.join("e")), ["copied", "g", "link", "same"]);
    assert_eq!(std::fs::read_to_string(dir.join("e/copied")).unwrap(), "two\n");
    run(&["rm", "-r", "e"]);
    assert!(file.exists() && home.path().join("a1b/d/f").exists());
    // Not even recursively, and by no name.
    for dots in [".", "./", "d/..", "d/."] {
        let run = Run::of(home.command(&["rm", "-rf", dots]).current_dir(&dir).output().unwrap());
        assert!(run.code != Some(0) && file.exists(), "{dots}: {run:?}");
    }
}

#[test]
fn every_cluster_knows_all_its_hosts_as_a_group() {
    let home = Home::with_config(
        "default = \"lab\"\n[cluster.lab]\nhosts = \"n[1-3]\"\nlaunch = \"embedded\"\n\
         [cluster.listed]\nhosts = \"@file:hosts\"\nlaunch = \"embedded\"\n[groups]\nweb = \"n[1-2]\"\n",
    );
    home.write("hosts", "n1\nn2\n");
    let file = home.write("file", "x\n");
    let address = |hosts: &str| format!("{hosts}:{}", file.display());
    for (global, address, hosts) in [
        (&[][..], address("@all"), "n[1-3]"),
        (&["-C", "listed"], address("@all"), "n[1-2]"),
        (&["--embedded", "4"], address("@all!n1"), "n[2-4]"),
        (&["--processes", "2"], address("@all"), "n[1-2]"),
        (&[], address("@all!@web"), "n3"),
        (&[], address("n1,@all"), "n[1-3]"),
    ] {
        let run = home.run(&[global, &["grep", "x", &address]].concat());
        assert_eq!(run.stdout, format!("{hosts}:{}:x\n", file.display()), "{run:?}");
    }
    let alone = Home::new();
    assert_eq!(alone.run(&["cat", &address("@all")]).stdout, "x\n");
}

#[test]
fn help_is_a_command_too() {
    let home = Home::new();
    for command in [&[][..], &["rm"], &["config", "show"]] {
        let help = home.run(&[&["help"], command].concat());
        assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""), "{command:?}");
        assert_eq!(help.stdout, home.run(&[command, &["--help"]].concat()).stdout, "{command:?}");
    }
    let unknown = home.run(&["help", "rn"]);
    assert_eq!(
        (unknown.code, unknown.stderr.as_str()),
        (Some(2), "sheaf: there is no command rn: sheaf help lists them\n")
    );
}
