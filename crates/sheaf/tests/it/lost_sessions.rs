//! Sessions that are lost, killed or named twice: none is taken for another one, nor a host for a machine of its own.
use crate::gates::{CLIENTS, gate, machines, run};
use crate::machines::{LOGIN, Machines};
use rustix::process::Signal;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{Process, turn, wait_until};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// How many gates, or words of gates, a host has.
fn count(machines: &Machines, host: usize, extension: &str) -> usize {
    let all = std::fs::read_dir(machines.root(host).join("run/user/sheaf")).unwrap();
    let all = all.map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|have| have == extension)).count()
}

#[test]
fn host_whose_server_is_gone_is_no_machine_of_its_own() {
    let home = Home::new();
    let file = home.write("file", "kept\n");
    let file = file.to_str().unwrap();
    let (listener, path) = gate(&home, "z");
    drop(listener);
    let told = format!(
        "this host is in session z, whose server here is gone: remove {} if that session is over, or reach \
         hosts outside of it with -w HOSTS --launch ssh\n",
        path.display()
    );
    for args in [
        &["cat", file][..],
        &["rm", file],
        &["cp", file, "@all:/tmp/new"],
        &["--export", "/", "cat", file],
        &["--launch", "ssh", "cat", file],
        // These would be reached over ssh, and it would be all files that they have.
        &["-w", "h2", "cat", file],
        &["-w", "h2", "write", "--create", "--data", "x", "h2:/x"],
    ] {
        let run = home.run(args);
        let expected = (Some(3), "", format!("sheaf: {told}"));
        assert_eq!((run.code, run.stdout.as_str(), run.stderr), expected, "{args:?}");
    }
    let status = home.run(&["status"]);
    assert_eq!((status.code, status.stdout), (Some(3), told));
    // So would these, and not by what is said of the session.
    for (option, value) in [("--tree", "flat"), ("--user", "root"), ("--inner-hosts", "h3")] {
        let run = home.run(&["-w", "h2", option, value, "cat", file]);
        let told =
            format!("sheaf: this host is in session z, and {option} is for hosts outside of it, ");
        assert!(run.code == Some(2) && run.stderr.starts_with(&told), "{run:?}");
    }
    // What says what is meant is done.
    let config = "[cluster.own]\nhosts = \"n[1-2]\"\nlaunch = \"embedded\"\n";
    home.write("own.toml", config);
    for args in [&["--embedded", "1"][..], &["--processes", "1"], &["--config", "own.toml"]] {
        let run = home.run(&[args, &["cat", file]].concat());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}");
    }
    std::fs::remove_file(path).unwrap();
    assert_eq!(home.run(&["rm", file]).code, Some(0));
}

/// A server that has lost its session takes its socket away and leaves a word.
#[test]
fn host_that_has_lost_its_session_is_no_machine_of_its_own() {
    let home = Home::new();
    let file = home.write("file", "kept\n");
    let file = file.to_str().unwrap();
    let directory = home.runtime_dir().join("sheaf");
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&directory).unwrap();
    let word = directory.join("z@h1.lost");
    let lost = std::fs::File::create(&word).unwrap();
    lost.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_772_359_200)).unwrap();
    let told = format!(
        "this host was in session z, whose server here has lost its root at 2026-03-01T10:00:00Z: remove {} \
         if that session is over, or reach hosts outside of it with -w HOSTS --launch ssh\n",
        word.display()
    );
    for args in [
        &["cat", file][..],
        &["rm", &format!("@all:{file}")],
        &["cp", file, ":/tmp/new"],
        &["-w", "h2", "rm", "h2:/x"],
    ] {
        let run = home.run(args);
        let expected = (Some(3), "", format!("sheaf: {told}"));
        assert_eq!((run.code, run.stdout.as_str(), run.stderr), expected, "{args:?}");
    }
    let status = home.run(&["status"]);
    assert_eq!((status.code, status.stdout), (Some(3), told));
    let own = home.run(&["--embedded", "1", "cat", file]);
    assert_eq!((own.code, own.stderr.as_str()), (Some(0), ""), "{own:?}");
    // A server of that session that is there again, or `sheaf clean`, removes the word.
    assert_eq!(home.run(&["clean"]).code, Some(0));
    assert!(!word.exists());
    assert_eq!(home.run(&["rm", file]).code, Some(0));
}

#[test]
fn server_whose_root_was_killed_leaves_word_of_its_session() {
    let _turn = turn();
    let Some(machines) = machines(2, "flat", "gates-lost") else { return };
    let data = run(&machines, 1, &["cat", "h2:/root/data"]);
    assert_eq!(data.code, Some(0), "{data:?}");
    machines.processes(LOGIN).iter().for_each(|root| root.signal(Signal::KILL));
    wait_until("the servers have ended", || {
        machines.hosts().all(|host| host == LOGIN || machines.processes(host).is_empty())
    });
    for args in [&["cat", "/root/data"][..], &["rm", "@all:/root/data"]] {
        let lost = run(&machines, 1, args);
        let told =
            "sheaf: this host was in session gates-lost, whose server here has lost its root at ";
        assert!(lost.code == Some(3) && lost.stderr.starts_with(told), "{args:?}: {lost:?}");
    }
    // Nor is it where a file has a cluster of that name.
    let cluster = "[cluster.gates-lost]\nhosts = \"n[1-2]\"\nlaunch = \"embedded\"\n";
    machines.write(1, "own.toml", cluster);
    for args in [&["cat", "@all:/root/data"][..], &["-C", "gates-lost", "rm", "@all:/root/data"]] {
        let lost = run(&machines, 1, &[&["--config", "own.toml"], args].concat());
        assert!(lost.code == Some(3) && lost.stderr.contains("has lost its root"), "{lost:?}");
    }
    // The session is there again.
    assert_eq!(machines.run(&["up"]).code, Some(0));
    let again = run(&machines, 1, &["cat", "h2:/root/data"]);
    assert_eq!((again.code, again.stdout), (Some(0), data.stdout), "{}", again.stderr);
    // What ends as it should leaves none.
    assert_eq!(machines.run(&["down"]).code, Some(0));
    wait_until("the servers have ended", || {
        machines.hosts().all(|host| host == LOGIN || machines.processes(host).is_empty())
    });
    assert_eq!(run(&machines, 1, &["cat", "/root/data"]).code, Some(0));
}

/// Of two sessions that a host is in one is lost: the other is not taken for it.
#[test]
fn lost_session_is_not_taken_for_another_of_its_host() {
    let _turn = turn();
    let Some(machines) = machines(2, "flat", "gates-first") else { return };
    let config = format!("[cluster.gates-second]\nhosts = \"h[1-2]\"\n{CLIENTS}");
    machines.write(LOGIN, "second.toml", &config);
    let second = ["--config", "second.toml"];
    let up = machines.run(&[&second[..], &["up"]].concat());
    assert_eq!(up.code, Some(0), "{up:?}");
    let make = ["write", "--create", "--data", "x", "@all:/root/new"];
    let (code, told) = (Some(2), "this host is in several sessions: gates-first, gates-second");
    let several = run(&machines, 1, &make);
    assert!(several.code == code && several.stderr.contains(told), "{several:?}");
    let first = machines.processes(LOGIN);
    let is_first =
        |process: &&Process| !process.arguments().iter().any(|word| word == "second.toml");
    first.iter().filter(is_first).for_each(|root| root.signal(Signal::KILL));
    // Its word is there before its gate goes: in between the host is in several still.
    wait_until("the first is lost", || {
        count(&machines, 1, "lost") == 1
            && run(&machines, 1, &["cat", "@all:/root/data"]).code != Some(2)
    });
    for args in [&make[..], &["-w", "h[1-2]", "cat", "@all:/root/data"]] {
        let lost = run(&machines, 1, args);
        let told = "this host is in gates-second as well: say which with --session";
        assert!(lost.code == Some(3) && lost.stderr.contains(told), "{args:?}: {lost:?}");
    }
    let named = run(&machines, 1, &[&["--session", "gates-second"], &make[..]].concat());
    assert_eq!(named.code, Some(0), "{named:?}");
    assert_eq!(machines.run(&["down", "gates-second"]).code, Some(0));
}

/// Two sessions of one name, of environments of one user: none is taken for the other.
#[test]
fn sessions_of_one_name_are_not_taken_for_each_other() {
    let _turn = turn();
    let Some(machines) = Machines::new(1) else { return };
    let name = "gates-one-name";
    let program = machines.dir().join("sheaf");
    let other = |args: &[&str]| {
        let words = [&["-u", "XDG_RUNTIME_DIR", program.to_str().unwrap()], args].concat();
        Run::of(machines.command(LOGIN, "env", &words).output().unwrap())
    };
    let up = ["--embedded", "2", "up", "--session", name];
    let make = ["--session", name, "write", "--create", "--data", "x", "@all:/root/new"];
    assert_eq!(machines.run(&up).code, Some(0));
    // One that begins elsewhere would be meant by the same words.
    let second = other(&up);
    assert!(second.code == Some(2) && second.stderr.contains("runs already, in "), "{second:?}");
    assert_eq!(other(&make).code, Some(0));
    std::fs::remove_file(machines.home(LOGIN, "new")).unwrap();
    // What was killed is not forgotten by who looks for it from elsewhere.
    machines.processes(LOGIN).iter().for_each(|root| root.signal(Signal::KILL));
    wait_until("it has ended", || machines.processes(LOGIN).is_empty());
    // Its last thread closes its socket.
    wait_until("nobody listens", || {
        !other(&["--session", name, "cat", "/root/data"]).stderr.contains("is ending")
    });
    for run in [machines.run(&make), other(&make)] {
        assert!(run.code == Some(3) && run.stderr.contains("has ended without"), "{run:?}");
    }
    // Who starts one means that.
    assert_eq!(other(&up).code, Some(0));
    assert_eq!(machines.run(&make).code, Some(0));
    assert_eq!(other(&["down", name]).code, Some(0));
    let over = machines.run(&make);
    assert_eq!(over.code, Some(3), "{over:?}");
    // Of two that begin at the same moment one stays, or none.
    for _ in 0..6 {
        let ends = std::thread::scope(|scope| {
            let second = scope.spawn(|| other(&up));
            [machines.run(&up), second.join().unwrap()]
        });
        let begun = ends.iter().filter(|end| end.code == Some(0)).count();
        assert!(begun <= 1, "{ends:?}");
        wait_until("those that are refused have ended", || {
            machines.processes(LOGIN).len() == begun
        });
        if begun == 1 {
            assert_eq!(machines.run(&["down", name]).code, Some(0));
        }
    }
}

/// Two machines that keep sessions of one name, which share a host.
struct Keepers {
    machines: Machines,
    name: &'static str,
}

/// The machines that keep the two sessions; the host they share is the first.
const KEEPERS: [usize; 2] = [LOGIN, 2];

impl Keepers {
    fn new(name: &'static str) -> Option<Self> {
        let machines = Machines::new(2)?;
        let config = format!("[cluster.{name}]\nhosts = \"h1\"\n{CLIENTS}");
        KEEPERS.iter().for_each(|keeper| machines.write(*keeper, "sheaf.toml", &config));
        machines.write(1, "data", "x");
        Some(Keepers { machines, name })
    }

    fn at(&self, machine: usize, args: &[&str]) -> Run {
        let program = self.machines.dir().join("sheaf");
        Run::of(self.machines.command(machine, program.to_str().unwrap(), args).output().unwrap())
    }

    fn begin(&self, keeper: usize) {
        let up = self.at(keeper, &["up"]);
        assert_eq!(up.code, Some(0), "{up:?}");
    }

    fn end(&self, keeper: usize) {
        let down = self.at(keeper, &["down"]);
        assert_eq!(down.code, Some(0), "{down:?}");
    }

    fn kill(&self, keeper: usize) {
        self.machines.processes(keeper).iter().for_each(|root| root.signal(Signal::KILL));
        wait_until("the root has ended", || self.machines.processes(keeper).is_empty());
    }

    /// Waits until the shared host has so many gates, and words of lost sessions.
    fn wait_for(&self, gates: usize, lost: usize) {
        let files = |extension| count(&self.machines, 1, extension);
        wait_until("the gates are as they should be", || {
            (files("gate"), files("lost")) == (gates, lost)
        });
    }

    /// Whether a command of the shared host that changes it made something.
    fn has_changed(&self) -> bool {
        self.machines.home(1, "new").exists()
    }

    /// Each command of the shared host ends with `code` and does nothing.
    fn assert_refused(&self, code: i32, told: &str) {
        for args in [&CHANGE[..], &["cat", "/root/data"]] {
            for args in [args.to_vec(), [&["--session", self.name], args].concat()] {
                let run = self.at(1, &args);
                assert!(run.code == Some(code) && run.stderr.contains(told), "{args:?}: {run:?}");
            }
        }
        assert!(!self.has_changed());
        let status = self.at(1, &["status"]);
        assert!(status.code == Some(code) && status.stdout.contains(told), "{status:?}");
    }
}

const CHANGE: [&str; 5] = ["write", "--create", "--data", "x", "@all:/root/new"];

/// Neither takes the other's gate, nor its word.
#[test]
fn sessions_of_two_keepers_are_not_taken_for_each_other() {
    let _turn = turn();
    let Some(keepers) = Keepers::new("gates-keepers") else { return };
    KEEPERS.iter().for_each(|keeper| keepers.begin(*keeper));
    keepers.wait_for(2, 0);
    keepers.assert_refused(
        2,
        "this host is in two sessions gates-keepers, which different machines or users keep (",
    );
    // Each commands its own hosts all the same.
    for keeper in KEEPERS {
        let own = keepers.at(keeper, &["--session", keepers.name, "cat", "@all:/root/data"]);
        assert_eq!(own.code, Some(0), "{own:?}");
    }
    let another = "if that session is over, or reach hosts outside of it with -w HOSTS --launch ssh; this host is in \
                   another session gates-keepers as well";
    keepers.kill(2);
    keepers.wait_for(1, 1);
    keepers.assert_refused(3, another);
    // One that is there again takes its own word away, and leaves none when it ends as it should.
    keepers.begin(2);
    keepers.wait_for(2, 0);
    keepers.end(2);
    keepers.wait_for(1, 0);
    assert_eq!(keepers.at(1, &CHANGE).code, Some(0));
    std::fs::remove_file(keepers.machines.home(1, "new")).unwrap();
    // One that begins after another is lost leaves that one's word alone.
    keepers.kill(LOGIN);
    keepers.wait_for(0, 1);
    keepers.begin(2);
    keepers.wait_for(1, 1);
    keepers.assert_refused(3, another);
    keepers.end(2);
}

/// A session of the host's own is not taken for another machine's of its name, also where that one is lost.
#[test]
fn own_session_is_not_taken_for_one_of_another_machine() {
    let _turn = turn();
    let Some(keepers) = Keepers::new("gates-own") else { return };
    let up = keepers.at(1, &["--embedded", "2", "up", "--session", keepers.name]);
    assert_eq!(up.code, Some(0), "{up:?}");
    keepers.begin(LOGIN);
    keepers.wait_for(1, 0);
    let named = || keepers.at(1, &[&["--session", keepers.name], &CHANGE[..]].concat());
    let run = named();
    let told = "its own, and one of another machine or user (";
    assert!(run.code == Some(2) && run.stderr.contains(told), "{run:?}");
    keepers.kill(LOGIN);
    keepers.wait_for(0, 1);
    let run = named();
    assert!(run.code == Some(3) && run.stderr.contains("has lost its root"), "{run:?}");
    assert!(!keepers.has_changed());
    assert_eq!(keepers.at(1, &["down", keepers.name]).code, Some(0));
}

/// A command by a cluster is its session's, which may have other hosts than the file: from any environment, and also after the
/// session was killed.
#[test]
fn session_of_a_cluster_is_not_taken_for_all_hosts_of_the_file() {
    let _turn = turn();
    let Some(machines) = Machines::new(1) else { return };
    machines.write(
        LOGIN,
        "sheaf.toml",
        "[cluster.kept]\nhosts = \"n[1-3]\"\nlaunch = \"embedded\"\n",
    );
    machines.write(LOGIN, "data", "x\n");
    let program = machines.dir().join("sheaf");
    let other = |args: &[&str]| {
        let words = [&["-u", "XDG_RUNTIME_DIR", program.to_str().unwrap()], args].concat();
        Run::of(machines.command(LOGIN, "env", &words).output().unwrap())
    };
    let up = machines.run(&["up", "-w", "n1"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let count = ["grep", "-c", "x", "@all:/root/data"];
    for run in [machines.run(&count), other(&count)] {
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), "n1:/root/data:1\n"), "{run:?}");
    }
    // Options of a tree do not make it another set of hosts.
    let trees: [&[&str]; 6] = [
        &["--tree", "flat"],
        &["--link", "tcp"],
        &["--inner-hosts", "n2"],
        &["--export", "/"],
        &["--launch", "embedded"],
        &["-l", "root"],
    ];
    for tree in trees {
        for run in [machines.run(&[tree, &count].concat()), other(&[tree, &count].concat())] {
            let option = if tree[0] == "-l" { "--user" } else { tree[0] };
            let told = format!("session kept runs, and {option}");
            assert!(run.code == Some(2) && run.stderr.contains(&told), "{tree:?}: {run:?}");
        }
    }
    machines.processes(LOGIN).iter().for_each(|root| root.signal(Signal::KILL));
    // Its last thread closes its socket.
    wait_until("it has ended", || machines.run(&count).stderr.contains("has ended without"));
    for run in [
        machines.run(&count),
        other(&count),
        machines.run(&["-C", "kept", "rm", "@all:/root/data"]),
        machines.run(&["--tree", "flat", "rm", "@all:/root/data"]),
        other(&["-C", "kept", "--launch", "embedded", "rm", "@all:/root/data"]),
    ] {
        assert!(run.code == Some(3) && run.stderr.contains("has ended without"), "{run:?}");
    }
    // Who says a tree of its own means that.
    let own = machines.run(&["--embedded", "1", "grep", "-c", "x", "/root/data"]);
    assert_eq!((own.code, own.stderr.as_str()), (Some(0), ""), "{own:?}");
    machines.run(&["status"]);
    for run in [machines.run(&count), other(&count)] {
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), "n[1-3]:/root/data:1\n"), "{run:?}");
    }
}

/// The runtime directory of a user goes with the last login, and something may remove the socket alone.
#[test]
fn session_whose_socket_is_removed_is_found_again() {
    let _turn = turn();
    let home = Home::new();
    home.write("sheaf.toml", "[cluster.moved]\nhosts = \"n[1-3]\"\nlaunch = \"embedded\"\n");
    let data = home.write("data", "x\n");
    let up = home.run(&["up", "-w", "n1"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let place = home.runtime_dir().join("sheaf");
    let socket = place.join("moved.sock");
    let counts = || {
        wait_until("it listens again", || home.run(&["status"]).code == Some(0));
        for session in [&["--session", "moved"][..], &[]] {
            let run = home.run(&[session, &["grep", "-c", "x", data.to_str().unwrap()]].concat());
            let expected = format!("n1:{}:1\n", data.display());
            assert_eq!((run.code, run.stdout), (Some(0), expected), "{}", run.stderr);
        }
        let again = home.run(&["up"]);
        assert!(again.code == Some(2) && again.stderr.contains("runs already"), "{again:?}");
    };
    let remove = || {
        let away = home.path().join("away");
        std::fs::rename(&place, &away).unwrap();
        std::fs::remove_dir_all(&away).unwrap();
    };
    for _ in 0..2 {
        std::fs::remove_file(&socket).unwrap();
        counts();
        remove();
        counts();
        assert!(socket.exists());
    }
    // Where there is no place for it any more it goes where callers look as well, and stays there.
    remove();
    while std::fs::write(&place, "").is_err() {
        remove();
    }
    let moved = || {
        let entries = std::fs::read_dir(home.runtime_dir()).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().join("moved.sock")).find(|socket| socket.exists())
    };
    wait_until("it listens elsewhere", || moved().is_some());
    std::fs::remove_file(&place).unwrap();
    counts();
    assert_eq!(home.run(&["down"]).code, Some(0));
    assert_eq!(moved(), None);
}

/// A user's runtime directory goes with the last login on a host as well.
#[test]
fn gate_whose_file_is_removed_is_made_again() {
    let _turn = turn();
    let Some(machines) = machines(2, "flat", "gates-again") else { return };
    let place = machines.root(1).join("run/user/sheaf");
    let all = ["cat", "@all:/root/data"];
    let gates = || {
        let entries = std::fs::read_dir(&place).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|kind| kind == "gate")).count()
    };
    for _ in 0..2 {
        assert_eq!(run(&machines, 1, &all).code, Some(0));
        std::fs::remove_dir_all(&place).unwrap();
        wait_until("there is a gate again", || gates() == 1);
    }
    // One of a later server is left alone, and the word goes with the gate.
    machines.processes(LOGIN).iter().for_each(|root| root.signal(Signal::KILL));
    wait_until("the host has lost its session", || {
        (count(&machines, 1, "lost"), gates()) == (1, 0)
    });
    assert_eq!(run(&machines, 1, &all).code, Some(3));
}

/// A directory that was moved, or under another mount, comes back with the socket that was there.
#[test]
fn session_whose_directory_comes_back_answers_there() {
    let _turn = turn();
    let home = Home::new();
    home.write("sheaf.toml", "[cluster.back]\nhosts = \"n1\"\nlaunch = \"embedded\"\n");
    let data = home.write("data", "x\n");
    assert_eq!(home.run(&["up"]).code, Some(0));
    let place = home.runtime_dir().join("sheaf");
    let away = home.path().join("away");
    let elsewhere = || {
        let entries = std::fs::read_dir(home.runtime_dir()).unwrap().flatten();
        let mut sockets = entries.map(|entry| entry.path().join("back.sock"));
        sockets.find(|socket| !socket.starts_with(&place) && socket.exists())
    };
    let answers = || {
        for session in [&["--session", "back"][..], &[]] {
            let run = home.run(&[session, &["grep", "-c", "x", data.to_str().unwrap()]].concat());
            let expected = format!("n1:{}:1\n", data.display());
            assert_eq!((run.code, run.stdout), (Some(0), expected), "{}", run.stderr);
        }
    };
    for _ in 0..2 {
        std::fs::rename(&place, &away).unwrap();
        while std::fs::write(&place, "").is_err() {
            // It has made another one there.
            std::fs::remove_dir_all(&place).unwrap();
        }
        wait_until("it listens elsewhere", || elsewhere().is_some());
        std::fs::remove_file(&place).unwrap();
        std::fs::rename(&away, &place).unwrap();
        answers();
        // It is one session, though it has two sockets.
        let file = format!("@all:{}", data.display());
        home.write("none.toml", "");
        let run = home.run(&["--config", "none.toml", "cat", &file]);
        assert!(run.code == Some(2) && run.stderr.contains("are running (back): "), "{run:?}");
        // Without the other one as well.
        std::fs::remove_dir_all(elsewhere().unwrap().parent().unwrap()).unwrap();
        answers();
    }
    assert_eq!(home.run(&["down"]).code, Some(0));
    assert!(!place.join("back.sock").exists() && elsewhere().is_none());
}

/// Gates that are made anew meanwhile go when it does.
#[test]
fn gate_whose_directory_comes_back_lets_clients_in() {
    let _turn = turn();
    let Some(machines) = machines(2, "flat", "gates-back") else { return };
    let user = machines.root(1).join("run/user");
    let (place, away) = (user.join("sheaf"), user.join("away"));
    let all = ["cat", "@all:/root/data"];
    let gate = || {
        let entries = std::fs::read_dir(&place).into_iter().flatten().flatten();
        let mut paths = entries.map(|entry| entry.path());
        paths.find(|path| path.extension().is_some_and(|kind| kind == "gate"))
    };
    for _ in 0..2 {
        std::fs::rename(&place, &away).unwrap();
        wait_until("there is a gate again", || gate().is_some());
        std::fs::rename(&place, user.join("new")).unwrap();
        std::fs::rename(&away, &place).unwrap();
        std::fs::remove_dir_all(user.join("new")).unwrap();
        wait_until("clients are let in", || run(&machines, 1, &all).code == Some(0));
    }
    // One at which nobody listens does not stay in the way.
    let gate = gate().unwrap();
    std::fs::remove_file(&gate).unwrap();
    while std::os::unix::net::UnixListener::bind(&gate).is_err() {
        let _ = std::fs::remove_file(&gate);
    }
    wait_until("clients are let in", || run(&machines, 1, &all).code == Some(0));
}

/// Its directory is removed while it cannot listen again: it runs all the same.
#[test]
fn session_that_cannot_listen_again_is_not_taken_for_none() {
    let _turn = turn();
    let Some(machines) = machines(1, "flat", "gates-still") else { return };
    machines.write(LOGIN, "data", "x\n");
    // What cleans directories for temporary files may have removed its words before.
    let words = machines.root(LOGIN).join("run/sheaf/root");
    std::fs::remove_dir_all(&words).unwrap();
    wait_until("it has left words again", || words.join("gates-still.0.place").is_symlink());
    let root = machines.processes(LOGIN);
    root.iter().for_each(|root| root.signal(Signal::STOP));
    std::fs::remove_dir_all(machines.root(LOGIN).join("run/user/sheaf")).unwrap();
    let program = machines.dir().join("sheaf");
    let words = ["-u", "XDG_RUNTIME_DIR", program.to_str().unwrap(), "cat", "@all:/root/data"];
    let cron = || Run::of(machines.command(LOGIN, "env", &words).output().unwrap());
    for run in [machines.run(&["cat", "@all:/root/data"]), cron()] {
        let told = "session gates-still runs, and its socket was removed";
        assert!(run.code == Some(3) && run.stderr.contains(told), "{run:?}");
    }
    let status = machines.run(&["status"]);
    let told = "session gates-still runs, and its socket was removed";
    assert!(status.code == Some(3) && status.stdout.starts_with(told), "{status:?}");
    let up = machines.run(&["up"]);
    assert!(up.code == Some(2) && up.stderr.contains("runs already"), "{up:?}");
    let down = machines.run(&["down", "--all"]);
    assert!(down.code == Some(4) && down.stderr.contains("gates-still was not ended"), "{down:?}");
    root.iter().for_each(|root| root.signal(Signal::CONT));
    wait_until("it listens again", || machines.run(&["status"]).code == Some(0));
    assert_eq!(cron().code, Some(0));
    // Killed without its directory it is told of.
    root.iter().for_each(|root| root.signal(Signal::STOP));
    std::fs::remove_dir_all(machines.root(LOGIN).join("run/user/sheaf")).unwrap();
    root.iter().for_each(|root| root.signal(Signal::KILL));
    wait_until("it has ended", || {
        machines.run(&["cat", "@all:/root/data"]).stderr.contains("has ended without")
    });
    assert_eq!(cron().code, Some(3));
    machines.run(&["status"]);
    assert_eq!(machines.run(&["up"]).code, Some(0));
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

/// Puts a file in the place of this directory for a time.
fn file_in_the_way(directory: &Path) {
    std::fs::remove_dir_all(directory).unwrap();
    while std::fs::write(directory, "").is_err() {
        let _ = std::fs::remove_dir_all(directory);
    }
    std::thread::sleep(Duration::from_millis(1500));
    std::fs::remove_file(directory).unwrap();
}

/// Empties this directory, to which all may write for a time.
fn open_to_all(directory: &Path) {
    let mode = |mode| std::fs::set_permissions(directory, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o777);
    for word in std::fs::read_dir(directory).unwrap().flatten() {
        std::fs::remove_file(word.path()).unwrap();
    }
    std::thread::sleep(Duration::from_millis(1500));
    mode(0o700);
}

/// It is found from elsewhere by its words, which something may remove.
#[test]
fn session_elsewhere_is_found_though_its_words_are_removed() {
    let _turn = turn();
    let Some(machines) = Machines::new(2) else { return };
    let config = "[cluster.words]\nhosts = \"h[1-2]\"\ntree = \"flat\"\n";
    machines.write(LOGIN, "sheaf.toml", config);
    (1..=2).for_each(|host| machines.write(host, "data", "x\n"));
    let program = machines.dir().join("sheaf");
    std::fs::create_dir(machines.home(LOGIN, "t")).unwrap();
    let elsewhere = |args: &[&str]| {
        let words = ["-u", "XDG_RUNTIME_DIR", "TMPDIR=/root/t", program.to_str().unwrap()];
        let words = [&words[..], args].concat();
        Run::of(machines.command(LOGIN, "env", &words).output().unwrap())
    };
    let up = elsewhere(&["up", "-w", "h1"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let words = machines.root(LOGIN).join("run/sheaf/root");
    let [place, held] = ["place", "held"].map(|kind| words.join(format!("words.0.{kind}")));
    let count = || machines.run(&["grep", "-c", "x", "@all:/root/data"]);
    let found = || {
        let count = count();
        assert_eq!(count.stdout, "h1:/root/data:1\n", "{count:?}");
    };
    found();
    let root = machines.processes(LOGIN);
    root.iter().for_each(|root| root.signal(Signal::STOP));
    for other in [None, Some("/dev/null")] {
        std::fs::remove_file(&place).unwrap();
        let _ = other.map(|other| std::os::unix::fs::symlink(other, &place));
        let lost = count();
        assert!(lost.code == Some(3) && lost.stderr.contains("session words runs"), "{lost:?}");
        if other.is_none() {
            std::os::unix::fs::symlink("/none", &place).unwrap();
        }
    }
    root.iter().for_each(|root| root.signal(Signal::CONT));
    let leads = || std::fs::read_link(&place).is_ok_and(|to| to.ends_with("words.sock"));
    wait_until("the word is there again", leads);
    found();
    std::fs::remove_dir_all(&words).unwrap();
    wait_until("both are there again", || place.is_symlink() && held.exists());
    found();
    // What was in the way for a time is tried again.
    file_in_the_way(&words);
    wait_until("both are there once more", || place.is_symlink() && held.exists());
    found();
    // So is a directory that others could write to.
    open_to_all(&words);
    wait_until("both are there after the mode", || place.is_symlink() && held.exists());
    found();
    // While it is not known what is there, nobody says that nothing runs.
    let moved = words.with_file_name("moved");
    std::fs::rename(&words, &moved).unwrap();
    std::os::unix::fs::symlink("moved", &words).unwrap();
    let status = machines.run(&["status"]);
    assert!(status.code != Some(0) && status.stderr.contains("and is none"), "{status:?}");
    std::fs::remove_file(&words).unwrap();
    std::fs::rename(&moved, &words).unwrap();
    wait_until("both are there after the link", || place.is_symlink() && held.exists());
    // Something else in the place of the lock leaves them other names.
    std::fs::remove_file(&held).unwrap();
    std::fs::create_dir(&held).unwrap();
    let [place, held] = ["place", "held"].map(|kind| words.join(format!("words.1.{kind}")));
    wait_until("they have another number", || place.is_symlink() && held.exists());
    found();
    // With several places a bad name is a bad name.
    for name in ["a/b", &"x".repeat(251)] {
        let bad = machines.run(&["--session", name, "cat", "/root/data"]);
        assert!(bad.stderr.contains("cannot be the name of a session"), "{bad:?}");
    }
    // The end leaves nothing, also without the lock.
    root.iter().for_each(|root| root.signal(Signal::STOP));
    std::fs::remove_file(&held).unwrap();
    root.iter().for_each(|root| root.signal(Signal::CONT));
    let down = machines.run(&["down", "words"]);
    assert_eq!(down.code, Some(0), "{down:?}");
    wait_until("no word is left", || !place.is_symlink() && !held.exists());
    assert_eq!(count().stdout, "h[1-2]:/root/data:1\n");
}

/// Half of the time is for those that answer, also where all are to say first what they have.
#[test]
fn silent_host_keeps_no_copy_from_the_others() {
    let _turn = turn();
    let Some(machines) = machines(3, "flat", "gates-silent") else { return };
    machines.processes(3).iter().for_each(|server| server.signal(Signal::STOP));
    let copied = machines.run(&["--timeout", "6", "cp", "h[1-3]:/root/data", "/root/got/"]);
    assert_eq!(copied.code, Some(4), "{copied:?}");
    let copied: Vec<bool> =
        (1..=3).map(|host| machines.home(LOGIN, &format!("got/h{host}/data")).exists()).collect();
    assert_eq!(copied, [true, true, false]);
    machines.processes(3).iter().for_each(|server| server.signal(Signal::CONT));
    assert_eq!(machines.run(&["down"]).code, Some(0));
}
