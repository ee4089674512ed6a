//! Clients on the hosts of a session: what is done at its root is done there, without a
//! configuration.
use crate::machines::{LOGIN, Machines};
use rustix::process::Signal;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{Process, turn, wait_until};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// What is done wrong is known by then.
const TOLD_MAX: Duration = Duration::from_secs(20);

/// Settings of a cluster with which root of each host is a client that may do everything.
pub const CLIENTS: &str = "clients = \"hosts\"\nclients_may = \"write\"\nclients_root = true\n";

/// Hosts below nodes of their own, with a session of this name, and a file `/root/data` each.
pub fn machines(count: usize, tree: &str, session: &str) -> Option<Machines> {
    let machines = Machines::new(count)?;
    let config =
        format!("[cluster.{session}]\nhosts = \"h[1-{count}]\"\ntree = \"{tree}\"\n{CLIENTS}");
    machines.write(LOGIN, "sheaf.toml", &config);
    for host in 1..=count {
        machines.write(host, "data", &format!("equal\nonly h{host}\n"));
    }
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    Some(machines)
}

/// The program, as it was sent to a host.
fn sheaf(machines: &Machines, host: usize) -> String {
    let cache = machines.home(host, ".cache/sheaf/bin");
    let hash = std::fs::read_dir(cache).unwrap().next().unwrap().unwrap().path();
    let file = std::fs::read_dir(&hash).unwrap().next().unwrap().unwrap();
    let hash = hash.file_name().unwrap().to_str().unwrap().to_owned();
    format!("/root/.cache/sheaf/bin/{hash}/{}", file.file_name().to_str().unwrap())
}

pub fn command(machines: &Machines, host: usize, args: &[&str]) -> Command {
    machines.command(host, &sheaf(machines, host), args)
}

pub fn run(machines: &Machines, host: usize, args: &[&str]) -> Run {
    Run::of(command(machines, host, args).output().unwrap())
}

#[test]
fn commands_on_a_member_host_work_as_at_the_root() {
    let _turn = turn();
    let Some(machines) = machines(32, "1x4x8", "gates-all") else { return };
    let said = "sheaf: h7 is in session gates-all: its 32 hosts are meant (h[1-32])\n";
    for args in [
        &["grep", "equal", "/root/data"][..],
        &["grep", "only", "h[3-5]:/root/data"],
        &["cat", "h[9,31]:/root/data"],
        &["ls", "/root/data"],
        &["sha", "/root/data"],
    ] {
        let (there, here) = (machines.run(args), run(&machines, 7, args));
        assert_eq!(here.stdout, there.stdout, "{args:?}: {here:?}");
        assert_eq!((here.code, here.stderr.as_str()), (there.code, said), "{args:?}");
        assert_eq!(there.stderr, "", "{args:?}");
    }
    // Some of its hosts, by `-w`: of its session, without a login.
    let logins = |host| machines.logins(host);
    let before = logins(3);
    for (hosts, meant) in
        [("h[3-5]", "h[3-5]"), ("h4,h3,h5", "h[3-5]"), ("@all!h[1-2,6-32]", "h[3-5]")]
    {
        let run = run(&machines, 7, &["-w", hosts, "grep", "-c", "equal", "/root/data"]);
        let said = format!("sheaf: h7 is in session gates-all: {meant} are meant as hosts of it\n");
        let expected = (Some(0), format!("{meant}:/root/data:1\n"), said);
        assert_eq!((run.code, run.stdout, run.stderr), expected, "{hosts}");
    }
    assert_eq!(logins(3), before);
    // A host that it does not have is none; ssh is there for whoever means it.
    let other = run(&machines, 7, &["-w", "h3,h99,h[40-41]", "cat", "/root/data"]);
    let told = "sheaf: h[40-41,99] are no hosts of session gates-all, which this host is in (h[1-32]); \
                --launch ssh reaches hosts over ssh, outside of it\n";
    assert_eq!((other.code, other.stdout.as_str(), other.stderr.as_str()), (Some(2), "", told));
    let padded = run(&machines, 7, &["-w", "h03", "cat", "/root/data"]);
    assert!(padded.stderr.contains("; did you mean h3?; --launch ssh"), "{padded:?}");
    let ssh = ["--launch", "ssh", "-w", "h3", "grep", "-c", "equal", "/root/data"];
    let ssh = run(&machines, 7, &ssh);
    assert_eq!(
        (ssh.code, ssh.stdout.as_str(), ssh.stderr.as_str()),
        (Some(0), "h3:/root/data:1\n", "")
    );
    assert_eq!(logins(3), before + 1);
    // Something changes, on other hosts.
    machines.write(7, "new", "from h7\n");
    let copied = run(&machines, 7, &["--quiet", "cp", "/root/new", "h[1-32]:/root/copied"]);
    assert_eq!((copied.code, copied.stderr.as_str()), (Some(0), ""), "{copied:?}");
    assert_eq!(
        machines.run(&["grep", "-c", "from h7", "/root/copied"]).stdout,
        "h[1-32]:/root/copied:1\n"
    );
    let status = run(&machines, 7, &["status"]);
    assert!(status.stdout.starts_with("session gates-all: 32 of 32 hosts answer"), "{status:?}");
    // It is ended where it was started.
    let down = run(&machines, 7, &["down", "gates-all"]);
    assert_ne!(down.code, Some(0), "{down:?}");
    assert_eq!(machines.run(&["down"]).code, Some(0));
    wait_until("its servers have ended", || {
        machines.hosts().all(|host| machines.processes(host).is_empty())
    });
    let gone = run(&machines, 7, &["--session", "gates-all", "ls", "/root/data"]);
    assert_eq!(gone.code, Some(3), "{gone:?}");
}

/// `rm @all:` of a caller that missed the session would be one of this host alone, with exit 0.
#[test]
fn caller_of_any_environment_finds_the_session_of_its_host() {
    let _turn = turn();
    let Some(machines) = machines(2, "flat", "gates-env") else { return };
    // The servers' runtime directory is `/run/user`.
    let environments = [
        &["XDG_RUNTIME_DIR=", "TMPDIR="][..],
        &["XDG_RUNTIME_DIR=", "TMPDIR=/var/tmp"],
        &["XDG_RUNTIME_DIR=/run/other", "TMPDIR=/var/tmp"],
    ];
    let rm = |environment: &[&str]| {
        let words = [sheaf(&machines, 1), "rm".to_owned(), "@all:/root/data".to_owned()];
        let words = environment.iter().map(ToString::to_string).chain(words).collect::<Vec<_>>();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Run::of(machines.command(1, "env", &words).output().unwrap())
    };
    for environment in environments {
        let run = rm(environment);
        let said = "sheaf: h1 is in session gates-env: its 2 hosts are meant (h[1-2])\n\
                    removed on h[1-2]: 2 files\n";
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), said), "{environment:?}");
        for host in [1, 2] {
            assert!(!machines.home(host, "data").exists(), "{environment:?}");
            machines.write(host, "data", "again");
        }
    }
    // In another PID namespace of this host nobody knows who listens, and does not guess.
    let program = sheaf(&machines, 1);
    let words = ["--pid", "--fork", &program, "rm", "@all:/root/data"];
    let apart = Run::of(machines.command(1, "unshare", &words).output().unwrap());
    assert_eq!(apart.code, Some(3), "{apart:?}");
    assert!(apart.stderr.contains("in another PID namespace"), "{apart:?}");
    assert!(machines.home(1, "data").exists());
    for process in machines.processes(LOGIN) {
        process.signal(Signal::KILL);
    }
    wait_until("the servers have noticed", || machines.processes(1).is_empty());
    for environment in environments {
        let run = rm(environment);
        assert_eq!(run.code, Some(3), "{environment:?}: {run:?}");
        assert!(machines.home(1, "data").exists());
    }
}

/// The same where the session was started, and where its process was killed.
#[test]
fn caller_of_any_environment_finds_the_session_of_its_head() {
    let _turn = turn();
    let Some(machines) = Machines::new(1) else { return };
    for runtime in ["0", "1000"] {
        let dir = machines.root(LOGIN).join("run/user").join(runtime);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).unwrap();
    }
    machines.write(LOGIN, "data", "mine");
    let run_as = |environment: &[&str], args: &[&str]| {
        let sheaf = machines.dir().join("sheaf");
        let words = [&["-i"], environment, &[sheaf.to_str().unwrap()], args].concat();
        Run::of(machines.command(LOGIN, "env", &words).output().unwrap())
    };
    let callers = [
        &[][..],
        &["TMPDIR=/var/tmp"],
        &["XDG_RUNTIME_DIR=relative"],
        &["XDG_RUNTIME_DIR=/run/user/0"],
        // What `su` keeps.
        &["XDG_RUNTIME_DIR=/run/user/1000"],
        &["XDG_RUNTIME_DIR=/run/user/1000", "TMPDIR=/var/tmp"],
        &["XDG_RUNTIME_DIR=/run/user"],
    ];
    let rm = |environment: &[&str]| run_as(environment, &["rm", "@all:/root/data"]);
    let login = ["HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"];
    // `/tmp` is that of the machine, and not for tests.
    for starter in
        callers.into_iter().filter(|words| !words.is_empty() && words[0] != callers[2][0])
    {
        let starter = [&login[..], starter].concat();
        let up = run_as(&starter, &["-w", "h1", "up", "--session", "gates-head"]);
        assert_eq!(up.code, Some(0), "{up:?}");
        for caller in callers {
            let run = rm(caller);
            assert_eq!(run.code, Some(2), "{starter:?} {caller:?}: {run:?}");
            assert!(run.stderr.contains("gates-head"), "{run:?}");
            // What the refusal says to do works.
            let named =
                run_as(caller, &["--session", "gates-head", "cat", "/proc/sys/kernel/hostname"]);
            assert_eq!(named.stdout, "h1\n", "{starter:?} {caller:?}: {named:?}");
            let status = run_as(caller, &["status"]);
            assert!(status.stdout.starts_with("session gates-head: 1 of 1 "), "{status:?}");
        }
        let down = run_as(callers[starter.len() % callers.len()], &["down", "gates-head"]);
        assert_eq!(down.code, Some(0), "{down:?}");
    }
    let starter = [&login[..], callers[6]].concat();
    let up = run_as(&starter, &["-w", "h1", "up", "--session", "gates-head"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    for process in machines.processes(LOGIN) {
        process.signal(Signal::KILL);
    }
    wait_until("the root has ended", || machines.processes(LOGIN).is_empty());
    for caller in callers {
        let run = rm(caller);
        assert_eq!(run.code, Some(3), "{caller:?}: {run:?}");
    }
    assert!(machines.home(LOGIN, "data").exists());
    // What is forgotten is in nobody's way, wherever it was: nothing says which hosts there are.
    run_as(callers[0], &["status"]);
    assert_eq!(rm(callers[0]).code, Some(2));
    assert_eq!(run_as(callers[0], &["rm", "/root/data"]).code, Some(0));
}

#[test]
fn root_only_commands_on_a_member_host_name_the_root_host() {
    let _turn = turn();
    let Some(machines) = machines(2, "flat", "gates-kept") else { return };
    machines.write(1, "empty.toml", "");
    let kept = "session gates-kept is kept by login, where it was started; ";
    let is = |args: &[&str], code: i32, told: &str| {
        let run = run(&machines, 1, args);
        let expected = (Some(code), "", format!("sheaf: {told}\n"));
        assert_eq!((run.code, run.stdout.as_str(), run.stderr), expected, "{args:?}");
    };
    for command in ["down", "token"] {
        let told = format!("{kept}type there: sheaf {command} gates-kept");
        for args in
            [&[command][..], &[command, "gates-kept"], &[command, "--session", "gates-kept"]]
        {
            is(args, 2, &told);
        }
    }
    // None begins here that would hide it, or be taken for it.
    let named = format!(
        "{kept}type there: sheaf down gates-kept, or name another with --session: one that begins here would hide it"
    );
    is(&["up", "--session", "gates-kept"], 2, &named);
    is(&["up", "--embedded", "1", "--session", "gates-kept"], 2, &named);
    let other = format!(
        "{kept}h1 is in it: say which hosts another is to have with -w HOSTS, or --embedded 1 for this host alone"
    );
    is(&["up"], 2, &other);
    let empty = ["--config", "/root/empty.toml"];
    is(
        &[&empty[..], &["up"]].concat(),
        2,
        &format!("/root/empty.toml has no cluster, and {other}"),
    );
    // A file that says nothing of hosts does not say that this one is meant.
    let cat = run(&machines, 1, &[&empty[..], &["cat", "/root/data"]].concat());
    let told = "sheaf: /root/empty.toml has no cluster, and h1 is in session gates-kept: its 2 hosts are meant \
                (h[1-2])\n";
    assert_eq!((cat.code, cat.stderr.as_str()), (Some(0), told), "{cat:?}");
    // One that says that it is of this host alone begins.
    let own = run(&machines, 1, &["up", "--embedded", "1", "--session", "own"]);
    assert_eq!(own.code, Some(0), "{own:?}");
    assert_eq!(run(&machines, 1, &["down", "own"]).code, Some(0));
    assert_eq!(machines.run(&["down"]).code, Some(0));
    // It is over: nothing is in the way any more.
    let up = run(&machines, 1, &["up", "--session", "gates-kept"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    assert_eq!(run(&machines, 1, &["down", "gates-kept"]).code, Some(0));
}

#[test]
fn host_that_can_have_no_gate_is_known_at_the_root() {
    let _turn = turn();
    let Some(machines) = Machines::new(3) else { return };
    let config = format!("[cluster.gates-shut]\nhosts = \"h[1-3]\"\ntree = \"flat\"\n{CLIENTS}");
    machines.write(LOGIN, "sheaf.toml", &config);
    (1..=3).for_each(|host| machines.write(host, "data", "x\n"));
    // The name of a gate would be too long.
    let up = machines.run(&["up", "--session", &"x".repeat(79)]);
    let told = "its socket on h3 would have a path of 114 bytes, and 107 are the most: give a shorter --session NAME";
    assert!(up.code == Some(3) && up.stderr.contains(told), "{up:?}");
    // What is in the way of one gate of h1 leaves it another; h2 has none.
    for (host, script) in
        [(1, "touch /run/user/sheaf"), (2, "rm -r /run/user; touch /run/user /run/sheaf")]
    {
        assert!(machines.command(host, "sh", &["-c", script]).status().unwrap().success());
    }
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let told = "\n  programs on h2 cannot use it: /run/user/sheaf: ";
    wait_until("its root is told", || machines.run(&["status"]).stdout.contains(told));
    let record = machines.run(&["status", "--json"]).stdout;
    assert!(record.contains("\"shut\":[[\"h2\",\"/run/user/sheaf: "), "{record}");
    let status = run(&machines, 3, &["status"]);
    assert!(status.stdout.contains(told), "{status:?}");
    let program = sheaf(&machines, 1);
    let words = ["-u", "XDG_RUNTIME_DIR", &program, "grep", "-c", "x", "@all:/root/data"];
    let count = Run::of(machines.command(1, "env", &words).output().unwrap());
    assert_eq!((count.code, count.stdout.as_str()), (Some(0), "h[1-3]:/root/data:1\n"));
    // Once nothing is in the way any more, and after something is again.
    let shell = |script: &str| {
        assert!(machines.command(2, "sh", &["-c", script]).status().unwrap().success());
    };
    shell("rm /run/user /run/sheaf");
    wait_until("it has one", || !machines.run(&["status"]).stdout.contains("programs on"));
    let count = run(&machines, 2, &["grep", "-c", "x", "@all:/root/data"]);
    assert_eq!((count.code, count.stdout.as_str()), (Some(0), "h[1-3]:/root/data:1\n"));
    shell("rm -r /run/user /run/sheaf; touch /run/user /run/sheaf");
    wait_until("its root is told", || machines.run(&["status"]).stdout.contains("programs on h2"));
    shell("rm /run/user /run/sheaf");
    wait_until("it has one", || !machines.run(&["status"]).stdout.contains("programs on"));
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

/// What is in the way of one user's gate keeps no other out, and is known at the root.
#[test]
fn gate_of_another_user_that_fails_is_known_at_the_root() {
    let _turn = turn();
    let Some(machines) = Machines::new(2) else { return };
    let config =
        format!("[cluster.gates-barred]\nhosts = \"h[1-2]\"\nusers = \"1001, 1002\"\n{CLIENTS}");
    machines.write(LOGIN, "sheaf.toml", &config);
    let script = "mkdir -m 755 /run/sheaf && touch /run/sheaf/1001";
    assert!(machines.command(2, "sh", &["-c", script]).status().unwrap().success());
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let told = "\n  other users' programs on h2 cannot use it: user 1001: /run/sheaf/1001: ";
    wait_until("its root is told", || machines.run(&["status"]).stdout.contains(told));
    let record = machines.run(&["status", "--json"]).stdout;
    assert!(record.contains("\"shut_to_others\":[[\"h2\",\"user 1001: "), "{record}");
    assert!(!record.contains("\"shut\":"), "{record}");
    let status = run(&machines, 2, &["status"]);
    assert!(status.stdout.contains(told), "{status:?}");
    assert!(!may_enter(&machines, 2, ALICE, "gates-barred"));
    assert!(may_enter(&machines, 2, BOB, "gates-barred"));
    assert!(may_enter(&machines, 1, ALICE, "gates-barred"));
    assert!(machines.command(2, "rm", &["/run/sheaf/1001"]).status().unwrap().success());
    wait_until("she has one", || !machines.run(&["status"]).stdout.contains("programs on h2"));
    assert!(may_enter(&machines, 2, ALICE, "gates-barred"));
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

/// The program where every user may run it.
pub const FOR_ALL: &str = "/run/for-all";

/// Puts the program there.
pub fn install(machines: &Machines, host: usize) {
    let install = ["-m", "755", &sheaf(machines, host), FOR_ALL];
    assert!(machines.command(host, "install", &install).status().unwrap().success());
}

/// What a user of this number, with these groups, comes to with a program on a host.
pub fn run_as(machines: &Machines, host: usize, uid: u32, groups: &str, words: &[&str]) -> Run {
    let (uid, groups) = match groups {
        "" => (uid.to_string(), "--clear-groups".to_owned()),
        groups => (uid.to_string(), format!("--groups={groups}")),
    };
    let user = ["--reuid", &uid, "--regid", &uid, &groups, "--"];
    // Root's home is nobody else's.
    let there = ["env", "HOME=/", "XDG_RUNTIME_DIR=", "sh", "-c", "cd / && exec \"$@\"", "sh"];
    let args: Vec<&str> = user.iter().chain(&there).chain(words).copied().collect();
    Run::of(machines.command(host, "setpriv", &args).output().unwrap())
}

/// Whether that user may connect to any gate of a session there: that takes writing to it.
fn may_enter(machines: &Machines, host: usize, uid: u32, session: &str) -> bool {
    let script = format!(
        "for gate in /run/sheaf/*/{session}@* /run/user/sheaf/{session}@* /tmp/sheaf-*/{session}@*; \
         do test -w \"$gate\" && exit 0; done; exit 1"
    );
    let run = run_as(machines, host, uid, "", &["sh", "-c", &script]);
    run.code == Some(0)
}

#[test]
fn session_of_another_user_cannot_be_entered() {
    let _turn = turn();
    let Some(machines) = machines(4, "1x2x2", "gates-own") else { return };
    install(&machines, 2);
    let nobody = 65_534;
    // The program runs, and finds no session; nor is there a socket to connect to.
    let version = run_as(&machines, 2, nobody, "", &[FOR_ALL, "--version"]);
    assert_eq!(version.code, Some(0), "{version:?}");
    let ls = run_as(&machines, 2, nobody, "", &[FOR_ALL, "--session", "gates-own", "ls", "/"]);
    assert_eq!((ls.code, ls.stdout.as_str()), (Some(3), ""), "{ls:?}");
    assert!(!may_enter(&machines, 2, nobody, "gates-own"));
    assert!(may_enter(&machines, 2, 0, "gates-own"));
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

/// Two users whom a session of root's lets in, with these numbers.
const ALICE: u32 = 1001;
const BOB: u32 = 1002;
const CAROL: u32 = 1003;
/// A group.
const STAFF: u32 = 2001;

/// On each host: a file of each user's that nobody else may read, one of a group, a directory of
/// Bob's, and one where everybody may make files.
const FILES: &str = "
mkdir -p /run/files/bobs && cd /run/files && chmod 755 . && echo secret > bobs/file
for user in 1001 1002; do echo \"of $user\" > $user && chown $user:$user $user && chmod 600 $user; done
chown -R 1002:1002 bobs && chmod 700 bobs
echo staff > staff && chown 0:2001 staff && chmod 640 staff
mkdir open && chmod 1777 open
";

#[test]
fn each_user_acts_as_itself_in_a_session_of_root_s() {
    let _turn = turn();
    let Some(machines) = Machines::new(4) else { return };
    // Root of a host has no part in it: each user is itself.
    let config = "[cluster.gates-users]\nhosts = \"h[1-4]\"\ntree = \"1x2x2\"\n\
                  users = \"1001, 1002\"\nclients = \"hosts\"\nclients_may = \"write\"\n";
    machines.write(LOGIN, "sheaf.toml", config);
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    for host in 1..=4 {
        assert!(machines.command(host, "sh", &["-c", FILES]).status().unwrap().success());
    }
    install(&machines, 2);
    let as_user = |uid: u32, groups: &str, args: &[&str]| {
        let words: Vec<&str> = [FOR_ALL].iter().chain(args).copied().collect();
        run_as(&machines, 2, uid, groups, &words)
    };
    // Each reads its own files on all hosts, and nobody else's.
    for (uid, own, other) in [(ALICE, "1001", "1002"), (BOB, "1002", "1001")] {
        let own = as_user(uid, "", &["grep", "-c", "of", &format!("/run/files/{own}")]);
        assert_eq!(own.stdout, format!("h[1-4]:/run/files/{uid}:1\n"), "{own:?}");
        let other = as_user(uid, "", &["cat", &format!("/run/files/{other}")]);
        assert_eq!(other.stdout, "", "{other:?}");
        assert!(other.stderr.contains("EACCES"), "{other:?}");
    }
    let bobs = |uid| as_user(uid, "", &["grep", "-c", "secret", "/run/files/bobs/*"]);
    assert_eq!(bobs(BOB).stdout, "h[1-4]:/run/files/bobs/file:1\n");
    assert!(bobs(ALICE).stderr.contains("EACCES"), "{:?}", bobs(ALICE));
    for refused in
        [&["ls", "/root"][..], &["du", "/run/files/bobs"], &["stat", "/run/files/bobs/file"]]
    {
        let refused = as_user(ALICE, "", refused);
        assert!(refused.code != Some(0) && refused.stderr.contains("EACCES"), "{refused:?}");
    }
    // Nor is anything of the servers seen through them: they work for her, and have root's rights.
    for own in [
        &["cat", "/proc/self/maps"][..],
        &["ls", "-l", "/proc/self/fd"],
        &["ls", "/proc/thread-self/../../task"],
        &["stat", "/proc/self/root"],
        &["grep", "-r", "a", "/proc/self/"],
    ] {
        let own = as_user(ALICE, "", own);
        assert!(own.stdout.is_empty() && own.stderr.contains("EACCES"), "{own:?}");
    }
    assert_eq!(machines.run(&["cat", "h3:/proc/self/comm"]).code, Some(0));
    // Groups are those that the client has.
    let staff = |groups: &str| as_user(ALICE, groups, &["cat", "/run/files/staff"]).stdout;
    assert!(staff("").is_empty());
    assert!(staff(&STAFF.to_string()).contains("staff"));
    // What is made is the maker's, and what is others' is not changed.
    assert_eq!(
        as_user(ALICE, "", &["cp", "/run/files/1001", "@all:/run/files/open/new"]).code,
        Some(0)
    );
    let stat = machines.run(&["stat", "-c", "%u:%g", "/run/files/open/new"]);
    assert_eq!(
        stat.stdout.lines().last(),
        Some("h[1-4]:/run/files/open/new:1001:1001"),
        "{stat:?}"
    );
    for change in [
        &["chmod", "777", "@all:/run/files/open/new"][..],
        &["rm", "-y", "@all:/run/files/open/new"],
        &["truncate", "-s", "0", "@all:/run/files/1001"],
        &["cp", "/run/files/1002", "@all:/run/files/1001"],
        &["mkdir", "@all:/run/files/bobs/../dir"],
    ] {
        let change = as_user(BOB, "", change);
        assert!(!matches!(change.code, Some(0)), "{change:?}");
    }
    let still = machines.run(&["grep", "-c", "of 1001", "/run/files/1001"]);
    assert_eq!(still.stdout, "h[1-4]:/run/files/1001:1\n", "{still:?}");
    // What is the owner's alone.
    let rtt = as_user(ALICE, "", &["--session", "gates-users", "tree", "bench", "rtt"]);
    assert_ne!(rtt.code, Some(0), "{rtt:?}");
    let down = as_user(ALICE, "", &["down", "gates-users"]);
    assert_ne!(down.code, Some(0), "{down:?}");
    // Whoever is not named is not let in.
    let carol = as_user(CAROL, "", &["--session", "gates-users", "ls", "/"]);
    assert_eq!((carol.code, carol.stdout.as_str()), (Some(3), ""), "{carol:?}");
    assert!(!may_enter(&machines, 2, CAROL, "gates-users"));
    assert!(may_enter(&machines, 2, ALICE, "gates-users"));
    // In a user namespace that has no root (of bwrap, of a rootless container) no gate of root's can be
    // told from a stranger's, and this host alone is not meant.
    let unshare = ["unshare", "--user", "--map-current-user", FOR_ALL];
    if run_as(&machines, 2, ALICE, "", &["unshare", "--user", "true"]).code == Some(0) {
        for (args, code) in
            [(&["cat", "/run/files/1001"][..], 3), (&["rm", "-y", "@all:/run/files/1001"], 3)]
        {
            let run = run_as(&machines, 2, ALICE, "", &[&unshare[..], args].concat());
            assert_eq!((run.code, run.stdout.as_str()), (Some(code), ""), "{args:?}: {run:?}");
        }
    } else {
        println!("this machine lets no user make user namespaces");
    }
    // Root goes on as root, on the same threads.
    let root = machines.run(&["grep", "-c", "secret", "/run/files/bobs/file"]);
    assert_eq!(root.stdout, "h[1-4]:/run/files/bobs/file:1\n", "{root:?}");
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

#[test]
fn user_beyond_its_share_of_a_server_is_refused_in_words() {
    let _turn = turn();
    let Some(machines) = Machines::new(2) else { return };
    let config = "[cluster.gates-shares]\nhosts = \"h[1-2]\"\nusers = \"1001, 1002\"\n\
                  clients = \"hosts\"\nclients_may = \"write\"\n";
    machines.write(LOGIN, "sheaf.toml", config);
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    install(&machines, 2);
    let files = "mkdir -p /run/files && cd /run/files && seq 1 400 | xargs touch && chmod 644 *";
    assert!(machines.command(2, "sh", &["-c", files]).status().unwrap().success());
    // So the user may have 150 of them.
    let limit = "prlimit --nofile=300:300 --pid $(pgrep -o -f 'serve --detached')";
    assert!(machines.command(2, "sh", &["-c", limit]).status().unwrap().success());
    let read = |uid: u32, files: &str| {
        let words = [FOR_ALL, "-w", "h2", "read", "-a", "packed", files];
        run_as(&machines, 2, uid, "", &words)
    };
    let alice = read(ALICE, "/run/files/*");
    let told = "(EMFILE): one user has at most half of the descriptors of its server (ulimit -n)";
    assert!(alice.stderr.contains(told), "{alice:?}");
    for (uid, files) in [(ALICE, "/run/files/1?"), (BOB, "/run/files/1??")] {
        let read = read(uid, files);
        assert_eq!((read.code, read.stderr.contains("EMFILE")), (Some(0), false), "{read:?}");
    }
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

#[test]
fn client_whose_host_is_cut_off_is_told_and_the_session_goes_on() {
    let _turn = turn();
    let Some(machines) = machines(4, "1x2x2", "gates-cut") else { return };
    // It reads as long as somebody writes, which nobody does.
    machines.write(1, "fifo.sh", "mkfifo /root/fifo\n");
    machines.command(1, "sh", &["/root/fifo.sh"]).status().unwrap();
    let mut client = command(&machines, 4, &["--timeout", "60", "grep", "-f", "-", "/root/data"]);
    let mut client = client
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    machines.cut(4);
    let begun = Instant::now();
    use std::io::Write;
    client.stdin.take().unwrap().write_all(b"equal\n").unwrap();
    let run = Run::of(client.wait_with_output().unwrap());
    assert!(begun.elapsed() < TOLD_MAX, "{:?}", begun.elapsed());
    assert_ne!(run.code, Some(0), "{run:?}");
    let left = machines.run(&["grep", "-c", "equal", "/root/data"]);
    assert_eq!(left.stdout, "h[1-3]:/root/data:1\n", "{left:?}");
    machines.mend(4);
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

/// How many streams the nodes have open, all together.
fn streams(machines: &Machines) -> usize {
    let shown = machines.run(&["tree", "show", "--json"]);
    let open = |line: &str| {
        let node: serde_json::Value = serde_json::from_str(line).unwrap();
        node["streams"].as_array().map_or(0, Vec::len)
    };
    shown.stdout.lines().map(open).sum()
}

#[test]
fn clients_and_servers_that_are_killed_leave_nothing_open() {
    let _turn = turn();
    let Some(machines) = machines(4, "1x2x2", "gates-killed") else { return };
    assert_eq!(streams(&machines), 0);
    let (mut most, mut killed) = (0, 0);
    for round in 0..12usize {
        let host = 1 + round % 4;
        let mut client =
            command(&machines, host, &["--quiet", "grep", "-r", "equal", "/usr/share/doc"]);
        let mut client = client.stdout(std::process::Stdio::null()).spawn().unwrap();
        if round % 4 == 0 {
            wait_until("the client has streams", || streams(&machines) > 0);
            most = most.max(streams(&machines));
        } else {
            std::thread::sleep(Duration::from_millis(30 * (round as u64 % 7)));
        }
        let is_client = |process: &&Process| process.arguments().iter().any(|word| word == "-r");
        let processes = machines.processes(host);
        if round % 3 == 2 {
            // Its server, which is started again.
            processes
                .iter()
                .filter(|process| !is_client(process))
                .for_each(|server| server.signal(Signal::KILL));
        } else {
            processes.iter().filter(is_client).for_each(|client| client.signal(Signal::KILL));
        }
        // One or the other may have been done before.
        killed += usize::from(!client.wait().unwrap().success());
    }
    assert!(most > 0 && killed > 6, "{killed} of 12 were killed");
    wait_until("no stream is left", || streams(&machines) == 0);
    wait_until("all hosts are back", || {
        machines.run(&["grep", "-c", "equal", "/root/data"]).stdout == "h[1-4]:/root/data:1\n"
    });
    // Also those who come to servers that were started again.
    for host in 1..=4 {
        let here = run(&machines, host, &["grep", "-c", "equal", "/root/data"]);
        assert_eq!(here.stdout, "h[1-4]:/root/data:1\n", "{here:?}");
    }
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

/// The gate of a session on the host whose home this is, and its path.
pub fn gate(home: &Home, session: &str) -> (UnixListener, PathBuf) {
    let directory = home.runtime_dir().join("sheaf");
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&directory).unwrap();
    let path = directory.join(format!("{session}@h1.gate"));
    (UnixListener::bind(&path).unwrap(), path)
}

#[test]
fn server_that_lets_nobody_in_is_told_and_nothing_is_done_here() {
    let home = Home::new();
    let (listener, _) = gate(&home, "z");
    // What a running session cannot heed is told before it is asked.
    for (option, value) in [("--export", "/"), ("--launch", "ssh"), ("--tree", "flat")] {
        let run = home.run(&[option, value, "cat", "/etc/hostname"]);
        let told = format!(
            "sheaf: this host is in session z, which runs, and {option} holds for sessions that are started: add -w \
             HOSTS --launch ssh, or --embedded 1 for this host alone, for a tree of its own\n"
        );
        assert_eq!((run.code, run.stdout.as_str(), run.stderr), (Some(2), "", told));
    }
    let pid = std::process::id();
    let told = format!(
        "session z: its server on this host, process {pid}, has brought no answer within 5 s: it or the session's \
         root hangs, or has too much to do\n"
    );
    let status = home.run(&["status"]);
    assert_eq!((status.code, status.stdout), (Some(3), told.clone()));
    let cat = home.run(&["cat", "/etc/hostname"]);
    assert_eq!(
        (cat.code, cat.stdout.as_str(), cat.stderr),
        (Some(3), "", format!("sheaf: {told}"))
    );
    let hang_up = std::thread::spawn(move || while listener.accept().unwrap().1.is_unnamed() {});
    let cat = home.run(&["cat", "/etc/hostname"]);
    let told = format!(
        "sheaf: session z: its server on this host, process {pid}, has hung up: it ends, or there are \
         too many clients (at most 256) or too few descriptors, there or at the session's root\n"
    );
    assert_eq!((cat.code, cat.stdout.as_str(), cat.stderr), (Some(3), "", told));
    drop(hang_up);
}
