//! What is archived is removed, renamed and given other attributes.
use crate::archive::home;
use sheaf_testing::home::{Home, Run};
use std::fs;
use std::path::Path;
use std::process::Command;

/// How many files the store has.
fn in_store(home: &Home) -> usize {
    let mut find = Command::new("find");
    let found = find.args(["s", "-type", "f"]).current_dir(home.path()).output().unwrap();
    String::from_utf8(found.stdout).unwrap().lines().count()
}

#[test]
fn rm_dry_run_lists_files_and_removes_nothing() {
    let home = home();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    let names = "/tree/sub\n/tree/sub/.c\n/tree/sub/.hidden\n/tree/sub/.hidden/d\n/tree/sub/b\n";
    for (name, store) in [("s::/tree/sub", "s::"), ("tree/sub", "")] {
        let would = home.run(&["archive", "rm", "--dry-run", "-r", name]);
        let named: Vec<_> =
            names.lines().map(|line| if store.is_empty() { &line[1..] } else { line }).collect();
        let named: String = named.iter().map(|line| format!("{store}{line}\n")).collect();
        // Directories of this machine go behind what is in them.
        let mut lines: Vec<_> = would.stdout.split_inclusive('\n').collect();
        lines.sort_unstable();
        assert_eq!((lines.concat(), would.code), (named, Some(0)));
        let said = if store.is_empty() { "3 files" } else { "3 files (13)" };
        assert_eq!(would.stderr, format!("sheaf: would remove {said} and 2 directories\n"));
        let not = home.run(&["archive", "rm", "--dry-run", name]);
        assert!(not.code == Some(4) && not.stderr.contains(": is a directory: -r"), "{not:?}");
        let not = home.run(&["archive", "rm", "--dry-run", &format!("{store}none")]);
        assert_eq!(not.code, Some(4), "{not:?}");
        let not = home.run(&["archive", "rm", "--dry-run", "-f", &format!("{store}none")]);
        assert_eq!(not.code, Some(0), "{not:?}");
        assert_eq!(home.run(&["archive", "ls", "-d", name]).code, Some(0));
    }
    for (stays, why) in [(".", "it stays"), ("/", "--no-preserve-root"), ("s", "a store")] {
        let not = home.run(&["--json", "archive", "rm", "-r", "--dry-run", stays]);
        assert!(not.code == Some(4) && not.stderr.contains(why), "{not:?}");
        assert!(not.stdout.contains("\"failed\":1"), "{not:?}");
    }
}

#[test]
fn chmod_chown_cp_and_mv_change_archived_files() {
    let home = home();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    for (args, code, said) in [
        (
            &["chmod", "-R", "--dry-run", "go=", "s::tree"][..],
            0,
            "would change 7 files and directories, 0 had it already",
        ),
        (
            &["chmod", "-R", "go=", "s::tree"],
            0,
            "changed 7 files and directories, 0 had it already",
        ),
        (
            &["chmod", "-R", "go=", "s::tree"],
            0,
            "changed 0 files and directories, 7 had it already",
        ),
        (&["chmod", "0640", "s::tree/a"], 0, "changed 1 file or directory, 0 had it already"),
        (
            &["chmod", "--reference", "s::tree/a", "s::tree/sub/b"],
            0,
            "changed 1 file or directory, 0 had it already",
        ),
        (&["chmod", "0640", "s::none"], 4, "/none: is not in the archive"),
        (&["chown", "no-such-user", "s::tree/a"], 2, "this machine knows no such user or group"),
        (&["cp", "s::tree", "s::copy"], 4, "/tree: is a directory: -r copies it"),
        (&["cp", "-r", "s::tree", "s::copy"], 0, "copied 0 files and 1 tree"),
        (
            &["cp", "-n", "s::tree/a", "s::copy"],
            0,
            "copied 0 files and 0 trees, 1 kept as they were",
        ),
        (
            &["mv", "s::copy/sub/*", "s::copy/a", "s::tree/sub/.hidden"],
            0,
            "moved 2 files and 0 trees",
        ),
        (&["mv", "s::copy", "s::other"], 0, "moved 0 files and 1 tree"),
        (&["mv", "s::tree", "s::tree/sub"], 4, "cannot go to /tree/sub/tree, which is within it"),
        (&["mv", "s::tree/a", "s::tree/sub/b", "s::new"], 2, "/new: is no directory, and several"),
        (&["mv", "s::tree/a", "other::"], 2, "both names are of one archive"),
    ] {
        let run = home.run(&[&["archive"], args].concat());
        assert_eq!(run.code, Some(code), "{args:?}: {run:?}");
        assert!(run.stderr.contains(said), "{args:?}: {run:?}");
    }
    let all = home.run(&["archive", "find", "s::"]);
    let names = "s::/\ns::/other\ns::/other/sub\ns::/other/sub/.c\ns::/other/sub/.hidden\ns::/other/sub/.hidden/d\n\
                 s::/tree\ns::/tree/a\ns::/tree/sub\ns::/tree/sub/.c\ns::/tree/sub/.hidden\n\
                 s::/tree/sub/.hidden/a\ns::/tree/sub/.hidden/b\ns::/tree/sub/.hidden/d\ns::/tree/sub/b\n";
    assert_eq!(all.stdout, names);
}

#[test]
fn names_of_one_directory_are_changed_by_one_commit() {
    let home = home();
    fs::create_dir(home.path().join("tree/many")).unwrap();
    for at in 0..300 {
        fs::write(home.path().join(format!("tree/many/{at}")), "one\n").unwrap();
    }
    fs::hard_link(home.path().join("tree/many/7"), home.path().join("tree/many/other")).unwrap();
    fs::write(home.path().join("tree/many/large"), vec![1; 2 << 20]).unwrap();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    let before = in_store(&home);

    let names: Vec<String> = (0..200).map(|at| format!("s::/tree/many/{at}")).collect();
    let mut args = vec!["archive", "chmod", "0604", "s::/tree/sub/b", "s::/tree/many/none"];
    args.extend(names.iter().map(String::as_str));
    args.extend(["s::/tree/a", "s::/tree/many/large"]);
    let changed = home.run(&args);
    assert_eq!(changed.code, Some(4), "{changed:?}");
    let said = "sheaf: /tree/many/none: is not in the archive\n\
                sheaf: changed 203 files and directories, 0 had it already\n";
    assert_eq!(changed.stderr, said);
    // An index of each of the three directories, and a file of the log of each.
    assert!(in_store(&home) <= before + 6, "{before} {}", in_store(&home));
    let found = home.run(&["archive", "find", "s::", "-perm", "604"]);
    assert_eq!(found.stdout.lines().count(), 204, "the other name of a file, too");
    assert_eq!(home.run(&["archive", "chown", "7:8", "s::/tree/many/*"]).code, Some(0));
    let found = home.run(&["archive", "find", "s::", "-uid", "7", "-gid", "8"]);
    assert_eq!(found.stdout.lines().count(), 302);

    let before = in_store(&home);
    args.splice(..3, ["archive", "rm"]);
    args.push("s::/tree/a");
    let removed = home.run(&args);
    let said = "sheaf: /tree/a: is not in the archive\n\
                sheaf: /tree/many/none: is not in the archive\n\
                sheaf: removed 203 files (2.1M) and 0 directories\n";
    assert_eq!((removed.code, &removed.stderr[..]), (Some(4), said));
    assert!(in_store(&home) <= before + 6, "{before} {}", in_store(&home));
    let left = home.run(&["archive", "ls", "s::/tree/many"]);
    assert_eq!(left.stdout.lines().count(), 101);
    let removed = home.run(&["archive", "rm", "-r", "s::/tree/many/299", "s::/tree/many"]);
    assert_eq!(removed.stderr, "sheaf: removed 101 files (404) and 1 directory\n");
    assert_eq!(home.run(&["archive", "verify", "s::"]).code, Some(0));
}

/// Reads less of the files called `early` than they say that they have, as file systems of other machines may.
const SHORT: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
ssize_t pread64(int fd, void *to, size_t length, off64_t at) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pread64");
    char path[64], name[4096];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t named = readlink(path, name, sizeof name - 1);
    name[named > 0 ? named : 0] = 0;
    if (!strstr(name, "/early")) return real(fd, to, length, at);
    if (at >= 1000) return 0;
    return real(fd, to, length < 1000 - at ? length : 1000 - at, at);
}
"#;

#[test]
fn file_that_ends_before_its_length_is_named() {
    let home = Home::new();
    let (source, library) = (home.write("short.c", SHORT), home.path().join("short.so"));
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl");
    if !cc.status().is_ok_and(|status| status.success()) {
        return sheaf_testing::skipped("there is no C compiler");
    }
    fs::create_dir_all(home.path().join("tree/sub")).unwrap();
    for (name, len) in
        [("early", 5000), ("early-object", 3 << 20), ("sub/early", 5000), ("whole", 5000)]
    {
        fs::write(home.path().join("tree").join(name), "x".repeat(len)).unwrap();
    }
    let mut store = home.command(&["archive", "store", "--create", "tree", "s::"]);
    let store = Run::of(store.env("LD_PRELOAD", &library).output().unwrap());
    assert_eq!(store.code, Some(4), "{store:?}");
    for (name, is_told) in
        [("early", true), ("early-object", true), ("sub/early", true), ("whole", false)]
    {
        let line = format!("tree/{name}: was written to while it was read");
        assert_eq!(store.stderr.contains(&line), is_told, "{name}: {store:?}");
    }
    // It is stored again the next time.
    let again = home.run(&["archive", "store", "tree", "s::"]);
    assert_eq!((again.code, again.stderr.contains("was written")), (Some(0), false), "{again:?}");
    let cat = home.run(&["archive", "cat", "s::tree/early", "s::tree/early-object"]);
    assert_eq!(cat.stdout.len(), 5000 + (3 << 20));
    // What the kernel makes up may say any length. Its times can change when it is looked at first.
    let made_up = (0..5).any(|round| {
        let name = format!("s::/sys{round}");
        home.run(&["archive", "store", "/sys/kernel/mm/ksm", &name]).code == Some(0)
    });
    assert!(made_up || !Path::new("/sys/kernel/mm/ksm").is_dir());
}
