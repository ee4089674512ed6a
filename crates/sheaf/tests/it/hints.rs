//! What leads on whoever writes what other tools take: each is one line, and changes nothing.
use sheaf_testing::home::{Home, Run};
use std::os::unix::fs::symlink;
use std::process::Command;

#[track_caller]
fn refuses(run: &Run, expected: &str) {
    assert_eq!((run.stdout.as_str(), run.code), ("", Some(2)), "{run:?}");
    assert_eq!(run.stderr, format!("sheaf: {expected}\n"));
}

#[track_caller]
fn says(run: &Run, code: i32, part: &str) {
    assert_eq!(run.code, Some(code), "{run:?}");
    assert!(run.stderr.contains(part), "{run:?}");
}

/// A home whose directory `export` is what two hosts serve.
fn on_hosts(home: &Home, args: &[&str]) -> Run {
    let export = home.path().join("export");
    home.run(&[&["--embedded", "2", "--export", export.to_str().unwrap()], args].concat())
}

#[test]
fn grep_follows_links_as_gnu_grep_does() {
    let home = Home::new();
    for (name, text) in [("tree/a", "x\n"), ("tree/sub/b", "x\n"), ("other/c", "x\n")] {
        home.write(&format!("export/{name}"), text);
    }
    let at = |name: &str| home.path().join("export").join(name);
    symlink("..", at("tree/sub/up")).unwrap();
    symlink("../other", at("tree/link")).unwrap();
    symlink("a", at("tree/file-link")).unwrap();
    let gnu = |flag: &str| {
        let mut grep = Command::new("grep");
        let output = grep
            .args([flag, "x", "tree"])
            .current_dir(home.path().join("export"))
            .output()
            .unwrap();
        let mut lines: Vec<String> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| format!("n[1-2]:/{line}"))
            .collect();
        lines.sort();
        (lines, output.status.code())
    };
    let ours = |flag: &str| {
        let run = on_hosts(&home, &["grep", "--each", flag, "x", "/tree"]);
        let plain = on_hosts(&home, &["grep", "--no-heading", flag, "x", "/tree"]);
        assert_eq!(run.code, plain.code, "{run:?}");
        let mut paths: Vec<String> = run
            .stdout
            .lines()
            .filter_map(|line| line.strip_prefix("n1:"))
            .map(|line| format!("n[1-2]:{line}"))
            .collect();
        paths.sort();
        (paths, run.code)
    };
    assert_eq!(gnu("-r").0.len(), 2);
    assert_eq!(gnu("-R").0.len(), 4);
    for flag in ["-r", "-R", "-rR", "-Rr"] {
        assert_eq!(ours(flag), gnu(flag), "{flag}");
    }
    // A link that leads nowhere, or out of the export, is a failure, and only with -R.
    symlink("nowhere", at("tree/dangling")).unwrap();
    assert_eq!(ours("-r").1, Some(0));
    assert_eq!(gnu("-R").1, Some(2));
    let run = on_hosts(&home, &["grep", "-R", "x", "/tree"]);
    says(&run, 4, "n[1-2]:/tree/dangling: No such file or directory (ENOENT)");
}

#[test]
fn operators_of_basic_expressions_that_find_nothing_are_told() {
    let home = Home::new();
    home.write("export/f", "foo\n(x)\n");
    for (pattern, operator) in
        [("foo\\|bar", "| for \\|"), ("\\(a\\)", "( for \\("), ("f\\{1\\}oo", "{ for \\{")]
    {
        let run = on_hosts(&home, &["grep", pattern, "/f"]);
        let told =
            format!("sheaf: nothing matched; patterns are those of grep -E: write {operator}\n");
        assert_eq!((run.code, run.stderr), (Some(1), told));
    }
    for args in
        [&["-F", "a\\|b"][..], &["-q", "a\\|b"], &["a\\\\|b"], &["bar"], &["--quiet", "a\\|b"]]
    {
        let run = on_hosts(&home, &[&["grep"], args, &["/f"]].concat());
        assert_eq!((run.code, run.stderr.as_str()), (Some(1), ""), "{args:?}");
    }
    let run = on_hosts(&home, &["grep", "\\(x", "/f"]);
    assert_eq!((run.stderr.as_str(), run.code), ("", Some(0)), "{run:?}");
}

#[test]
fn target_of_a_link_has_no_hosts() {
    let home = Home::new();
    home.write("export/app", "x\n");
    refuses(
        &on_hosts(&home, &["ln", "-s", ":/app", "@all:/x"]),
        ":/app: write the target without hosts, which LINK says: /app (a file of that very name is ./:/app)",
    );
    refuses(
        &on_hosts(&home, &["ln", "-s", "n[1-2]:/app", "@all:/x"]),
        "n[1-2]:/app: write the target without hosts, which LINK says: /app (a file of that very name is \
         ./n[1-2]:/app)",
    );
    refuses(
        &on_hosts(&home, &["ln", ":/app", "@all:/x"]),
        ":/app: write the target without hosts, which LINK says: /app",
    );
    assert!(home.path().join("export/x").symlink_metadata().is_err());
    for target in ["./:/app", "a:b", "/with:colon"] {
        let run = on_hosts(&home, &["ln", "-sf", target, "n1:/x"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert_eq!(
            std::fs::read_link(home.path().join("export/x")).unwrap().to_str(),
            Some(target)
        );
    }
}

#[test]
fn hosts_that_no_configuration_names_lead_to_the_option() {
    let home = Home::new();
    let told = |address: &str| {
        let run = home.run(&["cat", address]);
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{run:?}");
        let (head, rest) = run.stderr.split_once(" (").unwrap();
        assert_eq!(head, "sheaf: no configuration names hosts, so there is only this machine");
        rest.split_once("): ").unwrap().1.trim_end().to_owned()
    };
    assert_eq!(told("h1:/etc/hostname"), "give them with -w 'h1', or write a sheaf.toml");
    assert_eq!(told("h[1-2]:/etc/hostname"), "give them with -w 'h[1-2]', or write a sheaf.toml");
    assert_eq!(
        told("root@h1:/etc/hostname"),
        "give them with -w 'h1' -l root, or write a sheaf.toml"
    );
    // Where hosts are named, these are no hosts of theirs.
    refuses(
        &on_hosts(&home, &["cat", "h1:/x"]),
        "h1 is no host of cluster embedded (n[1-2]); did you mean n1?",
    );
}

#[test]
fn hosts_that_were_given_to_greps_own_option_are_noticed() {
    let home = Home::new();
    let file = home.write("file", "h1 root\n");
    let file = file.to_str().unwrap();
    let hint = "hosts are said with --hosts, or with -w before grep";
    says(&home.run(&["grep", "-w", "h[1-2]", "root", file]), 4, hint);
    says(&home.run(&["grep", "-w", "h1", "root", file]), 4, hint);
    home.write("export/file", "h1 root\n");
    says(&on_hosts(&home, &["grep", "-w", "h[1-2]", "root", "/file"]), 2, hint);
    // A pattern is one where its files are there, and a missing file is one.
    let run = home.run(&["grep", "-w", "h[1-2]", file]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    let run = home.run(&["grep", "-w", "h1", "/missing"]);
    assert!(run.code == Some(4) && !run.stderr.contains(hint), "{run:?}");
}

#[test]
fn impossible_arguments_are_refused_with_a_hint() {
    let home = Home::new();
    std::fs::create_dir(home.path().join("there")).unwrap();
    home.write("export/file", "");
    refuses(
        &home.run(&["grep", "-f", "/nonexistent", "/etc/passwd"]),
        "patterns: /nonexistent: No such file or directory (ENOENT)",
    );
    refuses(
        &home.run(&["demo", "--files", "there"]),
        "there: File exists (EEXIST): --files makes a directory: name one that is not there yet",
    );
    refuses(
        &home.redirected(&["hosts"], "<&-"),
        "standard input is closed; < /dev/null is an empty one",
    );
    let copied = on_hosts(&home, &["cp", "there", "@all:/"]);
    says(&copied, 4, "sheaf: there: Is a directory (EISDIR): -r copies directories\n");
}

#[test]
fn paths_that_hosts_do_not_have_are_told_as_what_they_are() {
    let home = Home::new();
    refuses(
        &on_hosts(&home, &["cat", "-"]),
        "-: standard input is not read here; a file of that name is written with its directory",
    );
    refuses(
        &home.run(&["grep", "x", "-"]),
        "-: standard input is not read here; a file of that name is written with its directory",
    );
    refuses(
        &on_hosts(&home, &["cat", "n[1-2]:~/x"]),
        "n[1-2]:~/x: there is no ~ on hosts: write the path from the top, n[1-2]:/…",
    );
    for path in ["./x", "../x"] {
        refuses(
            &on_hosts(&home, &["cat", path]),
            &format!(
                "{path}: there is no working directory on hosts: write the path from the top, /…"
            ),
        );
    }
    refuses(
        &on_hosts(&home, &["cat", "etc/x"]),
        "etc/x: a path on hosts begins with a slash: write /etc/x",
    );
    home.write("-", "of that name\n");
    assert_eq!(home.run(&["cat", "--no-heading", "./-"]).stdout, "of that name\n");
}

#[test]
fn pages_are_written_where_a_directory_is_meant() {
    let home = Home::new();
    refuses(
        &home.run(&["man", "grep"]),
        "grep: man writes all pages into a directory; sheaf help grep shows what there is of grep (a directory \
         of that name is ./grep)",
    );
    assert!(!home.path().join("grep").exists());
    let run = home.run(&["man", "./grep"]);
    let count = std::fs::read_dir(home.path().join("grep")).unwrap().count();
    assert_eq!((run.code, run.stderr), (Some(0), format!("{count} pages written to ./grep\n")));
    assert_eq!(home.run(&["--quiet", "man", "grep"]).stderr, "");
}

/// What the hints for other tools' commands say works, and does what they say.
#[test]
fn hints_for_other_tools_hold() {
    let home = Home::new();
    home.write("export/dir/file", "1\n2\n3\n");
    std::fs::create_dir(home.path().join("export/empty")).unwrap();
    let prints = |args: &[&str], expected: &str| {
        let run = on_hosts(&home, args);
        assert_eq!((run.stdout.as_str(), run.code), (expected, Some(0)), "{args:?}: {run:?}");
    };
    prints(&["grep", "-h", "-m", "2", "", "/dir/file"], "1\n2\n");
    prints(&["grep", "-c", "", "/dir/file"], "n[1-2]:/dir/file:3\n");
    prints(&["stat", "-c", "%s", "/dir/file"], "n[1-2]:/dir/file:6\n");
    prints(&["ls", "-R", "--no-heading", "/dir"], "file\n");
    let classes = on_hosts(&home, &["read", "-a", "classes", "--count", "1", "/dir/file"]);
    assert_eq!(classes.stdout, "==> n[1-2]:/dir/file <==\n1", "{classes:?}");
    let sum = on_hosts(&home, &["read", "-a", "sum", "--column", "1", "/dir/file"]);
    assert!(sum.code == Some(0) && sum.stdout.contains('6'), "{sum:?}");
    assert_eq!(on_hosts(&home, &["rm", "-dy", "n1:/empty"]).code, Some(0));
    assert!(!home.path().join("export/empty").exists());
    assert_eq!(
        on_hosts(&home, &["truncate", "-s", "+0", "@all:/new", "@all:/dir/file"]).code,
        Some(0)
    );
    assert_eq!(std::fs::read(home.path().join("export/new")).unwrap(), b"");
    let append = ["write", "--append", "--create", "--data", "4\n", "n1:/dir/file"];
    assert_eq!(on_hosts(&home, &append).code, Some(0));
    assert_eq!(std::fs::read(home.path().join("export/dir/file")).unwrap(), b"1\n2\n3\n4\n");
    let comm = home.run(&["grep", "-s", ".", "/proc/[0-9]*/comm"]);
    assert!(comm.stdout.contains("/comm"), "{comm:?}");
    assert_eq!(home.run(&["hosts", "--list"]).code, Some(0));
    assert!(home.run(&["--version"]).stdout.starts_with("sheaf "));
    for word in ["find", "rsync", "ssh", "stop", "less", "groups", "wc", "ps"] {
        let run = home.run(&[word, "/x"]);
        assert!(run.stderr.starts_with(&format!("sheaf: there is no command {word}: ")), "{run:?}");
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1));
    }
}

#[test]
fn completions_offer_values_that_have_names() {
    let script = Home::new().run(&["completions", "bash"]).stdout;
    assert!(script.contains("compgen -W \"embedded processes ssh slurm attach\""));
    assert!(script.contains("compgen -W \"concatenate packed sum avg average min max"));
}

#[test]
fn tilde_in_quotes_is_named() {
    let home = Home::new();
    refuses(
        &home.run(&["cat", "~/f"]),
        "~/f: the shell does not expand a ~ in quotes: write ~/f without them, or \"$HOME/f\" (a \
         directory of that name is ./~)",
    );
    home.write("~/f", "of that name\n");
    assert_eq!(home.run(&["cat", "--no-heading", "~/f"]).stdout, "of that name\n");
}

#[test]
fn export_with_a_capital_letter_for_the_host_is_refused() {
    let export = Home::new().run(&["--embedded", "2", "--export", "/srv/%H", "ls", ":/"]);
    refuses(&export, "--export /srv/%H: %H is not replaced: write %h for the host's name");
}

#[test]
fn file_in_place_of_the_directory_of_pages_is_refused() {
    let home = Home::new();
    home.write("file", "");
    let run = home.run(&["man", "file"]);
    let told = "sheaf: file: Not a directory (ENOTDIR): man writes its pages into a directory\n";
    assert!(run.code == Some(2) && run.stderr.ends_with(told), "{run:?}");
    // What is in the place of a page is replaced, and not written through.
    std::fs::create_dir(home.path().join("pages")).unwrap();
    symlink("../file", home.path().join("pages/sheaf-cp.1")).unwrap();
    let run = home.run(&["man", "pages"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(std::fs::read_to_string(home.path().join("file")).unwrap(), "");
    assert!(!home.path().join("pages/sheaf-cp.1").is_symlink());
}

#[test]
fn down_without_any_session_names_none() {
    let run = Home::new().run(&["down"]);
    let told = "sheaf: no session is running; sheaf up starts one\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(3), told), "{run:?}");
}

#[test]
fn command_without_its_subcommand_lists_the_subcommands_only() {
    for (command, below) in
        [("config", "  check  "), ("tree", "  bench     "), ("trace", "  top  ")]
    {
        let run = Home::new().run(&[command]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert!(run.stderr.contains(below) && !run.stderr.contains("--embedded"), "{run:?}");
        let last = format!("All options: sheaf {command} --help\n");
        assert!(run.stderr.ends_with(&last), "{run:?}");
    }
}

#[test]
fn demo_says_that_its_files_are_removed() {
    let run = Home::new().run(&["demo", "--servers", "4"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let end = run.stdout.rsplit("\n\n").next().unwrap();
    assert!(end.starts_with("# The files of this tour are removed now."), "{end}");
    assert!(end.contains("$ sheaf demo --files sheaf-demo --servers 4\n"), "{end}");
}
