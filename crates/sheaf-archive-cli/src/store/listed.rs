//! Names of `--files-from`.
use anyhow::{Context, Result};
use sheaf_cli::output::printable;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

/// Bytes of a name at most: what is longer is no path of the system.
const NAME_BYTES_MAX: u64 = 64 << 10;

/// The names in these files, or on standard input for `-`, as they are: one a line, or each with a NUL behind
/// it. They are read as they are wanted.
pub fn names(
    files: &[PathBuf],
    ends_with_nul: bool,
) -> Result<impl Iterator<Item = io::Result<Vec<u8>>>> {
    let mut opened: Vec<Box<dyn BufRead>> = Vec::new();
    for file in files {
        opened.push(if file.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            let failed = || printable(&format!("--files-from {}", file.display()));
            Box::new(BufReader::new(File::open(file).with_context(failed)?))
        });
    }
    let end = if ends_with_nul { 0 } else { b'\n' };
    Ok(opened.into_iter().flat_map(move |from| Names { from, end, is_over: false }))
}

struct Names {
    from: Box<dyn BufRead>,
    end: u8,
    is_over: bool,
}

impl Iterator for Names {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            let mut name = Vec::new();
            let read = (&mut self.from).take(NAME_BYTES_MAX).read_until(self.end, &mut name);
            let failed = match read {
                Ok(0) => return None,
                Ok(_) if name.len() as u64 == NAME_BYTES_MAX => {
                    Some(rustix::io::Errno::NAMETOOLONG.into())
                }
                Ok(_) => None,
                Err(error) => Some(error),
            };
            if let Some(error) = failed {
                self.is_over = true;
                return Some(Err(error));
            }
            name.pop_if(|last| *last == self.end);
            if !name.is_empty() {
                return Some(Ok(name));
            }
        }
        None
    }
}
