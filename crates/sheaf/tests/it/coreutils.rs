//! Options of ls and stat, against what the programs of this machine print.
use sheaf_testing::home::Home;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

fn home() -> Home {
    let home = Home::new();
    let write = |name: &str, bytes: usize, age: u64| {
        let path = home.write(&format!("n1/d/{name}"), &"x".repeat(bytes));
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000 - age);
        std::fs::File::open(&path).unwrap().set_modified(time).unwrap();
        path
    };
    for (name, bytes, age) in
        [("b.txt", 10, 5), ("a.rs", 3000, 9), ("c", 0, 1), ("a b", 7, 3), (".dot", 1, 0)]
    {
        write(name, bytes, age);
    }
    let program = write("run.sh", 20, 7);
    std::fs::set_permissions(program, PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["sub/x", "sub/deep/y", "sub-b/z"] {
        write(name, 1, 2);
    }
    let at = |name: &str| home.path().join("n1/d").join(name);
    for (name, target) in [("to-dir", "sub"), ("to-run", "run.sh"), ("nowhere", "missing")] {
        std::os::unix::fs::symlink(target, at(name)).unwrap();
    }
    Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    home
}

/// What sheaf and the program of this machine print.
fn both(home: &Home, ours: &[&str], theirs: &[&str]) -> (String, String) {
    let export = home.path().join("%h");
    let args = [&["-w", "n1", "--launch", "embedded", "--export", export.to_str().unwrap()], ours]
        .concat();
    let mut command = home.command(&args);
    let ours = sheaf_testing::home::Run::of(command.env("TZ", "UTC").output().unwrap());
    assert_eq!((ours.stderr.as_str(), ours.code), ("", Some(0)), "{args:?}");
    let mut program = Command::new(theirs[0]);
    program
        .args(&theirs[1..])
        .current_dir(home.path().join("n1"))
        .env("LC_ALL", "C")
        .env("TZ", "UTC");
    (ours.stdout, String::from_utf8(program.output().unwrap().stdout).unwrap())
}

#[test]
fn options_of_ls_are_those_of_gnu_ls() {
    let home = home();
    for flags in [
        &[][..],
        &["-F"],
        &["-p"],
        &["-F", "-p"],
        &["-p", "-F"],
        &["-lF"],
        &["-lp"],
        &["-n"],
        &["-X"],
        &["-Xr"],
        &["-t"],
        &["-tr"],
        &["-S", "-t"],
        &["-t", "-S"],
        &["-S", "-S", "-r"],
        &["--sort=time"],
        &["--sort=size", "-r"],
        &["--sort=extension"],
        &["-t", "--sort=size"],
        &["-l", "-l"],
        &["--full-time"],
        &["-AF1"],
        &["-lh"],
        &["-lu"],
        &["-lc"],
        &["-u"],
        &["-c"],
        &["-ltu"],
        &["-ltc", "-r"],
        &["-u", "-c"],
        &["--time=atime"],
        &["--time=ctime", "-l"],
        &["-l", "--time=status"],
        &["-v"],
        &["-vr"],
        &["-v", "-t"],
    ] {
        let ours = [&["ls", "--no-heading"], flags, &["/d"]].concat();
        let theirs = [&["ls", "--time-style=long-iso"], flags, &["d"]].concat();
        let (ours, theirs) = both(&home, &ours, &theirs);
        let theirs: String =
            theirs.split_inclusive('\n').filter(|line| !line.starts_with("total ")).collect();
        assert_eq!(ours, theirs, "{flags:?}");
    }
    // Without an order, the same names.
    for flags in ["-U", "--sort=none"] {
        let (ours, theirs) = both(&home, &["ls", "--no-heading", flags, "/d"], &["ls", "d"]);
        let mut ours: Vec<_> = ours.lines().collect();
        ours.sort_unstable();
        assert_eq!(ours, theirs.lines().collect::<Vec<_>>());
    }
}

#[test]
fn directories_of_a_listing_come_in_the_order_of_gnu_ls() {
    let home = home();
    let (ours, theirs) = both(&home, &["ls", "-R", "--heading", "/d"], &["ls", "-R", "d"]);
    let heads = |text: &str| -> Vec<String> {
        let heads = text.lines().filter(|line| line.ends_with(':'));
        heads.map(|line| line.trim_start_matches("n1:/").to_owned()).collect()
    };
    assert_eq!(heads(&ours), heads(&theirs));
    assert_eq!(heads(&ours), ["d:", "d/sub:", "d/sub/deep:", "d/sub-b:"]);
}

#[test]
fn printf_of_stat_is_that_of_gnu_stat() {
    let home = home();
    for format in [r"%s\n", r"%n\t%a\n", r#"\x41\101%%\045s\\\"\n\n"#, "%s", r"a\qb\n", r"\e\a%F"] {
        let (ours, theirs) = both(
            &home,
            &["stat", "--printf", format, "/d/a.rs"],
            &["stat", "--printf", format, "d/a.rs"],
        );
        assert_eq!(ours.replace("/d/", "d/"), theirs, "{format}");
    }
    let files = ["/d/a.rs", "/d/c"];
    let (ours, theirs) = both(
        &home,
        &[&["stat", "--no-heading", "--printf", r"%s\n"], &files[..]].concat(),
        &["stat", "--printf", r"%s\n", "d/a.rs", "d/c"],
    );
    assert_eq!(ours, theirs);
    let (labelled, _) =
        both(&home, &[&["stat", "--printf", r"%s\n"], &files[..]].concat(), &["true"]);
    assert_eq!(labelled, "n1:/d/a.rs:3000\nn1:/d/c:0\n");
    let (format, printf) = both(
        &home,
        &["stat", "--printf", "%a", "-c", "%s", "--no-heading", "/d/c"],
        &["stat", "-c", "%s", "d/c"],
    );
    assert_eq!(format, printf);
}

/// Headings and names of a listing, and `d` for the directory that is `/d` to us.
fn sections(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| line.trim_start_matches("n1:").trim_start_matches('/').to_owned()).collect()
}

#[test]
fn directories_are_sorted_as_gnu_ls_sorts_them() {
    let home = home();
    // Empty directories have no section of ours.
    for (at, name) in
        ["d/sub/deep", "d/sub-b", "d", "d/sub", "e.x", "f.a/g", "f.a"].into_iter().enumerate()
    {
        let dir = home.path().join("n1").join(name);
        std::fs::create_dir_all(&dir).unwrap();
        (0..at * 300).for_each(|file| std::fs::write(dir.join(format!("f{file}")), "").unwrap());
        std::fs::write(dir.join("file"), "x".repeat(at)).unwrap();
    }
    for (at, name) in
        ["f.a", "d/sub/deep", "d", "f.a/g", "d/sub-b", "e.x", "d/sub"].into_iter().enumerate()
    {
        let time =
            std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000 + at as u64 % 5);
        std::fs::File::open(home.path().join("n1").join(name)).unwrap().set_modified(time).unwrap();
    }
    let named = ["d/sub", "e.x", "d/c", "f.a", "d", "d/sub-b", "d/run.sh"];
    for sort in ["-1", "-t", "-S", "-X", "--sort=version"] {
        for more in [&[][..], &["-r"], &["-R"], &["-R", "-r"], &["-A", "-R"]] {
            let flags = [&["ls", "-1", sort][..], more].concat();
            for names in [&named[..], &["."]] {
                // What is named twice, by itself and below another, is printed once.
                if names.len() > 1 && more.contains(&"-R") {
                    continue;
                }
                let ours: Vec<String> =
                    names.iter().map(|name| format!("/{}", name.trim_matches('.'))).collect();
                let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
                let heading = ["--heading"];
                let (ours, theirs) = both(
                    &home,
                    &[&flags[..], &heading, &ours].concat(),
                    &[&flags[..], names].concat(),
                );
                let theirs = theirs.replace("./", "/").replace(".:\n", ":\n");
                let (mut ours, mut theirs) = (sections(&ours), sections(&theirs));
                // What was named comes without a heading from ls.
                if names.len() > 1 {
                    ours.retain(|line| !line.is_empty() && line != ":");
                }
                if names == ["."] && !more.contains(&"-R") {
                    theirs.insert(0, ":".to_owned());
                }
                assert_eq!(ours, theirs, "{flags:?} {names:?}");
            }
        }
    }
    // With -U, arguments stay as they are.
    let (ours, _) =
        both(&home, &["ls", "-U", "--heading", "/f.a", "/d/sub/deep", "/e.x"], &["true"]);
    let heads: Vec<_> = ours.lines().filter(|line| line.ends_with(':')).collect();
    assert_eq!(heads, ["n1:/f.a:", "n1:/d/sub/deep:", "n1:/e.x:"]);
}

#[test]
fn versions_are_sorted_as_gnu_ls_sorts_them() {
    let home = home();
    let mut names: Vec<String> = Vec::new();
    for stem in [
        "a", "a1", "a01", "a10", "a2", "a1b", "a1~", "A1", "", "a-1", "a_1", "a.1", ".a", "..b",
        "9", "010",
    ] {
        for end in
            ["", ".c", ".tar.gz", ".1", "~", ".c~", ".0", "-1.2.3", "-1.10.2", ".rs9", "..", ".~1~"]
        {
            names.push(format!("{stem}{end}"));
        }
    }
    names.retain(|name| !["", ".", ".."].contains(&name.as_str()));
    names.iter().for_each(|name| drop(home.write(&format!("n1/v/{name}"), "")));
    for flags in [&["-a"][..], &["-ar"]] {
        let ours = [&["ls", "-1", "--no-heading", "--sort=version"], flags, &["/v"]].concat();
        let (ours, theirs) =
            both(&home, &ours, &[&["ls", "-1", "--sort=version"], flags, &["v"]].concat());
        assert_eq!(ours, theirs, "{flags:?}");
    }
}

#[test]
fn options_of_du_are_those_of_gnu_du() {
    let home = home();
    std::fs::remove_file(home.path().join("n1/d/nowhere")).unwrap();
    std::fs::hard_link(home.path().join("n1/d/a.rs"), home.path().join("n1/d/sub/again")).unwrap();
    for flags in [
        &["-k"][..],
        &["-m"],
        &["-b"],
        &["-b", "-k"],
        &["-k", "-b"],
        &["-m", "-h"],
        &["-h", "-m"],
        &["-al"],
        &["-a"],
        &["-sL"],
        &["-sl"],
        &["-sLc"],
        &["-ab", "--exclude=*.rs"],
        &["-ab", "--exclude=sub", "--exclude", "c"],
        &["-ab", "--exclude=s*/deep"],
        &["-cb", "--time"],
        &["-ab", "--time"],
    ] {
        let ours = [&["du", "--no-heading"], flags, &["/d"]].concat();
        let (ours, theirs) = both(&home, &ours, &[&["du"], flags, &["d"]].concat());
        let (mut ours, mut theirs): (Vec<_>, Vec<_>) = (
            ours.lines().map(|line| line.replace("n1:/d", "d").replace("\t/d", "\td")).collect(),
            theirs.lines().map(ToOwned::to_owned).collect(),
        );
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs, "{flags:?}");
    }
}

/// A link that leads nowhere is no file of size 0.
#[test]
fn du_that_follows_links_names_those_that_lead_nowhere() {
    let home = home();
    for path in ["/d/nowhere", "/d"] {
        let (embedded, export) = (["--embedded", "1", "--export"], home.path().join("%h"));
        let args = [&embedded[..], &[export.to_str().unwrap(), "du", "-aL", path]].concat();
        let run = home.run(&args);
        let told = "n1:/d/nowhere: No such file or directory (ENOENT)";
        assert!(run.code == Some(4) && run.stderr.starts_with(told), "{run:?}");
        assert!(!run.stdout.contains("nowhere"), "{run:?}");
        assert_eq!(home.run(&[&args[..4], &["du", "-a", path]].concat()).code, Some(0));
    }
}

#[test]
fn formats_of_stat_are_those_of_gnu_stat() {
    let home = home();
    let at = home.path().join("n1/d/old");
    std::fs::write(&at, "x").unwrap();
    for (age, nanoseconds) in [(-3, 250_000_000), (-1, 0), (0, 1), (5, 999_999_999)] {
        let epoch = std::time::UNIX_EPOCH;
        let whole = std::time::Duration::from_secs(i64::abs(age) as u64);
        let time = if age < 0 { epoch - whole } else { epoch + whole };
        let time = time + std::time::Duration::from_nanos(nanoseconds);
        std::fs::File::open(&at).unwrap().set_modified(time).unwrap();
        for format in ["%Y", "%.3Y", "%.Y", "%.9Y", "%.12Y", "%12.2Y|", "%-12.1Y|", "%.10y", "%.5s"]
        {
            let (ours, theirs) = both(
                &home,
                &["stat", "--no-heading", "-c", format, "/d/old"],
                &["stat", "-c", format, "d/old"],
            );
            assert_eq!(ours, theirs, "{format} {age} {nanoseconds}");
        }
    }
    for args in [
        &["-t", "d/a.rs"][..],
        &["-t", "d"],
        &["-f", "-c", "%l %s %S %t %T %b %c %i %n", "d/c"],
        &["-f", "-c", "%20l|%-20s|%020S", "d"],
    ] {
        let (flags, path) = args.split_at(args.len() - 1);
        let file = format!("/{}", path[0]);
        let ours = [&["stat", "--no-heading"], flags, &[&file]].concat();
        let (ours, theirs) = both(&home, &ours, &[&["stat"], args].concat());
        assert_eq!(ours.replace("/d", "d"), theirs, "{args:?}");
    }
    let (ours, _) = both(&home, &["stat", "-c", "%m", "/d/a.rs", "/d"], &["true"]);
    assert_eq!(ours, "n1:/d/a.rs:/\nn1:/d:/\n");
    let whole = home.command(&["--embedded", "1", "stat", "-c", "%m", "/proc/self/stat", "/etc"]);
    let run = sheaf_testing::home::Run::of({ whole }.output().unwrap());
    let theirs = Command::new("stat").args(["-c", "%m", "/etc"]).output().unwrap();
    let etc = String::from_utf8(theirs.stdout).unwrap();
    assert!(
        run.stdout.contains(":/proc\n") && run.stdout.ends_with(&format!("/etc:{etc}")),
        "{run:?}"
    );
}

#[test]
fn options_of_cat_are_those_of_gnu_cat() {
    let home = home();
    let bytes: Vec<u8> = (0..=255).collect();
    let text = [&b"a\r\n\n\n\tb\r\r\n \n\n"[..], &bytes, b"\xff\n\n\n\nend\r"].concat();
    std::fs::write(home.path().join("n1/d/odd"), text).unwrap();
    let shell = |program: &str, file: &str, flags: &[&str]| {
        // Output that is no text is compared by its bytes.
        format!("{program} {} {file} | od -An -c", flags.join(" "))
    };
    for flags in [
        &["-A"][..],
        &["-E"],
        &["-T"],
        &["-v"],
        &["-e"],
        &["-t"],
        &["-b"],
        &["-s"],
        &["-n"],
        &["-bs"],
        &["-nE"],
        &["-sn"],
        &["-bA"],
        &["-n", "-b"],
        &["-A", "-s"],
    ] {
        let run = |line: &str| {
            let output = Command::new("sh").args(["-c", line]).current_dir(home.path()).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        let sheaf = sheaf_testing::built("sheaf");
        let export = home.path().join("%h");
        let ours = format!("{sheaf} -w n1 --launch embedded --export {} cat", export.display());
        let ours = run(&shell(&ours, "/d/odd", flags));
        assert_eq!(ours, run(&shell("cat", "n1/d/odd", flags)), "{flags:?}");
        assert!(!ours.is_empty());
    }
}

#[test]
fn tag_and_warn_of_sha_are_those_of_sha256sum() {
    let home = home();
    let (ours, theirs) =
        both(&home, &["sha", "--tag", "/d/a.rs"], &["sha256sum", "--tag", "d/a.rs"]);
    assert_eq!(ours.replace("n1:/d/", "d/").replace("(/d/", "(d/"), theirs);
    let list = format!("nonsense\n{}\n\nmore\n", theirs.trim_end());
    home.write("n1/list", &list);
    let export = home.path().join("%h");
    let args = ["-w", "n1", "--launch", "embedded", "--export", export.to_str().unwrap()];
    let run = home.run(&[&args[..], &["sha", "-c", "--warn", "/list"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    for line in ["line 1 is", "line 4 is", "2 lines are"] {
        let text = format!("sheaf: warning: n1:/list: {line} improperly formatted\n");
        assert!(run.stderr.contains(&text), "{line}: {run:?}");
    }
}

/// Whoever names files could otherwise make lines of other files.
#[test]
fn names_in_lists_of_digests_are_written_out() {
    let home = home();
    let names = ["new\nline", "re\rturn", "back\\slash", "plain"];
    for name in names {
        home.write(&format!("n1/odd/{name}"), name);
    }
    for flags in [&[][..], &["--tag"]] {
        let ours = both(&home, &[&["sha"], flags, &["/odd/*"]].concat(), &["true"]).0;
        let list = ["sha256sum"].into_iter().chain(flags.iter().copied());
        let paths = names.map(|name| format!("odd/{name}"));
        let theirs = list.chain(paths.iter().map(String::as_str)).collect::<Vec<_>>();
        let theirs = both(&home, &["sha", "/d/a.rs"], &theirs).1;
        let sorted = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&ours.replace("n1:/odd/", "odd/")), sorted(&theirs), "{flags:?}");
        home.write("n1/list", &theirs);
        let ours = both(&home, &["sha", "-c", "/list"], &["sha256sum", "-c", "list"]);
        let checked = ours.0.replace("n1:/odd/", "odd/");
        assert!(checked.contains("\\odd/new\\nline: OK\n"), "{checked:?}");
        assert!(checked.contains("odd/back\\slash: OK\n"), "{checked:?}");
        assert_eq!(checked.lines().count(), names.len(), "{checked:?}");
    }
}
