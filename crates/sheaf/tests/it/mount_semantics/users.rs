//! Who does what: each request is done with the rights of who makes it, at the owner.
use super::hosts::{EXPORT, ViewHosts, inside};
use super::python::{Python, have_python};
use crate::attach::joins_by_token;
use crate::gates::CLIENTS;
use crate::machines::{LOGIN, Machines, address};
use sheaf_testing::home::Run;
use sheaf_testing::sessions::{Running, turn, wait_until};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

const ALICE: u32 = 1001;
const BOB: u32 = 1002;
const STAFF: u32 = 2001;

fn mode(path: &Path, mode: u32, uid: u32, gid: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    chown(path, Some(uid), Some(gid)).unwrap();
}

/// On `h1`: a file and a directory of Bob's that nobody else may use, a file of a group's, and a directory for all.
fn files(hosts: &ViewHosts) {
    mode(&hosts.disk(1, ""), 0o755, 0, 0);
    for (name, rights, uid, gid) in [("bobs", 0o600, BOB, BOB), ("staffs", 0o640, 0, STAFF)] {
        fs::write(hosts.disk(1, name), name).unwrap();
        mode(&hosts.disk(1, name), rights, uid, gid);
    }
    fs::create_dir(hosts.disk(1, "d")).unwrap();
    fs::write(hosts.disk(1, "d/f"), "within").unwrap();
    mode(&hosts.disk(1, "d"), 0o700, BOB, BOB);
    fs::create_dir(hosts.disk(1, "open")).unwrap();
    mode(&hosts.disk(1, "open"), 0o1777, 0, 0);
}

#[test]
fn each_request_is_done_as_its_caller() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(3) else { return };
    files(&hosts);
    let at = |name: &str| inside(1, name);
    for host in hosts.all() {
        let mut alice = Python::of_user(&hosts, host, ALICE, ALICE, "");
        let mut bob = Python::of_user(&hosts, host, BOB, BOB, "");
        // What Bob may do and Alice may not, and the error that she gets.
        for (act, error) in [
            (format!("open('{}').read()", at("bobs")), "EACCES"),
            (format!("open('{}', 'r+').close()", at("bobs")), "EACCES"),
            (format!("os.truncate('{}', 4)", at("bobs")), "EACCES"),
            (format!("os.chmod('{}', 0o600)", at("bobs")), "EPERM"),
            (format!("os.utime('{}', (1, 1))", at("bobs")), "EPERM"),
            (format!("os.setxattr('{}', 'user.a', b'1')", at("bobs")), "EACCES"),
            (format!("os.listdir('{}')", at("d")), "EACCES"),
            (format!("os.stat('{}').st_size", at("d/f")), "EACCES"),
            (format!("os.mkdir('{0}') or os.rmdir('{0}')", at("d/new")), "EACCES"),
            (format!("os.rename('{0}', '{0}2') or os.rename('{0}2', '{0}')", at("d/f")), "EACCES"),
            // A lock is had by who has opened the file, for which it takes the right to.
            (format!("fcntl.flock(open('{}'), fcntl.LOCK_EX)", at("bobs")), "EACCES"),
            (format!("L.set(open('{}', 'r+'), fcntl.LOCK_EX)", at("bobs")), "EACCES"),
        ] {
            assert_eq!(alice.ask(&act), error, "h{host}: {act}");
            bob.must(&act);
        }
        // Nobody but root gives files away, or opens what only its owner may.
        assert_eq!(bob.ask(&format!("os.chown('{}', {ALICE}, -1)", at("bobs"))), "EPERM");
        assert_eq!(bob.ask(&format!("os.listxattr('{}') and 0", at("bobs"))), "ok 0");
        // What is made is the maker's, with the modes that its umask leaves.
        for (user, uid) in [(&mut alice, ALICE), (&mut bob, BOB)] {
            let (file, directory) = (format!("open/f{host}-{uid}"), format!("open/d{host}-{uid}"));
            user.must("os.umask(0o027)");
            user.must(&format!("open('{}', 'x').close()", at(&file)));
            user.must(&format!("os.mkdir('{}')", at(&directory)));
            for (name, rights) in [(&file, 0o640), (&directory, 0o750)] {
                let made = fs::metadata(hosts.disk(1, name)).unwrap();
                assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (uid, uid, rights));
            }
        }
        // The directory is for all to make names in, and for their makers to take away.
        let theirs = at(&format!("open/f{host}-{BOB}"));
        assert_eq!(alice.ask(&format!("os.unlink('{theirs}')")), "EPERM", "h{host}");
        bob.must(&format!("os.unlink('{theirs}')"));
        // Root is root.
        let mut root = Python::new(&hosts, host);
        assert_eq!(root.must(&format!("os.listdir('{}')", at("d"))), "['f']");
    }
}

#[test]
fn groups_of_a_caller_are_those_of_its_process() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    files(&hosts);
    let read = format!("open('{}').read()", inside(1, "staffs"));
    for host in hosts.all() {
        let mut without = Python::of_user(&hosts, host, ALICE, ALICE, "");
        assert_eq!(without.ask(&read), "EACCES", "h{host}");
        for (gid, groups) in [(ALICE, "2001"), (ALICE, "2000,2001,2002"), (STAFF, "")] {
            let mut with = Python::of_user(&hosts, host, ALICE, gid, groups);
            assert_eq!(with.must(&read), "staffs", "h{host}: {gid} {groups}");
        }
        // Side by side, each with what it has.
        let mut with = Python::of_user(&hosts, host, ALICE, ALICE, "2001");
        for _ in 0..50 {
            assert_eq!(without.ask(&read), "EACCES", "h{host}");
            assert_eq!(with.ask(&read), "ok staffs", "h{host}");
        }
        // Who has lost it has it no more.
        let mut root = Python::new(&hosts, host);
        root.must(&format!("os.setgroups([{STAFF}]) or os.setresgid({ALICE}, {ALICE}, {ALICE})"));
        root.must(&format!("os.setgroups([]) or os.setresuid({ALICE}, {ALICE}, {ALICE})"));
        assert_eq!(root.ask(&read), "EACCES", "h{host}");
    }
}

#[test]
fn processes_of_the_view_are_not_a_users_to_end() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    mode(&hosts.disk(1, ""), 0o755, 0, 0);
    let pids = hosts.shell(2, "for p in /proc/[0-9]*; do read -r name <$p/comm; test $name != sheaf || echo ${p#/proc/}; done");
    assert_eq!(pids.stdout.lines().count(), 2, "{pids:?}");
    let mut alice = Python::of_user(&hosts, 2, ALICE, ALICE, "");
    for pid in pids.stdout.lines() {
        assert_eq!(alice.ask(&format!("os.kill({pid}, 9)")), "EPERM");
        assert_eq!(alice.ask(&format!("os.listdir('/proc/{pid}/fd')")), "EACCES");
    }
    // What acts as root she sees, and does not enter, also by a working directory of root's.
    let point = super::hosts::POINT;
    let listed = "[stat.filemode(os.lstat(p + n).st_mode) for n in ('all', 'groups')]";
    alice.must(&format!("p = '{point}/'"));
    assert_eq!(alice.ask(listed), "ok ['dr-x------', 'drwx------']");
    for name in ["all", "groups"] {
        assert_eq!(alice.ask(&format!("os.listdir(p + '{name}')")), "EACCES");
        assert_eq!(alice.ask(&format!("os.stat(p + '{name}/x')")), "EACCES");
    }
    hosts.shell(1, "mkdir -m 755 h1/d; echo text >h1/d/f; chmod 644 h1/d/f");
    let within = "setpriv --reuid 1001 --regid 1001 --clear-groups sh -c 'ls; cat f' || :";
    let said = hosts.shell_at(2, &format!("{point}/all/d"), within);
    assert_eq!(said.stdout, "", "{said:?}");
    assert_eq!(said.stderr.matches("Permission denied").count(), 2, "{said:?}");
    fs::remove_dir_all(hosts.disk(1, "d")).unwrap();
    // Nor is the view hers to take away.
    let program = hosts.machines.dir().join("sheaf");
    let mut umount = vec!["--reuid", "1001", "--regid", "1001", "--clear-groups", "--"];
    let copy = "/run/for-all";
    let install = ["-m", "755", program.to_str().unwrap(), copy];
    assert!(hosts.machines.command(2, "install", &install).status().unwrap().success());
    umount.extend([copy, "umount", super::hosts::POINT]);
    let umount = Run::of(hosts.machines.command(2, "setpriv", &umount).output().unwrap());
    assert_ne!(umount.code, Some(0), "{umount:?}");
    assert_eq!(alice.must(&format!("os.listdir('{}')", inside(1, ""))), "[]");
}

/// `h2`, whose server is Alice's, serves Alice, and nobody else: not root either, who has mounted it on `h1`.
#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn server_that_is_not_roots_does_nothing_for_others() {
    const PORT: u16 = 7441;
    let _turn = turn();
    if !have_python() || !crate::mount::can_mount() {
        return;
    }
    let Some(machines) = Machines::new(2) else { return };
    let config = format!(
        "[cluster.views]\nhosts = \"h[1-2]\"\nlaunch = \"attach\"\nlisten = \"{}:{PORT}\"\nexport = \"{EXPORT}\"\n{CLIENTS}\
         [tuning]\nstart_timeout_ms = 1000\n",
        address(LOGIN)
    );
    machines.write(LOGIN, "sheaf.toml", &config);
    // Nobody has come yet, and so it fails for now.
    let up = machines.run(&["up", "--tokens", "tokens"]);
    assert!(up.stderr.starts_with("session views: 0 of 2 hosts"), "{up:?}");
    let hosts = ViewHosts::of(machines, 2);
    let _first = joins_by_token(&hosts.machines, 1);
    // The same as Alice, in whose home it is.
    let files = hosts.disk(2, "");
    let home = files.parent().unwrap().to_owned();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(hosts.machines.root(2).join("run/alice")).unwrap();
    mode(&hosts.machines.root(2).join("run/alice"), 0o700, ALICE, ALICE);
    mode(&files, 0o777, ALICE, ALICE);
    let run = hosts.machines.run(&["--json", "token"]);
    let issued: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let token = hosts.machines.root(2).join("run/alice/token");
    fs::write(&token, issued["token"].as_str().unwrap()).unwrap();
    mode(&token, 0o600, ALICE, ALICE);
    fs::set_permissions(hosts.machines.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(hosts.machines.dir().join("sheaf"), hosts.machines.root(2).join("run/for-all"))
        .unwrap();
    let join = issued["join"].as_str().unwrap();
    let serve = [
        "env",
        "HOME=/run/alice",
        "XDG_RUNTIME_DIR=/run/alice",
        // All hosts of the tests have one /tmp, where its gate would be found by other tests.
        "TMPDIR=/run/alice",
        "/run/for-all",
        "serve",
        "--join",
        join,
    ];
    let mut args = vec!["--reuid", "1001", "--regid", "1001", "--clear-groups", "--"];
    args.extend(serve);
    args.extend(["--token-file", "/run/alice/token"]);
    let mut server = hosts.machines.command(2, "setpriv", &args);
    let _second = Running::start(&mut server);
    wait_until("both hosts are there", || {
        hosts.machines.run(&["status"]).stdout.contains("2 of 2 hosts")
    });
    fs::write(hosts.disk(2, "f"), "content").unwrap();
    fs::set_permissions(hosts.disk(2, "f"), fs::Permissions::from_mode(0o666)).unwrap();
    let mounted = hosts.mount(1, "10");
    assert_eq!(mounted.code, Some(0), "{mounted:?}");
    let mut alice = Python::of_user(&hosts, 1, ALICE, ALICE, "");
    let read = format!("open('{}').read()", inside(2, "f"));
    assert_eq!(alice.ask(&read), "ok content");
    alice.must(&format!("open('{}', 'x').close()", inside(2, "of-alice")));
    for uid in [0, BOB] {
        let mut other = Python::of_user(&hosts, 1, uid, uid, "");
        for act in [
            read.clone(),
            format!("os.listdir('{}')", inside(2, "")),
            format!("os.stat('{}')", inside(2, "f")),
            format!("os.unlink('{}')", inside(2, "f")),
            format!("open('{}', 'x')", inside(2, "new")),
        ] {
            assert_eq!(other.ask(&act), "EACCES", "{uid}: {act}");
        }
    }
    let mut names: Vec<_> =
        fs::read_dir(hosts.disk(2, "")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["f", "of-alice"]);
    assert_eq!(fs::metadata(hosts.disk(2, "of-alice")).unwrap().uid(), ALICE);
}

/// The kernel asks for the access list of a path's parts, and fails the path where the answer is another error than
/// that there is none.
#[test]
fn file_systems_without_access_lists_have_none() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    let mounted = hosts.shell_at(1, EXPORT, "mkdir p; mount -t proc none p");
    assert_eq!(mounted.code, Some(0), "{mounted:?}");
    let mut root = Python::new(&hosts, 2);
    root.must(&format!("f = os.open('{}', os.O_PATH)", inside(1, "p/meminfo")));
    // What was told when it was looked up is not kept so long.
    root.must("time.sleep(2)");
    let list = "os.getxattr(f'/proc/self/fd/{f}', 'system.posix_acl_access')";
    assert_eq!(root.ask(list), "ENODATA");
}

/// No request to the owner opens these: the kernel of the view decides.
#[test]
fn pipes_sockets_and_watches_obey_modes() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(3) else { return };
    mode(&hosts.disk(1, ""), 0o1777, 0, 0);
    for host in hosts.all() {
        let mut alice = Python::of_user(&hosts, host, ALICE, ALICE, "");
        let mut bob = Python::of_user(&hosts, host, BOB, BOB, "");
        let at = |name: &str| inside(1, &format!("of{host}/{name}"));
        alice.must(&format!("os.mkdir('{}', 0o755)", at("")));
        alice.must(&format!("os.mkfifo('{}', 0o600)", at("pipe")));
        alice.must(&format!("os.mkdir('{}', 0o700)", at("private")));
        alice.must("s = socket.socket(socket.AF_UNIX)");
        alice.must(&format!("s.bind('{0}') or os.chmod('{0}', 0o600) or s.listen(2)", at("sock")));
        for python in [&mut alice, &mut bob] {
            python.must("import ctypes");
            python.must("c = ctypes.CDLL(None, use_errno=True)");
            python.must("t = socket.socket(socket.AF_UNIX)");
        }
        let open = format!("os.open('{}', os.O_RDWR | os.O_NONBLOCK) > 0", at("pipe"));
        let connect = format!("t.connect('{}')", at("sock"));
        let watch = format!(
            "(c.inotify_add_watch(c.inotify_init1(0), b'{}', 0x100), ctypes.get_errno())",
            at("private")
        );
        assert_eq!(bob.ask(&open), "EACCES", "h{host}");
        assert_eq!(bob.ask(&connect), "EACCES", "h{host}");
        assert_eq!(bob.ask(&watch), "ok (-1, 13)", "h{host}");
        assert_eq!(alice.ask(&open), "ok True", "h{host}");
        assert_eq!(alice.ask(&connect), "ok None", "h{host}");
        assert_eq!(alice.ask(&watch), "ok (1, 0)", "h{host}");
        // A right that is given later is a right.
        for name in ["pipe", "sock"] {
            alice.must(&format!("os.chmod('{}', 0o606)", at(name)));
        }
        assert_eq!(bob.ask(&open), "ok True", "h{host}");
        assert_eq!(bob.ask(&connect), "ok None", "h{host}");
    }
}

/// A program with capabilities loses them by its owner's changes, as on one machine, and these succeed.
#[test]
fn capabilities_end_with_changes_of_an_owner() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    // `cap_net_raw+ep` in the kernel's form.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let name = "security.capability";
    for host in hosts.all() {
        let mut alice = Python::of_user(&hosts, host, ALICE, ALICE, "");
        for (number, act) in [
            "os.truncate('{}', 2)",
            "os.truncate(os.open('{}', os.O_RDWR), 2)",
            "open('{}', 'w').close()",
            "os.write(os.open('{}', os.O_WRONLY), b'new')",
            "os.chown('{}', -1, 1001)",
        ]
        .iter()
        .enumerate()
        {
            let file = format!("capable{host}-{number}");
            fs::write(hosts.disk(1, &file), "content").unwrap();
            mode(&hosts.disk(1, &file), 0o755, ALICE, ALICE);
            rustix::fs::setxattr(
                hosts.disk(1, &file),
                name,
                &capability,
                rustix::fs::XattrFlags::empty(),
            )
            .unwrap();
            let own = format!("os.removexattr('{}', '{name}')", inside(1, &file));
            assert_eq!(alice.ask(&own), "EPERM", "h{host}: {act}");
            alice.must(&act.replace("{}", &inside(1, &file)));
            let left = rustix::fs::getxattr(hosts.disk(1, &file), name, &mut [0; 64][..]);
            assert_eq!(left, Err(rustix::io::Errno::NODATA), "h{host}: {act}");
        }
    }
}

/// Who may write to a file that is somebody else's changes its content in all ways, which end its set-ID bits.
#[test]
fn set_id_bits_end_with_each_change_of_content() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    for host in hosts.all() {
        let mut alice = Python::of_user(&hosts, host, ALICE, ALICE, "");
        for act in [
            "os.posix_fallocate(f, 0, 100)",
            "os.copy_file_range(f, f, 3, 0, 4)",
            "os.ftruncate(f, 1)",
            "os.pwrite(f, b'new', 0)",
        ] {
            let path = hosts.disk(1, "set-id");
            fs::write(&path, "content").unwrap();
            mode(&path, 0o6666, 0, 0);
            alice.must(&format!("f = os.open('{}', os.O_RDWR)", inside(1, "set-id")));
            alice.must(act);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o666, "h{host}: {act}");
        }
    }
}

/// Whoever opens all that can be open at an owner leaves room for others.
#[test]
fn open_files_of_one_user_leave_room_for_another() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    files(&hosts);
    fs::write(hosts.disk(1, "for-all"), "content").unwrap();
    mode(&hosts.disk(1, "for-all"), 0o644, 0, 0);
    let pid = hosts.server(1).pid.to_string();
    let limited = Command::new("prlimit").args(["--nofile=300:300", "--pid", &pid]).status();
    assert!(limited.unwrap().success());
    let mut alice = Python::of_user(&hosts, 2, ALICE, ALICE, "");
    let mut bob = Python::of_user(&hosts, 2, BOB, BOB, "");
    let open = |name: &str| format!("opened.append(open('{}')) or len(opened)", inside(1, name));
    alice.must("globals().update(opened=[])");
    let opened = (0..300).take_while(|_| alice.ask(&open("for-all")).starts_with("ok")).count();
    assert!((100..=150).contains(&opened), "{opened}");
    assert_eq!(alice.ask(&open("for-all")), "EMFILE");
    bob.must("globals().update(opened=[])");
    for _ in 0..20 {
        bob.must(&open("bobs"));
    }
    // What is closed makes room.
    alice.must("opened.clear()");
    wait_until("room for alice", || alice.ask(&open("for-all")).starts_with("ok"));
}

#[test]
fn what_root_makes_has_the_group_of_its_process() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    for host in hosts.all() {
        let mut root = Python::of_user(&hosts, host, 0, STAFF, "");
        for (name, make) in [
            ("f", "open('{}', 'x').close()"),
            ("d", "os.mkdir('{}')"),
            ("p", "os.mkfifo('{}')"),
            ("l", "os.symlink('x', '{}')"),
        ] {
            let name = format!("{name}{host}");
            root.must(&make.replace("{}", &inside(1, &name)));
            let made = fs::symlink_metadata(hosts.disk(1, &name)).unwrap();
            assert_eq!((made.uid(), made.gid()), (0, STAFF), "{name}");
        }
    }
}
