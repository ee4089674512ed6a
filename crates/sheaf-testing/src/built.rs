//! The programs of this workspace, beside the tests that run them.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Each program, and the package that it is built of.
const PROGRAMS: [(&str, &str); 3] = [
    ("sheaf", "sheaf"),
    ("sheaf-archive", "sheaf-archive-cli"),
    ("sheaf-trace", "sheaf-trace-cli"),
];

/// The directory in which cargo has put the programs of the profile of these tests.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let test = std::env::current_exe().expect("a test has a file");
        let deps = test.parent().expect("it is in a directory");
        let directory = deps.parent().expect("deps is below that of the programs").to_owned();
        build_missing(&directory);
        directory
    })
}

/// Builds programs that are not there. Cargo builds those of the packages that it tests, which are
/// all with `--workspace`; tests of one package run the programs of others.
fn build_missing(directory: &Path) {
    let missing = PROGRAMS.iter().filter(|(program, _)| !directory.join(program).exists());
    let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return;
    }
    let profile = directory.file_name().and_then(|name| name.to_str());
    let profile = profile.filter(|name| *name != "debug").unwrap_or("dev");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--profile", profile]).current_dir(crate::checkout());
    command.args(missing.iter().flat_map(|package| ["-p", package]));
    let status = command.status().expect("cargo can be run");
    assert!(status.success(), "{command:?}: {status}");
}

/// The file of a program of this workspace.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn built(program: &str) -> &'static str {
    let path = directory().join(program);
    // There are few, and each test asks for one or two.
    path.into_os_string().into_string().expect("the checkout's path is text").leak()
}
