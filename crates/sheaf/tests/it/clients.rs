//! Hosts of a session on which commands may be typed, and what these may do.
use crate::gates::{FOR_ALL, command, install, run, run_as};
use crate::machines::{LOGIN, Machines};
use sheaf_testing::home::Run;
use sheaf_testing::sessions::{turn, wait_until};
use std::io::Write;
use std::process::Stdio;

const KEYS: &str = ".ssh/authorized_keys";

/// Four hosts with a file each, and a running session `clients-NAME` with these settings.
fn session(name: &str, settings: &str) -> Option<Machines> {
    let machines = Machines::new(4)?;
    let config = format!("[cluster.clients-{name}]\nhosts = \"h[1-4]\"\n{settings}");
    machines.write(LOGIN, "sheaf.toml", &config);
    for host in 1..=4 {
        machines.write(host, "data", &format!("of h{host}\n"));
    }
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    Some(machines)
}

fn refused(run: &Run, why: &str) {
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    assert!(run.stderr.contains(why), "{run:?}");
}

/// One host of a session overwrote the keys of another, to which it had no login.
#[test]
fn host_of_a_session_changes_no_file_of_another_host() {
    let _turn = turn();
    let Some(machines) = session("head", "") else { return };
    let before = std::fs::read(machines.home(4, KEYS)).unwrap();
    machines.write(3, "key", "ssh-ed25519 ATTACKER\n");
    let why = "sheaf: session clients-head takes no commands from h3 (EPERM), as clients = \"head\": type it on \
               login, or add h3 to clients in [cluster.clients-head] there and start the session again; \
               --embedded 1 means this host alone\n";
    for args in [
        &["cp", "/root/key", "h4:/root/.ssh/authorized_keys"][..],
        &["cat", "h4:/root/data"],
        &["-w", "h4", "cat", "/root/data"],
        &["grep", "of", "/root/data"],
        &["--session", "clients-head", "ls", "/root"],
    ] {
        let run = run(&machines, 3, args);
        assert_eq!((run.code, run.stderr.as_str()), (Some(2), why), "{args:?}");
        assert_eq!(run.stdout, "", "{args:?}");
    }
    assert_eq!(std::fs::read(machines.home(4, KEYS)).unwrap(), before);
    // Its own files it reads, where that is said; where the session was started everything goes on.
    let own = run(&machines, 3, &["--embedded", "1", "cat", "/root/data"]);
    assert_eq!((own.code, own.stdout.as_str()), (Some(0), "of h3\n"), "{own:?}");
    let head = machines.run(&["grep", "-c", "of", "/root/data"]);
    assert_eq!(head.stdout, "h[1-4]:/root/data:1\n", "{head:?}");
    let mount = run(&machines, 3, &["mount", "/mnt"]);
    refused(&mount, "takes no commands from h3 (EPERM)");
    let status = run(&machines, 3, &["status"]);
    assert!(status.code != Some(0) && status.stdout.contains("(EPERM)"), "{status:?}");
    let down = run(&machines, 3, &["down"]);
    assert_ne!(down.code, Some(0), "{down:?}");
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

#[test]
fn hosts_that_are_named_read_and_others_are_refused() {
    let _turn = turn();
    let settings = "clients = \"h[2-3]\"\nclients_root = true\n";
    let Some(machines) = session("read", settings) else { return };
    refused(&run(&machines, 1, &["cat", "h4:/root/data"]), "as clients = \"h[2-3]\"");
    let read = run(&machines, 2, &["--quiet", "grep", "-c", "of", "/root/data"]);
    assert_eq!((read.code, read.stdout.as_str()), (Some(0), "h[1-4]:/root/data:1\n"), "{read:?}");
    let why = "session clients-read: clients on h2 may read files and change none (EPERM): type it on login, or set \
               clients_may = \"write\" there";
    for args in [
        &["cp", "/root/data", "h4:/root/new"][..],
        &["rm", "-y", "h4:/root/data"],
        &["chmod", "777", "h4:/root/data"],
        &["write", "h4:/root/data"],
        &["mkdir", "h4:/root/dir"],
    ] {
        refused(&run(&machines, 2, args), why);
    }
    let all = machines.run(&["cat", "h4:/root/data"]);
    assert_eq!(all.stdout, "of h4\n", "{all:?}");
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

#[test]
fn root_of_a_client_host_needs_the_setting_to_be_root_elsewhere() {
    let _turn = turn();
    let settings = "clients = \"hosts\"\nclients_may = \"write\"\nusers = \"1001\"\n";
    let Some(machines) = session("root", settings) else { return };
    let why = "session clients-root: root of h2 is not root on its other hosts (EPERM): type it on login, or set \
               clients_root = true there";
    refused(&run(&machines, 2, &["cat", "h4:/root/data"]), why);
    refused(&run(&machines, 2, &["cp", "/root/data", "h4:/root/.ssh/authorized_keys"]), why);
    // Its servers run all the same.
    let status = run(&machines, 2, &["status"]);
    assert_eq!((status.code, status.stderr.as_str()), (Some(0), ""), "{status:?}");
    assert!(
        !status.stdout.contains(" 0 of ") && status.stdout.contains("root of h2 is not root"),
        "{status:?}"
    );
    install(&machines, 2);
    let alice = |gids: &str, args: &[&str]| {
        let words: Vec<&str> = [FOR_ALL].iter().chain(args).copied().collect();
        run_as(&machines, 2, 1001, gids, &words)
    };
    let version = alice("", &["--quiet", "grep", "-c", "h1", "/etc/hosts"]);
    assert_eq!(version.code, Some(0), "{version:?}");
    // A user in root's group is not in it on other hosts.
    refused(&alice("0", &["cat", "h4:/etc/hosts"]), "with root's user or group (EPERM)");
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

#[test]
fn settings_of_clients_that_cannot_be_meant_are_refused() {
    let _turn = turn();
    let Some(machines) = Machines::new(1) else { return };
    for (settings, why) in [
        (
            "users = \"1001\"\n",
            "cluster lab: users = \"1001\" needs clients: other users enter a session on its hosts only; add \
             clients = \"hosts\", or a host set",
        ),
        ("clients = \"h[1-2]\"\n", "clients = \"h[1-2]\": h2 is not a host of cluster lab"),
        (
            "clients_may = \"change\"\n",
            "clients_may = \"change\" is not known; there are read, write",
        ),
        ("clients_root = \"yes\"\n", "clients_root must be true or false"),
    ] {
        let config = format!("[cluster.lab]\nhosts = \"h1\"\n{settings}");
        machines.write(LOGIN, "sheaf.toml", &config);
        let up = machines.run(&["up"]);
        assert!(up.code == Some(2) && up.stderr.contains(why), "{up:?}");
    }
    let none = command(&machines, 1, &["--version"]).output().unwrap();
    assert!(none.status.success());
}

/// The session's log, and the audit of a host.
fn audits(machines: &Machines, name: &str, host: usize) -> (String, String) {
    let runtime = |host: usize, file: String| machines.root(host).join("run/user/sheaf").join(file);
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let log = read(runtime(LOGIN, format!("clients-{name}.log")));
    (log, read(runtime(host, format!("clients-{name}@h{host}.audit"))))
}

#[test]
fn audit_has_a_line_for_each_client_and_each_change() {
    let _turn = turn();
    let settings = "clients = \"h[2-3]\"\nclients_may = \"write\"\nclients_root = true\n";
    let Some(machines) = session("audit", settings) else { return };
    let run = |host, args: &[&str]| run(&machines, host, args);
    assert_eq!(run(2, &["--quiet", "chmod", "600", "h[1-4]:/root/data"]).code, Some(0));
    assert_ne!(machines.run(&["--quiet", "rm", "-y", "h[1-3]:/root/.ssh"]).code, Some(0));
    refused(&run(4, &["cat", "h1:/root/data"]), "(EPERM)");
    assert_eq!(machines.run(&["--quiet", "cp", "/etc/hostname", "h4:/root/new"]).code, Some(0));
    let lines = [
        "audit: client: user 0 on h2: admitted, may write\n",
        "audit: user 0 on h2: chmod on h[1-4]: /root/data: done\n",
        "audit: client: user 0 on h4: refused: session clients-audit takes no commands from h4 (EPERM)",
        "audit: the session's user on login: rm on h[1-3]: /root/.ssh: 1 path failed\n",
        "audit: the session's user on login: cp on h4: /root/new: done\n",
        " --quiet cp /etc/hostname h4:/root/new: admitted\n",
    ];
    wait_until("the root has all lines", || {
        let (log, _) = audits(&machines, "audit", 4);
        lines.iter().all(|line| log.contains(line))
    });
    let (log, own) = audits(&machines, "audit", 4);
    assert!(own.contains("audit: user 0 on h2: chmod: /root/data: done\n"), "{own}");
    assert!(own.contains("audit: the session's user on the head: cp: /root/new: done\n"), "{own}");
    // What only reads is no change.
    assert!(!log.contains("cat on"), "{log}");
    // What came last is written, too.
    assert_eq!(run(3, &["--quiet", "chmod", "640", "h[1-4]:/root/data"]).code, Some(0));
    assert_eq!(machines.run(&["down"]).code, Some(0));
    let (log, _) = audits(&machines, "audit", 4);
    assert!(log.contains("audit: user 0 on h3: chmod on h[1-4]: /root/data: done\n"), "{log}");
}

/// A user who may change files would get past the audit by a view.
#[test]
fn changes_through_a_view_are_in_the_audit() {
    let _turn = turn();
    if !crate::mount::can_mount() {
        return;
    }
    let settings = "clients = \"h2\"\nclients_may = \"write\"\nclients_root = true\n";
    let Some(machines) = session("views", settings) else { return };
    let script = |host: usize, script: &str| {
        let run = machines.command(host, "sh", &["-c", script]).output().unwrap();
        assert!(run.status.success(), "{script}: {run:?}");
    };
    script(2, "mkdir /run/view");
    assert_eq!(run(&machines, 2, &["--quiet", "mount", "/run/view"]).code, Some(0));
    script(
        2,
        "cd /run/view/hosts/h4/root && cat data && mkdir d && cd d && touch 1 2 3 && chmod 600 1 2 3",
    );
    script(
        2,
        "cd /run/view/hosts/h4/root && echo x >> data && mv d/1 d/b && ln -s q d/l && rm -r d",
    );
    let lines = [
        "view mkdir on h4: /root/d: done\n",
        "view create on h4: /root/d/1, /root/d/2, /root/d/3: done\n",
        "view chmod 600 on h4: /root/d/1, /root/d/2, /root/d/3: done\n",
        "view open for writing on h4: /root/data: done\n",
        "view rename on h4: /root/d/1, /root/d/b: done\n",
        "view symlink on h4: /root/d/l: done\n",
        "view rmdir on h4: /root/d: done\n",
    ];
    let told = |line: &str| format!("audit: user 0 on h2: {line}");
    wait_until("the root has all lines", || {
        let (log, _) = audits(&machines, "views", 4);
        lines.iter().all(|line| log.contains(&told(line)))
    });
    let (log, own) = audits(&machines, "views", 4);
    assert!(own.contains("audit: user 0 on h2: view mkdir: /root/d: done\n"), "{own}");
    assert!(
        log.contains("view unlink on h4: /root/d/2, /root/d/3, /root/d/b, /root/d/l: done"),
        "{log}"
    );
    // What only reads is no change, and the host's own files are its own affair.
    script(2, "cat /run/view/hosts/h1/root/data && echo > /run/view/hosts/h2/root/own");
    // What came last is written, too.
    script(2, "rm /run/view/hosts/h3/root/data");
    assert_eq!(machines.run(&["down"]).code, Some(0));
    // The root ends before the hosts do.
    let written = || audits(&machines, "views", 3);
    wait_until("the host has the line", || {
        written().1.contains(&told("view unlink: /root/data: done\n"))
    });
    let (log, _) = written();
    let unknown = "view unlink on h3: /root/data: not known, as the session ended\n";
    assert!(log.contains(&told(unknown)), "{log}");
    assert!(!log.contains("on h1:") && !log.contains("/root/own"), "{log}");
}

/// A host that dies in the middle of a change cannot say how it ended, and what is copied into a
/// directory is named.
#[test]
fn change_of_a_host_that_is_lost_is_in_the_audit_of_the_root() {
    let _turn = turn();
    let Some(machines) = session("dead", "audit = \"log\"\n") else { return };
    assert_eq!(machines.run(&["cp", "/etc/hostname", "h4:/root/"]).code, Some(0));
    let mut write = machines.sheaf(&["write", "--in-place", "h[3-4]:/root/data"]);
    write.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut write = write.spawn().unwrap();
    let mut input = write.stdin.take().unwrap();
    input.write_all(&[7; 1 << 20]).unwrap();
    let is_begun = |host| std::fs::metadata(machines.home(host, "data")).unwrap().len() > 99;
    wait_until("the file is written", || is_begun(3) && is_begun(4));
    for server in machines.processes(4) {
        server.signal(rustix::process::Signal::KILL);
    }
    let log = || audits(&machines, "dead", 4).0;
    let lost = "write on h4: /root/data: not known, as the host was lost\n";
    wait_until("the root has the line", || log().contains(lost));
    drop(input);
    assert_eq!(write.wait().unwrap().code(), Some(4));
    let made = "write on h3: /root/data: done\n";
    wait_until("the root has the other host's line", || log().contains(made));
    let log = log();
    assert!(log.contains("cp on h4: /root/hostname: done\n"), "{log}");
    assert_eq!(log.matches("not known").count(), 1, "{log}");
    assert!(machines.run(&["down"]).code.is_some());
}

#[test]
fn host_without_an_audit_file_is_known_at_the_root() {
    let _turn = turn();
    let Some(machines) = Machines::new(2) else { return };
    let config = "[cluster.clients-lost]\nhosts = \"h[1-2]\"\nclients = \"h1\"\naudit = \"log\"\n";
    machines.write(LOGIN, "sheaf.toml", config);
    let in_the_way = "/run/user/sheaf/clients-lost@h2.audit";
    let script = format!("mkdir -m 700 /run/user/sheaf && mkdir {in_the_way}");
    assert!(machines.command(2, "sh", &["-c", &script]).status().unwrap().success());
    assert_eq!(machines.run(&["up"]).code, Some(0));
    let told = format!("\n  changes on h2 are in no file of the host: {in_the_way}: ");
    wait_until("its root is told", || machines.run(&["status"]).stdout.contains(&told));
    let record = machines.run(&["status", "--json"]).stdout;
    assert!(record.contains("\"unaudited\":[[\"h2\","), "{record}");
    assert!(audits(&machines, "lost", 2).0.contains("changes on h2 are in no file of that host"));
    // The session's log has its changes.
    assert_eq!(machines.run(&["mkdir", "h2:/root/new"]).code, Some(0));
    let is_logged = || audits(&machines, "lost", 2).0.contains("mkdir on h2: ");
    wait_until("the change is in the session's log", is_logged);
    assert_eq!(machines.run(&["down"]).code, Some(0));
}
