//! Groups of files as files, and the merge of all hosts, in a mounted view.
use crate::mount::{View, can_mount, shell};
use rustix::process::Signal;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{NAME, Up, turn};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Three hosts with files that are alike, that differ, and that not all have.
fn exports(home: &Home) -> String {
    for (number, host) in ["n1", "n2", "n3"].into_iter().enumerate() {
        let etc = home.path().join("export").join(host).join("etc");
        fs::create_dir_all(&etc).unwrap();
        fs::write(etc.join("same"), "same\n").unwrap();
        fs::write(etc.join("load"), format!("{}.5 2\n", number + 1)).unwrap();
        fs::write(etc.join("services"), format!("tcp {number}\nudp 53\n")).unwrap();
        symlink("/etc/same", etc.join("link")).unwrap();
    }
    let export = home.path().join("export");
    fs::write(export.join("n2/etc/only"), "only n2\n").unwrap();
    fs::write(export.join("n1/etc/odd@data"), "odd\n").unwrap();
    fs::create_dir(export.join("n3/both")).unwrap();
    fs::write(export.join("n3/both/x*"), "star\n").unwrap();
    fs::write(export.join("n1/both"), "a file\n").unwrap();
    export.join("%h").to_str().unwrap().to_owned()
}

/// What a shell says in the view: its output and its errors.
fn says(view: &View<'_>, script: &str) -> Run {
    shell(script, &view.point)
}

fn reads(view: &View<'_>, script: &str) -> String {
    let said = says(view, script);
    assert_eq!((said.code, &said.stderr[..]), (Some(0), ""), "{script}: {said:?}");
    said.stdout
}

#[test]
fn group_is_read_and_written_by_plain_programs() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let export = exports(&home);
    let view = View::new(&home, &["--processes", "3", "--export", &export], "view");
    // Aggregations.
    let made = "mkdir groups/load && cd groups/load && ls && echo 'add n[1-3]:/etc/load' >ctl";
    assert_eq!(reads(&view, made), "ctl\ndata\nfiles\nlines\nsize\nstat\nstatus\nsum\n");
    assert_eq!(reads(&view, "cat groups/load/data"), "1.5 2\n2.5 2\n3.5 2\n");
    assert_eq!(
        reads(&view, "cd groups/load; cat size sum files"),
        "3\n7.5 6\nn1:/etc/load\nn2:/etc/load\nn3:/etc/load\n"
    );
    let bound = "cd groups/load; echo bind read data avg 1 >ctl; cat data status ctl";
    assert_eq!(
        reads(&view, bound),
        "2.5\nread data: 3 files\nadd n[1-3]:/etc/load\nbind read data avg 1\n"
    );
    // What a group says it is makes the same group.
    let again = "mkdir groups/again; cat groups/load/ctl >groups/again/ctl; cat groups/again/data";
    assert_eq!(reads(&view, again), "2.5\n");
    // Lines, and programs that know nothing of groups.
    reads(&view, "mkdir groups/svc; echo add n[1-3]:/etc/services >groups/svc/ctl");
    assert_eq!(reads(&view, "grep udp groups/svc/lines"), "n[1-3]: udp 53\n");
    assert_eq!(reads(&view, "awk '/tcp/ {print $3}' groups/svc/lines | paste -sd+"), "0+1+2\n");
    assert_eq!(reads(&view, "paste -d, groups/load/data groups/load/size"), "2.5,3\n");
    let python = "python3 -c 'print(open(\"groups/svc/data\").read().count(\"udp\"))'";
    assert_eq!(reads(&view, python), "3\n");
    // Writing.
    let export = home.path().join("export");
    reads(
        &view,
        "mkdir groups/cfg; echo add n[1-3]:/etc/same >groups/cfg/ctl; echo x >groups/cfg/data",
    );
    reads(&view, "echo yy >>groups/cfg/data");
    for host in ["n1", "n2", "n3"] {
        assert_eq!(fs::read_to_string(export.join(host).join("etc/same")).unwrap(), "x\nyy\n");
    }
    assert_eq!(reads(&view, "cat groups/cfg/status"), "write data: 3 files\n");
    // Other names, and none.
    reads(&view, "mv groups/cfg groups/config; rmdir groups/svc; rmdir groups/again");
    assert_eq!(reads(&view, "ls groups"), "config\nload\n");
    assert_eq!(reads(&view, "cat groups/config/data | sort -u"), "x\nyy\n");
}

#[test]
fn links_are_rules_of_a_group() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let export = exports(&home);
    let view = View::new(&home, &["--processes", "3", "--export", &export], "view");
    let point = view.point.to_str().unwrap();
    let made = format!(
        "mkdir groups/g; cd groups/g; ln -s ../../hosts/n1/etc/load a; ln -s {point}/all/etc/only b
         ln -s 'n[2-3]:/etc/lo*' c; readlink c; cat files; cat data"
    );
    assert_eq!(
        reads(&view, &made),
        "n[2-3]:/etc/lo*\nn1:/etc/load\nn2:/etc/only\nn2:/etc/load\nn3:/etc/load\n1.5 2\nonly n2\n2.5 2\n3.5 2\n"
    );
    assert_eq!(reads(&view, "cd groups/g; rm c a; cat files; ls -d [abc]"), "n2:/etc/only\nb\n");
    for (script, why) in [
        ("ln -s n1:/x groups/g/data", "File exists"),
        ("ln -s n1:/x groups/g/b", "File exists"),
        ("ln -s /etc/passwd groups/g/x", "Invalid argument"),
        ("ln -s n9:/x groups/g/x", "Invalid argument"),
        ("rm groups/g/data", "Operation not permitted"),
        ("touch groups/g/new", "Operation not permitted"),
        ("mkdir groups/g/d", "Operation not permitted"),
        ("touch groups/x", "Operation not permitted"),
        ("chmod 777 groups/g/data", "Operation not permitted"),
        ("mkdir groups/g", "File exists"),
        ("echo x >groups/g/size", "Permission denied"),
    ] {
        let said = says(&view, script);
        // Root may write where no bit says so, up to what the file system itself says.
        assert!(said.code != Some(0) && said.stderr.contains(why), "{script}: {said:?}");
    }
    assert!(reads(&view, "cat groups/g/status").contains("n9"));
}

#[test]
fn missing_group_members_are_errors_named_in_status() {
    if !can_mount() {
        return;
    }
    let _turn = turn();
    let home = Home::new();
    let export = exports(&home);
    let up = Up::at(home, &["--processes", "3", "--export", &export]);
    let view = View::new(&up.home, &["--session", NAME], "view");
    reads(&view, "mkdir groups/g; echo add n[1-3]:/etc/only >groups/g/ctl");
    let said = says(&view, "cat groups/g/data");
    assert_eq!((said.code, &said.stdout[..]), (Some(1), "only n2\n"), "{said:?}");
    assert!(said.stderr.contains("Input/output error"), "{said:?}");
    assert_eq!(
        reads(&view, "cat groups/g/status"),
        "read data: 2 of 3 failed\nn[1,3]:/etc/only: No such file or directory (ENOENT)\n"
    );
    // Nobody has it: that is what is said.
    reads(&view, "mkdir groups/none; echo add n[1-3]:/etc/none >groups/none/ctl");
    let said = says(&view, "cat groups/none/data");
    assert!(said.code == Some(1) && said.stderr.contains("No such file"), "{said:?}");
    // Nothing is written, or emptied, where one file does not open.
    let said = says(&view, "echo x >groups/g/data");
    assert!(said.code != Some(0) && said.stderr.contains("cannot create"), "{said:?}");
    assert_eq!(reads(&view, "cat hosts/n2/etc/only"), "only n2\n");
    // Commands are done all or none, and what is wrong is told.
    let said = says(&view, "printf 'clear\\nad x\\n' >groups/g/ctl");
    assert_ne!(said.code, Some(0), "{said:?}");
    let told = reads(&view, "cat groups/g/status groups/g/ctl");
    assert!(told.starts_with("ctl: line 2: ad x: there is no such command"), "{told}");
    assert!(told.ends_with("add n[1-3]:/etc/only\n"), "{told}");
    // A host that is down.
    reads(&view, "mkdir groups/all; echo add n[1-3]:/etc/load >groups/all/ctl");
    up.servers["n3"].signal(Signal::KILL);
    sheaf_testing::sessions::wait_until("the host is missing", || {
        says(&view, "cat groups/all/data").code != Some(0)
    });
    let said = says(&view, "cat groups/all/data");
    assert_eq!(said.stdout, "1.5 2\n2.5 2\n", "{said:?}");
    assert!(said.stderr.contains("Input/output error"), "{said:?}");
    let told = reads(&view, "cat groups/all/status");
    assert!(told.contains("n3: ") && told.contains("1 of 3 failed"), "{told}");
    let said = says(&view, "ls all");
    assert!(said.code != Some(0) && said.stdout.starts_with("both\netc\n"), "{said:?}");
    assert!(reads(&view, "cat all/@status").contains("n3: "));
}

#[test]
fn merge_of_all_has_the_names_of_all() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let export = exports(&home);
    let view = View::new(&home, &["--processes", "3", "--export", &export], "view");
    assert_eq!(
        reads(&view, "ls all all/etc"),
        "all:\nboth\netc\n\nall/etc:\nlink\nload\nodd@@data\nonly\nsame\nservices\n"
    );
    assert_eq!(reads(&view, "cat all/etc/load all/etc/only"), "1.5 2\n2.5 2\n3.5 2\nonly n2\n");
    assert_eq!(
        reads(&view, "cat all/etc/same@lines all/etc/only@lines"),
        "n[1-3]: same\nn2: only n2\n"
    );
    assert_eq!(
        reads(&view, "cat all/etc/load@sum all/etc/load@size all/etc/only@files"),
        "7.5 6\n3\nn2:/etc/only\n"
    );
    assert_eq!(
        reads(&view, "cat 'all/etc/odd@@data' 'all/etc/odd@@data@files'"),
        "odd\nn1:/etc/odd@data\n"
    );
    // Links lead to what is merged, not to what this machine has there.
    assert_eq!(
        reads(&view, "readlink all/etc/link; cat all/etc/link@data 2>/dev/null; cat all/etc/link"),
        "../etc/same\nsame\nsame\nsame\nsame\nsame\nsame\n"
    );
    // A directory takes the place of a file, and what looks like a pattern is a name.
    assert_eq!(reads(&view, "ls all/both; cat 'all/both/x*'"), "x*\nstar\n");
    let attributes = fs::metadata(view.point.join("all/etc/load")).unwrap();
    assert_eq!((attributes.size(), attributes.mode() & 0o777), (3 * 6, 0o644));
    assert_eq!(
        reads(&view, "find all -type f | sort | head -1; grep -rl 'udp' all"),
        "all/both/x*\nall/etc/services\n"
    );
    // Nothing can be changed but what is said to be data.
    for script in [
        "echo x >all/etc/same",
        "rm all/etc/same",
        "mkdir all/x",
        "touch all/new",
        "mv all/etc all/e",
    ] {
        let said = says(&view, script);
        assert!(
            said.code != Some(0) && said.stderr.contains("Read-only file system"),
            "{script}: {said:?}"
        );
    }
    let none = says(&view, "cat all/etc/none; cat all/etc/none@data; cat all/etc/same@ctl");
    assert_eq!(none.stderr.matches("No such file or directory").count(), 1, "{none:?}");
    reads(&view, "echo new >all/etc/same@data");
    for host in ["n1", "n2", "n3"] {
        let at = home.path().join("export").join(host).join("etc/same");
        assert_eq!(fs::read_to_string(at).unwrap(), "new\n");
    }
    assert!(!Path::new(&view.point).join("all/etc/none@data").exists());
}

/// What is too long to be held is read file by file.
#[test]
fn data_of_any_length_are_read() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let export = exports(&home);
    let config = "[tuning]\nconcatenate_bytes_max = 100000\n";
    let config = home.write("sheaf.toml", config);
    let config = config.to_str().unwrap();
    let mut expected = Vec::new();
    for (host, length) in [("n1", 300_001), ("n2", 0), ("n3", 2_500_000)] {
        let bytes: Vec<u8> = (0..length).map(|_| fastrand::u8(..)).collect();
        fs::write(home.path().join("export").join(host).join("etc/[long]"), &bytes).unwrap();
        expected.extend_from_slice(&bytes);
    }
    let session = ["--config", config, "--processes", "3", "--export", &export];
    let view = View::new(&home, &session, "view");
    let data = fs::read(view.point.join("all/etc/[long]")).unwrap();
    assert!(data == expected, "{} of {}", data.len(), expected.len());
    reads(&view, r"mkdir groups/g; echo 'add n[1-3]:/etc/\[long\]' >groups/g/ctl");
    // Anywhere in it.
    let file = fs::File::open(view.point.join("groups/g/data")).unwrap();
    for _ in 0..200 {
        let at = fastrand::usize(..expected.len());
        let mut bytes = vec![0; fastrand::usize(1..70_000)];
        let read = file.read_at(&mut bytes, at as u64).unwrap();
        assert!(read > 0 && bytes[..read] == expected[at..at + read], "{at}");
    }
    // A file that is replaced or cut is not taken for the one that was opened.
    let third = home.path().join("export/n3/etc/[long]");
    fs::rename(&third, third.with_extension("old")).unwrap();
    fs::write(&third, vec![0; 2_500_000]).unwrap();
    let again = fs::File::open(view.point.join("groups/g/data")).unwrap();
    fs::rename(third.with_extension("old"), &third).unwrap();
    let mut byte = [0];
    let read = again.read_at(&mut byte, 300_100);
    assert_eq!(read.unwrap_err().raw_os_error(), Some(5));
    // One that cannot be opened is missing at the end.
    fs::remove_file(home.path().join("export/n2/etc/[long]")).unwrap();
    let said = says(&view, "cat groups/g/data | wc -c; cat groups/g/data >/dev/null");
    assert_eq!((said.code, said.stdout.trim()), (Some(1), "2800001"), "{said:?}");
    assert!(reads(&view, "cat groups/g/status").contains("n2:/etc/"));
    // What is combined is held, up to what is said.
    let said = says(&view, "cat groups/g/lines");
    assert_ne!(said.code, Some(0), "{said:?}");
}

/// A file system of 64 KiB, which is gone with this.
struct SmallMount(PathBuf);

impl SmallMount {
    fn new(at: PathBuf) -> Self {
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(&at);
        assert!(mount.status().unwrap().success());
        Self(at)
    }
}

impl Drop for SmallMount {
    fn drop(&mut self) {
        // Lazily, for hosts may still have files of it open.
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

#[test]
fn failed_group_write_is_named_until_the_next_operation() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let export = exports(&home);
    let at = |host: &str| home.path().join("export").join(host).join("full");
    for host in ["n1", "n3"] {
        fs::create_dir(at(host)).unwrap();
    }
    let _full = SmallMount::new(at("n2"));
    for host in ["n1", "n2", "n3"] {
        fs::write(at(host).join("f"), "").unwrap();
    }
    home.write("random", &"random\n".repeat(15_000));
    let view = View::new(&home, &["--processes", "3", "--export", &export], "view");
    reads(&view, "mkdir groups/q; echo 'add n[1-3]:/full/f' >groups/q/ctl");
    let why = "n2:/full/f: No space left on device (ENOSPC)\n";
    let failed = format!("write data: 1 of 3 failed\n{why}");
    for (script, status) in [
        ("cat ../random >groups/q/data", "groups/q/status"),
        ("cat ../random >>groups/q/data", "groups/q/status"),
        ("dd if=../random of=groups/q/data bs=50000 count=2", "groups/q/status"),
        ("cat ../random >all/full/f@data", "all/@status"),
    ] {
        reads(&view, "echo >groups/q/data; echo >all/full/f@data");
        let said = says(&view, script);
        assert!(said.code == Some(1) && said.stderr.contains("No space left"), "{said:?}");
        // Nor does it change when the kernel has the file closed, which nobody waits for.
        for _ in 0..10 {
            assert_eq!(reads(&view, &format!("cat {status}")), failed, "{script}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // What succeeds later with the same open file leaves the others' bytes missing.
    let data = view.point.join("groups/q/data");
    let file = fs::File::options().write(true).truncate(true).open(&data).unwrap();
    assert_eq!(file.write_at(&[1; 80_000], 0).unwrap_err().raw_os_error(), Some(28));
    assert_eq!(file.write_at(b"later", 0).unwrap(), 5);
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(reads(&view, "cat groups/q/status"), failed);
    assert_eq!(reads(&view, "echo >groups/q/data; cat groups/q/status"), "write data: 3 files\n");
}

/// The last descriptor is still open, so the kernel has not had the file closed.
#[test]
fn group_status_reports_a_write_when_close_returns() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let export = exports(&home);
    let view = View::new(&home, &["--processes", "3", "--export", &export], "view");
    reads(&view, "mkdir groups/k; echo 'add n[1-3]:/etc/same' >groups/k/ctl");
    let script = "cat groups/k/lines; exec 3>groups/k/data; echo 7 >&3; cat groups/k/status";
    assert_eq!(reads(&view, script), "n[1-3]: same\nwrite data: 3 files\n");
    // What was read since is told as long as nothing more was written.
    let script =
        "exec 3>>groups/k/data; echo 8 >&3; cat groups/k/lines; exec 3>&-; cat groups/k/status";
    assert_eq!(reads(&view, script), "n[1-3]: 7\nn[1-3]: 8\nread lines: 3 files\n");
    let merged = "cat all/etc/only@size; exec 3>all/etc/same@data; echo 7 >&3; cat all/@status";
    assert_eq!(reads(&view, merged), "1\nwrite data: 3 files\n");
}

#[test]
fn file_that_several_rules_name_counts_once() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let export = exports(&home);
    for (host, number) in [("n1", "1\n"), ("n2", "20\n"), ("n3", "300\n")] {
        fs::write(home.path().join("export").join(host).join("num"), number).unwrap();
    }
    let view = View::new(&home, &["--processes", "3", "--export", &export], "view");
    let made = "mkdir groups/g; cd groups/g; echo add n1:/num >ctl; echo 'add n[1-2]:/num' >ctl
        echo add n2:/etc/../num >ctl; echo 'remove n2:/etc/../num' >ctl; echo add n1://./num >ctl
        cat files size sum data lines stat | sed 's/: -rw.*//'";
    assert_eq!(
        reads(&view, made),
        "n1:/num\nn2:/num\n2\n21\n1\n20\nn1: 1\nn2: 20\nn1:/num\nn2:/num\n"
    );
    // Links are rules like others, and what rules say is kept as it was said.
    let linked =
        "cd groups/g; ln -s ../../hosts/n3/num three; ln -s 'n[2-3]:/num' more; cat size sum ctl";
    assert_eq!(
        reads(&view, linked),
        "3\n321\nadd n1:/num\nadd n[1-2]:/num\nadd n1://./num\nlink three -> ../../hosts/n3/num\nlink more -> n[2-3]:/num\n"
    );
    // What is read from `ctl` and written again changes nothing, in an editor or not, and makes the same group elsewhere.
    let again = "cd groups/g; saved=../../hosts/n1/saved; cat ctl >$saved; cat $saved >ctl; diff ctl $saved
        (echo clear; cat $saved) >ctl; diff ctl $saved; mkdir ../h; cat $saved >../h/ctl; diff ../h/ctl $saved
        readlink three ../h/three; cat size status; rmdir ../h; rm $saved";
    assert_eq!(
        reads(&view, again),
        "../../hosts/n3/num\n../../hosts/n3/num\n3\nread size: 3 files\n"
    );
    for (command, why) in [
        ("link three -> n1:/other", "three: there is a link that leads to ../../hosts/n3/num"),
        ("link data -> n1:/num", "data: no link can have this name"),
        ("link a/b -> n1:/num", "a/b: no link can have this name"),
    ] {
        let said = says(&view, &format!("cd groups/g; echo '{command}' >ctl || cat status"));
        assert!(said.stderr.contains("error"), "{command}: {said:?}");
        assert!(said.stdout.contains(why), "{command}: {said:?}");
    }
    assert_eq!(
        reads(&view, "cd groups/g; echo 7 >>data; cat status data"),
        "write data: 3 files\n1\n7\n20\n7\n300\n7\n"
    );
    // A rule that is taken away leaves the others' hosts.
    let removed = "cd groups/g; echo 'remove n[1-2]:/num' >ctl; rm three; cat files";
    assert_eq!(reads(&view, removed), "n1:/num\nn2:/num\nn3:/num\n");
    assert_eq!(reads(&view, "cd groups/g; rm more; cat files"), "n1:/num\n");
}

#[test]
fn data_are_given_no_length_but_are_emptied_when_opened() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let export = exports(&home);
    let view = View::new(&home, &["--processes", "3", "--export", &export], "view");
    reads(&view, "mkdir groups/q; echo 'add n[1-3]:/etc/same' >groups/q/ctl");
    let told = "truncate data: no length can be given to them; > data empties each file\n";
    for (data, status) in
        [("groups/q/data", "groups/q/status"), ("all/etc/same@data", "all/@status")]
    {
        reads(&view, &format!("printf 'abcdefgh\\n' >{data}"));
        let files = view.point.join(data);
        for size in [0, 5] {
            let file = fs::File::options().write(true).open(&files).unwrap();
            assert_eq!(file.set_len(size).unwrap_err().raw_os_error(), Some(95), "{data}");
        }
        for script in [
            format!("truncate -s 5 {data}"),
            format!("truncate -s +5 {data}"),
            format!("dd if=/dev/null of={data} bs=1 seek=3 count=0"),
            format!("python3 -c 'import os; os.truncate(\"{data}\", 5)'"),
        ] {
            reads(&view, &format!("cat {data} >/dev/null"));
            let said = says(&view, &script);
            // `dd` says so, and succeeds if there is nothing to be written.
            assert!(said.stderr.contains("Operation not supported"), "{script}: {said:?}");
            assert_eq!(reads(&view, &format!("cat {status}")), told, "{script}");
        }
        for host in ["n1", "n2", "n3"] {
            let at = home.path().join("export").join(host).join("etc/same");
            assert_eq!(fs::read_to_string(at).unwrap(), "abcdefgh\n");
        }
        assert_eq!(
            reads(&view, &format!(": >{data}; cat {data} {status}")),
            "read data: 3 files\n"
        );
    }
    for (file, errno) in [("ctl", "not supported"), ("sum", "denied"), ("status", "denied")] {
        let said = says(&view, &format!("truncate -s 5 groups/q/{file}"));
        assert!(said.code == Some(1) && said.stderr.contains(errno), "{file}: {said:?}");
    }
    assert_eq!(reads(&view, "cat groups/q/ctl"), "add n[1-3]:/etc/same\n");
}

/// An editor that saves what it has read would write the content of all files to each of them.
#[test]
fn joined_content_is_not_saved_to_each_file() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let export = exports(&home);
    let view = View::new(&home, &["--processes", "3", "--export", &export], "view");
    reads(&view, "mkdir groups/g; echo add n[1-3]:/etc/load >groups/g/ctl");
    let save = |path: &str| {
        let text = "text = open(p).read()\ntry: open(p, 'w').write(text)\nexcept OSError as e: print(e.errno)";
        format!("python3 -c \"p = '{path}'\n{text}\"")
    };
    for (path, status) in
        [("groups/g/data", "groups/g/status"), ("all/etc/load@data", "all/@status")]
    {
        let script = format!("{}; head -c 18 {status}; cat groups/g/data", save(path));
        assert_eq!(reads(&view, &script), "1\nopen data: refused1.5 2\n2.5 2\n3.5 2\n", "{path}");
    }
    // As vi does it: without emptying the file, and whatever becomes of its length.
    let writes = |path: &str, reads: &str| {
        let text = "import os\n{reads}f = os.open(p, os.O_WRONLY | os.O_CREAT)\ntry: os.ftruncate(f, 2)\nexcept OSError: pass\nos.write(f, b'XX')";
        format!("python3 -c \"p = '{path}'\n{}\" 2>&1 | tail -n 1", text.replace("{reads}", reads))
    };
    let refused = reads(&view, &writes("groups/g/data", "open(p).read()\n"));
    assert!(refused.contains("Operation not permitted"), "{refused}");
    let refused = reads(&view, &writes("groups/g/data", ""));
    assert!(refused.contains("Operation not supported"), "{refused}");
    assert_eq!(reads(&view, "cat groups/g/data"), "1.5 2\n2.5 2\n3.5 2\n");
    // A shell writes what it has not read, and one file is its own content.
    reads(&view, "cat groups/g/data; echo 4 >groups/g/data");
    reads(&view, "mkdir groups/one; echo add n1:/etc/load >groups/one/ctl");
    assert_eq!(
        reads(&view, &format!("{}; cat groups/g/data", save("groups/one/data"))),
        "4\n4\n4\n"
    );
    let shorter = writes("groups/one/data", "open(p).read()\n");
    assert_eq!(
        reads(&view, &format!("echo 56789 >groups/one/data; {shorter}; cat groups/one/data")),
        "XX"
    );
}

#[test]
fn numbers_keep_their_lines_and_columns() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let export = exports(&home);
    for host in ["n1", "n2", "n3"] {
        let file = home.path().join("export").join(host).join("etc/load");
        fs::write(file, "0.5 1 1.5 2/300 4000\nno number\ncpu 7\n").unwrap();
    }
    let view = View::new(&home, &["--processes", "3", "--export", &export], "view");
    let made = "mkdir groups/g; cd groups/g; echo add n[1-3]:/etc/load >ctl; echo bind read data avg >ctl; cat data";
    assert_eq!(reads(&view, made), "0.5 1 1.5 - 4000\n- 7\n");
    let bound = "cd groups/g; echo bind read data avg 5 4 1 >ctl; cat data";
    assert_eq!(reads(&view, bound), "4000 - 0.5\n");
}
