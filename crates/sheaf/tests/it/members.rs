//! What is counted in closing lines, and a few names in them.
use rustix::fs::{CWD, FileType, Mode};
use serde_json::Value;
use sheaf_testing::home::{Home, Run};
use std::os::unix::fs::symlink;

/// Two hosts with files, a directory and a link to it.
fn home() -> Home {
    let home = Home::new();
    for host in ["n1", "n2"] {
        home.write(&format!("{host}/d/a"), "a\n");
        home.write(&format!("{host}/d/k/f"), "f\n");
        symlink("a", home.path().join(format!("{host}/d/s"))).unwrap();
        symlink("d", home.path().join(format!("{host}/ds"))).unwrap();
    }
    home
}

fn run(home: &Home, args: &[&str]) -> Run {
    let export = home.path().join("%h");
    home.run(&[&["--embedded", "2", "--export", export.to_str().unwrap()], args].concat())
}

fn summary(run: &Run) -> Value {
    serde_json::from_str(run.stdout.lines().last().unwrap()).unwrap()
}

#[test]
fn closing_lines_count_members() {
    let home = home();
    let told = |args: &[&str], expected: &str| {
        let run = run(&home, args);
        assert_eq!((run.stderr.as_str(), run.code), (expected, Some(4)), "{args:?}");
    };
    told(
        &["cp", "n1:/d/*", "out"],
        "copied from n1: 2 files\nn1:/d/k: Is a directory (EISDIR): -r copies directories, 1 of 3 members\n\
         sheaf: 2 of 3 members succeeded, 1 failed\n",
    );
    // Where files have to be are directories, on one host.
    for name in ["x", "y", "z"] {
        home.write(&format!("from/{name}"), name);
        std::fs::create_dir_all(home.path().join(format!("n1/to/{name}"))).unwrap();
    }
    home.write("n2/to/old", "");
    told(
        &["cp", "from/x", "from/y", "from/z", "@all:/to/"],
        "copied to n2: 3 files\nn1:/to/{x,y,z}: Is a directory (EISDIR): a directory is in the file's place, \
         1 of 2 members\nsheaf: 1 of 2 members succeeded, 1 failed\n",
    );
    // What could not be written here has not come.
    std::fs::create_dir_all(home.path().join("here/n1/a")).unwrap();
    let here = run(&home, &["cp", ":/d/a", "here"]);
    assert!(here.stderr.ends_with("\nsheaf: 1 of 2 members succeeded, 1 failed\n"), "{here:?}");
    let asked = |args: &[&str]| {
        let summary = summary(&run(&home, &[&["--json"], args].concat()));
        ["members", "succeeded", "failed_here", "exit"].map(|name| summary[name].as_u64().unwrap())
    };
    assert_eq!(asked(&["cp", "missing", "@all:/f"]), [0, 0, 1, 4]);
    assert_eq!(asked(&["cp", "missing", "from/x", "@all:/d"]), [2, 2, 1, 4]);
    assert_eq!(asked(&["ls", ":/d/*", ":/d/a", "n1:/missing"]), [9, 8, 0, 4]);
}

#[test]
fn destination_with_a_slash_is_a_directory() {
    let home = home();
    home.write("f", "f");
    home.write("dir/f", "f");
    for extra in [&[][..], &["--dry-run"]] {
        for (place, error) in [
            ("/nodir/", "No such file or directory (ENOENT): there is no such directory"),
            ("/d/a/", "Not a directory (ENOTDIR)"),
        ] {
            let run = run(&home, &[&["cp"], extra, &["f", &format!("n1:{place}")]].concat());
            let told = format!("n1:{place}: {error}, 1 of 1 members\n");
            assert!(run.code == Some(4) && run.stderr.contains(&told), "{run:?}");
        }
    }
    assert_eq!(std::fs::read(home.path().join("n1/d/a")).unwrap(), b"a\n");
    // A directory may become one, as with cp.
    let copied = run(&home, &["cp", "-r", "dir", "n1:/new/"]);
    assert_eq!((copied.code, home.path().join("n1/new/f").exists()), (Some(0), true), "{copied:?}");
}

#[test]
fn link_to_a_directory_is_shown_with_marks() {
    let home = home();
    let ls = |option| run(&home, &["ls", "--no-heading", option, ":/ds"]).stdout;
    assert_eq!(["-F", "-p", "-1"].map(ls), ["/ds@\n", "a\nk/\ns\n", "a\nk\ns\n"]);
}

#[test]
fn missing_target_of_a_link_is_named() {
    let home = home();
    for extra in [&[][..], &["--dry-run"]] {
        let run = run(&home, &[&["ln"], extra, &["/missing", "n1:/d/l"]].concat());
        let told = "\nn1:/missing: No such file or directory (ENOENT), 1 of 1 members\n\
                    sheaf: 0 of 1 members succeeded, 1 failed\n";
        assert!(run.code == Some(4) && run.stderr.ends_with(told), "{run:?}");
    }
    let run = run(&home, &["ln", "/d/a", "n1:/nowhere/l"]);
    assert!(run.stderr.contains("\nn1:/nowhere/l: No such file or directory (ENOENT)"), "{run:?}");
}

#[test]
fn directories_are_counted_as_such() {
    let home = home();
    for (args, expected) in [
        (&["chmod", "-R", "755", "@all:/d/k"][..], "mode set on n[1-2]: 4 files and directories\n"),
        (&["rm", "@all:/d/a"], "removed on n[1-2]: 2 files\n"),
        (&["rm", "-r", "@all:/d"], "removed on n[1-2]: 8 files and directories\n"),
    ] {
        let run = run(&home, args);
        assert_eq!((run.stderr.as_str(), run.code), (expected, Some(0)), "{args:?}");
    }
}

#[test]
fn pipe_is_no_empty_file() {
    let home = home();
    rustix::fs::mknodat(
        CWD,
        home.path().join("n1/p"),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    home.write("n2/p", "text\n");
    let told = "n1:/p: Resource temporarily unavailable (EAGAIN): it is a pipe or a device, which is not waited \
                for, or its file system hangs, 1 of 2 members\nsheaf: 1 of 2 members succeeded, 1 failed\n";
    let commands: [&[&str]; 8] = [
        &["cat", ":/p"],
        &["sha", ":/p"],
        &["grep", "text", ":/p"],
        &["read", ":/p"],
        &["read", ":/{p,p}"],
        &["read", "-a", "count", ":/p"],
        &["read", "-a", "checksum", ":/p"],
        &["read", "-a", "classes", ":/p"],
    ];
    for args in commands {
        let run = run(&home, args);
        assert_eq!((run.stderr.as_str(), run.code), (told, Some(4)), "{args:?}");
        assert!(!run.stdout.is_empty(), "{args:?}");
    }
    // What somebody has written is read.
    let pipe =
        std::fs::File::options().read(true).write(true).open(home.path().join("n1/p")).unwrap();
    std::io::Write::write_all(&mut &pipe, b"piped\n").unwrap();
    assert_eq!(run(&home, &["read", "n1:/p", "--count", "6"]).stdout, "piped\n");
}
