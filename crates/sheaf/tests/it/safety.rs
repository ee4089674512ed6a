//! Commands that change files: what they refuse, ask, and say.
use sheaf_testing::home::{Home, Run};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

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

    /// The options that make the hosts.
    fn global(&self) -> Vec<String> {
        let export = self.home.path().join("%h").display().to_string();
        ["--embedded", "4", "--export", &export].map(str::to_owned).to_vec()
    }

    /// Runs with this as standard input, which is no terminal.
    fn fed(&self, input: &str, args: &[&str]) -> Run {
        let mut command = self.home.command(&[]);
        feed(command.args(self.global()).args(args), input)
    }

    /// Runs on a terminal where this is typed; what is printed comes on standard output.
    fn typed(&self, input: &str, args: &[&str]) -> Run {
        self.typed_with(input, args, "")
    }

    /// The same, redirected as a shell is told.
    fn typed_with(&self, input: &str, args: &[&str], redirection: &str) -> Run {
        let quote = |word: String| format!("'{word}'");
        let words =
            self.global().into_iter().chain(args.iter().map(|word| (*word).to_owned())).map(quote);
        let words = words.collect::<Vec<_>>().join(" ");
        let line = format!("{} {words} {redirection}", env!("CARGO_BIN_EXE_sheaf"));
        let own = self.home.command(&[]);
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(self.home.path()).env_clear();
        command
            .envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .env("TERM", "dumb");
        let mut run = feed(&mut command, input);
        run.stdout = run.stdout.replace('\r', "");
        run
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

fn feed(command: &mut Command, input: &str) -> Run {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Whoever does not read it has closed it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    Run::of(child.wait_with_output().unwrap())
}

fn names(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn relative_path_on_hosts_is_refused() {
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
        &["rm", "-rf", "@all:d"],
        &["write", "--data", "x", "n1:d/a"],
        &["chmod", "0", "@all:d/a"],
        &["ln", "d/a", "@all:/d/c"],
        &["cp", "local", "@all:d/"],
        &["cp", "n1:d/a", "."],
    ]
    .iter()
    .map(|args| hosts.refuses(args))
    .collect();
    insta::assert_snapshot!(told);
}

#[test]
fn refusals_never_suggest_changing_all_files() {
    let hosts = Hosts::new();
    let told: String = [
        &["rm", "--dry-run", "-rf", "@all:"][..],
        &["rm", "-r", "n1:"],
        &["rm", "-r", "n1:.."],
        &["rm", "-r", ":"],
        &["rm", "-r", "."],
        &["rm", "-r", "/"],
        &["chmod", "-R", "0", "/."],
        &["mkdir", "n1:"],
        &["cp", "/dev/null", "@all:"],
    ]
    .iter()
    .map(|args| hosts.refuses(args))
    .collect();
    assert!(!told.contains("write "), "{told}");
    insta::assert_snapshot!(told);
}

#[test]
fn hosts_without_a_path_are_no_path() {
    let hosts = Hosts::new();
    let told: String = [
        &["cat", "n3", "n4:/d/a"][..],
        &["rm", "n1", "/d/a"],
        &["rm", "n[1-2]/d/a"],
        &["ls", "n[1-4/2]"],
        &["ls", "@all"],
        &["cat", "n5"],
        &["cat", "n1.d/a"],
    ]
    .iter()
    .map(|args| hosts.refuses(args))
    .collect();
    insta::assert_snapshot!(told);
}

#[test]
fn unknown_user_or_group_on_a_host_is_named() {
    let hosts = Hosts::new();
    for (owner, said) in [
        ("nosuchuser", "no user nosuchuser on this host"),
        (":nosuchgroup", "no group nosuchgroup on this host"),
        ("nosuchuser:nosuchgroup", "no user nosuchuser or no group nosuchgroup on this host"),
    ] {
        let run = hosts.run(&["chown", owner, "n1:/d/a"]);
        assert_eq!(run.code, Some(4), "{run:?}");
        assert!(run.stderr.contains(&format!("Invalid argument (EINVAL): {said}")), "{run:?}");
    }
}

#[test]
fn changing_commands_require_explicit_hosts() {
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
    for (dir, hosts_said) in [("y", "@all:"), ("z", "n[1-4]:")] {
        let run = hosts.run(&["mkdir", &format!("{hosts_said}/{dir}")]);
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    assert_eq!(hosts.names(4, ""), ["d", "y", "z"]);
}

/// An unset variable in `"$HOSTS:/path"` leaves a bare colon.
#[test]
fn bare_colon_is_refused_where_files_are_changed() {
    let hosts = Hosts::new();
    hosts.home.write("local", "x");
    for args in [
        &["rm", "-rf", ":/d"][..],
        &["rm", "-rf", "n1:/d/a", ":/d"],
        &["-w", "n1", "--launch", "embedded", "rm", "-rf", ":/d"],
        &["rm", "--dry-run", ":/d/a"],
        &["write", "--data", "x", ":/d/a"],
        &["chmod", "0", ":/d/a"],
        &["chown", "1", ":/d/a"],
        &["truncate", "-s", "0", ":/d/a"],
        &["mkdir", ":/d/c"],
        &["ln", "-s", "a", ":/d/c"],
        &["cp", "local", ":/d/a"],
        &["cp", "-", ":/d/a"],
    ] {
        let export = hosts.home.path().join("%h");
        let global = ["--embedded", "4", "--export", export.to_str().unwrap()];
        let global = if args[0] == "-w" { &global[2..] } else { &global[..] };
        let run = hosts.home.run(&[global, args].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}: {run:?}");
        let told = "changes files, and an unset variable leaves a bare colon: write @all:/d";
        assert!(run.stderr.contains(told), "{args:?}: {run:?}");
        assert!(hosts.are_untouched(), "{args:?}");
    }
    let told = hosts.refuses(&["rm", "-rf", ":/d"]);
    assert_eq!(
        told,
        "sheaf: :/d: rm changes files, and an unset variable leaves a bare colon: write @all:/d for \
         all of n[1-4], or HOSTSET:/d\n"
    );
    // Only white space or commas are no hosts either.
    for address in [" :/d", ",:/d", "@none:/d"] {
        hosts.refuses(&["rm", "-rf", address]);
    }
    // Reading is harmless; and this machine alone is meant by its path.
    assert_eq!(hosts.run(&["cat", ":/d/a"]).code, Some(0));
    let file = hosts.home.path().join("local");
    let run = hosts.home.run(&["rm", &format!(":{}", file.display())]);
    let told = format!("write {} alone for this machine\n", file.display());
    assert!(run.code == Some(2) && run.stderr.ends_with(&told) && file.exists(), "{run:?}");
}

#[test]
fn recursive_changes_of_the_root_need_an_option() {
    let hosts = Hosts::new();
    for host in ["n1", "n2", "n3", "n4"] {
        std::os::unix::fs::symlink("/", hosts.home.path().join(host).join("d/up")).unwrap();
    }
    let own = rustix::process::geteuid().as_raw().to_string();
    for command in [&["chmod", "-R", "u+x"][..], &["chown", "-R", &own]] {
        let told = hosts.run(&[command, &["@all:/"]].concat());
        let text =
            "/: this is everything a host serves, and is changed with --no-preserve-root only";
        assert_eq!((told.code, told.stderr), (Some(2), format!("sheaf: {text}\n")));
        for path in ["/*", "/d/..", "/*/*", "/d/up/."] {
            let run = hosts.run(&[command, &[&format!("@all:{path}")]].concat());
            assert_eq!((run.code, run.stdout.as_str()), (Some(4), ""), "{run:?}");
            assert_eq!(
                run.stderr.lines().nth(1).unwrap(),
                format!(
                    "n[1-4]:{path}: Device or resource busy (EBUSY): all that a host serves is changed with \
                     --no-preserve-root only, 4 of 4 members"
                )
            );
        }
        let run = hosts.run(&[command, &["--no-preserve-root", "@all:/"]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        let run = hosts.run(&[command, &["@all:/d"]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    // `chmod -R` follows a link where it begins, `chown -R` does not.
    assert_eq!(hosts.run(&["chmod", "-R", "u+x", "@all:/d/up"]).code, Some(4));
    assert_eq!(hosts.run(&["chown", "-R", &own, "@all:/d/up"]).code, Some(0));
    assert_eq!(hosts.run(&["chmod", "u+x", "@all:/"]).code, Some(0));
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
    assert_eq!(run(&["cat", "../a1b/d/f"]), "another\n");
    assert!(run(&["ls", "."]).trim_end().ends_with("a[1]{b,c}*/d"));
    run(&["mkdir", "e"]);
    run(&["truncate", "-s", "2", "e/g"]);
    run(&["chmod", "600", "e/g", "d/f"]);
    run(&["ln", "d/f", "e/same"]);
    run(&["ln", "-s", "same", "e/link"]);
    run(&["write", "--data", "one\n", "--create", "e/copied"]);
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
}

/// A session may be meant that nobody here sees any more, or yet.
#[test]
fn hosts_that_nothing_names_are_not_this_machine() {
    let home = Home::new();
    let file = home.write("file", "x\n");
    let path = file.display();
    let here = rustix::system::uname().nodename().to_str().unwrap().to_owned();
    for hosts in ["@all", "", "@all,@all", &here] {
        let address = format!("{hosts}:{path}");
        for (args, changes) in [
            (&["cat"][..], ""),
            (&["grep", "x"], ""),
            (&["read", "-a", "count"], ""),
            (&["rm", "-y"], "rm changes files, and "),
            (&["truncate", "-s", "0"], "truncate changes files, and "),
            (&["write", "--data", "y"], "write changes files, and "),
            (&["cp", "/etc/passwd"], "cp changes files, and "),
        ] {
            let run = home.run(&[args, &[&address]].concat());
            let told = format!(
                "sheaf: {address}: {changes}nothing says which hosts there are: name them with -w HOSTS, a \
                 session with --session NAME, or write {path} alone for this machine\n"
            );
            assert_eq!(
                (run.code, run.stdout.as_str(), run.stderr),
                (Some(2), "", told),
                "{args:?}"
            );
        }
    }
    assert_eq!(home.run(&["cat", &path.to_string()]).stdout, "x\n");
    assert_eq!(home.run(&["--embedded", "1", "cat", &format!("@all:{path}")]).stdout, "x\n");
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

#[test]
fn terminal_is_asked_before_files_of_several_hosts_go() {
    if !std::path::Path::new("/usr/bin/script").exists() {
        sheaf_testing::skipped("a terminal is made by script (Debian package bsdutils)");
        return;
    }
    let question = |what: &str| {
        format!("sheaf: {what}:\n  n[1-4]:/d/a\n  n[2-3]:/d/b*\nGo on, on 4 hosts? [y/N] ")
    };
    let addresses = ["@all:/d/a", "n[2-3]:/d/b*"];
    for (what, command) in [
        ("rm", &["rm"][..]),
        ("rm -r", &["rm", "-rf"]),
        ("truncate", &["truncate", "-s", "0"]),
        ("chmod -R", &["chmod", "-R", "0"]),
        ("chown -R", &["chown", "-R", "0"]),
    ] {
        let hosts = Hosts::new();
        for refusal in ["n\n", "\n", "", "yeah\n"] {
            let run = hosts.typed(refusal, &[command, &addresses].concat());
            assert_eq!(run.code, Some(1), "{what}: {run:?}");
            assert!(run.stdout.contains(&question(what)), "{what}: {run:?}");
            assert!(run.stdout.ends_with("sheaf: nothing was changed\n"), "{what}: {run:?}");
            assert!(hosts.are_untouched(), "{what}");
            assert_eq!(std::fs::read_to_string(hosts.home.path().join("n2/d/a")).unwrap(), "a\n");
        }
    }
    // What is printed may be kept in a file: who types is asked all the same.
    for redirection in ["2>log", ">log"] {
        let hosts = Hosts::new();
        let run = hosts.typed_with("n\n", &["rm", "-v", addresses[0], addresses[1]], redirection);
        assert!(run.stdout.contains(&question("rm")), "{redirection}: {run:?}");
        assert!(run.code == Some(1) && hosts.are_untouched(), "{redirection}: {run:?}");
    }
    let hosts = Hosts::new();
    let run = hosts.typed("yes\n", &["rm", "@all:/d/a"]);
    assert!(run.code == Some(0) && run.stdout.ends_with("removed on n[1-4]: 4 files\n"), "{run:?}");
    // These are not asked about: answered already, one host, one file each, a dry run.
    for args in [
        &["rm", "-y", "@all:/d/b"][..],
        &["rm", "-i", "-y", "n1:/d"],
        &["rm", "-r", "n1:/d"],
        &["chmod", "0755", "@all:/d"],
        &["rm", "-r", "--dry-run", "@all:/d"],
        &["mkdir", "@all:/new"],
    ] {
        let run = hosts.typed("", args);
        assert!(!run.stdout.contains("[y/N]"), "{args:?}: {run:?}");
    }
    assert_eq!((hosts.names(1, ""), hosts.names(2, "d").len()), (vec!["new".to_owned()], 0));
    // Standard input is what is written: the terminal answers.
    let run = hosts.typed("y\n", &["write", "-i", "--create", "--data", "x", "@all:/new/file"]);
    assert!(
        run.code == Some(0) && run.stdout.contains("sheaf: write:\n  n[1-4]:/new/file\n"),
        "{run:?}"
    );
    assert_eq!(hosts.names(4, "new"), ["file"]);
}

#[test]
fn without_a_terminal_only_the_option_asks() {
    let hosts = Hosts::new();
    let run = hosts.fed("n\n", &["rm", "-i", "@all:/d/a"]);
    assert_eq!((run.code, hosts.are_untouched()), (Some(1), true));
    insta::assert_snapshot!(run.stderr, @"
    sheaf: rm:
      n[1-4]:/d/a
    Go on, on 4 hosts? [y/N] sheaf: nothing was changed
    ");
    let run = hosts.fed("", &["rm", "-i", "@all:/d/a"]);
    assert!(
        run.stderr.ends_with("Go on, on 4 hosts? [y/N] \nsheaf: nothing was changed\n"),
        "{run:?}"
    );
    for command in [&["chmod", "0"][..], &["chown", "0"], &["truncate", "-s0"], &["ln", "-sf", "b"]]
    {
        let run = hosts.fed("", &[command, &["-i", "@all:/d/a"]].concat());
        assert_eq!((run.code, hosts.are_untouched()), (Some(1), true), "{command:?}: {run:?}");
    }
    let run = hosts.fed("y\n", &["mkdir", "-i", "@all:/c"]);
    assert!(run.code == Some(0) && hosts.names(3, "") == ["c", "d"], "{run:?}");
    let run = hosts.fed("", &["rm", "-r", "@all:/c"]);
    assert_eq!(
        (run.code, run.stderr.as_str()),
        (Some(0), "removed on n[1-4]: 4 files and directories\n")
    );
    let run = hosts.fed("y\n", &["write", "-i", "n1:/d/a"]);
    assert!(run.code != Some(0) && hosts.are_untouched(), "there is no terminal to ask: {run:?}");
}

#[test]
fn dry_run_says_on_how_many_hosts_and_changes_nothing() {
    let hosts = Hosts::new();
    std::fs::remove_file(hosts.home.path().join("n3/d/b")).unwrap();
    let run = hosts.run(&["rm", "--dry-run", "@all:/d/{a,b}"]);
    assert_eq!(run.code, Some(4));
    assert_eq!(run.stdout, "n[1-4]:/d/a: would be removed\nn[1-2,4]:/d/b: would be removed\n");
    insta::assert_snapshot!(run.stderr, @"
    would be removed on n[1-4]: 7 files
    n3:/d/b: No such file or directory (ENOENT), 1 of 8 members
    sheaf: 7 of 8 members succeeded, 1 failed
    ");
    assert_eq!((hosts.names(1, "d").len(), hosts.names(3, "d").len()), (2, 1));
    for (command, said) in [
        (["chmod", "600"], "the mode would be set on n[1-2]: 2 files\n"),
        (["chown", "0"], "the owner would be set on n[1-2]: 2 files\n"),
        (["truncate", "--size=0"], "the size would be set on n[1-2]: 2 files\n"),
    ] {
        let run = hosts.run(&[&command[..], &["--dry-run", "n[1-2]:/d/a"]].concat());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), said), "{run:?}");
    }
    let run = hosts.run(&["--json", "write", "--dry-run", "@all:/d/a"]);
    let summary: serde_json::Value =
        serde_json::from_str(run.stdout.lines().last().unwrap()).unwrap();
    let changed = serde_json::json!(
        { "done": "written", "hosts": "n[1-4]", "count": 4, "files": 4, "dry_run": true, "complete": true }
    );
    assert_eq!(summary["changed"], changed, "{run:?}");
}

#[test]
fn all_that_a_host_serves_stays_unless_that_is_asked_for() {
    let hosts = Hosts::new();
    let told = hosts.refuses(&["rm", "-rf", "@all:/"]);
    assert_eq!(
        told,
        "sheaf: /: this is everything a host serves, and is removed with --no-preserve-root only\n"
    );
    for path in ["/*", "/d/..", "/d/../*", "/**", "/*/*"] {
        let run = hosts.run(&["rm", "-rf", &format!("@all:{path}")]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(4), ""), "{run:?}");
        assert_eq!(
            run.stderr.lines().nth(1).unwrap(),
            format!(
                "n[1-4]:{path}: Device or resource busy (EBUSY): all that a host serves, and mount points, \
                 are removed with --no-preserve-root only, 4 of 4 members"
            )
        );
        assert!(hosts.are_untouched(), "{path}");
    }
    let run = hosts.run(&["rm", "-rf", "--no-preserve-root", "n[1-2]:/d/..", "n3:/*"]);
    assert_eq!(
        (run.code, run.stderr.as_str()),
        (Some(0), "removed on n[1-3]: 9 files and directories\n")
    );
    assert_eq!([1, 2, 3, 4].map(|host| hosts.names(host, "").len()), [0, 0, 0, 1]);
}

/// Runs a script where things can be mounted, with `run` for a command on the hosts; nothing, with
/// a word, where they cannot: the script exits with 99 then.
fn with_mounts(hosts: &Hosts, script: &str) -> Option<Run> {
    let (program, global) = (env!("CARGO_BIN_EXE_sheaf"), hosts.global().join(" "));
    let script = format!("run() {{ {program} {global} \"$@\" 2>&1; echo $?; }}\n{script}");
    let own = hosts.home.command(&[]);
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--map-root-user", "sh", "-c", &script])
        .current_dir(hosts.home.path());
    command.env_clear().envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let run = Run::of(command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().unwrap());
    if run.code == Some(99) || run.stderr.starts_with("unshare") {
        sheaf_testing::skipped("nothing can be mounted here");
        return None;
    }
    Some(run)
}

#[test]
fn dry_run_sees_that_a_file_is_a_mount_point() {
    let hosts = Hosts::new();
    let script =
        "mount --bind n2/d/a n1/d/a || exit 99\nrun rm -rf --dry-run n1:/d; run rm -rf n1:/d";
    let Some(run) = with_mounts(&hosts, script) else { return };
    let busy = "n1:/d/a: Device or resource busy (EBUSY)";
    assert_eq!(run.stdout.matches(busy).count(), 2, "{run:?}");
    assert!(run.stdout.contains("would be removed on n1: 1 file or directory\n"), "{run:?}");
    assert!(run.stdout.contains("\nremoved on n1: 1 file or directory\n"), "{run:?}");
    assert_eq!(run.stdout.lines().filter(|line| *line == "4").count(), 2, "{run:?}");
}

#[test]
fn write_that_fails_midway_says_what_it_wrote() {
    let hosts = Hosts::new();
    std::fs::create_dir(hosts.home.path().join("n1/full")).unwrap();
    std::fs::create_dir(hosts.home.path().join("n2/full")).unwrap();
    hosts.home.write("n2/full/a", "old\n");
    let script = "mount -t tmpfs -o size=1m none n1/full || exit 99\n\
                  echo old > n1/full/a; head -c 5242880 /dev/zero > big\n\
                  run write --append n1:/full/a < big; wc -c < n1/full/a; echo old > n1/full/a\n\
                  run write --in-place 'n[1-2]:/full/a' < big; wc -c < n1/full/a; echo old > n1/full/a\n\
                  run --json write --append n1:/full/a < big; cat n1/full/a; echo old > n1/full/a\n\
                  run write n1:/full/a < big; cat n1/full/a; rm n1/full/a\n\
                  run write --excl 'n[1-2]:/full/new' < big; ls n1/full n2/full";
    let Some(run) = with_mounts(&hosts, script) else { return };
    let failed = "n1:/full/a: No space left on device (ENOSPC)";
    for wanted in [
        &format!(
            "written in part on n1: 1 file\n{failed}: 1048572 of 5242880 bytes were written, 1 of 1 members\n"
        ),
        "\n4\n1048576\n",
        &format!(
            "written on n2: 1 file, in part on n1: 1 file\n{failed}: 1048576 of 5242880 bytes were written; the old content is gone, 1 of 2 members\n"
        ),
        "\"in_part\":{\"count\":1,\"files\":1,\"hosts\":\"n1\"}",
        // A file that is replaced whole is as it was.
        &format!(
            "written: nothing\n{failed}, 1 of 1 members\nsheaf: 0 of 1 members succeeded, 1 failed\n4\nold\n"
        ),
        // Of new ones that all are to have none is left.
        "written: nothing\nn1:/full/new: No space left on device (ENOSPC), 1 of 2 members\n\
         n2:/full/new: Operation canceled (ECANCELED): --excl writes all files or none, 1 of 2 members\n\
         sheaf: 0 of 2 members succeeded, 2 failed\n4\nn1/full:\n\nn2/full:\na\n",
    ] {
        assert!(run.stdout.contains(wanted), "{wanted:?}: {}", run.stdout.replace('\0', ""));
    }
}

#[test]
fn write_of_too_many_files_says_what_helps() {
    let hosts = Hosts::new();
    for file in 0..300 {
        hosts.home.write(&format!("n1/many/{file}"), "old");
    }
    let script = "ulimit -n 200; run write --data new 'n1:/many/*'";
    let Some(run) = with_mounts(&hosts, script) else { return };
    assert!(
        run.stdout.contains("(EMFILE): all files of a write are open at once: raise ulimit -n"),
        "{run:?}"
    );
}

#[test]
fn mount_points_stay_unless_that_is_asked_for() {
    let hosts = Hosts::new();
    hosts.home.write("elsewhere/precious", "x");
    std::fs::create_dir_all(hosts.home.path().join("n1/d/below/mounted")).unwrap();
    let words: Vec<String> = hosts.global();
    // On the same file system, so that no device tells.
    let script = format!(
        "mount --bind elsewhere n1/d/below/mounted || exit 99\n\
         run() {{ {} {} \"$@\" 2>&1; echo $?; }}\n\
         run rm -rf n1:/d/below/mounted; run rm -rf n1:/d; run rm -rf n1:/d/below/mounted/precious\n\
         echo new > elsewhere/precious; run --quiet rm -rf --no-preserve-root n1:/d/below/mounted; ls elsewhere",
        env!("CARGO_BIN_EXE_sheaf"),
        words.join(" ")
    );
    let own = hosts.home.command(&[]);
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--map-root-user", "sh", "-c", &script])
        .current_dir(hosts.home.path())
        .env_clear();
    command
        .envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let run = Run::of(command.output().unwrap());
    if run.code == Some(99) || run.stderr.starts_with("unshare") {
        sheaf_testing::skipped("nothing can be mounted here");
        return;
    }
    let busy = "Device or resource busy (EBUSY): all that a host serves, and mount points, are removed with --no-preserve-root only";
    assert_eq!(
        run.stdout,
        format!(
            "removed: nothing\nn1:/d/below/mounted: {busy}, 1 of 1 members\nsheaf: 0 of 1 members succeeded, 1 failed\n4\n\
             removed on n1: 2 files and directories\nn1:/d/below/mounted: {busy}, 1 of 1 members\nsheaf: 0 of 1 members succeeded, 1 failed\n4\n\
             removed on n1: 1 file or directory\n0\n4\n"
        ),
        "{run:?}"
    );
}

#[test]
fn file_is_replaced_whole_and_never_made_unasked() {
    let hosts = Hosts::new();
    let file = hosts.home.path().join("n1/d/a");
    let before = std::fs::metadata(&file).unwrap().ino();
    let run = hosts.fed("new", &["write", "-v", "@all:/d/a"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "n[1-4]:/d/a: replaced with 3 bytes\n"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
    assert_ne!(std::fs::metadata(&file).unwrap().ino(), before);
    assert_eq!(hosts.names(1, "d"), ["a", "b"]);
    let run = hosts.fed("x", &["write", "n[1-2]:/d/none"]);
    assert_eq!(run.code, Some(4));
    insta::assert_snapshot!(run.stderr, @"
    written: nothing
    n[1-2]:/d/none: No such file or directory (ENOENT): --create makes it, 2 of 2 members
    sheaf: 0 of 2 members succeeded, 2 failed
    ");
    let run = hosts.fed("x", &["write", "-v", "--excl", "n[1-2]:/d/none"]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (Some(0), "n[1-2]:/d/none: created with 1 bytes\n")
    );
    let run = hosts.fed("x", &["write", "-v", "--excl", "@all:/d/none"]);
    assert_eq!((run.code, run.stdout.as_str(), hosts.names(4, "d").len()), (Some(4), "", 2));
    let run = hosts.fed("1", &["write", "--offset", "1", "n1:/d/a"]);
    assert_eq!((run.code, std::fs::read_to_string(&file).unwrap().as_str()), (Some(0), "n1w"));
}

/// Options that look like modes, and the other way round.
#[test]
fn modes_and_files_to_take_them_from() {
    let hosts = Hosts::new();
    let mode = || std::fs::metadata(hosts.home.path().join("n4/d/a")).unwrap().mode() & 0o7777;
    for (args, wanted) in [
        (&["chmod", "0751", "@all:/d/a"][..], 0o751),
        (&["chmod", "-x", "@all:/d/a"], 0o640),
        (&["chmod", "-R", "u+x,g-r", "@all:/d/a"], 0o700),
        (&["chmod", "--reference", "/d/b", "@all:/d/a"], 0o644),
    ] {
        let run = hosts.run(args);
        assert_eq!((run.code, mode()), (Some(0), wanted), "{args:?}: {run:?}");
    }
    let run = hosts.run(&["chmod", "--reference", "d/b", "@all:/d/a"]);
    assert_eq!(
        (run.code, run.stderr.as_str()),
        (Some(2), "sheaf: d/b: a path on hosts begins with a slash: write /d/b\n")
    );
    let run = hosts.run(&["truncate", "-r", "/d/b", "-s", "+3", "@all:/d/a"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(std::fs::metadata(hosts.home.path().join("n1/d/a")).unwrap().len(), 5);
    assert_eq!(hosts.run(&["chmod", "0644"]).code, Some(2));
}

#[test]
fn writes_of_all_or_none_name_all() {
    let hosts = Hosts::new();
    hosts.home.write("n3/lock", "theirs");
    for (dry, done) in
        [(&["--dry-run"][..], "would be written: nothing"), (&[], "written: nothing")]
    {
        let args = [&["write", "--excl", "--data", "mine"], dry, &["@all:/lock"]].concat();
        let run = hosts.run(&args);
        let told = [
            done,
            "n[1-2,4]:/lock: Operation canceled (ECANCELED): --excl writes all files or none, 3 of 4 members",
            "n3:/lock: File exists (EEXIST), 1 of 4 members",
            "sheaf: 0 of 4 members succeeded, 4 failed",
        ];
        assert_eq!(run.stderr.lines().collect::<Vec<_>>(), told, "{run:?}");
        assert_eq!((run.stdout.as_str(), run.code), ("", Some(4)));
    }
    let there = (1..=4).filter(|host| hosts.home.path().join(format!("n{host}/lock")).exists());
    assert_eq!(there.collect::<Vec<_>>(), [3]);
}

#[test]
fn all_directories_on_the_way_are_told_and_counted() {
    let hosts = Hosts::new();
    let run = hosts.run(&["mkdir", "-pv", "@all:/z/y", "@all:/d/new/x"]);
    let told = ["/z", "/z/y", "/d/new", "/d/new/x"]
        .map(|path| format!("n[1-4]:{path}: created directory\n"));
    assert_eq!((run.stdout.as_str(), run.code), (told.concat().as_str(), Some(0)), "{run:?}");
    assert_eq!(run.errors(), "made on n[1-4]: 16 directories\n");
}
