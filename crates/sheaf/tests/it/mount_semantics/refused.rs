//! What cannot be mounted, and what is said of it; nothing of it stays.
use super::hosts::{EXPORT, POINT, ViewHosts, inside};
use crate::machines::LOGIN;
use sheaf_testing::home::Run;
use sheaf_testing::sessions::turn;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// What `sheaf mount` of a place comes to on a host.
fn mount(hosts: &ViewHosts, host: usize, point: &str) -> Run {
    hosts.sheaf(host, &["--quiet", "--timeout", "5", "mount", point])
}

fn mounts(hosts: &ViewHosts, host: usize) -> usize {
    let said = hosts.machines.command(host, "cat", &["/proc/self/mountinfo"]).output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    text.lines().filter(|line| line.contains(" /run/view")).count()
}

#[test]
fn place_that_is_missing_full_or_taken_is_refused() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::without_views(2, "") else { return };
    let made =
        hosts.shell_at(2, "/run", "mkdir full; : >full/file; : >plain; ln -s /run/nowhere broken");
    assert_eq!(made.code, Some(0), "{made:?}");
    for (point, why) in [
        ("/run/none", "No such file or directory (ENOENT): mkdir makes it"),
        ("/run/full", "is not empty: file: a view needs an empty directory"),
        (
            "/run/none:/etc",
            "no mount point is named: sheaf mount /run/none:/etc POINT mounts it at POINT",
        ),
        ("/run/plain", "Not a directory (ENOTDIR)"),
        ("/run/plain/within", "Not a directory (ENOTDIR)"),
        ("/run/broken", "No such file or directory (ENOENT): mkdir makes it"),
    ] {
        let run = mount(&hosts, 2, point);
        assert_eq!(run.code, Some(2), "{run:?}");
        assert_eq!(run.stderr, format!("sheaf: {point}: {why}\n"));
        assert_eq!(mounts(&hosts, 2), 0, "{point}");
        let umount = hosts.sheaf(2, &["umount", point]);
        assert_ne!(umount.code, Some(0), "{umount:?}");
    }
    // The same place again, and one within.
    assert_eq!(mount(&hosts, 2, POINT).code, Some(0));
    let there = mounts(&hosts, 2);
    assert!(there > 0);
    let twice = mount(&hosts, 2, POINT);
    assert_ne!(twice.code, Some(0));
    let why =
        format!("sheaf: {POINT}: something is mounted there: sheaf umount takes a view away\n");
    assert_eq!(twice.stderr, why);
    assert_eq!(mounts(&hosts, 2), there);
    assert_eq!(hosts.sheaf(2, &["umount", POINT]).code, Some(0));
    // Where something of somebody else's is mounted.
    assert_eq!(hosts.shell_at(2, "/run", "mount -t tmpfs none view").code, Some(0));
    let taken = mount(&hosts, 2, POINT);
    let why = format!("sheaf: {POINT}: something is mounted there\n");
    assert_eq!((taken.code == Some(0), taken.stderr), (false, why));
}

#[test]
fn nothing_is_taken_away_that_is_no_view() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    let made = hosts.shell_at(
        2,
        "/run",
        "mkdir -p a/hosts a/b; mount -t tmpfs none a; mkdir a/b; mount -t tmpfs sheaf2 a/b",
    );
    assert_eq!(made.code, Some(0), "{made:?}");
    let there = hosts.shell_at(2, "/", "cat /proc/mounts").stdout;
    let part = format!("is a part of the view at {POINT}: sheaf umount {POINT}");
    let hosts_of = format!("{POINT}/hosts/h1");
    let own = format!("{POINT}/hosts/h2");
    for (point, why) in [
        ("/", "no view is mounted there"),
        ("/run", "no view is mounted there"),
        ("/run/a", "no view is mounted there"),
        ("/run/a/b", "no view is mounted there"),
        ("/proc", "no view is mounted there"),
        (&hosts_of, &part),
        (&own, &part),
    ] {
        let run = hosts.sheaf(2, &["umount", point]);
        assert_eq!((run.code, run.stderr), (Some(2), format!("sheaf: {point}: {why}\n")));
    }
    assert_eq!(hosts.shell_at(2, "/", "cat /proc/mounts").stdout, there);
    // Nor is root's by somebody else.
    let program = hosts.machines.dir().join("sheaf");
    let as_nobody =
        format!("exec setpriv --reuid 65534 --clear-groups {} umount {POINT}", program.display());
    let run = hosts.shell_at(2, "/", &as_nobody);
    assert_eq!(run.stderr, format!("sheaf: {POINT}: user 0 has mounted it\n"), "{run:?}");
    assert_eq!(hosts.shell_at(2, "/", "cat /proc/mounts").stdout, there);
    assert_eq!(hosts.sheaf(2, &["umount", POINT]).code, Some(0));
}

#[test]
fn machine_without_fuse_is_told_so() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::without_views(2, "") else { return };
    // A /dev of its own that has all but this.
    let script = "mkdir dev; mount -t tmpfs none dev; for name in null zero random urandom; do
        : >dev/$name; mount --bind /dev/$name dev/$name; done; mount --move dev /dev";
    let made = hosts.shell_at(2, "/run", script);
    assert_eq!(made.code, Some(0), "{made:?}");
    let run = mount(&hosts, 2, POINT);
    assert_ne!(run.code, Some(0), "{run:?}");
    let why = "sheaf: /dev/fuse cannot be opened: No such file or directory (ENOENT): modprobe fuse loads the module, \
               and a container needs this device\n";
    assert_eq!(run.stderr, why);
    assert_eq!(mounts(&hosts, 2), 0);
    assert_eq!(fs::read_dir(hosts.machines.root(2).join("run/view")).unwrap().count(), 0);
    // On another host it is there.
    assert_eq!(mount(&hosts, 1, POINT).code, Some(0));
}

#[test]
fn session_that_is_gone_and_hosts_that_there_are_not_are_said() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::without_views(2, "") else { return };
    let none = hosts.sheaf(2, &["--session", "none", "mount", POINT]);
    assert_eq!(none.code, Some(3), "{none:?}");
    assert!(none.stderr.contains("none"), "{none:?}");
    let empty =
        Run::of(hosts.machines.sheaf(&["-w", "h1!h1", "mount", "/run/user"]).output().unwrap());
    assert!(matches!(empty.code, Some(2 | 3)), "{empty:?}");
    assert!(!empty.stderr.is_empty() && empty.stdout.is_empty(), "{empty:?}");
    assert_eq!(hosts.machines.run(&["down"]).code, Some(0));
    // None of the hosts can be reached.
    let made = hosts.machines.command(LOGIN, "mkdir", &["/run/view"]).status().unwrap();
    assert!(made.success());
    let none = |options: &[&str]| {
        let words = [options, &["--timeout", "5", "-w", "nohost", "mount", POINT]].concat();
        Run::of(hosts.machines.sheaf(&words).output().unwrap())
    };
    let plain = none(&[]);
    let why = "sheaf: there is no host to mount: nohost: ";
    assert_eq!((plain.code, plain.stdout.as_str()), (Some(3), ""), "{plain:?}");
    assert!(plain.stderr.lines().any(|line| line.starts_with(why)), "{plain:?}");
    let json = none(&["--json"]);
    assert_eq!(json.code, Some(3), "{json:?}");
    let records = json.stdout.lines().map(serde_json::from_str::<serde_json::Value>);
    let records: Vec<_> = records.map(|record| record.expect("a record").to_string()).collect();
    let is_it = |record: &String| record.contains("there is no host to mount: nohost: ");
    assert!(records.iter().any(is_it), "{records:?}");
    // This machine alone is not what is meant.
    let alone = hosts.sheaf(2, &["mount", POINT]);
    let why = "sheaf: there is no session of this host to mount: sheaf up starts one\n";
    assert_eq!((alone.code, alone.stderr.as_str()), (Some(3), why));
    let gone = hosts.sheaf(2, &["--session", "views", "mount", POINT]);
    assert_ne!(gone.code, Some(0), "{gone:?}");
    assert_eq!((mounts(&hosts, 2), mounts(&hosts, LOGIN)), (0, 0));
}

#[test]
fn nothing_is_written_to_what_is_mounted_read_only() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::without_views(2, "") else { return };
    fs::write(hosts.disk(1, "f"), "content").unwrap();
    let run = hosts.sheaf(2, &["--quiet", "mount", "--read-only", POINT]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(fs::read_to_string(hosts.at(2, 1, "f")).unwrap(), "content");
    for owner in hosts.all() {
        for (name, result) in [
            ("write", fs::write(hosts.at(2, owner, "new"), "x")),
            ("mkdir", fs::create_dir(hosts.at(2, owner, "d"))),
            ("rename", fs::rename(hosts.at(2, 1, "f"), hosts.at(2, 1, "g"))),
            ("unlink", fs::remove_file(hosts.at(2, 1, "f"))),
        ] {
            let error = super::hosts::errno(result);
            assert_eq!(error, Some(rustix::io::Errno::ROFS), "{name} on h{owner}");
        }
    }
    // Groups are of the view.
    let read = "mkdir groups/g; echo 'add h1:/f' >groups/g/ctl; cat groups/g/data; rmdir groups/g";
    let group = hosts.shell_at(2, POINT, read);
    assert_eq!((group.code, group.stdout.as_str()), (Some(0), "content"), "{group:?}");
    for data in ["groups/g/data", "all/f@data"] {
        let write = format!("mkdir -p groups/g; echo 'add h1:/f' >groups/g/ctl; echo x >>{data}");
        let written = hosts.shell_at(2, POINT, &write);
        assert!(written.stderr.contains("Read-only file system"), "{data}: {written:?}");
    }
    assert_eq!(fs::read_to_string(hosts.disk(1, "f")).unwrap(), "content");
}

#[test]
fn noexec_and_read_only_mounts_stay_enforced_in_the_view() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::without_views(2, "") else { return };
    for owner in hosts.all() {
        let program = hosts.disk(owner, "program");
        fs::write(&program, "#!/bin/sh\necho ran\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let run_all = || {
        let each = hosts.all().map(|owner| hosts.shell(2, &inside(owner, "program")).code);
        each.collect::<Vec<_>>()
    };
    assert_eq!(hosts.sheaf(2, &["--quiet", "mount", POINT]).code, Some(0));
    assert_eq!(run_all(), [Some(0), Some(0)]);
    assert_eq!(hosts.sheaf(2, &["--quiet", "umount", POINT]).code, Some(0));
    assert_eq!(hosts.sheaf(2, &["--quiet", "mount", "--no-exec", POINT]).code, Some(0));
    // What a shell says of what it may not run.
    assert_eq!(run_all(), [Some(126), Some(126)]);
    assert_eq!(hosts.sheaf(2, &["--quiet", "umount", POINT]).code, Some(0));
    // The second step of a mount that is read-only would take away what the first has kept.
    let script = "mount --bind files files; mount -o remount,bind,noexec files";
    let made = hosts.shell_at(2, "/root", script);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert_eq!(hosts.sheaf(2, &["--quiet", "mount", "--read-only", POINT]).code, Some(0));
    assert_eq!(run_all(), [Some(0), Some(126)]);
    let written = hosts.shell(2, "echo x >h2/program");
    assert_ne!(written.code, Some(0), "{written:?}");
}

/// In a view of root's the own host's files are the export itself: so is what is mounted below it.
#[test]
fn own_host_has_what_is_mounted_below_its_export() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::without_views(2, "") else { return };
    let make = "mkdir over over/in fixed 'a b'; echo beneath >over/f; chmod 777 over
                mount -t tmpfs none over; mkdir over/in; echo over >over/f
                mount -t tmpfs none over/in; echo within >over/in/f
                mount -t tmpfs none 'a b'; echo blank >'a b/f'
                echo fixed >fixed/f; mount --bind fixed fixed; mount -o remount,bind,ro fixed
                mount -t tmpfs none one; mount -t tmpfs none one; echo two >one/f";
    let make = format!("mkdir one; {make}");
    let run = hosts.shell_at(2, EXPORT, &make);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    for option in ["--quiet", "--no-exec"] {
        for host in hosts.all() {
            assert_eq!(hosts.sheaf(host, &["--quiet", "mount", option, POINT]).code, Some(0));
            let seen = hosts.shell(host, "cd h2; cat over/f over/in/f 'a b/f' fixed/f one/f");
            let all = "over\nwithin\nblank\nfixed\ntwo\n";
            assert_eq!((seen.stdout.as_str(), seen.stderr.as_str()), (all, ""), "h{host}");
            let written = hosts.shell(host, "echo x >h2/fixed/new");
            assert_ne!(written.code, Some(0), "h{host}: {written:?}");
            assert_eq!(hosts.shell(host, "echo x >h2/over/in/new").code, Some(0));
        }
        // What a view has bound is there as it was when the view is gone.
        for host in hosts.all() {
            assert_eq!(hosts.sheaf(host, &["umount", POINT]).code, Some(0));
        }
        let left = hosts.shell_at(2, EXPORT, "cat over/in/f over/f");
        assert_eq!(left.stdout, "within\nover\n", "{left:?}");
    }
}

/// Two paths of one directory: what is mounted below one is not below the other, and one may be read only.
#[test]
fn directory_at_two_mounts_is_two_directories() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::without_views(2, "") else { return };
    let make = "mkdir a a/m b rw ro; echo below >a/m/f; echo x >rw/f
                mount -t tmpfs none a/m; echo precious >a/m/f
                mount --bind a b; mount --bind rw ro; mount -o remount,bind,ro ro";
    let run = hosts.shell_at(1, EXPORT, make);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    for first in ["a rw", "b ro"] {
        assert_eq!(hosts.sheaf(2, &["--quiet", "mount", POINT]).code, Some(0));
        // Whichever of them is known before.
        let seen = hosts.shell(2, &format!("cd h1; ls -lR {first} >/dev/null; cat a/m/f b/m/f"));
        assert_eq!(seen.stdout, "precious\nbelow\n", "{first}: {seen:?}");
        let written = hosts.shell(2, "cd h1; echo 1 >rw/f && echo 2 >rw/new && rm rw/new");
        assert_eq!((written.code, written.stderr.as_str()), (Some(0), ""), "{first}");
        for refused in ["echo 3 >ro/f", "echo 4 >ro/new", "rm ro/f", "ln rw/f ro/l", "mv rw/f ro/"]
        {
            let run = hosts.shell(2, &format!("cd h1; {refused}"));
            assert_ne!(run.code, Some(0), "{first}: {refused}");
        }
        let inodes = hosts.shell(2, "cd h1; stat -c %i rw/f ro/f | uniq | wc -l; cat ro/f");
        assert_eq!(inodes.stdout, "1\n1\n", "{first}");
        if first == "b ro" {
            assert_eq!(
                hosts.shell(2, "cd h1; rm -rf b/m/*; ls b/m; cat a/m/f").stdout,
                "precious\n"
            );
        }
        assert_eq!(hosts.sheaf(2, &["umount", POINT]).code, Some(0));
    }
    assert_eq!(hosts.shell_at(1, EXPORT, "cat a/m/f; umount a/m && ls a/m").stdout, "precious\n");
}

/// What commands say of a view on `h1`, below what it exports.
fn tools_do_not_enter(hosts: &ViewHosts) {
    const REFUSED: &str = "h1:/view: A mounted view of Sheaf is not entered (EVIEW)";
    for (arguments, found) in [
        (&["du", "/"][..], "h1:/view\n"),
        (&["grep", "-r", "content", "/"], "h2:/f:content\n"),
        (&["ls", "-R", "/"], "h1:/plain\nh1:/view\n"),
        (&["ls", "h1:/view"], ""),
        (&["rm", "-r", "h1:/view"], ""),
    ] {
        let run = hosts.machines.run(arguments);
        assert_eq!(run.code, Some(4), "{arguments:?}: {run:?}");
        assert_eq!(run.stderr.matches("(EVIEW)").count(), 1, "{arguments:?}: {run:?}");
        assert!(run.stderr.contains(REFUSED), "{arguments:?}: {run:?}");
        assert!(run.stdout.contains(found), "{arguments:?}: {run:?}");
    }
    // Nothing is made or changed by the way through a view.
    for path in ["h1:/view/hosts/h2/f", "h1:/view/hosts/h2/new", "h1:/view/groups/new"] {
        for command in [&["write", "--create", path][..], &["mkdir", path], &["rm", path]] {
            let run = hosts.machines.run(command);
            assert_eq!(run.code, Some(4), "{command:?}: {run:?}");
        }
    }
    let other = hosts.machines.run(&["cat", "h2:/f"]);
    assert_eq!((other.code, other.stdout.as_str()), (Some(0), "content"), "{other:?}");
    let seen = hosts.machines.run(&["stat", "-c", "%F", "h1:/view"]);
    assert_eq!((seen.code, seen.stdout.as_str()), (Some(0), "h1:/view:directory\n"), "{seen:?}");
}

#[test]
fn view_within_a_view_is_not_gone_into() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::without_views(2, "") else { return };
    // Of root, and of one that is mounted later at the same place.
    let within = hosts.shell_at(
        1,
        "/root",
        "mkdir files/view files/plain && mount -t tmpfs none files/plain",
    );
    assert_eq!(within.code, Some(0), "{within:?}");
    fs::write(hosts.disk(2, "f"), "content").unwrap();
    assert_eq!(hosts.sheaf(2, &["--quiet", "mount", POINT]).code, Some(0));
    let list = |name: &str| hosts.shell(2, &format!("ls -A h1/{name}"));
    for _ in 0..2 {
        let before = list("view");
        assert_eq!((before.code, before.stdout.as_str()), (Some(0), ""), "{before:?}");
        assert_eq!(hosts.sheaf(1, &["--quiet", "mount", "/root/files/view"]).code, Some(0));
        // On its own host it is there.
        let own = hosts.shell_at(1, "/root/files/view", "cat hosts/h2/f");
        assert_eq!((own.code, own.stdout.as_str()), (Some(0), "content"), "{own:?}");
        let within = list("view");
        assert_eq!(within.code, Some(2), "{within:?}");
        assert!(within.stderr.contains("Too many levels of symbolic links"), "{within:?}");
        // All others are, and the directory itself is seen.
        let all =
            hosts.shell(2, "ls -A h1 && ls -l h1 >/dev/null && ls -A h1/plain && find h1/plain");
        assert_eq!(
            (all.code, all.stdout.as_str()),
            (Some(0), "plain\nview\nh1/plain\n"),
            "{all:?}"
        );
        // Whoever goes through all is told once, and comes to an end.
        for top in ["hosts/h1", "all"] {
            let found = hosts.shell_at(2, POINT, &format!("find {top} | sort"));
            assert_eq!(found.stderr.matches("Too many levels").count(), 1, "{found:?}");
            let all = ["", "/f", "/plain", "/view"].map(|name| format!("{top}{name}\n"));
            let all = all.into_iter().filter(|name| top == "all" || !name.ends_with("/f\n"));
            assert_eq!(found.stdout, all.collect::<String>());
        }
        tools_do_not_enter(&hosts);
        assert_eq!(hosts.sheaf(1, &["--quiet", "umount", "/root/files/view"]).code, Some(0));
    }
    assert_eq!(hosts.sheaf(2, &["--quiet", "umount", POINT]).code, Some(0));
}
