//! Views of one directory, and views that show files otherwise than their owners have them.
use super::hosts::{EXPORT, ViewHosts};
use sheaf_testing::home::Run;
use sheaf_testing::sessions::{SOON, turn, wait_until};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// Where the tests mount more.
const ONE: &str = "/run/one";

/// Mounts a directory of host 1 on host 2 with these options.
fn mount_one(hosts: &ViewHosts, options: &[&str], directory: &str) {
    let mut args = vec!["--quiet", "mount"];
    args.extend(options);
    let directory = format!("h1:{EXPORT}/{directory}");
    args.extend([directory.as_str(), ONE]);
    let run = hosts.sheaf(2, &args);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
}

/// The output of a script on a host, which must succeed.
#[track_caller]
fn shell(hosts: &ViewHosts, host: usize, directory: &str, script: &str) -> String {
    let run = hosts.shell_at(host, directory, script);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    run.stdout
}

#[test]
fn one_directory_of_a_host_is_a_view() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::without_views(2, "") else { return };
    shell(&hosts, 2, "/run", "mkdir one");
    let make =
        "mkdir -p d/e; echo text > d/e/f; ln -s $PWD/d/e/f d/link; ln -s ../../x d/out; : > x";
    shell(&hosts, 1, EXPORT, make);
    for why in ["none: No such file or directory (ENOENT)", "x: Not a directory (ENOTDIR)"] {
        let (name, _) = why.split_once(':').unwrap();
        let run = hosts.sheaf(2, &["--quiet", "mount", &format!("h1:{EXPORT}/{name}"), ONE]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert_eq!(run.stderr, format!("sheaf: h1:{EXPORT}/{why}\n"));
    }
    let own = hosts.sheaf(2, &["--quiet", "mount", &format!("h2:{EXPORT}"), ONE]);
    assert!(own.code == Some(2) && own.stderr.contains("is this host: mount --bind"), "{own:?}");
    mount_one(&hosts, &[], "d");
    assert_eq!(shell(&hosts, 2, ONE, "ls; cat e/f link"), "e\nlink\nout\ntext\ntext\n");
    let status = hosts.sheaf(2, &["status", "--mounts"]);
    assert!(status.stdout.starts_with(&format!("{ONE}: ")), "{status:?}");
    // Nothing leads out of it, and what is done in it is done at the owner.
    let out = hosts.shell_at(2, ONE, "cat out");
    assert!(out.stderr.contains("No such file"), "{out:?}");
    shell(&hosts, 2, ONE, "echo more >> e/f; mkdir new; mv e/f new/g; rm link");
    assert_eq!(shell(&hosts, 1, EXPORT, "ls d; cat d/new/g"), "e\nnew\nout\ntext\nmore\n");
    // A file system below it is a mount of its own here as well.
    shell(&hosts, 1, EXPORT, "mount -t tmpfs none d/e; : > d/e/within");
    assert_eq!(shell(&hosts, 2, ONE, "ls e; stat -c %d e . | uniq | wc -l"), "within\n2\n");
    shell(&hosts, 1, EXPORT, "umount -l d/e");
    // The owner's server comes back, and so does the view.
    hosts.server(1).signal(rustix::process::Signal::KILL);
    wait_until("the files are there again", || {
        hosts.shell_at(2, ONE, "cat new/g").stdout == "text\nmore\n"
    });
    let again = hosts.sheaf(2, &["mount", &format!("h1:{EXPORT}/d"), ONE]);
    assert!(again.stderr.contains("something is mounted there"), "{again:?}");
    assert_eq!(hosts.sheaf(2, &["umount", ONE]).code, Some(0));
    assert_eq!(shell(&hosts, 2, "/run", "ls one; grep -c /run/one /proc/mounts || :"), "0\n");
}

#[test]
fn names_and_attributes_are_kept_for_a_time() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    shell(&hosts, 2, "/run", "mkdir one");
    shell(&hosts, 1, EXPORT, "umask 022; mkdir d; echo one > d/f; echo two > d/g");
    mount_one(&hosts, &["--attribute-cache", "3600"], "d");
    let seen = |name: &str| shell(&hosts, 2, ONE, &format!("stat -c '%a %s' {name}"));
    let elsewhere = |script: &str| {
        let run = hosts.shell(3, script);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    };
    assert_eq!(seen("f g"), "644 4\n644 4\n");
    // A change by a program of the owner itself is not seen in this time.
    shell(&hosts, 1, EXPORT, "chmod 600 d/f");
    assert_eq!(seen("f"), "644 4\n");
    // One through any view is, at once.
    elsewhere("chmod 640 h1/d/f");
    assert_eq!(seen("f"), "640 4\n");
    elsewhere("echo longer >> h1/d/f");
    assert_eq!(seen("f"), "640 11\n");
    shell(&hosts, 2, ONE, "chmod 604 f; echo more >> f");
    assert_eq!(seen("f"), "604 16\n");
    elsewhere("mv h1/d/g h1/d/h");
    assert_eq!(shell(&hosts, 2, ONE, "ls; test ! -e g; cat h"), "f\nh\ntwo\n");
    elsewhere("rm h1/d/h");
    assert_eq!(shell(&hosts, 2, ONE, "test ! -e h; stat -c %h ."), "2\n");
    // New files and contents are seen at once in any case, also of a file that replaces one that is known.
    shell(&hosts, 1, EXPORT, "echo new > d/new; echo other > x; mv x d/f");
    assert_eq!(shell(&hosts, 2, ONE, "cat new f"), "new\nother\n");
    // What is kept is over when the time is.
    assert_eq!(hosts.sheaf(2, &["umount", ONE]).code, Some(0));
    mount_one(&hosts, &["--attribute-cache", "0.1"], "d");
    let before = seen("f");
    shell(&hosts, 1, EXPORT, "chmod 611 d/f");
    wait_until("the time is over", || seen("f") != before);
    let wrong = hosts.sheaf(2, &["mount", "--attribute-cache", "-1", &format!("h1:{EXPORT}"), ONE]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert_eq!(hosts.sheaf(2, &["umount", ONE]).code, Some(0));
}

#[test]
fn link_here_leads_to_own_files() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    for host in hosts.all() {
        fs::write(hosts.disk(host, "name"), format!("h{host}")).unwrap();
        assert_eq!(hosts.shell(host, "cat here/name").stdout, format!("h{host}"));
    }
    assert_eq!(hosts.sheaf(2, &["umount", super::hosts::POINT]).code, Some(0));
}

#[test]
fn ids_are_mapped_between_hosts() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::without_views(2, "") else { return };
    shell(&hosts, 2, "/run", "mkdir one");
    // The user is 2000 there and 1000 here, the group 50 there and 60 here.
    let make = "mkdir d; cd d; for id in 0 1000 2000 3000; do : > f$id; chown $id:$id f$id; done
chmod 700 f2000; chown 2000:50 . f2000
if command -v setfacl >/dev/null; then setfacl -m u:2000:r f3000; fi";
    shell(&hosts, 1, EXPORT, make);
    shell(&hosts, 2, "/run", "printf '# users\\nu:2000:1000\\ng:50:60\\n' > ids");
    for rules in ["u:2000:1000,g:50:60", "/run/ids"] {
        mount_one(&hosts, &["--idmap", rules], "d");
        let shown = shell(&hosts, 2, ONE, "stat -c '%n %u %g' f0 f1000 f2000 f3000 .");
        let rest = "f1000 65534 1000\nf2000 1000 60\nf3000 3000 3000\n. 1000 60\n";
        assert_eq!(shown, format!("f0 0 0\n{rest}"));
        assert_eq!(shell(&hosts, 2, ONE, "ls -n f2000 | cut -d' ' -f3,4"), "1000 60\n");
        let user = |uid: u32, script: &str| {
            let script =
                format!("exec setpriv --reuid {uid} --regid 60 --clear-groups sh -euc '{script}'");
            hosts.shell_at(2, ONE, &script)
        };
        let made = user(1000, "rm -f new; echo x > f2000; cat f2000; : > new; stat -c %u:%g new");
        assert_eq!((made.code, made.stdout.as_str()), (Some(0), "x\n1000:60\n"), "{made:?}");
        assert_eq!(shell(&hosts, 1, EXPORT, "stat -c %u:%g d/new"), "2000:50\n");
        // The number that a rule gives to another user gives no rights.
        for uid in [2000, 3000] {
            let refused = user(uid, "cat f2000");
            assert!(refused.stderr.contains("Permission denied"), "{uid}: {refused:?}");
        }
        assert_eq!(shell(&hosts, 2, ONE, "chown 1000:60 f0; stat -c %u:%g f0"), "1000:60\n");
        assert_eq!(shell(&hosts, 1, EXPORT, "stat -c %u:%g d/f0; chown 0:0 d/f0"), "2000:50\n");
        let nobody = hosts.shell_at(2, ONE, "chown 2000 f0");
        assert!(nobody.stderr.contains("Invalid argument"), "{nobody:?}");
        if sheaf_testing::program::have("getfacl") {
            let list = shell(&hosts, 2, ONE, "getfacl -nc f3000 | grep ^user:.*:r--");
            assert!(list.contains("user:1000:r--"), "{list}");
            shell(&hosts, 2, ONE, "setfacl -m u:1000:rw f3000");
            let list = shell(&hosts, 1, EXPORT, "getfacl -nc d/f3000");
            assert!(list.contains("user:2000:rw-"), "{list}");
            shell(&hosts, 1, EXPORT, "setfacl -m u:2000:r d/f3000");
        }
        assert_eq!(hosts.sheaf(2, &["umount", ONE]).code, Some(0));
    }
    for (rules, why) in [
        ("u:1:2,u:1:3", "id 1 is in two rules"),
        ("u:1", "u:1: not KIND:HOSTID:LOCALID"),
        ("/run/none", "--idmap /run/none: No such file or directory"),
    ] {
        let run = hosts.sheaf(2, &["mount", "--idmap", rules, &format!("h1:{EXPORT}"), ONE]);
        assert!(run.code == Some(2) && run.stderr.contains(why), "{run:?}");
    }
}

/// Whatever stays in the background keeps no pipe of the command open.
#[test]
fn mount_with_json_returns_when_the_view_is_there() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::without_views(2, "") else { return };
    shell(&hosts, 2, "/run", "mkdir one");
    let one = format!("h1:{EXPORT}");
    for (words, point) in [(&[super::hosts::POINT][..], super::hosts::POINT), (&[&*one, ONE], ONE)]
    {
        let mut command = hosts.command(2, &[&["--json", "mount"], words].concat());
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(Run::of(command.output().unwrap())));
        let ran = told.recv_timeout(SOON);
        // Also if it has not returned.
        let list = hosts.shell_at(2, point, "ls -A | wc -l");
        assert_eq!(hosts.sheaf(2, &["umount", point]).code, Some(0));
        let run = ran.unwrap_or_else(|_| panic!("{words:?} has not returned"));
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
        assert!(run.stdout.lines().all(|line| line.starts_with('{')), "{run:?}");
        assert_eq!(list.stdout, if point == ONE { "0\n" } else { "3\n" }, "{list:?}");
    }
}

#[test]
fn owner_group_and_bits_can_be_set_for_all_files() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::without_views(2, "") else { return };
    shell(&hosts, 2, "/run", "mkdir one");
    shell(&hosts, 1, EXPORT, "mkdir d; cd d; : > f; ln -s f l; chmod 600 f; chown 5:6 f");
    mount_one(&hosts, &["-o", "uid=1000,gid=1001", "-o", "umask=027"], "d");
    let shown = shell(&hosts, 2, ONE, "stat -c '%u %g %a' f .; stat -c '%u %g' l; ls -n | wc -l");
    assert_eq!(shown, "1000 1001 750\n1000 1001 750\n1000 1001\n3\n");
    // The file's own owner and bits decide.
    let user = "exec setpriv --reuid 1000 --regid 1001 --clear-groups cat f";
    let refused = hosts.shell_at(2, ONE, user);
    assert!(refused.stderr.contains("Permission denied"), "{refused:?}");
    shell(&hosts, 2, ONE, "chown 1000:1001 f; chmod 644 f");
    assert_eq!(shell(&hosts, 1, EXPORT, "stat -c '%u %g %a' d/f"), "5 6 644\n");
    assert_eq!(shell(&hosts, 2, ONE, user), "");
    let refused = hosts.shell_at(2, ONE, "chown 7 f");
    assert!(refused.stderr.contains("Operation not permitted"), "{refused:?}");
    for option in ["uid=-1", "gid=x", "umask=9", "allow_other"] {
        let run = hosts.sheaf(2, &["mount", "-o", option, &format!("h1:{EXPORT}"), ONE]);
        assert_eq!(run.code, Some(2), "{run:?}");
    }
}

/// A loop device over a file, until this is dropped.
struct LoopDevice(String);

impl LoopDevice {
    fn of(file: &Path) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        let name = String::from_utf8(made.stdout).ok()?.trim().to_owned();
        (made.status.success() && !name.is_empty()).then_some(Self(name))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn block_device_is_a_file_that_root_reads_with_an_option() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::without_views(2, "") else { return };
    shell(&hosts, 2, "/run", "mkdir one");
    let (bytes, image) = (64 << 10, hosts.disk(1, "image"));
    fs::write(&image, (0..bytes).map(|at| (at % 251) as u8).collect::<Vec<_>>()).unwrap();
    let Some(made) = LoopDevice::of(&image) else {
        return sheaf_testing::skipped("no loop device can be made");
    };
    let device = fs::metadata(&made.0).unwrap().rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    shell(&hosts, 1, EXPORT, &format!("mkdir d; mknod -m 600 d/disk b {major} {minor}"));
    let read = "head -c 8192 disk | sha256sum";
    let there = hosts.shell_at(1, &format!("{EXPORT}/d"), read);
    if there.code != Some(0) || !there.stderr.is_empty() {
        return sheaf_testing::skipped("devices are not read on the hosts");
    }
    mount_one(&hosts, &[], "d");
    let refused = hosts.shell_at(2, ONE, "stat -c %F disk; cat disk");
    assert!(refused.stdout == "block special file\n" && refused.code != Some(0), "{refused:?}");
    assert_eq!(hosts.sheaf(2, &["umount", ONE]).code, Some(0));
    mount_one(&hosts, &["--devices"], "d");
    let shown = shell(&hosts, 2, ONE, "stat -c '%F %s %a' disk; find -type f");
    assert_eq!(shown, format!("regular file {bytes} 400\n./disk\n"));
    assert_eq!(shell(&hosts, 2, ONE, read), there.stdout);
    for (user, script) in [(0, ": >> disk"), (1000, "cat disk"), (0, ": > disk")] {
        let script = format!("exec setpriv --reuid {user} --clear-groups sh -c '{script}'");
        let refused = hosts.shell_at(2, ONE, &script);
        assert!(refused.code != Some(0), "{user}: {refused:?}");
    }
    assert_eq!(hosts.sheaf(2, &["umount", ONE]).code, Some(0));
}
