//! Recordings by a copy of the program without any other file next to it.
use super::trace::TraceHome;
use sheaf_testing::built;
use sheaf_testing::home::{Home, Run};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A copy of `sheaf-trace` in a directory of its own.
fn copy_alone(home: &Home) -> PathBuf {
    let directory = home.path().join("alone");
    std::fs::create_dir(&directory).unwrap();
    let copy = directory.join("sheaf-trace");
    std::fs::copy(built("sheaf-trace"), &copy).unwrap();
    copy
}

/// Records `ls` with the copy.
fn record(home: &Home, copy: &Path) {
    let _ = std::fs::remove_dir_all(home.path().join("the.trace"));
    let args = ["trace", "record", "-o", "the.trace", "--", "ls", "alone"];
    let run = Run::of(home.command_of(copy, &args).output().unwrap());
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "sheaf-trace\n"), "{run:?}");
    assert_eq!(home.info().segments, 1, "{run:?}");
    assert!(!run.stderr.contains("ld.so"), "{run:?}");
}

/// The files of the cache.
fn cached(cache: &Path) -> Vec<PathBuf> {
    let Ok(directories) = std::fs::read_dir(cache.join("sheaf/bin")) else { return Vec::new() };
    let files = directories.flat_map(|hash| std::fs::read_dir(hash.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn contained_library_is_kept_in_the_cache() {
    let home = Home::new();
    let copy = copy_alone(&home);
    record(&home, &copy);
    let [library] = &cached(&home.path().join(".cache"))[..] else { panic!("one file") };
    assert_eq!(library.file_name().unwrap(), "libsheaf_trace.so");
    let content = std::fs::read(library).unwrap();
    // The next recording uses the file, and replaces one with another content.
    record(&home, &copy);
    std::fs::write(library, "garbage").unwrap();
    record(&home, &copy);
    assert_eq!(std::fs::read(library).unwrap(), content);
    std::fs::set_permissions(library, std::fs::Permissions::from_mode(0o777)).unwrap();
    record(&home, &copy);
    assert_eq!(library.metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn contained_library_is_loaded_without_a_safe_cache() {
    let home = Home::new();
    let copy = copy_alone(&home);
    // Files in a directory that others can write to may be replaced by them.
    let open = home.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let buffers = home.path().join("buffers");
    std::fs::create_dir(&buffers).unwrap();
    for cache in [Path::new("/proc/none"), &open] {
        let args = ["trace", "record", "-o", "the.trace", "--buffers"];
        let args =
            [&args[..], &[buffers.to_str().unwrap(), "--", "cat", "/proc/self/maps"]].concat();
        let run = home.command_of(&copy, &args).env("XDG_CACHE_HOME", cache).output().unwrap();
        let run = Run::of(run);
        assert_eq!(run.code, Some(0), "{run:?}");
        let prefix = format!("{}/sheaf-trace-", buffers.canonicalize().unwrap().display());
        let is_loaded = |line: &str| line.contains(&prefix) && line.ends_with("/libsheaf_trace.so");
        assert!(run.stdout.lines().any(is_loaded), "{run:?}");
        assert_eq!(home.info().segments, 1, "{run:?}");
        assert_eq!(std::fs::read_dir(&buffers).unwrap().count(), 0, "removed with the recording");
        std::fs::remove_dir_all(home.path().join("the.trace")).unwrap();
    }
}

/// The library next to a program may be of another build, or none at all.
#[test]
fn library_of_another_build_is_not_loaded() {
    let home = Home::new();
    let copy = copy_alone(&home);
    std::fs::write(copy.with_file_name("libsheaf_trace.so"), "garbage").unwrap();
    let args = ["trace", "record", "-o", "the.trace", "--", "ls", "alone/sheaf-trace"];
    let run = Run::of(home.command_of(&copy, &args).output().unwrap());
    assert!(!run.stderr.contains("ld.so"), "{run:?}");
    assert_eq!((run.code, home.info().segments), (Some(0), 1), "{run:?}");
}

#[test]
fn library_of_another_user_is_not_loaded() {
    if !rustix::process::geteuid().is_root() {
        return sheaf_testing::skipped("only root makes files of other users");
    }
    let home = Home::new();
    let copy = copy_alone(&home);
    let library = copy.with_file_name("libsheaf_trace.so");
    std::fs::write(&library, "garbage").unwrap();
    std::os::unix::fs::chown(&library, Some(65534), None).unwrap();
    let args = ["trace", "record", "-o", "the.trace", "--", "true"];
    let run = Run::of(home.command_of(&copy, &args).output().unwrap());
    assert_eq!((run.code, home.info().segments), (Some(0), 1), "{run:?}");
}
