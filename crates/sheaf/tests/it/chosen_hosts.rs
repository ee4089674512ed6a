//! Hosts from the command line: `-w`, `-x`, `-l` and `--sudo`.
use crate::machines::{LOGIN, Machines};
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{NAME, Up, nothing_is_left, turn, wait_until};
use std::os::unix::fs::PermissionsExt;

/// A home with a directory for each of n1 to n4.
fn home() -> (Home, String) {
    let home = Home::new();
    for host in 1..=4 {
        home.write(&format!("n{host}/who"), &format!("n{host}\n"));
        home.write(&format!("n{host}/same"), "x\n");
    }
    let export = home.path().join("%h").to_str().unwrap().to_owned();
    (home, export)
}

#[track_caller]
fn prints(run: &Run, expected: &str) {
    assert_eq!(
        (run.stdout.as_str(), run.stderr.as_str(), run.code),
        (expected, "", Some(0)),
        "{run:?}"
    );
}

/// Removes files, and says on which hosts.
#[track_caller]
fn removes(run: &Run, hosts: &str) {
    assert_eq!((run.stdout.as_str(), run.code), ("", Some(0)), "{run:?}");
    assert!(run.stderr.starts_with(&format!("removed on {hosts}: ")), "{run:?}");
}

#[track_caller]
fn refuses(run: &Run, expected: &str) {
    assert_eq!((run.stdout.as_str(), run.code), ("", Some(2)), "{run:?}");
    assert_eq!(run.stderr, format!("sheaf: {expected}\n"));
}

/// An unset variable spares nobody, so it is refused.
#[test]
fn empty_exclusion_is_refused() {
    let (home, export) = home();
    let why = "-x (or - in -w) names no host to leave out; an unset variable leaves it empty";
    for hosts in
        [&["-w", "n[1-4]", "-x", ""][..], &["-w", "n[1-4]", "-x", " "], &["-w", "n[1-4],-"]]
    {
        let run = home.run(&[hosts, &["--export", &export, "rm", "@all:/same"]].concat());
        refuses(&run, why);
        assert!(home.path().join("n1/same").exists(), "{hosts:?}");
    }
}

#[test]
fn hosts_need_no_file() {
    let (home, export) = home();
    for launch in ["processes", "embedded"] {
        let run =
            |args: &[&str]| home.run(&[&["--launch", launch, "--export", &export], args].concat());
        prints(&run(&["-w", "n[1-4]", "grep", ".", "/same"]), "n[1-4]:/same:x\n");
        prints(&run(&["-w", "n1,n4", "-x", "n1", "grep", ".", "/who"]), "n4:/who:n4\n");
        prints(
            &run(&["grep", "--hosts", "n[1-3]", "--exclude-hosts", "n2", ".", "/same"]),
            "n[1,3]:/same:x\n",
        );
        prints(
            &run(&["stat", "-c", "%s", "-w", "n[1-4]", "-x", "n1", "-x", "n2", "n[1-3]:/same"]),
            "n3:/same:2\n",
        );
        prints(
            &run(&["-x", "n1", "ls", "--hosts", "n[1-4]", "--exclude-hosts", "n2", "@all:/same"]),
            "n[3-4]:/same\n",
        );
        // Hosts are said, so that files may be changed.
        removes(&run(&["-w", "n[2-4]", "-x", "n3", "rm", "/same"]), "n[2,4]");
        assert_eq!(present(&home, "same"), [1, 3]);
        for host in [2, 4] {
            home.write(&format!("n{host}/same"), "x\n");
        }
        refuses(
            &run(&["-w", "n[1-4]", "-x", "m1", "cat", "/same"]),
            "m1 is not among the hosts of -w (n[1-4]); did you mean n1?",
        );
        refuses(
            &run(&["-w", "n[1-2]", "-x", "n[1-2]", "cat", "/same"]),
            "--exclude-hosts leaves no host",
        );
        refuses(
            &run(&["-w", "n[1-4]", "-x", "n2", "cat", "n2:/same"]),
            "n2: every host of it is left out by --exclude-hosts",
        );
        refuses(
            &run(&["-w", "n[1-2]", "cat", "n3:/same"]),
            "n3 is not among the hosts of -w (n[1-2])",
        );
    }
    refuses(
        &home.run(&["--launch", "sssh", "-w", "n1", "cat", "/x"]),
        "invalid value 'sssh' for '--launch <HOW>': there are embedded, processes, ssh, slurm, attach; see \
         sheaf cat --help",
    );
    refuses(
        &home.run(&["--launch", "ssh", "cat", "/x"]),
        "--launch ssh is for hosts that are named: add -w HOSTS",
    );
    let told = "--user is for hosts that ssh logs in to: not with launch = processes";
    refuses(&home.run(&["--launch", "processes", "-w", "n1", "-l", "me", "cat", "/x"]), told);
    let told =
        "--sudo is for servers that are started here or over ssh: not with launch = embedded";
    refuses(&home.run(&["--embedded", "2", "--sudo", "cat", "/x"]), told);
    refuses(
        &home.run(&["--embedded", "2", "--link", "tls", "cat", "/x"]),
        "--link is for processes of their own: not with launch = embedded",
    );
    let none = "no groups are configured ([groups] of sheaf.toml, ClusterShell)";
    refuses(&home.run(&["-w", "@web", "cat", "/x"]), &format!("-w: no group @web: {none}"));
    refuses(&home.run(&["-w", "", "cat", "/x"]), "-w: no host is named");
    let both = home.run(&["--embedded", "2", "-w", "n1", "cat", "/x"]);
    assert_eq!((both.code, both.stderr.lines().count()), (Some(2), 1), "{both:?}");
}

/// A set is padded or it is not: whoever leaves the zeros out is told so.
#[test]
fn zeros_that_are_left_out_are_noticed() {
    let home = Home::with_config("[cluster.lab]\nhosts = \"n[001-512]\"\nlaunch = \"embedded\"\n");
    for (hosts, told) in [
        ("n1", "n1 is no host of cluster lab (n[001-512]); did you mean n001?"),
        ("n[1-64]", "n[1-64] are no hosts of cluster lab (n[001-512]); did you mean n[001-064]?"),
        ("n600", "n600 is no host of cluster lab (n[001-512])"),
    ] {
        refuses(&home.run(&["cat", &format!("{hosts}:/x")]), told);
    }
    refuses(
        &home.run(&["-x", "n007", "-w", "n[001-002]", "cat", "/x"]),
        "n007 is not among the hosts of -w (n[001-002])",
    );
}

/// Where others can be reached it is said how.
#[test]
fn hosts_outside_of_a_cluster_are_told_how_to_be_reached() {
    let home = Home::with_config("[cluster.lab]\nhosts = \"n[1-4]\"\n");
    for (hosts, told) in [
        ("n9", "n9 is no host of cluster lab (n[1-4]); -w 'n9' --launch ssh goes there over ssh"),
        (
            "n[3-9]",
            "n[5-9] are no hosts of cluster lab (n[1-4]); -w 'n[5-9]' --launch ssh goes there over ssh",
        ),
        ("m1", "m1 is no host of cluster lab (n[1-4]); did you mean n1?"),
    ] {
        refuses(&home.run(&["cat", &format!("{hosts}:/x")]), told);
    }
    refuses(&home.run(&["-x", "n9", "cat", "/x"]), "n9 is no host of cluster lab (n[1-4])");
}

/// The hosts that have this file.
fn present(home: &Home, name: &str) -> Vec<u32> {
    (1..=4).filter(|host| home.path().join(format!("n{host}/{name}")).exists()).collect()
}

#[test]
fn configured_cluster_is_cut_to_the_hosts_that_are_said() {
    let (home, export) = home();
    home.write(
        "sheaf.toml",
        &format!(
            "[cluster.lab]\nhosts = \"n[1-4]\"\nlaunch = \"processes\"\nexport = {export:?}\n\
             [groups]\nodd = \"n[1,3,5]\"\n"
        ),
    );
    prints(&home.run(&["-x", "n2", "grep", ".", "/same"]), "n[1,3-4]:/same:x\n");
    // A group may know hosts of other clusters too; a name that is none is a mistake.
    prints(&home.run(&["-x", "@odd", "grep", ".", "/same"]), "n[2,4]:/same:x\n");
    prints(&home.run(&["-x", "n[3-4]", "grep", ".", "@odd&@all:/same"]), "n1:/same:x\n");
    refuses(&home.run(&["-x", "n[2-5]", "cat", "/same"]), "n5 is no host of cluster lab (n[1-4])");
    prints(&home.run(&["-C", "lab", "-w", "n[1-2]", "grep", ".", "/same"]), "n[1-2]:/same:x\n");
    refuses(
        &home.run(&["rm", "-x", "n1", "/same"]),
        "/same: rm changes files, so say on which hosts: write @all:/same for all of n[2-4], or HOSTSET:/same",
    );
    removes(&home.run(&["rm", "-x", "n1", "@all:/same"]), "n[2-4]");
    assert_eq!(present(&home, "same"), [1]);
    let shown = home
        .run(&["config", "show", "-x", "n1", "-w", "n[1-2]", "-l", "me", "--sudo", "-C", "lab"]);
    let lines: Vec<String> = shown
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| line.contains("--"))
        .collect();
    let told = [
        r#"cluster = "lab" # --cluster"#,
        r#"hosts = "n[1-2]" # --hosts"#,
        r#"user = "me" # --user"#,
        "sudo = true # --sudo",
        r#"exclude_hosts = "n1" # --exclude-hosts"#,
    ];
    assert_eq!(lines, told, "{shown:?}");
}

/// Whatever would run as an ssh does not run.
#[test]
fn names_that_ssh_would_not_take_for_names_are_refused() {
    let (home, _) = home();
    let ran = home.path().join("ran");
    let ssh =
        home.write("ssh", &format!("#!/bin/sh\necho \"$@\" >> {}\nexit 255\n", ran.display()));
    std::fs::set_permissions(&ssh, PermissionsExt::from_mode(0o755)).unwrap();
    let write = |hosts: &str, more: &str| {
        let config =
            format!("[cluster.lab]\nhosts = {hosts:?}\nssh = \"{}\"\n{more}", ssh.display());
        home.write("sheaf.toml", &config);
    };
    let lab = |told: &str| format!("hosts of cluster lab: {told}");
    write("n1", "");
    let refused =
        |args: &[&str], told: &str| refuses(&home.run(&[args, &["cat", "/x"]].concat()), told);
    let blank = "\"a b\" cannot be the name of a host: it has a blank; hosts are joined by commas";
    for args in [&["-C", "lab", "-w", "a b"][..], &["-w", "a b"], &["-w", "a b", "--launch", "ssh"]]
    {
        refused(args, &format!("-w: {blank}"));
    }
    // A word that begins with a dash leaves a host out.
    let dash = "oProxyCommand=x is not among the hosts of -w (n1)";
    refused(&["-C", "lab", "-w", "n1,-oProxyCommand=x"], dash);
    refused(
        &["-C", "lab", "--hosts=-oProxyCommand=x"],
        "oProxyCommand=x is no host of cluster lab (n1)",
    );
    let wrong = |user: &str, why: &str| {
        format!(
            "invalid value '{user}' for '--user <USER>': a user cannot be called so: {why}; see sheaf cat --help"
        )
    };
    refused(&["-w", "n1", "-l", "x y"], &wrong("x y", "it has a blank"));
    refused(
        &["-w", "n1", "--user=-oProxyCommand=x"],
        &wrong("-oProxyCommand=x", "it begins with a dash"),
    );
    assert_eq!(home.run(&["-w", "n1", "-l", "-x", "cat", "/x"]).code, Some(2));
    let dash = "\"-oProxyCommand=x\" cannot be the name of a host: it begins with a dash";
    // The same of a configuration, of what it reads, and of nodes between the others.
    write("@command: echo -- -oProxyCommand=x", "");
    refused(&[], &lab("\"--\" cannot be the name of a host: it begins with a dash"));
    home.write("hosts", "n1\n-oProxyCommand=x\n");
    write("@file:hosts", "");
    refused(&[], &lab(dash));
    write("n1", "inner_hosts = \"-oProxyCommand=x\"\n");
    refused(&[], &format!("inner hosts of cluster lab: {dash}"));
    home.write("tree.top", "root:0 => -oProxyCommand:0 ; -oProxyCommand:0 => n1:0 ;");
    write("n1", "tree = \"file:tree.top\"\n");
    refused(
        &[],
        "tree.top: \"-oProxyCommand\" cannot be the name of a host: it begins with a dash",
    );
    let check = home.run(&["config", "check"]);
    assert!(check.code == Some(2) && check.stderr.contains("it begins with a dash"), "{check:?}");
    assert!(!ran.exists());
}

#[test]
fn hosts_are_left_out_of_the_tree_of_a_file() {
    let (home, export) = home();
    home.write(
        "sheaf.toml",
        &format!(
            "[cluster.lab]\nhosts = \"n[1-4]\"\nlaunch = \"processes\"\nexport = {export:?}\n\
             tree = \"file:tree.top\"\n"
        ),
    );
    home.write("tree.top", "root:0 => a:0 n4:1 ; a:0 => n2:0 n1:0 ; n4:1 => n4:0 n3:0 ;");
    prints(&home.run(&["grep", ".", "/same"]), "n[1-4]:/same:x\n");
    prints(&home.run(&["-x", "n2", "grep", ".", "/who"]), "n1:/who:n1\nn4:/who:n4\nn3:/who:n3\n");
    prints(&home.run(&["-x", "n[1-2]", "grep", ".", "/same"]), "n[3-4]:/same:x\n");
    let drawn = home.run(&["-x", "n[1-2]", "tree", "plan"]);
    assert!(drawn.stdout.contains("2 leaves") && !drawn.stdout.contains(" a"), "{drawn:?}");
    prints(&home.run(&["-x", "n[3-4]", "grep", ".", "/same"]), "n[1-2]:/same:x\n");
    refuses(
        &home.run(&["-x", "n4", "cat", "/same"]),
        "tree.top: n4 is left out, but it is the inner node above n3, which stay; leave these out as well, \
         or give them another node in the file",
    );
    refuses(&home.run(&["-x", "@all", "cat", "/same"]), "--exclude-hosts leaves no host");
}

#[test]
fn running_session_is_asked_only_for_the_hosts_that_are_said() {
    let (home, export) = home();
    let up = Up::at(home, &["--launch", "processes", "-w", "n[1-4]", "--export", &export]);
    prints(&up.run(&["grep", ".", "/same"]), "n[1-4]:/same:x\n");
    prints(&up.run(&["-x", "n2", "grep", ".", "/same"]), "n[1,3-4]:/same:x\n");
    prints(&up.run(&["-w", "n[2-4]", "-x", "n3", "grep", ".", "/same"]), "n[2,4]:/same:x\n");
    refuses(&up.run(&["-w", "n[3-5]", "cat", "/same"]), "n5 is no host of session try (n[1-4])");
    refuses(
        &up.run(&["-w", "n[3-4]", "cat", "n1:/same"]),
        "n1 is not among the hosts of -w (n[3-4])",
    );
    removes(&up.run(&["-w", "n[2-3]", "rm", "/same"]), "n[2-3]");
    assert_eq!(present(&up.home, "same"), [1, 4]);
    removes(&up.run(&["-x", "n4", "rm", "@all:/who"]), "n[1-3]");
    assert_eq!(present(&up.home, "who"), [4]);
    refuses(
        &up.run(&["--sudo", "cat", "/same"]),
        &format!("session {NAME}: --sudo is said when it is started"),
    );
    assert_eq!(up.down().code, Some(0));
    nothing_is_left(&up.home);
}

/// A stand-in for sudo, which takes what the real one is given here and nothing else, and passes on
/// as little of the environment.
const SUDO: &str = "#!/bin/sh\n\
    test \"$1 $2\" = \"-n --\" || { echo \"sudo: a password is required\" >&2; exit 1; }\n\
    shift 2\n\
    echo \"$*\" >> LOG\n\
    exec env -i PATH=/usr/bin:/bin \"$@\"\n";

#[test]
fn local_servers_are_started_through_sudo_and_nodes_above_not() {
    let (home, export) = home();
    let log = home.path().join("sudo.log");
    let sudo = home.write("bin/sudo", &SUDO.replace("LOG", log.to_str().unwrap()));
    std::fs::set_permissions(&sudo, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", home.path().join("bin").display());
    for link in ["unix", "tls"] {
        let mut command =
            home.command(&["--launch", "processes", "-w", "n[1-4]", "--sudo", "--tree", "1x2x2"]);
        command
            .args(["--link", link, "--export", &export, "grep", ".", "/same"])
            .env("PATH", &path);
        prints(&Run::of(command.output().unwrap()), "n[1-4]:/same:x\n");
        let started = std::fs::read_to_string(&log).unwrap();
        assert_eq!(started.lines().count(), 4, "{started}");
        assert!(started.lines().all(|line| line.ends_with("sheaf serve")), "{started}");
        std::fs::remove_file(&log).unwrap();
    }
    let mut command =
        home.command(&["--launch", "processes", "-w", "n[1-2]", "--sudo", "cat", "/same"]);
    let missing = Run::of(command.env("PATH", "/nowhere").output().unwrap());
    assert_eq!(missing.stdout, "", "{missing:?}");
    assert!(missing.stderr.contains("its process cannot be started"), "{missing:?}");
}

/// A user `worker` of a host, who may run programs as root through a stand-in for sudo.
fn add_worker(machines: &Machines, host: usize) {
    let log = "/run/worker/sudo.log";
    // It is not a script that becomes root: env is, for whoever runs it.
    let sudo = SUDO.replace("LOG", log).replace("exec env", "exec /run/worker/as-root");
    let script = "set -e\n\
        mkdir -p /run/worker/.ssh /run/worker/bin\n\
        cp /root/.ssh/* /run/worker/.ssh/\n\
        cp \"$(command -v env)\" /run/worker/as-root && chmod 4755 /run/worker/as-root\n\
        cat > /run/worker/bin/sudo && chmod 755 /run/worker/bin/sudo\n\
        cp /etc/passwd /run/passwd\n\
        echo 'worker:*:4711:4711::/run/worker:/bin/sh' >> /run/passwd\n\
        chown -R 4711:4711 /run/worker/.ssh && chown 4711:4711 /run/worker\n\
        mount --bind /run/passwd /etc/passwd\n";
    let mut command = machines.command(host, "sh", &["-c", script]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), sudo.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let read = |file: &str| machines.command(host, "cat", &[file]).output().unwrap();
    machines.stop_sshd(host);
    machines.start_sshd(host, "SetEnv PATH=/run/worker/bin:/usr/bin:/bin");
    assert!(read(log).stdout.is_empty());
}

#[test]
fn login_user_is_the_one_said_and_sudo_makes_servers_roots() {
    let _turn = turn();
    let Some(machines) = Machines::new(4) else { return };
    for host in 1..=4 {
        add_worker(&machines, host);
        machines.write(host, "secret", &format!("of h{host}\n"));
        std::fs::set_permissions(machines.home(host, "secret"), PermissionsExt::from_mode(0o600))
            .unwrap();
    }
    // No file: ssh is what is meant, as root, who runs this.
    let run = machines.run(&["-w", "h[1-2]", "cat", "h2:/root/secret"]);
    assert!(run.code == Some(0) && run.stdout.ends_with("of h2\n"), "{run:?}");

    let run = machines.run(&["-w", "h[1-4]", "-l", "worker", "grep", ".", "/root/secret"]);
    assert!(run.stdout.is_empty() && run.stderr.contains("EACCES"), "{run:?}");
    assert!(machines.home(1, "secret").exists());
    let cached = machines.command(1, "ls", &["/run/worker/.cache/sheaf/bin"]).output().unwrap();
    assert!(!cached.stdout.is_empty(), "the program is in the cache of whoever logs in");

    // Two levels: a server that runs beside an inner node is started through sudo as well.
    let args = ["-w", "h[1-4]", "-x", "h3", "-l", "worker", "--sudo", "--tree", "1x1x3"];
    let run = machines.run(&[&args[..], &["grep", ".", "/root/secret"]].concat());
    let expected = "h1:/root/secret:of h1\nh2:/root/secret:of h2\nh4:/root/secret:of h4\n";
    assert_eq!(
        (run.stdout.as_str(), run.stderr.as_str(), run.code),
        (expected, "", Some(0)),
        "{run:?}"
    );
    for host in [1, 2, 4] {
        let log = machines.command(host, "cat", &["/run/worker/sudo.log"]).output().unwrap();
        let log = String::from_utf8(log.stdout).unwrap();
        assert_eq!(log.lines().count(), 1, "{log}");
        let owner =
            machines.command(host, "stat", &["-c", "%u", "/run/worker/.cache/sheaf/bin"]).output();
        assert_eq!(owner.unwrap().stdout, b"4711\n", "the push is the user's");
    }
    assert_eq!(machines.logins(3), 1, "h3 was left out");
    wait_until("nothing is left", || {
        machines.hosts().all(|host| machines.processes(host).is_empty())
    });

    // Without the right to, every host says why.
    let script = "printf '#!/bin/sh\\necho sudo: a password is required >&2\\nexit 1\\n' > /run/worker/bin/sudo";
    assert!(machines.command(1, "sh", &["-c", script]).status().unwrap().success());
    let run = machines.run(&["-w", "h1", "-l", "worker", "--sudo", "cat", "/root/secret"]);
    assert!(run.stderr.contains("not started: sudo: a password is required"), "{run:?}");
    assert!(!machines.home(LOGIN, "sheaf.toml").exists(), "there was no file");
}

/// A stand-in for ssh that no host lets in.
fn deny_ssh(home: &Home) -> String {
    let ssh = home.write("bin/ssh", "#!/bin/sh\necho nobody is let in >&2\nexit 255\n");
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:/usr/bin:/bin", home.path().join("bin").display())
}

#[test]
fn hosts_of_the_default_cluster_are_that_clusters() {
    let (home, export) = home();
    let clusters = |export: &str| {
        format!(
            "default = \"lab\"\n[cluster.lab]\nhosts = \"n[1-4]\"\nlaunch = \"processes\"\nexport = {export:?}\n\
             [cluster.other]\nhosts = \"n[1-9]\"\n[groups]\nodd = \"n[1,3]\"\n"
        )
    };
    home.write("sheaf.toml", &clusters(&export));
    prints(&home.run(&["-w", "n[1-2]", "grep", ".", "/same"]), "n[1-2]:/same:x\n");
    prints(&home.run(&["-w", "@odd", "grep", ".", "/same"]), "n[1,3]:/same:x\n");
    prints(&home.run(&["-w", "@all", "-x", "n1", "grep", ".", "/same"]), "n[2-4]:/same:x\n");
    removes(&home.run(&["-w", "n1", "rm", "/same"]), "n1");
    assert_eq!(present(&home, "same"), [2, 3, 4]);
    refuses(&home.run(&["-w", "@ood", "cat", "/same"]), "-w: no group @ood; did you mean @odd?");

    // Its session is asked.
    assert_eq!(home.run(&["up"]).code, Some(0));
    for words in [&["-w", "n[2-3]"][..], &["-C", "lab", "-w", "n[2-3]"]] {
        prints(&home.run(&[words, &["grep", ".", "/same"]].concat()), "n[2-3]:/same:x\n");
    }
    // It cannot heed what says how servers are started, which is not passed over.
    home.write("other/n2/same", "other\n");
    let other = home.path().join("other/%h").to_str().unwrap().to_owned();
    for words in [&["-w", "n2"][..], &["-C", "lab", "-w", "n2"]] {
        let args = [words, &["--export", &other, "grep", ".", "/same"]].concat();
        prints(&home.run(&args), "n2:/same:other\n");
    }
    // Without hosts the session's are meant.
    let args = ["-x", "n[1,3-4]", "--export", &other, "grep", ".", "/same"];
    let told = "session lab runs, and --export holds for sessions that are started: `sheaf down lab` first, or add \
                -w HOSTS --launch ssh, or --embedded 1 for this host alone, for a tree of its own";
    refuses(&home.run(&args), told);
    removes(&home.run(&["-w", "n2", "rm", "/same"]), "n2");
    assert_eq!(present(&home, "same"), [3, 4]);
    assert_eq!(home.run(&["down"]).code, Some(0));
    // So it is for a session of another name, by an option or by the variable.
    for by_variable in [false, true] {
        let option = ["--session", "two"];
        let words = [&["-w", "n[3-4]"][..], if by_variable { &[] } else { &option }].concat();
        let mut up = home.command(&[&["up"], &words[..]].concat());
        up.envs(by_variable.then_some(("SHEAF_SESSION", "two")));
        let up = Run::of(up.output().unwrap());
        assert!(up.stderr.starts_with("session two: 2 of 2 hosts"), "{up:?}");
        prints(&home.run(&["--session", "two", "grep", ".", "@all:/same"]), "n[3-4]:/same:x\n");
        let down = home.run(&["down"]);
        let told = "; running: two (sheaf down two)\n";
        assert!(down.code == Some(3) && down.stderr.ends_with(told), "{down:?}");
        assert_eq!(home.run(&["down", "two"]).code, Some(0));
    }
    nothing_is_left(&home);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn hosts_outside_of_the_default_cluster_are_said_to_be() {
    let (home, export) = home();
    home.write(
        "sheaf.toml",
        &format!(
            "[cluster.lab]\nhosts = \"n[1-4]\"\nlaunch = \"processes\"\nexport = {export:?}\n"
        ),
    );
    let path = deny_ssh(&home);
    let run = |args: &[&str]| Run::of(home.command(args).env("PATH", &path).output().unwrap());
    let lost = format!("outside of it, where its export {export} does not hold");
    for (hosts, note) in [
        ("h9", "h9 is no host of cluster lab: over ssh"),
        ("h[8-9]", "h[8-9] are no hosts of cluster lab: over ssh"),
        ("n[4-5]", "n5 is no host of cluster lab: all of n[4-5] over ssh"),
    ] {
        let note = format!("{note}, {lost}");
        let told = run(&["-w", hosts, "cat", "/same"]);
        assert_eq!((told.stdout.as_str(), told.code), ("", Some(3)), "{told:?}");
        assert_eq!(told.stderr.lines().next().unwrap(), format!("sheaf: {note}"));
        assert!(told.stderr.contains("nobody is let in"), "{told:?}");
        let quiet = run(&["-w", hosts, "--quiet", "cat", "/same"]);
        assert_eq!((quiet.stderr.as_str(), quiet.code), ("", Some(3)));
        let json = run(&["-w", hosts, "--json", "cat", "/same"]);
        let first: serde_json::Value =
            serde_json::from_str(json.stdout.lines().next().unwrap()).unwrap();
        assert_eq!(
            (first["type"].as_str(), first["note"].as_str()),
            (Some("note"), Some(note.as_str()))
        );
    }
    // One name that is mistyped does not take the others out of their cluster to change files.
    home.write("here", "here\n");
    for change in [
        &["rm", "-y", "/same"][..],
        &["rm", "--dry-run", "/same"],
        &["write", "--data", "x", "/same"],
        &["chmod", "600", "/same"],
        &["mkdir", "/new"],
        &["cp", "here", "@all:/same"],
    ] {
        refuses(
            &run(&[&["-w", "n[3-5]"], change].concat()),
            "n5 is no host of cluster lab (n[1-4]): nothing is changed; --launch ssh means hosts outside of it: all \
             of n[3-5], over ssh",
        );
    }
    // Outside of the cluster the path would be one of the host's own root.
    refuses(
        &run(&["-w", "h9", "rm", "-y", "/same"]),
        &format!(
            "h9 is no host of cluster lab (n[1-4]), where its export {export} does not hold: nothing is changed; \
             --launch ssh means hosts outside of it: all of h9, over ssh"
        ),
    );
    for change in [
        &["rm", "-y", "/same"][..],
        &["write", "--data", "x", "/same"],
        &["cp", "here", "@all:/same"],
        &["mkdir", "@all:/new"],
    ] {
        assert_eq!(run(&[&["-w", "h[8-9]"], change].concat()).code, Some(2), "{change:?}");
        let named = [&["-w", "h9", "--export", "/"], change].concat();
        assert_eq!(run(&named).code, Some(3), "the export is said: {change:?}");
    }
    let meant = run(&["-w", "n[4-5]", "--launch", "ssh", "rm", "-y", "/same"]);
    assert!(meant.code == Some(3) && meant.stderr.contains("nobody is let in"), "{meant:?}");
    // Who says ssh means it, and who says another way means that.
    let told = run(&["-w", "n1", "--launch", "ssh", "cat", "/same"]);
    assert_eq!(told.code, Some(3), "{told:?}");
    assert!(
        told.stderr.contains("nobody is let in") && !told.stderr.contains("outside"),
        "{told:?}"
    );
    let launched =
        run(&["-w", "n[4-5]", "--launch", "embedded", "--export", &export, "grep", ".", "/same"]);
    assert!(
        launched.stdout == "n4:/same:x\n" && !launched.stderr.contains("outside"),
        "{launched:?}"
    );

    home.write("sheaf.toml", "[cluster.lab]\nhosts = \"@file:missing\"\n");
    refuses(
        &run(&["-w", "n1", "cat", "/same"]),
        "hosts of cluster lab: missing: No such file or directory (ENOENT); --launch ssh reaches hosts over \
         ssh, outside of cluster lab",
    );
}
