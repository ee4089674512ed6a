//! Tests of the public API, with `std::fs` and the shell as oracles.

mod change;
mod escape;
mod files;
mod glob;
mod mode_change;
mod stage;
mod tentative;
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
    let (path, target) =
        name.split_once(" -> ").map_or((name, None), |(path, target)| (path, Some(target)));
    let path = root.join(path.trim_start_matches('/'));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    match target {
        Some(target) => std::os::unix::fs::symlink(target, &path).unwrap(),
        None if name.ends_with('/') => std::fs::create_dir_all(&path).unwrap(),
        None => std::fs::write(&path, name).unwrap(),
    }
}

/// Runs `act` as a user without privileges, on a thread of its own; nothing, with a word, where
/// that cannot be done.
fn as_nobody<T: Send>(act: impl FnOnce() -> T + Send) -> Option<T> {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can become another user");
        return None;
    }
    let become_nobody = || {
        let (user, group) = (rustix::fs::Uid::from_raw(65534), rustix::fs::Gid::from_raw(65534));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
    };
    std::thread::scope(|scope| {
        let run = || {
            become_nobody();
            act()
        };
        Some(scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Lets everybody look into a directory for temporary files.
fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Says, once, that a test or a part of it is skipped on this machine. The harness shows what
/// `eprintln!` prints only of tests that fail; this is seen always.
fn skipped(why: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap().insert(why.to_owned()) {
        let _ = writeln!(std::io::stderr(), "SKIPPED 1 test: {why}");
    }
}
