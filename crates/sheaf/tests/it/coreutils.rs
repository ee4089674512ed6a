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
