//! Exit codes: a partial answer is 4 whatever the others said, and `--json` says the same.
use serde_json::Value;
use sheaf_testing::home::{Home, Run};

/// Four hosts: `all` is everywhere, `some` is missing on n3, `differs` has a content of each
/// host's.
fn home() -> Home {
    let home = Home::new();
    for host in 1..=4 {
        home.write(&format!("export/n{host}/all"), "here\n");
        home.write(&format!("export/n{host}/differs"), &format!("{host}\n"));
        if host != 3 {
            home.write(&format!("export/n{host}/some"), "here\n");
        }
    }
    home
}

fn run(home: &Home, args: &[&str]) -> Run {
    let export = home.path().join("export/%h");
    home.run(&[&["--embedded", "4", "--export", export.to_str().unwrap()], args].concat())
}

const CASES: &[(i32, &[&str])] = &[
    (0, &["grep", "here", ":/all"]),
    (0, &["grep", "-q", "here", ":/all"]),
    (0, &["grep", "-c", "here", ":/all"]),
    (0, &["grep", "-L", "here", ":/all"]),
    (0, &["grep", "-o", "", ":/all"]),
    (1, &["grep", "-o", "there", ":/all"]),
    (1, &["grep", "-L", "there", ":/all"]),
    (1, &["grep", "there", ":/all"]),
    (1, &["grep", "-q", "there", ":/all"]),
    (1, &["grep", "-l", "there", ":/all"]),
    (1, &["grep", "-c", "there", ":/all"]),
    (1, &["grep", "-m", "0", "here", ":/all"]),
    (4, &["grep", "here", ":/some"]),
    (4, &["grep", "there", ":/some"]),
    (4, &["grep", "-q", "here", ":/some"]),
    (4, &["grep", "-q", "there", ":/some"]),
    (4, &["grep", "-l", "here", ":/some"]),
    (4, &["grep", "-c", "here", ":/some"]),
    (4, &["grep", "-c", "there", ":/some"]),
    (4, &["grep", "-s", "here", ":/some"]),
    (4, &["grep", "-s", "here", ":/none"]),
    (0, &["cat", ":/all"]),
    (4, &["cat", ":/some"]),
    (4, &["cat", ":/none"]),
    (4, &["ls", ":/some"]),
    (4, &["stat", ":/some"]),
    (4, &["du", ":/some"]),
    (4, &["sha", ":/some"]),
    (4, &["read", ":/some"]),
    (0, &["read", "-a", "equal", ":/all"]),
    (1, &["read", "-a", "equal", ":/differs"]),
    (4, &["read", "-a", "equal", ":/differs", ":/some"]),
    (4, &["chmod", "0644", "@all:/some"]),
    (4, &["cp", ":/some", "got"]),
    (2, &["grep", "(", ":/all"]),
    (2, &["cat", "n9:/all"]),
];

#[test]
fn partial_answer_is_4_and_no_match_is_1() {
    let home = home();
    for (code, args) in CASES {
        let run = run(&home, args);
        assert_eq!(run.code, Some(*code), "{args:?}: {run:?}");
    }
}

#[test]
fn summary_of_json_has_the_exit_code_of_the_program() {
    let home = home();
    // Errors that end a command have no summary.
    for (code, args) in CASES.iter().filter(|(code, args)| *code != 2 && !args.contains(&"equal")) {
        let run = run(&home, &[&["--json"], *args].concat());
        let summary: Value = serde_json::from_str(run.stdout.lines().last().unwrap()).unwrap();
        assert_eq!(summary["type"], "summary", "{args:?}");
        assert_eq!(
            (run.code, summary["exit"].as_i64()),
            (Some(*code), Some(i64::from(*code))),
            "{args:?}"
        );
    }
}

#[test]
fn grep_counts_what_was_named() {
    let home = home();
    let told = run(&home, &["grep", "-h", "here", ":/all", ":/some", ":/none"]);
    assert_eq!((told.code, told.stdout.as_str()), (Some(4), "here\nhere\n"));
    assert_eq!(
        told.stderr,
        "n[1-4]:/none: No such file or directory (ENOENT), 4 of 12 members\n\
         n3:/some: No such file or directory (ENOENT), 1 of 12 members\n\
         sheaf: 7 of 12 members succeeded, 5 failed\n"
    );
    let json = run(&home, &["--json", "grep", "here", ":/all", ":/none"]);
    let summary: Value = serde_json::from_str(json.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((summary["succeeded"].as_u64(), summary["members"].as_u64()), (Some(4), Some(8)));
    let searched = run(&home, &["--json", "grep", "-r", "here", ":/"]);
    let summary: Value = serde_json::from_str(searched.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((summary["succeeded"].as_u64(), searched.code), (Some(4), Some(0)));
}

#[test]
fn without_messages_the_exit_code_still_tells() {
    let home = home();
    let run = run(&home, &["grep", "-s", "here", ":/some"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(4), ""));
    assert!(run.stdout.starts_with("n[1-2,4]:/some:"), "{run:?}");
}

#[test]
fn host_without_a_file_to_search_has_answered() {
    let home = Home::with_config("[tuning]\nstart_timeout_ms = 1000\n");
    std::fs::create_dir_all(home.path().join("export/n1/empty")).unwrap();
    let export = home.path().join("export/%h");
    let none = home.run(&[
        "--embedded",
        "1",
        "--export",
        export.to_str().unwrap(),
        "grep",
        "-r",
        "x",
        ":/empty",
    ]);
    assert_eq!((none.code, none.stderr.as_str()), (Some(1), ""));
}

/// A file that was not searched is no file without a match.
#[test]
fn compressed_file_without_a_decoder_is_a_failed_member() {
    let home = home();
    let file = home.path().join("export/n1/log");
    std::fs::write(file, b"\x04\x22\x4d\x18\x64\x40\xa7needle\n").unwrap();
    let unsearched = run(&home, &["grep", "-z", "needle", "n1:/log", "n1:/all"]);
    let told = "n1:/log: Operation not supported (EOPNOTSUPP): not searched: it is compressed, but not by \
                gzip, zstd, xz or bzip2, 1 of 2 members\n";
    assert_eq!((unsearched.stdout.as_str(), unsearched.code), ("", Some(4)), "{unsearched:?}");
    assert!(unsearched.stderr.starts_with(told), "{unsearched:?}");
    let quiet = run(&home, &["grep", "-zqs", "needle", "n1:/log"]);
    assert_eq!((quiet.stderr.as_str(), quiet.code), ("", Some(4)));
    // Without -z it is searched as it is.
    assert_eq!(run(&home, &["grep", "-ac", "needle", "n1:/log"]).stdout, "n1:/log:1\n");
}

/// Hosts that fell silent below what they had said are no hosts without an answer.
#[test]
fn hosts_that_fall_silent_after_an_answer_make_it_partial() {
    let home = Home::new();
    let file = home.write("a", "foo\n");
    // The whole machine is each host's export: the device has no end.
    let global = ["--timeout", "3", "--embedded", "2", "--export", "/"];
    let args = ["grep", "foo", file.to_str().unwrap(), "/dev/zero"];
    let run = home.run(&[&global[..], &args].concat());
    assert_eq!(run.stdout, format!("n[1-2]:{}:foo\n", file.display()), "{run:?}");
    let told = "n[1-2]: not done within 3 s (ETIMEDOUT)\n\
                sheaf: 2 of 4 members succeeded; 2 hosts not done\n";
    assert_eq!((run.stderr.as_str(), run.code), (told, Some(4)));
    let run = home.run(&[&global[..], &["--json"], &args].concat());
    let summary: Value = serde_json::from_str(run.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        (run.code, &summary["exit"], &summary["succeeded"], &summary["members"]),
        (Some(4), &Value::from(4), &Value::from(2), &Value::from(4)),
        "{run:?}"
    );
    let run = home.run(&[&global[..], &["grep", "foo", "/dev/zero"]].concat());
    assert_eq!((run.stdout.as_str(), run.code), ("", Some(3)), "nothing was said: {run:?}");
}

#[test]
fn manual_pages_have_the_exit_codes() {
    let home = Home::new();
    assert_eq!(home.run(&["man", "man1"]).code, Some(0));
    for page in ["sheaf.1", "sheaf-grep.1", "sheaf-ls.1", "sheaf-tree-show.1"] {
        let text = std::fs::read_to_string(home.path().join("man1").join(page)).unwrap();
        for code in ["0", "1", "2", "3", "4", "130"] {
            let said = |line: &str| line.split_whitespace().next() == Some(code);
            assert!(text.lines().any(said), "{page}: {code}");
        }
        assert!(text.contains("partial: some members failed or were silent"), "{page}");
    }
}
