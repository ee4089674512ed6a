//! Options of `sheaf archive du`, `rm`, `chmod`, `chown`, `cp`, `mv` and `ls` beside the programs of GNU.
use sheaf_testing::home::Home;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, UNIX_EPOCH};

/// A tree with files of several names, kinds and sizes.
fn make(tree: &Path) {
    for directory in ["sub/deep", "other.d", "empty"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    let names = ["a", ".dot", "sub/b.o", "sub/c", "sub/deep/d.o", "other.d/ e", "other.d/f"];
    for (at, name) in names.into_iter().enumerate() {
        fs::write(tree.join(name), vec![b'x'; at * 30_000]).unwrap();
        let mode = [0o644, 0o600, 0o755, 0o640, 0o644, 0o664, 0o444][at];
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::hard_link(tree.join("sub/c"), tree.join("sub/again")).unwrap();
    fs::hard_link(tree.join("sub/c"), tree.join("other.d/again")).unwrap();
    symlink("sub", tree.join("link")).unwrap();
    symlink("nowhere", tree.join("broken")).unwrap();
    assert!(Command::new("mkfifo").arg(tree.join("fifo")).status().unwrap().success());
}

fn home() -> Home {
    let home = Home::new();
    make(&home.path().join("tree"));
    home
}

/// A tree without files of several names, of which the first that comes is another one with GNU.
fn home_of_single() -> Home {
    let home = home();
    for name in ["sub/again", "other.d/again"] {
        fs::remove_file(home.path().join("tree").join(name)).unwrap();
    }
    home
}

/// What a program of GNU says to some answers.
fn gnu(home: &Home, args: &[&str], answers: &str) -> Output {
    let mut command = Command::new(args[0]);
    command.args(&args[1..]).env("LC_ALL", "C").env("TZ", "UTC").current_dir(home.path());
    answered(command, answers)
}

fn own(home: &Home, args: &[&str], answers: &str) -> Output {
    let mut command = home.command(&[&["archive"], args].concat());
    command.env("TZ", "UTC");
    answered(command, answers)
}

fn answered(mut command: Command, answers: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Who does not read its answers has ended.
    let _ = child.stdin.take().unwrap().write_all(answers.as_bytes());
    child.wait_with_output().unwrap()
}

/// Lines in an order of their own.
fn lines(text: &[u8]) -> BTreeSet<String> {
    String::from_utf8_lossy(text).split(['\n', '\0']).map(ToOwned::to_owned).collect()
}

#[track_caller]
fn same(ours: &Output, theirs: &Output, of: &dyn std::fmt::Debug) {
    assert_eq!(lines(&ours.stdout), lines(&theirs.stdout), "{of:?}: {ours:?}");
    assert_eq!(ours.status.success(), theirs.status.success(), "{of:?}: {ours:?} {theirs:?}");
}

/// All names below a directory, with what is to be the same.
fn seen(tree: &Path) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let Ok(entries) = fs::read_dir(tree) else { return seen };
    for entry in entries {
        let path = entry.unwrap().path();
        let found = fs::symlink_metadata(&path).unwrap();
        let content = if found.is_file() { fs::read(&path).unwrap().len() } else { 0 };
        let text = fs::read_link(&path).unwrap_or_default();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let file = format!("{:o} {} {content} {}", found.mode(), found.nlink(), text.display());
        if found.is_dir() {
            seen.extend(self::seen(&path).into_iter().map(|below| format!("{name}/{below}")));
            seen.insert(format!("{name}: {:o}", found.mode()));
        } else {
            seen.insert(format!("{name}: {file}"));
        }
    }
    seen
}

/// What is left of the trees of a home.
fn left(home: &Home) -> Vec<BTreeSet<String>> {
    ["tree", "to"].iter().map(|name| seen(&home.path().join(name))).collect()
}

#[test]
fn sums_have_the_units_and_exceptions_of_du() {
    let home = home();
    // In which of two directories a file counts is not the same.
    fs::remove_file(home.path().join("tree/other.d/again")).unwrap();
    for options in [
        &["-k"][..],
        &["-m"],
        &["-B", "512"],
        &["-BK"],
        &["-BkB"],
        &["-BMiB"],
        &["--block-size=1M"],
        &["-B", "human-readable"],
        &["-hk"],
        &["-kh"],
        &["-mB512"],
        &["-S"],
        &["-Sc"],
        &["-sS"],
        &["-Sd1"],
        &["--inodes"],
        &["--inodes", "-S"],
        &["--inodes", "-shc"],
        &["--inodes", "-am"],
        &["--exclude", "*.o"],
        &["--exclude", "sub", "--exclude=c"],
        &["--exclude=deep/*", "-a"],
        &["--exclude", "t*d.o", "-a"],
        &["--exclude", "tree", "-c"],
        &["--exclude", "tree/sub"],
        &["--exclude", "[a"],
        &["--exclude", "\\a", "-a"],
        &["-0"],
        &["-a0c"],
        &["-l"],
        &["-sl"],
        &["-t", "100K"],
        &["-t", "-100K"],
        &["-ct100000"],
        &["--inodes", "-t3"],
    ] {
        for name in ["tree", "tree/", "./tree"] {
            let theirs = gnu(&home, &[&["du"], options, &[name]].concat(), "");
            let ours = own(&home, &[&["du"], options, &[name]].concat(), "");
            // Which name of a file counts is not the same.
            if options.iter().any(|option| option.contains('a') && option.len() < 5) {
                assert_eq!(lines(&ours.stdout).len(), lines(&theirs.stdout).len(), "{options:?}");
            } else {
                same(&ours, &theirs, &(options, name));
            }
        }
    }
    for wrong in [&["-B", "0"][..], &["-Bx"], &["-B1x"], &["-t-0"], &["-t", "x"], &["--si"]] {
        let ours = own(&home, &[&["du"], wrong, &["tree"]].concat(), "");
        assert_eq!(ours.status.code(), Some(2), "{wrong:?}: {ours:?}");
        assert!(!gnu(&home, &[&["du"], wrong, &["tree/none"]].concat(), "").status.success());
    }
}

#[test]
fn archived_sums_leave_out_and_count_as_local_ones() {
    let home = home();
    // Texts of links are no contents in an archive.
    for name in ["link", "broken"] {
        fs::remove_file(home.path().join("tree").join(name)).unwrap();
    }
    assert_eq!(home.run(&["archive", "store", "--create", "tree", "s::/"]).code, Some(0));
    for options in [
        &["-b"][..],
        &["-bS"],
        &["-bl"],
        &["-b", "--exclude", "*.o"],
        &["-bl", "--exclude", "c"],
        &["-b", "--exclude", "sub"],
        &["-b", "--exclude", "/tree/sub/[bc]*"],
        &["-b", "--exclude", "sub/*"],
        &["--inodes", "-c"],
        &["--inodes", "--exclude", "again"],
        &["-bt100K"],
        &["-bsc", "--exclude=tree"],
        &["-m", "--apparent-size"],
        &["-b0"],
    ] {
        let ours = own(&home, &[&["du"], options, &["s::/tree"]].concat(), "");
        // A path that begins with a slash is what an archived one is.
        let top = home.path().to_string_lossy().into_owned();
        let tree = format!("{top}/tree");
        let options: Vec<_> =
            options.iter().map(|option| option.replace("/tree/", &format!("{tree}/"))).collect();
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let mut local = own(&home, &[&["du"], &options[..], &[&tree]].concat(), "");
        let text = String::from_utf8(local.stdout).unwrap();
        local.stdout = text.replace(&top, "").into_bytes();
        // Where a file with several names is counted first is the same, in the order of names.
        same(&ours, &local, &options);
    }
}

#[test]
fn names_are_removed_and_told_as_by_rm() {
    for (options, names, answers) in [
        (&["-v"][..], &["tree/a", "tree/link"][..], ""),
        (&["-rv"], &["tree"], ""),
        (&["-dv"], &["tree/empty", "tree/a"], ""),
        (&["-dv"], &["tree/sub"], ""),
        (&["-v"], &["tree/empty"], ""),
        (&["-f"], &[], ""),
        (&["-f"], &["tree/none"], ""),
        (&["-iv"], &["tree/a", "tree/.dot", "tree/fifo", "tree/broken"], "y\nn\nYes\n"),
        (&["-iv"], &["tree/empty", "tree/none"], ""),
        (&["-id"], &["tree/empty"], "y\n"),
        (&["-id"], &["tree/sub"], "y\ny\n"),
        (&["-ri"], &["tree/sub/deep"], "y\ny\ny\n"),
        (&["-riv"], &["tree/sub/deep"], "y\ny\nn\n"),
        (&["-ri"], &["tree/sub/deep"], "y\nn\nn\n"),
        (&["-ri"], &["tree/sub"], "n\n"),
        (&["-ri"], &["tree/empty"], "y\n"),
        (&["-I"], &["tree/a", "tree/.dot", "tree/link"], ""),
        (&["-I"], &["tree/a", "tree/.dot", "tree/link", "tree/broken"], "n\n"),
        (&["-I"], &["tree/a", "tree/.dot", "tree/link", "tree/broken"], "y\n"),
        (&["-rI"], &["tree"], ""),
        (&["-rIv"], &["tree/sub", "tree/empty"], "yes\n"),
        (&["-if"], &["tree/a", "tree/none"], ""),
        (&["-fi"], &["tree/a"], "n\n"),
        (&["-iI"], &["tree/a"], ""),
        (&["-fi"], &["tree/none"], ""),
    ] {
        let (ours, theirs) = (home(), home());
        let run = gnu(&theirs, &[&["rm"], options, names].concat(), answers);
        let own_run = own(&ours, &[&["rm"], options, names].concat(), answers);
        same(&own_run, &run, &(options, names));
        assert_eq!(left(&ours), left(&theirs), "{options:?} {names:?}");
        // Of a directory in which something stays GNU asks, and then cannot remove it.
        let is_asked = options[0].to_lowercase().contains('i') && !options[0].contains('d');
        if is_asked && !answers.contains("n\nn") {
            let questions = |run: &Output| -> Vec<String> {
                let text = String::from_utf8_lossy(&run.stderr).replace("rm: ", "sheaf: ");
                let asked = text.split_inclusive("? ").filter(|text| text.ends_with("? "));
                asked.map(|text| text.rsplit('\n').next().unwrap().to_owned()).collect()
            };
            assert_eq!(questions(&own_run), questions(&run), "{options:?} {names:?}");
        }
    }
    let home = home();
    let run = own(&home, &["rm", "-ri", "--json", "tree"], "y\n");
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    assert!(own(&home, &["rm"], "").status.code() == Some(2) && home.path().join("tree").exists());
}

#[test]
fn archived_names_are_removed_and_told_as_by_rm() {
    for (options, names, answers) in [
        (&["-v"][..], &["tree/a", "tree/link"][..], ""),
        (&["-rv"], &["tree"], ""),
        (&["-rv"], &["tree/sub", "tree/a", "tree/other.d"], ""),
        (&["-dv"], &["tree/empty", "tree/a"], ""),
        (&["-dv"], &["tree/sub"], ""),
        (&["-v"], &["tree/a", "tree/none"], ""),
        (&["-iv"], &["tree/a", "tree/.dot", "tree/fifo", "tree/broken"], "y\nn\nYes\n"),
        (&["-ri"], &["tree/sub/deep"], "y\ny\ny\n"),
        (&["-riv"], &["tree/sub/deep"], "y\ny\nn\n"),
        (&["-riv"], &["tree/sub/deep"], "y\nn\nn\n"),
        (&["-ri"], &["tree/empty"], "y\n"),
        (&["-riv"], &["tree/sub/deep", "tree/none"], ""),
        (&["-rI"], &["tree"], ""),
        (&["-rIv"], &["tree/sub", "tree/empty"], "yes\n"),
        (&["-if"], &["tree/a", "tree/none"], ""),
    ] {
        let home = home();
        assert_eq!(home.run(&["archive", "store", "--create", "tree", "s::/"]).code, Some(0));
        let archived: Vec<_> = names.iter().map(|name| format!("s::/{name}")).collect();
        let archived: Vec<_> = archived.iter().map(String::as_str).collect();
        let mut ours = own(&home, &[&["rm"], options, &archived].concat(), answers);
        let theirs = gnu(&home, &[&["rm"], options, names].concat(), answers);
        let text = String::from_utf8(ours.stdout).unwrap();
        ours.stdout = text.replace("s::/", "").into_bytes();
        same(&ours, &theirs, &(options, names));
        let names_left = home.run(&["archive", "find", "s::/", "-mindepth", "1"]).stdout;
        let names_left: BTreeSet<_> =
            names_left.lines().map(|line| line.replace("s::/", "")).collect();
        let found = gnu(&home, &["find", "tree"], "").stdout;
        let found: BTreeSet<_> =
            lines(&found).into_iter().filter(|line| !line.is_empty()).collect();
        assert_eq!(names_left, found, "{options:?} {names:?}");
    }
    // A pattern may mean many.
    let home = home();
    assert_eq!(home.run(&["archive", "store", "--create", "tree", "s::/"]).code, Some(0));
    let run = own(&home, &["rm", "-I", "s::/tree/*"], "n\n");
    assert!(String::from_utf8_lossy(&run.stderr).contains("remove 1 argument? "), "{run:?}");
    assert_eq!(home.run(&["archive", "ls", "s::/tree/a"]).code, Some(0));
}

#[test]
fn modes_are_told_as_by_chmod() {
    for args in [
        &["-v", "600", "tree/a"][..],
        &["-v", "644", "tree/a"],
        &["-c", "644", "tree/a", "tree/.dot"],
        &["-Rv", "go-rx", "tree"],
        &["-Rc", "go-rx", "tree"],
        &["-v", "600", "tree/link"],
        &["-f", "600", "tree/none", "tree/a"],
        &["-v", "--reference", "tree/sub/b.o", "tree/a", "tree/empty"],
        &["-cR", "--reference=tree/.dot", "tree/other.d"],
    ] {
        let (ours, theirs) = (home_of_single(), home_of_single());
        let run = gnu(&theirs, &[&["chmod"], args].concat(), "");
        let own_run = own(&ours, &[&["chmod"], args].concat(), "");
        same(&own_run, &run, &args);
        assert_eq!(left(&ours), left(&theirs), "{args:?}");
        if args[0] == "-f" {
            let said = String::from_utf8_lossy(&own_run.stderr);
            assert!(!said.contains("none") && run.stderr.is_empty(), "{own_run:?}");
        }
    }
    let home = home();
    let run = own(&home, &["chmod", "--dry-run", "-c", "600", "tree/a"], "");
    let text = "mode of 'tree/a' would change from 0644 (rw-r--r--) to 0600 (rw-------)\n";
    assert_eq!(String::from_utf8_lossy(&run.stdout), text);
    assert_eq!(fs::metadata(home.path().join("tree/a")).unwrap().mode() & 0o777, 0o644);
}

#[test]
fn archived_modes_and_owners_are_told_as_by_chmod_and_chown() {
    let is_root = rustix::process::geteuid().is_root();
    for args in [
        &["chmod", "-v", "600", "tree/a"][..],
        &["chmod", "-v", "644", "tree/a", "tree/sub/c"],
        &["chmod", "-c", "644", "tree/a", "tree/.dot"],
        &["chmod", "-Rv", "go-rx", "tree"],
        &["chmod", "-Rc", "go-rx", "tree"],
        &["chmod", "-Rc", "a+r", "tree"],
        &["chmod", "-f", "600", "tree/none", "tree/a"],
        &["chown", "-Rv", "1234:4321", "tree"],
        &["chown", "-c", "nobody", "tree/a", "tree/sub"],
        &["chown", "-c", ":4321", "tree/a"],
        &["chown", "-Rc", "0", "tree"],
        &["chown", "-hc", "1234", "tree/link", "tree/a"],
    ] {
        if args[0] == "chown" && !is_root {
            continue;
        }
        let home = home_of_single();
        assert_eq!(home.run(&["archive", "store", "--create", "tree", "s::/"]).code, Some(0));
        let archived: Vec<_> = args.iter().map(|word| word.replace("tree", "s::/tree")).collect();
        let archived: Vec<_> = archived.iter().map(String::as_str).collect();
        let mut ours = own(&home, &archived, "");
        let text = String::from_utf8(ours.stdout).unwrap();
        ours.stdout = text.replace("s::/", "").into_bytes();
        same(&ours, &gnu(&home, args, ""), &args);
    }
    let home = home();
    assert_eq!(home.run(&["archive", "store", "--create", "tree", "s::/"]).code, Some(0));
    let run = own(&home, &["chmod", "-c", "--reference", "tree/.dot", "s::/tree/a"], "");
    let text = "mode of 's::/tree/a' changed from 0644 (rw-r--r--) to 0600 (rw-------)\n";
    assert_eq!(String::from_utf8_lossy(&run.stdout), text, "{run:?}");
}

fn set_time(path: &Path, seconds: u64) {
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Some files of `tree`, older, as old and newer in `to/tree`.
fn with_older(home: &Home) {
    let (tree, to) = (home.path().join("tree"), home.path().join("to/tree"));
    fs::create_dir_all(to.join("sub")).unwrap();
    for name in ["a", "sub/b.o", "sub/c", ".dot", "other.d/ e"] {
        set_time(&tree.join(name), 2000);
    }
    for (name, seconds) in [("a", 1000), ("sub/b.o", 2000), ("sub/c", 3000), ("link", 9000)] {
        fs::write(to.join(name), "there").unwrap();
        set_time(&to.join(name), seconds);
    }
    fs::remove_file(to.join("link")).unwrap();
}

#[test]
fn copies_are_made_and_told_as_by_cp() {
    for args in [
        &["-v", "tree/a", "to"][..],
        &["-rv", "tree", "to"],
        &["-ruv", "tree", "to"],
        &["-au", "tree", "to"],
        &["-u", "tree/a", "tree/sub/b.o", "tree/sub/c", "to/tree"],
        &["-nu", "tree/a", "to/tree"],
        &["-rv", "-t", "to", "tree/sub", "tree/a"],
        &["-t", "to/tree/a", "tree/a"],
        &["-t", "none", "tree/a"],
        &["-tT", "tree/a"],
        &["-P", "tree/link", "tree/broken", "to"],
        &["-d", "tree/link", "tree/sub/c", "tree/sub/again", "to"],
        &["-rd", "tree/sub", "to"],
        &["-f", "tree/a", "to/tree"],
        &["-uv", "tree/sub/b.o", "to/new"],
        &["tree/a"],
    ] {
        let (ours, theirs) = (home(), home());
        with_older(&ours);
        with_older(&theirs);
        let run = gnu(&theirs, &[&["cp"], args].concat(), "");
        let own_run = own(&ours, &[&["cp"], args].concat(), "");
        same(&own_run, &run, &args);
        assert_eq!(left(&ours), left(&theirs), "{args:?}");
    }
}

#[test]
fn archived_names_are_copied_and_moved_as_cp_and_mv_do() {
    for (command, args) in [
        ("cp", &["-au", "tree", "to"][..]),
        ("cp", &["-u", "--preserve=timestamps", "tree/a", "tree/sub/b.o", "tree/sub/c", "to/tree"]),
        ("cp", &["-a", "-t", "to", "tree/sub", "tree/a"]),
        ("mv", &["-t", "to", "tree/sub", "tree/a"]),
        ("mv", &["-u", "tree/a", "tree/sub/b.o", "tree/sub/c", "to/tree"]),
        ("mv", &["-n", "tree/a", "tree/.dot", "to/tree"]),
        ("mv", &["-nf", "tree/a", "to/tree"]),
        ("mv", &["-fn", "tree/a", "to/tree"]),
        ("mv", &["-T", "tree/empty", "to/new"]),
        ("mv", &["-t", "to/tree/a", "tree/a"]),
    ] {
        let home = home();
        with_older(&home);
        fs::remove_file(home.path().join("tree/sub/again")).unwrap();
        fs::remove_file(home.path().join("tree/other.d/again")).unwrap();
        let stored = home.run(&["archive", "store", "--create", "tree", "to", "s::/"]);
        assert_eq!(stored.code, Some(0), "{stored:?}");
        let is_option = |word: &&&str| word.starts_with('-');
        let archived: Vec<_> = args
            .iter()
            .filter(|word| !word.contains("preserve"))
            .map(|word| if is_option(&word) { (*word).to_owned() } else { format!("s::/{word}") })
            .collect();
        let archived: Vec<_> = archived.iter().map(String::as_str).collect();
        let ours = own(&home, &[&[command], &archived[..]].concat(), "");
        let theirs = gnu(&home, &[&[command], args].concat(), "");
        assert_eq!(ours.status.success(), theirs.status.success(), "{command} {args:?} {ours:?}");
        let got = home.run(&["archive", "get", "s::/tree", "s::/to", "got"]);
        assert_eq!(got.code, Some(0), "{got:?}");
        for name in ["tree", "to"] {
            let (got, is) = (home.path().join("got").join(name), home.path().join(name));
            assert_eq!(seen(&got), seen(&is), "{command} {args:?}");
        }
    }
}

/// The words of each line.
fn words(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text).into_owned();
    let lines = text.lines().filter(|line| !line.starts_with("total "));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn listings_have_the_marks_and_columns_of_ls() {
    let home = home();
    for name in ["a", ".dot", "sub/b.o"] {
        set_time(&home.path().join("tree").join(name), 1_000_000_123);
    }
    let _socket = std::os::unix::net::UnixListener::bind(home.path().join("tree/socket")).unwrap();
    for options in [
        &["-1"][..],
        &["-F"],
        &["-FA"],
        &["-pR"],
        &["-i"],
        &["-is"],
        &["-sh"],
        &["-sk"],
        &["-U1A"],
        &["-AFR"],
        &["--classify"],
        &["-cA"],
        &["-ur"],
        &["-c", "-tr"],
    ] {
        for name in ["tree", "tree/link", "tree/sub/"] {
            let theirs = gnu(&home, &[&["ls"], options, &[name]].concat(), "");
            let ours = own(&home, &[&["ls"], options, &[name]].concat(), "");
            if options[0].contains('U') {
                same(&ours, &theirs, &(options, name));
            } else {
                assert_eq!(words(&ours.stdout), words(&theirs.stdout), "{options:?} {name}");
            }
        }
    }
    // Links are counted by GNU alone; without them, and the owners, the columns are the same.
    let drop = |text: &[u8], at: usize| -> Vec<String> {
        let without = |line: &String| {
            let mut words: Vec<_> = line.split(' ').collect();
            words.remove(at);
            words.join(" ")
        };
        words(text).iter().map(without).collect()
    };
    for options in [
        &["-lF", "--time-style=long-iso"][..],
        &["-lp", "--time-style=full-iso"],
        &["--full-time"],
        &["-l", "--time-style=iso"],
        &["-l", "--time-style=locale"],
        &["-l", "--time-style=+%s %N"],
        &["-l", "--time-style=+old %Y\nnew %Y"],
        &["-g", "--time-style=long-iso"],
        &["-o", "--time-style=long-iso"],
        &["-lG", "--time-style=long-iso"],
        &["-go", "--time-style=long-iso"],
        &["-lc", "--time-style=full-iso"],
        &["-lut", "--time-style=full-iso"],
        &["-nF", "--time-style=long-iso"],
    ] {
        let theirs = gnu(&home, &[&["ls"], options, &["tree"]].concat(), "");
        let ours = own(&home, &[&["ls"], options, &["tree"]].concat(), "");
        assert_eq!(words(&ours.stdout), drop(&theirs.stdout, 1), "{options:?}");
    }
    assert_eq!(own(&home, &["ls", "--time-style=odd", "tree"], "").status.code(), Some(2));
}

#[test]
fn archived_listings_have_the_options_of_local_ones() {
    let home = home();
    let time = 1_000_000_123;
    set_time(&home.path().join("tree/a"), time);
    assert_eq!(home.run(&["archive", "store", "--create", "tree", "s::/"]).code, Some(0));
    for options in
        [&["-F"][..], &["-pA"], &["-1"], &["-U"], &["-k"], &["-FR"], &["-ltr"], &["-og"], &["-lG"]]
    {
        let local = own(&home, &[&["ls"], options, &["tree"]].concat(), "");
        let ours = own(&home, &[&["ls"], options, &["s::/tree"]].concat(), "");
        let (ours, local) = (words(&ours.stdout), words(&local.stdout));
        assert_eq!(ours.len(), local.len(), "{options:?}");
        for (one, other) in ours.iter().zip(&local).filter(|(one, _)| !one.contains("-> ")) {
            // Directories have no size in an archive.
            if !one.starts_with('d') {
                assert_eq!(one.trim_start_matches('/'), other, "{options:?}");
            }
        }
    }
    let text = |options: &[&str]| {
        let run = own(&home, &[&["ls"], options].concat(), "");
        String::from_utf8(run.stdout).unwrap()
    };
    assert!(text(&["--full-time", "s::/tree/a"]).contains(" 2001-09-09 01:48:43.000000000 +0000 "));
    assert!(text(&["-l", "--time-style=+%s", "s::/tree/a"]).contains(&format!(" {time} ")));
    assert!(text(&["-s", "s::/tree/sub/c"]).contains("   88 "));
    for option in ["-i", "-c", "-u"] {
        let run = own(&home, &["ls", option, "s::/tree"], "");
        assert_eq!(run.status.code(), Some(2), "{run:?}");
        assert!(String::from_utf8_lossy(&run.stderr).contains(&format!("{option} is for paths")));
    }
}

#[test]
fn options_that_hosts_do_not_have_are_refused_by_their_names() {
    let home = Home::new();
    for (args, option) in [
        (&["du", "-m", "n1:/x"][..], "-m"),
        (&["du", "--exclude", "x", "n1:/x"], "--exclude"),
        (&["du", "-B1M", "n1:/x"], "--block-size"),
        (&["du", "--inodes", "n1:/x"], "--inodes"),
        (&["ls", "-s", "n1:/x"], "-s"),
        (&["ls", "--time-style=+%s", "n1:/x"], "--time-style=+FORMAT"),
        (&["rm", "-i", "n1:/x"], "-i"),
        (&["chmod", "-c", "600", "n1:/x"], "--changes"),
        (&["chmod", "--reference", "f", "n1:/x"], "--reference"),
        (&["cp", "-u", "n1:/x", "y"], "--update"),
    ] {
        let run = own(&home, args, "");
        assert_eq!(run.status.code(), Some(2), "{args:?}: {run:?}");
        let text = String::from_utf8_lossy(&run.stderr).into_owned();
        let expected = format!("{option} is for what is archived and for paths of this machine");
        assert!(text.contains(&expected), "{args:?}: {text}");
    }
}
