//! Completions and manual pages: made from the same definitions as the help.
use crate::support::Home;

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
fn every_command_has_a_page_with_its_options() {
    let home = Home::new();
    assert_eq!(home.run(&["man", "man/man1"]).code, Some(0));
    let mut pages: Vec<_> =
        std::fs::read_dir(home.path().join("man/man1")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    let mut list = String::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let options = text.lines().filter(|line| line.starts_with("\\fB\\-")).count();
        list += &format!("{} {options}\n", page.file_name().unwrap().to_string_lossy());
    }
    insta::assert_snapshot!(list, @"
    sheaf-cat.1 25
    sheaf-chmod.1 25
    sheaf-chown.1 26
    sheaf-completions.1 20
    sheaf-config-check.1 20
    sheaf-config-show.1 20
    sheaf-config.1 20
    sheaf-cp.1 37
    sheaf-demo.1 22
    sheaf-down.1 21
    sheaf-du.1 31
    sheaf-grep.1 54
    sheaf-help.1 20
    sheaf-hosts.1 45
    sheaf-ln.1 26
    sheaf-ls.1 35
    sheaf-man.1 20
    sheaf-mkdir.1 25
    sheaf-read.1 24
    sheaf-rm.1 27
    sheaf-serve.1 23
    sheaf-sha.1 24
    sheaf-stat.1 25
    sheaf-status.1 20
    sheaf-token.1 22
    sheaf-tree-bench.1 25
    sheaf-tree-plan.1 21
    sheaf-tree-show.1 23
    sheaf-tree-simulate.1 25
    sheaf-tree.1 20
    sheaf-truncate.1 26
    sheaf-up.1 23
    sheaf-write.1 30
    sheaf.1 21
    ");
}

#[test]
fn a_page_that_cannot_be_written_is_named() {
    let home = Home::new();
    home.write("file", "");
    let run = home.run(&["man", "file/man1"]);
    assert_eq!(run.code, Some(4));
    insta::assert_snapshot!(run.stderr, @"sheaf: file/man1: Not a directory (ENOTDIR)");
}
