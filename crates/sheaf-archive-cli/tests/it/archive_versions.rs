//! Versions of an archive, as a user makes, lists, reads and forgets them.
use crate::archive::home;
use sheaf_testing::home::{Home, Run};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn run(home: &Home, args: &[&str]) -> Run {
    home.run(&[&["archive"], args].concat())
}

fn ok(home: &Home, args: &[&str]) -> Run {
    let run = run(home, args);
    assert_eq!(run.code, Some(0), "{args:?}: {run:?}");
    run
}

/// The marks in the store.
fn marks(home: &Home) -> Vec<PathBuf> {
    let all = fs::read_dir(home.path().join("s/objects/versions")).unwrap();
    all.map(|mark| mark.unwrap().path()).collect()
}

/// Two versions: `tree/a` says another thing in the second, and `tree/sub/b` was removed.
fn two_versions() -> Home {
    let home = home();
    ok(&home, &["store", "--create", "--name", "one", "tree", "s::"]);
    fs::write(home.path().join("tree/a"), "other and longer\n").unwrap();
    fs::remove_file(home.path().join("tree/sub/b")).unwrap();
    ok(&home, &["rm", "s::tree/sub/b"]);
    ok(&home, &["store", "tree", "s::"]);
    home
}

/// Identities of all versions, the oldest first.
fn ids(home: &Home) -> Vec<String> {
    let log = ok(home, &["log", "s::"]);
    log.stdout.lines().map(|line| line.split("  ").next().unwrap().to_owned()).collect()
}

#[test]
fn versions_are_named_listed_and_read() {
    let home = two_versions();
    let log = ok(&home, &["log", "s::"]).stdout;
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[0].ends_with("  4 files (19), 0 unchanged  one"), "{log}");
    assert!(lines[1].ends_with("  1 file (17), 2 unchanged"), "{log}");
    let json = ok(&home, &["log", "--json", "s::"]).stdout;
    assert_eq!(json.lines().count(), 2);
    assert!(json.contains("\"name\":\"one\"") && json.contains("\"forgotten\":false"), "{json}");

    let id = &ids(&home)[0];
    for at in ["one", id, &id[..4], "@0", "2001-01-01"] {
        let cat = run(&home, &["cat", "--at", at, "s::tree/a"]);
        if at.starts_with(['@', '2']) && at != &id[..4] && at != id.as_str() {
            assert_eq!(cat.code, Some(2), "{cat:?}");
            let text = format!("sheaf: {at}: no version is as old as that\n");
            assert_eq!(cat.stderr, text);
            continue;
        }
        assert_eq!((cat.code, &cat.stdout[..]), (Some(0), "first\n"), "{at}: {cat:?}");
        assert_eq!(ok(&home, &["ls", "--at", at, "s::tree/sub"]).stdout, "b\n");
        let found = ok(&home, &["find", "--at", at, "s::", "-name", "b"]);
        assert_eq!(found.stdout, "s::/tree/sub/b\n");
        let found = ok(&home, &["grep", "--at", at, "-r", "second", "s::"]);
        assert!(found.stdout.ends_with("second\n"), "{found:?}");
        let usage = ok(&home, &["du", "-sb", "--at", at, "s::tree"]);
        let now = ok(&home, &["du", "-sb", "s::tree"]);
        assert_ne!(usage.stdout, now.stdout);
        ok(&home, &["stat", "--at", at, "s::tree/sub/b"]);
    }
    for at in ["latest", "2999-12-31", "@99999999999"] {
        assert_eq!(ok(&home, &["cat", "--at", at, "s::tree/a"]).stdout, "other and longer\n");
        let gone = run(&home, &["stat", "--at", at, "s::tree/sub/b"]);
        assert_eq!(gone.code, Some(4), "{gone:?}");
    }
    let got = ok(&home, &["get", "--at", "one", "s::tree", "back"]);
    assert_eq!(got.stderr, "sheaf: got 4 files (19) of 3 directories\n");
    assert_eq!(fs::read_to_string(home.path().join("back/tree/a")).unwrap(), "first\n");
    assert_eq!(fs::read_to_string(home.path().join("back/tree/sub/b")).unwrap(), "second\n");
    let tar = ok(&home, &["get", "--at", "one", "--to-tar", "old.tar", "s::tree"]);
    assert_eq!(tar.code, Some(0));
    // Without it all is as it is now.
    assert_eq!(ok(&home, &["ls", "-R", "s::tree"]).stdout, "/tree:\na\nsub\n\n/tree/sub:\n");
    ok(&home, &["verify", "s::"]);
}

#[test]
fn what_is_no_version_is_said() {
    let home = home();
    ok(&home, &["store", "--create", "--dry-run", "tree", "s::"]);
    ok(&home, &["store", "--create", "tree", "s::"]);
    fs::remove_file(&marks(&home)[0]).unwrap();
    let none = run(&home, &["ls", "--at", "latest", "s::"]);
    let text = "sheaf: latest: the archive has no versions yet\n";
    assert_eq!((none.code, &none.stderr[..]), (Some(2), text));
    assert_eq!(ok(&home, &["log", "s::"]).stdout, "");
    ok(&home, &["store", "--dry-run", "tree", "s::"]);
    assert_eq!(ok(&home, &["log", "s::"]).stdout, "", "nothing was stored");
    for args in [
        &["ls", "--at", "latest", "tree"][..],
        &["du", "--at", "latest", "--local", "s::"],
        &["find", "--at", "latest", "tree"],
        &["grep", "--at", "latest", "-r", "x", "tree"],
        &["ls", "--at", "none", "s::"],
        &["ls", "--at", "latest", ":/tree"],
        &["log", "s::tree"],
        &["log", "s"],
        &["forget", "s::"],
        &["forget", "s::tree", "--keep-last", "1"],
        &["forget", "s::", "none"],
        &["forget", "s::", "2999-01-01"],
        &["forget", "s::", "--keep-last", "x"],
        &["forget", "s::", "--keep-within", "7"],
        &["forget", "s::", "--keep-last", "1", "one"],
        &["store", "--name", "", "tree", "s::"],
        &["store", "--name", "latest", "tree", "s::"],
        &["store", "--name", "a\nb", "tree", "s::"],
    ] {
        let refused = run(&home, args);
        assert_eq!((refused.code, &refused.stdout[..]), (Some(2), ""), "{args:?}: {refused:?}");
        assert!(!refused.stderr.is_empty(), "{args:?}");
    }
    // What could not be read is counted in the version.
    fs::create_dir(home.path().join("other")).unwrap();
    let partly = run(&home, &["store", "other", "none", "s::"]);
    assert_eq!(partly.code, Some(4), "{partly:?}");
    let log = ok(&home, &["log", "s::"]).stdout;
    assert!(log.ends_with(", 1 failed\n"), "{log}");
}

#[test]
fn versions_are_forgotten_and_their_room_comes_back() {
    let home = home();
    for number in 0..4_u8 {
        // Nothing that is compressed well.
        let mut state = u64::from(number);
        let content: Vec<u8> = (0..60_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
                (state >> 40) as u8
            })
            .collect();
        fs::write(home.path().join(format!("tree/sub/{number}")), content).unwrap();
        if number > 0 {
            fs::remove_file(home.path().join(format!("tree/sub/{}", number - 1))).unwrap();
            ok(&home, &["rm", &format!("s::tree/sub/{}", number - 1)]);
        }
        let name = ["day", "day", "release", "now"][usize::from(number)];
        ok(&home, &["store", "--create", "--name", name, "tree", "s::"]);
    }
    let bytes = || {
        let run =
            Command::new("du").args(["-sb", "s/objects/packs"]).current_dir(home.path()).output();
        let said = String::from_utf8(run.unwrap().stdout).unwrap();
        said.split('\t').next().unwrap().parse::<u64>().unwrap()
    };
    let give_back = || {
        ok(&home, &["repack", "s::"]);
        ok(&home, &["repair", "--age", "0", "s::"]);
        bytes()
    };
    let all = ids(&home);
    let before = give_back();
    let args = ["forget", "-n", "--keep-last", "1", "--keep-tag", "release", "s::"];
    let dry = ok(&home, &args);
    assert_eq!(dry.stderr, "sheaf: would forget 2 versions, 2 kept\n");
    let would: Vec<_> = dry.stdout.lines().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(would, all[..2]);
    assert_eq!((ids(&home), give_back()), (all.clone(), before));
    let done = ok(&home, &["forget", "--keep-last", "1", "--keep-tag", "release", "--json", "s::"]);
    assert_eq!(done.stdout.matches("\"forgotten\":true").count(), 2, "{done:?}");
    assert_eq!(ids(&home), all[2..]);
    let after = give_back();
    // The first pack has what no version has any longer, and stays as long as an old version has the rest.
    assert!(after < before - 50_000, "{before}, {after}");
    let got = ok(&home, &["get", "--at", "release", "s::tree/sub/2", "back"]);
    assert!(got.stderr.starts_with("sheaf: got 1 file "), "{got:?}");
    let gone = run(&home, &["ls", "--at", &all[0], "s::"]);
    assert_eq!(gone.code, Some(2), "{gone:?}");
    // By name; what is archived now stays.
    let one = ok(&home, &["forget", "s::", "release", &all[2], "-v"]);
    assert_eq!(one.stderr, "sheaf: forgot 1 version, 1 kept\n");
    assert!(one.stdout.starts_with(&all[2]), "{one:?}");
    let rest = ok(&home, &["forget", "s::", "--keep-last", "0"]);
    assert_eq!(rest.stderr, "sheaf: forgot 1 version, 0 kept\n");
    let last = give_back();
    assert!(last < after - 100_000, "{after}, {last}");
    ok(&home, &["verify", "s::"]);
    ok(&home, &["get", "s::tree", "now"]);
    assert!(home.path().join("now/tree/sub/3").exists());
}

#[test]
fn damaged_version_is_told_and_forgotten_by_its_identity() {
    let home = two_versions();
    let all = marks(&home);
    let mut damaged = fs::read(&all[0]).unwrap();
    damaged[60] ^= 1;
    fs::remove_file(&all[0]).unwrap();
    fs::write(&all[0], damaged).unwrap();
    let log = run(&home, &["log", "s::"]);
    assert_eq!((log.code, log.stdout.lines().count()), (Some(4), 1), "{log:?}");
    assert!(log.stderr.contains("is damaged: it is not as it was written"), "{log:?}");
    let verified = run(&home, &["verify", "s::"]);
    assert_eq!(verified.code, Some(1), "{verified:?}");
    let kept = ok(&home, &["forget", "--keep-last", "1", "s::"]);
    assert_eq!(kept.stderr, "sheaf: forgot 0 versions, 2 kept\n");
    let name = all[0].file_name().unwrap().to_str().unwrap();
    let id = name.split('-').nth(1).unwrap();
    let read = run(&home, &["ls", "--at", id, "s::"]);
    assert_eq!(read.code, Some(4), "{read:?}");
    ok(&home, &["forget", "s::", &id[..8]]);
    assert_eq!(ok(&home, &["log", "s::"]).stdout.lines().count(), 1);
    ok(&home, &["verify", "s::"]);
}

/// Forgetting and removing go on beside a `store`, and take nothing of it.
#[test]
fn versions_are_forgotten_while_a_store_runs() {
    let home = two_versions();
    for directory in 0..300 {
        let directory = home.path().join(format!("many/{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..10_u8 {
            fs::write(directory.join(file.to_string()), [file; 2000]).unwrap();
        }
    }
    std::thread::scope(|scope| {
        let store = scope.spawn(|| ok(&home, &["store", "--name", "many", "many", "s::"]));
        while !store.is_finished() {
            ok(&home, &["forget", "--keep-last", "1", "s::"]);
            ok(&home, &["repair", "--age", "0", "s::"]);
        }
    });
    ok(&home, &["verify", "s::"]);
    ok(&home, &["get", "--at", "many", "s::many", "back"]);
    let mut diff = Command::new("diff");
    let diff = diff.args(["-r", "many", "back/many"]).current_dir(home.path()).status();
    assert!(diff.unwrap().success());
    ok(&home, &["forget", "--keep-last", "1", "s::"]);
    assert!(ok(&home, &["log", "s::"]).stdout.ends_with("  many\n"));
}

#[test]
fn rules_that_keep_nothing_are_refused() {
    let home = Home::new();
    home.write("tree/a", "a");
    let run = |args: &[&str]| home.run(&[&["archive"], args].concat());
    let stored = run(&["store", "--create", "--name", "release", "tree", "s::"]);
    assert_eq!(stored.code, Some(0), "{stored:?}");
    for dry in [&["--dry-run"][..], &[]] {
        let refused = run(&[&["forget", "--keep-tag", "relaese", "s::"], dry].concat());
        assert!(refused.code == Some(2), "{refused:?}");
        assert!(
            refused.stderr.contains("keep none of 1 version: say --keep-last 0"),
            "{refused:?}"
        );
    }
    assert!(run(&["log", "s::"]).stdout.contains("release"));
    assert_eq!(run(&["forget", "--keep-last", "0", "s::"]).code, Some(0));
    assert_eq!(run(&["log", "s::"]).stdout, "");
}
