//! Several addresses: their order is that of the answers, and what lies in two of them counts once.
use sheaf_testing::home::{Home, Run};
use std::process::Command;

/// Two hosts with the same files; `deep/two` is another name of `deep/one`.
fn home() -> Home {
    let home = Home::new();
    for host in 1..=2 {
        for (name, text) in [("a", "first\n"), ("b", "second\n"), ("c", "third\n")] {
            home.write(&format!("n{host}/{name}"), text);
        }
        let one = home.write(&format!("n{host}/deep/one"), &"x".repeat(10_000));
        std::fs::create_dir(home.path().join(format!("n{host}/other"))).unwrap();
        std::fs::hard_link(one, home.path().join(format!("n{host}/other/two"))).unwrap();
    }
    home
}

fn run(home: &Home, args: &[&str]) -> Run {
    let export = home.path().join("%h");
    let run =
        home.run(&[&["--embedded", "2", "--export", export.to_str().unwrap()], args].concat());
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}: {run:?}");
    run
}

/// The last letter of each line: the file that it is of.
fn files(run: &Run, end: impl Fn(&str) -> char) -> String {
    run.stdout.lines().map(end).collect()
}

#[test]
fn answers_are_in_the_order_of_the_arguments() {
    let home = home();
    for order in [["c", "a", "b"], ["b", "c", "a"]] {
        let paths = order.map(|name| format!(":/{name}"));
        let args = |command: &[&'static str]| -> Vec<&str> {
            command.iter().copied().chain(paths.iter().map(String::as_str)).collect()
        };
        let last = |line: &str| line.chars().last().unwrap();
        assert_eq!(files(&run(&home, &args(&["sha"])), last), order.concat());
        assert_eq!(files(&run(&home, &args(&["du"])), last), order.concat());
        assert_eq!(files(&run(&home, &args(&["stat", "-c", "%n"])), last), order.concat());
        let path = |line: &str| line.split(':').nth(1).unwrap().chars().last().unwrap();
        assert_eq!(files(&run(&home, &args(&["grep", "."])), path), order.concat());
        let texts = order.map(|name| ["first\n", "second\n", "third\n"]["abc".find(name).unwrap()]);
        assert_eq!(run(&home, &args(&["cat", "--no-heading"])).stdout, texts.concat());
        // As GNU ls, which sorts its arguments.
        assert_eq!(files(&run(&home, &args(&["ls"])), last), "abc");
    }
}

#[test]
fn hosts_that_are_asked_for_different_paths_keep_the_order() {
    let home = home();
    let mixed = run(&home, &["grep", "-l", ".", "n1:/c", ":/a", "n2:/b", "n2:/c"]);
    assert_eq!(mixed.stdout, "n[1-2]:/{c,a}\nn2:/b\n");
}

#[test]
fn du_counts_files_named_by_two_arguments_once() {
    let home = home();
    let root = home.path().join("n1");
    for args in [
        &["-c", "/deep", "/deep"][..],
        &["-c", "/deep/one", "/deep/one"],
        &["-c", "/deep", "/deep/one"],
        &["-c", "/deep/one", "/deep"],
        &["-c", "/deep", "/other"],
        &["-c", "/other", "/deep"],
        &["-cs", "/deep", "/other", "/a", "/a"],
        &["-ca", "/deep", "/other"],
        &["-cb", "/deep", "/other", "/b"],
        &["-b", "/deep"],
        &["-bh", "/deep", "/a"],
        &["-hb", "/deep", "/a"],
        &["-h", "-b", "-h", "/deep"],
        &["--apparent-size", "/deep", "/a"],
    ] {
        let ours = run(&home, &[&["du"], args].concat()).stdout;
        let ours = ours.replace("n[1-2]:/", "");
        let mut here = Command::new("du");
        here.current_dir(&root)
            .args(args.iter().map(|arg| arg.trim_start_matches('/')))
            .env_clear();
        let gnu = String::from_utf8(here.output().unwrap().stdout).unwrap();
        let shown = |text: &str| text.replace("n[1-2]:", "");
        assert_eq!(shown(&ours), gnu, "{args:?}");
    }
}
