//! Modes, owners and access lists of copies, and of directories that are no copies.
use super::cluster::{Cluster, run};
use sheaf_core::Errno;
use sheaf_file::{ACCESS_LIST, mode_without_list};
use sheaf_tools::cp::{CopyMode, CopyOptions, PIECE_BYTES, Progress, Source, get, put};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

fn with_mode(text: &str) -> CopyOptions {
    let chmod = Some(CopyMode::parse(text, 0o022).unwrap());
    CopyOptions { recursive: true, sync: false, chmod, ..CopyOptions::default() }
}

fn copy(cluster: &Cluster, from: &Path, to: &str, options: &CopyOptions) {
    let done = run(async {
        let sources = vec![Source::Path(from.to_owned())];
        let client = cluster.client("flat");
        put(&client, sources, &cluster.target(to), options, &mut |_| {}).await.unwrap()
    });
    assert!(done.outcome.is_ok(), "{done:?}");
}

/// As with rsync.
#[test]
fn directories_that_were_there_keep_their_modes_and_owners() {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("src");
    std::fs::create_dir_all(from.join("sub")).unwrap();
    std::fs::create_dir_all(from.join("new")).unwrap();
    std::fs::write(from.join("f"), "x").unwrap();
    [&from, &from.join("sub"), &from.join("new")].into_iter().for_each(|dir| set_mode(dir, 0o700));
    let is_root = rustix::process::geteuid().is_root();
    for (text, new, file) in
        [("F644", 0o700, 0o644), ("644", 0o755, 0o644), ("D750,F600", 0o750, 0o600)]
    {
        let cluster = Cluster::new(1);
        std::fs::create_dir_all(cluster.path(0, "tmp/sub")).unwrap();
        set_mode(&cluster.path(0, "tmp"), 0o1777);
        set_mode(&cluster.path(0, "tmp/sub"), 0o2770);
        let chown = is_root.then(|| "65534:65534".to_owned());
        let options = CopyOptions { chown, ..with_mode(text) };
        copy(&cluster, &from.join("."), "/tmp", &options);
        let modes = ["tmp", "tmp/sub", "tmp/new", "tmp/f"].map(|path| mode(&cluster.path(0, path)));
        assert_eq!(modes, [0o1777, 0o2770, new, file], "{text}");
        let uid = |path: &str| cluster.path(0, path).metadata().unwrap().uid();
        if is_root {
            assert_eq!((uid("tmp"), uid("tmp/sub"), uid("tmp/new")), (0, 0, 65534));
        }
    }
}

/// Directories that are only made for what patterns found in them are no copies, and get what the umask leaves; those
/// that are copied, too, get their own.
#[test]
fn directories_above_what_a_pattern_found_get_the_umask() {
    let cluster = Cluster::new(1);
    for dir in ["a", "b"] {
        cluster.write(0, &format!("c/{dir}/x"), "1");
        set_mode(&cluster.path(0, &format!("c/{dir}")), 0o700);
    }
    let left = 0o777 & !sheaf_file::umask();
    assert_ne!(left, 0o777, "the umask of tests");
    for (options, own) in [
        (CopyOptions::archive(), 0o700),
        (CopyOptions { recursive: true, ..Default::default() }, 0o700),
    ] {
        let options = CopyOptions { sync: false, ..options };
        let here = tempfile::tempdir().unwrap();
        let targets = [cluster.target("/c/*/x"), cluster.target("/c/b*")];
        let got = run(async {
            get(&cluster.client("flat"), &targets, here.path(), &options, &mut |_| {})
                .await
                .unwrap()
        });
        assert!(got.outcome.is_ok() && got.errors.is_empty(), "{got:?}");
        let modes = ["n1/a", "n1/b"].map(|path| mode(&here.path().join(path)));
        assert_eq!(modes, [left, own]);
    }
}

/// Of the source's directories with -p, as cp has it, with the change that was asked for.
#[test]
fn directories_that_were_there_get_kept_modes() {
    let here = tempfile::tempdir().unwrap();
    std::fs::create_dir(here.path().join("src")).unwrap();
    set_mode(&here.path().join("src"), 0o700);
    for (text, expected) in [("F644", 0o700), ("D755", 0o755)] {
        let cluster = Cluster::new(1);
        std::fs::create_dir(cluster.path(0, "tmp")).unwrap();
        let options = CopyOptions { preserve: true, ..with_mode(text) };
        copy(&cluster, &here.path().join("src/."), "/tmp", &options);
        assert_eq!(mode(&cluster.path(0, "tmp")), expected, "{text}");
    }
}

/// A part for files leaves new directories what the umask leaves them, and the other way round.
#[test]
fn part_of_a_mode_leaves_the_umask_to_the_rest() {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("src");
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("f"), "x").unwrap();
    set_mode(&from, 0o777);
    set_mode(&from.join("f"), 0o666);
    let plain = CopyOptions { chmod: None, ..with_mode("0") };
    let cluster = Cluster::new(1);
    for (to, options) in
        [("/plain", plain), ("/files", with_mode("F600")), ("/dirs", with_mode("D750"))]
    {
        copy(&cluster, &from, to, &options);
    }
    let modes =
        |to: &str| [to.to_owned(), format!("{to}/f")].map(|path| mode(&cluster.path(0, &path)));
    let [dir, file] = modes("plain");
    assert_eq!(modes("files"), [dir, 0o600]);
    assert_eq!(modes("dirs"), [0o750, file]);
}

/// A change of modes begins with what the umask leaves, so that no part of it gives what nobody asked for.
#[test]
fn change_of_modes_begins_with_what_the_umask_leaves() {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("f");
    std::fs::write(&from, "x").unwrap();
    set_mode(&from, 0o667);
    let cluster = Cluster::new(1);
    let umask = sheaf_file::umask();
    assert_ne!(umask & 0o022, 0, "the umask of tests");
    for (text, expected) in
        [("u+x", 0o767 & !umask), ("o-r", 0o663 & !umask), ("g=u", 0o667 & !umask & !0o070 | 0o060)]
    {
        let options = CopyOptions {
            chmod: Some(CopyMode::parse(text, umask).unwrap()),
            sync: false,
            ..CopyOptions::default()
        };
        copy(&cluster, &from, &format!("/{text}"), &options);
        assert_eq!(mode(&cluster.path(0, text)), expected, "{text}");
    }
}

/// Without -p a new directory gets what `cp -r` gives it, also its sticky bit.
#[test]
fn new_directories_get_the_modes_that_cp_gives_them() {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("src");
    let modes = [0o1777, 0o1755, 0o3777, 0o2775, 0o4755, 0o1700, 0o770, 0o500];
    for mode in modes {
        let dir = from.join(format!("{mode:o}"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("f"), "x").unwrap();
        set_mode(&dir, mode);
    }
    let cluster = Cluster::new(1);
    let options = CopyOptions { recursive: true, sync: false, ..CopyOptions::default() };
    copy(&cluster, &from, "/ours", &options);
    let theirs = here.path().join("theirs");
    let status = std::process::Command::new("cp").arg("-r").args([&from, &theirs]).status();
    assert!(status.unwrap().success());
    for name in modes.map(|mode| format!("{mode:o}")) {
        let ours = mode(&cluster.path(0, &format!("ours/{name}")));
        assert_eq!(format!("{ours:o}"), format!("{:o}", mode(&theirs.join(&name))), "{name}");
    }
}

/// Others see no more of a copy while it is made than afterwards.
#[test]
fn copy_under_way_has_no_more_rights_than_in_the_end() {
    let cluster = Cluster::new(1);
    cluster.write(0, "d/f", vec![1; 3 * PIECE_BYTES as usize]);
    set_mode(&cluster.path(0, "d"), 0o755);
    set_mode(&cluster.path(0, "d/f"), 0o644);
    let here = tempfile::tempdir().unwrap();
    let (to, mut seen) = (here.path().join("to"), Vec::new());
    run(async {
        let client = cluster.client("flat");
        let dir = to.join(client.host(0).unwrap()).join("d");
        let paths = [dir.clone(), dir.join("f")];
        let options = CopyOptions { in_place: true, ..with_mode("D750,F640") };
        let mut look = |progress: Progress| {
            if progress.bytes == PIECE_BYTES {
                seen = paths.iter().map(|path| mode(path)).collect();
            }
        };
        let got = get(&client, &[cluster.target("/d")], &to, &options, &mut look).await.unwrap();
        assert!(got.outcome.is_ok() && got.errors.is_empty(), "{got:?}");
        assert_eq!(seen, [0o700, 0o600]);
        assert_eq!(paths.map(|path| mode(&path)), [0o750, 0o640]);
    });
}

#[test]
fn new_directory_of_a_copy_keeps_the_inherited_set_gid_bit() {
    let here = tempfile::tempdir().unwrap();
    std::fs::create_dir(here.path().join("src")).unwrap();
    let cluster = Cluster::new(1);
    std::fs::create_dir(cluster.path(0, "sh")).unwrap();
    set_mode(&cluster.path(0, "sh"), 0o2775);
    for (text, expected) in [("D770", 0o2770), ("Dg-s,D700", 0o700), ("D00770", 0o770)] {
        copy(&cluster, &here.path().join("src"), "/sh/new", &with_mode(text));
        assert_eq!(mode(&cluster.path(0, "sh/new")), expected, "{text}");
        std::fs::remove_dir(cluster.path(0, "sh/new")).unwrap();
    }
}

/// The owner may read and write, user 65534 as well, the group may not.
fn list() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 6, 65534), (4, 0, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend(
            tag.to_le_bytes().into_iter().chain(rights.to_le_bytes()).chain(id.to_le_bytes()),
        );
    }
    list
}

fn list_of(path: &Path) -> Option<Vec<u8>> {
    let mut list = vec![0; 1024];
    let length = rustix::fs::getxattr(path, OsStr::from_bytes(ACCESS_LIST), &mut list[..]).ok()?;
    list.truncate(length);
    Some(list)
}

/// The group's bits in a mode say what the list gives at most.
#[test]
fn copy_without_its_access_list_gives_the_group_no_more() {
    let here = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(1);
    let source = here.path().join("f");
    let flags = rustix::fs::XattrFlags::empty();
    for file in [source.clone(), cluster.path(0, "there")] {
        std::fs::write(&file, "secret").unwrap();
        set_mode(&file, 0o640);
        if rustix::fs::setxattr(&file, OsStr::from_bytes(ACCESS_LIST), &list(), flags).is_err() {
            return sheaf_testing::skipped("the file system has no access lists");
        }
        assert_eq!(mode(&file), 0o660);
    }
    let plain = CopyOptions { sync: false, ..CopyOptions::default() };
    let kept = CopyOptions { preserve: true, ..plain.clone() };
    let listed = CopyOptions { acls: true, ..kept.clone() };
    for (name, options) in [("plain", plain), ("kept", kept), ("listed", listed)] {
        copy(&cluster, &source, &format!("/{name}"), &options);
        let to = here.path().join(name);
        let got = run(async {
            let client = cluster.client("flat");
            get(&client, &[cluster.target("/there")], &to, &options, &mut |_| {}).await.unwrap()
        });
        assert!(got.outcome.is_ok(), "{got:?}");
        for copied in [cluster.path(0, name), to.join("n1/there")] {
            let is_kept = name == "listed";
            assert_eq!(list_of(&copied), is_kept.then(list), "{copied:?}");
            assert_eq!(mode(&copied), if is_kept { 0o660 } else { 0o600 }, "{copied:?}");
        }
    }
}

/// A list that was there, or that comes from the directory, would let others read what the mode of
/// the source keeps from them.
#[test]
fn copy_of_a_mode_has_no_list_that_its_source_has_not() {
    let here = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(1);
    let source = here.path().join("f");
    std::fs::write(&source, "secret").unwrap();
    set_mode(&source, 0o640);
    let flags = rustix::fs::XattrFlags::empty();
    let set_list = |path: &Path, name: &[u8]| {
        rustix::fs::setxattr(path, OsStr::from_bytes(name), &list(), flags)
    };
    let plain = CopyOptions { sync: false, recursive: true, ..CopyOptions::default() };
    let kept = CopyOptions { preserve: true, ..plain.clone() };
    let changed =
        CopyOptions { chmod: Some(CopyMode::parse("640", 0o022).unwrap()), ..plain.clone() };
    let in_place = CopyOptions { in_place: true, ..kept.clone() };
    let listed = CopyOptions { acls: true, ..kept.clone() };
    for (name, options, has_list) in [
        ("plain", plain, true),
        ("kept", kept, false),
        ("changed", changed, false),
        ("in-place", in_place, false),
        ("listed", listed, false),
    ] {
        let dir = cluster.path(0, name);
        std::fs::create_dir(&dir).unwrap();
        for file in ["f", "bare"] {
            std::fs::write(dir.join(file), "old").unwrap();
        }
        set_mode(&dir.join("bare"), 0o640);
        if set_list(&dir.join("f"), ACCESS_LIST).is_err() {
            return sheaf_testing::skipped("the file system has no access lists");
        }
        set_list(&dir, b"system.posix_acl_default").unwrap();
        copy(&cluster, &source, &format!("/{name}/f"), &options);
        copy(&cluster, &source, &format!("/{name}/new"), &options);
        // What is replaced has what it had, and not what the directory gives to new files.
        copy(&cluster, &source, &format!("/{name}/bare"), &options);
        assert_eq!((list_of(&dir.join("bare")), mode(&dir.join("bare"))), (None, 0o640), "{name}");
        for file in [dir.join("f"), dir.join("new")] {
            assert_eq!(std::fs::read(&file).unwrap(), b"secret");
            assert_eq!(list_of(&file).is_some(), has_list, "{file:?}");
            assert!(has_list || mode(&file) == 0o640, "{file:?}");
        }
    }
}

/// A host could name any disk of this machine.
#[test]
fn devices_of_hosts_are_made_only_where_rights_are_kept() {
    let cluster = Cluster::new(2);
    cluster.write_all("d/file", "text");
    let (zero, kind) = (cluster.path(1, "d/zero"), rustix::fs::FileType::CharacterDevice);
    let (all, device) = (rustix::fs::Mode::from_raw_mode(0o600), rustix::fs::makedev(1, 5));
    if rustix::fs::mknodat(rustix::fs::CWD, &zero, kind, all, device).is_err() {
        return sheaf_testing::skipped("devices can be made by root alone");
    }
    for preserve in [false, true] {
        let here = tempfile::tempdir().unwrap();
        let options =
            CopyOptions { recursive: true, sync: false, preserve, ..CopyOptions::default() };
        let got = run(async {
            let client = cluster.client("flat");
            get(&client, &[cluster.target("/d")], here.path(), &options, &mut |_| {}).await.unwrap()
        });
        assert_eq!(std::fs::read(here.path().join("n2/d/file")).unwrap(), b"text");
        assert_eq!(here.path().join("n2/d/zero").exists(), preserve, "{got:?}");
        let errors: Vec<_> =
            got.outcome.errors.iter().map(|error| (error.errno, error.path.as_str())).collect();
        let refused = [(Errno::PERM, "/d/zero")];
        assert_eq!(errors, if preserve { &[][..] } else { &refused[..] });
    }
}

#[test]
fn group_of_a_list_has_no_more_than_the_mask() {
    let with = |group: u16, mask: u16| {
        let mut list = list();
        list[4 + 2 * 8 + 2..][..2].copy_from_slice(&group.to_le_bytes());
        list[4 + 3 * 8 + 2..][..2].copy_from_slice(&mask.to_le_bytes());
        mode_without_list(0o4770, &list)
    };
    assert_eq!([with(0, 7), with(7, 5), with(4, 6), with(7, 7)], [0o4700, 0o4750, 0o4740, 0o4770]);
    for damaged in [&b""[..], b"\x02", &[0; 12], &list()[..11]] {
        assert_eq!(mode_without_list(0o664, damaged), 0o604, "{damaged:?}");
    }
}

/// As GNU cp has it: a link may have attributes of its own, though few do.
#[test]
fn link_keeps_its_extended_attributes() {
    let here = tempfile::tempdir().unwrap();
    let (link, name, flags) = (here.path().join("l"), "trusted.x", rustix::fs::XattrFlags::empty());
    std::os::unix::fs::symlink("nothing", &link).unwrap();
    if rustix::fs::lsetxattr(&link, name, b"value", flags).is_err() {
        return sheaf_testing::skipped("links have no extended attributes here");
    }
    let cluster = Cluster::new(1);
    let options = CopyOptions { sync: false, ..CopyOptions::archive() };
    copy(&cluster, &link, "/l", &options);
    let to = here.path().join("to");
    let got = run(async {
        let client = cluster.client("flat");
        get(&client, &[cluster.target("/l")], &to, &options, &mut |_| {}).await.unwrap()
    });
    assert!(got.outcome.is_ok(), "{got:?}");
    for copied in [cluster.path(0, "l"), to.join("n1/l")] {
        let mut value = [0; 16];
        let length = rustix::fs::lgetxattr(&copied, name, &mut value[..]);
        assert_eq!(length.map(|length| value[..length].to_vec()), Ok(b"value".to_vec()));
    }
}
