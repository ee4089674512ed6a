//! Hosts that are lost, stopped or cut off, and processes that are killed: who asks is told in time, nobody else is
//! held up, and what has been lost comes back by itself.
use super::hosts::{EXPORT, Over, POINT, QUICK, ViewHosts, errno, inside};
use super::python::{Python, have_python};
use crate::machines::LOGIN;
use rustix::io::Errno;
use rustix::process::Signal;
use sheaf_testing::sessions::{Process, turn, wait_until};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How long a mount of these tests waits for a host, in seconds.
const PATIENCE: &str = "3";
/// No call takes longer, with room for a machine that is busy.
const CALL_MAX: Duration = Duration::from_secs(15);
/// What is said of a host that is not there; the last is what a host says that was just started again of what it
/// was asked before.
const DOWN: [Errno; 4] = [Errno::HOSTDOWN, Errno::TIMEDOUT, Errno::IO, Errno::STALE];

/// What comes of an operation, which must come in time.
#[track_caller]
fn in_time<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(act()));
    told.recv_timeout(CALL_MAX).unwrap_or_else(|_| panic!("no answer within {CALL_MAX:?}"))
}

/// What a host reads of `owner`'s file `f`, in time.
#[track_caller]
fn read(hosts: &ViewHosts, host: usize, owner: usize) -> io::Result<String> {
    let path = hosts.at(host, owner, "f");
    in_time(move || fs::read_to_string(path))
}

/// Hosts with a file `f` each that has its host's name.
fn hosts(count: usize, tuning: &str) -> Option<ViewHosts> {
    let hosts = ViewHosts::with(count, tuning, PATIENCE)?;
    for host in hosts.all() {
        fs::write(hosts.disk(host, "f"), format!("h{host}")).unwrap();
    }
    Some(hosts)
}

#[track_caller]
fn wait_until_back(hosts: &ViewHosts, host: usize, owner: usize) {
    wait_until(&format!("h{owner} is back on h{host}"), || {
        read(hosts, host, owner).is_ok_and(|content| content == format!("h{owner}"))
    });
}

#[test]
fn lost_host_is_an_error_in_time_and_holds_nobody_up() {
    let _turn = turn();
    let never = format!("{QUICK}\n").replace("relaunch_ms = 500", "relaunch_ms = 0");
    let Some(hosts) = hosts(3, &never) else { return };
    let (is_over, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        // What is asked of another host meanwhile is answered.
        let other = scope.spawn(|| {
            let mut reads = 0;
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                assert_eq!(fs::read_to_string(hosts.at(2, 3, "f")).unwrap(), "h3");
                let ms = u64::try_from(begun.elapsed().as_millis()).unwrap();
                longest.fetch_max(ms, Ordering::Relaxed);
                reads += 1;
            }
            reads
        });
        hosts.server(1).signal(Signal::KILL);
        for act in 0..20 {
            let path = hosts.at(2, 1, "f");
            let of_this = in_time(move || match act % 4 {
                0 => fs::read_to_string(path).map(drop),
                1 => fs::metadata(path).map(drop),
                2 => fs::read_dir(path.parent().unwrap()).map(drop),
                _ => fs::write(path.with_file_name("new"), "x"),
            });
            let error = errno(of_this);
            assert!(error.is_some_and(|error| DOWN.contains(&error)), "{act}: {error:?}");
        }
        wait_until("it is said to be down", || errno(read(&hosts, 2, 1)) == Some(Errno::HOSTDOWN));
        // That is known, and nobody waits for it any more.
        let begun = Instant::now();
        for _ in 0..20 {
            assert_eq!(errno(read(&hosts, 2, 1)), Some(Errno::HOSTDOWN));
        }
        assert!(begun.elapsed() < CALL_MAX, "{:?}", begun.elapsed());
        drop(over);
        assert!(other.join().unwrap() > 20);
    });
    assert!(Duration::from_millis(longest.load(Ordering::Relaxed)) < CALL_MAX);
    // All names are there, and its own host has its files all the time.
    let names = fs::read_dir(hosts.machines.root(2).join("run/view/hosts")).unwrap();
    // The three hosts, and `here`.
    assert_eq!(names.count(), 4);
    assert_eq!(fs::read_to_string(hosts.disk(1, "f")).unwrap(), "h1");
}

#[test]
fn open_files_of_a_lost_host_fail_and_it_comes_back_by_itself() {
    let _turn = turn();
    let Some(hosts) = hosts(3, QUICK) else { return };
    for round in 0..3 {
        let open: Vec<File> =
            [2, 3].iter().map(|host| File::open(hosts.at(*host, 1, "f")).unwrap()).collect();
        hosts.server(1).signal(Signal::KILL);
        for host in [2, 3] {
            wait_until_back(&hosts, host, 1);
        }
        // Whatever is opened now is something else, also by its number.
        let more = |host| vec![hosts.at(host, 1, "new"); 50];
        fs::write(hosts.disk(1, "new"), "another").unwrap();
        let _open: Vec<File> =
            [2, 3].into_iter().flat_map(more).map(|path| File::open(path).unwrap()).collect();
        for file in open {
            let read = in_time(move || file.read_at(&mut [0; 10], 0));
            assert_eq!(errno(read), Some(Errno::IO), "round {round}");
        }
        // All is as before.
        let text = format!("round {round}");
        fs::write(hosts.at(2, 1, "new"), &text).unwrap();
        assert_eq!(fs::read_to_string(hosts.at(3, 1, "new")).unwrap(), text);
        assert_eq!(fs::read_to_string(hosts.disk(1, "new")).unwrap(), text);
    }
}

/// A process that has changed to a directory uses no path that begins at the view.
#[test]
fn working_directory_is_found_again_after_a_restart() {
    let _turn = turn();
    let Some(hosts) = hosts(3, QUICK) else { return };
    if !have_python() {
        return;
    }
    fs::create_dir_all(hosts.disk(1, "a/b")).unwrap();
    fs::create_dir(hosts.disk(1, "gone")).unwrap();
    let mut python = Python::new(&hosts, 2);
    python.must(&format!("os.chdir('{}')", inside(1, "a/b")));
    let mut of_gone = Python::new(&hosts, 2);
    of_gone.must(&format!("os.chdir('{}')", inside(1, "gone")));
    let mut user = Python::of_user(&hosts, 2, 1001, 1001, "");
    user.must(&format!("os.chdir('{}')", inside(1, "a")));
    for round in 0..2 {
        hosts.server(1).signal(Signal::KILL);
        wait_until_back(&hosts, 3, 1);
        assert_eq!(python.ask("os.mkdir('new')"), "ok None", "round {round}");
        assert_eq!(python.ask("os.listdir('.')"), "ok ['new']");
        assert_eq!(python.ask("open('new/f', 'w').close()"), "ok None");
        assert_eq!(python.ask("os.remove('new/f')"), "ok None");
        assert_eq!(python.ask("os.rmdir('new')"), "ok None");
        assert_eq!(user.ask("os.listdir('.')"), "ok ['b']");
    }
    // One that was removed meanwhile is not found, nor is one that has taken its place.
    hosts.server(1).signal(Signal::KILL);
    fs::create_dir(hosts.disk(1, "other")).unwrap();
    fs::remove_dir(hosts.disk(1, "gone")).unwrap();
    fs::rename(hosts.disk(1, "other"), hosts.disk(1, "gone")).unwrap();
    wait_until_back(&hosts, 3, 1);
    assert_eq!(of_gone.ask("os.listdir('.')"), "ESTALE");
    // Commands of Sheaf do not need it.
    let sheaf = hosts.machines.dir().join("sheaf");
    of_gone.must("import subprocess");
    let ask = format!(
        "r = subprocess.run(['{}', 'status', '-v'], capture_output=True, text=True)",
        sheaf.display()
    );
    of_gone.must(&ask);
    let said = of_gone.ask("(r.returncode, r.stderr)");
    assert!(said.starts_with("ok (0,") && said.contains("does not exist any more"), "{said}");
}

/// What was not sent to the server that is gone is sent to the next one.
#[test]
fn first_call_after_a_restart_of_the_owners_server_succeeds() {
    let _turn = turn();
    let Some(hosts) = hosts(3, QUICK) else { return };
    for round in 0..3 {
        // More than one connection is open.
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(fs::read_to_string(hosts.at(2, 1, "f")).unwrap(), "h1"));
            }
        });
        hosts.server(1).signal(Signal::KILL);
        wait_until_back(&hosts, 3, 1);
        let first = hosts.at(2, 1, &format!("new{round}"));
        match round {
            0 => assert_eq!(read(&hosts, 2, 1).unwrap(), "h1"),
            1 => in_time(move || fs::write(first, "x")).unwrap(),
            _ => in_time(move || fs::create_dir(first)).unwrap(),
        }
    }
}

#[test]
fn server_stopped_a_moment_answers_later_and_for_long_is_lost() {
    let _turn = turn();
    // So many that a moment is none of them on a busy machine.
    let patient = QUICK.replace("heartbeats_lost_max = 10", "heartbeats_lost_max = 25");
    let Some(hosts) = hosts(3, &patient) else { return };
    let server = hosts.server(1);
    let open = File::open(hosts.at(2, 1, "f")).unwrap();
    server.signal(Signal::STOP);
    let path = hosts.at(2, 1, "f");
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(fs::read_to_string(path)));
    let early = told.recv_timeout(Duration::from_millis(500));
    server.signal(Signal::CONT);
    assert!(early.is_err(), "a stopped server has answered");
    let answered = told.recv_timeout(CALL_MAX).expect("an answer");
    assert_eq!(answered.unwrap(), "h1");
    // Nothing was lost.
    let mut content = [0; 2];
    open.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"h1");
    assert_eq!(hosts.server(1), server);
    // And for longer.
    wait_until_back(&hosts, 2, 1);
    let server = hosts.server(1);
    server.signal(Signal::STOP);
    wait_until("it is missed", || read(&hosts, 2, 1).is_err());
    for _ in 0..5 {
        assert_eq!(read(&hosts, 2, 3).unwrap(), "h3");
    }
    server.signal(Signal::CONT);
    wait_until_back(&hosts, 2, 1);
    wait_until_back(&hosts, 3, 1);
}

#[test]
fn host_without_its_cable_fails_in_time_and_comes_back_with_it() {
    let _turn = turn();
    let Some(hosts) = hosts(3, QUICK) else { return };
    let open = File::open(hosts.at(2, 1, "f")).unwrap();
    hosts.machines.cut(1);
    wait_until("it is missed", || {
        let error = errno(read(&hosts, 2, 1));
        assert!(error.is_none_or(|error| DOWN.contains(&error)), "{error:?}");
        error == Some(Errno::HOSTDOWN)
    });
    assert_eq!(read(&hosts, 2, 3).unwrap(), "h3");
    assert_eq!(read(&hosts, 3, 2).unwrap(), "h2");
    let failed = in_time(move || open.read_at(&mut [0; 10], 0));
    assert!(failed.is_err());
    hosts.machines.mend(1);
    wait_until_back(&hosts, 2, 1);
    wait_until_back(&hosts, 3, 1);
}

/// The server by which a host has joined: its own files need none, and what it cannot reach it says.
#[test]
fn host_whose_own_server_is_killed_waits_for_nothing() {
    let _turn = turn();
    let Some(hosts) = hosts(3, QUICK) else { return };
    hosts.server(2).signal(Signal::KILL);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        for owner in [1, 3] {
            let path = hosts.at(2, owner, "f");
            drop(in_time(move || fs::read_to_string(path)));
        }
        assert_eq!(read(&hosts, 3, 1).unwrap(), "h1");
    }
    // Whether it is there still or has to be mounted again, both can be done.
    assert_eq!(fs::read_to_string(hosts.disk(2, "f")).unwrap(), "h2");
    wait_until("it can be taken away or is gone", || {
        let run = hosts.sheaf(2, &["umount", POINT]);
        run.code == Some(0) || run.stderr.contains("nothing is mounted there")
    });
    wait_until("it can be mounted", || hosts.mount(2, PATIENCE).code == Some(0));
    for owner in hosts.all() {
        wait_until_back(&hosts, 2, owner);
    }
}

#[test]
fn host_whose_own_server_stands_still_waits_as_the_session_does() {
    let _turn = turn();
    let Some(hosts) = hosts(2, "") else { return };
    let server = hosts.server(2);
    server.signal(Signal::STOP);
    let began = Instant::now();
    let path = hosts.at(2, 1, "f");
    let told = in_time(move || fs::read_to_string(path));
    assert!(told.is_err(), "{told:?} after {:?}", began.elapsed());
    // Its own files need nobody.
    assert_eq!(fs::read_to_string(hosts.disk(2, "f")).unwrap(), "h2");
    assert_eq!(read(&hosts, 1, 1).unwrap(), "h1");
    server.signal(Signal::CONT);
    wait_until("it can be mounted", || {
        let run = hosts.sheaf(2, &["umount", POINT]);
        let is_away = run.code == Some(0) || run.stderr.contains("no view is mounted there");
        is_away && hosts.mount(2, PATIENCE).code == Some(0)
    });
    wait_until_back(&hosts, 2, 1);
}

#[test]
fn mount_whose_process_is_killed_says_so_and_can_be_made_again() {
    let _turn = turn();
    let Some(hosts) = hosts(3, "") else { return };
    let open = File::open(hosts.at(2, 1, "f")).unwrap();
    // The owner reports changes of a file that is open to append to it.
    let mut log = File::options().append(true).create(true).open(hosts.at(2, 1, "log")).unwrap();
    log.write_all(b"line\n").unwrap();
    hosts.mounter(2).signal(Signal::KILL);
    wait_until("it is gone", || errno(read(&hosts, 2, 1)) == Some(Errno::NOTCONN));
    assert_eq!(errno(in_time(move || open.read_at(&mut [0; 10], 0))), Some(Errno::NOTCONN));
    assert_eq!(errno(in_time(move || log.write_all(b"x"))), Some(Errno::NOTCONN));
    // Its own files are there as long as something is mounted, and other hosts miss nothing.
    assert_eq!(read(&hosts, 2, 2).unwrap(), "h2");
    assert_eq!(read(&hosts, 3, 1).unwrap(), "h1");
    assert_eq!(read(&hosts, 3, 2).unwrap(), "h2");
    let twice = hosts.mount(2, PATIENCE);
    assert!(twice.stderr.contains("something is mounted there: sheaf umount"), "{twice:?}");
    let umount = hosts.sheaf(2, &["umount", POINT]);
    assert_eq!((umount.code, umount.stderr.as_str()), (Some(0), ""));
    assert_eq!(hosts.mount(2, PATIENCE).code, Some(0));
    for owner in hosts.all() {
        assert_eq!(read(&hosts, 2, owner).unwrap(), format!("h{owner}"));
    }
}

/// On a host of the session its server answers the kernel.
#[test]
fn view_goes_on_while_the_process_that_mounted_it_stands_still() {
    let _turn = turn();
    let Some(hosts) = hosts(2, "") else { return };
    let mounter = hosts.mounter(2);
    mounter.signal(Signal::STOP);
    let (path, new) = (hosts.at(2, 1, "f"), hosts.at(2, 1, "new"));
    assert_eq!(in_time(move || fs::read_to_string(path)).unwrap(), "h1");
    in_time(move || fs::write(new, "written")).unwrap();
    assert_eq!(fs::read_to_string(hosts.disk(1, "new")).unwrap(), "written");
    // Who waits for ever waits for that process, too.
    let held = File::open(hosts.disk(1, "f")).unwrap();
    held.lock().unwrap();
    let wanted = File::open(hosts.at(2, 1, "f")).unwrap();
    assert!(wanted.try_lock().is_err());
    let waits = std::thread::spawn(move || in_time(move || wanted.lock()));
    std::thread::sleep(Duration::from_millis(500));
    assert!(!waits.is_finished());
    mounter.signal(Signal::KILL);
    let ended = errno(waits.join().unwrap());
    assert!(matches!(ended, Some(Errno::CONNABORTED | Errno::NOTCONN)), "{ended:?}");
    wait_until("it is gone", || errno(read(&hosts, 2, 1)) == Some(Errno::NOTCONN));
    drop(held);
    assert_eq!(hosts.sheaf(2, &["umount", POINT]).code, Some(0));
    assert_eq!(hosts.mount(2, PATIENCE).code, Some(0));
    assert_eq!(read(&hosts, 2, 1).unwrap(), "h1");
}

fn is_mounted(hosts: &ViewHosts, host: usize) -> bool {
    let said = hosts.machines.command(host, "cat", &["/proc/self/mountinfo"]).output().unwrap();
    String::from_utf8(said.stdout).unwrap().contains(&format!(" {POINT}"))
}

#[test]
fn view_can_always_be_taken_away() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = hosts(3, QUICK) else { return };
    for case in ["used", "lost", "stopped", "mount stopped", "cut off"] {
        let mut user = Python::new(&hosts, 2);
        user.must(&format!("os.chdir('{}')", inside(1, "")));
        user.must("f = open('f')");
        user.must("L.set(open('locked', 'w'), fcntl.LOCK_EX)");
        let (server, mounter) = (hosts.server(1), hosts.mounter(2));
        match case {
            "lost" => server.signal(Signal::KILL),
            "stopped" => server.signal(Signal::STOP),
            "mount stopped" => mounter.signal(Signal::STOP),
            "cut off" => hosts.machines.cut(1),
            _ => {}
        }
        let begun = Instant::now();
        let umount = hosts.sheaf(2, &["umount", POINT]);
        assert_eq!((umount.code, umount.stderr.as_str()), (Some(0), ""), "{case}");
        assert!(begun.elapsed() < CALL_MAX, "{case}: {:?}", begun.elapsed());
        assert!(!is_mounted(&hosts, 2), "{case}");
        assert_eq!(fs::read_dir(hosts.machines.root(2).join("run/view")).unwrap().count(), 0);
        server.signal(Signal::CONT);
        mounter.signal(Signal::CONT);
        if case == "cut off" {
            hosts.machines.mend(1);
        }
        // Who is in it gets an answer.
        user.begin("os.stat('f')");
        assert!(user.answer(CALL_MAX).is_some(), "{case}");
        drop(user);
        wait_until(&format!("{case}: the process has ended"), || !mounter.runs());
        wait_until_back(&hosts, 3, 1);
        let again = hosts.mount(2, PATIENCE);
        assert_eq!(again.code, Some(0), "{case}: {again:?}");
        assert_eq!(read(&hosts, 2, 1).unwrap(), "h1", "{case}");
    }
}

/// Whoever answers the kernel stands still, so that no deadline ends the call.
#[test]
fn request_that_hangs_ends_when_the_view_is_taken_away() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = hosts(2, "") else { return };
    let mut user = Python::new(&hosts, 2);
    user.must(&format!("f = open('{}', 'rb', 0)", inside(1, "f")));
    let standing = [hosts.server(2), hosts.mounter(2)];
    standing.iter().for_each(|process| process.signal(Signal::STOP));
    user.begin("os.fsync(f.fileno())");
    let early = user.answer(Duration::from_millis(500));
    let umount = hosts.sheaf(2, &["umount", POINT]);
    let answer = user.answer(CALL_MAX);
    standing.iter().for_each(|process| process.signal(Signal::CONT));
    assert_eq!(early, None);
    assert_eq!((umount.code, umount.stderr.as_str()), (Some(0), ""));
    assert!(matches!(answer.as_deref(), Some("ECONNABORTED" | "ENOTCONN")), "{answer:?}");
    assert!(!is_mounted(&hosts, 2));
}

#[test]
fn view_that_is_mounted_again_stays_when_the_one_before_it_ends() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = hosts(2, "") else { return };
    let mut user = Python::new(&hosts, 2);
    user.must(&format!("os.chdir('{}')", inside(1, "")));
    let before = hosts.mounter(2);
    assert_eq!(hosts.sheaf(2, &["umount", POINT]).code, Some(0));
    assert_eq!(hosts.mount(2, PATIENCE).code, Some(0));
    assert!(before.runs(), "somebody is in what it has mounted");
    assert_eq!(read(&hosts, 2, 1).unwrap(), "h1");
    // Who is in the old one sees the same files.
    fs::write(hosts.at(2, 1, "new"), "new").unwrap();
    assert_eq!(user.must("open('new').read()"), "new");
    drop(user);
    wait_until("the process of the old one has ended", || !before.runs());
    assert!(is_mounted(&hosts, 2));
    for owner in hosts.all() {
        assert_eq!(read(&hosts, 2, owner).unwrap(), format!("h{owner}"));
    }
    // A link to it means it, as for mount.
    assert_eq!(hosts.shell_at(2, EXPORT, &format!("ln -s {POINT} link")).code, Some(0));
    let umount = hosts.sheaf(2, &["umount", &format!("{EXPORT}/link")]);
    assert_eq!((umount.code, umount.stderr.as_str()), (Some(0), ""));
}

#[test]
fn view_whose_session_has_ended_says_so_and_is_taken_away() {
    let _turn = turn();
    let Some(hosts) = hosts(2, "") else { return };
    let open = File::open(hosts.at(2, 1, "f")).unwrap();
    let mounters: Vec<_> = hosts.all().map(|host| hosts.mounter(host)).collect();
    // One of its file systems is a mount of its own there, whose path leads by one that is gone.
    let make =
        "mkdir -p a/b; mount -t tmpfs none a; mkdir a/b; mount -t tmpfs none a/b; echo x >a/b/f";
    assert_eq!(hosts.shell_at(1, EXPORT, make).code, Some(0));
    assert_eq!(hosts.shell(2, "cat h1/a/b/f").stdout, "x\n");
    assert_eq!(hosts.machines.run(&["down"]).code, Some(0));
    wait_until("it is said", || errno(read(&hosts, 2, 1)) == Some(Errno::HOSTDOWN));
    let failed = errno(in_time(move || open.read_at(&mut [0; 10], 0)));
    assert!(failed.is_some_and(|error| DOWN.contains(&error)), "{failed:?}");
    assert_eq!(read(&hosts, 2, 2).unwrap(), "h2");
    // Another one of its name is none of the view's: its hosts and exports may be others.
    assert_eq!(hosts.machines.run(&["up"]).code, Some(0));
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        assert_eq!(errno(read(&hosts, 2, 1)), Some(Errno::HOSTDOWN));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(hosts.machines.run(&["down"]).code, Some(0));
    for (host, mounter) in hosts.all().zip(mounters) {
        let umount = hosts.sheaf(host, &["umount", POINT]);
        assert_eq!((umount.code, umount.stderr.as_str()), (Some(0), ""), "h{host}");
        assert!(!is_mounted(&hosts, host), "h{host}");
        wait_until("the process has ended", || !mounter.runs());
    }
}

#[test]
fn synced_data_survives_a_killed_server() {
    let _turn = turn();
    let Some(hosts) = hosts(2, QUICK) else { return };
    for round in 0..3 {
        let path = hosts.at(2, 1, "log");
        let (synced, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut log = File::create(&path).unwrap();
        std::thread::scope(|scope| {
            let _over = Over(&is_over);
            let (synced, log, is_over) = (&synced, &mut log, &is_over);
            let writer = scope.spawn(move || {
                for number in 0u64.. {
                    assert!(!is_over.load(Ordering::Relaxed), "nobody has failed it");
                    let line = format!("{number:>9}\n").repeat(50);
                    if let Err(error) = log.write_all(line.as_bytes()).and_then(|()| log.sync_all())
                    {
                        return error;
                    }
                    synced.store(number + 1, Ordering::Release);
                }
                unreachable!()
            });
            wait_until("something is written", || synced.load(Ordering::Acquire) > 20);
            hosts.server(1).signal(Signal::KILL);
            let begun = Instant::now();
            let error = writer.join().unwrap();
            let error = errno(Err::<(), _>(error)).unwrap();
            assert!(DOWN.contains(&error), "round {round}: {error:?}");
            assert!(begun.elapsed() < 2 * CALL_MAX);
        });
        let kept = fs::read_to_string(hosts.disk(1, "log")).unwrap();
        for number in 0..synced.into_inner() {
            let line = format!("{number:>9}\n").repeat(50);
            let at = usize::try_from(number).unwrap() * line.len();
            assert_eq!(kept.get(at..at + line.len()), Some(&*line), "round {round}: {number}");
        }
        wait_until_back(&hosts, 2, 1);
        assert_eq!(fs::read_to_string(&path).unwrap(), kept);
    }
}

#[test]
fn view_whose_process_stands_still_long_comes_back_by_itself() {
    let _turn = turn();
    let Some(hosts) = hosts(2, QUICK) else { return };
    // One where the session was started as well, on a machine that is none of its hosts.
    let place = hosts.machines.root(LOGIN).join("run/away");
    fs::create_dir(&place).unwrap();
    let away = hosts.machines.run(&["--timeout", PATIENCE, "mount", "/run/away"]);
    assert_eq!(away.code, Some(0), "{away:?}");
    let named = |process: &Process| process.arguments().iter().any(|one| one == "/run/away");
    let mounter = hosts.machines.processes(LOGIN).into_iter().find(named).unwrap();
    let read_away = || {
        let path = place.join("hosts/h1/f");
        in_time(move || fs::read_to_string(path))
    };
    assert_eq!(read_away().unwrap(), "h1");
    for stopped in [hosts.mounter(2), mounter] {
        stopped.signal(Signal::STOP);
        // Longer than the session waits.
        std::thread::sleep(Duration::from_secs(5));
        stopped.signal(Signal::CONT);
    }
    wait_until("h1 is back where the session was started", || {
        read_away().is_ok_and(|text| text == "h1")
    });
    wait_until_back(&hosts, 2, 1);
    for (host, point) in [(2, POINT), (LOGIN, "/run/away")] {
        let merged =
            hosts.machines.root(host).join(point.trim_start_matches('/')).join("all/f@size");
        let read = || {
            let merged = merged.clone();
            in_time(move || fs::read_to_string(merged))
        };
        wait_until("the merge of all is back", || read().is_ok());
    }
    assert_eq!(hosts.machines.run(&["umount", "/run/away"]).code, Some(0));
}

/// A node of the tree as `sheaf tree show` has it, by its role and host.
fn node(hosts: &ViewHosts, role: &str, host: &str) -> serde_json::Value {
    let shown = hosts.machines.run(&["--timeout", "5", "tree", "show", "--json"]);
    let lines = shown.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
    let is_it = |node: &serde_json::Value| {
        node["role"] == role && (node["host"] == host || host.is_empty())
    };
    lines.into_iter().find(is_it).unwrap_or_else(|| panic!("{role} {host}: {shown:?}"))
}

#[test]
fn hosts_ask_each_other_without_root_and_inner_nodes() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::in_tree(4, "1x2x2", QUICK, PATIENCE) else { return };
    for host in hosts.all() {
        fs::write(hosts.disk(host, "f"), format!("h{host}")).unwrap();
    }
    assert_eq!(read(&hosts, 2, 4).unwrap(), "h4");
    // By a link of their own.
    let peers = node(&hosts, "leaf", "h2")["peers"].to_string();
    assert!(peers.contains(r#"{"host":"h4","through_tree":null}"#), "{peers}");
    let (is_over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let root = node(&hosts, "root", "")["pid"].to_string();
    let inner = [("h1", 1), ("h3", 3)]
        .map(|(name, host)| (host, node(&hosts, "inner", name)["pid"].to_string()));
    let signal = |host, signal: &str, pid: &str| {
        assert!(hosts.machines.command(host, "kill", &[signal, pid]).status().unwrap().success());
    };
    let goes_on = |what: &str| {
        let before = reads.load(Ordering::Relaxed);
        wait_until(what, || reads.load(Ordering::Relaxed) > before + 50);
    };
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(read(&hosts, 2, 4).unwrap(), "h4");
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        signal(LOGIN, "-STOP", &root);
        goes_on("h2 reads of h4 while the root is stopped");
        signal(LOGIN, "-CONT", &root);
        for (host, pid) in &inner {
            signal(*host, "-KILL", pid);
            goes_on("h2 reads of h4 while an inner node is lost");
        }
        drop(over);
    });
    for (host, owner) in [(2, 4), (4, 2), (1, 3), (3, 2)] {
        wait_until_back(&hosts, host, owner);
    }
}
