//! `cp`, as a user meets it.
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use sheaf_testing::home::{Home, Run};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Runs the binary in a shell, which redirects it as `redirection` says.
fn redirected(home: &Home, args: &[&str], redirection: &str) -> Run {
    let export = home.path().join("%h");
    let global = ["--embedded", "2", "--export", export.to_str().unwrap()];
    home.redirected(&[&global, args].concat(), redirection)
}

fn two_hosts() -> Home {
    let home = Home::new();
    for host in ["n1", "n2"] {
        home.write(&format!("{host}/old"), "old\n");
    }
    home
}

#[test]
fn input_that_is_not_open_is_no_empty_file() {
    let home = two_hosts();
    for args in [
        &["cp", "-", "@all:/old"][..],
        &["cp", "-", "@all:/new"],
        &["write", "--create", "@all:/new"],
    ] {
        let run = redirected(&home, args, "<&-");
        let expected = "sheaf: standard input is closed; < /dev/null is an empty one\n";
        assert_eq!((run.stderr.as_str(), run.code), (expected, Some(2)), "{args:?}");
        let run = redirected(&home, args, "0>/dev/null");
        assert!(run.stderr.contains("(EBADF)") && run.code != Some(0), "{args:?} {run:?}");
        let left: Vec<_> = std::fs::read_dir(home.path().join("n2")).unwrap().collect();
        assert_eq!(left.len(), 1, "{args:?} {left:?}");
        assert_eq!(std::fs::read_to_string(home.path().join("n1/old")).unwrap(), "old\n");
    }
    let run = redirected(&home, &["cp", "-", "@all:/new"], "</dev/null");
    assert_eq!((run.stderr.as_str(), run.code), ("copied to n[1-2]: 2 files\n", Some(0)));
    assert_eq!(std::fs::read(home.path().join("n2/new")).unwrap(), b"");
}

#[test]
fn options_may_stand_between_the_places() {
    let home = two_hosts();
    let source = home.write("source", "new\n").display().to_string();
    let run = redirected(&home, &["cp", &source, "-p", "@all:/old"], "</dev/null");
    assert_eq!((run.stderr.as_str(), run.code), ("copied to n[1-2]: 2 files\n", Some(0)));
    assert_eq!(std::fs::read(home.path().join("n2/old")).unwrap(), b"new\n");
    let run = redirected(&home, &["cp", "-p", "@all:/old"], "</dev/null");
    let told = "sheaf: say where to copy it: sheaf cp SRC... DEST\n";
    assert_eq!((run.stderr.as_str(), run.code), (told, Some(2)));
}

/// As with GNU cp, a slash at the end asks for a directory.
#[test]
fn exact_name_with_a_slash_is_that_of_a_directory() {
    let home = two_hosts();
    std::os::unix::fs::symlink("x", home.path().join("n1/l")).unwrap();
    home.write("o/old", "old");
    for (options, from) in [("-T", "n1:/old"), ("-rT", "n1:/l"), ("-rT", "n1:/old")] {
        for to in ["o/old/", "o/old/.", "o/new/"] {
            let run = redirected(&home, &["cp", options, from, to], "");
            let told = format!("sheaf: {to}: Not a directory (ENOTDIR)");
            assert!(run.code == Some(4) && run.stderr.starts_with(&told), "{run:?}");
        }
    }
    assert_eq!(std::fs::read(home.path().join("o/old")).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(home.path().join("o")).unwrap().count(), 1);
    home.write("n1/d/f", "1");
    let run = redirected(&home, &["cp", "-rT", "n1:/d", "o/new/"], "");
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(std::fs::read(home.path().join("o/new/f")).unwrap(), b"1");
}

/// What came from hosts goes back, and takes nothing of this machine along.
#[test]
fn links_in_the_directory_of_a_host_are_not_followed_out_of_it() {
    let home = two_hosts();
    home.write("secret/id", "secret");
    for host in ["n1", "n2"] {
        home.write(&format!("d/{host}/etc/conf"), "own");
    }
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(to, home.path().join("d/n2").join(name)).unwrap();
    };
    std::fs::remove_file(home.path().join("d/n2/etc/conf")).unwrap();
    link("../../../secret/id", "etc/conf");
    link("etc", "in");
    link("../../secret", "sub");
    home.write("d/n1/sub/id", "own");
    home.write("d/n1/in/conf", "own");
    let told = "n2:d/%h/etc/conf: Permission denied (EACCES)";
    let run = redirected(&home, &["cp", "d/%h/etc/conf", "@all:/back"], "");
    assert!(run.code == Some(4) && run.stderr.contains(told), "{run:?}");
    assert_eq!(std::fs::read(home.path().join("n1/back")).unwrap(), b"own");
    assert!(!home.path().join("n2/back").exists());
    for way in ["d/%h/sub/id", "d/%h/sub/.", "d/%h/sub/"] {
        let run = redirected(&home, &["cp", "-r", way, "@all:/back2"], "");
        assert!(run.code == Some(4) && run.stderr.contains("EACCES"), "{run:?}");
        assert!(!home.path().join("n2/back2").exists());
    }
    // The name that `%h` is in may be laid, too, and a pipe or device; and a link as the host's whole directory.
    link("../secret/id", "../app.n2");
    home.write("d/app.n1", "own");
    rustix::fs::mknodat(CWD, home.path().join("d/n2/p"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    home.write("d/n1/p", "own");
    std::os::unix::fs::symlink("../secret", home.path().join("d/all.n2")).unwrap();
    home.write("d/all.n1/id", "own");
    for way in ["d/app.%h", "d/%h/p", "d/all.%h/id"] {
        let run = redirected(&home, &["--timeout", "20", "cp", way, "@all:/back3"], "");
        let told = format!("n2:{way}: Permission denied (EACCES)");
        assert!(run.code == Some(4) && run.stderr.contains(&told), "{run:?}");
        assert_eq!(std::fs::read(home.path().join("n1/back3")).unwrap(), b"own");
        assert!(!home.path().join("n2/back3").exists());
    }
    // As a link, and where it is asked for.
    for (options, name) in [("-r", "/as-link"), ("-L", "/followed")] {
        let run = redirected(&home, &["cp", options, "d/%h/etc/conf", &format!("@all:{name}")], "");
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    assert_eq!(std::fs::read(home.path().join("n2/followed")).unwrap(), b"secret");
    let link = home.path().join("n2/as-link").symlink_metadata().unwrap();
    assert!(link.is_symlink());
}

/// As with GNU cp, also where a name is given again by another source.
#[test]
fn names_of_one_file_stay_together_across_sources() {
    let home = two_hosts();
    home.write("s/d/a/b", "x");
    std::fs::hard_link(home.path().join("s/d/a/b"), home.path().join("s/d/c")).unwrap();
    let run = redirected(&home, &["cp", "-a", "s/d/a/b", "s/d", "@all:/"], "");
    assert_eq!(run.code, Some(0), "{run:?}");
    let inode = |name: &str| home.path().join("n2").join(name).metadata().unwrap().ino();
    assert_eq!([inode("d/a/b"), inode("d/c")], [inode("b"); 2]);
}

/// With a slash at the end a link means its directory, for a pattern as for a path.
#[test]
fn pattern_with_a_slash_at_its_end_finds_directories() {
    let home = two_hosts();
    home.write("n1/z/f", "1");
    std::os::unix::fs::symlink("z", home.path().join("n1/lz")).unwrap();
    let run = redirected(&home, &["cp", "-r", "n1:/l?/", "out"], "");
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(home.path().join("out/n1/lz").symlink_metadata().unwrap().is_dir());
    let run = redirected(&home, &["rm", "-r", "n1:/l?/"], "");
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stderr.contains("ENOTDIR"), "{run:?}");
    assert!(home.path().join("n1/z/f").exists());
    let run = redirected(&home, &["cp", "-r", "n1:/l?/../z", "out"], "");
    let told = "sheaf: /l?/../z: .. behind a wildcard leads out of what it found: write the path without it\n";
    assert_eq!((run.stderr.as_str(), run.code), (told, Some(2)));
}

/// Equal files of one host are headings of one content, and none of them looks empty.
#[test]
fn equal_files_are_headings_of_one_content() {
    let home = two_hosts();
    for (name, text) in [("a", "x\n"), ("b", "x\n"), ("c", "")] {
        home.write(&format!("n1/d/{name}"), text);
    }
    let run = redirected(&home, &["read", "-a", "classes", "n1:/d/*"], "</dev/null");
    let shown = "==> n1:/d/a <==\n==> n1:/d/b <==\nx\n\n==> n1:/d/c <==\n";
    assert_eq!((run.stdout.as_str(), run.code), (shown, Some(0)));
}

/// As with GNU cp, whatever links mean.
#[test]
fn pipe_that_is_named_is_copied_as_one_with_r() {
    let home = two_hosts();
    let pipe = home.path().join("pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // A dry run waits for nobody who writes.
    let run = redirected(&home, &["--timeout", "20", "cp", "--dry-run", "pipe", "@all:/p"], "");
    assert_eq!(run.code, Some(0), "{run:?}");
    for option in ["-r", "-rL"] {
        let to = format!("@all:/of{option}");
        let run = redirected(&home, &["--timeout", "20", "cp", option, "pipe", &to], "");
        assert_eq!(run.code, Some(0), "{run:?}");
        let copy = home.path().join(format!("n2/of{option}"));
        assert!(copy.symlink_metadata().unwrap().file_type().is_fifo(), "{option}");
        let back = format!("back{option}");
        let words = ["cp", option, "-T", &format!("n2:/of{option}"), &back];
        let run = redirected(&home, &words, "");
        assert_eq!(run.code, Some(0), "{run:?}");
        let copy = home.path().join(back);
        assert!(copy.symlink_metadata().unwrap().file_type().is_fifo(), "{option}");
    }
}

#[test]
fn directory_that_is_missing_above_the_destination_is_named() {
    let home = two_hosts();
    let run = redirected(&home, &["cp", "n1:/old", "here/n1/old"], "");
    let expected = "sheaf: here/n1/old: No such file or directory (ENOENT): make here/n1 first\n";
    assert_eq!((run.stderr.as_str(), run.code), (expected, Some(4)));
}

#[test]
fn two_sources_of_one_name_are_refused() {
    let home = two_hosts();
    home.write("la/f", "1");
    home.write("lb/f", "2");
    let run = redirected(&home, &["cp", "la/f", "lb/f", "@all:/"], "");
    let expected = "sheaf: la/f and lb/f would both become f; nothing was copied\n";
    assert_eq!((run.stderr.as_str(), run.code), (expected, Some(2)));
    // One file that is named in two ways is one file, which is copied twice.
    let run = redirected(&home, &["cp", "-r", "n[1-2]:/", "n2:/old", "here"], "");
    assert_eq!((run.stderr.as_str(), run.code), ("copied from n[1-2]: 3 files\n", Some(0)));
    home.write("n2/sub/old", "2");
    let run = redirected(&home, &["cp", ":/old", "n2:/sub/old", "there"], "");
    // The first one comes, as from GNU cp; it costs the other hosts nothing.
    let expected = "copied from n[1-2]: 2 files\nn2:/sub/old: File exists (EEXIST), 1 of 3 members\n\
                    sheaf: 2 of 3 members succeeded, 1 failed\n";
    assert_eq!((run.stderr.as_str(), run.code), (expected, Some(4)));
    // What patterns stand for is each host's own, and costs the others nothing.
    let run = redirected(&home, &["cp", ":/ol*", ":/sub/ol*", "there"], "");
    let expected = "copied from n[1-2]: 2 files\nn2:/sub/old: File exists (EEXIST), 1 of 3 members\n\
                    sheaf: 2 of 3 members succeeded, 1 failed\n";
    assert_eq!((run.stderr.as_str(), run.code), (expected, Some(4)));
    for (host, content) in [("n1", "old\n"), ("n2", "old\n")] {
        let here = home.path().join("there").join(host).join("old");
        assert_eq!(std::fs::read_to_string(here).unwrap(), content);
    }
}

/// A tree with one of everything that may be kept or lost.
fn one_of_each(dir: &Path) {
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    std::fs::write(dir.join("sub/one"), "content").unwrap();
    std::fs::hard_link(dir.join("sub/one"), dir.join("sub/two")).unwrap();
    std::os::unix::fs::symlink("one", dir.join("sub/link")).unwrap();
    let mode = Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(CWD, dir.join("sub/pipe"), FileType::Fifo, mode, 0).unwrap();
    std::fs::set_permissions(dir.join("sub/one"), PermissionsExt::from_mode(0o4751)).unwrap();
    // Where the file system has no attributes, none are lost either.
    let _ = rustix::fs::setxattr(dir.join("sub/one"), "user.note", b"kept", XattrFlags::empty());
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_600_000_000, 123_456_789);
    for name in ["sub/one", "sub"] {
        std::fs::File::open(dir.join(name)).unwrap().set_modified(time).unwrap();
    }
}

/// What a copy of it has: hard links, attribute, mode, time; nothing of what cannot be.
fn kept(dir: &Path) -> (bool, Option<Vec<u8>>, u32, bool) {
    let [one, two] = ["sub/one", "sub/two"].map(|name| std::fs::metadata(dir.join(name)).unwrap());
    let mut value = [0; 64];
    let xattr = rustix::fs::getxattr(dir.join("sub/one"), "user.note", &mut value[..]).ok();
    assert_eq!(std::fs::read_link(dir.join("sub/link")).unwrap(), Path::new("one"));
    assert!(std::fs::symlink_metadata(dir.join("sub/pipe")).unwrap().file_type().is_fifo());
    let is_old = (one.mtime(), one.mtime_nsec()) == (1_600_000_000, 123_456_789);
    (one.ino() == two.ino(), xattr.map(|len| value[..len].to_vec()), one.mode() & 0o7777, is_old)
}

#[test]
fn copies_keep_what_the_help_says() {
    let home = two_hosts();
    let from = home.path().join("from");
    one_of_each(&from);
    (1..=2).for_each(|host| one_of_each(&home.path().join(format!("n{host}/from"))));
    let (_, note, ..) = kept(&from);
    let cases = [
        ("-r", (false, None, 0o751, false)),
        ("-rp", (false, None, 0o4751, true)),
        ("-rpX", (false, note.clone(), 0o4751, true)),
        ("-a", (true, note, 0o4751, true)),
    ];
    for (flags, expected) in cases {
        let run = redirected(&home, &["cp", flags, "from/.", &format!("@all:/to{flags}")], "");
        assert_eq!(
            (run.stderr.as_str(), run.code),
            ("copied to n[1-2]: 8 files\n", Some(0)),
            "{flags}"
        );
        assert_eq!(kept(&home.path().join(format!("n2/to{flags}"))), expected, "{flags}");
        let run = redirected(&home, &["cp", flags, ":/from/.", &format!("got{flags}")], "");
        assert_eq!(
            (run.stderr.as_str(), run.code),
            ("copied from n[1-2]: 8 files\n", Some(0)),
            "{flags}"
        );
        assert_eq!(
            kept(&home.path().join(format!("got{flags}/n1"))),
            expected,
            "{flags} from hosts"
        );
    }
    drop(std::os::unix::net::UnixListener::bind(from.join("sub/socket")).unwrap());
    let run = redirected(&home, &["cp", "-a", "from/.", "@all:/to-a"], "");
    assert!(run.stderr.contains("socket: Operation not supported (EOPNOTSUPP)"), "{run:?}");
    assert_ne!(run.code, Some(0));
}

#[test]
fn destination_on_hosts_is_no_pattern() {
    let home = two_hosts();
    home.write("conf", "new\n");
    for place in ["/{a,b}", "/*", "/o?d", "/[o]ld"] {
        let run = redirected(&home, &["cp", "conf", &format!("@all:{place}")], "");
        let told = ": cp has one destination: patterns are not expanded in it; \\ takes * ? [ { as they are\n";
        assert_eq!((run.stderr, run.code), (format!("sheaf: {place}{told}"), Some(2)));
    }
    assert_eq!(std::fs::read_dir(home.path().join("n1")).unwrap().count(), 1);
    let run = redirected(&home, &["cp", "conf", r"@all:/\{a,b\}"], "");
    assert_eq!((run.stderr.as_str(), run.code), ("copied to n[1-2]: 2 files\n", Some(0)));
    assert_eq!(std::fs::read(home.path().join("n2/{a,b}")).unwrap(), b"new\n");
}

#[test]
fn destination_here_that_would_be_an_odd_directory_is_refused() {
    let home = two_hosts();
    let cases = [
        ("-", "write to standard output with: sheaf cat (./- is a directory of that name)"),
        ("%h.old", "%h.old: %h in DEST is not replaced: each host gets DEST/HOST/… by itself"),
    ];
    for (place, told) in cases {
        let run = redirected(&home, &["cp", ":/old", place], "");
        assert_eq!((run.stderr, run.code), (format!("sheaf: {told}\n"), Some(2)));
        assert!(!home.path().join(place).exists());
    }
}

#[test]
fn exact_name_is_that_of_one_path_of_one_host() {
    let home = two_hosts();
    home.write("n1/dir/sub/file", "deep\n");
    for place in [":/old", "n1:/o*"] {
        let run = redirected(&home, &["cp", "-T", place, "one.txt"], "");
        let told =
            "sheaf: only one path of one host, and no pattern, can have the destination's name\n";
        assert_eq!((run.stderr.as_str(), run.code), (told, Some(2)));
    }
    let run = redirected(&home, &["cp", "-T", "--dry-run", "n1:/old", "one.txt"], "");
    let told = ("n1:/old: copy to ./one.txt\n", "would be copied from n1: 1 file\n", Some(0));
    assert_eq!((run.stdout.as_str(), run.stderr.as_str(), run.code), told);
    assert!(!home.path().join("one.txt").exists());
    home.write("n2/old", &"large\n".repeat(1 << 20));
    for (host, to) in [("n1", "one.txt"), ("n2", "one.txt")] {
        let run = redirected(&home, &["cp", "-T", &format!("{host}:/old"), to], "");
        assert_eq!((run.stderr, run.code), (format!("copied from {host}: 1 file\n"), Some(0)));
        let [here, there] =
            [to, &format!("{host}/old")].map(|path| std::fs::read(home.path().join(path)).unwrap());
        assert!(here == there, "{host}");
    }
    // A directory becomes the other, as with cp -rT, and one that is not there is not made above
    // it.
    for _ in 0..2 {
        let run = redirected(&home, &["cp", "-rT", "n1:/dir", "got"], "");
        assert_eq!((run.stderr.as_str(), run.code), ("copied from n1: 1 file\n", Some(0)));
        assert_eq!(std::fs::read(home.path().join("got/sub/file")).unwrap(), b"deep\n");
        assert_eq!(std::fs::read_dir(home.path().join("got")).unwrap().count(), 1);
    }
    let run = redirected(&home, &["cp", "-T", "n1:/old", "got"], "");
    assert!(run.stderr.contains("(EISDIR)") && run.code == Some(4), "{run:?}");
    let run = redirected(&home, &["cp", "-T", "n1:/old", "none/one.txt"], "");
    assert!(
        run.stderr.contains("none/one.txt: No such file or directory") && run.code != Some(0),
        "{run:?}"
    );
    assert!(!home.path().join("none").exists());
}

#[test]
fn copy_says_what_it_did() {
    let home = two_hosts();
    home.write("from/file", "new\n");
    std::fs::create_dir_all(home.path().join("empty/sub")).unwrap();
    std::fs::create_dir_all(home.path().join("n1/hollow")).unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["-r", "--dry-run", "from", "n2:/"], "would be copied to n2: 1 file\n"),
        (&["-r", "from", "@all:/"], "copied to n[1-2]: 2 files\n"),
        (&["--dry-run", ":/old", "got"], "would be copied from n[1-2]: 2 files\n"),
        (&[":/old", ":/from/file", "got"], "copied from n[1-2]: 4 files\n"),
        (&["-r", "--dry-run", "empty", "n1:/"], "would be copied to n1: 2 directories\n"),
        (&["-r", "empty", "n1:/"], "copied to n1: 2 directories\n"),
        (&["-r", "empty", "n1:/"], "copied: nothing\n"),
        (&["-r", "n1:/hollow", "got"], "copied from n1: 1 directory\n"),
        (&["--quiet", ":/old", "got"], ""),
    ];
    for (args, told) in cases {
        let run = redirected(&home, &[&["cp"], args].concat(), "");
        assert_eq!((run.stderr.as_str(), run.code), (told, Some(0)), "{args:?}");
    }
    let changed = |args: &[&str]| {
        let run = redirected(&home, args, "");
        let last: serde_json::Value =
            serde_json::from_str(run.stdout.lines().last().unwrap()).unwrap();
        last["changed"].clone()
    };
    let both = serde_json::json!(
        { "done": "copied", "hosts": "n[1-2]", "count": 2, "files": 2, "dry_run": false, "complete": true }
    );
    assert_eq!(changed(&["--json", "cp", "from/file", "@all:/old"]), both);
    assert_eq!(changed(&["--json", "cp", ":/old", "got"]), both);
}

/// What `diff -r` has to say of two directories.
fn differences(one: &Path, other: &Path) -> String {
    let output = std::process::Command::new("diff").arg("-r").args([one, other]).output().unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

#[test]
fn files_copied_from_each_host_are_restored_to_it() {
    const HOSTS: u32 = 20;
    let home = Home::new();
    for host in 1..=HOSTS {
        home.write(&format!("served/n{host}/etc/conf.d/own"), &format!("of n{host}\n").repeat(100));
        home.write(&format!("served/n{host}/etc/same"), "the same\n");
    }
    let tool = home.write("served/n7/etc/conf.d/tool", "#!/bin/sh\n");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o751)).unwrap();
    let served = home.path().join("served");
    let before = home.path().join("before");
    let copied = std::process::Command::new("cp").arg("-a").args([&served, &before]).status();
    assert!(copied.unwrap().success());
    let (export, hosts) = (served.join("%h"), HOSTS.to_string());
    let sheaf = |args: &[&str]| {
        let global = ["--embedded", hosts.as_str(), "--export", export.to_str().unwrap()];
        home.run(&[&global, args].concat())
    };
    let run = sheaf(&["cp", "-rp", "@all:/etc", "backup/"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    // Wiped, and put back.
    for host in 1..=HOSTS {
        std::fs::remove_dir_all(served.join(format!("n{host}/etc"))).unwrap();
    }
    let run = sheaf(&["cp", "-rp", "--dry-run", "backup/%h/etc", "@all:/"]);
    assert!(run.code == Some(0) && run.stdout.contains("n[1-20]:/etc/same: create\n"), "{run:?}");
    assert!(!served.join("n1/etc").exists());
    let run = sheaf(&["cp", "-rp", "backup/%h/etc", "@all:/"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), "copied to n[1-20]: 41 files\n"));
    assert_eq!(differences(&before, &served), "");
    assert_eq!(std::fs::metadata(&tool).unwrap().permissions().mode() & 0o7777, 0o751);
    // Who has nothing here fails, is named, and keeps what it has.
    for host in [3, 5] {
        std::fs::remove_file(home.path().join(format!("backup/n{host}/etc/conf.d/own"))).unwrap();
    }
    for host in 1..=HOSTS {
        home.write(&format!("served/n{host}/etc/conf.d/own"), "worse\n");
    }
    let run = sheaf(&["cp", "backup/%h/etc/conf.d/own", "n[1-6]:/etc/conf.d/"]);
    assert_eq!(run.code, Some(4), "{run:?}");
    let own = |host: u32| std::fs::read_to_string(served.join(format!("n{host}/etc/conf.d/own")));
    for host in 1..=HOSTS {
        let is_back = host <= 6 && ![3, 5].contains(&host);
        let text = if is_back { format!("of n{host}\n").repeat(100) } else { "worse\n".to_owned() };
        assert_eq!(own(host).unwrap(), text, "n{host}");
    }
    let told = "n[3,5]:backup/%h/etc/conf.d/own: No such file or directory (ENOENT)";
    assert!(run.stderr.contains(told) && run.stderr.contains("4 of 6 members"), "{run:?}");
    let run = sheaf(&["--json", "cp", "backup/%h/none", "@all:/etc/"]);
    assert_eq!(run.code, Some(4), "{run:?}");
    let summary: serde_json::Value =
        serde_json::from_str(run.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(summary["exit"], 4, "{run:?}");
}

/// A host whose source is here and cannot be copied is a failed member like one whose is not; what
/// cannot be meant is refused before anything is copied.
#[test]
fn host_without_its_own_source_is_named_and_others_copy() {
    let home = Home::new();
    for host in 1..=6 {
        home.write(&format!("own/n{host}"), &format!("of n{host}\n"));
        home.write(&format!("served/n{host}/there"), "");
    }
    let served = |name: &str| home.path().join("served").join(name);
    let export = served("%h");
    let sheaf = |args: &[&str]| {
        let global = ["--embedded", "6", "--export", export.to_str().unwrap()];
        home.run(&[&global, args].concat())
    };
    // Two sources of n2 would get one name.
    let run = sheaf(&["cp", "own/../own/%h", "own/n2", "@all:/"]);
    let told = "sheaf: own/../own/n2 and own/n2 would both become n2; nothing was copied\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(2), told));
    assert!((1..=6).all(|host| !served(&format!("n{host}/n{host}")).exists()), "nothing was");
    for (sources, destination, told) in [
        ("own/%h/../n1", "/", "own/%h/../n1: .. behind %h leads to what is of other hosts"),
        ("own/%h", "/x%h", "/x%h: %h in DEST is not replaced: it is one path, on every host"),
    ] {
        let run = sheaf(&["cp", sources, &format!("@all:{destination}")]);
        assert_eq!((run.code, run.stderr), (Some(2), format!("sheaf: {told}\n")));
    }
    // A directory in the file's place, for two; the others get theirs.
    for host in [2, 5] {
        std::fs::remove_file(home.path().join(format!("own/n{host}"))).unwrap();
        std::fs::create_dir(home.path().join(format!("own/n{host}"))).unwrap();
    }
    std::fs::remove_file(home.path().join("own/n6")).unwrap();
    let run = sheaf(&["cp", "own/%h", "@all:/file"]);
    assert_eq!(run.code, Some(4), "{run:?}");
    let told = "n[2,5]:own/%h: Is a directory (EISDIR): this source is on this machine; -r copies \
                directories";
    assert!(run.stderr.contains(told), "{}", run.stderr);
    assert!(run.stderr.contains("n6:own/%h: No such file or directory (ENOENT)"), "{}", run.stderr);
    assert!(run.stderr.contains("3 of 6 members succeeded, 3 failed"), "{}", run.stderr);
    for host in 1..=6 {
        let text = std::fs::read_to_string(served(&format!("n{host}/file"))).ok();
        let own = format!("of n{host}\n");
        assert_eq!(text, (![2, 5, 6].contains(&host)).then_some(own), "n{host}");
    }
    let run = sheaf(&["--json", "cp", "own/%h", "@all:/file"]);
    let summary: serde_json::Value =
        serde_json::from_str(run.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&summary["members"], &summary["succeeded"]), (&6.into(), &3.into()), "{run:?}");
    // A name with %h in it.
    home.write("a%h", "one for all\n");
    let run = sheaf(&["cp", "a%%h", "@all:/"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(std::fs::read_to_string(served("n3/a%h")).unwrap(), "one for all\n");
}

/// The rate is one for all hosts.
#[test]
fn rate_of_what_each_host_is_given_is_that_of_all_together() {
    let home = Home::new();
    for host in 1..=8 {
        home.write(&format!("own/n{host}"), &"x".repeat(100_000));
        home.write(&format!("served/n{host}/there"), "");
    }
    let export = home.path().join("served/%h");
    let begun = std::time::Instant::now();
    let run = home.run(&[
        "--embedded",
        "8",
        "--export",
        export.to_str().unwrap(),
        "cp",
        "--bwlimit",
        "400000",
        "own/%h",
        "@all:/f",
    ]);
    assert_eq!(run.code, Some(0), "{run:?}");
    // 800,000 bytes; a slower machine takes longer.
    assert!(begun.elapsed() >= std::time::Duration::from_millis(1900), "{:?}", begun.elapsed());
}
