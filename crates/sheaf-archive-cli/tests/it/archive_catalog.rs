//! Catalogs: each machine and user has its own, of the log, and none is in a store.
use crate::archive::home;
use sheaf_testing::built;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::program::have;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// The catalogs of a home, without what SQLite keeps next to them.
pub fn catalogs(home: &Home) -> Vec<PathBuf> {
    in_caches(&home.path().join(".cache"))
}

/// The only one.
pub fn catalog(home: &Home) -> PathBuf {
    let mut all = catalogs(home);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// Removes all of them.
pub fn forget(home: &Home) {
    fs::remove_dir_all(home.path().join(".cache/sheaf/archives")).unwrap();
}

fn in_caches(caches: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(caches.join("sheaf/archives")) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|kind| kind == "sqlite")).collect()
}

#[test]
fn catalog_is_in_the_cache_and_not_in_the_store() {
    let home = home();
    let stored = home.run(&["archive", "store", "--create", "tree", "s::"]);
    assert_eq!(stored.code, Some(0), "{stored:?}");
    let entries = fs::read_dir(home.path().join("s")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["objects", "sheaf-archive", "tmp"]);
    let file = catalog(&home);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o077, 0);
    assert_eq!(fs::metadata(file.parent().unwrap()).unwrap().mode() & 0o077, 0);
    // Another store in the place of this one has another catalog.
    fs::remove_dir_all(home.path().join("s")).unwrap();
    let again = home.run(&["archive", "store", "--create", "tree/sub", "s::"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(home.run(&["archive", "ls", "s::"]).stdout, "sub\n");
}

#[test]
fn store_is_used_without_a_place_for_its_catalog() {
    let home = home();
    fs::write(home.path().join("file"), "").unwrap();
    for args in [&["store", "--create", "tree", "s::"][..], &["find", "s::/tree/a"]] {
        let mut command = home.command(&[&["archive"], args].concat());
        let ran =
            Run::of(command.env("XDG_CACHE_HOME", home.path().join("file")).output().unwrap());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stderr.contains("it is made in memory, for this command"), "{ran:?}");
    }
    assert!(catalogs(&home).is_empty());
}

/// Under `sudo -E`, say, the cache is another user's.
#[test]
fn catalog_that_another_user_could_exchange_is_not_used() {
    if !rustix::process::geteuid().is_root() {
        return sheaf_testing::skipped("only root can make directories of other users");
    }
    let home = home();
    let at = |name: &str| home.path().join(name);
    let of = |cache: &str, args: &[&str]| {
        let mut command = home.command(&[&["archive"], args].concat());
        Run::of(command.env("XDG_CACHE_HOME", at(cache)).output().unwrap())
    };
    for (cache, owner, mode) in [("theirs", 4711, 0o755), ("open", 0, 0o777)] {
        fs::create_dir_all(at(cache).join("sheaf/archives")).unwrap();
        std::os::unix::fs::chown(at(cache), Some(owner), None).unwrap();
        fs::set_permissions(at(cache), PermissionsExt::from_mode(mode)).unwrap();
        for args in [&["store", "--create", "tree", "s::"][..], &["ls", "s::"]] {
            let ran = of(cache, args);
            let told = "could exchange it: it is made in memory, for this command";
            assert!(ran.code == Some(0) && ran.stderr.contains(told), "{ran:?}");
        }
        assert_eq!(fs::read_dir(at(cache).join("sheaf/archives")).unwrap().count(), 0);
    }
    // Nor is one that is named.
    fs::create_dir(at("shared")).unwrap();
    fs::set_permissions(at("shared"), PermissionsExt::from_mode(0o1777)).unwrap();
    let named = |name: &str| home.run(&["archive", "--catalog", name, "ls", "s::"]);
    assert_eq!(named("shared/own.sqlite").code, Some(0));
    fs::write(at("shared/c.sqlite"), "").unwrap();
    std::os::unix::fs::chown(at("shared/c.sqlite"), Some(4711), None).unwrap();
    for name in ["shared/c.sqlite", "theirs/c.sqlite", "open/c.sqlite"] {
        let ran = named(name);
        assert!(ran.code == Some(2) && ran.stderr.contains("could exchange it"), "{name}: {ran:?}");
    }
    // One's own in a directory like /tmp is used.
    fs::create_dir(at("sticky")).unwrap();
    fs::set_permissions(at("sticky"), PermissionsExt::from_mode(0o1777)).unwrap();
    assert_eq!(of("sticky", &["ls", "s::"]).stderr, "");
    assert!(fs::read_dir(at("sticky/sheaf/archives")).unwrap().count() > 0);
}

/// By a list that was there before the store was.
#[test]
fn users_whom_a_default_list_names_share_a_store() {
    if !rustix::process::geteuid().is_root() || !have("setfacl") {
        return sheaf_testing::skipped("needs root, and the package acl");
    }
    let home = home();
    let at = |name: &str| home.path().join(name);
    let program = at("sheaf-archive");
    fs::copy(built("sheaf-archive"), &program).unwrap();
    fs::set_permissions(home.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let as_user = |user: u32, args: &[&str]| {
        let cache = at(&format!("cache{user}"));
        fs::create_dir_all(&cache).unwrap();
        std::os::unix::fs::chown(&cache, Some(user), Some(4700)).unwrap();
        let mut command = Command::new(&program);
        command.arg("archive").args(args).current_dir(home.path()).env("XDG_CACHE_HOME", &cache);
        command.env("HOME", &cache).uid(user).gid(4700);
        Run::of(command.output().unwrap())
    };
    let setfacl = |list: &str, name: &str| {
        let mut set = Command::new("setfacl");
        let set = set.args(["-m", list, name]).current_dir(home.path()).status();
        set.is_ok_and(|set| set.success())
    };
    for name in ["s", "own"] {
        fs::create_dir(at(name)).unwrap();
        std::os::unix::fs::chown(at(name), Some(4711), Some(4711)).unwrap();
        fs::set_permissions(at(name), PermissionsExt::from_mode(0o700)).unwrap();
    }
    if !setfacl("g:4700:rwx,d:g:4700:rwx", "s") {
        return sheaf_testing::skipped("needs a file system with access control lists");
    }
    fs::set_permissions(at("tree/a"), PermissionsExt::from_mode(0o644)).unwrap();
    for (user, to) in [(4711, "s::/1"), (4712, "s::/2"), (0, "s::/3"), (4711, "s::/4")] {
        let stored = as_user(user, &["store", "--create", "tree", to]);
        assert_eq!(stored.code, Some(0), "{user}: {stored:?}");
    }
    for user in [4711, 4712] {
        for args in [&["ls", "s::"][..], &["verify", "s::"], &["log", "s::"]] {
            assert_eq!(as_user(user, args).code, Some(0), "{user}: {args:?}");
        }
        assert_eq!(as_user(user, &["cat", "s::/3/tree/a"]).stdout, "first\n");
    }
    for args in [&["rm", "-r", "s::/1"][..], &["forget", "--keep-last", "1", "s::"]] {
        assert_eq!(as_user(4712, args).code, Some(0), "{args:?}");
    }
    assert_eq!(as_user(4711, &["repair", "--age", "0", "s::"]).code, Some(0));
    assert_eq!(as_user(4711, &["verify", "s::"]).code, Some(0));
    // Nobody else is let in.
    let seen = fs::metadata(at("s/objects/log")).unwrap().permissions().mode();
    assert_eq!(seen & 0o007, 0, "{seen:o}");
    // Without a list it is the owner's alone, and a list that names nobody lets root in for nothing.
    assert_eq!(as_user(4711, &["store", "--create", "tree", "own::"]).code, Some(0));
    for list in ["d:u::rwx", "d:g::rwx"] {
        let refused = as_user(0, &["store", "tree", "own::/root"]);
        assert!(
            refused.code == Some(4) && refused.stderr.contains("lock the owner"),
            "{refused:?}"
        );
        assert!(setfacl(list, "own/objects"));
    }
    assert_eq!(fs::metadata(at("own/objects")).unwrap().permissions().mode() & 0o077, 0);
    check_lists_without_the_owner(&at, &as_user, &setfacl);
}

#[test]
fn list_that_keeps_its_own_user_out_makes_no_store() {
    if !have("setfacl") {
        return sheaf_testing::skipped("needs the package acl");
    }
    let home = home();
    fs::create_dir(home.path().join("s")).unwrap();
    let setfacl = |list: &str| {
        let mut set = Command::new("setfacl");
        set.args(["-m", list, "s"]).current_dir(home.path()).status().unwrap().success()
    };
    for list in ["d:u::---", "d:u::r-x", "d:u::rw-"] {
        if !setfacl(list) {
            return sheaf_testing::skipped("needs a file system with access control lists");
        }
        let refused = home.run(&["archive", "store", "--create", "tree", "s::"]);
        assert!(refused.stderr.contains("setfacl -m d:u::rwx"), "{list}: {refused:?}");
        assert_eq!(fs::read_dir(home.path().join("s")).unwrap().count(), 0, "{list}");
    }
    assert!(setfacl("d:u::rwx"));
    assert_eq!(home.run(&["archive", "store", "--create", "tree", "s::"]).code, Some(0));
    assert_eq!(home.run(&["archive", "verify", "s::"]).code, Some(0));
}

/// Of a store of user 4711: lists that let others in, and not the owner.
fn check_lists_without_the_owner(
    at: &dyn Fn(&str) -> PathBuf,
    as_user: &dyn Fn(u32, &[&str]) -> Run,
    setfacl: &dyn Fn(&str, &str) -> bool,
) {
    for list in [
        "d:u:4712:rwx",
        "d:u:4711:---,d:g:4700:rwx",
        "d:u:4711:rwx,d:m::---",
        "d:u:4711:r-x,d:g:4700:rwx,d:m::rwx",
    ] {
        assert!(setfacl(list, "own/objects") && setfacl("u:4712:rwx", "own"), "{list}");
        for user in [0, 4712] {
            let refused = as_user(user, &["store", "tree", "own::/other"]);
            assert_eq!(refused.code, Some(4), "{list} {user}: {refused:?}");
        }
        assert_eq!(as_user(4711, &["ls", "own::"]).code, Some(0), "{list}");
    }
    assert!(setfacl("d:u:4711:rwx,d:m::rwx", "own/objects"));
    let log = fs::read_dir(at("own/objects")).unwrap().map(|entry| entry.unwrap().path());
    for directory in log.chain([at("own/tmp")]) {
        assert!(setfacl("d:u:4711:rwx,d:m::rwx", directory.to_str().unwrap()));
    }
    let stored = as_user(0, &["store", "tree", "own::/root"]);
    assert_eq!(stored.code, Some(0), "{stored:?}");
    assert_eq!(as_user(4711, &["ls", "own::/root"]).stdout, "tree\n");
}

#[test]
fn store_whose_objects_are_somewhere_else_is_refused() {
    let home = home();
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    assert_eq!(run(&["store", "--create", "tree", "s::"]).code, Some(0));
    fs::rename(home.path().join("s/objects"), home.path().join("away")).unwrap();
    fs::create_dir(home.path().join("s/objects")).unwrap();
    forget(&home);
    for args in [&["verify", "s::"][..], &["log", "s::"], &["store", "tree", "s::"], &["ls", "s::"]]
    {
        let refused = run(args);
        assert!(refused.code == Some(4) && refused.stderr.contains("to be mounted"), "{refused:?}");
    }
    // A new store has its log there from the beginning.
    assert_eq!(run(&["store", "--create", "tree/.", "t::"]).code, Some(0));
    fs::remove_dir_all(home.path().join("t")).unwrap();
    fs::create_dir_all(home.path().join("t/objects/log")).unwrap();
    assert_eq!(
        run(&["store", "--create", "tree", "t::"]).code,
        Some(0),
        "a making that was cut off"
    );
}

/// As a copy of one in a bucket has it.
#[test]
fn store_that_was_copied_from_a_bucket_is_used() {
    let home = home();
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    assert_eq!(run(&["store", "--create", "tree", "s::"]).code, Some(0));
    let mark = home.path().join("s/sheaf-archive");
    let line = fs::read_to_string(&mark).unwrap();
    for (more, is_one) in
        [(format!("store {}\n", "0a".repeat(16)), true), ("other\n".into(), false)]
    {
        fs::write(&mark, format!("{line}{more}")).unwrap();
        let stored = run(&["store", "tree", "s::"]);
        assert_eq!(stored.code == Some(0), is_one, "{stored:?}");
    }
}

/// Two machines that share a store: each has its own catalog, and both say the same.
#[test]
fn machines_that_share_a_store_agree() {
    let home = home();
    let stored = home.run(&["archive", "store", "--create", "tree", "s::/0"]);
    assert_eq!(stored.code, Some(0), "{stored:?}");
    let run = |machine: &str, args: &[&str]| {
        let mut command = home.command(&[&["archive"], args].concat());
        command.env("XDG_CACHE_HOME", home.path().join(machine));
        Run::of(command.output().unwrap())
    };
    let rounds = 8;
    thread::scope(|scope| {
        for machine in ["a", "b"] {
            scope.spawn(move || {
                for round in 0..rounds {
                    let ran =
                        run(machine, &["store", "tree", &format!("s::/of-{machine}/{round}")]);
                    assert_eq!(ran.code, Some(0), "{ran:?}");
                    let ran = run(machine, &["find", &format!("s::/of-{machine}"), "-name", "b"]);
                    assert_eq!(ran.stdout.lines().count(), round + 1, "{ran:?}");
                }
            });
        }
    });
    let both = ["a", "b", "new"].map(|machine| run(machine, &["find", "s::"]).stdout);
    assert_eq!(both[0].lines().filter(|line| line.ends_with("/b")).count(), 2 * rounds + 1);
    assert_eq!(both[0], both[1]);
    assert_eq!(both[0], both[2]);
    for machine in ["a", "b", "new"] {
        assert_eq!(in_caches(&home.path().join(machine)).len(), 1);
        let verified = run(machine, &["verify", "s::"]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
    }
}

/// A store of the version before, with the catalog that this had in the store.
#[test]
fn store_of_the_version_before_is_read_and_written() {
    let home = home();
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kept/store-0.tar.gz");
    let mut tar = Command::new("tar");
    let unpacked = tar.args(["-xzf", kept, "--no-same-owner"]).current_dir(home.path()).output();
    assert!(unpacked.unwrap().status.success());
    let found = home.run(&["archive", "find", "S::", "-type", "f", "-printf", "%P %s %m\\n"]);
    let expected = "copy/deep/large 20000 644\ncopy/harvest 19 640\ncopy/hole 100003 644\n\
                    tree/list 5 600\ntree/sub/deep/large 20000 644\ntree/sub/harvest 19 640\n\
                    tree/sub/hole 100003 644\n";
    assert_eq!((found.code, &found.stdout[..]), (Some(0), expected), "{found:?}");
    let got = home.run(&["archive", "get", "S::tree", "S::copy", "back"]);
    assert_eq!(got.code, Some(0), "{got:?}");
    let back = home.path().join("back");
    assert_eq!(fs::read(back.join("tree/list")).unwrap(), b"milk\n");
    assert_eq!(fs::read_link(back.join("tree/link")).unwrap(), Path::new("list"));
    assert_eq!(fs::read(back.join("copy/harvest")).unwrap(), b"The sheaf is sold.\n");
    assert_eq!(fs::read(back.join("copy/deep/large")).unwrap(), [b'x'; 20_000]);
    assert!(fs::read(back.join("tree/sub/hole")).unwrap().ends_with(b"\0end"));
    for args in [&["store", "tree", "S::new"][..], &["repack", "S::"], &["verify", "S::"]] {
        let ran = home.run(&[&["archive"], args].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}
