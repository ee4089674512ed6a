//! The programs of `examples/`, run. Cargo builds them with the tests, unless it is asked for one
//! test binary alone.
use rustix::process::Signal;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{NAME, Up};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The example of `sheaf-session`, which README shows. The others are of `sheaf`.
const SMALL: &str = "average_load";

/// An example, where it is built, of the library as it is now.
fn example(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples").join(name);
    let built = |path: &Path| path.metadata().and_then(|about| about.modified()).ok();
    let library = if name == SMALL { "libsheaf_session-" } else { "libsheaf-" };
    let of_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(library) && name.ends_with(".rlib")
    };
    let files =
        std::fs::read_dir(test.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let library = files.filter(of_library).filter_map(|path| built(&path)).max();
    if built(&path) >= library && path.exists() {
        return Some(path);
    }
    // The harness would keep what `eprintln!` prints.
    sheaf_testing::skipped(&format!(
        "example {name} is not built, or is older than the library; cargo build --examples"
    ));
    None
}

/// Runs it with the surroundings of `home`.
fn run(home: &Home, name: &str, words: &[&str]) -> Option<Run> {
    let path = example(name)?;
    let like = home.command(&[]);
    let mut command = Command::new(path);
    command.args(words).current_dir(home.path()).env_clear();
    command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(Run::of(command.output().unwrap()))
}

#[test]
fn group_read_averages_over_servers_inside_it() {
    let home = Home::new();
    let file = home.write("n.txt", "7 x\n");
    let Some(run) = run(&home, "group_read", &[&format!("n[1-4]:{}", file.display())]) else {
        return;
    };
    assert_eq!(
        run.stdout, "average of column 1: 7 (4 files)\n4 of 4 read 16 bytes\n",
        "{}",
        run.stderr
    );
}

#[test]
fn own_server_starts_itself_as_processes() {
    let home = Home::new();
    let Some(run) = run(&home, "own_server", &["9"]) else { return };
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines[0], "9 of 9 hosts answered");
    // Nine times those of this machine.
    let sum = lines[1].strip_prefix("processes in all: [U64(").unwrap().strip_suffix(")]").unwrap();
    assert!(sum.parse::<u64>().unwrap() >= 9 * 9, "{sum}");
}

#[test]
fn own_service_answers_with_one_line_for_all() {
    let home = Home::new();
    let Some(run) = run(&home, "own_service", &[]) else { return };
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines[0], "64 of 64 hosts answered");
    let busiest: Vec<&str> = lines[1].strip_prefix("the busiest: ").unwrap().split(' ').collect();
    assert!(busiest[0].parse::<f64>().is_ok() && busiest[1].starts_with('n'), "{lines:?}");
}

#[test]
fn examples_say_what_is_wrong_as_the_command_does() {
    let home = Home::new();
    for (words, code, told) in [
        (&["join", "lab"][..], 3, "join: no session lab is running; start it with: sheaf up"),
        (&["group_read", "n[1-4"], 2, "group_read: "),
        (&["own_server", "many"], 4, "own_server: invalid digit found in string\n"),
    ] {
        let Some(run) = run(&home, words[0], &words[1..]) else { return };
        assert_eq!(run.code, Some(code), "{run:?}");
        assert!(run.stderr.starts_with(told) && run.stderr.lines().count() == 1, "{run:?}");
    }
}

#[test]
fn group_read_and_join_use_a_session_that_runs() {
    let home = Home::new();
    if example("join").is_none() {
        return;
    }
    let up = home.run(&["up", "--processes", "3", "--session", "lab"]);
    assert_eq!(up.code, Some(0), "{}", up.stderr);
    let file = home.write("n.txt", "5\n");
    let read = run(&home, "group_read", &[&format!(":{}", file.display()), "lab"]);
    let joined = run(&home, "join", &["lab"]);
    let down = home.run(&["down", "lab"]);
    assert_eq!(down.code, Some(0), "{}", down.stderr);
    let (read, joined) = (read.unwrap(), joined.unwrap());
    assert_eq!(
        read.stdout, "average of column 1: 5 (3 files)\n3 of 3 read 6 bytes\n",
        "{}",
        read.stderr
    );
    assert!(joined.stdout.starts_with("lab: 3 hosts: n[1-3]\nn1: process "), "{joined:?}");
    assert_eq!(joined.stdout.lines().count(), 4, "{joined:?}");
    // Without it, in one line, with what to do.
    let absent = run(&home, "join", &["lab"]).unwrap();
    assert_ne!(absent.code, Some(0));
    let (ended, advice) = ("session lab has ended (", "start it with: sheaf up -w HOSTS");
    assert!(absent.stderr.contains(ended) && absent.stderr.contains(advice), "{absent:?}");
}

#[test]
fn archive_stores_lists_and_reads_back() {
    let home = Home::new();
    std::fs::create_dir_all(home.path().join("notes/deep")).unwrap();
    home.write("notes/harvest", "The sheaf is bound.\n");
    home.write("notes/deep/field", "two\n");
    let Some(run) = run(&home, "archive", &["notes", "/harvest"]) else { return };
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines[0], "stored 2 files, 24 bytes");
    assert!(lines.contains(&"/deep: directory") && lines.contains(&"/deep/field: in a pack"));
    assert_eq!(lines.last(), Some(&"The sheaf is bound."));
}

#[test]
fn archive_says_what_is_not_there() {
    let home = Home::new();
    std::fs::create_dir(home.path().join("notes")).unwrap();
    for words in [&["notes", "/none"][..], &["missing", "/none"], &[]] {
        let Some(run) = run(&home, "archive", words) else { return };
        assert_eq!(run.code, Some(4), "{words:?}: {run:?}");
        assert!(run.stderr.lines().last().unwrap().starts_with("archive: "), "{run:?}");
    }
}

#[test]
fn trace_report_records_its_own_reads() {
    let home = Home::new();
    let Some(run) = run(&home, "trace_report", &[]) else { return };
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let first = run.stdout.lines().next().unwrap();
    let counted = first.strip_prefix("recorded ").and_then(|rest| rest.split_once(' ')).unwrap();
    assert!(counted.0.parse::<u64>().unwrap() >= 8, "{first}");
    assert!(run.stdout.contains("/proc/loadavg"), "{}", run.stdout);
}

#[test]
fn mounted_view_lends_a_host_to_a_program() {
    if !crate::mount::can_mount() {
        return;
    }
    let home = Home::new();
    let Some(run) = run(&home, "mounted_view", &["n2", "cat", "etc/passwd"]) else { return };
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.stdout, std::fs::read_to_string("/etc/passwd").unwrap());
}

#[test]
fn average_load_survives_a_dead_host_and_names_it() {
    if example(SMALL).is_none() {
        return;
    }
    let up = Up::new(&["--processes", "3"]);
    let whole = run(&up.home, SMALL, &[NAME]).unwrap();
    assert_eq!((whole.code, &*whole.stderr), (Some(0), ""));
    assert!(whole.stdout.starts_with("average of 3 hosts: "), "{whole:?}");

    up.servers["n2"].signal(Signal::KILL);
    let part = run(&up.home, SMALL, &[NAME]).unwrap();
    assert_eq!(part.code, Some(0), "{}", part.stderr);
    assert!(part.stdout.starts_with("average of 2 hosts: "), "{part:?}");
    assert_eq!(part.stderr, "n2: Host is down (EHOSTDOWN)\n");
}

/// README shows the heart of the program, line for line.
#[test]
fn readme_shows_the_example_of_sheaf_session() {
    let source = include_str!("../../../sheaf-session/examples/average_load.rs");
    let readme = include_str!("../../../../README.md");
    let (_, shown) = readme.split_once("```rust\n").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    let indented: String = shown.lines().map(|line| format!("    {line}\n")).collect();
    assert!(source.contains(&indented), "{indented}");
}
