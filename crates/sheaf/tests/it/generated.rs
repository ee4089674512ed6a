//! Completions and manual pages: made from the same definitions as the help.
use sheaf_testing::home::Home;

#[test]
fn completions_know_every_flag() {
    let home = Home::new();
    let script = home.run(&["completions", "bash"]).stdout;
    let flags = script.lines().filter_map(|line| line.trim().strip_prefix("opts=\""));
    let flags: Vec<&str> = flags.map(|line| line.trim_end_matches('"').trim()).collect();
    insta::assert_snapshot!("completions", flags.join("\n"));
}

#[test]
fn every_shell_is_served() {
    let home = Home::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = home.run(&["completions", shell]);
        assert_eq!(run.code, Some(0));
        assert!(run.stdout.contains("sheaf"), "{shell}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn every_command_has_a_page_with_its_options() {
    let home = Home::new();
    assert_eq!(home.run(&["man", "man/man1"]).code, Some(0));
    let mut pages: Vec<_> = std::fs::read_dir(home.path().join("man/man1"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    pages.sort();
    let mut list = String::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let options = text.lines().filter(|line| line.starts_with("\\fB\\-")).count();
        list += &format!("{} {options}\n", page.file_name().unwrap().to_string_lossy());
    }
    insta::assert_snapshot!(list, @"
    sheaf-archive-cat.1 24
    sheaf-archive-chmod.1 29
    sheaf-archive-chown.1 29
    sheaf-archive-cp.1 35
    sheaf-archive-du.1 42
    sheaf-archive-find.1 25
    sheaf-archive-forget.1 32
    sheaf-archive-get.1 32
    sheaf-archive-grep.1 55
    sheaf-archive-log.1 23
    sheaf-archive-ls.1 46
    sheaf-archive-mv.1 29
    sheaf-archive-repack.1 26
    sheaf-archive-repair.1 27
    sheaf-archive-rm.1 31
    sheaf-archive-stat.1 25
    sheaf-archive-store.1 43
    sheaf-archive-verify.1 24
    sheaf-archive.1 23
    sheaf-cat.1 35
    sheaf-chmod.1 28
    sheaf-chown.1 30
    sheaf-clean.1 26
    sheaf-completions.1 22
    sheaf-config-check.1 22
    sheaf-config-show.1 22
    sheaf-config-trust.1 24
    sheaf-config.1 22
    sheaf-cp.1 39
    sheaf-demo.1 25
    sheaf-doctor.1 23
    sheaf-down.1 23
    sheaf-du.1 39
    sheaf-grep.1 57
    sheaf-help.1 22
    sheaf-hosts.1 48
    sheaf-ln.1 28
    sheaf-ls.1 48
    sheaf-man.1 22
    sheaf-mkdir.1 27
    sheaf-mount.1 33
    sheaf-read.1 27
    sheaf-rm.1 30
    sheaf-serve.1 26
    sheaf-sha.1 32
    sheaf-stat.1 30
    sheaf-status.1 23
    sheaf-token.1 24
    sheaf-trace-diff.1 27
    sheaf-trace-export.1 24
    sheaf-trace-record.1 42
    sheaf-trace-recover.1 25
    sheaf-trace-replay.1 24
    sheaf-trace-report.1 28
    sheaf-trace-serve.1 37
    sheaf-trace-snapshot.1 22
    sheaf-trace-top.1 27
    sheaf-trace.1 22
    sheaf-tree-bench.1 27
    sheaf-tree-plan.1 23
    sheaf-tree-show.1 25
    sheaf-tree-simulate.1 27
    sheaf-tree.1 22
    sheaf-truncate.1 28
    sheaf-umount.1 22
    sheaf-up.1 26
    sheaf-write.1 32
    sheaf.1 23
    ");
}

#[test]
fn pages_say_of_which_program_they_are_and_what_may_be_repeated() {
    let home = Home::new();
    assert_eq!(home.run(&["man", "man1"]).code, Some(0));
    let page = |name: &str| std::fs::read_to_string(home.path().join("man1").join(name)).unwrap();
    let grep = page("sheaf-grep.1");
    let title = grep.lines().find(|line| line.starts_with(".TH")).unwrap();
    let expected = concat!(".TH sheaf-grep 1 \" \" \"sheaf ", env!("CARGO_PKG_VERSION"), "\"");
    assert!(title.starts_with(expected), "{title}");
    assert!(grep.contains("[\\fIADDR\\fR]..."), "{grep}");
    assert!(page("sheaf-cat.1").contains("<\\fIADDR\\fR>..."));
    assert!(!page("sheaf-ln.1").contains("fITARGET\\fR>..."));
}

#[test]
fn page_that_cannot_be_written_is_named() {
    let home = Home::new();
    home.write("file", "");
    let run = home.run(&["man", "file/man1"]);
    assert_eq!(run.code, Some(2));
    insta::assert_snapshot!(run.stderr, @"sheaf: file/man1: Not a directory (ENOTDIR): man writes its pages into a directory");
}
