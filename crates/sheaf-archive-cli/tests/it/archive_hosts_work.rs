//! `sheaf archive find`, `grep`, `ls`, `du`, `chmod`, `cp` and `rm` of files on hosts.
use rustix::process::Signal;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{Up, of_home, turn, wait_until};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};

/// Three hosts with a tree each, of which the last has another one.
fn hosts() -> (Home, String) {
    let home = Home::new();
    for host in ["n1", "n2", "n3"] {
        let tree = home.path().join(format!("export/{host}/data/tree"));
        fs::create_dir_all(tree.join("sub/.deep")).unwrap();
        for number in 0..40 {
            let text = format!("foo {number} of {host}\nbar\n\nFoo bar {}\n", number % 3);
            fs::write(tree.join(format!("sub/{number}.c")), text).unwrap();
        }
        fs::write(tree.join("sub/.deep/large"), "nothing\n".repeat(300_000) + "foo").unwrap();
        fs::write(tree.join("binary"), b"foo\0bar\n").unwrap();
        fs::write(tree.join("a\nb"), "foo\n").unwrap();
        symlink("sub", tree.join("link")).unwrap();
        symlink("/etc", tree.join("out")).unwrap();
    }
    fs::rename(home.path().join("export/n3/data/tree"), home.path().join("export/n3/data/other"))
        .unwrap();
    let export = home.path().join("export/%h").to_str().unwrap().to_owned();
    (home, export)
}

/// Parts of what is printed, in an order of their own.
fn sorted(text: &[u8], end: u8) -> Vec<String> {
    let parts = text.split(|byte| *byte == end).filter(|part| !part.is_empty());
    let mut parts: Vec<_> = parts.map(|part| part.escape_ascii().to_string()).collect();
    parts.sort_unstable();
    parts
}

/// What a program says of the trees of two hosts, with the host's name before each path.
fn gnu(home: &Home, program: &str, args: &[&str], end: u8) -> Vec<String> {
    let mut all = Vec::new();
    for host in ["n1", "n2"] {
        let mut command = Command::new(program);
        let directory = home.path().join(format!("export/{host}"));
        let run = command.args(args).env("LC_ALL", "C").current_dir(directory).output().unwrap();
        for part in run.stdout.split(|byte| *byte == end).filter(|part| !part.is_empty()) {
            let mut part = part.escape_ascii().to_string();
            if part.starts_with("data") {
                part = format!("{host}:/{part}");
            }
            all.push(part);
        }
    }
    all.sort_unstable();
    all
}

fn ours(home: &Home, session: &[&str], args: &[&str]) -> std::process::Output {
    let mut command = home.command(&[session, &["archive"], args].concat());
    command.env("LC_ALL", "C").output().unwrap()
}

#[test]
fn files_of_hosts_are_found_as_by_find() {
    let (home, export) = hosts();
    for session in [["--processes", "2"], ["--embedded", "2"]] {
        let session = [&session[..], &["--export", &export]].concat();
        for args in [
            &["data/tree"][..],
            &["data/tree", "-name", "*.c", "-size", "-2"],
            &["data/tree", "-type", "l"],
            &["data/tree/sub", "data/tree/binary", "-maxdepth", "1", "-newer", "data/tree/binary"],
            &["data/tree/link"],
            &["data", "-maxdepth", "0"],
        ] {
            let names = args.iter().take_while(|arg| !arg.starts_with('-'));
            let names = names.map(|name| format!("@all:/{name}")).collect::<Vec<_>>();
            let tests = args[names.len()..].iter().map(|test| match *test {
                "data/tree/binary" => "/data/tree/binary",
                test => test,
            });
            let names = names.iter().map(String::as_str);
            let own: Vec<&str> = ["find"].into_iter().chain(names).chain(tests).collect();
            let run = ours(&home, &session, &[&own[..], &["-print0"]].concat());
            assert!(run.status.success() && run.stderr.is_empty(), "{own:?} {run:?}");
            let theirs = gnu(&home, "find", &[args, &["-print0"]].concat(), 0);
            assert_eq!(sorted(&run.stdout, 0), theirs, "{own:?}");
        }
        let tests = ["-name", "*.c", "-size", "-2", "-print0", "-o", "-type", "d"];
        let run = ours(&home, &session, &[&["find", "@all:/data/tree"], &tests[..]].concat());
        let theirs = gnu(&home, "find", &[&["data/tree"], &tests[..]].concat(), 0);
        assert_eq!(sorted(&run.stdout, 0), theirs, "{run:?}");
    }
}

#[test]
fn lines_of_hosts_are_those_of_grep() {
    let (home, export) = hosts();
    let session = ["--processes", "2", "--export", &export];
    for args in [
        &["foo"][..],
        &["-n", "^foo [0-9]*"],
        &["-c", "foo"],
        &["-l", "foo"],
        &["-L", "foo"],
        &["-iw", "FOO"],
        &["-vn", "nothing"],
        &["-F", "bar"],
        &["-E", "foo|bar"],
        &["-h", "foo"],
        &["--include", "*.c", "-o", "bar"],
        &["-lZ", "foo"],
    ] {
        let run = ours(&home, &session, &[&["grep"], args, &["@all:/data/tree"]].concat());
        let end = if args.contains(&"-lZ") { 0 } else { b'\n' };
        let theirs = gnu(&home, "grep", &[&["-r"], args, &["data/tree"]].concat(), end);
        let ends = |lines: Vec<String>| -> Vec<String> {
            // The second line of a name is no beginning.
            lines.into_iter().map(|line| line.replace("n1:/b:", "b:")).collect()
        };
        assert_eq!(ends(sorted(&run.stdout, end)), theirs, "{args:?}");
        assert_eq!(run.status.code(), Some(0), "{args:?} {run:?}");
    }
    let run = ours(&home, &session, &["grep", "foo", "@all:/data/tree"]);
    let binary = |host: &str| format!("sheaf: {host}: /data/tree/binary: binary file matches\n");
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    // What both say within a moment is one line.
    let is_said = |host: &str| said.contains(&binary(host));
    assert!(is_said("n[1-2]") || (is_said("n1") && is_said("n2")), "{said}");
    let none = ours(&home, &session, &["grep", "is nowhere", "@all:/data/tree"]);
    assert_eq!((none.status.code(), &none.stdout[..]), (Some(1), &b""[..]));
    let quiet = ours(&home, &session, &["grep", "-q", "foo", "@all:/data/tree", "@all:/none"]);
    assert_eq!((quiet.status.code(), &quiet.stdout[..]), (Some(0), &b""[..]), "{quiet:?}");
    // What is named by a link is within what the host serves, or is nothing.
    let out = ours(&home, &session, &["grep", "-c", "root", "@all:/data/tree/out/passwd"]);
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    assert!(out.stdout.is_empty(), "{out:?}");
}

#[test]
fn missing_path_on_one_host_is_reported_and_others_answer() {
    let (home, export) = hosts();
    let session = ["--processes", "3", "--export", &export];
    let run = |args: &[&str]| home.run(&[&session[..], &["archive"], args].concat());
    let find = run(&["find", "@all:/data/tree", "-name", "7.c"]);
    assert_eq!(find.code, Some(4), "{find:?}");
    assert_eq!(find.stderr, "sheaf: n3: /data/tree: No such file or directory (ENOENT)\n");
    assert_eq!(
        sorted(find.stdout.as_bytes(), b'\n'),
        ["n1:/data/tree/sub/7.c", "n2:/data/tree/sub/7.c"]
    );
    let grep = run(&["grep", "foo 7 ", "@all:/data/tree"]);
    assert_eq!(grep.code, Some(2), "{grep:?}");
    let lacks = "sheaf: n3: /data/tree: cannot be read: No such file or directory (ENOENT)\n";
    assert_eq!(grep.stderr, lacks);
    assert_eq!(
        sorted(grep.stdout.as_bytes(), b'\n'),
        ["n1:/data/tree/sub/7.c:foo 7 of n1", "n2:/data/tree/sub/7.c:foo 7 of n2"]
    );
    for command in [&["ls"][..], &["du", "-s"], &["chmod", "-R", "go-w"], &["rm", "-r"]] {
        let run = run(&[command, &["@all:/data/tree"]].concat());
        assert_eq!(run.code, Some(4), "{command:?} {run:?}");
        assert!(run.stderr.contains("n3"), "{command:?} {run:?}");
    }
    assert!(!home.path().join("export/n1/data/tree").exists());
    assert!(home.path().join("export/n3/data/other/sub/7.c").exists());
    let records = run(&["--json", "find", "@all:/data/other", "-name", "[78].c"]);
    let hosts: Vec<_> = records
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|record| format!("{} {}", record["host"], record["path"]))
        .collect();
    let expected = ["7", "8"].map(|name| format!("\"n3\" \"/data/other/sub/{name}.c\""));
    assert_eq!(hosts, expected, "{records:?}");
}

#[test]
fn hosts_list_sum_up_change_and_remove_as_without_archive() {
    let (home, export) = hosts();
    let session = ["--processes", "2", "--export", &export];
    let run = |args: &[&str]| -> Run { home.run(&[&session[..], args].concat()) };
    for args in [
        &["ls", "-lR"][..],
        &["ls", "-Ahn"],
        &["ls", "-d"],
        &["du"],
        &["du", "-ad1", "-b"],
        &["du", "-sch"],
    ] {
        let address = ["@all:/data/tree/sub"];
        let own = run(&[&["archive"], args, &address].concat());
        let one_by_one = if args[0] == "ls" { &["-1"][..] } else { &[] };
        let other = run(&[&args[..1], one_by_one, &args[1..], &address].concat());
        assert_eq!(own.code, Some(0), "{own:?}");
        assert_eq!((&own.stdout, &own.stderr), (&other.stdout, &other.stderr), "{args:?}");
        assert!(!own.stdout.is_empty());
    }
    let mode = |host: &str| {
        let file = home.path().join(format!("export/{host}/data/tree/sub/7.c"));
        fs::metadata(file).unwrap().permissions().mode() & 0o777
    };
    let chmod = run(&["archive", "chmod", "-R", "u=rwX,go=", "n2:/data/tree/sub"]);
    assert_eq!(chmod.code, Some(0), "{chmod:?}");
    assert_eq!((mode("n1"), mode("n2")), (0o644, 0o600));
    let dry = run(&["archive", "chmod", "--dry-run", "-R", "777", "@all:/data/tree/sub"]);
    assert_eq!((dry.code, mode("n1")), (Some(0), 0o644), "{dry:?}");
    let removed = run(&["archive", "rm", "-r", "n1:/data/tree"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert!(!home.path().join("export/n1/data/tree").exists());
    assert!(home.path().join("export/n2/data/tree").exists());
    let mixed = run(&["archive", "ls", "n1:/data", "data"]);
    assert_eq!(mixed.code, Some(2), "{mixed:?}");
}

#[test]
fn patterns_are_those_of_each_host() {
    let (home, export) = hosts();
    let session = ["--processes", "3", "--export", &export];
    let run = |args: &[&str]| home.run(&[&session[..], &["archive"], args].concat());
    let shell = |hosts: &[&str], command: &str| {
        let mut all = Vec::new();
        for host in hosts {
            let mut shell = Command::new("sh");
            let directory = home.path().join(format!("export/{host}"));
            let run = shell.args(["-c", command]).current_dir(directory).output().unwrap();
            let text = String::from_utf8(run.stdout).unwrap();
            all.extend(text.lines().map(|line| format!("{host}:/{line}")));
        }
        all.sort_unstable();
        all
    };
    let lines = |run: &Run| -> Vec<String> {
        let mut lines: Vec<_> = run.stdout.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let all = &["n1", "n2", "n3"];
    let found = run(&["find", "@all:/data/*/sub/[12]*.c", "@all:/data/*/link", "-name", "*[k3].c"]);
    assert_eq!(found.code, Some(0), "{found:?}");
    assert_eq!(lines(&found), shell(all, "find data/*/sub/[12]*.c data/*/link -name '*[k3].c'"));
    let found = run(&["grep", "-c", "o 1", "@all:/data/{tree,other}*/sub/1?.c"]);
    assert_eq!(lines(&found), shell(all, "grep -c 'o 1' data/tree*/sub/1?.c data/other*/sub/1?.c"));
    // More than are open at once.
    let found = run(&[
        "grep",
        "-rl",
        "foo",
        "@all:/data/**/*.c",
        "@all:/data/**/*.c",
        "@all:/data/**/*.c",
        "@all:/data/**/*.c",
    ]);
    assert_eq!((found.code, found.stdout.lines().count()), (Some(0), 4 * 3 * 40), "{found:?}");
    let found = run(&["grep", "-q", "foo", "@all:/data/**/*.c"]);
    assert_eq!((found.code, found.stdout.as_str()), (Some(0), ""), "{found:?}");

    // Where nothing fits, that host has failed, by name.
    let lacks = run(&["find", "@all:/data/tr*", "-maxdepth", "0"]);
    assert_eq!(lacks.code, Some(4), "{lacks:?}");
    assert_eq!(lines(&lacks), ["n1:/data/tree", "n2:/data/tree"]);
    assert!(lacks.stderr.starts_with("sheaf: n3: /data/tr*: "), "{lacks:?}");

    // What is escaped is a name.
    fs::write(home.path().join("export/n1/data/a*b"), "star").unwrap();
    fs::write(home.path().join("export/n1/data/a+b"), "plus").unwrap();
    let found = run(&["grep", "-h", ".", r"n1:/data/a\*b"]);
    assert_eq!(found.stdout, "star\n", "{found:?}");
    assert_eq!(run(&["grep", "-h", "star", r"n1:/data/a*b"]).stdout, "star\n");

    fs::create_dir(home.path().join("export/n2/data/to")).unwrap();
    let copied =
        run(&["cp", "-a", "n2:/data/*/sub/{1,2}.c", "n2:/data/tree/bin*", r"n2:/data/t\o"]);
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let mut names: Vec<_> = fs::read_dir(home.path().join("export/n2/data/to"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["1.c", "2.c", "binary"]);
    let several = run(&["cp", "-a", "n2:/data/tree/binary", "n2:/data/t*"]);
    assert_eq!(several.code, Some(2), "{several:?}");
    assert!(
        several.stderr.starts_with("sheaf: /data/t*: patterns are not expanded in this; "),
        "{several:?}"
    );
}

#[test]
fn hosts_copy_their_own_and_from_and_to_here() {
    let (home, export) = hosts();
    let session = ["--processes", "3", "--export", &export];
    let run = |args: &[&str]| home.run(&[&session[..], &["archive", "cp"], args].concat());
    let file = home.path().join("export/n1/data/tree/sub/7.c");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o751)).unwrap();
    let copied = run(&["-a", "-v", "@all:/data/tree", "@all:/data/copy"]);
    assert_eq!(copied.code, Some(4), "{copied:?}");
    // What the session says of itself has its time.
    let lines = copied.stderr.lines().filter(|line| !line.starts_with("sheaf: ["));
    let mut lines: Vec<_> = lines.collect();
    lines.sort_unstable();
    let lacks = "sheaf: n3: /data/tree: cannot be read: No such file or directory (ENOENT)";
    assert!(lines.contains(&lacks), "{lines:?}");
    let did: Vec<_> = lines[1..].iter().filter(|line| **line != lacks).collect();
    let of = |hosts: &str| format!("sheaf: {hosts}: /data/tree -> /data/copy");
    assert!(did == [&of("n1"), &of("n2")] || did == [&of("n[1-2]")], "{lines:?}");
    assert!(
        lines[0].starts_with("sheaf: copied 90 files (4.6M) and 6 directories, 1 failed"),
        "{lines:?}"
    );
    for host in ["n1", "n2"] {
        let at = |name: &str| home.path().join(format!("export/{host}/data/{name}"));
        let mut diff = Command::new("diff");
        let diff = diff.args(["-r", "--no-dereference"]).args([at("tree"), at("copy")]).output();
        assert!(diff.as_ref().unwrap().status.success(), "{diff:?}");
    }
    let copy = fs::metadata(home.path().join("export/n1/data/copy/sub/7.c")).unwrap();
    let found = fs::metadata(&file).unwrap();
    assert_eq!((copy.mode(), copy.mtime_nsec()), (found.mode(), found.mtime_nsec()));

    // A link that leads out of what a host serves is no target.
    let elsewhere = home.path().join("elsewhere");
    fs::write(&elsewhere, "stays").unwrap();
    symlink(&elsewhere, home.path().join("export/n1/data/escape")).unwrap();
    let escape = run(&["n1:/data/tree/sub/7.c", "n1:/data/escape"]);
    assert_eq!(escape.code, Some(4), "{escape:?}");
    assert_eq!(fs::read(&elsewhere).unwrap(), b"stays");
    let into = run(&["-r", "n1:/data/tree", "n1:/data/tree/sub"]);
    assert_eq!(into.code, Some(4), "{into:?}");
    let why =
        "sheaf: n1: /data/tree: a directory is not copied into itself: Invalid argument (EINVAL)\n";
    assert!(into.stderr.starts_with(why), "{into:?}");

    // To hosts and back, as sheaf cp does it.
    let here = home.path().join("here");
    fs::create_dir_all(here.join("in")).unwrap();
    fs::write(here.join("in/f"), "from here").unwrap();
    let put = run(&["-r", "here", "n[1-2]:/data/put"]);
    assert_eq!(put.code, Some(0), "{put:?}");
    assert_eq!(fs::read(home.path().join("export/n2/data/put/in/f")).unwrap(), b"from here");
    let got = run(&["-r", "n[1-2]:/data/put", "got"]);
    assert_eq!(got.code, Some(0), "{got:?}");
    assert!(home.path().join("got/n1/put/in/f").is_file());
    assert_eq!(run(&["-n", "here/in/f", "n1:/data/f"]).code, Some(2));
}

/// A session of hosts that all have the same files, many lines of them.
fn many_files(config: &str) -> Up {
    let home = Home::with_config(config);
    let tree = home.path().join("export/tree");
    for directory in 0..20 {
        fs::create_dir_all(tree.join(format!("{directory}"))).unwrap();
        for number in 0..100 {
            fs::write(tree.join(format!("{directory}/{number}-{}", "x".repeat(100))), "").unwrap();
        }
    }
    let export = home.path().join("export").to_str().unwrap().to_owned();
    Up::at(home, &["--processes", "3", "--export", &export])
}

/// So often is the tree named: nobody has told all of it before somebody listens.
const TIMES: usize = 60;
const LINES: usize = TIMES * (1 + 20 + 20 * 100);

/// Finds all files, while something happens to the host `n2`. What is told, and on standard error.
fn found_meanwhile(up: &Up, happens: impl FnOnce()) -> (Option<i32>, String, String) {
    let names = ["@all:/tree"; TIMES];
    let args = [&["--session", "try", "archive", "find"][..], &names].concat();
    let mut command = up.home.command(&args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut out = running.stdout.take().unwrap();
    let mut told = vec![0; 4096];
    out.read_exact(&mut told).unwrap();
    happens();
    out.read_to_end(&mut told).unwrap();
    let run = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    (run.status.code(), String::from_utf8(told).unwrap(), said)
}

/// All of two hosts was told, and not of the third, and no line is cut.
fn assert_told(text: &str) {
    let of = |host: &str| text.lines().filter(|line| line.starts_with(host)).count();
    assert_eq!((of("n1:"), of("n3:")), (LINES, LINES));
    assert!(of("n2:") < LINES, "{}", of("n2:"));
    assert!(text.lines().all(|line| line.starts_with('n') && line.contains(":/tree")));
}

#[test]
fn host_that_dies_is_named_and_the_others_tell_all() {
    let _turn = turn();
    let up = many_files("");
    let (code, text, said) = found_meanwhile(&up, || up.servers["n2"].signal(Signal::KILL));
    assert_eq!(code, Some(4), "{said}");
    let why = "sheaf: n2: host is down (EHOSTDOWN): its process ended with signal 9\n";
    assert!(said.contains(why), "{said}");
    assert_told(&text);
}

#[test]
fn host_that_hangs_is_named_and_the_others_tell_all() {
    let _turn = turn();
    let up = many_files("[tuning]\nheartbeat_ms = 60000\ntimeout_ms = 4000\n");
    let (code, text, said) = found_meanwhile(&up, || up.servers["n2"].signal(Signal::STOP));
    up.servers["n2"].signal(Signal::CONT);
    assert_eq!(code, Some(4), "{said}");
    // Whoever notices first.
    let causes =
        ["no answer within 4 s (ETIMEDOUT)", "host is down (EHOSTDOWN): no sign of life for "];
    assert!(causes.iter().any(|why| said.contains(&format!("sheaf: n2: {why}"))), "{said}");
    assert_told(&text);
}

#[test]
fn hosts_end_where_nobody_reads_any_more() {
    let _turn = turn();
    let up = many_files("");
    let names = vec!["@all:/tree"; 2000];
    let args = [&["--session", "try", "archive", "find"][..], &names].concat();
    let mut command = up.home.command(&args);
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = vec![0; 4096];
    running.stdout.as_mut().unwrap().read_exact(&mut told).unwrap();
    assert!(workers(&up) > 0);
    drop(running.stdout.take());
    wait_until("it ends", || running.try_wait().unwrap().is_some());
    let run = running.wait_with_output().unwrap();
    assert!(run.stderr.is_empty(), "{run:?}");
    wait_until("the hosts have ended it", || workers(&up) == 0);
}

/// Threads of the session's hosts that find or search.
fn workers(up: &Up) -> usize {
    // A process may end meanwhile, and a thread.
    let tasks = of_home(&up.home).into_iter().flat_map(|process| {
        fs::read_dir(format!("/proc/{}/task", process.pid)).into_iter().flatten()
    });
    let names = tasks.flatten().flat_map(|task| fs::read_to_string(task.path().join("comm")));
    names.filter(|name| name.starts_with("archive-work")).count()
}
