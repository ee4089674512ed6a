//! What somebody else could have written makes nobody run commands.
use sheaf_testing::home::{Home, Run};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// It was refused for this reason, in one line, and nothing ran.
#[track_caller]
fn refused(home: &Home, run: &Run, why: &str) {
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.lines().count()),
        (Some(2), "", 1),
        "{run:?}"
    );
    assert!(run.stderr.contains(why), "{run:?}");
    assert!(!home.path().join("ran").exists(), "{run:?}");
}

fn trap(home: &Home) -> String {
    format!(
        "[cluster.lab]\nhosts = \"@command:touch {}; echo n1\"\nlaunch = \"embedded\"\n",
        home.path().join("ran").display()
    )
}

#[test]
fn configuration_that_others_could_have_written_is_refused() {
    let home = Home::new();
    let file = home.write("sheaf.toml", &trap(&home));
    mode(home.path(), 0o755);
    let all = [
        &["cat", "n1:/etc/hostname"][..],
        &["up"],
        &["config", "show"],
        &["config", "check"],
        &["hosts", "n1"],
    ];
    mode(&file, 0o666);
    for args in all {
        refused(&home, &home.run(args), "sheaf.toml: others can write to it (mode 0666)");
    }
    let named = ["--config", "sheaf.toml", "cat", "n1:/etc/hostname"];
    refused(&home, &home.run(&named), "mend it with: chmod go-w sheaf.toml");
    let mut command = home.command(&["cat", "n1:/etc/hostname"]);
    let run = Run::of(command.env("SHEAF_CONFIG", &file).output().unwrap());
    refused(&home, &run, "others can write to it (mode 0666)");
    mode(&file, 0o644);
    mode(home.path(), 0o777);
    for args in all {
        refused(&home, &home.run(args), "others can write to this directory (mode 0777)");
    }
    mode(home.path(), 0o755);
    if rustix::process::geteuid().is_root() {
        chown(&file, Some(4711), None).unwrap();
        for args in all.iter().copied().chain([&named[..]]) {
            refused(
                &home,
                &home.run(args),
                "sheaf.toml: it belongs to user 4711, neither to you nor to root",
            );
        }
        chown(&file, Some(0), None).unwrap();
    }
    let run = home.run(&["grep", "-c", "", "n1:/etc/passwd"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(home.path().join("ran").exists());
}

/// As after `git clone`: the directory and the file are the user's own.
#[test]
fn configuration_of_an_untrusted_directory_runs_nothing() {
    let home = Home::new();
    let repository = home.path().join("repository/deep");
    std::fs::create_dir_all(&repository).unwrap();
    let trap = trap(&home) + &format!("ssh = \"{}/evil\"\n", repository.display());
    home.write("repository/deep/sheaf.toml", &trap);
    let evil = format!("#!/bin/sh\ntouch {}\n", home.path().join("ran").display());
    mode(&home.write("repository/deep/evil", &evil), 0o755);
    // Of the home itself nothing is trusted.
    let run_in = |directory: &Path, args: &[&str]| {
        let mut command = home.command(args);
        let list = home.path().join(".config/sheaf/trusted");
        let text = std::fs::read_to_string(&list).unwrap();
        let real = home.path().canonicalize().unwrap();
        let kept = text.lines().filter(|line| Path::new(line) != real);
        let kept: String = kept.map(|line| format!("{line}\n")).collect();
        std::fs::write(&list, kept).unwrap();
        Run::of(command.current_dir(directory).output().unwrap())
    };
    let told = "is not trusted, and the file can make you run commands: it is not used; read it, \
                then run: sheaf config trust; or name a file with --config";
    for args in [
        &["cat", "n1:/etc/hostname"][..],
        &["-w", "n1", "ls", "-d", "/etc"],
        &["up"],
        &["config", "show"],
        &["config", "check"],
        &["hosts", "n1"],
    ] {
        refused(&home, &run_in(&repository, args), told);
    }
    // A check runs nothing, whatever directory and file it is of.
    let named = ["--config", "sheaf.toml", "config", "check"];
    let check = run_in(&repository, &named);
    let ok = "sheaf.toml: no problems; clusters: 1, groups: 0; commands that were not run: 1\n";
    assert_eq!(check.stdout, ok, "{check:?}");
    assert!(!home.path().join("ran").exists());
}

#[test]
fn trusted_directory_counts_with_those_below_it() {
    let home = Home::new();
    let below = home.path().join("repository/below");
    std::fs::create_dir_all(&below).unwrap();
    home.write("repository/below/sheaf.toml", &trap(&home));
    let elsewhere = tempfile::tempdir().unwrap();
    let run_in = |directory: &Path, args: &[&str]| {
        let mut command = home.command(args);
        // The list of this home, without the home.
        let config = elsewhere.path().join("config");
        Run::of(command.env("XDG_CONFIG_HOME", config).current_dir(directory).output().unwrap())
    };
    let cat = ["grep", "-c", "", "n1:/etc/passwd"];
    assert_eq!(run_in(&below, &cat).code, Some(2));
    let trusted = run_in(&below, &["config", "trust", ".."]);
    let real = below.parent().unwrap().canonicalize().unwrap();
    let told = format!(
        "sheaf: sheaf.toml is used in {} and in all directories below it\n",
        real.display()
    );
    assert_eq!((trusted.code, trusted.stderr), (Some(0), told));
    assert!(!home.path().join("ran").exists());
    let list = run_in(&below, &["config", "trust", "--list"]);
    assert_eq!(list.stdout, format!("{}\n", real.display()));
    let run = run_in(&below, &cat);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "no line without a terminal");
    assert!(home.path().join("ran").exists());
    assert_eq!(run_in(&below, &["config", "trust", "--remove", ".."]).code, Some(0));
    let again = run_in(&below, &["config", "trust", "--remove", ".."]);
    assert_eq!(
        (again.code, again.stderr.as_str()),
        (Some(2), "sheaf: ..: it is not a trusted directory\n")
    );
    assert_eq!(run_in(&below, &cat).code, Some(2));
    // A list that others can write to trusts nothing.
    mode(&elsewhere.path().join("config/sheaf/trusted"), 0o666);
    refused_list(&run_in(&below, &cat));
}

/// Another user of a shared directory could put an untrusted clone in the place of a trusted one.
#[test]
fn trusted_directory_that_others_can_exchange_counts_no_more() {
    let home = Home::new();
    let project = home.path().join("shared/project");
    std::fs::create_dir_all(&project).unwrap();
    home.write("shared/project/sheaf.toml", &trap(&home));
    let run_in = |args: &[&str]| {
        let mut command = home.command(args);
        let config = home.path().join("config");
        Run::of(command.env("XDG_CONFIG_HOME", config).current_dir(&project).output().unwrap())
    };
    let (shared, cat) = (home.path().join("shared"), ["grep", "-c", "", "n1:/etc/passwd"]);
    for (open, bits) in [(&shared, 0o775), (&shared, 0o757), (&project, 0o775)] {
        mode(open, 0o755);
        assert_eq!(run_in(&["config", "trust"]).code, Some(0));
        mode(open, bits);
        let why = format!("others can write to this directory (mode {bits:04o})");
        refused(&home, &run_in(&cat), &why);
        assert_eq!(run_in(&["config", "trust", "--remove"]).code, Some(0));
        refused(&home, &run_in(&["config", "trust"]), &why);
        mode(open, 0o755);
    }
    // In a sticky directory others rename only what is theirs.
    mode(&shared, 0o1777);
    assert_eq!(run_in(&["config", "trust"]).code, Some(0));
    if rustix::process::geteuid().is_root() {
        chown(&shared, Some(4711), None).unwrap();
        refused(&home, &run_in(&cat), "this directory belongs to user 4711");
        chown(&shared, Some(0), None).unwrap();
    }
    // A link leads to where nothing is trusted.
    std::fs::create_dir(home.path().join("clone")).unwrap();
    std::fs::rename(project.join("sheaf.toml"), home.path().join("clone/sheaf.toml")).unwrap();
    std::os::unix::fs::symlink("../../clone/sheaf.toml", project.join("sheaf.toml")).unwrap();
    refused(&home, &run_in(&cat), "out of the trusted directories");
    assert_eq!(run_in(&["config", "trust", "../../clone"]).code, Some(0));
    let run = run_in(&cat);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(home.path().join("ran").exists());
}

#[track_caller]
fn refused_list(run: &Run) {
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("trusted: others can write to it (mode 0666)"), "{run:?}");
}

#[test]
fn groups_that_others_could_have_written_are_refused() {
    let home = Home::new();
    mode(home.path(), 0o755);
    let asked = |path: &str, open: u32| {
        let mut command =
            home.command(&["--launch", "embedded", "-w", "@web", "stat", "-c", "%F", "/"]);
        // With the mode that it has.
        let conf = home.path().join("clustershell/groups.conf");
        std::fs::write(conf, "[Main]\ndefault: x\nautodir: $CFGDIR/groups.d\n").unwrap();
        mode(&home.path().join(path), open);
        Run::of(command.output().unwrap())
    };
    home.write("clustershell/groups.d/x.yaml", "x:\n  web: n[1-2]\n");
    let run = asked(".", 0o755);
    assert_eq!((run.stdout.as_str(), run.code), ("n[1-2]:/:directory\n", Some(0)), "{run:?}");
    for (path, open, closed, why) in [
        (
            "clustershell/groups.conf",
            0o646,
            0o644,
            "groups.conf: others can write to it (mode 0646)",
        ),
        ("clustershell", 0o777, 0o755, "others can write to this directory (mode 0777)"),
        (
            "clustershell/groups.d/x.yaml",
            0o664,
            0o644,
            "x.yaml: others can write to it (mode 0664)",
        ),
        ("clustershell/groups.d", 0o777, 0o755, "others can write to this directory (mode 0777)"),
    ] {
        refused(&home, &asked(path, open), why);
        mode(&home.path().join(path), closed);
    }
    // What is there and cannot be read is not taken for nothing.
    std::fs::remove_file(home.path().join("clustershell/groups.d/x.yaml")).unwrap();
    std::fs::create_dir(home.path().join("clustershell/groups.d/x.yaml")).unwrap();
    refused(&home, &asked(".", 0o755), "x.yaml: Is a directory (EISDIR)");
}

#[test]
fn directory_of_sessions_that_others_can_write_to_is_refused() {
    let home = Home::new();
    let sessions = home.runtime_dir().join("sheaf");
    std::fs::create_dir(&sessions).unwrap();
    mode(&sessions, 0o777);
    let why =
        "others can write to this directory of your sessions (mode 0777); mend it with: chmod 700";
    for args in [
        &["up", "--embedded", "2", "--session", "try"][..],
        &["--session", "try", "cat", "/etc/hostname"],
        &["status"],
        &["down", "try"],
        &["token", "--session", "try"],
    ] {
        refused(&home, &home.run(args), why);
    }
    mode(&sessions, 0o700);
    assert_eq!(home.run(&["status"]).code, Some(0));
}

#[test]
fn list_of_hosts_that_others_could_have_written_is_refused() {
    let home =
        Home::with_config("[cluster.lab]\nhosts = \"@file:listed\"\nlaunch = \"embedded\"\n");
    mode(home.path(), 0o755);
    let listed = home.write("listed", "n1\n");
    mode(&listed, 0o644);
    let args = ["-C", "lab", "cat", ":/dev/null"];
    assert_eq!(home.run(&args).code, Some(0));
    mode(&listed, 0o666);
    refused(&home, &home.run(&args), "listed: others can write to it (mode 0666)");
    mode(&listed, 0o644);
    if rustix::process::geteuid().is_root() {
        chown(&listed, Some(4711), None).unwrap();
        refused(
            &home,
            &home.run(&args),
            "listed: it belongs to user 4711, neither to you nor to root",
        );
    }
}
