//! Space and digests, with `du` and the coreutils as oracles.

use crate::tree;
use sheaf_core::Errno;
use sheaf_file::{Algorithm, Counted, NameFilter, Usage, UsageOptions, digest};
use std::path::Path;
use std::process::Command;

/// The first word a tool prints, or nothing where it is missing.
fn tool(program: &str, args: &[&str], path: &Path) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .arg(path)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()?.split_whitespace().next().map(str::to_owned)
}

fn count(export: &sheaf_file::Export, start: &str, options: UsageOptions) -> (Usage, Vec<String>) {
    let mut seen = Vec::new();
    let usage = export.usage(Path::new(start), options, &mut |item| {
        seen.push(match item {
            Ok(dir) => format!("{} {}", dir.path.display(), dir.usage.files),
            Err(error) => format!("{} {:?}", error.path.display(), error.errno),
        });
    });
    (usage, seen)
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

/// The lines that starts which are counted together give.
fn together(export: &sheaf_file::Export, starts: &[&str]) -> Vec<String> {
    let (mut counted, mut lines) = (Counted::default(), Vec::new());
    for start in starts {
        let options = UsageOptions { several: true, report_files: true, ..Default::default() };
        let mut steps = export.usage_steps(Path::new(start), options).after(counted);
        let mut report = |item: Result<sheaf_file::PathUsage, sheaf_file::PathError>| {
            let item = item.unwrap();
            lines.push(format!("{}\t{}", item.usage.apparent_bytes, item.path.display()));
        };
        while steps.step(&mut report) {}
        counted = steps.into_counted();
    }
    lines
}

#[test]
fn starts_that_lie_in_one_another_count_once() {
    let (dir, export) = tree(&["d/a/x", "d/b/y", "d/c/", "e/z"]);
    std::fs::write(dir.path().join("d/b/y"), vec![1; 10_000]).unwrap();
    std::fs::hard_link(dir.path().join("d/b/y"), dir.path().join("e/y2")).unwrap();
    for starts in [
        &["d", "d"][..],
        &["d/b", "d"],
        &["d", "d/b"],
        &["d/a/x", "d"],
        &["d", "d/a/x"],
        &["d/a/x", "d/a/x"],
        &["d", "e"],
        &["e", "d", "e/y2", "d/b/y"],
        &["d/b/y", "e/y2"],
    ] {
        let ours = together(&export, starts);
        let gnu = Command::new("du").args(["-ab"]).args(starts).current_dir(dir.path()).output();
        let Some(gnu) = gnu.ok().filter(|output| output.status.success()) else {
            return crate::skipped("there is no du to compare with");
        };
        let mut gnu: Vec<String> =
            String::from_utf8(gnu.stdout).unwrap().lines().map(str::to_owned).collect();
        // GNU reads directories in the order they have on disk.
        let mut ours = ours;
        ours.sort();
        gnu.sort();
        assert_eq!(ours, gnu, "{starts:?}");
    }
}

#[test]
fn hard_links_count_once() {
    let (dir, export) = tree(&["d/a/x", "d/b/y", "d/a/l -> x", "d/c/"]);
    std::fs::write(dir.path().join("d/b/y"), vec![1; 100_000]).unwrap();
    std::fs::hard_link(dir.path().join("d/b/y"), dir.path().join("d/a/y2")).unwrap();
    let (usage, seen) = count(&export, "d", UsageOptions::default());
    let dirs: u64 =
        ["d", "d/a", "d/b", "d/c"].iter().map(|name| size(&dir.path().join(name))).sum();
    assert_eq!((usage.files, usage.dirs, usage.apparent_bytes), (3, 4, 100_000 + 5 + 1 + dirs));
    assert_eq!(seen, ["d/a 3", "d/b 0", "d/c 0", "d 3"]);
    let (twice, _) = count(&export, "d", UsageOptions { count_links: true, ..Default::default() });
    assert_eq!((twice.files, twice.apparent_bytes), (4, 200_000 + 5 + 1 + dirs));
    match tool("du", &["-s", "-B1"], &dir.path().join("d")) {
        Some(expected) => assert_eq!(usage.disk_bytes.to_string(), expected),
        None => crate::skipped("there is no du to compare with"),
    }
    let exclude = NameFilter::new(&["a".to_owned()]).unwrap();
    assert_eq!(
        count(&export, "d", UsageOptions { exclude, ..Default::default() }).1,
        ["d/b 1", "d/c 0", "d 1"]
    );
    assert_eq!(count(&export, "d/a/x", UsageOptions::default()).1, ["d/a/x 1"]);
    assert_eq!(count(&export, "none", UsageOptions::default()).1, ["none ENOENT"]);
}

#[test]
fn digests_are_those_of_the_tools() {
    let (dir, export) = tree(&[]);
    let path = dir.path().join("file");
    for length in [0, 1, 300_000] {
        std::fs::write(&path, (0..length).map(|at| (at % 251) as u8).collect::<Vec<u8>>()).unwrap();
        for (algorithm, program) in [
            (Algorithm::Sha256, "sha256sum"),
            (Algorithm::Sha512, "sha512sum"),
            (Algorithm::Blake3, "b3sum"),
        ] {
            let ours =
                digest(&mut export.open_read(Path::new("file")).unwrap(), algorithm).unwrap();
            match tool(program, &[], &path) {
                Some(expected) => assert_eq!(ours.to_string(), expected),
                None => crate::skipped(&format!("there is no {program} to compare with")),
            }
        }
    }
    let empty = digest(&mut std::io::empty(), Algorithm::Blake3).unwrap();
    assert!(empty.to_string().starts_with("af1349b9f5f9a1a6a0404dea36dcc949"));
    assert_eq!("sha256".parse(), Ok(Algorithm::Sha256));
    assert_eq!("md5".parse::<Algorithm>(), Err(Errno::INVAL));
}
