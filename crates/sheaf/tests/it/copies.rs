//! `cp`, as a user meets it.
use crate::support::{Home, Run};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// Runs the binary in a shell, which redirects it as `redirection` says.
fn redirected(home: &Home, args: &[&str], redirection: &str) -> Run {
    let export = home.path().join("%h");
    let global = ["--embedded", "2", "--export", export.to_str().unwrap()];
    let direct = home.command(&[&global, args].concat());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec \"$0\" \"$@\" {redirection}")]);
    shell.arg(direct.get_program()).args(direct.get_args()).current_dir(home.path()).env_clear();
    shell.envs(direct.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Run::of(shell.output().unwrap())
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
    for args in [&["cp", "-", ":/old"][..], &["cp", "-", ":/new"], &["write", "--create", ":/new"]] {
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
    assert_eq!((run.stderr.as_str(), run.code), ("", Some(0)));
    assert_eq!(std::fs::read(home.path().join("n2/new")).unwrap(), b"");
}

#[test]
fn two_sources_of_one_name_are_refused() {
    let home = two_hosts();
    home.write("la/f", "1");
    home.write("lb/f", "2");
    let run = redirected(&home, &["cp", "la/f", "lb/f", ":/"], "");
    let expected = "sheaf: la/f and lb/f would both become f; nothing was copied\n";
    assert_eq!((run.stderr.as_str(), run.code), (expected, Some(2)));
    // One file that is named in two ways is one file.
    let run = redirected(&home, &["cp", "-r", "n[1-2]:/", "n2:/old", "here"], "");
    assert_eq!((run.stderr.as_str(), run.code), ("", Some(0)));
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
        assert_eq!((run.stderr.as_str(), run.code), ("", Some(0)), "{flags}");
        assert_eq!(kept(&home.path().join(format!("n2/to{flags}"))), expected, "{flags}");
        let run = redirected(&home, &["cp", flags, ":/from/.", &format!("got{flags}")], "");
        assert_eq!((run.stderr.as_str(), run.code), ("", Some(0)), "{flags}");
        assert_eq!(kept(&home.path().join(format!("got{flags}/n1"))), expected, "{flags} from hosts");
    }
    drop(std::os::unix::net::UnixListener::bind(from.join("sub/socket")).unwrap());
    let run = redirected(&home, &["cp", "-a", "from/.", ":/to-a"], "");
    assert!(run.stderr.contains("socket: Operation not supported (EOPNOTSUPP)"), "{run:?}");
    assert_ne!(run.code, Some(0));
}
