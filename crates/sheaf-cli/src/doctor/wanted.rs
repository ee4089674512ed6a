//! What this program needs on a host.
use sheaf_tree::launch::ProgramContent;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The program that hosts are to run.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its SHA-256 in hexadecimal.
    pub hash: String,
    pub bytes: u64,
    /// Where it is installed on hosts, which then are not sent it.
    pub installed: Option<String>,
    /// The processor as `uname -m` names it.
    pub machine: &'static str,
    pub libc: NeededLibc,
    /// `sheaf VERSION`.
    pub version: String,
}

/// What a program needs of the host's C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeededLibc {
    /// It is linked statically.
    None,
    /// The minor version of glibc 2.
    Glibc(u32),
    /// It is linked to a library of which nothing more is known.
    Unknown,
}

/// The oldest kernel that has the system calls which servers use.
pub const KERNEL_MIN: (u32, u32) = (5, 6);
/// The largest table of names that is read from the program.
const NAMES_BYTES_MAX: u64 = 16 << 20;

impl Wanted {
    /// As hosts are sent the program, or have it.
    pub fn new(content: &ProgramContent, file: &Path) -> Self {
        Self {
            hash: content.hash().to_owned(),
            bytes: content.bytes(),
            installed: content.installed().map(str::to_owned),
            machine: std::env::consts::ARCH,
            libc: File::open(file)
                .ok()
                .and_then(|file| needed_libc(&file))
                .unwrap_or(NeededLibc::Unknown),
            version: format!("sheaf {}", env!("CARGO_PKG_VERSION")),
        }
    }

    /// Whether a host with this `uname -m` can run the program.
    pub fn runs_on(&self, machine: &str) -> bool {
        machine == self.machine
            || (machine, self.machine) == ("arm64", "aarch64")
            || (machine, self.machine) == ("amd64", "x86_64")
    }
}

/// Reads from an ELF file (64 bits, little-endian) which glibc it needs.
fn needed_libc(file: &File) -> Option<NeededLibc> {
    const LOAD: u64 = 1;
    const DYNAMIC: u64 = 2;
    const INTERPRETER: u64 = 3;
    const NAMES: u64 = 5;
    const NAMES_BYTES: u64 = 10;
    let start = read(file, 0, 64)?;
    if start[..6] != *b"\x7fELF\x02\x01" {
        return None;
    }
    let (at, each, count) =
        (number(&start, 32, 8)?, number(&start, 54, 2)?, number(&start, 56, 2)?);
    let headers = (0..count).map(|index| read(file, at.checked_add(index * each)?, 56));
    let headers: Vec<Vec<u8>> = headers.collect::<Option<_>>()?;
    let of_kind = |kind| headers.iter().filter(move |header| number(header, 0, 4) == Some(kind));
    if of_kind(INTERPRETER).next().is_none() {
        return Some(NeededLibc::None);
    }
    let dynamic = of_kind(DYNAMIC).next()?;
    let entries = read(file, number(dynamic, 8, 8)?, number(dynamic, 32, 8)?)?;
    let value = |tag| {
        let entry = entries.chunks_exact(16).find(|entry| number(entry, 0, 8) == Some(tag))?;
        number(entry, 8, 8)
    };
    let names_at = value(NAMES)?;
    let offset = of_kind(LOAD).find_map(|header| {
        let (offset, address) = (number(header, 8, 8)?, number(header, 16, 8)?);
        let within = names_at.checked_sub(address)?;
        (within < number(header, 32, 8)?).then(|| offset.checked_add(within))?
    })?;
    let names = read(file, offset, value(NAMES_BYTES)?)?;
    let minors = names.split(|byte| *byte == 0).filter_map(|name| {
        if name == b"GLIBC_ABI_DT_RELR" {
            return Some(RELATIVE_RELOCATIONS);
        }
        let minor = std::str::from_utf8(name.strip_prefix(b"GLIBC_2.")?).ok()?;
        minor.split('.').next()?.parse().ok()
    });
    Some(minors.max().map_or(NeededLibc::Unknown, NeededLibc::Glibc))
}

/// The minor version of glibc 2 that understands compact relative relocations.
const RELATIVE_RELOCATIONS: u32 = 36;

fn read(file: &File, at: u64, bytes: u64) -> Option<Vec<u8>> {
    let mut part = vec![0; usize::try_from(bytes.min(NAMES_BYTES_MAX)).ok()?];
    file.read_exact_at(&mut part, at).ok()?;
    Some(part)
}

/// A little-endian number.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + width)?;
    Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_libc_is_read_from_the_program() {
        let this = File::open("/proc/self/exe").unwrap();
        let needed = needed_libc(&this);
        match needed {
            Some(NeededLibc::Glibc(minor)) => assert!((17..100).contains(&minor), "{minor}"),
            Some(NeededLibc::None) if cfg!(target_env = "musl") => {}
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn file_that_is_no_program_needs_nothing_known() {
        let mut file = tempfile::tempfile().unwrap();
        for bytes in [
            &b""[..],
            b"#!/bin/sh\n",
            &[0x7f; 64],
            &[b"\x7fELF\x02\x01".as_slice(), &[0xff; 90]].concat(),
        ] {
            std::io::Write::write_all(&mut file, bytes).unwrap();
            assert_eq!(needed_libc(&file), None);
        }
    }
}
