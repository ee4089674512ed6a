//! Modes, owners and names are changed as `chmod`, `chown`, `cp -a` and `mv` change them in a tree.
use crate::round::{Place, path, settle};
use crate::trees::{assert_same, is_root, make_everything, seen};
use sheaf_archive::{
    ArchiveError, ArchivePath, FetchOptions, RelocateKeep, Relocation, RepairOptions, RightsChange,
    RightsOptions, RightsReport, SaveOptions, VerifyOptions, change_rights, copy_tree, move_tree,
    relocate_files, remove, repair, verify,
};
use sheaf_file::ModeChange;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

const RECURSIVE: RightsOptions = RightsOptions { recursive: true, dry_run: false };

fn verified(place: &Place) {
    let report = verify(&place.archive, &ArchivePath::ROOT, VerifyOptions::default(), &|error| {
        panic!("{error}")
    });
    assert_eq!(report.unwrap().damaged, 0);
}

/// What the real tool says to the real tree.
fn run(place: &Place, args: &[&str]) -> bool {
    let mut command = Command::new(args[0]);
    let ran = command.args(&args[1..]).current_dir(place.directory.path()).output().unwrap();
    ran.status.success()
}

fn chmod(place: &Place, mode: &str, at: &str, options: RightsOptions) -> RightsReport {
    let change = ModeChange::parse(mode, 0o022).unwrap();
    let change = |mode: u32, is_directory: bool| change.apply(mode, is_directory);
    change_rights(&place.archive, &path(at), &RightsChange::Mode(&change), options).unwrap()
}

/// The tree as it was stored, and what is archived, are the same.
fn compare(place: &Place, round: &str) {
    let back = format!("back-{round}");
    let (fetched, told) = place.fetch("/tree", &back, FetchOptions::default());
    assert_eq!((fetched.failed, fetched.attributes_left, &told[..]), (0, 0, &[][..]));
    assert_same(&place.path("tree"), &place.path(&format!("{back}/tree")));
    verified(place);
}

fn everything(options: SaveOptions) -> Place {
    let place = Place::new();
    make_everything(&place.path("tree"));
    settle();
    let (saved, _) = place.save("tree", options);
    assert_eq!(saved.failed, 0);
    place
}

fn modes_are_changed(options: SaveOptions) {
    let place = everything(options);
    for (round, mode) in
        ["u+rwX,g=u,o=", "a+rX", "0750", "u=rwx,go=u,go-w", "u+s,g-x", "+t", "00755", "g=o"]
            .into_iter()
            .enumerate()
    {
        // The path that is longer than the system takes at once is chmod's, too.
        assert!(run(&place, &["chmod", "-R", mode, "tree"]), "{mode}");
        let dry = RightsOptions { dry_run: true, ..RECURSIVE };
        let would = chmod(&place, mode, "/tree", dry);
        assert_eq!(chmod(&place, mode, "/tree", RECURSIVE), would, "{mode}");
        let before = place.archive.catalog().applied().unwrap();
        let again = chmod(&place, mode, "/tree", RECURSIVE);
        if !["g=o", "u=rwx,go=u,go-w"].contains(&mode) {
            assert_eq!((again.changed, before), (0, place.archive.catalog().applied().unwrap()));
        }
        compare(&place, &round.to_string());
    }
}

#[test]
fn modes_become_what_chmod_makes_of_them() {
    modes_are_changed(SaveOptions::default());
}

#[test]
fn modes_of_objects_do_too() {
    modes_are_changed(SaveOptions { member_bytes_max: 0, ..SaveOptions::default() });
}

#[test]
fn one_file_is_changed_by_all_its_names() {
    let place = everything(SaveOptions::default());
    for name in ["d/text", "zero", "d", "d/attributes", "d/large"] {
        let mode = if name == "d" { "0711" } else { "0604" };
        assert!(run(&place, &["chmod", mode, &format!("tree/{name}")]));
        let report = chmod(&place, mode, &format!("/tree/{name}"), RightsOptions::default());
        assert_eq!(report, RightsReport { changed: 1, unchanged: 0 }, "{name}");
    }
    let several = seen(&place.path("tree")).into_iter().find(|(_, seen)| seen.names().len() > 1);
    let (name, _) = several.unwrap();
    let name = name.to_str().unwrap();
    assert!(run(&place, &["chmod", "0601", &format!("tree/{name}")]));
    chmod(&place, "0601", &format!("/tree/{name}"), RightsOptions::default());
    compare(&place, "one");
}

#[test]
fn owners_become_what_chown_makes_of_them() {
    if !is_root() {
        eprintln!("SKIPPED 1 test: only root gives files away");
        return;
    }
    let place = everything(SaveOptions::default());
    for (round, (uid, gid)) in
        [(Some(7), None), (None, Some(1234)), (Some(0), Some(0)), (Some(0), Some(0))]
            .into_iter()
            .enumerate()
    {
        let text = |id: Option<u32>| id.map(|id| id.to_string()).unwrap_or_default();
        let owner = match gid {
            Some(_) => format!("{}:{}", text(uid), text(gid)),
            None => text(uid),
        };
        // What has the owner is not touched by the archive: so by chown neither.
        if round < 3 {
            assert!(run(&place, &["chown", "-R", &owner, "tree"]), "{owner}");
        }
        let owner = RightsChange::Owner { uid, gid };
        let report = change_rights(&place.archive, &path("/tree"), &owner, RECURSIVE).unwrap();
        assert_eq!(report.changed == 0, round == 3, "{report:?}");
    }
    compare(&place, "owned");
}

/// A pack of files of more modes than a row has is changed by its index.
#[test]
fn many_modes_are_kept_apart() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    for mode in 0..64 {
        let file = place.path(&format!("tree/{mode}"));
        fs::write(&file, "text").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600 | mode)).unwrap();
    }
    settle();
    place.save("tree", SaveOptions::default());
    assert!(run(&place, &["chmod", "-R", "g+w,o-x", "tree"]));
    let report = chmod(&place, "g+w,o-x", "/tree", RECURSIVE);
    assert_eq!(report, RightsReport { changed: 49, unchanged: 16 });
    compare(&place, "many");
}

/// A tree of which names can be made up and are often there.
fn small(place: &Place) {
    for directory in ["d0", "d1/d0", "d1/d1", "d2"] {
        fs::create_dir_all(place.path("tree").join(directory)).unwrap();
        for file in ["f0", "f1", "f2"] {
            let text = format!("{directory}/{file}");
            fs::write(place.path("tree").join(&text), &text).unwrap();
        }
    }
    fs::write(place.path("tree/d2/large"), vec![7; 2 << 20]).unwrap();
}

/// Directories are changed by what is put into them, in a tree and not in an archive.
fn set_directory_times(at: &Path) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (path, seen) in seen(at) {
        if seen.is_directory() {
            fs::File::open(at.join(path)).unwrap().set_modified(time).unwrap();
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn name(&mut self) -> String {
        let mut name = String::from("tree");
        for _ in 0..self.below(3) {
            name += &format!("/d{}", self.below(3));
        }
        let letter = ["d", "f"][self.below(2) as usize];
        name + &format!("/{letter}{}", self.below(3))
    }
}

/// As `cp -aT` and `mv -T`.
fn relocate(place: &Place, how: Relocation, from: &str, to: &str) -> Result<(), ArchiveError> {
    let (from, to) = (path(from), path(to));
    let is_directory = |at: &ArchivePath| place.archive.catalog().directory(at).unwrap().is_some();
    if is_directory(&from) {
        return match how {
            Relocation::Copy => {
                copy_tree(&place.archive, &from, &to, RelocateKeep::Nothing).map(drop)
            }
            Relocation::Move => move_tree(&place.archive, &from, &to).map(drop),
        };
    }
    let ((from, one), (to, other)) = (from.split().unwrap(), to.split().unwrap());
    let names = [(one.to_vec(), other.to_vec())];
    relocate_files(&place.archive, (&from, &to), &names, how, RelocateKeep::Nothing).map(drop)
}

/// Whatever is done one after the other, a tree and what is archived of it become the same.
#[test]
fn names_go_where_cp_and_mv_have_them_go() {
    let rounds = 9;
    for seed in 0..rounds {
        let mut random = Random(seed);
        let place = Place::new();
        small(&place);
        set_directory_times(&place.path("tree"));
        settle();
        place.save("tree", SaveOptions { member_bytes_max: 1 << 16, ..SaveOptions::default() });
        for step in 0..60 {
            let (from, to) = (random.name(), random.name());
            if from == to {
                continue;
            }
            let said = format!("seed {seed}, step {step}: {from} {to}");
            match random.below(4) {
                0 => {
                    let copied = run(&place, &["cp", "-aT", "--remove-destination", &from, &to]);
                    let ours = relocate(&place, Relocation::Copy, &from, &to);
                    // cp goes on where one of many cannot be copied.
                    assert_eq!(copied, ours.is_ok(), "{said}: cp: {ours:?}");
                    if !copied && place.path(&from).is_dir() && place.path(&to).is_dir() {
                        break;
                    }
                }
                1 | 2 => {
                    let moved = run(&place, &["mv", "-T", &from, &to]);
                    let ours = relocate(&place, Relocation::Move, &from, &to);
                    assert_eq!(moved, ours.is_ok(), "{said}: mv: {ours:?}");
                }
                _ if random.below(3) == 0 => {
                    let removed = run(&place, &["rm", "-r", &from]);
                    let ours = remove(&place.archive, &path(&from));
                    assert_eq!(removed, ours.is_ok(), "{said}: rm: {ours:?}");
                }
                _ => {
                    let changed = run(&place, &["chmod", "g=o,o+w", &from]);
                    let change = ModeChange::parse("g=o,o+w", 0).unwrap();
                    let change = |mode: u32, is_directory: bool| change.apply(mode, is_directory);
                    let change = RightsChange::Mode(&change);
                    let options = RightsOptions::default();
                    let ours = change_rights(&place.archive, &path(&from), &change, options);
                    assert_eq!(changed, ours.is_ok(), "{said}: chmod: {ours:?}");
                }
            }
        }
        set_directory_times(&place.path("tree"));
        // What nobody refers to goes, and what somebody does stays.
        let options = RepairOptions { age: Duration::ZERO, ..RepairOptions::default() };
        repair(&place.archive, options).unwrap();
        compare(&place, &seed.to_string());
    }
}

#[test]
fn tree_does_not_go_where_it_may_not() {
    let place = Place::new();
    small(&place);
    settle();
    place.save("tree", SaveOptions::default());
    for (how, from, to, error) in [
        (
            Relocation::Move,
            "/tree/d1",
            "/tree/d1/d0/x",
            "cannot go to /tree/d1/d0/x, which is within it",
        ),
        (Relocation::Copy, "/tree/d1", "/tree/d1", "cannot go to /tree/d1, which is within it"),
        (Relocation::Move, "/tree/d0", "/tree/d1", "is archived as a directory that is not empty"),
        (Relocation::Move, "/tree/d0", "/tree/d2/f0", "is archived as a file"),
        (Relocation::Copy, "/tree/d0", "/tree/none/x", "is not in the archive"),
        (Relocation::Move, "/tree/none", "/tree/x", "is not in the archive"),
        (Relocation::Move, "/tree/d0/f0", "/tree/d1", "is archived as a directory"),
        (Relocation::Move, "/tree/d0/f0", "/tree/none/x", "is not in the archive"),
    ] {
        let before = place.archive.catalog().applied().unwrap();
        let said = relocate(&place, how, from, to).unwrap_err().to_string();
        assert!(said.contains(error), "{from} {to}: {said}");
        assert_eq!(before, place.archive.catalog().applied().unwrap());
    }
}

/// Names of one file stay that, whichever of them go elsewhere.
#[test]
fn names_of_one_file_stay_together() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/d")).unwrap();
    for (file, names) in [("a", &["a1", "a2", "a3"][..]), ("b", &["b1", "d/b2"])] {
        fs::write(place.path("tree").join(names[0]), file).unwrap();
        for name in &names[1..] {
            fs::hard_link(place.path("tree").join(names[0]), place.path("tree").join(name))
                .unwrap();
        }
    }
    settle();
    set_directory_times(&place.path("tree"));
    place.save("tree", SaveOptions::default());
    for (from, to) in [("tree/a1", "tree/d/a1"), ("tree/a3", "tree/a0"), ("tree/b1", "tree/d/b1")] {
        assert!(run(&place, &["mv", "-T", from, to]));
        relocate(&place, Relocation::Move, from, to).unwrap();
    }
    assert!(run(&place, &["cp", "-aT", "tree/d", "tree/e"]));
    relocate(&place, Relocation::Copy, "tree/d", "tree/e").unwrap();
    assert!(run(&place, &["chmod", "0604", "tree/a0"]));
    chmod(&place, "0604", "tree/a0", RightsOptions::default());
    set_directory_times(&place.path("tree"));
    compare(&place, "links");
}

/// The objects that have contents, in their order.
fn contents(place: &Place) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    let mut waiting = vec![place.path("store/objects")];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.components().any(|part| part.as_os_str() == "data") {
                all.push(path);
            }
        }
    }
    all.sort();
    all
}

/// The content of a large file stays where it is while only its attributes change.
#[test]
fn mode_change_does_not_store_the_content_again() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    let (large, holes) = (place.path("tree/large"), place.path("tree/holes"));
    fs::write(&large, vec![7; 3_000_000]).unwrap();
    fs::write(&holes, vec![8; 100_000]).unwrap();
    fs::File::options().append(true).open(&holes).unwrap().set_len(10_000_000).unwrap();
    settle();
    let options = SaveOptions { member_bytes_max: 5000, ..SaveOptions::default() };
    let saved = place.save("tree", options).0;
    assert_eq!((saved.stored, saved.stored_bytes), (2, 13_000_000));
    let before = contents(&place);
    assert_eq!(before.len(), 2);

    for file in [&large, &holes] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o751)).unwrap();
    }
    settle();
    let saved = place.save("tree", options).0;
    assert_eq!((saved.stored, saved.stored_bytes, saved.failed), (2, 0, 0));
    assert_eq!(contents(&place), before);
    compare(&place, "mode");
    assert_eq!(place.save("tree", options).0.stored, 0);

    // Another file of the same length and time is another file, and a copy is none.
    let time = fs::metadata(&large).unwrap().modified().unwrap();
    let set_time = |file: &Path| {
        fs::File::options().append(true).open(file).unwrap().set_modified(time).unwrap();
    };
    fs::write(&large, vec![9; 3_000_000]).unwrap();
    set_time(&large);
    assert!(run(&place, &["cp", "-a", "tree/holes", "tree/copy"]));
    fs::rename(place.path("tree/copy"), &holes).unwrap();
    settle();
    let saved = place.save("tree", options).0;
    assert_eq!((saved.stored, saved.stored_bytes), (2, 3_000_000));
    // What it had before is there until it is cleaned up.
    let after = contents(&place);
    assert_eq!(after.iter().filter(|path| !before.contains(path)).count(), 1);
    compare(&place, "content");

    // What the store has lost is stored again.
    fs::remove_file(after.iter().find(|path| !before.contains(path)).unwrap()).unwrap();
    fs::set_permissions(&large, fs::Permissions::from_mode(0o640)).unwrap();
    settle();
    let saved = place.save("tree", options).0;
    assert_eq!((saved.stored, saved.stored_bytes), (1, 3_000_000));
    compare(&place, "lost");
}
