//! Tests of the public API, with `std::fs` and the shell as oracles.

mod change;
mod escape;
mod files;
mod glob;
mod mode_change;
mod places;
mod stage;
mod tentative;
mod text_pattern;
mod usage;
mod walk;

use sheaf_file::Export;
use sheaf_testing::{as_nobody, skipped};
use std::path::Path;
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

/// Lets everybody look into a directory for temporary files.
fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
}
