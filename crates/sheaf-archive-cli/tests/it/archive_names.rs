//! Names from a list into an archive, and some names, all names alone and a tar out of it.
use sheaf_testing::built;
use sheaf_testing::home::Home;
use sheaf_testing::program::have;
use std::fs;
use std::path::Path;
use std::process::Command;

fn home() -> Home {
    let home = Home::new();
    for name in ["a/b/c.c", "a/b/d.o", "a/e.c", "f", "g/h/i"] {
        let file = home.path().join("tree").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, name).unwrap();
    }
    home
}

fn found(home: &Home, store: &str) -> String {
    let found = home.run(&["archive", "find", store, "-printf", "%P "]);
    assert_eq!(found.code, Some(0), "{found:?}");
    found.stdout.trim().to_owned()
}

#[test]
fn listed_files_are_stored_under_their_paths() {
    let home = home();
    fs::write(home.path().join("list"), "tree/a/b/c.c\n\n./tree//f\ntree/g\ntree/g/h/i\n").unwrap();
    let stored = home.run(&["archive", "store", "--create", "--files-from", "list", "s::of"]);
    let told = "sheaf: stored 3 files (13) of 2 directories\n";
    assert_eq!((stored.code, &stored.stderr[..]), (Some(0), told), "{stored:?}");
    let all = "tree tree/a tree/a/b tree/a/b/c.c tree/f tree/g tree/g/h tree/g/h/i";
    assert_eq!(found(&home, "s::of"), all);
    // The same again stores nothing, and directories on the way are what they are at home.
    let again = home.run(&["archive", "store", "--files-from-verbatim", "list", "s::of"]);
    let told = "sheaf: stored 0 files (0) of 2 directories, 3 unchanged\n";
    assert_eq!((again.code, &again.stderr[..]), (Some(0), told), "{again:?}");
    let commits = || fs::read_dir(home.path().join("s/objects/log")).unwrap().count();
    let before = commits();
    home.run(&["archive", "store", "--files-from", "list", "s::of"]);
    assert_eq!(commits(), before);
    let dry =
        home.run(&["archive", "store", "--dry-run", "--create", "--files-from", "list", "t::"]);
    let mut names: Vec<_> = dry.stdout.lines().collect();
    names.sort_unstable();
    assert_eq!((dry.code, names), (Some(0), vec!["tree/a/b/c.c", "tree/f", "tree/g/h/i"]));
    assert!(!home.path().join("t").exists());
}

fn shell(home: &Home, script: &str) -> String {
    let program = built("sheaf");
    let path = Path::new(&program).parent().unwrap().display().to_string();
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(home.path()).env("HOME", home.path());
    let path = format!("{path}:{}", std::env::var("PATH").unwrap());
    let output = shell.env("PATH", path).env("LC_ALL", "C.UTF-8").output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn names_that_find_prints_are_stored_as_tar_stores_them() {
    if !have("tar") {
        return;
    }
    let home = home();
    fs::write(home.path().join("tree/new\nline.c"), "odd").unwrap();
    fs::create_dir(home.path().join("tree/x.c")).unwrap();
    fs::write(home.path().join("tree/x.c/in"), "in").unwrap();
    std::os::unix::fs::symlink("a", home.path().join("tree/link.c")).unwrap();
    let script = "find tree -name '*.c' -print0 >list
        sheaf archive store --create --quiet -0 --files-from - s:: <list
        sheaf archive get --quiet s::. ours; mkdir theirs; tar --null -T list -cf - | tar -xf - -C theirs
        (cd ours; find . -print0 | sort -z | tr '\\0' '\\n') >1
        (cd theirs; find . -print0 | sort -z | tr '\\0' '\\n') >2; cmp 1 2
        diff -r --no-dereference ours theirs; cat 1";
    let names = shell(&home, script);
    assert!(names.contains("./tree/x.c/in\n") && names.contains("./tree/new\nline.c\n"), "{names}");
    let excluded = "sheaf archive store --create --quiet -0 --exclude b/ --files-from list t::
        sheaf archive find t:: -name c.c";
    assert_eq!(shell(&home, excluded), "");
}

#[test]
fn included_names_come_and_others_go_where_that_is_asked_for() {
    let home = home();
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    assert_eq!(run(&["store", "--create", "tree", "s::"]).code, Some(0));
    let got = run(&["get", "--include", "*.c", "--exclude", "e.c", "s::tree/.", "to"]);
    assert_eq!((got.code, &got.stderr[..]), (Some(0), "sheaf: got 1 file (7) of 3 directories\n"));
    fs::create_dir(home.path().join("to/other")).unwrap();
    fs::write(home.path().join("to/other/x.o"), "x").unwrap();
    fs::write(home.path().join("to/a/b/more"), "x").unwrap();
    let dry = run(&["get", "--delete", "--dry-run", "--exclude", "*.o", "s::tree/.", "to"]);
    assert_eq!(dry.stdout, "to/a/e.c\nto/f\nto/g/h/i\n");
    let told = "sheaf: to/a/b/more: would be removed: it is not archived\n\
                sheaf: would get 3 files (11) of 5 directories, 1 there already, 1 to be removed\n";
    assert_eq!((dry.code, &dry.stderr[..]), (Some(0), told));
    let got = run(&["get", "--delete", "s::tree/.", "to"]);
    assert_eq!(got.code, Some(0), "{got:?}");
    assert!(got.stderr.ends_with(", 1 there already, 3 removed\n"), "{got:?}");
    assert_eq!(shell(&home, "diff -r tree to"), "");
    for args in [
        &["get", "--delete", "s::tree/.", "s::tree/a", "to"][..],
        &["get", "--delete", "s::", "s::tree", "to"],
    ] {
        let refused = run(args);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("is got alone"), "{refused:?}");
    }
    assert_eq!(shell(&home, "diff -r tree to"), "");
}

/// The store in the target stays, and of an archive that has lost a commit nothing is removed.
#[test]
fn nothing_is_deleted_by_an_archive_that_lost_its_end() {
    let home = home();
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    assert_eq!(run(&["store", "--create", "tree/a", "to/s::tree"]).code, Some(0));
    let got = run(&["get", "--delete", "to/s::tree/.", "to"]);
    assert_eq!(got.code, Some(4), "{got:?}");
    assert!(got.stderr.contains("is the store, in which nothing is removed"), "{got:?}");
    assert_eq!(run(&["ls", "to/s::tree"]).stdout, "a\n");
    assert_eq!(run(&["store", "tree/f", "to/s::tree"]).code, Some(0));
    assert_eq!(run(&["store", "tree/g", "to/s::tree"]).code, Some(0));
    let lost = "ls to/s/objects/log | tail -n 2 | head -n 1";
    shell(
        &home,
        &format!("rm -f to/s/objects/log/$({lost}); rm -rf .cache/sheaf to/s/objects/snapshots"),
    );
    fs::write(home.path().join("to/f"), "mine").unwrap();
    let got = run(&["get", "--delete", "to/s::tree/.", "to"]);
    assert_eq!(got.code, Some(4), "{got:?}");
    assert!(got.stderr.contains("to: nothing is removed there"), "{got:?}");
    assert_eq!(fs::read(home.path().join("to/f")).unwrap(), b"mine");
}

#[test]
fn tar_goes_to_a_file_or_to_another_program() {
    if !have("tar") {
        return;
    }
    let home = home();
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    assert_eq!(run(&["store", "--create", "tree", "s::"]).code, Some(0));
    let piped = "mkdir one; sheaf archive get --to-tar - s::tree s::tree/f | tar -xpf - -C one
        diff -r tree one/tree; cat one/f; tar -tf - <one/f 2>/dev/null; echo";
    assert_eq!(shell(&home, piped), "f\n");
    let got = run(&["get", "--to-tar", "out.tar", "--include", "*.c", "s::tree"]);
    let told = "sheaf: got 2 files (12) of 3 directories\n";
    assert_eq!((got.code, &got.stderr[..]), (Some(0), told), "{got:?}");
    assert_eq!(
        shell(&home, "tar -tf out.tar"),
        "tree/\ntree/a/\ntree/a/e.c\ntree/a/b/\ntree/a/b/c.c\n"
    );
    let none = run(&["get", "--to-tar", "out.tar", "s::none", "s::tree/f"]);
    assert_eq!(none.code, Some(4), "{none:?}");
    assert_eq!(shell(&home, "tar -tf out.tar"), "f\n");
    for args in [
        &["get", "--json", "--to-tar", "-", "s::tree"][..],
        &["get", "--delete", "--to-tar", "x.tar", "s::tree"],
        &["get", "--to-tar", "s/objects/x.tar", "s::tree"],
        &["get", "--to-tar", "x.tar", "tree"],
    ] {
        let refused = run(args);
        assert_eq!(refused.code, Some(2), "{refused:?}");
    }
    let lost = run(&["get", "--to-tar", "none/x.tar", "s::tree"]);
    assert_eq!(lost.code, Some(4), "{lost:?}");
    assert!(lost.stderr.contains("none/x.tar"), "{lost:?}");
    let left = shell(&home, "ls -A | grep -c sheaf-tar || true");
    assert_eq!(left, "0\n");
}

#[test]
fn tar_whose_reader_goes_away_is_a_failure() {
    let home = home();
    fs::write(home.path().join("tree/long"), vec![7; 4 << 20]).unwrap();
    let stored = home.run(&["archive", "store", "--create", "tree", "s::"]);
    assert_eq!(stored.code, Some(0), "{stored:?}");
    let piped = "for trap in 'trap - PIPE' 'trap \"\" PIPE'; do
        ( eval \"$trap\"; sheaf archive get --to-tar - s::tree 2>err; echo $? >code ) | head -c 1000 >/dev/null
        cat code err; done";
    let told = "4\nsheaf: standard output: who reads it has gone: the tar is not whole\n";
    assert_eq!(shell(&home, piped), told.repeat(2));
    let full = shell(&home, "sheaf archive get --to-tar - s::tree 2>&1 >/dev/full || echo $?");
    let told = "sheaf: standard output: No space left on device (ENOSPC)\n4\n";
    assert_eq!(full, told);
}

#[test]
fn wrong_lists_and_missing_names_are_told() {
    let home = home();
    let run = |args: &[&str]| home.run(&[&["archive", "store", "--create"], args].concat());
    let both = run(&["--files-from", "list", "tree", "s::"]);
    assert_eq!(both.code, Some(2), "{both:?}");
    assert!(both.stderr.contains("all names come from --files-from"), "{both:?}");
    let none = run(&["--files-from", "nothing", "s::"]);
    assert_eq!(none.code, Some(4), "{none:?}");
    assert!(none.stderr.contains("--files-from nothing"), "{none:?}");
    let alone = run(&["-0", "tree", "s::"]);
    assert_eq!(alone.code, Some(2), "{alone:?}");
    fs::write(home.path().join("list"), "tree/f\ntree/missing\n../x\ntree/f/y\n").unwrap();
    let some = run(&["--files-from", "list", "s::"]);
    assert_eq!(some.code, Some(4), "{some:?}");
    for said in ["tree/missing: cannot be stored", "../x: is no name without ..", "tree/f/y: "] {
        assert!(some.stderr.contains(said), "{said} {some:?}");
    }
    assert!(some.stderr.contains("stored 1 file (1)"), "{some:?}");
    assert_eq!(found(&home, "s::"), "tree tree/f");
}

/// Mode and time of a directory, as `stat` has them.
fn mode_of(home: &Home, path: &str) -> String {
    shell(home, &format!("stat -c '%a %Y' {path}"))
}

#[test]
fn directory_that_is_made_for_contents_has_what_they_were_in() {
    let home = home();
    shell(&home, "chmod 700 tree; touch -d 2020-01-02 tree; mkdir -m 777 old live");
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    assert_eq!(run(&["store", "--create", "tree", "s::"]).code, Some(0));
    let was = mode_of(&home, "tree");
    for (to, is_given) in [("new", true), ("old", false)] {
        assert_eq!(run(&["get", "s::tree/.", to]).code, Some(0), "{to}");
        assert_eq!(mode_of(&home, to) == was, is_given, "{to}");
    }
    assert_eq!(run(&["get", "--delete", "--overwrite", "s::tree/.", "live"]).code, Some(0));
    assert_eq!(mode_of(&home, "live"), was);
    // The top of an archive has no mode.
    assert_eq!(run(&["get", "s::", "top"]).code, Some(0));
    assert_ne!(mode_of(&home, "top"), was);
}

#[test]
fn nothing_is_made_for_names_that_are_not_there() {
    let home = home();
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    let none = run(&["store", "--create", "nosuch", "s::"]);
    assert!(none.code == Some(4) && !home.path().join("s").exists(), "{none:?}");
    assert!(none.stderr.contains("nosuch: is not there, so no store is made"), "{none:?}");
    assert_eq!(run(&["store", "--create", "tree", "nosuch", "s::"]).code, Some(4));
    assert_eq!(run(&["get", "s::typo", "new/x"]).code, Some(4));
    assert!(!home.path().join("new").exists());
    fs::write(home.path().join("good.tar"), "good").unwrap();
    let tar = run(&["get", "--to-tar", "good.tar", "s::typo"]);
    assert!(tar.code == Some(4) && tar.stderr.contains("nothing was got"), "{tar:?}");
    assert_eq!(fs::read(home.path().join("good.tar")).unwrap(), b"good");
    for args in [
        &["get", "s::tree/a/.", "s::tree/g/.", "to"][..],
        &["get", "--to-tar", "two.tar", "s::tree/a/.", "s::tree/f"],
    ] {
        let refused = run(args);
        assert!(refused.code == Some(2) && refused.stderr.contains("is got alone"), "{refused:?}");
    }
}
