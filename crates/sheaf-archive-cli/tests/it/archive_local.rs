//! `sheaf archive find`, `ls` and `du` of trees of this machine, beside those of GNU.
use sheaf_testing::as_nobody;
use sheaf_testing::built;
use sheaf_testing::home::Home;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

/// A tree with every kind of name and file.
fn home() -> Home {
    let home = Home::new();
    let tree = home.path().join("tree");
    fs::create_dir_all(tree.join("sub/.hidden/deep")).unwrap();
    fs::create_dir_all(tree.join("sub.d")).unwrap();
    fs::create_dir_all(tree.join("empty")).unwrap();
    let longest: Vec<u8> = (0..255).map(|at| b"ab\xff \x01*"[at % 6]).collect();
    let names: [&[u8]; 10] = [
        b"a",
        b".dot",
        b"sub/b",
        b"sub/.hidden/c",
        b"sub/.hidden/deep/d.tex",
        b"sub.d/B.TEX",
        b"sub/ ",
        b"sub/-rf",
        b"sub/\xff\xfe",
        b"sub.d/a\nb",
    ];
    for (at, name) in names.into_iter().chain([&*[b"sub/", &*longest].concat()]).enumerate() {
        let path = tree.join(OsStr::from_bytes(name));
        fs::write(&path, vec![b'x'; at * 1500]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600 + at as u32)).unwrap();
    }
    let large = fs::File::create(tree.join("holes")).unwrap();
    large.set_len(5 << 20).unwrap();
    fs::hard_link(tree.join("sub/b"), tree.join("sub/b-again")).unwrap();
    fs::hard_link(tree.join("sub/b"), tree.join("sub/b-more")).unwrap();
    symlink("nowhere", tree.join("broken")).unwrap();
    symlink("sub", tree.join("link")).unwrap();
    std::os::unix::net::UnixListener::bind(tree.join("s")).unwrap();
    assert!(Command::new("mkfifo").arg(tree.join("fifo")).status().unwrap().success());
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_123);
    fs::File::open(tree.join("a")).unwrap().set_modified(old).unwrap();
    for number in 0..1500 {
        fs::write(tree.join(format!("sub.d/{number}")), "").unwrap();
    }
    home
}

/// What a program of GNU prints.
fn gnu(home: &Home, program: &str, args: &[&str]) -> Vec<u8> {
    let mut command = Command::new(program);
    let run = command.args(args).env("LC_ALL", "C").current_dir(home.path()).output().unwrap();
    assert!(run.status.success(), "{program} {args:?}: {run:?}");
    run.stdout
}

fn own(home: &Home, args: &[&str]) -> Vec<u8> {
    let run = home.command(&[&["archive"], args].concat()).output().unwrap();
    assert!(run.status.success() && run.stderr.is_empty(), "{args:?}: {run:?}");
    run.stdout
}

#[track_caller]
fn same(one: &[u8], other: &[u8], of: &dyn std::fmt::Debug) {
    if one != other {
        let text = String::from_utf8_lossy;
        panic!("{of:?}: {}\n--- is not ---\n{}", text(one), text(other));
    }
}

/// Parts between NULs or ends of lines in an order of their own.
fn sorted(text: &[u8], end: u8) -> Vec<&[u8]> {
    let mut parts: Vec<_> = text.split(|byte| *byte == end).collect();
    parts.sort_unstable();
    parts
}

#[test]
fn tree_of_this_machine_is_listed_as_by_ls() {
    let home = home();
    for args in [
        &["-R", "tree"][..],
        &["-RA", "tree"],
        &["-A", "tree/sub"],
        &["tree/link"],
        &["-d", "tree"],
        &["-R", "tree/"],
        &["-tA", "tree", "tree/sub"],
        &["-rA", "tree/sub"],
        &["-rtA", "tree"],
        &["-trd", "tree"],
    ] {
        same(&own(&home, &[&["ls"], args].concat()), &gnu(&home, "ls", args), &args);
    }
    // Columns are as wide as what is in them there, and links and blocks are counted.
    let flat = |text: &[u8], drops_links: bool| -> Vec<String> {
        let text: String = text.iter().map(|byte| char::from(*byte)).collect();
        let lines = text.lines().filter(|line| !line.starts_with("total "));
        let words = lines.map(|line| {
            let mut words: Vec<_> = line.split(' ').filter(|word| !word.is_empty()).collect();
            if drops_links && words.len() > 6 && words[0].len() >= 10 {
                words.remove(1);
            }
            words.join(" ").replace("+ ", " ")
        });
        words.collect()
    };
    for args in
        [&["-lRA", "tree"][..], &["-lnA", "tree"], &["-l", "tree/link"], &["-ldh", "tree/a"]]
    {
        let theirs = gnu(&home, "ls", &[&["--time-style=long-iso"], args].concat());
        let theirs = flat(&theirs, true);
        assert_eq!(flat(&own(&home, &[&["ls"], args].concat()), false), theirs, "{args:?}");
        assert!(theirs.iter().any(|line| line.contains("-rw")) || args[0] == "-l");
    }
}

#[test]
fn names_are_sorted_by_time_and_size_as_by_ls() {
    let home = Home::new();
    let tree = home.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for (at, name) in ["d", "a", "c", "b", ".e", "f"].into_iter().enumerate() {
        fs::write(tree.join(name), vec![b'x'; [7, 900, 7, 0, 50, 1 << 20][at]]).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos([5, 9, 1, 9, 7, 2][at]);
        fs::File::open(tree.join(name)).unwrap().set_modified(time).unwrap();
    }
    assert_eq!(home.run(&["archive", "store", "--create", "tree", "s::/"]).code, Some(0));
    for options in [&["-t"][..], &["-S"], &["-rt"], &["-Sr"], &["-St"], &["-tS"], &["-r"], &["-tA"]]
    {
        let theirs = gnu(&home, "ls", &[options, &["tree"]].concat());
        assert_eq!(
            theirs.split(|byte| *byte == b'\n').count(),
            if options == ["-tA"] { 7 } else { 6 }
        );
        for place in ["tree", "s::/tree"] {
            let ours = own(&home, &[&["ls"], options, &[place]].concat());
            same(&ours, &theirs, &(options, place));
        }
    }
}

#[test]
fn tree_of_this_machine_is_searched_as_by_find() {
    let home = home();
    let uid = fs::metadata(home.path()).unwrap().uid().to_string();
    for args in [
        &["tree"][..],
        &["tree/"],
        &["./tree", "tree/sub"],
        &["tree", "-name", "*.tex"],
        &["tree", "-iname", "*.tex", "-o", "-type", "d"],
        &["tree", "-type", "l,s,p"],
        &["tree", "-size", "+2", "-size", "-20k"],
        &["tree", "-empty"],
        &["tree", "!", "-empty", "-perm", "/007"],
        &["tree", "-mtime", "+1000"],
        &["tree", "-newer", "tree/a", "-uid", &uid, "-maxdepth", "1"],
        &["tree", "-mindepth", "2", "-path", "*/.hidden/*"],
        &["tree/link"],
        &["tree/link/", "-name", "b*"],
    ] {
        // GNU find wants depths before tests.
        let mut theirs = args.to_vec();
        if let Some(at) = theirs.iter().position(|word| word.ends_with("depth")) {
            let depth: Vec<_> = theirs.drain(at..at + 2).collect();
            theirs.splice(1..1, depth);
        }
        theirs.push("-print0");
        let own_args: Vec<_> = match args.contains(&"-o") {
            true => [&["find", args[0], "("], &args[1..], &[")", "-print0"]].concat(),
            false => [&["find"], args, &["-print0"]].concat(),
        };
        if args.contains(&"-o") {
            theirs = [&[args[0], "("], &args[1..], &[")", "-print0"]].concat();
        }
        let (ours, theirs) = (own(&home, &own_args), gnu(&home, "find", &theirs));
        assert_eq!(sorted(&ours, 0), sorted(&theirs, 0), "{args:?}");
        assert!(!ours.is_empty(), "{args:?}");
    }
    // Patterns are those of a locale with UTF-8.
    for name in ["é", "É", "[a-", "[z-a]", "\\"] {
        fs::write(home.path().join("tree").join(name), "").unwrap();
    }
    for test in ["-name", "-iname", "-path"] {
        for pattern in
            ["?", "É", "*/?", "[[:lower:]]", "*/[[:lower:]]", "*[\n]*", "[z-a]", "[a-", "\\"]
        {
            let ours = own(&home, &["find", "tree", test, pattern, "-print0"]);
            let mut find = Command::new("find");
            let find = find.args(["tree", test, pattern, "-print0"]).env("LC_ALL", "C.UTF-8");
            let theirs = find.current_dir(home.path()).output().unwrap().stdout;
            assert_eq!(sorted(&ours, 0), sorted(&theirs, 0), "{test} {pattern}");
        }
    }
    // What is printed is said by the expression, each time and in its own way.
    for args in [
        &["-name", "a", "-print", "-o", "-name", "b"][..],
        &["-name", "a", "-o", "-name", "b", "-print"],
        &["-print", "-name", "a"],
        &["-false", "-print", "-o", "-name", "a"],
        &["-print", "-o", "-print0"],
        &["!", "-print", "-o", "-print0"],
        &["-name", "b*", "-print0", "-type", "f", "-print"],
        &["(", "-name", "a", "-o", "-print", ")", "-empty"],
        &["-empty", "-print", "-print"],
        &["-name", "b"],
    ] {
        let args = [&["tree"], args].concat();
        let ours = own(&home, &[&["find"], &args[..]].concat());
        let theirs = gnu(&home, "find", &args);
        let parts = |text: &[u8]| {
            let ends = |byte: &u8| matches!(byte, b'\n' | 0);
            let mut parts: Vec<_> = text.split_inclusive(ends).map(<[u8]>::to_vec).collect();
            parts.sort();
            parts
        };
        assert_eq!(parts(&ours), parts(&theirs), "{args:?}");
    }
    // The order is that of names.
    let all = own(&home, &["find", "tree", "-type", "f", "-print0"]);
    let mut paths: Vec<_> = all.split(|byte| *byte == 0).filter(|path| !path.is_empty()).collect();
    let told = paths.clone();
    paths.sort_by_key(|path| path.split(|byte| *byte == b'/').collect::<Vec<_>>());
    assert_eq!(told, paths);
}

#[test]
fn tree_of_this_machine_is_summed_up_as_by_du() {
    let home = home();
    for args in [
        &["tree"][..],
        &["-s", "tree"],
        &["-sh", "tree", "tree/sub"][..2],
        &["-a", "tree/sub/.hidden"],
        &["-cd", "1", "tree"],
        &["-xad", "1", "tree/sub.d/B.TEX", "tree/empty"],
        &["-sc", "tree/sub/b", "tree/sub/b-again"],
        // What was counted before is not counted, nor told, again.
        &["-c", "tree", "tree"],
        &["-c", "tree", "tree/sub", "tree/sub/b"],
        &["-ac", "tree/sub", "tree"],
        &["-sc", "tree/sub/b", "tree/sub/.hidden", "tree/sub", "./tree"],
        &["-lc", "tree/sub", "tree", "tree"],
    ] {
        let (ours, theirs) = (own(&home, &[&["du"], args].concat()), gnu(&home, "du", args));
        assert_eq!(sorted(&ours, b'\n'), sorted(&theirs, b'\n'), "{args:?}");
    }
    // Of which name a file with several is counted is not the same, but once it is.
    let ours = String::from_utf8_lossy(&own(&home, &["du", "-a", "tree"])).lines().count();
    assert_eq!(ours, String::from_utf8_lossy(&gnu(&home, "du", &["-a", "tree"])).lines().count());
    // Whether the sizes of directories are bytes of contents depends on the release of du.
    let found = gnu(&home, "find", &["tree", "-type", "f,l", "-links", "1", "-printf", "%s\n"]);
    let single: u64 =
        String::from_utf8(found).unwrap().lines().map(|size| size.parse::<u64>().unwrap()).sum();
    let several = fs::metadata(home.path().join("tree/sub/b")).unwrap().size();
    for args in [&["du", "-sb", "tree"][..], &["du", "-b", "-d", "0", "tree"]] {
        let expected = format!("{}\ttree\n", single + several);
        same(&own(&home, args), expected.as_bytes(), &args);
    }
    let kilobytes = own(&home, &["du", "-s", "--apparent-size", "tree"]);
    let expected = format!("{}\ttree\n", (single + several).div_ceil(1024));
    same(&kilobytes, expected.as_bytes(), &"--apparent-size");
}

#[test]
fn unreadable_local_paths_are_reported_by_find_ls_and_du() {
    let home = home();
    let tree = home.path().join("tree");
    for path in [home.path(), &tree] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(tree.join("sub"), fs::Permissions::from_mode(0o700)).unwrap();
    let commands = [
        (&["archive", "find", "tree"][..], &b"tree/sub\n"[..]),
        (&["archive", "ls", "-R", "tree"], b"\ntree/sub:\n"),
        (&["archive", "du", "tree"], b"\ttree/sub\n"),
    ];
    // Whoever may not come to where the program was built runs it as it was opened here.
    let program = fs::File::open(built("sheaf-archive")).unwrap();
    let commands = commands.map(|(args, told)| {
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command.args(args).current_dir(home.path()).env_clear().env("HOME", home.path());
        (command, told)
    });
    as_nobody(move || {
        for (mut command, told) in commands {
            let run = command.output().unwrap();
            assert_eq!(run.status.code(), Some(4), "{run:?}");
            let error = "sheaf: tree/sub: Permission denied (EACCES)\n";
            assert_eq!(String::from_utf8_lossy(&run.stderr), error);
            assert!(run.stdout.windows(told.len()).any(|part| part == told), "{run:?}");
        }
    });
    for command in ["find", "ls", "du"] {
        let run = home.run(&["archive", command, "none", "tree/a"]);
        assert_eq!(run.code, Some(4), "{run:?}");
        assert_eq!(run.stderr, "sheaf: none: No such file or directory (ENOENT)\n");
        assert!(run.stdout.contains("tree/a\n"), "{run:?}");
    }
}

#[test]
fn name_with_colons_is_of_this_machine_where_that_is_said() {
    let home = home();
    fs::create_dir(home.path().join("odd::name")).unwrap();
    fs::write(home.path().join("odd::name/in"), "").unwrap();
    assert_eq!(home.run(&["archive", "ls", "--local", "odd::name"]).stdout, "in\n");
    let found = home.run(&["archive", "find", "--local", "odd::name"]);
    assert_eq!(found.stdout, "odd::name\nodd::name/in\n");
    assert!(home.run(&["archive", "du", "--local", "odd::name"]).stdout.ends_with("\todd::name\n"));
    assert_eq!(home.run(&["archive", "ls", "odd::name"]).code, Some(2));
}
