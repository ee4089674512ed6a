//! `cp`, as a user meets it.
use crate::support::{Home, Run};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
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
fn an_input_that_is_not_open_is_no_empty_file() {
    let home = two_hosts();
    for args in [&["cp", "-", ":/old"][..], &["cp", "-", ":/new"], &["write", "--create", ":/new"]]
    {
        let run = redirected(&home, args, "<&-");
        let expected = "sheaf: standard input is closed; < /dev/null is an empty one\n";
        assert_eq!((run.stderr.as_str(), run.code), (expected, Some(2)), "{args:?}");
        let run = redirected(&home, args, "0>/dev/null");
        assert!(run.stderr.contains("(EBADF)") && run.code != Some(0), "{args:?} {run:?}");
        let left: Vec<_> = std::fs::read_dir(home.path().join("n2")).unwrap().collect();
        assert_eq!(left.len(), 1, "{args:?} {left:?}");
        assert_eq!(std::fs::read_to_string(home.path().join("n1/old")).unwrap(), "old\n");
    }
    let run = redirected(&home, &["cp", "-", ":/new"], "</dev/null");
    assert_eq!((run.stderr.as_str(), run.code), ("copied to n[1-2]: 2 files\n", Some(0)));
    assert_eq!(std::fs::read(home.path().join("n2/new")).unwrap(), b"");
}

#[test]
fn a_directory_that_is_missing_above_the_destination_is_named() {
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
    let run = redirected(&home, &["cp", "la/f", "lb/f", ":/"], "");
    let expected = "sheaf: la/f and lb/f would both become f; nothing was copied\n";
    assert_eq!((run.stderr.as_str(), run.code), (expected, Some(2)));
    // One file that is named in two ways is one file, which is copied twice.
    let run = redirected(&home, &["cp", "-r", "n[1-2]:/", "n2:/old", "here"], "");
    assert_eq!((run.stderr.as_str(), run.code), ("copied from n[1-2]: 3 files\n", Some(0)));
    home.write("n2/sub/old", "2");
    let run = redirected(&home, &["cp", ":/old", "n2:/sub/old", "there"], "");
    let expected = "sheaf: n2: /old and /sub/old would both become n2/old; nothing was copied\n";
    assert_eq!((run.stderr.as_str(), run.code), (expected, Some(2)));
    assert!(!home.path().join("there").exists());
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
        let run = redirected(&home, &["cp", flags, "from/.", &format!(":/to{flags}")], "");
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
    let run = redirected(&home, &["cp", "-a", "from/.", ":/to-a"], "");
    assert!(run.stderr.contains("socket: Operation not supported (EOPNOTSUPP)"), "{run:?}");
    assert_ne!(run.code, Some(0));
}

#[test]
fn a_destination_on_hosts_is_no_pattern() {
    let home = two_hosts();
    home.write("conf", "new\n");
    for place in [":/{a,b}", ":/*", ":/o?d", ":/[o]ld"] {
        let run = redirected(&home, &["cp", "conf", place], "");
        let told = ": cp has one destination: patterns are not expanded in it; \\ takes * ? [ { as they are\n";
        assert_eq!((run.stderr, run.code), (format!("sheaf: {}{told}", &place[1..]), Some(2)));
    }
    assert_eq!(std::fs::read_dir(home.path().join("n1")).unwrap().count(), 1);
    let run = redirected(&home, &["cp", "conf", r":/\{a,b\}"], "");
    assert_eq!((run.stderr.as_str(), run.code), ("copied to n[1-2]: 2 files\n", Some(0)));
    assert_eq!(std::fs::read(home.path().join("n2/{a,b}")).unwrap(), b"new\n");
}

#[test]
fn a_destination_here_that_would_be_an_odd_directory_is_refused() {
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
fn an_exact_name_is_that_of_one_path_of_one_host() {
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
fn a_copy_says_what_it_did() {
    let home = two_hosts();
    home.write("from/file", "new\n");
    std::fs::create_dir_all(home.path().join("empty/sub")).unwrap();
    std::fs::create_dir_all(home.path().join("n1/hollow")).unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["-r", "--dry-run", "from", "n2:/"], "would be copied to n2: 1 file\n"),
        (&["-r", "from", ":/"], "copied to n[1-2]: 2 files\n"),
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
    assert_eq!(changed(&["--json", "cp", "from/file", ":/old"]), both);
    assert_eq!(changed(&["--json", "cp", ":/old", "got"]), both);
}
