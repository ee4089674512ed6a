//! Help: one snapshot for each command, without the global options that all of them repeat.
use sheaf_testing::home::Home;

pub const COMMANDS: &[&[&str]] = &[
    &["grep"],
    &["cat"],
    &["ls"],
    &["stat"],
    &["du"],
    &["sha"],
    &["read"],
    &["cp"],
    &["write"],
    &["chmod"],
    &["chown"],
    &["truncate"],
    &["rm"],
    &["mkdir"],
    &["ln"],
    &["hosts"],
    &["config"],
    &["config", "check"],
    &["config", "show"],
    &["up"],
    &["down"],
    &["status"],
    &["token"],
    &["trace"],
    &["trace", "record"],
    &["trace", "report"],
    &["trace", "export"],
    &["trace", "replay"],
    &["trace", "recover"],
    &["trace", "snapshot"],
    &["trace", "serve"],
    &["trace", "top"],
    &["mount"],
    &["umount"],
    &["archive"],
    &["archive", "store"],
    &["archive", "get"],
    &["archive", "ls"],
    &["archive", "cat"],
    &["archive", "find"],
    &["archive", "du"],
    &["archive", "rm"],
    &["archive", "verify"],
    &["archive", "repair"],
    &["archive", "log"],
    &["archive", "forget"],
    &["tree"],
    &["tree", "plan"],
    &["tree", "show"],
    &["tree", "bench"],
    &["tree", "simulate"],
    &["serve"],
    &["doctor"],
    &["clean"],
    &["demo"],
    &["completions"],
    &["man"],
    &["help"],
];
const COLUMNS_MAX: usize = 80;

fn help(command: &[&str]) -> String {
    let run = Home::new().run(&[command, &["--help"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    for line in run.stdout.lines() {
        assert!(line.chars().count() <= COLUMNS_MAX, "{command:?}: {line}");
    }
    run.stdout
}

/// Cuts the paragraphs from the heading of the global options to the next text at the margin.
fn without_globals(help: &str) -> String {
    let mut cut = false;
    let kept = help.lines().filter(|line| {
        if !line.is_empty() && !line.starts_with(' ') {
            cut = *line == "Global options:";
        }
        !cut
    });
    kept.map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn the_program() {
    insta::assert_snapshot!("sheaf", help(&[]));
}

/// All there is at a glance, for whoever has asked for little; and for whoever has said nothing.
#[test]
fn one_page() {
    let home = Home::new();
    let (short, none) = (home.run(&["-h"]), home.run(&[]));
    assert_eq!((short.code, short.stderr.as_str()), (Some(0), ""), "{short:?}");
    assert_eq!((none.code, none.stdout.as_str()), (Some(2), ""), "{none:?}");
    assert_eq!(short.stdout, none.stderr);
    insta::assert_snapshot!("sheaf-h", short.stdout);
}

#[test]
fn every_command() {
    for command in COMMANDS {
        insta::assert_snapshot!(command.join("-"), without_globals(&help(command)));
    }
}

#[test]
fn every_command_is_covered() {
    let top = help(&[]);
    let listed = top.lines().skip_while(|line| !line.starts_with("Usage")).skip(1);
    let listed = listed.take_while(|line| !line.starts_with("Options"));
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    for name in names {
        assert!(COMMANDS.iter().any(|command| command[0] == name), "no snapshot of {name}");
    }
}
