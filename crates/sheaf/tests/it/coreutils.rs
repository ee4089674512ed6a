//! Options of ls and stat, against what the programs of this machine print.
use crate::support::Home;
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
    let args = [&["-w", "n1", "--launch", "embedded", "--export", export.to_str().unwrap()], ours].concat();
    let mut command = home.command(&args);
    let ours = crate::support::Run::of(command.env("TZ", "UTC").output().unwrap());
    assert_eq!((ours.stderr.as_str(), ours.code), ("", Some(0)), "{args:?}");
    let mut program = Command::new(theirs[0]);
    program.args(&theirs[1..]).current_dir(home.path().join("n1")).env("LC_ALL", "C").env("TZ", "UTC");
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
        let (ours, theirs) =
            both(&home, &["stat", "--printf", format, "/d/a.rs"], &["stat", "--printf", format, "d/a.rs"]);
        assert_eq!(ours.replace("/d/", "d/"), theirs, "{format}");
    }
    let files = ["/d/a.rs", "/d/c"];
    let (ours, theirs) = both(
        &home,
        &[&["stat", "--no-heading", "--printf", r"%s\n"], &files[..]].concat(),
        &["stat", "--printf", r"%s\n", "d/a.rs", "d/c"],
    );
    assert_eq!(ours, theirs);
    let (labelled, _) = both(&home, &[&["stat", "--printf", r"%s\n"], &files[..]].concat(), &["true"]);
    assert_eq!(labelled, "n1:/d/a.rs:3000\nn1:/d/c:0\n");
    let (format, printf) = both(
        &home,
        &["stat", "--printf", "%a", "-c", "%s", "--no-heading", "/d/c"],
        &["stat", "-c", "%s", "d/c"],
    );
    assert_eq!(format, printf);
}
