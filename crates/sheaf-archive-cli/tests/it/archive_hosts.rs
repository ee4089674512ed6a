//! `sheaf archive` with files on the hosts of a session, some of which die or hang on the way.
use rustix::process::Signal;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{Up, turn, wait_until};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const DIRECTORIES: usize = 150;
const FILES: usize = 8;

/// A tree of some directories, in `export`.
fn make_tree(at: &Path, of: &str) {
    for directory in 0..DIRECTORIES {
        let directory = at.join(format!("{}/{directory}", directory % 7));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..FILES {
            let content = format!("{of} {} {file}\n", directory.display()).repeat(40);
            fs::write(directory.join(format!("{file}")), content).unwrap();
        }
    }
    // What is as old as that is known to be unchanged.
    std::thread::sleep(Duration::from_millis(50));
}

/// A session of processes whose hosts all see the same files.
fn shared(config: &str) -> Up {
    let home = Home::with_config(config);
    make_tree(&home.path().join("export/tree"), "shared");
    let export = home.path().join("export").to_str().unwrap().to_owned();
    Up::at(home, &["--processes", "4", "--export", &export])
}

fn is_same(home: &Home, one: &str, other: &str) {
    let mut diff = Command::new("diff");
    let diff = diff.args(["-r", one, other]).current_dir(home.path()).output().unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
}

/// What is archived is what is there, each name once, and nothing is damaged.
fn assert_archived(up: &Up) {
    let verified = up.home.run(&["archive", "verify", "s::"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    let got = up.home.run(&["archive", "get", "s::/all/tree", "back"]);
    assert_eq!(got.code, Some(0), "{got:?}");
    is_same(&up.home, "export/tree", "back/tree");
    let found = up.home.run(&["archive", "find", "s::/all/tree", "-type", "f"]);
    assert_eq!(found.stdout.lines().count(), DIRECTORIES * FILES);
}

/// So many packs are in the store.
pub fn packs(home: &Home) -> usize {
    let list = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path());
    let tar = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "zst");
    list(&home.path().join("s/objects/packs")).flat_map(|path| list(&path).filter(tar)).count()
}

/// Stores the shared tree while something happens to the host `n2`, in the middle of it.
fn stored_meanwhile(up: &Up, happens: impl FnOnce()) -> Run {
    let args = ["--session", "try", "archive", "store", "--create", "--shared", "@all:/tree"];
    let mut command = up.home.command(&[&args[..], &["s::/all"]].concat());
    let running = sheaf_testing::sessions::Running::start(&mut command);
    wait_until("the store has some packs", || packs(&up.home) > 10);
    happens();
    assert!(packs(&up.home) < DIRECTORIES, "it was done before anything could happen");
    running.wait()
}

#[test]
fn hosts_store_their_own_and_get_it_back() {
    let _turn = turn();
    let home = Home::new();
    for host in ["n1", "n2", "n3"] {
        make_tree(&home.path().join(format!("export/{host}/data/tree")), host);
    }
    fs::remove_dir_all(home.path().join("export/n3/data/tree/6")).unwrap();
    let export = home.path().join("export/%h").to_str().unwrap().to_owned();
    let session = ["--processes", "3", "--export", &export];
    let run = |args: &[&str]| home.run(&[&session, args].concat());

    let sources = ["n[1-3]:/data/tree", "s::/h"];
    let stored =
        run(&[&["archive", "store", "--create", "--name", "whole"], &sources[..]].concat());
    let whole = 2 * DIRECTORIES + DIRECTORIES - DIRECTORIES / 7;
    let (files, directories) = (whole * FILES, whole + 3 * 8 - 1);
    let text = format!("sheaf: stored {files} files (");
    assert_eq!(stored.code, Some(0), "{stored:?}");
    assert!(stored.stderr.starts_with(&text), "{stored:?}");
    assert!(stored.stderr.ends_with(&format!(" of {directories} directories\n")), "{stored:?}");

    let got = run(&["archive", "get", "s::/h/%h/tree", "@all:/back"]);
    assert_eq!(got.code, Some(0), "{got:?}");
    assert!(got.stderr.starts_with(&format!("sheaf: got {files} files (")), "{got:?}");
    for host in ["n1", "n2", "n3"] {
        is_same(&home, &format!("export/{host}/data/tree"), &format!("export/{host}/back/tree"));
    }
    let again = run(&["archive", "get", "s::/h/%h/tree", "@all:/back"]);
    assert!(again.stderr.contains(&format!(", {files} there already\n")), "{again:?}");

    // Each store of many hosts is one version, which all of them can have again.
    let log = home.run(&["archive", "log", "s::"]).stdout;
    let of = format!("  {files} files (");
    assert!(log.lines().count() == 1 && log.contains(&of) && log.ends_with("  whole\n"), "{log}");
    fs::write(home.path().join("export/n2/data/tree/0/0/0"), "other").unwrap();
    let other = run(&["archive", "store", "n[1-3]:/data/tree", "s::/h"]);
    assert_eq!(other.code, Some(0), "{other:?}");
    assert_eq!(home.run(&["archive", "log", "s::"]).stdout.lines().count(), 2);
    let got = run(&["archive", "get", "--at", "whole", "s::/h/%h/tree/0", "@all:/then"]);
    assert_eq!(got.code, Some(0), "{got:?}");
    is_same(&home, "export/n2/back/tree/0", "export/n2/then/0");
    is_same(&home, "export/n1/data/tree/0", "export/n1/then/0");
    let now = home.run(&["archive", "cat", "s::/h/n2/tree/0/0/0"]);
    assert_eq!(now.stdout, "other");

    // One of everything goes to all, and what is not archived is named.
    let one = run(&["archive", "get", "s::/h/n1/tree/0/0/3", "n[2-3]:/one"]);
    assert_eq!(one.code, Some(0), "{one:?}");
    is_same(&home, "export/n1/data/tree/0/0/3", "export/n3/one/3");
    assert!(!home.path().join("export/n1/one").exists());
    let none = run(&["archive", "get", "s::/h/%h/tree/6", "@all:/six"]);
    assert_eq!(none.code, Some(4), "{none:?}");
    assert!(
        none.stderr.starts_with("sheaf: n3: /h/n3/tree/6: is not in the archive\n"),
        "{none:?}"
    );
    is_same(&home, "export/n2/data/tree/6", "export/n2/six/6");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn hosts_leave_out_compare_and_only_say_what_they_would_store() {
    let home = Home::new();
    for host in ["n1", "n2"] {
        make_tree(&home.path().join(format!("export/{host}/tree")), host);
    }
    let export = home.path().join("export/%h").to_str().unwrap().to_owned();
    let session = ["--processes", "2", "--export", &export];
    let store = |options: &[&str], source: &str| {
        let names = [source, "s::/h"];
        home.run(&[&session[..], &["archive", "store", "--create"], options, &names].concat())
    };
    let names = |skips: &dyn Fn(usize, usize) -> bool| {
        let mut names = Vec::new();
        for host in ["n1", "n2"] {
            for (directory, file) in (0..DIRECTORIES).flat_map(|d| (0..FILES).map(move |f| (d, f)))
            {
                if !skips(directory, file) {
                    names.push(format!("{host}:/tree/{}/{directory}/{file}", directory % 7));
                }
            }
        }
        names.sort();
        names
    };
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };

    home.run(&["archive", "store", "--create", "export/n1/tree/1/1/1", "s::/before"]);
    let before = packs(&home);
    // Patterns are of names, of paths from any directory on, and of paths below what was named.
    let skips = |directory: usize, file| directory % 7 == 3 || directory == 12 || file == 5;
    let excludes = [
        "--exclude",
        "/tree/3/",
        "--exclude",
        "/5/12",
        "--exclude",
        "[a-z5]",
        "--exclude",
        "3/tree",
    ];
    let would = store(&[&["--dry-run"], &excludes[..]].concat(), "@all:/tree");
    let expected =
        names(&|directory, file| skips(directory, file) || directory % 7 == 5 && file == 5);
    let expected: Vec<_> = expected
        .into_iter()
        .filter(|name| name.split('/').skip(2).all(|name| name != "5" && name != "12"))
        .collect();
    assert_eq!(would.code, Some(0), "{would:?}");
    assert_eq!(sorted(&would.stdout), expected);
    assert!(would.stderr.contains("sheaf: would store "), "{would:?}");
    assert!(would.stderr.contains(" left out"), "{would:?}");
    assert_eq!(packs(&home), before, "nothing is stored");
    let none = home.run(&["archive", "ls", "s::/h"]);
    assert_eq!(none.code, Some(4), "{none:?}");

    let stored = store(&excludes, "@all:/tree");
    assert_eq!(stored.code, Some(0), "{stored:?}");
    let found = home.run(&["archive", "find", "s::/h", "-type", "f"]);
    let found = sorted(&found.stdout.replace("s::/h/", "").replace("/tree", ":/tree"));
    assert_eq!(found, expected);
    // What is got without the same is the same.
    let all = store(&[], "@all:/tree");
    assert_eq!(all.code, Some(0), "{all:?}");
    for host in ["n1", "n2"] {
        fs::create_dir_all(home.path().join("export").join(host).join("to")).unwrap();
    }
    let export = home.path().join("export/%h").to_str().unwrap().to_owned();
    let session = ["--processes", "2", "--export", &export];
    let excludes = excludes.map(|glob| if glob == "/tree/3/" { "/3/" } else { glob });
    let get =
        [&session[..], &["archive", "get"], &excludes, &["s::/h/%h/tree", "@all:/to"]].concat();
    let got = home.run(&get);
    assert_eq!(got.code, Some(0), "{got:?}");
    let mut names = Vec::new();
    for host in ["n1", "n2"] {
        let to = home.path().join("export").join(host).join("to");
        let mut find = Command::new("find");
        let found =
            find.arg(".").args(["-type", "f", "-printf", "%P\n"]).current_dir(to).output().unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        names.extend(found.lines().map(|name| format!("{host}:/{name}")));
    }
    names.sort();
    assert_eq!(names, expected);
    let skipped = store(&["--exclude", "tree"], "@all:/tree");
    assert!(
        skipped.stderr.contains("stored 0 files (0) of 0 directories, 2 left out"),
        "{skipped:?}"
    );

    // What has another time of change alone is the same by its content.
    let all = store(&[], "@all:/tree");
    assert_eq!(all.code, Some(0), "{all:?}");
    for host in ["n1", "n2"] {
        let file = home.path().join(format!("export/{host}/tree/1/1/1"));
        let permissions = fs::metadata(&file).unwrap().permissions();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&file, permissions).unwrap();
    }
    let same = store(&["--checksum"], "@all:/tree");
    assert!(same.stderr.starts_with("sheaf: stored 0 files (0) of "), "{same:?}");
    let again = store(&[], "@all:/tree");
    assert!(again.stderr.starts_with("sheaf: stored 2 files ("), "{again:?}");
}

#[test]
fn nothing_leads_out_of_where_it_is_got() {
    let home = Home::new();
    fs::create_dir_all(home.path().join("tree/sub")).unwrap();
    fs::write(home.path().join("tree/sub/f"), "archived\n").unwrap();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    fs::create_dir_all(home.path().join("export/n1/to/tree")).unwrap();
    fs::create_dir_all(home.path().join("export/n2")).unwrap();
    fs::create_dir_all(home.path().join("elsewhere")).unwrap();
    let link = home.path().join("export/n1/to/tree/sub");
    std::os::unix::fs::symlink(home.path().join("elsewhere"), link).unwrap();
    let export = home.path().join("export/%h").to_str().unwrap().to_owned();
    let session = ["--processes", "2", "--export", &export];
    let got = home.run(&[&session[..], &["archive", "get", "s::/tree", "@all:/to"]].concat());
    assert_eq!(got.code, Some(4), "{got:?}");
    assert!(got.stderr.contains("sheaf: n1: /to/tree/sub: cannot be made a directory"), "{got:?}");
    assert_eq!(fs::read_dir(home.path().join("elsewhere")).unwrap().count(), 0);
    is_same(&home, "tree", "export/n2/to/tree");
}

#[test]
fn work_of_killed_host_is_stored_by_the_other_hosts() {
    let _turn = turn();
    let up = shared("");
    let stored = stored_meanwhile(&up, || up.servers["n2"].signal(Signal::KILL));
    assert_eq!(stored.code, Some(0), "{stored:?}");
    let why = "sheaf: n2: host is down (EHOSTDOWN): its process ended with signal 9; the other hosts do \
               its part\n";
    assert!(stored.stderr.contains(why), "{stored:?}");
    assert_archived(&up);
}

#[test]
fn work_of_stopped_host_is_reassigned_and_late_results_ignored() {
    let _turn = turn();
    let up = shared("[tuning]\nheartbeat_ms = 60000\ntimeout_ms = 4000\n");
    let stored = stored_meanwhile(&up, || up.servers["n2"].signal(Signal::STOP));
    up.servers["n2"].signal(Signal::CONT);
    assert_eq!(stored.code, Some(0), "{stored:?}");
    // Whoever notices first.
    let causes =
        ["no answer within 4 s (ETIMEDOUT)", "host is down (EHOSTDOWN): no sign of life for "];
    let named = causes.iter().any(|why| stored.stderr.contains(&format!("sheaf: n2: {why}")));
    assert!(named && stored.stderr.contains("; the other hosts do its part\n"), "{stored:?}");
    assert_archived(&up);
    // Whatever it did behind that counts for nothing, and the next one has it again.
    let again = up.run(&["archive", "store", "--shared", "@all:/tree", "s::/all"]);
    let text = format!("sheaf: stored 0 files (0) of {} directories, ", DIRECTORIES + 8);
    assert!(again.code == Some(0) && again.stderr.starts_with(&text), "{again:?}");
    assert_archived(&up);
}

#[test]
fn full_disk_costs_the_files_of_its_host() {
    let home = Home::new();
    fs::create_dir_all(home.path().join("tree")).unwrap();
    for file in 0..6 {
        fs::write(home.path().join(format!("tree/{file}")), vec![file; 40_000]).unwrap();
    }
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    for host in ["n1", "n2"] {
        fs::create_dir_all(home.path().join(format!("export/{host}/to"))).unwrap();
    }
    let full = home.path().join("export/n2/to");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(&full);
    if !mount.output().is_ok_and(|output| output.status.success()) {
        return sheaf_testing::skipped("this user may mount nothing");
    }
    let export = home.path().join("export/%h").to_str().unwrap().to_owned();
    let session = ["--processes", "2", "--export", &export];
    let got = home.run(&[&session[..], &["archive", "get", "s::/tree", "@all:/to"]].concat());
    let left = fs::read_dir(full.join("tree")).map(|names| names.count());
    Command::new("umount").arg(&full).status().unwrap();
    assert_eq!(got.code, Some(4), "{got:?}");
    let lines = got.stderr.lines().filter(|line| {
        line.starts_with("sheaf: n2: /to/tree/")
            && line.contains("No space left on device (ENOSPC): nothing more is fetched")
    });
    assert_eq!(lines.count(), 1, "{got:?}");
    // Nothing half is left behind.
    assert_eq!(left.unwrap(), 1);
    assert!(got.stderr.ends_with(", 1 failed\n"), "{got:?}");
    is_same(&home, "tree", "export/n1/to/tree");
}

#[test]
fn hosts_tell_what_they_did_it_with() {
    let home = Home::new();
    for host in ["n1", "n2"] {
        let tree = home.path().join(format!("export/{host}/tree/sub"));
        fs::create_dir_all(&tree).unwrap();
        (0..50).for_each(|file| fs::write(tree.join(file.to_string()), [7; 3000]).unwrap());
    }
    let export = home.path().join("export/%h").to_str().unwrap().to_owned();
    let session = ["--processes", "2", "--export", &export];
    let run = |args: &[&str]| home.run(&[&session[..], args].concat());
    let stored = run(&["archive", "store", "--create", "--stats", "@all:/tree", "s::"]);
    assert_eq!(stored.code, Some(0), "{stored:?}");
    for line in ["sheaf: took ", " s on 2 hosts\n", "sheaf: limited by ", "sheaf: transfer "] {
        assert!(stored.stderr.contains(line), "{line}: {stored:?}");
    }
    let limits = ["--limit", "connections=1", "--limit", "disk-operations=10000"];
    let get = [&["--json", "archive", "get", "--stats"], &limits[..], &["s::/%h/tree", "@all:/to"]];
    let got = run(&get.concat());
    assert_eq!(got.code, Some(0), "{got:?}");
    let records: Vec<serde_json::Value> =
        got.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut hosts = Vec::new();
    for of in records.iter().filter(|record| record["type"] == "archive_stats") {
        hosts.push(of["host"].as_str().unwrap());
        let counter = |name: &str| of["counters"][format!("sheaf_archive_{name}")].as_u64();
        assert_eq!(counter("connections_limit"), Some(1), "{of}");
        assert!(counter("transfer_done_total") > Some(0), "{of}");
        // Both directories, of which only one has files.
        assert_eq!(counter("connections_granted_total"), Some(1), "{of}");
    }
    hosts.sort_unstable();
    assert_eq!(hosts, ["n1", "n2"], "{got:?}");
    is_same(&home, "export/n1/tree", "export/n1/to/tree");
    is_same(&home, "export/n2/tree", "export/n2/to/tree");
}

#[test]
fn store_from_hosts_refuses_mixed_or_ambiguous_sources() {
    let home = Home::new();
    fs::create_dir(home.path().join("d")).unwrap();
    for (args, error) in [
        (
            &["store", "--create", "n1:/a", "d", "s::"][..],
            "all sources are on hosts, or all on this machine",
        ),
        (
            &["store", "--create", "--shared", "d", "s::"],
            "--shared is for files of hosts: HOSTSET:PATH",
        ),
        (&["store", "--create", "n1:/*", "s::"], "/*: patterns are not expanded in this; "),
        (
            &["store", "--create", "n1:/a", "n2:/b", "s::"],
            "all of a command are on the same hosts: do the \
          others by themselves",
        ),
        (&["store", "--create", "n1:/a/x", "n1:/b/x", "s::"], "/b/x: another source has this name"),
    ] {
        let on_hosts: &[&str] =
            if args.contains(&"--shared") { &[] } else { &["--processes", "2"] };
        let run = home.run(&[on_hosts, &["archive"], args].concat());
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.starts_with(&format!("sheaf: {error}")), "{run:?}");
        assert!(!home.path().join("s").exists());
    }
}
