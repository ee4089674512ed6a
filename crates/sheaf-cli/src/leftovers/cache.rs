//! The cache: `bin/HASH/PROGRAM`, written by hosts that were started over ssh and by servers that
//! received a companion.
use super::directory::{OpenDirectory, bytes_of, is_directory, is_symlink};
use super::used::UsedFiles;
use super::{LeftoverKind, Sweep, YOUNG};
use std::io::ErrorKind::{DirectoryNotEmpty, NotFound};
use std::path::Path;

const KIND: LeftoverKind = LeftoverKind::Cache;
/// Catalogs of archives, which are no leftovers.
const ARCHIVES: &str = "archives";
/// Directories of the cache lie within each other no deeper.
const DEPTH_MAX: u32 = 8;

pub fn sweep(sweep: &mut Sweep, cache: &Path) {
    match OpenDirectory::open_own(cache) {
        Ok(Some(cache)) => match UsedFiles::find(sweep.removal.own_program) {
            Ok(used) => sweep_directory(sweep, &cache, &used, 0),
            Err(error) => sweep.fail(KIND, "/proc".into(), &error),
        },
        Ok(None) => {}
        Err(error) => sweep.fail(KIND, cache.to_owned(), &error),
    }
}

fn sweep_directory(sweep: &mut Sweep, directory: &OpenDirectory, used: &UsedFiles, depth: u32) {
    let names = match directory.names() {
        Ok(names) if depth < DEPTH_MAX => names,
        Ok(_) => {
            let error = std::io::Error::other("its directories are too deep");
            return sweep.fail(KIND, directory.path().to_owned(), &error);
        }
        Err(error) => return sweep.fail(KIND, directory.path().to_owned(), &error),
    };
    for name in names {
        // What a catalog knows may be known nowhere else, where the log of its store is damaged.
        if depth == 0 && name == ARCHIVES {
            continue;
        }
        let path = directory.path().join(&name);
        let stat = match directory.stat(&name) {
            Ok(Some(stat)) => stat,
            Ok(None) => continue,
            Err(error) => {
                sweep.fail(KIND, path, &error);
                continue;
            }
        };
        if is_directory(&stat) {
            match directory.open_within(&name) {
                Ok(within) => sweep_directory(sweep, &within, used, depth + 1),
                Err(error) => {
                    sweep.fail(KIND, path, &error);
                    continue;
                }
            }
            // A directory that was just made waits for its program; one that is not empty stays.
            if !sweep.removal.dry_run && !sweep.is_young(&stat) {
                match directory.remove_empty(&name) {
                    Err(error) if !matches!(error.kind(), DirectoryNotEmpty | NotFound) => {
                        sweep.fail(KIND, path, &error);
                    }
                    _ => {}
                }
            }
        } else if let Some(why) = used.why(directory, &name, &stat) {
            sweep.keep(KIND, path, why);
        } else if !is_symlink(&stat) && sweep.is_young(&stat) {
            sweep.keep(KIND, path, YOUNG);
        } else {
            sweep.remove(KIND, (path, bytes_of(&stat)), || directory.remove(&name));
        }
    }
}
