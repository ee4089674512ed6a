//! What the README shows is what happens: its first command, and every console block on a terminal.
use sheaf_testing::home::Home;
use std::process::{Command, Stdio};

const README: &str = include_str!("../../../../README.md");
/// Whose home the README shows.
const HOME: &str = "/home/me";

/// The first command, with the program that is built already.
#[test]
fn first_command() {
    const FIRST: &str = "target/release/sheaf ";
    let arguments = README.lines().find_map(|line| line.trim_start().strip_prefix(FIRST)).unwrap();
    let command = format!("{} {arguments}", env!("CARGO_BIN_EXE_sheaf"));
    let run = Command::new("sh").args(["-c", &command]).output().unwrap();
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{run:?}");
    assert!(
        told.contains("n[1-64]:/proc/meminfo:MemTotal:")
            && told.contains("n[1-64]:/etc/passwd:root:"),
        "{told}"
    );
}

/// Commands in the order of the README, each with what the README says it prints.
fn shown() -> Vec<(String, String)> {
    let mut shown: Vec<(String, String)> = Vec::new();
    for block in README.split("```console\n").skip(1) {
        let (block, _) = block.split_once("```").expect("the block ends");
        for line in block.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => shown.push((command.to_owned(), String::new())),
                None => {
                    *shown.last_mut().map(|(_, text)| text).expect("a command first") +=
                        &format!("{line}\n")
                }
            }
        }
    }
    shown
}

/// A line with the number of a process that the README has.
fn with_the_number_of_the_readme(line: &str) -> String {
    match line.split_once(", process ") {
        Some((before, number)) if number.trim_end().parse::<u32>().is_ok() => {
            format!("{before}, process 4711\n")
        }
        _ => line.to_owned(),
    }
}

/// All blocks in one directory, one after the other, on a terminal of 80 columns: what a newcomer
/// types and sees. Nothing outside the test's home is touched.
#[test]
fn every_console_block() {
    if !Command::new("script")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        sheaf_testing::skipped("script (Debian package bsdutils) is not installed");
        return;
    }
    let home = Home::new();
    let program =
        std::path::Path::new(env!("CARGO_BIN_EXE_sheaf")).parent().unwrap().display().to_string();
    let place = home.path().display().to_string();
    let shown = shown();
    assert!(shown.len() > 5, "the README has console blocks");
    for (command, text) in shown {
        // The exit code is the README's business only where it says so, by `echo $?`.
        let typed = format!("stty cols 80 rows 24 -echo; {command}");
        let mut terminal = home.command(&[]);
        let environment: Vec<_> =
            terminal.get_envs().map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned))).collect();
        terminal = Command::new("script");
        terminal.env_clear().current_dir(home.path());
        terminal.envs(environment.into_iter().filter_map(|(name, value)| Some((name, value?))));
        terminal
            .env("PATH", format!("{program}:/usr/bin:/bin"))
            .env("TERM", "dumb")
            .env("SHELL", "/bin/sh");
        let run =
            terminal.args(["-qec", &typed, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
        let seen =
            String::from_utf8(run.stdout).unwrap().replace("\r\n", "\n").replace(&place, HOME);
        // Only the number of a process is another every time.
        let seen: String = seen.split_inclusive('\n').map(with_the_number_of_the_readme).collect();
        assert_eq!(seen, text, "$ {command}");
    }
}

#[test]
fn every_rule_has_a_number_of_its_own() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/semantics.md"))
            .unwrap();
    let numbers: Vec<u32> =
        text.lines().filter_map(|line| line.split_once(". **")?.0.parse().ok()).collect();
    assert!(numbers.len() > 60, "the rules are not found any more");
    // In order: Markdown numbers a list on from its first number, whatever the others are.
    assert_eq!(numbers, (1..=u32::try_from(numbers.len()).unwrap()).collect::<Vec<_>>());
}
