//! The files in `packaging` that start servers and sessions.
use crate::support::Home;
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// What a file gives the program, word by word, from this line on.
fn words<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
    line.unwrap_or_else(|| panic!("no {key}")).split_whitespace().collect()
}

#[test]
fn the_units_are_what_systemd_understands() {
    let scratch = tempfile::tempdir().unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.arg("verify");
    for (unit, name) in
        [("sheaf-serve.service", "sheaf-serve.service"), ("sheaf@.service", "sheaf@lab.service")]
    {
        let text = std::fs::read_to_string(packaging("systemd").join(unit)).unwrap();
        // Installed elsewhere than here.
        let text = text.replace("/usr/local/bin/sheaf", env!("CARGO_BIN_EXE_sheaf"));
        let path = scratch.path().join(name);
        std::fs::write(&path, text).unwrap();
        verify.arg(path);
    }
    match verify.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr))
        }
        Err(error) => sheaf_testing::skipped(&format!("systemd-analyze cannot be run: {error}")),
    }
}

/// An option that was renamed would be found by nobody but the user.
#[test]
fn what_they_start_are_options_that_there_are() {
    let home = Home::new();
    let read = |name: &str| std::fs::read_to_string(packaging(name)).unwrap();
    let serve = home.run(&["serve", "--help"]).stdout;
    let up = home.run(&["up", "--help"]).stdout;
    let daemonset = read("kubernetes/daemonset.yaml").replace(['"', ',', '[', ']'], " ");
    for (text, key, help) in [
        (read("systemd/sheaf-serve.service"), "ExecStart=/usr/local/bin/sheaf", &serve),
        (read("systemd/sheaf@.service"), "ExecStart=/usr/local/bin/sheaf", &up),
        (daemonset, "args:", &serve),
    ] {
        let words = words(&text, key);
        let options: Vec<_> = words.iter().filter(|word| word.starts_with("--")).collect();
        assert!(!options.is_empty(), "{words:?}");
        assert!(options.iter().all(|option| help.contains(**option)), "{options:?}\n{help}");
    }
}
