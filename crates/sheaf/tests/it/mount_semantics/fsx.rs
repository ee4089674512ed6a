//! A file that two hosts change in turn, beside what it has to hold: as the program fsx does on one machine.
use super::history::mount_again;
use super::hosts::ViewHosts;
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use sheaf_testing::sessions::turn;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The most bytes of the file.
const FILE_BYTES: u64 = 256 << 10;
const OPERATION_BYTES: u64 = 40 << 10;
/// Operations of each seed; `SHEAF_TEST_OPERATIONS` says another number.
const OPERATIONS: usize = 6000;
const SEEDS: u64 = 3;

struct Fsx {
    random: fastrand::Rng,
    /// What it has to hold.
    model: Vec<u8>,
    /// By each host.
    paths: Vec<PathBuf>,
    files: Vec<File>,
}

impl Fsx {
    fn open(path: &PathBuf) -> File {
        File::options().read(true).write(true).open(path).unwrap()
    }

    /// A range; it begins within the file if it can.
    fn range(&mut self, within: bool) -> (usize, usize) {
        let most = if within { self.model.len() as u64 } else { FILE_BYTES - OPERATION_BYTES };
        // Half of them begin where pages do.
        let mut from = self.random.u64(..most.max(1));
        if self.random.bool() {
            from &= !4095;
        }
        (from as usize, self.random.u64(1..OPERATION_BYTES) as usize)
    }

    fn grow(&mut self, to: usize) {
        if to > self.model.len() {
            self.model.resize(to, 0);
        }
    }

    /// Does one operation, and says which.
    #[expect(clippy::too_many_lines, reason = "one scenario")]
    fn step(&mut self, number: usize) -> String {
        let by = self.random.usize(..self.files.len());
        let kind = self.random.u8(..20);
        let allocate = |file: &File, flags, (from, length): (usize, usize)| {
            fallocate(file, flags, from as u64, length as u64).unwrap();
        };
        match kind {
            0..=5 => {
                let (from, length) = self.range(true);
                let mut read = vec![0; length];
                let count = self.files[by].read_at(&mut read, from as u64).unwrap();
                let expected = &self.model[from.min(self.model.len())..];
                let expected = &expected[..expected.len().min(length)];
                assert_eq!(count, expected.len(), "{number}: bytes read at {from} by {by}");
                assert!(read[..count] == *expected, "{number}: {length} read at {from} by {by}");
                format!("read {from} {length}")
            }
            6..=11 => {
                let (from, length) = self.range(false);
                let bytes: Vec<u8> = (0..length).map(|at| (number + at * 31) as u8 | 1).collect();
                self.files[by].write_all_at(&bytes, from as u64).unwrap();
                self.grow(from + length);
                self.model[from..from + length].copy_from_slice(&bytes);
                format!("write {from} {length}")
            }
            12 => {
                let length = self.random.u64(..FILE_BYTES) as usize;
                self.files[by].set_len(length as u64).unwrap();
                self.model.resize(length, 0);
                format!("truncate {length}")
            }
            13 => {
                let (from, length) = self.range(true);
                allocate(
                    &self.files[by],
                    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    (from, length),
                );
                let to = (from + length).min(self.model.len());
                self.model[from.min(to)..to].fill(0);
                format!("punch {from} {length}")
            }
            14 => {
                let (from, length) = self.range(false);
                allocate(&self.files[by], FallocateFlags::ZERO_RANGE, (from, length));
                self.grow(from + length);
                self.model[from..from + length].fill(0);
                format!("zero {from} {length}")
            }
            15 => {
                let (from, length) = self.range(false);
                allocate(&self.files[by], FallocateFlags::empty(), (from, length));
                self.grow(from + length);
                format!("allocate {from} {length}")
            }
            16 => {
                let ((from, length), (to, _)) = (self.range(true), self.range(false));
                let length =
                    length.min(self.model.len().saturating_sub(from)).min(from.abs_diff(to));
                let (mut at, mut there) = (from as u64, to as u64);
                let (mut left, file) = (length, &self.files[by]);
                // The kernel takes for the end of what is copied from what it was told last, and asks nobody.
                file.metadata().unwrap();
                while left > 0 {
                    left -=
                        copy_file_range(file, Some(&mut at), file, Some(&mut there), left).unwrap();
                    assert!(at > from as u64, "{number}: nothing is copied by {by}");
                }
                if length > 0 {
                    self.grow(to + length);
                    self.model.copy_within(from..from + length, to);
                }
                format!("copy {from} {to} {length}")
            }
            17 => {
                for (file, path) in self.files.iter().zip(&self.paths) {
                    let length = self.model.len() as u64;
                    assert_eq!(file.metadata().unwrap().len(), length, "{number}");
                    assert_eq!(fs::metadata(path).unwrap().len(), length, "{number}");
                }
                "look".to_owned()
            }
            18 => {
                self.files[by] = Self::open(&self.paths[by]);
                // A file of one host is lent for writing when it is written on to.
                if let ([file], [first, others @ ..]) = (&self.files[..], &self.model[..]) {
                    file.write_all_at(&[*first], 0).unwrap();
                    file.write_all_at(others, 1).unwrap();
                }
                "open".to_owned()
            }
            _ => {
                // Where there is a hole there are zeros.
                let hole = seek(&self.files[by], SeekFrom::Hole(0)).unwrap_or(0) as usize;
                let data = seek(&self.files[by], SeekFrom::Data(hole as u64));
                let data = data.map_or(self.model.len(), |at| at as usize);
                assert!(self.model[hole.min(data)..data].iter().all(|byte| *byte == 0), "{number}");
                format!("hole {hole} {data}")
            }
        }
    }
}

#[test]
fn file_that_two_hosts_change_in_turn_holds_what_it_has_to() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    for seed in 0..SEEDS {
        // Its owner and another host, or two others.
        let by = if seed % 3 == 0 { [1, 2] } else { [2, 3] };
        change(&hosts, &by, seed);
    }
}

#[test]
fn file_that_is_written_behind_holds_what_it_has_to() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    for (seed, kept) in (0..SEEDS).zip(["0", "60", "60"]) {
        mount_again(&hosts, &["--write-behind", "--attribute-cache", kept]);
        change(&hosts, &[2], 100 + seed);
    }
}

/// Has these hosts change a file of host 1 in turn.
fn change(hosts: &ViewHosts, by: &[usize], seed: u64) {
    let said = std::env::var("SHEAF_TEST_OPERATIONS").ok().and_then(|said| said.parse().ok());
    fs::write(hosts.disk(1, "fsx"), "").unwrap();
    let paths: Vec<PathBuf> = by.iter().map(|host| hosts.at(*host, 1, "fsx")).collect();
    let files = paths.iter().map(Fsx::open).collect();
    let random = fastrand::Rng::with_seed(seed);
    let mut fsx = Fsx { random, model: Vec::new(), paths, files };
    let mut last = std::collections::VecDeque::new();
    for number in 0..said.unwrap_or(OPERATIONS) {
        last.push_back(fsx.step(number));
        if last.len() > 10 {
            last.pop_front();
        }
        if number % 1000 == 0 {
            let content = fs::read(hosts.disk(1, "fsx")).unwrap();
            assert!(content == fsx.model, "seed {seed}, {number}: after {last:?}");
        }
    }
    for host in hosts.all() {
        let content = fs::read(hosts.at(host, 1, "fsx")).unwrap();
        assert!(content == fsx.model, "seed {seed}: h{host}, after {last:?}");
    }
}
