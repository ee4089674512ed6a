//! `sheaf archive grep` of trees of this machine, beside GNU grep.
use sheaf_testing::as_nobody;
use sheaf_testing::built;
use sheaf_testing::home::Home;
use sheaf_testing::program::have;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::process::{Command, Output, Stdio};

/// Text and other files under names of any bytes.
fn home() -> Home {
    let home = Home::new();
    let tree = home.path().join("tree");
    for directory in ["sub/.hidden/deep", "sub.d", "empty", "many"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    let longest: Vec<u8> = (0..255).map(|at| b"ab\xff \x03*"[at % 6]).collect();
    let names: [&[u8]; 11] = [
        b"a",
        b".dot",
        b"sub/b.c",
        b"sub/.hidden/c.h",
        b"sub/.hidden/deep/d.tex",
        b"sub.d/B.TEX",
        b"sub/ ",
        b"sub/-rf",
        b"sub/\xff\xfe.c",
        b"sub.d/a\nb",
        &[b"sub/", &*longest].concat(),
    ];
    for (at, name) in names.into_iter().enumerate() {
        let lines = (0..at * 300).map(|line| match line % 7 {
            0 => format!("foo{line} Bar word {at}\n"),
            1 => "\n".to_owned(),
            2 => format!("a.b foobar {}\n", line % 100),
            _ => format!("nothing of {line}\n"),
        });
        let mut text: Vec<u8> = lines.collect::<String>().into();
        if at == 5 {
            text.extend_from_slice(b"foo \xc3\x28 not UTF-8\n");
        }
        if at == 6 {
            text[40] = 0;
        }
        if at == 7 {
            text.pop();
        }
        fs::write(tree.join(OsStr::from_bytes(name)), text).unwrap();
    }
    for number in 0..3000 {
        let text = if number % 50 == 0 { format!("foo {number}\nbar\n") } else { "x\n".into() };
        fs::write(tree.join(format!("many/{number}")), text).unwrap();
    }
    // Longer than what is read at once, and with a hole behind much text.
    let line = "some words of a line that is like all others here\n";
    fs::write(tree.join("large"), line.repeat(60_000) + "foo at the end").unwrap();
    let holes = fs::File::create(tree.join("late-hole")).unwrap();
    holes.write_all_at(("foo is in it\n".to_owned() + &line.repeat(6000)).as_bytes(), 0).unwrap();
    holes.set_len(8 << 20).unwrap();
    fs::hard_link(tree.join("sub/b.c"), tree.join("sub/b-again.c")).unwrap();
    symlink("nowhere", tree.join("broken")).unwrap();
    symlink("sub", tree.join("link")).unwrap();
    symlink("a", tree.join("to-a")).unwrap();
    std::os::unix::net::UnixListener::bind(tree.join("s")).unwrap();
    assert!(Command::new("mkfifo").arg(tree.join("fifo")).status().unwrap().success());
    home
}

fn own(home: &Home, args: &[&str], locale: &str) -> Output {
    let mut command = home.command(&[&["archive", "grep"], args].concat());
    command.env("LC_ALL", locale).output().unwrap()
}

/// The same by GNU grep, which takes files in its own order: they are named.
fn gnu(home: &Home, args: &[&str], locale: &str) -> Output {
    let mut command = Command::new("grep");
    command.arg("-r").args(args).env("LC_ALL", locale).current_dir(home.path());
    command.stdin(Stdio::null()).output().unwrap()
}

/// Lines in an order of their own. Names have ends of lines in them, which is the same for both.
fn sorted(text: &[u8]) -> Vec<String> {
    let mut lines: Vec<_> = text
        .split(|byte| b"\n\0".contains(byte))
        .map(|line| line.escape_ascii().to_string())
        .collect();
    lines.sort_unstable();
    lines
}

/// What is said on standard error without the name of who says it.
fn said(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text).replace("grep: ", "").replace("sheaf: ", "");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn lines_of_a_tree_of_this_machine_are_those_of_grep() {
    if !have("grep") {
        return;
    }
    let home = home();
    let common: &[&[&str]] = &[
        &["foo", "tree"],
        &["-n", "foo", "tree"],
        &["-c", "foo", "tree"],
        &["-l", "foo", "tree"],
        &["-L", "foo", "tree"],
        &["-in", "BAR", "tree/sub", "tree/sub.d"],
        &["-w", "foo", "tree"],
        &["-vn", "nothing", "tree/sub"],
        &["-x", "bar", "tree"],
        &["-F", "a.b", "tree"],
        &["-E", "foo[0-9]+|bar$", "tree"],
        &["-o", "foo[0-9]*", "tree"],
        &["-a", "foo", "tree"],
        &["-I", "foo", "tree"],
        &["-m", "2", "foo", "tree"],
        &["-h", "foo", "tree"],
        &["-H", "foo", "tree/a", "tree/sub/b.c"],
        &["foo", "tree/sub/b.c"],
        &["foo", "tree/link"],
        &["foo", "tree/to-a", "tree/sub/b.c"],
        &["foo", "tree/"],
        &["--include", "*.c", "foo", "tree"],
        &["--exclude", "*.c", "foo", "tree"],
        &["--include", "*.c", "--exclude", "b*", "foo", "tree"],
        &["--exclude-dir", "sub*", "foo", "tree"],
        &["--exclude-dir", "sub", "foo", "tree/sub", "tree/sub.d"],
        &["--include", "*.c", "foo", "tree/a", "tree/sub/b.c"],
        &["-lZ", "foo", "tree"],
        &["nothing has this", "tree"],
        &["-q", "foo", "tree"],
        &["-q", "nothing has this", "tree"],
        &["-e", "foo", "-e", "^$", "tree/sub"],
        &["foo", "tree/none", "tree/sub/b.c"],
        &["-s", "foo", "tree/none", "tree/sub/b.c"],
        &["-q", "foo", "tree/none", "tree/sub/b.c"],
        &["foo", "tree/broken"],
        &["-c", "foo", "tree/large", "tree/late-hole"],
        &["foo", "tree/late-hole"],
    ];
    for locale in ["C", "C.UTF-8"] {
        for args in common {
            let (ours, theirs) = (own(&home, args, locale), gnu(&home, args, locale));
            assert_eq!(sorted(&ours.stdout), sorted(&theirs.stdout), "{locale} {args:?}");
            assert_eq!(ours.status.code(), theirs.status.code(), "{locale} {args:?}: {ours:?}");
            let ours: Vec<String> = said(&ours.stderr);
            let theirs = said(&theirs.stderr);
            // Words for what is not there are others, and its name is the same.
            let name = |text: &String| text.split(": ").next().unwrap().replace('\u{fffd}', "?");
            let names = |of: &[String]| of.iter().map(name).collect::<Vec<_>>();
            assert_eq!(names(&ours).len(), names(&theirs).len(), "{args:?} {ours:?} {theirs:?}");
        }
    }
}

#[test]
fn files_come_in_the_order_of_names_and_groups_are_parted() {
    if !have("grep") {
        return;
    }
    let home = home();
    let tree = home.path().join("tree");
    for name in ["broken", "link", "to-a", "s", "fifo"] {
        fs::remove_file(tree.join(name)).unwrap();
    }
    // GNU's find and sort say the order, and GNU grep takes the files one after the other.
    let order = "LC_ALL=C find tree -type f -print0 | tr '/\\n' '\\001\\002' | LC_ALL=C sort -z | \
                 tr '\\001\\002' '/\\n' | LC_ALL=C xargs -0 -n 100000 grep -H \"$@\" --";
    for args in [
        &["-n", "-A1", "foo"][..],
        &["-B2", "-c", "foo"],
        &["-C3", "-F", "foo0"],
        &["-o", "-E", "foo[0-9]+"],
        &["-vc", "foo"],
        &["-C1", "-m1", "a.b"],
    ] {
        let mut theirs = Command::new("bash");
        theirs.args(["-c", order, "bash"]).args(args).current_dir(home.path());
        let theirs = theirs.output().unwrap();
        let ours = own(&home, &[args, &["tree"]].concat(), "C");
        if ours.stdout != theirs.stdout {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (ours, theirs) = (text(&ours.stdout), text(&theirs.stdout));
            let other = ours.lines().zip(theirs.lines()).find(|(one, other)| one != other);
            panic!("{args:?}: {other:?} of {} and {} bytes", ours.len(), theirs.len());
        }
        assert!(ours.stdout.len() > 100, "{args:?}");
    }
}

#[test]
fn grep_reports_unreadable_files_and_searches_the_rest() {
    let home = home();
    let tree = home.path().join("tree");
    for path in [home.path(), &tree] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(tree.join("sub"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(tree.join("sub.d/B.TEX"), fs::Permissions::from_mode(0o000)).unwrap();
    let program = fs::File::open(built("sheaf-archive")).unwrap();
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    let args = ["archive", "grep", "-l", "foo", "tree"];
    command.args(args).current_dir(home.path()).env_clear().env("HOME", home.path());
    as_nobody(move || {
        let run = command.output().unwrap();
        assert_eq!(run.status.code(), Some(2), "{run:?}");
        let mut errors: Vec<_> = run.stderr.split(|byte| *byte == b'\n').collect();
        errors.sort_unstable();
        let expected: [&[u8]; 3] = [
            b"",
            b"sheaf: tree/sub.d/B.TEX: cannot be read: Permission denied (EACCES)",
            b"sheaf: tree/sub: cannot be read: Permission denied (EACCES)",
        ];
        assert_eq!(errors, expected, "{run:?}");
        assert!(run.stdout.ends_with(b"tree/many/950\ntree/sub.d/a\nb\n"), "{run:?}");
    });
}

#[test]
fn archived_names_and_paths_are_searched_by_one_command() {
    let home = home();
    let stored = home.run(&["archive", "store", "--create", "tree/sub", "s::"]);
    assert_eq!(stored.code, Some(0), "{stored:?}");
    let found = own(&home, &["-c", "foo", "s::/sub/b.c", "tree/sub/b.c", "tree/none"], "C");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "s::/sub/b.c:172\ntree/sub/b.c:172\n");
    assert_eq!(found.status.code(), Some(2));
    // Groups of lines are parted between archives, too.
    let found = own(&home, &["-m1", "-A0", "foo", "s::/sub/b.c", "s::/sub/-rf", "tree/a"], "C");
    let text = "s::/sub/b.c:foo0 Bar word 2\n--\ns::/sub/-rf:foo0 Bar word 7\n";
    assert_eq!(String::from_utf8_lossy(&found.stdout), text);
}

#[test]
fn grep_skips_its_own_output_file() {
    if !have("grep") {
        return;
    }
    let home = home();
    let search = |mut command: Command| {
        fs::write(home.path().join("tree/sub/out"), "").unwrap();
        let out = fs::File::create(home.path().join("tree/sub/out")).unwrap();
        let run = command.stdout(out).env("LC_ALL", "C").output().unwrap();
        let lines = sorted(&fs::read(home.path().join("tree/sub/out")).unwrap());
        (run.status.code(), lines, run.stderr)
    };
    let ours = search(home.command(&["archive", "grep", "foo", "tree/sub"]));
    let mut theirs = Command::new("grep");
    theirs.args(["-r", "foo", "tree/sub"]).current_dir(home.path());
    let theirs = search(theirs);
    assert_eq!((ours.0, &ours.1), (theirs.0, &theirs.1));
    let text = String::from_utf8_lossy(&ours.2).into_owned();
    assert!(text.contains("sheaf: tree/sub/out: is what the lines go to: "), "{text}");
}

#[test]
fn no_more_memory_is_taken_than_for_what_is_ahead() {
    // Much is found in each of many files, while nobody reads.
    let home = Home::new();
    let tree = home.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let text = "foo and some more\n".repeat(60_000);
    for number in 0..160 {
        fs::write(tree.join(format!("{number:03}")), &text).unwrap();
    }
    let mut command = home.command(&["archive", "grep", "-h", "foo", "tree"]);
    let mut run = command.stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let status = fs::read_to_string(format!("/proc/{}/status", run.id())).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    let mut lines = std::io::BufReader::with_capacity(1 << 20, run.stdout.take().unwrap());
    let bytes = std::io::copy(&mut lines, &mut std::io::sink()).unwrap();
    assert!(run.wait().unwrap().success());
    assert_eq!(bytes, text.len() as u64 * 160);
    assert!(kilobytes < 90 << 10, "{kilobytes} kB");
}
