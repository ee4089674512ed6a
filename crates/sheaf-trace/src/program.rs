//! Programs that the preload cannot be loaded into.
use object::elf::{EM_AARCH64, EM_X86_64, FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why nothing is seen of what a program does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlindSpot {
    /// It is linked statically.
    Static,
    /// It is of another width or processor than the preload.
    OtherMachine,
    /// It runs with another user's rights, or with rights of its own.
    SetId,
    /// It is loaded by this, which is not glibc's.
    OtherLoader(String),
}

impl fmt::Display for BlindSpot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static => f.write_str("it is linked statically"),
            Self::OtherMachine => f.write_str("it is a program for another kind of processor"),
            Self::SetId => f.write_str("it runs with other rights than its caller's (setuid)"),
            Self::OtherLoader(loader) => write!(f, "its loader is {loader}, and not glibc's"),
        }
    }
}

/// How long a chain of scripts that run scripts may be, as for the kernel.
const SCRIPTS_MAX: u32 = 5;
/// What the kernel reads of a script's first line.
const SCRIPT_BYTES_MAX: usize = 256;

/// Whether the preload is loaded when this file is run; for a script, whether it is into what runs
/// it.
///
/// # Errors
/// When the file cannot be read; who may run it need not be allowed to.
pub fn blind_spot(program: &Path) -> io::Result<Option<BlindSpot>> {
    let mut path = program.to_owned();
    for _ in 0..SCRIPTS_MAX {
        let file = File::open(&path)?;
        let mut head = [0; SCRIPT_BYTES_MAX];
        let read = file.read_at(&mut head, 0)?;
        match interpreter(&head[..read]) {
            Some(next) => path = next,
            None => return of_image(file),
        }
    }
    // The kernel refuses to run a longer chain.
    Ok(None)
}

/// The program that runs a script.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let word = line.trim_ascii().split(|byte| byte.is_ascii_whitespace()).next()?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(word)))
}

fn of_image(file: File) -> io::Result<Option<BlindSpot>> {
    const SET_ID: u32 = 0o6000;
    let about = file.metadata()?;
    // Who owns it already runs it with no other rights.
    let is_other = about.uid() != rustix::process::geteuid().as_raw();
    if about.permissions().mode() & SET_ID != 0 && is_other || has_capabilities(&file) {
        return Ok(Some(BlindSpot::SetId));
    }
    // What is no image at all is refused by the kernel, or run by the shell.
    Ok(of_elf(&ReadCache::new(file)).unwrap_or_default())
}

/// Whether the file has rights of its own (`setcap`).
fn has_capabilities(file: &File) -> bool {
    let mut none: [u8; 0] = [];
    rustix::fs::fgetxattr(file, c"security.capability", &mut none[..]).is_ok()
}

fn of_elf<R: Read + Seek>(cache: &ReadCache<R>) -> object::Result<Option<BlindSpot>> {
    match FileKind::parse(cache)? {
        FileKind::Elf64 => {}
        FileKind::Elf32 => return Ok(Some(BlindSpot::OtherMachine)),
        _ => return Ok(None),
    }
    let header = FileHeader64::<Endianness>::parse(cache)?;
    let endian = header.endian()?;
    let own = if cfg!(target_arch = "aarch64") { EM_AARCH64 } else { EM_X86_64 };
    if header.e_machine(endian) != own {
        return Ok(Some(BlindSpot::OtherMachine));
    }
    for part in header.program_headers(endian, cache)? {
        if part.p_type(endian) == PT_INTERP {
            let name = part.interpreter(endian, cache)?.unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            let is_glibc = name.contains("ld-linux");
            return Ok((!is_glibc).then_some(BlindSpot::OtherLoader(name)));
        }
    }
    Ok(Some(BlindSpot::Static))
}
