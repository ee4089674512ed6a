//! Indexes of large packs from which some members were removed: they are what they lack of the first one.
use crate::round::{Place, path, settle};
use sheaf_archive::{
    ArchivedPack, FetchOptions, RepairOptions, SaveOptions, VerifyOptions, remove_files, repair,
    verify,
};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const FILES: usize = 2000;

struct Packed(Place);

impl Packed {
    fn new() -> Self {
        let place = Place::new();
        fs::create_dir(place.path("tree")).unwrap();
        for number in 0..FILES {
            fs::write(place.path(&format!("tree/{number:04}")), format!("{number}")).unwrap();
        }
        settle();
        let packed = Self(place);
        packed.save();
        packed
    }

    fn save(&self) {
        let (report, told) = self.0.save("tree", SaveOptions::default());
        assert_eq!((report.failed, &told[..]), (0, &[][..]));
    }

    fn change(&self, number: usize, content: &str) {
        fs::write(self.0.path(&format!("tree/{number:04}")), content).unwrap();
        settle();
        self.save();
    }

    /// The large pack.
    fn row(&self) -> ArchivedPack {
        let packs = self.0.archive.catalog().packs(&path("/tree")).unwrap();
        packs.into_iter().max_by_key(|pack| pack.members).unwrap()
    }

    fn index_at(&self, generation: u64) -> PathBuf {
        let row = self.row();
        let tar = self
            .0
            .path("store/objects")
            .join(self.0.archive.pack_space(&row).unwrap().tar.as_str());
        tar.with_extension(format!("idx.{generation}"))
    }

    fn assert_archived(&self) {
        let (report, told) = self.0.fetch("/tree", "back", FetchOptions::default());
        assert_eq!((report.fetched, report.failed), (FILES as u64, 0), "{told:?}");
        for number in 0..FILES {
            let [there, here] = ["back/tree", "tree"]
                .map(|tree| fs::read(self.0.path(&format!("{tree}/{number:04}"))).unwrap());
            assert_eq!(there, here, "{number}");
        }
        fs::remove_dir_all(self.0.path("back")).unwrap();
    }

    fn faults(&self) -> Vec<String> {
        let told = std::sync::Mutex::new(Vec::new());
        let tell =
            |error: sheaf_archive::ArchiveError| told.lock().unwrap().push(error.to_string());
        verify(&self.0.archive, &path("/"), VerifyOptions::default(), &tell).unwrap();
        told.into_inner().unwrap()
    }

    fn repair(&self, dry_run: bool) -> (u64, u64) {
        let report =
            repair(&self.0.archive, RepairOptions { age: Duration::ZERO, dry_run }).unwrap();
        (report.indexes, report.indexes_lost)
    }
}

#[test]
fn changed_file_of_a_large_pack_costs_few_bytes_of_index() {
    let packed = Packed::new();
    let whole = packed.row().index_bytes;
    assert!(whole > FILES as u64 * 86);
    for number in [77, 3, FILES - 1] {
        packed.change(number, "another content");
        let row = packed.row();
        assert!(row.generation > 0 && row.index_bytes < 200, "{row:?}");
        assert_eq!(fs::metadata(packed.index_at(row.generation)).unwrap().len(), row.index_bytes);
    }
    assert_eq!(packed.row().members as usize, FILES - 3);
    packed.assert_archived();
    assert!(packed.faults().is_empty());
    // What others refer to is no leftover.
    assert_eq!(packed.repair(false), (0, 0));
    packed.assert_archived();
    assert!(packed.faults().is_empty());
}

#[test]
fn index_is_written_as_a_whole_where_it_lacks_much() {
    let packed = Packed::new();
    let whole = packed.row().index_bytes;
    let names: Vec<_> = (0..FILES * 3 / 4).map(|number| format!("{number:04}")).collect();
    for number in 0..FILES * 3 / 4 {
        fs::remove_file(packed.0.path(&format!("tree/{number:04}"))).unwrap();
    }
    let names: Vec<Vec<u8>> = names.into_iter().map(String::into_bytes).collect();
    remove_files(&packed.0.archive, &path("/tree"), &names).unwrap();
    let row = packed.row();
    assert_eq!(row.members as usize, FILES / 4);
    assert!(row.index_bytes < whole / 2);
    assert!(packed.faults().is_empty());
}

#[test]
fn lost_first_index_is_taken_from_the_pack_and_made_again() {
    let packed = Packed::new();
    packed.change(5, "another content");
    let first = packed.index_at(0);
    let bytes = fs::read(&first).unwrap();
    for damage in [None, Some(&bytes[..bytes.len() - 1]), Some(b"".as_slice())] {
        match damage {
            None => fs::remove_file(&first).unwrap(),
            Some(damage) => fs::write(&first, damage).unwrap(),
        }
        assert_eq!(packed.faults().len(), 1);
        packed.assert_archived();
        assert_eq!(packed.repair(true), (1, 0));
        assert_eq!(packed.repair(false), (1, 0));
        assert!(fs::read(&first).unwrap() == bytes);
        assert!(packed.faults().is_empty());
    }
    // A file is stored with it and without it.
    fs::remove_file(&first).unwrap();
    packed.change(6, "and this one");
    packed.assert_archived();
}

#[test]
fn damaged_delta_is_named() {
    let packed = Packed::new();
    packed.change(5, "another content");
    let delta = packed.index_at(packed.row().generation);
    let bytes = fs::read(&delta).unwrap();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        fs::write(&delta, flipped).unwrap();
        let row = packed.row();
        assert!(packed.0.archive.index(&row).is_err(), "byte {at}");
    }
    assert!(!packed.faults().is_empty());
    // It cannot be made again; all that the pack has would be archived instead.
    assert_eq!(packed.repair(true), (0, 0));
    fs::write(&delta, &bytes).unwrap();
    assert!(packed.faults().is_empty());
    packed.assert_archived();
}
