//! Standard streams that are closed, full or not meant for what is done with them.
use crate::support::{Home, Run};

const CLOSED: &str = "sheaf: standard output: Bad file descriptor (EBADF)\n";
const FULL: &str = "sheaf: standard output: No space left on device (ENOSPC)\n";

/// A home with a file on each of two hosts.
fn hosts() -> Home {
    let home = Home::new();
    for host in ["n1", "n2"] {
        home.write(&format!("{host}/f"), "1 x\n");
    }
    home
}

fn run(home: &Home, args: &[&str], redirection: &str) -> Run {
    let export = home.path().join("%h");
    let global = ["--embedded", "2", "--export", export.to_str().unwrap()];
    home.redirected(&[&global, args].concat(), redirection)
}

#[test]
fn an_answer_that_cannot_be_printed_is_no_answer() {
    let home = hosts();
    for args in [
        &["cat", "/f"][..],
        &["grep", "x", "/f"],
        &["grep", "-c", "x", "/f"],
        &["ls", "/"],
        &["stat", "/f"],
        &["sha", "/f"],
        &["du", "/"],
        &["read", "/f"],
        &["read", "-a", "sum", "/f"],
        &["tree", "show"],
        &["tree", "plan"],
        &["config", "show"],
        &["completions", "bash"],
        &["hosts", "-f", "n1", "n2"],
        &["help"],
        &["help", "rm"],
        &["--help"],
        &["rm", "--help"],
        &["--version"],
        &["--json", "cat", "/f"],
        &["--json", "cat", "n7:/f"],
        &["--json", "status"],
        &["--json", "--nonsense"],
        &["rm", "-v", "--dry-run", ":/f"],
    ] {
        for (redirection, told) in [(">&-", CLOSED), ("1</dev/null", CLOSED), (">/dev/full", FULL)] {
            let run = run(&home, args, redirection);
            let code = if run.stderr.contains("--nonsense") || run.stderr.contains("n7") { 2 } else { 4 };
            assert_eq!(run.code, Some(code), "{args:?} {redirection}: {run:?}");
            assert!(code == 2 || run.stderr.starts_with(told), "{args:?} {redirection}: {run:?}");
        }
        // A caller who wants none of it says so, in any mode.
        for redirection in [">/dev/null", "1<>/dev/null"] {
            let run = run(&home, args, redirection);
            assert!(!run.stderr.contains("standard output"), "{args:?} {redirection}: {run:?}");
        }
    }
}

#[test]
fn what_prints_nothing_needs_no_output() {
    let home = hosts();
    let run = run(&home, &["rm", "n1:/f"], ">&-");
    assert_eq!((run.stderr.as_str(), run.code), ("removed on n1: 1 file\n", Some(0)));
    assert!(!home.path().join("n1/f").exists());
}

#[test]
fn a_full_standard_error_changes_no_answer() {
    let home = hosts();
    home.write("n1/only", "x\n");
    for redirection in ["2>/dev/full", "2>&-"] {
        let whole = run(&home, &["read", "-a", "sum", "/f"], redirection);
        assert_eq!((whole.stdout.as_str(), whole.code), ("2\n", Some(0)), "{redirection}");
        let partial = run(&home, &["cat", "/only"], redirection);
        assert_eq!((partial.stdout.as_str(), partial.code), ("x\n", Some(4)), "{redirection}");
        assert_eq!(run(&home, &["--nonsense"], redirection).code, Some(2), "{redirection}");
        let status = run(&home, &["status"], redirection);
        assert_eq!((status.stdout.as_str(), status.code), ("", Some(0)), "{redirection}");
    }
}

#[test]
fn an_input_that_is_closed_is_no_empty_one() {
    let home = hosts();
    for args in
        [&["write", ":/new"][..], &["grep", "-f", "-", "/f"], &["cp", "-", ":/new"], &["hosts", "-f", "-"]]
    {
        let closed = run(&home, args, "<&-");
        assert!(closed.stderr.contains("standard input is closed"), "{args:?} {closed:?}");
        assert!(closed.code != Some(0), "{args:?} {closed:?}");
        let empty = run(&home, args, "0<>/dev/null");
        assert!(!empty.stderr.contains("closed"), "{args:?} {empty:?}");
    }
}

#[test]
fn too_few_descriptors_are_told_before_anything_is_asked() {
    let home = hosts();
    for number in 6..9 {
        let run = home.shell(
            &["--embedded", "2", "cat", "/etc/hosts"],
            &format!("ulimit -n {number} && exec \"$0\" \"$@\""),
        );
        assert_eq!((run.code, run.stdout.as_str()), (Some(3), ""), "{run:?}");
        let told = "sheaf: cannot start: Too many open files (EMFILE); ulimit -n says how many descriptors there may be\n";
        assert_eq!(run.stderr, told);
    }
}
