//! Reports of hosts that differ: who is named, what fails, and what is printed then.
use serde_json::Value;
use sheaf_testing::home::{Home, Run};

/// Six hosts: `odd` has two contents, `same` is missing on one, `number` counts, `raw` is no text.
fn home() -> Home {
    let home = Home::new();
    for host in 1..=6 {
        home.write(&format!("export/n{host}/etc/odd"), &format!("v{}\n", host % 2));
        home.write(&format!("export/n{host}/number"), &format!("{host}.5 x 2\n"));
        let raw = home.write(&format!("export/n{host}/raw"), "");
        std::fs::write(raw, b"raw\xff").unwrap();
        if host != 3 {
            home.write(&format!("export/n{host}/etc/same"), "same\n");
        }
    }
    home
}

fn run(home: &Home, args: &[&str]) -> Run {
    let export = home.path().join("export/%h");
    home.run(&[&["--embedded", "6", "--export", export.to_str().unwrap()], args].concat())
}

#[track_caller]
fn prints(home: &Home, args: &[&str], expected: &str) {
    let run = run(home, args);
    assert_eq!(
        (run.stdout.as_str(), run.stderr.as_str(), run.code),
        (expected, "", Some(0)),
        "{args:?}"
    );
}

const MISSING: &str = "n3:/etc/same: No such file or directory (ENOENT), 1 of 6 members\n\
                       sheaf: 5 of 6 members succeeded, 1 failed\n";

#[test]
fn missing_file_is_named_and_the_others_are_printed() {
    let home = home();
    let commands: &[(&[&str], &str)] = &[
        (&["cat", "/etc/same"], "same\n"),
        (&["stat", "-c", "%s", "/etc/same"], "n[1-2,4-6]:/etc/same:5\n"),
        (&["du", "-b", "/etc/same"], "5\tn[1-2,4-6]:/etc/same\n"),
        (&["read", "--aggregate", "count", "/etc/same"], "5\n"),
    ];
    for (args, expected) in commands {
        let run = run(&home, args);
        assert_eq!(
            (run.stdout.as_str(), run.stderr.as_str(), run.code),
            (*expected, MISSING, Some(4)),
            "{args:?}"
        );
    }
    for command in ["ls", "sha"] {
        let run = run(&home, &[command, "/etc/same"]);
        assert_eq!((run.stderr.as_str(), run.code), (MISSING, Some(4)), "{command}");
        assert!(run.stdout.contains("n[1-2,4-6]:") && run.stdout.lines().count() == 1, "{command}");
    }
}

#[test]
fn pattern_that_matches_nowhere_is_an_error_once() {
    let home = home();
    let told = "n[1-6]:/nothing*: No such file or directory (ENOENT), 6 of 6 members\n\
                sheaf: 0 of 6 members succeeded, 6 failed\n";
    for command in ["cat", "ls", "stat", "du", "sha", "read"] {
        let run = run(&home, &[command, "/nothing*"]);
        assert_eq!(
            (run.stdout.as_str(), run.stderr.as_str(), run.code),
            ("", told, Some(4)),
            "{command}"
        );
    }
    // What is read may be bytes for another program: even an empty answer's 0 would be taken for
    // some.
    let json = run(&home, &["--json", "read", "/nothing*"]);
    let summary: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&summary["type"], json.code), (&"summary".into(), Some(4)));
}

#[test]
fn pattern_that_matches_on_some_hosts_is_no_error_of_the_others() {
    prints(&home(), &["cat", "--heading", "/etc/sam*"], "==> n[1-2,4-6]:/etc/same <==\nsame\n");
}

#[test]
fn each_host_by_itself_is_in_host_order() {
    let expected: Vec<String> =
        (1..=6).map(|host| format!("==> n{host}:/etc/odd <==\nv{}\n", host % 2)).collect();
    prints(&home(), &["cat", "--each", "--heading", "/etc/odd"], &expected.join("\n"));
}

#[test]
fn bytes_in_a_pipe_are_those_of_the_file() {
    let home = home();
    let export = home.path().join("export/%h");
    let args =
        ["--embedded", "6", "--export", export.to_str().unwrap(), "cat", "--no-heading", "/raw"];
    let output = home.command(&args).output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"raw\xff"[..], Some(0)));
}

#[test]
fn numbers_are_combined_by_any_name_of_the_aggregation() {
    let home = home();
    for name in ["avg", "average", "mean"] {
        prints(&home, &["read", "--aggregate", name, "--column", "1", ":/number"], "4\n");
    }
    prints(&home, &["read", "--aggregate", "sum", "/number"], "24 x 12\n");
    prints(&home, &["read", "--aggregate", "zero", "/etc/odd"], "18\n");
    for name in ["classes", "contents", "equivalence"] {
        let expected = "==> n[1,3,5]:/etc/odd <==\nv1\n\n==> n[2,4,6]:/etc/odd <==\nv0\n";
        prints(&home, &["read", "--aggregate", name, "/etc/odd"], expected);
    }
}

/// Two hosts with these files called `f`.
fn two(first: &str, second: &str) -> Home {
    let home = Home::new();
    home.write("export/n1/f", first);
    home.write("export/n2/f", second);
    home
}

fn run_two(home: &Home, args: &[&str]) -> Run {
    let export = home.path().join("export/%h");
    home.run(&[&["--embedded", "2", "--export", export.to_str().unwrap()], args].concat())
}

#[test]
fn numbers_are_printed_to_the_last_digit() {
    let sum = |first, second| run_two(&two(first, second), &["read", "-a", "sum", ":/f"]).stdout;
    assert_eq!(sum("123456789012345", "0"), "123456789012345\n");
    assert_eq!(
        sum("170141183460469231731687303715884105726", "1"),
        "170141183460469231731687303715884105727\n"
    );
    assert_eq!(sum("0.1", "0.2"), "0.30000000000000004\n");
    assert_eq!(sum("1e308", "1e308"), "inf\n");
    let home = two("9007199254740993 0.5", "2 1e308");
    let json = run_two(&home, &["--json", "read", "-a", "sum", ":/f"]).stdout;
    assert!(json.contains(r#""numbers":[9007199254740995,1e308]"#), "{json}");
    let run = run_two(
        &two("170141183460469231731687303715884105727", "1"),
        &["read", "-a", "sum", ":/f"],
    );
    assert_eq!((run.stdout.as_str(), run.code), ("", Some(4)));
    assert_eq!(run.stderr, "sheaf: the sum of column 1 of line 1 does not fit 128 bits\n");
}

#[test]
fn several_addresses_are_one_group() {
    let home = two("5\n", "7\n");
    let run = |args: &[&str]| {
        let run = run_two(&home, &[&["read", "-a"], args].concat());
        (run.stdout, run.code)
    };
    let prints = |text: &str| (text.to_owned(), Some(0));
    assert_eq!(run(&["equal", "n1:/f", "n2:/f"]), (String::new(), Some(1)));
    assert_eq!(run(&["sum", "n1:/f", "n2:/f"]), prints("12\n"));
    assert_eq!(run(&["sum", "n1:/f", "n1:/f"]), prints("5\n"));
    assert_eq!(run(&["avg", "n[1-2]:/f", "n1:/f*"]), prints("6\n"));
    assert_eq!(run(&["count", "n[1-2]:/f*", "n[1-2]:/f"]), prints("2\n"));
    let json = run_two(&home, &["--json", "read", "-a", "count", "n1:/f", "n1:/f"]).stdout;
    assert!(json.contains(r#""members":1,"path":"/f""#), "{json}");
}

#[test]
fn text_that_all_files_share_is_printed_with_numbers() {
    let home = two(
        "MemTotal:       100 kB\nMemFree:         30 kB\n",
        "MemTotal:       200 kB\nHugepages: 1\nMemFree:         50 kB\n",
    );
    let run = |args: &[&str]| run_two(&home, &[&["read", "-a"], args].concat());
    let chosen = run(&["sum", "--line", "^Mem", "/f"]);
    assert_eq!(
        (chosen.stdout.as_str(), chosen.code),
        ("MemTotal: 300 kB\nMemFree: 80 kB\n", Some(0)),
        "{chosen:?}"
    );
    assert_eq!(run(&["max", "--line", "^MemFree", "--column", "2", "/f"]).stdout, "50\n");
    let json = run_two(&home, &["--json", "read", "-a", "sum", "--line", "^MemF", "/f"]);
    let entry: Value = serde_json::from_str(json.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(entry["places"][0]["text"], "MemFree: kB", "{entry}");
    for (args, told) in [
        (&["sum", "--line", "(", "/f"][..], "unclosed group"),
        (&["lines", "--line", "x", "/f"], "it selects lines of numbers (-a sum, avg, min, max)"),
    ] {
        let refused = run(args);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(told), "{refused:?}");
    }
}

#[test]
fn lines_say_where_they_hide_a_difference() {
    let home = two("a\nb\n", "b\na");
    let run = run_two(&home, &["read", "-a", "lines", "/f"]);
    assert_eq!((run.stdout.as_str(), run.code), ("n[1-2]:/f:a\nn[1-2]:/f:b\n", Some(0)), "{run:?}");
    let told = "n[1-2]:/f: contents differ in the order or repetition of equal lines, or in the last \
                newline; sheaf read -a classes shows them";
    assert_eq!(run.stderr, format!("sheaf: {told}\n"));
    let json = run_two(&home, &["--json", "read", "-a", "lines", "/f"]);
    let notes = json.stdout.lines().filter(|line| line.contains("\"type\":\"note\""));
    assert_eq!((notes.count(), json.stderr.as_str()), (1, ""), "{json:?}");
    let same = run_two(&two("a\nb\n", "a\n"), &["read", "-a", "lines", "/f"]);
    assert_eq!(same.stderr, "");
}

#[test]
fn host_without_a_number_in_a_column_is_named() {
    let home = two("N/A 5\n", "3 5\n");
    let run = run_two(&home, &["read", "-a", "sum", ":/f"]);
    assert_eq!((run.stdout.as_str(), run.code), ("3 10\n", Some(4)));
    assert_eq!(run.stderr, "n1:/f: no number in column 1 of line 1, 1 of 2 members\n");
    let json = run_two(&home, &["--json", "read", "-a", "sum", ":/f"]);
    let entry: Value = serde_json::from_str(json.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(entry["places"][0]["without_hosts"], "n1", "{entry}");
    assert_eq!(
        (&entry["places"][0]["members"], &entry["places"][1]["members"]),
        (&1.into(), &2.into())
    );
    let run = run_two(&home, &["read", "-a", "sum", "--column", "1", ":/f"]);
    assert_eq!((run.stdout.as_str(), run.code), ("3\n", Some(4)));
    assert!(
        run.stderr.starts_with(
            "n1:/f: Bad message (EBADMSG): no number in the columns that are wanted, 1 of 2 members\n"
        ),
        "{}",
        run.stderr
    );
    let run = run_two(&two("words only", "5"), &["read", "-a", "avg", ":/f"]);
    assert!(
        run.stderr.starts_with("n1:/f: Bad message (EBADMSG): no field of it is a number"),
        "{}",
        run.stderr
    );
    assert_eq!((run.stdout.as_str(), run.code), ("5\n", Some(4)));
}

#[test]
fn only_hosts_that_contributed_are_named_with_the_answer() {
    let home = two("words only", "5");
    std::fs::remove_file(home.path().join("export/n1/f")).unwrap();
    for aggregate in ["sum", "count", "zero", "concatenate"] {
        let json = run_two(&home, &["--json", "read", "-a", aggregate, ":/f"]);
        let entry: Value = serde_json::from_str(json.stdout.lines().next().unwrap()).unwrap();
        assert_eq!(
            (&entry["hosts"], &entry["count"]),
            (&"n2".into(), &1.into()),
            "{aggregate}: {entry}"
        );
    }
}

#[test]
fn files_are_counted_without_having_all_of_them_open() {
    let home = Home::new();
    (0..300).for_each(|n| drop(home.write(&format!("export/n1/many/{n}"), "x")));
    let sheaf = env!("CARGO_BIN_EXE_sheaf");
    let export = home.path().join("export/%h");
    let read = |aggregate: &str| {
        let mut command = home.command(&[]);
        let program = std::mem::replace(&mut command, std::process::Command::new("sh"));
        command.envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command.current_dir(home.path()).args(["-c", "ulimit -n 100; exec \"$@\"", "sh", sheaf]);
        command.args(["--embedded", "1", "--export", export.to_str().unwrap()]);
        Run::of(command.args(["read", "-a", aggregate, ":/many/*"]).output().unwrap())
    };
    let count = read("count");
    assert_eq!((count.stdout.as_str(), count.stderr.as_str(), count.code), ("300\n", "", Some(0)));
    assert_eq!(read("checksum").stdout.lines().count(), 300);
    let classes = read("classes");
    assert_eq!(classes.code, Some(4));
    assert!(
        classes
            .stderr
            .contains("(EMFILE): these are all open at once; count, zero and checksum take")
    );
}

#[test]
fn answer_that_is_too_large_names_the_setting() {
    let home = two(&"a".repeat(800), &"b".repeat(800));
    home.write("sheaf.toml", "[tuning]\nconcatenate_bytes_max = 1024\n");
    for aggregate in ["classes", "packed", "concatenate"] {
        let run = run_two(&home, &["read", "-a", aggregate, ":/f"]);
        assert_eq!((run.stdout.as_str(), run.code), ("", Some(4)), "{aggregate}");
        let told = "sheaf: the answers of all hosts need more than 1024 bytes: raise concatenate_bytes_max in [tuning]";
        assert!(run.stderr.starts_with(told), "{aggregate}: {}", run.stderr);
    }
    assert_eq!(run_two(&home, &["read", "-a", "checksum", ":/f"]).code, Some(0));
}

#[test]
fn line_that_is_too_long_names_the_option() {
    let home = two(&format!("{}x\n", "y".repeat(100_000)), "x\n");
    let run = run_two(&home, &["grep", "--max-line", "64K", "x", ":/f"]);
    assert_eq!((run.stdout.as_str(), run.code), ("n2:/f:x\n", Some(4)));
    let told =
        "n1:/f: Message too long (EMSGSIZE): a line needs more than the 65536 bytes of --max-line";
    assert!(run.stderr.starts_with(told), "{}", run.stderr);
    assert_eq!(run_two(&home, &["grep", "-c", "x", ":/f"]).stdout, "n[1-2]:/f:1\n");
}

#[test]
fn unknown_aggregation_is_one_line_and_exit_2() {
    let run = run(&home(), &["read", "--aggregate", "avgg", "/number"]);
    assert_eq!((run.stdout.as_str(), run.code, run.stderr.lines().count()), ("", Some(2), 1));
    assert!(
        run.stderr.contains("avgg") && run.stderr.contains("did you mean avg?"),
        "{}",
        run.stderr
    );
}

#[test]
fn every_command_has_json_that_parses() {
    let home = home();
    let commands: &[&[&str]] = &[
        &["cat", "/etc/odd"],
        &["cat", "/raw"],
        &["ls", "-l", "/etc"],
        &["stat", "/etc/odd"],
        &["du", "-c", "/etc"],
        &["sha", "/etc/odd"],
        &["read", "--aggregate", "lines", "/etc/odd"],
        &["read", "--aggregate", "packed", "/raw"],
        &["read", "--aggregate", "sum", "/number"],
    ];
    for args in commands {
        let run = run(&home, &[&["--json"], *args].concat());
        assert_eq!((run.stderr.as_str(), run.code), ("", Some(0)), "{args:?}");
        let objects: Vec<Value> =
            run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (summary, entries) = objects.split_last().unwrap();
        assert_eq!(
            (&summary["type"], &summary["succeeded"]),
            (&"summary".into(), &6.into()),
            "{args:?}"
        );
        assert!(!entries.is_empty(), "{args:?}");
        assert!(
            entries.iter().all(|entry| entry["type"] == "entry" && entry["hosts"].is_string()),
            "{args:?}"
        );
    }
}

/// GNU ls has a heading for each directory, too, and nothing below one that is empty.
#[test]
fn host_with_an_empty_directory_is_listed() {
    let home = Home::new();
    home.write("export/n1/d/sub/file", "");
    home.write("export/n2/d/sub/file", "");
    std::fs::create_dir_all(home.path().join("export/n3/d")).unwrap();
    std::fs::create_dir_all(home.path().join("export/n1/d/bare")).unwrap();
    let export = home.path().join("export/%h");
    let ls = |args: &[&str]| {
        let hosts = ["--embedded", "3", "--export", export.to_str().unwrap()];
        home.run(&[&hosts, args].concat())
    };
    let headed = ls(&["ls", "-1", "--heading", "/d"]);
    let expected = "n3:/d:\n\nn1:/d:\nbare\n\nn[1-2]:/d:\nsub\n";
    assert_eq!((headed.stdout.as_str(), headed.stderr.as_str()), (expected, ""));
    let below = ls(&["ls", "-R", "--heading", "/d"]);
    assert!(below.stdout.contains("\nn1:/d/bare:\n"), "{below:?}");
    // In a pipe each line is a name.
    let piped = ls(&["ls", "/d"]);
    assert_eq!(piped.stdout, "n1:/d/bare\nn[1-2]:/d/sub\n");
    let records = ls(&["--json", "ls", "/d"]);
    let records = records.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
    let unnamed: Vec<Value> = records
        .filter(|record: &Value| record["type"] == "entry" && record["name"].is_null())
        .collect();
    assert_eq!(unnamed.len(), 1);
    assert_eq!((&unnamed[0]["hosts"], &unnamed[0]["path"]), (&"n3".into(), &"/d".into()));
}
