//! Tests of the public API, with `std::fs` and the shell as oracles.

mod change;
mod escape;
mod glob;
mod mode_change;
mod stage;
mod usage;
mod walk;

use sheaf_file::Export;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use tempfile::TempDir;

/// An export of a fresh directory with these files; a name that ends in `/` is a directory, one
/// with ` -> ` a symbolic link, any other a file that holds its own name.
fn tree(names: &[&str]) -> (TempDir, Export) {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        add(dir.path(), name);
    }
    let export = Export::open(dir.path()).unwrap();
    (dir, export)
}

fn add(root: &Path, name: &str) {
    let (path, target) = name.split_once(" -> ").map_or((name, None), |(path, target)| (path, Some(target)));
    let path = root.join(path.trim_start_matches('/'));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    match target {
        Some(target) => std::os::unix::fs::symlink(target, &path).unwrap(),
        None if name.ends_with('/') => std::fs::create_dir_all(&path).unwrap(),
        None => std::fs::write(&path, name).unwrap(),
    }
}

/// Says, once, that a test or a part of it is skipped on this machine. The harness shows what
/// `eprintln!` prints only of tests that fail; this is seen always.
fn skipped(why: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap().insert(why.to_owned()) {
        let _ = writeln!(std::io::stderr(), "SKIPPED 1 test: {why}");
    }
}
