//! Where no session can be had: why, in a line, and with the exit code that says so.
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{Up, nothing_is_left};

#[test]
fn names_of_sessions_are_plain_words() {
    let home = Home::new();
    for name in ["a b", "a\nb", "a\u{1b}[1m", "ü", "a;b", "a/b", ".a", "-x", ""] {
        let up = home.run(&["up", "--processes", "1", &format!("--session={name}")]);
        let told = format!(
            "sheaf: {name:?} cannot be the name of a session: one has letters, digits and . _ @ -, begins \
             with neither . nor -, and is no longer than 128\n"
        );
        assert_eq!((up.code, up.stderr), (Some(2), told));
    }
    let config =
        "default = \"my lab\"\n[cluster.\"my lab\"]\nhosts = \"n[1-2]\"\nlaunch = \"embedded\"\n";
    let run = Home::with_config(config).run(&["grep", "-c", "^root:", "/etc/passwd"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "clusters may be called so");
    let up = Up::at(home, &["--processes", "1"]);
    assert_eq!(up.home.run(&["up", "--processes", "1", "--session", "a.b_c@d-1"]).code, Some(0));
    assert_eq!(up.home.run(&["down", "a.b_c@d-1"]).code, Some(0));
}

#[test]
fn session_that_cannot_start_exits_with_3_and_the_cause() {
    let home = Home::new();
    let up = |runtime: &str, name: &str| {
        let mut command = home.command(&["up", "--processes", "1", "--session", name]);
        let run = Run::of(command.env("XDG_RUNTIME_DIR", runtime).output().unwrap());
        assert_eq!((run.code, run.stdout.as_str()), (Some(3), ""), "{run:?}");
        run.stderr
    };
    assert_eq!(
        up("/nonexistent", "x"),
        "sheaf: session x did not start: /nonexistent/sheaf: No such file or directory (ENOENT); sessions have \
         their sockets there ($XDG_RUNTIME_DIR, or $TMPDIR)\n"
    );
    let (run, long) = (home.runtime_dir(), "s".repeat(100));
    let bytes = run.as_os_str().len() + "/sheaf/.token".len() + long.len();
    let told = format!(
        "sheaf: session {long} did not start: its sockets in {}/sheaf would have paths of {bytes} bytes, and 107 are \
         the most: set XDG_RUNTIME_DIR to a directory with a shorter path, or give a shorter --session NAME\n",
        run.display()
    );
    assert_eq!(up(run.to_str().unwrap(), &long), told);
    // Nothing to begin with, whatever the command.
    let file = home.write("file", "");
    for args in [
        &["--processes", "1", "up", "--session", "x"][..],
        &["--session", "x", "cat", "/x"],
        &["status"],
    ] {
        let mut command = home.command(args);
        let run = Run::of(command.env("XDG_RUNTIME_DIR", &file).output().unwrap());
        let told = format!("sheaf: {}/sheaf: Not a directory (ENOTDIR)\n", file.display());
        assert_eq!((run.code, run.stderr), (Some(3), told), "{args:?}");
    }
}

/// No launcher, and no address of this machine's.
#[test]
fn tree_that_cannot_be_started_ends_with_3() {
    let clusters = "[cluster.job]\nhosts = \"n1\"\nlaunch = \"slurm\"\nsrun = \"/nonexistent/srun\"\n\
                    [cluster.far]\nhosts = \"n1\"\nlaunch = \"ssh\"\nlisten = \"192.0.2.77\"\n\
                    [cluster.pods]\nhosts = \"n1\"\nlaunch = \"attach\"\nlisten = \"192.0.2.77\"\n";
    let home = Home::with_config(clusters);
    for (args, told) in [
        (
            &["-C", "job", "cat", ":/x"][..],
            "/nonexistent/srun cannot be run: No such file or directory (ENOENT)",
        ),
        (&["up", "job"], "/nonexistent/srun cannot be run: No such file or directory (ENOENT)"),
        (&["-C", "far", "cat", ":/x"], "Cannot assign requested address"),
        (&["up", "far"], "Cannot assign requested address"),
        (&["up", "pods"], "Cannot assign requested address"),
        (
            &["-C", "pods", "cat", ":/x"],
            "the hosts of cluster pods come by themselves, to a session: start it first: sheaf up pods \
             --tokens FILE\n",
        ),
        (
            &["--launch", "attach", "-w", "n[1-2]", "cat", ":/x"],
            "start it first: sheaf up --launch attach -w 'n[1-2]' --session pods --tokens FILE\n",
        ),
    ] {
        let run = home.run(args);
        assert_eq!((run.code, run.stderr.lines().count()), (Some(3), 1), "{args:?}: {run:?}");
        assert!(run.stderr.contains(told), "{args:?}: {run:?}");
    }
    nothing_is_left(&home);
}

/// An export that is named from a directory which is no more is not taken from another one.
#[test]
fn export_from_a_directory_that_is_gone_is_refused() {
    let home = Home::new();
    let gone = home.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let up = home.command(&["up", "--session", "gone", "--processes", "1", "--export", "etc"]);
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", "cd \"$0\" && rmdir \"$0\" && exec \"$@\""]).arg(&gone);
    command.arg(up.get_program()).args(up.get_args()).env_clear();
    command.envs(up.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let run = Run::of(command.output().unwrap());
    assert_eq!(run.code, Some(3), "{run:?}");
    assert!(run.stderr.contains("export etc: No such file or directory (ENOENT)"), "{run:?}");
}
