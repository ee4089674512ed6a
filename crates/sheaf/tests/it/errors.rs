//! Bad input: one line that says what is wrong, and the exit code that scripts look at.
use sheaf_testing::home::{Home, Run};

/// The single line of an error; the code is checked on the way.
fn error(home: &Home, code: i32, args: &[&str]) -> String {
    let run = home.run(args);
    assert_eq!(run.code, Some(code), "{run:?}");
    assert_eq!(run.stdout, "", "{args:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    run.stderr.trim_end().to_owned()
}

#[test]
fn addresses_that_mean_nothing() {
    let home = Home::with_config(
        "[cluster.lab]\nhosts = \"n[1-64]\"\nlaunch = \"embedded\"\n[groups]\nweb = \"n[1-4]\"\nnone = \"n1!n1\"\n",
    );
    let mut lines = Vec::new();
    for address in [
        "n[1-:/etc/hosts",
        "n65:/x",
        "n[60-70]:/x",
        "m1:/x",
        "@wbe:/x",
        "@sheaf:wbe:/x",
        "n1,@foo:/x",
        "@empty:/x",
        "@none:/x",
        "n1!n1:/x",
        "",
    ] {
        let groups = "[Main]\ndefault: local\n[local]\nmap: true\nlist: echo empty\n";
        let mut command = home.command(&["cat", address]);
        home.write("clustershell/groups.conf", groups);
        let run = Run::of(command.output().unwrap());
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        lines.push(format!("{address:16} {}", run.stderr.trim_end()));
    }
    // The sets themselves take it for nothing else, and nobody is spared by a mistyped -x.
    insta::assert_snapshot!(error(&home, 1, &["hosts", "-f", "@wbe"]), @"sheaf: host set, byte 0: in '@wbe': no group @wbe; did you mean @web?: '@wbe'");
    insta::assert_snapshot!(error(&home, 2, &["-x", "@wbe", "rm", "@all:/x"]), @"sheaf: no group @wbe; did you mean @web?");
    insta::assert_snapshot!(lines.join("\n"), @"
    n[1-:/etc/hosts  sheaf: n[1-: host set, byte 1: '[' without ']'
    n65:/x           sheaf: n65 is no host of cluster lab (n[1-64])
    n[60-70]:/x      sheaf: n[65-70] are no hosts of cluster lab (n[1-64])
    m1:/x            sheaf: m1 is no host of cluster lab (n[1-64]); did you mean n1?
    @wbe:/x          sheaf: no group @wbe; did you mean @web?
    @sheaf:wbe:/x    sheaf: no group @sheaf:wbe; did you mean @sheaf:web?
    n1,@foo:/x       sheaf: no group @foo ([groups] of sheaf.toml, ClusterShell); sheaf hosts -l lists those there are
    @empty:/x        sheaf: @empty: no host is in this set
    @none:/x         sheaf: @none: no host is in this set
    n1!n1:/x         sheaf: n1!n1: no host is in this set
                     sheaf: an empty address names no file
    ");
}

#[test]
fn clusters_that_there_are_not() {
    let home = Home::new();
    insta::assert_snapshot!(error(&home, 2, &["-C", "lab", "cat", "/x"]), @"sheaf: no cluster lab: no sheaf.toml was found; see sheaf config --help");
    home.write("sheaf.toml", "[cluster.lab]\nhosts = \"a\"\n");
    insta::assert_snapshot!(error(&home, 2, &["cat", "-C", "zoo", "/x"]), @"sheaf: no cluster zoo in sheaf.toml; there is lab");
    home.write("sheaf.toml", "[cluster.lab]\nhosts = \"a\"\n[cluster.farm]\nhosts = \"b\"\n");
    insta::assert_snapshot!(error(&home, 2, &["cat", "-C", "lap", "/x"]), @"sheaf: no cluster lap in sheaf.toml; did you mean lab?");
    insta::assert_snapshot!(error(&home, 2, &["cat", "/x"]), @r#"sheaf: sheaf.toml has 2 clusters (farm, lab): choose one with --cluster, or by default = "farm" in the file"#);
    insta::assert_snapshot!(error(&home, 2, &["cat", "--config", "missing.toml", "/x"]), @"sheaf: missing.toml: No such file or directory (ENOENT)");
}

#[test]
fn clusters_that_cannot_be_started() {
    let home = Home::with_config("[cluster.lab]\nhosts = \"@slurm\"\nlaunch = \"processes\"\n");
    insta::assert_snapshot!(error(&home, 2, &["cat", "n1:/x"]), @"sheaf: hosts of cluster lab: @slurm needs a job of Slurm (salloc, sbatch): SLURM_JOB_NODELIST is not set");
}

#[test]
fn copies_go_one_way() {
    let home = Home::new();
    insta::assert_snapshot!(error(&home, 2, &["cp", "a", "/etc/b"]), @"sheaf: cp copies from here to hosts, or from hosts to here: name hosts with -w HOSTS, and one side with HOSTSET:PATH; on this machine alone cp(1) copies");
    insta::assert_snapshot!(error(&home, 2, &["cp", "n1:/a", "n2:/b"]), @"sheaf: cp copies from here to hosts, or from hosts to here: for host to host copy it here first");
    insta::assert_snapshot!(error(&home, 2, &["cp", "n1:/a", "b", "c"]), @"sheaf: cp copies from here to hosts, or from hosts to here: all sources have to be on the same side");
}

#[test]
fn options_that_there_are_not() {
    let home = Home::new();
    insta::assert_snapshot!(error(&home, 2, &["serve", "--export", "/srv"]), @r#"sheaf: serve has no option --export; what hosts serve is said where the session is started: sheaf up --export PATH, or export = "PATH" in sheaf.toml; see sheaf serve --help"#);
    insta::assert_snapshot!(error(&home, 2, &["serve", "-P"]), @"sheaf: serve has no option -P; see sheaf serve --help");
    insta::assert_snapshot!(error(&home, 2, &["grep", "-P", "x", "/x"]), @"sheaf: grep has no option -P; patterns are those of grep -E; see sheaf grep --help");
}

#[test]
fn options_with_values_that_cannot_be() {
    let home = Home::new();
    let mut lines = Vec::new();
    for args in [
        &["read", "--aggregate", "averge", "/x"][..],
        &["chmod", "u+q", "/x"],
        &["truncate", "-s", "4Q", "/x"],
        &["chown", ":", "/x"],
        &["--timeout", "0", "cat", "/x"],
        &["--embedded", "0", "cat", "/x"],
        &["--embedded", "2", "--processes", "2", "cat", "/x"],
        &["hosts", "n1", "-x"],
        &["sha", "-a", "md5", "/x"],
    ] {
        let run = home.run(args);
        assert_eq!(run.code, Some(2), "{run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        lines.push(run.stderr.trim_end().to_owned());
    }
    insta::assert_snapshot!(lines.join("\n"), @"
    sheaf: invalid value 'averge' for '--aggregate <NAME>': no such aggregation; did you mean average? see sheaf read --help
    sheaf: invalid value 'u+q' for '<MODE>': write an octal mode (0644), or who, one of + - =, and of r w x X s t (u+x,go-w)
    sheaf: invalid value '4Q' for '--size <SIZE>': no such unit as Q; there are K M G T P E; see sheaf truncate --help
    sheaf: invalid value ':' for '<OWNER[:GROUP]>': names neither an owner nor a group
    sheaf: invalid value '0' for '--timeout <SECONDS>': must be more than 0 and at most 86400 seconds; see sheaf cat --help
    sheaf: invalid value '0' for '--embedded <N>': 0 is not in 1..=65536; see sheaf cat --help
    sheaf: the argument '--embedded <N>' cannot be used with '--processes <N>'; see sheaf cat --help
    sheaf: a value is required for '--exclude <SET>' but none was supplied; see sheaf hosts --help
    sheaf: invalid value 'md5' for '--algorithm <NAME>' [possible values: sha256, sha512, blake3]; see sheaf sha --help
    ");
}

#[test]
fn reader_that_leaves_is_no_error() {
    use std::process::Stdio;
    let home = Home::new();
    let mut child = home
        .command(&["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // More is printed than a pipe holds, so the writer meets the closed end.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn unreadable_input_and_unwritable_output_are_named() {
    let home = Home::new();
    let dir = home.path().display().to_string();
    let token = error(&home, 2, &["serve", "--join", "x:1", "--token-file", &dir]);
    assert_eq!(token, format!("sheaf: {dir}: Is a directory (EISDIR)"));
    let file = home.write("file", "x\n").display().to_string();
    for args in
        [&["cat", &file][..], &["grep", "x", &file], &["ls", &file], &["completions", "bash"]]
    {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = home.command(args).stdout(full).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(told, "sheaf: standard output: No space left on device (ENOSPC)\n", "{args:?}");
        assert_eq!(output.status.code(), Some(4), "{args:?}");
    }
}
