//! Standard streams that are closed, full or not meant for what is done with them.
use sheaf_testing::home::{Home, Run};

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
fn answer_that_cannot_be_printed_is_no_answer() {
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
        &["rm", "-v", "--dry-run", "@all:/f"],
    ] {
        for (redirection, told) in [(">&-", CLOSED), ("1</dev/null", CLOSED), (">/dev/full", FULL)]
        {
            let run = run(&home, args, redirection);
            let code =
                if run.stderr.contains("--nonsense") || run.stderr.contains("n7") { 2 } else { 4 };
            assert_eq!(run.code, Some(code), "{args:?} {redirection}: {run:?}");
            assert!(code == 2 || run.stderr.contains(told), "{args:?} {redirection}: {run:?}");
        }
        // A caller who wants none of it says so, in any mode.
        for redirection in [">/dev/null", "1<>/dev/null"] {
            let run = run(&home, args, redirection);
            assert!(!run.stderr.contains("standard output"), "{args:?} {redirection}: {run:?}");
        }
    }
}

#[test]
fn command_without_output_works_with_closed_stdout() {
    let home = hosts();
    let run = run(&home, &["rm", "n1:/f"], ">&-");
    assert_eq!((run.stderr.as_str(), run.code), ("removed on n1: 1 file\n", Some(0)));
    assert!(!home.path().join("n1/f").exists());
}

#[test]
fn full_standard_error_changes_no_answer() {
    let home = hosts();
    home.write("n1/only", "x\n");
    for redirection in ["2>/dev/full", "2>&-"] {
        let whole = run(&home, &["read", "-a", "sum", "/f"], redirection);
        assert_eq!((whole.stdout.as_str(), whole.code), ("2 x\n", Some(0)), "{redirection}");
        let partial = run(&home, &["cat", "/only"], redirection);
        assert_eq!((partial.stdout.as_str(), partial.code), ("x\n", Some(4)), "{redirection}");
        assert_eq!(run(&home, &["--nonsense"], redirection).code, Some(2), "{redirection}");
        let status = run(&home, &["status"], redirection);
        assert_eq!((status.stdout.as_str(), status.code), ("", Some(0)), "{redirection}");
    }
}

#[test]
fn input_that_is_closed_is_no_empty_one() {
    let home = hosts();
    for args in [
        &["write", "@all:/new"][..],
        &["grep", "-f", "-", "/f"],
        &["cp", "-", "@all:/new"],
        &["hosts", "-f", "-"],
    ] {
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

/// What `args` come to when whoever reads the output is gone already.
fn run_unread(home: &Home, args: &[&str]) -> Run {
    let export = home.path().join("%h");
    let global = ["--embedded", "2", "--export", export.to_str().unwrap()];
    let script = "( sleep .2; \"$0\" \"$@\"; echo $? >&2 ) | true";
    let mut run = home.shell(&[&global, args].concat(), script);
    let (told, code) =
        run.stderr.trim_end().rsplit_once('\n').unwrap_or(("", run.stderr.trim_end()));
    (run.code, run.stderr) = (code.parse().ok(), told.to_owned());
    run
}

#[test]
fn reader_that_leaves_changes_no_exit_code() {
    let home = hosts();
    home.write("n1/only", "x\n");
    home.write("n1/other", "1\n");
    home.write("n2/other", "2\n");
    home.write("n1/long", &"x".repeat(3 << 20));
    home.write("n2/long", &"y".repeat(3 << 20));
    for (code, args) in [
        (0, &["cat", "/f"][..]),
        (0, &["cat", "/long"]),
        (4, &["cat", "/only"]),
        (4, &["cat", "/long", "/only"]),
        (0, &["grep", "x", "/f"]),
        (1, &["grep", "-c", "zzz", "/f"]),
        (4, &["--json", "ls", "/only"]),
        (1, &["--json", "read", "-a", "equal", "/other"]),
        (4, &["--json", "read", "-a", "equal", "/only"]),
        (4, &["--json", "chmod", "0600", "@all:/only"]),
        (4, &["-v", "rm", "@all:/only"]),
        (2, &["--json", "--nonsense"]),
        (0, &["completions", "bash"]),
    ] {
        let run = run_unread(&home, args);
        assert_eq!(run.code, Some(code), "{args:?} {run:?}");
        assert!(!run.stderr.contains("standard output"), "{args:?} {run:?}");
    }
    let run = run_unread(&home, &["--json", "rm", "@all:/f"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), "removed on n[1-2]: 2 files"));
}

#[test]
fn change_whose_list_cannot_be_printed_is_reported() {
    for verbose in [&["-v"][..], &["--json"]] {
        for redirection in [">/dev/full", ">&-"] {
            let home = hosts();
            std::fs::remove_file(home.path().join("n2/f")).unwrap();
            let run = run(&home, &[verbose, &["rm", "@all:/f"]].concat(), redirection);
            assert_eq!(run.code, Some(4), "{run:?}");
            for told in
                ["removed on n1: 1 file\n", "n2:/f: No such file", "sheaf: standard output: "]
            {
                assert!(run.stderr.contains(told), "{redirection}: {run:?}");
            }
        }
    }
}

#[test]
fn change_that_is_refused_says_so_in_json() {
    let home = hosts();
    let run = run(&home, &["--json", "rm", "-i", "@all:/f"], "</dev/null");
    assert_eq!(run.code, Some(1), "{run:?}");
    let record: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&record["type"], &record["exit"]), (&"summary".into(), &1.into()));
    assert!(home.path().join("n1/f").exists());
}

#[test]
fn source_that_cannot_be_read_empties_no_file() {
    let home = hosts();
    for (args, redirection) in [
        (&["cp", "--no-atomic", "-", "@all:/f"][..], "</tmp"),
        (&["cp", "--no-atomic", "-", "@all:/f"], "0>/dev/null"),
        (&["cp", "--no-atomic", "/proc/self/mem", "@all:/f"], ""),
    ] {
        let run = run(&home, args, redirection);
        assert_eq!(run.code, Some(4), "{args:?} {run:?}");
        assert_eq!(std::fs::read_to_string(home.path().join("n1/f")).unwrap(), "1 x\n", "{args:?}");
    }
}
