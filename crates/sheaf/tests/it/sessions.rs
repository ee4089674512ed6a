//! Sessions that stay: started once, used by many, ended wholly.
use rustix::process::Signal;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{
    NAME, Process, Running, Up, nothing_is_left, of_home, turn, wait_until,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

const SERVER_PSS_KILOBYTES_MAX: u64 = 4 << 10;

fn lines_of_passwd(up: &Up, hosts: &str) {
    let run = up.run(&["grep", "-c", "", "/etc/passwd"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.stdout.starts_with(&format!("{hosts}:/etc/passwd:")), "{run:?}");
}

#[test]
fn session_is_started_once_and_ends_wholly() {
    let up = Up::new(&["--processes", "16"]);
    let again = up.home.run(&["up", "--processes", "16", "--session", NAME]);
    assert_eq!(again.code, Some(2), "{again:?}");
    let told = format!(
        "sheaf: session {NAME} runs already, as process {}: end it with sheaf down {NAME}, or name another \
         with --session\n",
        up.session.pid
    );
    assert_eq!(again.stderr, told);
    lines_of_passwd(&up, "n[1-16]");
    let down = up.down();
    assert_eq!((down.code, down.stderr.as_str()), (Some(0), ""));
    nothing_is_left(&up.home);
    let down = up.down();
    assert_eq!(down.code, Some(3), "{down:?}");
    has_ended(&up.home, NAME, &down.stderr, "");
    let run = up.run(&["grep", "x", "/etc/passwd"]);
    assert_eq!(run.code, Some(3), "{run:?}");
    let again = format!("; start it with: sheaf up -w HOSTS --session {NAME}");
    has_ended(&up.home, NAME, &run.stderr, &again);
    let run = up.run(&["-w", "h[1-2]", "grep", "x", "/etc/passwd"]);
    let again = format!("; start it with: sheaf up -w 'h[1-2]' --session {NAME}");
    has_ended(&up.home, NAME, &run.stderr, &again);
}

/// Checks that it is told when a session has ended, and where its log is.
#[track_caller]
fn has_ended(home: &Home, name: &str, told: &str, again: &str) {
    let rest = told.strip_prefix(&format!("sheaf: session {name} has ended (20"));
    let rest = rest.and_then(|rest| rest.split_once("Z); its log: "));
    let log = home.runtime_dir().join(format!("sheaf/{name}.log"));
    assert_eq!(rest.map(|rest| rest.1), Some(&*format!("{}{again}\n", log.display())), "{told}");
}

#[test]
fn session_in_the_foreground_says_that_it_runs() {
    for (json, told) in [
        (false, "session x: 2 of 2 hosts, process "),
        (true, "{\"exit\":0,\"missing\":\"\",\"of\":2,"),
    ] {
        let home = Home::new();
        let mut args = vec!["up", "--foreground", "--processes", "2", "--session", "x"];
        args.extend(json.then_some("--json"));
        let session = Running::start(home.command(&args).stdin(Stdio::null()));
        wait_until("it listens", || {
            home.run(&["--session", "x", "cat", "n1:/etc/passwd"]).code == Some(0)
        });
        session.signal(Signal::INT);
        let run = session.wait();
        assert_eq!(run.code, Some(0), "{run:?}");
        let (said, other) = if json { (run.stdout, run.stderr) } else { (run.stderr, run.stdout) };
        assert!(said.starts_with(told) && other.is_empty(), "{said} {other}");
        nothing_is_left(&home);
    }
}

/// A forgotten `--session` must not change this machine's files in place of the session's.
#[test]
fn change_without_the_session_option_is_refused() {
    let home = Home::new();
    let file = home.write("mine", "x\n");
    home.write("new", "y\n");
    let path = file.display();
    let started = home.run(&["up", "--session", "prod", "--processes", "2"]);
    let lines: Vec<&str> = started.stderr.lines().collect();
    assert!(lines[0].starts_with("session prod: 2 of 2 hosts, process "), "{started:?}");
    assert_eq!(lines[1..], ["use it with: --session prod"]);
    for hosts in ["", "@all"] {
        for args in [&["rm", "-rf"][..], &["chmod", "600"], &["cp", "new"], &["truncate", "-s0"]] {
            let address = format!("{hosts}:{path}");
            let run = home.run(&[args, &[&address]].concat());
            let told = format!(
                "sheaf: {address}: {} changes files, and sessions are running (prod): say which with \
                 --session NAME, or write {path} alone for this machine\n",
                args[0]
            );
            assert_eq!((run.code, run.stderr), (Some(2), told));
        }
    }
    // How this machine's server is started does not say that this machine is meant.
    for option in [["--launch", "embedded"], ["--launch", "processes"], ["--export", "/"]] {
        let run = home.run(&[&option[..], &["rm", "-rf", &format!("@all:{path}")]].concat());
        let told = "changes files, and sessions are running (prod)";
        assert!(run.code == Some(2) && run.stderr.contains(told), "{option:?}: {run:?}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "x\n");
    // Nor must this machine's file be the answer of all hosts.
    for hosts in ["", "@all", "n[1-2]"] {
        let address = format!("{hosts}:{path}");
        let run = home.run(&["cat", &address]);
        let told = format!(
            "sheaf: {address}: sessions are running (prod): say which with --session NAME, or write \
             {path} alone for this machine\n"
        );
        assert_eq!((run.code, run.stdout.as_str(), run.stderr), (Some(2), "", told));
    }
    // What says that it is for this machine, or is for the session, is done.
    assert_eq!(home.run(&["cat", &path.to_string()]).stdout, "x\n");
    assert_eq!(
        home.run(&["--session", "prod", "chmod", "600", &format!("@all:{path}")]).code,
        Some(0)
    );
    assert_eq!(home.run(&["rm", file.to_str().unwrap()]).code, Some(0));
    assert_eq!(home.run(&["down", "prod"]).code, Some(0));
    home.write("mine", "x\n");
    assert_eq!(home.run(&["rm", &format!("@all:{path}")]).code, Some(2));
    assert!(file.exists());
}

/// Where later commands join the session by themselves, there is nothing to say.
#[test]
fn default_clusters_session_needs_no_option() {
    let clusters = "default = \"lab\"\n[cluster.lab]\nhosts = \"n[1-2]\"\nlaunch = \"embedded\"\n\
                    [cluster.farm]\nhosts = \"f1\"\nlaunch = \"embedded\"\n";
    let home = Home::with_config(clusters);
    let second = |args: &[&str]| home.run(args).stderr.lines().nth(1).map(ToOwned::to_owned);
    assert_eq!(second(&["up"]), None);
    assert_eq!(second(&["up", "farm"]).as_deref(), Some("use it with: --session farm"));
    assert_eq!(home.run(&["down", "--all"]).code, Some(0));
}

/// A shell that lets nobody in says so on standard output, as does one that asks for something.
#[test]
fn remote_shell_output_is_reported_if_ssh_gives_no_cause() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    for (script, errno, told) in [
        (
            "printf 'This account is currently\\a not available.\\n'; exit 1",
            "EPROTO",
            "the login shell ended with exit code 1; the host printed: This account is currently  \
             not available.",
        ),
        (
            "echo This account is currently not available.; exit 1",
            "EACCES",
            "the login shell ended with exit code 1; the host printed: This account is currently \
             not available.",
        ),
        (
            "exit 0",
            "EPROTO",
            "the login shell ended with exit code 0 and said nothing (exit in a start-up file such \
             as .bashrc, or a forced command?)",
        ),
        ("echo sudo: a password is required >&2; exit 1", "EACCES", "sudo: a password is required"),
        ("echo rbash: exec: restricted >&2; exit 1", "EACCES", "rbash: exec: restricted"),
        (
            "printf 'Password: '; sleep 60",
            "EHOSTDOWN",
            "no login within 1 s (ssh_login_timeout_ms); the host printed: Password:",
        ),
        ("echo welcome; echo nobody is let in >&2; exit 1", "EPROTO", "nobody is let in"),
        ("echo lost >&2; exit 255", "EHOSTDOWN", "lost"),
    ] {
        let ssh = home.write("ssh", &format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
        let config = format!(
            "[cluster.far]\nhosts = \"h1\"\nssh = {ssh:?}\n[tuning]\nssh_login_timeout_ms = 1000\nssh_retries = 0\n"
        );
        home.write("sheaf.toml", &config);
        let run = home.run(&["ls", "/"]);
        assert_eq!(run.code, Some(3), "{run:?}");
        let line = format!("({errno}): not started: {told}\n");
        assert!(run.stderr.contains(&line), "{run:?}");
    }
}

/// Hosts that have not come so far were asked nothing that they could have answered.
#[test]
fn hosts_missing_after_the_wait_are_reported_with_their_state() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let ssh = home.write("ssh", "#!/bin/sh\nexec sleep 60\n");
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (more, why) in [
        ("launch = \"attach\"".to_owned(), "it has not joined yet"),
        (format!("ssh = {ssh:?}"), "it is being started"),
    ] {
        home.write("sheaf.toml", &format!("[cluster.far]\nhosts = \"h[1-2]\"\n{more}\n"));
        let up = home.run(&["--timeout", "2", "up", "--wait", "1"]);
        assert_eq!(up.code, Some(3), "{up:?}");
        let told = format!("h[1-2]: host is down (EHOSTDOWN): {why}");
        assert_eq!(up.stderr.lines().nth(1), Some(told.as_str()), "{up:?}");
        let status = home.run(&["status"]);
        // Asking ends the wait for hosts that have never joined.
        assert!(status.stderr.starts_with(told.trim_end_matches(" yet")), "{status:?}");
        assert_eq!(home.run(&["down"]).code, Some(0));
    }
    nothing_is_left(&home);
}

/// With the words of `status`.
#[test]
fn up_reports_missing_hosts_and_the_cause() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let ssh = home.write("ssh", "#!/bin/sh\necho nobody is let in >&2\nexit 255\n");
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = format!("[cluster.far]\nhosts = \"h[1-2]\"\nssh = {ssh:?}\n");
    home.write("sheaf.toml", &config);
    let why = "h[1-2]: host is down (EHOSTDOWN): not started: nobody is let in";
    for wait in [&[][..], &["--timeout", "2", "--wait", "1"]] {
        let up = home.run(&[&["up"], wait].concat());
        assert_eq!(up.code, Some(3), "{up:?}");
        let lines: Vec<&str> = up.stderr.lines().collect();
        assert!(lines[0].starts_with("session far: 0 of 2 hosts, process "), "{up:?}");
        assert_eq!(lines[1..], [why, "to find out why: sheaf doctor -C far -w 'h[1-2]'"]);
        let status = home.run(&["status", "--timeout", "2"]);
        assert!(status.stderr.starts_with(&format!("{why}\n")), "{status:?}");
        assert_eq!(home.run(&["down"]).code, Some(0));
    }
    let up = home.run(&["--json", "up"]);
    let told: serde_json::Value = serde_json::from_str(&up.stdout).unwrap();
    assert_eq!((&told["missing"], &told["exit"]), (&"h[1-2]".into(), &3.into()), "{up:?}");
    assert_eq!(told["silent"][0]["cause"], "not started: nobody is let in", "{up:?}");
    assert_eq!(home.run(&["down"]).code, Some(0));
    nothing_is_left(&home);
}

#[test]
fn start_options_are_refused_for_a_running_session() {
    let up = Up::new(&["--embedded", "2"]);
    for (option, value) in [
        ("--embedded", "3"),
        ("--processes", "3"),
        ("--export", "/tmp"),
        ("--tree", "flat"),
        ("--launch", "processes"),
        ("--link", "tcp"),
        ("--inner-hosts", "n1"),
    ] {
        let run = up.run(&["cat", option, value, "/etc/hostname"]);
        let told = format!(
            "sheaf: session {NAME} runs, and {option} holds for sessions that are started: `sheaf down {NAME}` first, \
             or add -w HOSTS --launch ssh, or --embedded 1 for this host alone, for a tree of its own\n"
        );
        assert_eq!((run.code, run.stdout.as_str(), run.stderr), (Some(2), "", told));
    }
    let run = up.run(&["stat", "-w", "n2", "--timeout", "20", "/etc"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert_eq!(up.down().code, Some(0));
}

#[test]
fn session_that_there_is_not_is_told_with_those_that_run() {
    let up = Up::new(&["--embedded", "2"]);
    let told = |name: &str| format!("sheaf: no session {name} is running; running: {NAME}");
    for (args, name, hint) in [
        (&["down", "tyr"][..], "tyr", "; did you mean try?\n"),
        (&["status", "tyr"], "tyr", "; did you mean try?\n"),
        (&["--session", "tyr", "cat", "/x"], "tyr", "; did you mean try?\n"),
        (&["down", "prod"], "prod", " (sheaf down try)\n"),
        (&["--session", "prod", "down"], "prod", " (sheaf down try)\n"),
        (&["status", "prod"], "prod", " (sheaf status try)\n"),
        (&["token", "prod"], "prod", " (sheaf token try)\n"),
        (&["tree", "show", "--session", "tyr"], "tyr", "; did you mean try?\n"),
        (
            &["--session", "prod", "cat", "/x"],
            "prod",
            "; start it with: sheaf up -w HOSTS --session prod\n",
        ),
    ] {
        let run = up.home.run(args);
        assert_eq!((run.code, run.stderr), (Some(3), told(name) + hint), "{args:?}");
    }
    let run = up.home.run(&["tree", "show"]);
    let told = "; running: try (sheaf tree show try)\n";
    assert!(run.code == Some(3) && run.stderr.ends_with(told), "{run:?}");
    assert_eq!(up.down().code, Some(0));
}

/// Whoever names a session need not say which cluster of the file is meant, too.
#[test]
fn session_is_used_by_its_name_whatever_clusters_there_are() {
    let clusters =
        "[cluster.a]\nhosts = \"n[1-2]\"\nlaunch = \"embedded\"\n[cluster.b]\nhosts = \"m1\"\n";
    let home = Home::with_config(clusters);
    assert_eq!(home.run(&["up", "a"]).stderr.lines().nth(1), Some("use it with: --session a"));
    for args in [
        &["--session", "a", "cat", "/etc/passwd"][..],
        &["status"],
        &["status", "a"],
        &["tree", "show", "--session", "a"],
        &["down", "a"],
    ] {
        let run = home.run(args);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}: {run:?}");
    }
    assert_eq!(home.run(&["up", "a"]).code, Some(0));
    let run = home.run(&["--session", "a", "cat", "n9:/x"]);
    assert_eq!(run.stderr, "sheaf: n9 is no host of session a (n[1-2])\n");
    let told = "sheaf: say which session: sheaf down NAME; running: a\n";
    assert_eq!(home.run(&["down"]).stderr, told);
    assert_eq!(home.run(&["--session", "a", "down"]).code, Some(0));
    nothing_is_left(&home);
    // One that is started has to be of a cluster.
    let run = home.run(&["up", "--session", "a"]);
    assert!(run.code == Some(2) && run.stderr.contains("choose one with --cluster"), "{run:?}");
    let run = home.run(&["--session", "x", "cat", "/x"]);
    let told = "sheaf: no session x is running; start it with: sheaf up CLUSTER --session x\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(3), told));
    let run = home.run(&["--session", "a", "cat", "/x"]);
    assert_eq!(run.code, Some(3), "{run:?}");
    has_ended(&home, "a", &run.stderr, "; start it with: sheaf up a");
}

#[test]
fn session_that_ends_meanwhile_is_none() {
    use std::os::unix::fs::DirBuilderExt;
    use std::os::unix::net::UnixListener;
    let home = Home::new();
    let directory = home.runtime_dir().join("sheaf");
    std::fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
    let socket = directory.join("x.sock");
    for (args, code, told) in [
        (&["status"][..], 0, "no session is running; start one with: sheaf up\n"),
        (&["status", "x"], 3, "sheaf: session x is ending, and takes in nobody any more\n"),
    ] {
        let listener = UnixListener::bind(&socket).unwrap();
        let looks = 4;
        let (path, socket) = (socket.clone(), listener);
        let ends = std::thread::spawn(move || {
            // It is looked for first, to list it and to ask it.
            let mut last = None;
            for _ in 0..looks {
                last = Some(socket.accept().unwrap());
            }
            std::fs::remove_file(path).unwrap();
            drop((socket, last));
        });
        let run = home.run(args);
        assert_eq!((run.code, run.stderr.as_str()), (Some(code), told), "{run:?}");
        ends.join().unwrap();
    }
}

#[test]
fn session_that_hosts_join_says_how() {
    let home = Home::with_config("[cluster.pods]\nhosts = \"h1\"\nlaunch = \"attach\"\n");
    let up = home.run(&["up"]);
    assert_eq!(up.code, Some(0), "they come when they come: {up:?}");
    let second = "hosts join by themselves, with a token: sheaf token pods";
    assert_eq!(up.stderr.lines().nth(1), Some(second), "{up:?}");
    let status = home.run(&["status", "--timeout", "1"]);
    assert_eq!(
        status.stdout.lines().next(),
        Some("session pods: 0 of 1 hosts answer"),
        "{status:?}"
    );
    assert_eq!(home.run(&["down"]).code, Some(0));
    nothing_is_left(&home);
}

#[test]
fn refused_joins_are_counted_and_status_does_not_wait() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    drop(listener);
    let home = Home::with_config(&format!(
        "[cluster.pods]\nhosts = \"n[1-3]\"\nlaunch = \"attach\"\nlisten = \"{at}\"\n"
    ));
    let up = home.run(&["up", "--tokens", "tokens", "--token-uses", "9"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let begun = Instant::now();
    let status = home.run(&["status"]);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?} {status:?}", begun.elapsed());
    assert!(status.stdout.contains("\n  0 of 3 hosts have joined yet\n"), "{status:?}");
    assert!(status.stderr.contains("n[1-3]: host is down (EHOSTDOWN): it has not joined"));

    let serve = |host: &str, tokens: &str| {
        let args = ["serve", "--join", &at, "--token-file", tokens, "--host", host];
        Running::start(home.command(&args).stdin(Stdio::null()))
    };
    let token = std::fs::read_to_string(home.path().join("tokens")).unwrap();
    let (prefix, secret) = token.trim().rsplit_once('.').unwrap();
    let other = home.write("other", &format!("{prefix}.{}", "0".repeat(secret.len())));
    let told = serve("n1", "other").wait();
    assert!(told.stderr.contains("(mode 0644), and could join as a host"), "{told:?}");
    std::fs::set_permissions(other, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for (host, tokens) in [("evil", "tokens"), ("evil", "tokens"), ("n1", "other")] {
        assert_eq!(serve(host, tokens).wait().code, Some(2));
    }
    let status = home.run(&["status"]);
    for told in [
        "\n  2 connections were refused: a host that is not one of the session's, last at ",
        "\n  1 connection was refused: a host's token is not of this session, last at ",
    ] {
        assert!(status.stdout.contains(told), "{status:?}");
    }
    let log = std::fs::read_to_string(home.runtime_dir().join("sheaf/pods.log")).unwrap();
    assert!(log.contains("evil") && !log.contains("Never"), "{log}");

    // Of two that come at once as the same host one stays, and the other is told.
    let mut two = [serve("n2", "tokens"), serve("n2", "tokens")];
    let mut ended = || two.iter_mut().map(Running::has_ended).filter(|ended| *ended).count();
    wait_until("one of them has ended", || ended() == 1);
    wait_until("the other serves", || {
        home.run(&["status"]).stdout.contains(" 1 of 3 hosts answer")
    });
    assert_eq!(ended(), 1);
    assert_eq!(home.run(&["down"]).code, Some(0));
    let mut codes: Vec<_> =
        two.map(Running::wait).into_iter().map(|run| (run.code, run.stderr)).collect();
    codes.sort();
    let told = "sheaf: the session refuses this host: n2 is there already";
    assert!(codes[1].0 == Some(2) && codes[1].1.contains(told), "{codes:?}");
    assert_eq!(codes[0].0, Some(0), "{codes:?}");
    nothing_is_left(&home);
}

/// One that does not answer keeps no time from the others, and is named in the time of the command.
#[test]
fn status_of_several_sessions_names_the_one_that_is_stopped() {
    let home = Home::new();
    let up = |name: &str| home.run(&["--json", "up", "--processes", "2", "--session", name]);
    assert_eq!(up("b").code, Some(0));
    let told: serde_json::Value = serde_json::from_str(&up("a").stdout).unwrap();
    let root = Process::of(u32::try_from(told["pid"].as_u64().unwrap()).unwrap()).unwrap();
    root.signal(Signal::STOP);
    let status = home.run(&["--timeout", "3", "status"]);
    root.signal(Signal::CONT);
    let (first, rest) = status.stdout.split_once('\n').unwrap();
    assert!(
        first.starts_with("session a: its process ") && first.contains("kill -CONT"),
        "{status:?}"
    );
    assert!(rest.starts_with("session b: 2 of 2 hosts answer: n[1-2]\n"), "{status:?}");
    assert_eq!(home.run(&["down", "--all"]).code, Some(0));
    nothing_is_left(&home);
}

#[test]
fn clients_do_not_disturb_each_other() {
    let home = Home::new();
    for host in 1..=16 {
        std::fs::create_dir_all(home.path().join(format!("export/n{host}"))).unwrap();
        home.write(&format!("export/n{host}/data"), "a\nb\n");
    }
    let export = home.path().join("export/%h").to_str().unwrap().to_owned();
    let up = Up::at(home, &["--processes", "16", "--tree", "1x4x4", "--export", &export]);
    let endless = |name: &str| {
        let place = format!("@all:/{name}");
        let mut copy = Running::start(
            up.home.command(&["--session", NAME, "cp", "-", &place]).stdin(Stdio::piped()),
        );
        let mut stdin = copy.stdin();
        stdin.write_all(&vec![b'x'; 6 << 20]).unwrap();
        (copy, stdin)
    };
    let ((killed, killed_stdin), (kept, kept_stdin)) = (endless("killed"), endless("kept"));
    let grep = || {
        let run = up.run(&["grep", "b", "/data"]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), "n[1-16]:/data:b\n"), "{run:?}");
    };
    grep();
    killed.signal(Signal::KILL);
    assert_eq!(killed.wait().code, None);
    drop(killed_stdin);
    grep();
    drop(kept_stdin);
    let run = kept.wait();
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), "copied to n[1-16]: 16 files\n"));
    wait_until("the killed copy has left nothing", || {
        (1..=16).all(|host| {
            let dir = std::fs::read_dir(up.home.path().join(format!("export/n{host}"))).unwrap();
            let mut names: Vec<_> = dir.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names == ["data", "kept"]
        })
    });
    assert_eq!(up.down().code, Some(0));
    nothing_is_left(&up.home);
}

#[test]
fn many_clients_at_once_get_their_own_answers() {
    let up = Up::new(&["--processes", "8", "--tree", "1x2x4"]);
    let words = ["root", "daemon", "bin", "sys", "nobody", "mail", "news", "x"];
    let start = |word: &&str| {
        Running::start(
            up.home.command(&["--session", NAME, "grep", word, "/etc/passwd"]).stdin(Stdio::null()),
        )
    };
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let runs: Vec<_> = words.iter().map(start).collect();
    for (word, running) in words.iter().zip(runs) {
        let run = running.wait();
        let lines = passwd.lines().filter(|line| line.contains(word));
        let expected: String = lines.map(|line| format!("n[1-8]:/etc/passwd:{line}\n")).collect();
        assert_eq!(run.stdout, expected, "{word}: {run:?}");
    }
}

#[test]
fn session_that_was_killed_makes_room_for_the_next() {
    let mut up = Up::new(&["--processes", "8"]);
    up.session.signal(Signal::KILL);
    wait_until("the servers have ended by themselves", || of_home(&up.home).is_empty());
    assert!(up.socket().exists());
    let home = std::mem::replace(&mut up.home, Home::new());
    let up = Up::at(home, &["--processes", "8"]);
    lines_of_passwd(&up, "n[1-8]");
    assert_eq!(up.down().code, Some(0));
    nothing_is_left(&up.home);
}

/// It is said once, and what it has left goes.
#[test]
fn session_that_was_killed_is_told_of() {
    let up = Up::new(&["--processes", "2"]);
    let log = up.home.runtime_dir().join(format!("sheaf/{NAME}.log"));
    up.session.signal(Signal::KILL);
    wait_until("its process has ended", || !up.session.runs());
    let told = format!(
        "sheaf: session {NAME} (process {}) has ended without saying why; its log: {}\n",
        up.session.pid,
        log.display()
    );
    // Until then whoever says hosts may mean its hosts, and not this machine alone.
    let file = up.home.path().join("file");
    std::fs::write(&file, "text").unwrap();
    let all = format!("@all:{}", file.display());
    for args in [&["rm", &all][..], &["cat", &all]] {
        let run = up.home.run(args);
        assert!(run.code == Some(3) && run.stderr.contains("without saying why"), "{run:?}");
    }
    assert_eq!(up.home.run(&["cat", file.to_str().unwrap()]).stdout, "text");
    let nothing = "no session is running; start one with: sheaf up\n";
    assert_eq!(up.home.run(&["status"]).stderr, format!("{told}{nothing}"));
    nothing_is_left(&up.home);
    assert_eq!(up.home.run(&["status"]).stderr, nothing);
    assert_eq!(up.down().stderr, told);
}

#[test]
fn two_that_start_at_once_become_one_session() {
    let home = Home::new();
    let start = || {
        let args = ["up", "--processes", "4", "--session", NAME];
        Running::start(home.command(&args).stdin(Stdio::null()))
    };
    let (first, second) = (start(), start());
    let runs = [first.wait(), second.wait()];
    assert_eq!(runs.iter().filter(|run| run.code == Some(0)).count(), 1, "{runs:?}");
    // Who started it is told how to use it.
    let lines = |run: &Run| if run.code == Some(0) { 2 } else { 1 };
    assert!(runs.iter().all(|run| run.stderr.lines().count() == lines(run)), "{runs:?}");
    assert_eq!(home.run(&["down", NAME]).code, Some(0));
    nothing_is_left(&home);
}

#[test]
fn garbage_on_the_socket_ends_nobody_elses_work() {
    let up = Up::new(&["--processes", "4"]);
    let noise: Vec<u8> =
        (0..100_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let oversized = [0xff; 64];
    for bytes in [&b""[..], b"\x01", b"GET / HTTP/1.1\r\n\r\n", &oversized, &[0; 64], &noise] {
        let mut stream = UnixStream::connect(up.socket()).unwrap();
        stream.set_read_timeout(Some(sheaf_testing::sessions::SOON)).unwrap();
        // The session may close the connection before it has all.
        let _ = stream.write_all(bytes);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // It says who it is, and goes away.
        let mut greeting = Vec::new();
        match stream.read_to_end(&mut greeting) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
        lines_of_passwd(&up, "n[1-4]");
    }
}

#[test]
fn socket_of_somebody_else_is_not_used() {
    let up = Up::new(&["--embedded", "2"]);
    let nobody = 65_534;
    if std::os::unix::fs::chown(up.socket(), Some(nobody), None).is_err() {
        sheaf_testing::skipped("only root can give files away");
        return;
    }
    let told = format!(
        "sheaf: {}: the session's socket belongs to user {nobody}, not to you; it is not used\n",
        up.socket().display()
    );
    for args in [&["grep", "x", "/etc/passwd"][..], &["up", "--embedded", "2"], &["down"]] {
        let run = up.run(args);
        assert_eq!((run.code, &run.stderr), (Some(2), &told), "{args:?}");
    }
    let directory = up.home.runtime_dir().join("sheaf");
    std::fs::remove_file(up.socket()).unwrap();
    std::os::unix::fs::chown(directory, Some(nobody), None).unwrap();
    let run = up.home.run(&["up", "--embedded", "2", "--session", "other"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("belongs to user 65534"), "{run:?}");
}

#[test]
fn idle_server_is_small() {
    let up = Up::new(&["--processes", "16"]);
    let cores = std::thread::available_parallelism().unwrap().get();
    for (host, server) in &up.servers {
        wait_until(&format!("{host} has at most one thread per core"), || {
            server.threads() <= cores
        });
    }
    let pss = up.servers.values().map(|server| server.kilobytes("smaps_rollup", "Pss").unwrap());
    let most = pss.max().unwrap();
    println!("the largest of 16 idle servers: {most} kB");
    if cfg!(debug_assertions) {
        eprintln!("SKIPPED 1 check: the memory of a server is limited in release builds alone");
    } else {
        assert!(most <= SERVER_PSS_KILOBYTES_MAX, "{most}");
    }
}

#[test]
fn reader_that_sleeps_fills_nobodys_memory() {
    const HOSTS: usize = 8;
    const COPIED_BYTES: usize = 64 << 20;
    /// Windows, queues of links and room for reading of a node, together with the pages of the
    /// program that it uses for the first time: a quarter of what passes through it.
    const GROWTH_KILOBYTES_MAX: u64 = 16 << 10;
    const ASLEEP: Duration = Duration::from_secs(2);
    let _turn = turn();
    let home = Home::new();
    for host in 1..=HOSTS {
        std::fs::create_dir_all(home.path().join(format!("export/n{host}"))).unwrap();
    }
    let mut content = vec![0; COPIED_BYTES];
    fastrand::Rng::with_seed(1).fill(&mut content);
    let source = home.path().join("source");
    std::fs::write(&source, &content).unwrap();
    let export = home.path().join("export/%h").to_str().unwrap().to_owned();
    let up = Up::at(home, &["--processes", "8", "--tree", "1x2x4", "--export", &export]);
    warm_up(&up);
    let watched: Vec<_> = up.nodes.iter().copied().chain([up.session]).collect();
    let peaks = || {
        watched.iter().map(|node| node.kilobytes("status", "VmHWM").unwrap()).collect::<Vec<_>>()
    };
    let before = peaks();

    let sleeper = up.servers["n2"];
    sleeper.signal(Signal::STOP);
    let source = source.to_str().unwrap();
    let mut copy =
        Running::start(&mut up.home.command(&["--session", NAME, "cp", source, "@all:/copy"]));
    std::thread::sleep(ASLEEP);
    assert!(!copy.has_ended(), "it has not waited for the reader");
    sleeper.signal(Signal::CONT);
    let run = copy.wait();
    assert_eq!(
        (run.code, run.stderr.as_str()),
        (Some(0), "copied to n[1-8]: 8 files\n"),
        "{run:?}"
    );

    for (before, after) in before.iter().zip(peaks()) {
        assert!(after - before < GROWTH_KILOBYTES_MAX, "{before} kB grew to {after} kB");
    }
    for host in 1..=HOSTS {
        let copied = std::fs::read(up.home.path().join(format!("export/n{host}/copy"))).unwrap();
        assert!(copied == content, "n{host} has something else");
    }
}

/// A request that every node takes part in, so that all of the program it needs is in its memory.
fn warm_up(up: &Up) {
    let run = up.run(&["grep", "-c", "", "/missing"]);
    assert_eq!(run.code, Some(4), "{run:?}");
}

#[test]
fn session_keeps_no_directory_of_its_callers() {
    let home = Home::new();
    home.write("export/n1/file", "text\n");
    home.write("export/n2/file", "text\n");
    home.write("tree.top", "root:0 => n1:0 n2:0;\n");
    let up =
        Up::at(home, &["--processes", "2", "--export", "export/%h", "--tree", "file:tree.top"]);
    for process in of_home(&up.home) {
        let directory = std::fs::read_link(format!("/proc/{}/cwd", process.pid)).unwrap();
        assert_eq!(directory, std::path::Path::new("/"));
    }
    let run = up.run(&["cat", ":/file"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "text\n"), "{run:?}");
    assert_eq!(up.down().code, Some(0));
    nothing_is_left(&up.home);
}

#[test]
fn hangup_ends_no_session_that_stays() {
    let home = Home::new();
    let up = home.run(&["--json", "--session", "s", "--processes", "2", "up"]);
    let told: serde_json::Value =
        serde_json::from_str(&up.stdout).unwrap_or_else(|_| panic!("{up:?}"));
    let root = Process::of(u32::try_from(told["pid"].as_u64().unwrap()).unwrap()).unwrap();
    // In the foreground it goes with its terminal, and here it has none.
    let own = home.command(&["--session", "f", "--processes", "2", "up", "--foreground"]);
    let mut apart = std::process::Command::new("setsid");
    apart.arg(own.get_program()).args(own.get_args()).current_dir(home.path()).env_clear();
    apart.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let foreground = Running::start(&mut apart);
    wait_until("both run", || home.run(&["status"]).stdout.contains("session f: 2 of 2"));
    for _ in 0..3 {
        root.signal(Signal::HUP);
        foreground.signal(Signal::HUP);
    }
    // Nor is any server lost.
    let is_server = |process: &Process| process.arguments().iter().any(|word| word == "serve");
    let servers: Vec<Process> = of_home(&home).into_iter().filter(is_server).collect();
    assert!(servers.len() >= 2, "{servers:?}");
    servers.iter().for_each(|server| server.signal(Signal::HUP));
    for session in ["s", "f"] {
        let run = home.run(&["--session", session, "stat", "/"]);
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    assert!(servers.iter().all(|server| server.runs()), "{servers:?}");
    for session in ["s", "f"] {
        assert_eq!(home.run(&["down", session]).code, Some(0));
    }
    assert_eq!(foreground.wait().code, Some(0));
    nothing_is_left(&home);
}

#[test]
fn session_is_selected_by_a_variable() {
    let up = Up::new(&["--embedded", "2"]);
    let with = |session: &str, args: &[&str]| {
        Run::of(up.home.command(args).env("SHEAF_SESSION", session).output().unwrap())
    };
    let read = with(NAME, &["grep", "-c", "", "/etc/passwd"]);
    assert_eq!((read.code, read.stderr.as_str()), (Some(0), ""), "{read:?}");
    assert!(read.stdout.starts_with("n[1-2]:/etc/passwd:"), "{read:?}");
    // An option says more.
    let one = with(NAME, &["--embedded", "1", "grep", "-c", "", "/etc/passwd"]);
    assert!(one.stdout.starts_with("n1:/etc/passwd:"), "{one:?}");
    let absent = with("nope", &["cat", "/etc/passwd"]);
    assert_eq!((absent.code, absent.stdout.as_str()), (Some(3), ""), "{absent:?}");
    assert!(absent.stderr.contains("no session nope is running"), "{absent:?}");
    assert!(absent.stderr.ends_with("(SHEAF_SESSION is nope)\n"), "{absent:?}");
    // Without it, people are told of the session that was not used, and scripts are not.
    let plain = up.home.run(&["cat", "/etc/passwd"]);
    assert_eq!((plain.code, plain.stderr.as_str()), (Some(0), ""), "{plain:?}");
    let told = format!(
        "sheaf: session {NAME} is running and was not used: --session {NAME} or SHEAF_SESSION={NAME} selects it"
    );
    let seen = on_terminal(&up.home, &["cat", "/etc/hostname"]);
    assert!(seen.contains(&told), "{seen}");
    let seen = on_terminal(&up.home, &["--embedded", "1", "cat", "/etc/hostname"]);
    assert!(!seen.contains("was not used"), "{seen}");
    let down = with(NAME, &["down"]);
    assert_eq!(down.code, Some(0), "{down:?}");
    nothing_is_left(&up.home);
}

/// What a person sees of a command.
fn on_terminal(home: &Home, args: &[&str]) -> String {
    let sheaf = home.command(args);
    let words: Vec<String> = std::iter::once(sheaf.get_program())
        .chain(sheaf.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &words.join(" "), "/dev/null"]).env_clear().current_dir(home.path());
    script.envs(sheaf.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let run = script.stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&run.stdout).into_owned()
}
