//! Random operations by the mount, beside the same ones on a plain directory.
use crate::support::Served;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// What can be told of an operation, on whichever directory.
type Told = Result<String, i32>;

fn told<T>(result: io::Result<T>, what: impl FnOnce(T) -> String) -> Told {
    result.map(what).map_err(|error| error.raw_os_error().unwrap_or(-1))
}

/// A place where operations are done.
struct Place {
    at: PathBuf,
    open: BTreeMap<u8, File>,
}

impl Place {
    fn path(&self, random: &mut fastrand::Rng) -> PathBuf {
        let names = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "link", "d/link"];
        self.at.join(names[random.usize(..names.len())])
    }

    /// Does one operation, by random numbers that are the same in each place.
    fn act(&mut self, random: &mut fastrand::Rng) -> Told {
        let kind = random.u8(..22);
        let (path, other) = (self.path(random), self.path(random));
        let (slot, number) = (random.u8(..4), random.u64(..9000));
        let bytes: Vec<u8> =
            (0..random.usize(..5000)).map(|at| (at as u64 + number) as u8).collect();
        let mode = random.u32(..0o1000) | 0o600;
        match kind {
            0 | 1 => told(fs::write(&path, &bytes), |()| String::new()),
            2 => told(fs::read(&path), |read| format!("{:?}", blake(&read))),
            3 => told(fs::create_dir(&path), |()| String::new()),
            4 => told(fs::remove_file(&path), |()| String::new()),
            5 => told(fs::remove_dir(&path), |()| String::new()),
            6 => told(fs::rename(&path, &other), |()| String::new()),
            7 => told(fs::hard_link(&path, &other), |()| String::new()),
            8 => told(symlink("a", &path), |()| String::new()),
            9 => told(fs::read_link(&path), |text| text.display().to_string()),
            10 => told(fs::symlink_metadata(&path), described),
            11 => told(fs::set_permissions(&path, fs::Permissions::from_mode(mode)), |()| {
                String::new()
            }),
            12 => {
                let mut options = OpenOptions::new();
                options.read(true).write(true);
                options.create(number % 2 == 0).create_new(number % 5 == 0).append(number % 3 == 0);
                options.truncate(number % 7 == 0 && number % 3 != 0).mode(mode);
                told(options.open(&path), |file| {
                    self.open.insert(slot, file);
                    String::new()
                })
            }
            13 => self.with(slot, |file| file.write_all_at(&bytes, number)),
            14 => self.with(slot, |file| {
                let mut read = vec![0; 3000];
                let count = file.read_at(&mut read, number)?;
                Ok(format!("{count} {:?}", blake(&read[..count])))
            }),
            15 => self.with(slot, |file| file.set_len(number)),
            16 => self.with(slot, |file| file.metadata().map(described)),
            17 => self.with(slot, |file| {
                file.seek(SeekFrom::Start(number / 2))?;
                file.write_all(&bytes)?;
                file.seek(SeekFrom::Current(-(bytes.len() as i64) / 2))?;
                let mut rest = Vec::new();
                file.read_to_end(&mut rest)?;
                Ok(format!("{:?}", blake(&rest)))
            }),
            18 => self.with(slot, |file| file.sync_all()),
            19 => {
                self.open.remove(&slot);
                Ok(String::new())
            }
            20 => self.with(slot, |file| file.set_permissions(fs::Permissions::from_mode(mode))),
            _ => told(listed(&path), |names| names.join(" ")),
        }
    }

    fn with<T: std::fmt::Debug>(
        &mut self,
        slot: u8,
        act: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> Told {
        match self.open.get_mut(&slot) {
            Some(file) => told(act(file), |done| format!("{done:?}")),
            None => Ok("not open".to_owned()),
        }
    }
}

fn listed(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        names.push(format!("{}:{kind:?}", entry.file_name().display()));
    }
    names.sort();
    Ok(names)
}

/// What is the same on any file system of one kind.
fn described(found: fs::Metadata) -> String {
    let size = if found.is_dir() { 0 } else { found.size() };
    format!("{:o} {} {size} {} {}", found.mode(), found.nlink(), found.uid(), found.gid())
}

fn blake(bytes: &[u8]) -> (usize, u64) {
    let sum =
        bytes.iter().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    (bytes.len(), sum)
}

#[test]
fn mounted_view_behaves_like_a_plain_directory() {
    let seeds = std::env::var("SHEAF_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(4u64) {
        let (served, plain) = (Served::new(), tempfile::tempdir().unwrap());
        let Some(mounted) = served.mounted() else { return };
        let place = |at: &Path| Place { at: at.to_owned(), open: BTreeMap::new() };
        let (mut ours, mut theirs) = (place(mounted.point.path()), place(plain.path()));
        let mut random = fastrand::Rng::with_seed(seed);
        for step in 0..2500 {
            let mut same = random.clone();
            let (ours, theirs) = (ours.act(&mut random), theirs.act(&mut same));
            assert_eq!(ours, theirs, "seed {seed}, step {step}");
            random = same;
        }
        // The owner's own programs see the same.
        let all = |at: &Path| -> Vec<String> {
            let mut names = Vec::new();
            let mut left = vec![at.to_owned()];
            while let Some(directory) = left.pop() {
                for entry in fs::read_dir(directory).unwrap() {
                    let path = entry.unwrap().path();
                    let found = fs::symlink_metadata(&path).unwrap();
                    let content =
                        if found.is_file() { blake(&fs::read(&path).unwrap()) } else { (0, 0) };
                    let name = path.strip_prefix(at).unwrap().display().to_string();
                    if found.is_dir() {
                        left.push(path);
                    }
                    names.push(format!("{name} {} {content:?}", described(found)));
                }
            }
            names.sort();
            names
        };
        assert_eq!(all(served.directory.path()), all(plain.path()), "seed {seed}");
    }
}
