//! `cp`, as a user meets it.
use crate::support::{Home, Run};
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
