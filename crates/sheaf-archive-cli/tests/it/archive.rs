//! `sheaf archive` as its user types it.
use sheaf_testing::built;
use sheaf_testing::home::Home;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

/// A home with a small tree in it.
pub fn home() -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path().join("tree/sub/.hidden")).unwrap();
    for (name, content) in
        [("a", "first\n"), ("sub/b", "second\n"), ("sub/.c", "third\n"), ("sub/.hidden/d", "")]
    {
        fs::write(home.path().join("tree").join(name), content).unwrap();
    }
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(home.path().join("tree/a"), mode).unwrap();
    home
}

#[test]
fn tree_is_stored_listed_and_got_back() {
    let home = home();
    let stored = home.run(&["archive", "store", "--create", "tree", "s::/backup"]);
    assert_eq!(stored.code, Some(0), "{stored:?}");
    assert_eq!(stored.stderr, "sheaf: stored 4 files (19) of 3 directories\n");
    let listed = home.run(&["archive", "ls", "-R", "s::"]);
    assert_eq!(
        listed.stdout,
        "/:\nbackup\n\n/backup:\ntree\n\n/backup/tree:\na\nsub\n\n/backup/tree/sub:\nb\n"
    );
    let all = home.run(&["archive", "ls", "-a", "s::/backup/tree/sub"]);
    assert_eq!(all.stdout, ".c\n.hidden\nb\n");
    let long = home.run(&["archive", "ls", "-ln", "s::/backup/tree/a"]);
    let found = fs::metadata(home.path().join("tree/a")).unwrap();
    let begin = format!("-rw-r----- {:<8} {:<8} {:>10} ", found.uid(), found.gid(), 6);
    assert!(long.stdout.starts_with(&begin), "{long:?}");
    assert!(long.stdout.ends_with(" /backup/tree/a\n"), "{long:?}");

    let got = home.run(&["archive", "get", "s::/backup/tree", "back"]);
    assert_eq!(got.stderr, "sheaf: got 4 files (19) of 3 directories\n");
    let mut diff = Command::new("diff");
    let diff = diff.args(["-r", "tree", "back/tree"]).current_dir(home.path()).output().unwrap();
    assert!(diff.status.success(), "{diff:?}");
    let again = home.run(&["archive", "get", "s::/backup/tree", "back"]);
    let nothing = "sheaf: got 0 files (0) of 3 directories, 4 there already\n";
    assert_eq!(again.stderr, nothing);
}

#[test]
fn tree_is_stored_on_tapes_and_got_back() {
    let home = home();
    let none = home.run(&["archive", "ls", "tape:t::"]);
    let text = "sheaf: tape:t: there is no store: sheaf archive store --create makes one\n";
    assert_eq!((none.code, &none.stderr[..]), (Some(2), text));
    let stored = home.run(&["archive", "store", "--create", "tree", "tape:t::/backup"]);
    assert_eq!(stored.stderr, "sheaf: stored 4 files (19) of 3 directories\n");
    let got = home.run(&["archive", "get", "tape:t::/backup/tree", "back"]);
    assert_eq!(got.stderr, "sheaf: got 4 files (19) of 3 directories\n");
    let mut diff = Command::new("diff");
    let diff = diff.args(["-r", "tree", "back/tree"]).current_dir(home.path()).output().unwrap();
    assert!(diff.status.success(), "{diff:?}");
    let whole = home.run(&["archive", "verify", "tape:t::"]);
    assert_eq!(whole.code, Some(0), "{whole:?}");
    // What it is like stands in a file.
    fs::write(home.path().join("t/library"), "drives none\n").unwrap();
    let wrong = home.run(&["archive", "ls", "tape:t::"]);
    let text =
        "sheaf: tape:t/library: says what is not known of a library: Invalid argument (EINVAL)\n";
    assert_eq!((wrong.code, &wrong.stderr[..]), (Some(4), text));
}

#[test]
fn contents_are_printed_as_they_were_stored_or_not_at_all() {
    let home = home();
    let large: Vec<u8> = (0..3_000_000u32).map(|at| b'a' + (at / 7 % 26) as u8).collect();
    fs::write(home.path().join("tree/large"), &large).unwrap();
    let mut sparse = Command::new("truncate");
    let sparse = sparse.args(["-s", "5000000", "tree/sparse"]).current_dir(home.path());
    assert!(sparse.status().unwrap().success());
    fs::write(home.path().join("tree/sub/holes"), "").unwrap();
    for (options, store) in [(&["--zstd"][..], "s::"), (&["--no-packs"], "t::")] {
        let stored =
            home.run(&[&["archive", "store", "--create"], options, &["tree", store]].concat());
        assert_eq!(stored.code, Some(0), "{stored:?}");
        for name in ["a", "sub/b", "sub/holes", "large", "sparse"] {
            let mut cat = Command::new(built("sheaf"));
            cat.args(["archive", "cat", &format!("{store}/tree/{name}")]).current_dir(home.path());
            let printed = cat.output().unwrap();
            assert!(printed.status.success(), "{printed:?}");
            let is = fs::read(home.path().join("tree").join(name)).unwrap();
            assert!(printed.stdout == is, "{name}: {} of {}", printed.stdout.len(), is.len());
        }
        let both = home.run(&[
            "archive",
            "cat",
            &format!("{store}/tree/sub/b"),
            &format!("{store}tree/a*"),
        ]);
        assert_eq!((both.code, &both.stdout[..]), (Some(0), "second\nfirst\n"));
        let some = format!("{store}/tree/sub");
        let wrong =
            home.run(&["archive", "cat", &some, &format!("{some}/none"), &format!("{some}/b")]);
        assert_eq!((wrong.code, &wrong.stdout[..]), (Some(4), "second\n"));
        let text =
            "sheaf: /tree/sub: is a directory\nsheaf: /tree/sub/none: is not in the archive\n";
        assert_eq!(wrong.stderr, text);
    }
    let mut damaged = Command::new("sh");
    let damage = "for pack in $(find s/objects/packs t/objects/data -name '*.tar.zst' -o -path '*/data/*' -type f); \
                  do dd if=/dev/zero of=$pack bs=1 seek=9 count=9 conv=notrunc 2>/dev/null; done";
    assert!(damaged.args(["-c", damage]).current_dir(home.path()).status().unwrap().success());
    for name in ["s::/tree/a", "t::/tree/large"] {
        let wrong = home.run(&["archive", "cat", name]);
        assert_eq!(wrong.code, Some(4), "{wrong:?}");
        assert!(name.starts_with('t') || wrong.stdout.is_empty(), "{wrong:?}");
        assert!(wrong.stderr.starts_with("sheaf: "), "{wrong:?}");
    }
}

#[test]
fn archive_get_restores_contents_and_usage_errors_give_hints() {
    let home = home();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    let would = home.run(&["archive", "get", "--dry-run", "s::/tree/.", "to"]);
    assert_eq!(would.stdout, "to/a\nto/sub/.c\nto/sub/.hidden/d\nto/sub/b\n");
    let got = home.run(&["archive", "get", "s::/tree/.", "to"]);
    assert_eq!(got.stderr, "sheaf: got 4 files (19) of 3 directories\n");
    let mut diff = Command::new("diff");
    let same = diff.args(["-r", "tree", "to"]).current_dir(home.path()).status().unwrap();
    assert!(same.success());
    let all = home.run(&["archive", "get", "s::.", "all"]);
    assert_eq!(all.code, Some(0), "{all:?}");
    assert!(home.path().join("all/tree/sub/b").exists());
    for (args, text) in [
        (
            &["get", "s::/tree", "-"][..],
            "sheaf: - is no directory (./- would be one): sheaf archive cat prints",
        ),
        (
            &["get", "s::/tree", "tree/a"],
            "sheaf: tree/a: is no directory: what is got goes into one",
        ),
        (&["ls", "s:tree"], "sheaf: with one colon it is on hosts: s::tree is archived\n"),
        (
            &["store", "--zstd", "19", "tree", "s::"],
            "sheaf: 19: is no file: a level is written as --zstd=19\n",
        ),
    ] {
        let ended = home.run(&[&["archive"], args].concat());
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.starts_with(text), "{ended:?}");
    }
}

#[test]
fn damaged_packs_are_stored_again_and_excluded_files_are_not() {
    let home = home();
    let stored = home.run(&["archive", "store", "--create", "--exclude", "b", "tree", "s::"]);
    assert!(stored.stderr.ends_with(", 1 left out\n"), "{stored:?}");
    let packs = home.path().join("s/objects/packs");
    let mut removed = Command::new("find");
    let removed = removed.arg(packs).args(["-name", "*.tar.zst", "-delete"]).status().unwrap();
    assert!(removed.success());
    let damaged = home.run(&["archive", "verify", "s::"]);
    assert_eq!(damaged.code, Some(1));
    let heals =
        "sheaf: store --checksum stores again what is damaged, where its source is still there\n";
    assert!(damaged.stderr.ends_with(heals), "{damaged:?}");
    assert!(damaged.stderr.contains(": the files in it: /tree/"), "{damaged:?}");

    let healed = home.run(&["archive", "store", "--checksum", "--exclude", "b", "tree", "s::"]);
    assert_eq!(healed.code, Some(0), "{healed:?}");
    assert!(
        healed.stderr.contains("sheaf: tree/a: its pack is missing: stored again\n"),
        "{healed:?}"
    );
    assert!(healed.stderr.contains("sheaf: stored 3 files"), "{healed:?}");
    // The version before has what is lost.
    let older = home.run(&["archive", "verify", "s::"]);
    assert_eq!(older.code, Some(1), "{older:?}");
    let hint = "what a version has is damaged until that is forgotten: sheaf archive forget\n";
    assert!(older.stderr.starts_with("sheaf: version "), "{older:?}");
    assert!(older.stderr.ends_with(hint), "{older:?}");
    home.run(&["archive", "forget", "--keep-last", "1", "s::"]);
    assert_eq!(home.run(&["archive", "verify", "s::"]).code, Some(0));

    let itself = home.run(&["archive", "store", "s", "s::"]);
    let text = "sheaf: s: is the store itself, or is in it: it cannot be stored there\n";
    assert_eq!((itself.code, &itself.stderr[..]), (Some(4), text));
    fs::write(home.path().join("globs"), "# secrets\n.hidden/\n\nsub/b\n").unwrap();
    let from = ["archive", "store", "--exclude-from", "globs", "tree", "s::/less"];
    let stored = home.run(&from);
    assert_eq!(stored.stderr, "sheaf: stored 2 files (12) of 2 directories, 2 left out\n");
    let none = home.run(&["archive", "store", "--exclude-from", "none", "tree", "s::/less"]);
    let text = "sheaf: --exclude-from none: No such file or directory (ENOENT)\n";
    assert_eq!((none.code, &none.stderr[..]), (Some(2), text));
    let got =
        home.run(&["archive", "get", "--exclude", "b", "--exclude", "/sub/.c", "s::/tree", "x"]);
    assert_eq!(got.stderr, "sheaf: got 2 files (6) of 3 directories\n");
    let wrong = home.run(&["archive", "store", "--exclude", "/", "tree", "s::"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("is no pattern of names"), "{wrong:?}");
}

#[test]
fn stored_tree_is_verified_removed_and_repaired() {
    let home = home();
    home.run(&["archive", "store", "--create", "--plain", "tree", "s::"]);
    let whole = home.run(&["archive", "verify", "s::"]);
    assert_eq!(whole.code, Some(0), "{whole:?}");
    let text = "sheaf: verified 3 packs and 0 objects (14K) of 4 directories: nothing is damaged\n";
    assert_eq!(whole.stderr, text);
    let as_elsewhere = home.run(&["archive", "verify", "--read-data", "0.5%", "s::"]);
    assert_eq!(as_elsewhere.code, Some(0), "{as_elsewhere:?}");
    let sampled = home.run(&["archive", "verify", "--sample", "0", "s::"]);
    assert!(
        sampled.stderr.contains(", 3 not read: nothing that was read is damaged"),
        "{sampled:?}"
    );

    for (args, error) in [
        (&["rm", "s::tree"][..], "/tree: is a directory: -r removes it"),
        (&["rm", "s::none"], "/none: is not in the archive"),
    ] {
        let run = home.run(&[&["archive"], args].concat());
        assert_eq!(run.code, Some(4));
        assert!(run.stderr.starts_with(&format!("sheaf: {error}\n")), "{run:?}");
    }
    assert_eq!(home.run(&["archive", "rm", "-f", "s::none"]).code, Some(0));
    let root = home.run(&["archive", "rm", "-r", "s::/"]);
    assert_eq!(root.code, Some(2));
    let removed = home.run(&["archive", "rm", "-r", "s::tree/sub", "s::tree/a"]);
    assert_eq!(removed.stderr, "sheaf: removed 4 files (19) and 2 directories\n");
    assert_eq!(home.run(&["archive", "ls", "-Ra", "s::tree"]).stdout, "/tree:\n");

    // The version that was stored has it still.
    let kept = home.run(&["archive", "repair", "--age", "0", "s::"]);
    assert_eq!(kept.stderr, "sheaf: removed 0 leftovers (0)\n");
    let then = home.run(&["archive", "ls", "--at", "latest", "s::tree/sub"]);
    assert!(then.stdout.contains('b'), "{then:?}");
    let forgot = home.run(&["archive", "forget", "--keep-last", "0", "s::"]);
    assert_eq!(forgot.stderr, "sheaf: forgot 1 version, 0 kept\n");
    // What is left of it in the store is young, and goes when that is known to be nobody's.
    let young = home.run(&["archive", "repair", "s::"]);
    assert_eq!(
        young.stderr,
        "sheaf: removed 0 leftovers (0), 6 that are younger stay (--age 0 takes them, too)\n"
    );
    let would = home.run(&["archive", "repair", "-n", "--age", "0", "s::"]);
    assert_eq!(would.stderr, "sheaf: would remove 6 leftovers (15K)\n");
    let removed = home.run(&["archive", "repair", "--age", "0", "s::"]);
    assert_eq!(removed.stderr, "sheaf: removed 6 leftovers (15K)\n");
    assert_eq!(home.run(&["archive", "repair", "s::tree"]).code, Some(2));
}

#[test]
fn archive_du_sums_sizes_and_counts_hard_links_once() {
    let home = home();
    let large = home.path().join("tree/sub/large");
    fs::write(&large, vec![1; 1_100_000]).unwrap();
    fs::hard_link(&large, home.path().join("tree/again")).unwrap();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    let all = home.run(&["archive", "du", "-b", "s::/tree"]);
    let (below, whole) = (7 + 6, 1_100_000 + 7 + 6 + 6);
    let expected = format!("0\t/tree/sub/.hidden\n{below}\t/tree/sub\n{whole}\t/tree\n");
    assert_eq!(all.stdout, expected, "what has two names counts where it is met first");
    let some = home.run(&["archive", "du", "-cd0", "s::tree/sub", "s::tree/[a]"]);
    assert_eq!(some.stdout, "1075\t/tree/sub\n1\t/tree/a\n1075\ttotal\n");
    let twice = home.run(&["archive", "du", "-cb", "s::tree/{again,sub/large}"]);
    assert_eq!(twice.stdout, "1100000\t/tree/again\n1100000\ttotal\n");
    let none = home.run(&["archive", "du", "-sh", "s::none", "s::"]);
    assert_eq!((none.code, &none.stdout[..]), (Some(4), "1.1M\t/\n"));
    assert_eq!(none.stderr, "sheaf: /none: is not in the archive\n");
}

#[test]
fn names_may_be_patterns_that_reach_into_packs() {
    let home = home();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    let listed = home.run(&["archive", "ls", "-d", "s::/tree/*", "s::**/[bd]"]);
    assert_eq!(listed.stdout, "/tree/a\n/tree/sub\n/tree/sub/b\n");
    let got = home.run(&["archive", "get", "s::tree/{a,sub/?}", "back"]);
    assert_eq!(got.stderr, "sheaf: got 2 files (13) of 0 directories\n");
    assert_eq!(fs::read_to_string(home.path().join("back/b")).unwrap(), "second\n");
    let removed = home.run(&["archive", "rm", "s::tree/sub/.[!h]*"]);
    assert_eq!(removed.stderr, "sheaf: removed 1 file (6) and 0 directories\n");
    for command in
        [&["ls", "s::tree/n*"][..], &["get", "s::tree/n*", "back"], &["rm", "s::tree/n*"]]
    {
        let none = home.run(&[&["archive"], command].concat());
        assert_eq!(none.code, Some(1), "{none:?}");
        assert_eq!(none.stderr, "sheaf: tree/n*: nothing archived has such a name\n");
    }
}

#[test]
fn names_are_what_they_are_before_they_are_patterns() {
    let home = home();
    for name in ["*", "[ab]", "a", "b", "back\\slash", "{a,b}"] {
        fs::write(home.path().join("tree").join(name), name).unwrap();
    }
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    for (said, listed) in [
        ("s::tree/\\*", "/tree/*\n"),
        ("s::tree/*", "/tree/*\n"),
        ("s::tree/\\[ab]", "/tree/[ab]\n"),
        ("s::tree/[ab]", "/tree/[ab]\n"),
        ("s::tree/back\\slash", "/tree/back\\slash\n"),
        ("s::tree/back\\\\slash", "/tree/back\\slash\n"),
        ("s::tree/{a,b}", "/tree/{a,b}\n"),
        ("s::tree/?", "/tree/*\n/tree/a\n/tree/b\n"),
    ] {
        let run = home.run(&["archive", "ls", "-d", said]);
        assert_eq!((&run.stdout[..], run.code), (listed, Some(0)), "{said}: {run:?}");
    }
    let removed = home.run(&["archive", "rm", "s::tree/[ab]"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert_eq!(home.run(&["archive", "ls", "-d", "s::tree/[ab]"]).stdout, "/tree/a\n/tree/b\n");
}

/// Of two files of one name, none takes the place of the other.
#[test]
fn sources_with_the_same_name_do_not_replace_each_other() {
    let home = home();
    fs::write(home.path().join("tree/b"), "other").unwrap();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    let two = ["s::tree/b", "s::tree/sub/b"];
    for (command, last) in [("cp", "s::tree/sub/.hidden"), ("mv", "s::/")] {
        let run = home.run(&["archive", command, two[0], two[1], last]);
        assert_eq!(run.code, Some(4), "{run:?}");
        assert!(run.stderr.contains(" was made just now of another source\n"), "{run:?}");
    }
    assert_eq!(home.run(&["archive", "ls", "-d", "s::/b", "s::tree/sub/b"]).code, Some(0));
    let got = home.run(&["archive", "get", "s::b", two[1], "back"]);
    assert_eq!(got.code, Some(4), "{got:?}");
    assert!(got.stderr.contains("/tree/sub/b: another of this name was got just now"), "{got:?}");
    assert_eq!(fs::read(home.path().join("back/b")).unwrap(), b"other");
    for command in ["mv", "cp"] {
        let run = home.run(&["archive", command, "s::b", "s::/"]);
        assert!(run.code == Some(4) && run.stderr.contains("is the same file"), "{run:?}");
    }
}

#[test]
fn store_may_be_said_once() {
    let home = home();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    let mut command = home.command(&["archive", "ls", "::"]);
    let listed = command.env("SHEAF_ARCHIVE", home.path().join("s")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "tree\n", "{listed:?}");
    let listed = command.env("SHEAF_ARCHIVE", "s::").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "tree\n", "{listed:?}");
}

#[test]
fn packs_are_compressed_and_of_files_as_long_as_is_said() {
    let home = home();
    fs::write(home.path().join("tree/text"), "line\n".repeat(500_000)).unwrap();
    let objects = |store: &str, kind: &str| {
        let pattern = format!("find {store}/objects -name '*{kind}' | wc -l");
        let mut find = Command::new("sh");
        let found = find.arg("-c").arg(pattern).current_dir(home.path()).output().unwrap();
        String::from_utf8(found.stdout).unwrap()
    };
    let stored = home.run(&["archive", "store", "--create", "tree/text", "a::"]);
    assert_eq!((stored.code, &objects("a", ".tar.zst")[..]), (Some(0), "0\n"), "it is too long");
    let more = ["archive", "store", "--create", "--zstd=19", "--pack-limit=4M", "tree/text", "b::"];
    assert_eq!(home.run(&more).code, Some(0));
    assert_eq!((&objects("b", ".tar.zst")[..], &objects("b", ".tar")[..]), ("1\n", "0\n"));
    let plain = ["archive", "store", "--create", "--plain", "--pack-limit=4M", "tree/text", "c::"];
    assert_eq!(home.run(&plain).code, Some(0));
    assert_eq!((&objects("c", ".tar.zst")[..], &objects("c", ".tar")[..]), ("0\n", "1\n"));
    // What is stored there later is compressed, and both are read.
    assert_eq!(home.run(&["archive", "store", "tree", "c::"]).code, Some(0));
    assert!(objects("c", ".tar.zst") > objects("c", ".tar"));
    let both = home.run(&["archive", "verify", "c::"]);
    assert_eq!(both.code, Some(0), "{both:?}");
    assert_eq!(home.run(&["archive", "verify", "b::"]).code, Some(0));
    assert_eq!(home.run(&["archive", "get", "b::text", "back"]).code, Some(0));
    let got = fs::read_to_string(home.path().join("back/text")).unwrap();
    assert!(got == "line\n".repeat(500_000));
    for (option, error) in [
        ("--pack-limit=65M", "a file in a pack has at most 64M"),
        ("--pack-limit=0", "with 0 there are no packs: say --no-packs"),
        ("--zstd=20", "20 is not in 1..=19"),
        ("--zstd=3 --plain", "cannot be used with"),
    ] {
        let options: Vec<_> = option.split(' ').collect();
        let run = home.run(&[&["archive", "store"], &options[..], &["tree", "b::"]].concat());
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains(error), "{run:?}");
    }
}

#[test]
fn archive_command_errors_have_text_and_exit_status() {
    let home = home();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    for (code, args, error) in [
        (
            2,
            &["store", "tree", "other::"][..],
            "other: there is no store: sheaf archive store --create makes one",
        ),
        (2, &["store", "tree", "other"], "other: an archived name is STORE::PATH"),
        (4, &["ls", "none"], "none: No such file or directory (ENOENT)"),
        (2, &["ls", "::"], "::: say STORE::PATH, or set SHEAF_ARCHIVE"),
        (4, &["ls", "s::/nothing"], "/nothing: is not in the archive"),
        (
            4,
            &["store", "--create", "tree", "tree::"],
            "tree: is no store, and something is in it: Directory not empty (ENOTEMPTY)",
        ),
        (
            2,
            &["-w", "n1", "ls", "s::"],
            "-w is for work on many hosts, and no path is on hosts: HOSTSET:PATH is, and :PATH is on \
             all of them",
        ),
        (
            2,
            &["-w", "n1", "verify", "s::"],
            "-w is for work on many hosts, and archive verify works on this machine alone",
        ),
        (
            2,
            &["get", "s", "."],
            "s: an archived name is STORE::PATH: s::/ is all that is in this store",
        ),
        (
            4,
            &["rm", "-r", "--quiet", "s"],
            "s: is a store of archives: what is in it is named STORE::PATH (--local: itself)",
        ),
        (
            4,
            &["chmod", "-R", "--quiet", "go-rwx", "s/"],
            "s/: is a store of archives: what is in it is named STORE::PATH (--local: itself)",
        ),
        (
            2,
            &["cp", "-a", "tree", "s"],
            "s: is a store of archives: files go into it by store (--local: into its directory)",
        ),
    ] {
        let run = home.run(&[&["archive"], args].concat());
        assert_eq!((run.code, run.stderr), (Some(code), format!("sheaf: {error}\n")), "{args:?}");
    }
    let partial = home.run(&["archive", "store", "nothing", "tree/a", "s::"]);
    assert_eq!(partial.code, Some(4));
    assert_eq!(
        partial.stderr,
        "sheaf: nothing: cannot be stored: No such file or directory (ENOENT)\n\
         sheaf: stored 1 file (6) of 0 directories, 1 failed\n"
    );
}

#[test]
fn archive_find_matches_gnu_find() {
    let home = home();
    let tree = home.path().join("tree");
    fs::write(tree.join("sub/large"), vec![1; 1_100_000]).unwrap();
    fs::write(tree.join("sub/[odd] {name}"), "odd").unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
    std::os::unix::fs::symlink("a", tree.join("link")).unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(10 * 86_400);
    fs::File::open(tree.join("sub/b")).unwrap().set_modified(old).unwrap();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    for words in [
        &[][..],
        &["-name", "*a*"],
        &["-name", ".*"],
        &["-name", "[a-c]"],
        &["-name", "[!a-c]"],
        &["-name", r"\[odd\]*"],
        &["-name", "*{name}"],
        &["-iname", "LARGE"],
        &["-path", "*sub*"],
        &["-path", "*tree/*/b"],
        &["-type", "f"],
        &["-type", "d,l"],
        &["-type", "f", "-size", "+1k"],
        &["-type", "f", "-size", "-2"],
        &["-type", "f", "-size", "6c"],
        &["-type", "f", "-size", "2M"],
        &["-mtime", "+7"],
        &["-mtime", "-7"],
        &["-mtime", "10"],
        &["-mmin", "-60"],
        &["-newermt", "2020-01-31"],
        &["-newer", "tree/sub/b"],
        &["-perm", "640"],
        &["-perm", "-200", "-type", "f"],
        &["-perm", "/111"],
        &["-uid", "0"],
        &["-empty"],
        &["-maxdepth", "1"],
        &["-mindepth", "2"],
        &["-mindepth", "1", "-maxdepth", "2", "-type", "d"],
        &["!", "-type", "d"],
        &["-type", "l", "-o", "-name", "b", "-type", "f"],
        &["(", "-type", "l", "-o", "-name", "b", ")", "-a", "-not", "-type", "f"],
        &["-false", "-o", "-true", "-type", "p"],
        &["-name", "a", "-print0"],
        &["-name", "a", "-print", "-o", "-name", "b"],
        &["-name", "a", "-o", "-name", "b", "-print"],
        &["-print", "-name", "a"],
        &["-false", "-print", "-o", "-name", "a"],
        &["-name", "a", "-print", "-print"],
        &["-name", "a", "-print", "-o", "-name", "b", "-print0"],
        &["-print", "-o", "-print0"],
        &["!", "-print", "-o", "-print0"],
        &["(", "-name", "a", "-o", "-print", ")", "-empty"],
        &["-print", "-empty", "-print0"],
        &["-mindepth", "2", "-print"],
    ] {
        let found = home.run(&[&["archive", "find", "s::/tree"], words].concat());
        assert_eq!(found.code, Some(0), "{words:?}: {found:?}");
        let mut find = Command::new("find");
        let expected = find.arg("tree").args(words).current_dir(home.path()).output().unwrap();
        assert!(expected.status.success(), "{words:?}: {expected:?}");
        let lines = |text: &str| {
            let ends = |char| matches!(char, '\n' | '\0');
            let mut lines: Vec<_> = text
                .split_inclusive(ends)
                .map(|line| line.strip_prefix("s::/").unwrap_or(line).to_owned())
                .collect();
            lines.sort();
            lines
        };
        assert_eq!(
            lines(&found.stdout),
            lines(&String::from_utf8_lossy(&expected.stdout)),
            "{words:?}"
        );
    }
    for (words, error) in [
        (&["-nam", "x"][..], "-nam: no such test; sheaf archive find --help lists them"),
        (&["-name"], "-name: its value is missing"),
        (
            &["-size", "1x"],
            "-size 1x: it takes a number with c w b k M G behind it, and + or - before it",
        ),
        (&["(", "-empty"], "a ( has no )"),
        (&["-empty", ")"], "): there is no ( before it"),
        (&["-o", "-empty"], "-o: a test is missing before it"),
        (&["-empty", "-o"], "a test is missing at the end"),
        (&["-user", "nobody-of-this-name"], "-user nobody-of-this-name: there is no such user"),
    ] {
        let wrong = home.run(&[&["archive", "find", "s::/tree"], words].concat());
        assert_eq!((wrong.code, wrong.stderr), (Some(2), format!("sheaf: {error}\n")));
    }
}

#[test]
fn archive_find_and_grep_print_paths_with_their_store() {
    let home = home();
    fs::write(home.path().join("tree/a*"), "star\n").unwrap();
    fs::write(home.path().join("tree/abc"), "another\n").unwrap();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    // With the path within the archive it is compared, and what is printed is given to others.
    let found = home.run(&["archive", "find", "s::tree", "-path", "/tree/a[*]"]);
    assert_eq!(found.stdout, "s::/tree/a*\n", "{found:?}");
    let name = found.stdout.trim_end();
    let listed = home.run(&["archive", "grep", "-l", "star", "s::tree"]);
    assert_eq!(listed.stdout, found.stdout);
    let shown = home.run(&["archive", "stat", name]);
    assert!(shown.stdout.contains("path: /tree/a*\n"), "{shown:?}");
    assert_eq!(home.run(&["archive", "get", name, "back"]).code, Some(0));
    assert_eq!(fs::read(home.path().join("back/a*")).unwrap(), b"star\n");
    assert!(!home.path().join("back/abc").exists());
    let removed = home.run(&["archive", "rm", name]);
    assert_eq!(removed.stderr, "sheaf: removed 1 file (5) and 0 directories\n", "{removed:?}");
    assert_eq!(home.run(&["archive", "ls", "s::tree/a"]).code, Some(0));
    assert!(home.path().join("tree/a*").exists());

    let json = home.run(&["archive", "find", "--json", "s::tree/a"]);
    let record: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&record["store"], &record["path"]), (&"s".into(), &"/tree/a".into()));
    for args in [&["find", "::/tree/a"][..], &["grep", "-l", "first", "::/tree/a"]] {
        let mut command = home.command(&[&["archive"], args].concat());
        let run = command.env("SHEAF_ARCHIVE", home.path().join("s")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&run.stdout), "::/tree/a\n", "{run:?}");
    }
    // A file that is no text, and the name of a store in two.
    fs::write(home.path().join("tree/zero"), b"star\0\n").unwrap();
    home.run(&["archive", "store", "tree", "s::"]);
    let binary = home.run(&["archive", "grep", "star", "./s::tree/zero"]);
    assert_eq!(binary.stderr, "sheaf: ./s::/tree/zero: binary file matches\n", "{binary:?}");
}

#[test]
fn archived_files_are_searched() {
    let home = home();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    let run = |args: &[&str]| home.run(&[&["archive", "grep"], args].concat());
    let found = run(&["-n", "r[sd]", "s::tree"]);
    assert_eq!(found.stdout, "s::/tree/a:1:first\ns::/tree/sub/.c:1:third\n", "{found:?}");
    assert_eq!(run(&["first", "s::tree/a"]).stdout, "first\n");
    assert_eq!(
        run(&["-c", "-e", "d", "s::tree/sub/[!.]*", "s::tree/a"]).stdout,
        "s::/tree/sub/b:1\ns::/tree/a:0\n"
    );
    let colored = run(&["--color=always", "-o", "rst", "s::tree/a"]);
    assert_eq!(colored.stdout, "\u{1b}[01;31m\u{1b}[Krst\u{1b}[m\u{1b}[K\n");
    for (code, args, stderr) in [
        (1, &["nothing", "s::"][..], ""),
        (2, &["first", "s::none", "s::tree"], "/none: is not in the archive"),
        (2, &["first", "s::n*"], "n*: nothing archived has such a name"),
        (2, &["\\(", "s::"], "Unmatched ( or \\("),
        (0, &["-q", "first", "s::tree", "s::none"], ""),
        (2, &["-qs", "fourth", "s::tree", "s::none"], ""),
    ] {
        let run = run(args);
        assert_eq!(run.code, Some(code), "{args:?} {run:?}");
        let expected = if stderr.is_empty() { String::new() } else { format!("sheaf: {stderr}\n") };
        assert_eq!(run.stderr, expected, "{args:?}");
    }
}

#[test]
fn store_dry_run_lists_files_and_checksum_compares_contents() {
    let home = home();
    let dry = home.run(&["archive", "store", "--create", "--dry-run", "tree", "s::"]);
    let names = "tree/a\ntree/sub/.c\ntree/sub/.hidden/d\ntree/sub/b\n";
    assert_eq!(dry.stderr, "sheaf: would store 4 files (19) of 3 directories\n");
    let mut lines: Vec<_> = dry.stdout.split_inclusive('\n').collect();
    lines.sort_unstable();
    assert_eq!(lines.concat(), names);
    assert!(!home.path().join("s").exists(), "it makes nothing");
    home.run(&["archive", "store", "--create", "tree", "s::"]);

    // The same content behind another inode, and another content of the same length and time.
    let at = |name: &str| home.path().join("tree").join(name);
    let time = fs::metadata(at("sub/b")).unwrap().modified().unwrap();
    fs::copy(at("a"), at("copy")).unwrap();
    fs::File::open(at("copy"))
        .unwrap()
        .set_modified(fs::metadata(at("a")).unwrap().modified().unwrap())
        .unwrap();
    fs::rename(at("copy"), at("a")).unwrap();
    fs::write(at("sub/b"), "SECOND\n").unwrap();
    fs::File::open(at("sub/b")).unwrap().set_modified(time).unwrap();
    let again = home.run(&["archive", "store", "--checksum", "tree", "s::"]);
    assert_eq!(again.stderr, "sheaf: stored 1 file (7) of 3 directories, 3 unchanged\n");
    let stats = home.run(&["archive", "store", "--stats", "--limit", "disk=1M", "tree", "s::"]);
    assert!(stats.stderr.contains("limited by "), "{stats:?}");
    assert!(stats.stderr.contains(" tasks "), "{stats:?}");
    let dry = home.run(&["archive", "get", "--dry-run", "s::tree/sub", "."]);
    let got = home.run(&["archive", "get", "--stats", "s::tree/sub", "."]);
    assert_eq!(dry.stdout, "./sub/.c\n./sub/.hidden/d\n./sub/b\n");
    assert_eq!(dry.stderr, "sheaf: would get 3 files (13) of 2 directories\n");
    assert!(got.stderr.ends_with("sheaf: got 3 files (13) of 2 directories\n"), "{got:?}");
    assert!(got.stderr.contains(" tasks "), "{got:?}");
    let dry = home.run(&["archive", "get", "--dry-run", "s::tree/sub", "."]);
    assert_eq!(dry.stderr, "sheaf: would get 0 files (0) of 2 directories, 3 there already\n");
    let bad = home.run(&["archive", "store", "--limit", "disks=1M", "tree", "s::"]);
    assert_eq!(bad.code, Some(2));
    assert!(bad.stderr.contains("no resource disks: there are memory, cpu, disk, "), "{bad:?}");
}

#[test]
fn all_that_is_known_of_a_name_is_shown() {
    let home = home();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    let run = home.run(&["archive", "stat", "--packs", "s::tree/a"]);
    let has = |text: &str| assert!(run.stdout.contains(text), "{text} {run:?}");
    has("       path: /tree/a\n       kind: file\n       mode: 0640\n");
    has("       size: 6\n   modified: ");
    let digest = blake3::hash(b"first\n");
    has(&format!("     blake3: {digest}\n"));
    has(".tar.zst, 6 bytes from 1536 on, generation 0\n");
    home.run(&["archive", "rm", "s::tree/sub/b"]);
    let run = home.run(&["archive", "stat", "--packs", "s::tree/sub"]);
    assert!(run.stdout.contains(": 1 member, 2.0K live, 2.0K dead, generation 1\n"), "{run:?}");
    let none = home.run(&["archive", "stat", "s::none", "s::tree/a"]);
    assert_eq!((none.code, &none.stderr[..]), (Some(4), "sheaf: /none: is not in the archive\n"));
    home.run(&["archive", "forget", "--keep-last", "0", "s::"]);
    let dry = home.run(&["archive", "repack", "-n", "s::tree/sub"]);
    assert!(dry.stderr.starts_with("sheaf: would write 1 pack as 1, "), "{dry:?}");
    let done = home.run(&["archive", "repack", "s::tree/sub"]);
    assert!(done.stderr.starts_with("sheaf: wrote 1 pack as 1, "), "{done:?}");
    let run = home.run(&["archive", "stat", "--packs", "s::tree/sub"]);
    assert!(run.stdout.contains(": 1 member, 2.0K live, 0 dead, generation 0\n"), "{run:?}");
    assert_eq!(home.run(&["archive", "verify", "s::"]).code, Some(0));
}
