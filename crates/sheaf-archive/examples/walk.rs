//! Walks a tree of this machine, to be measured beside `find`, `du` and `ls`.
//!
//!     cargo run --release -p sheaf-archive --example walk -- sum|names|list|long PATH [WORKERS [MOST]]
//!
//! `sum` looks at each file and adds up; `names` tells paths, as `find`; `list` is `ls -R`; `long` is
//! `ls -lRin --time-style=+%s` without its totals, its columns and what is behind device numbers. What
//! it took in memory at most is told at the end, on standard error.
use sheaf_archive::{
    FileFacts, TreeOrder, TreeStep, TreeVisitor, TreeWalkOptions, VisitWalk, VisitedFile,
    WalkedDirectory,
};
use sheaf_core::Errno;
use sheaf_core::files::FileKind;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Sum,
    Names,
    List,
    Long,
}

#[derive(Default)]
struct Walked {
    files: u64,
    bytes: u64,
    text: Vec<u8>,
    errors: Vec<String>,
}

impl Walked {
    fn number(&mut self, mut number: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.text.extend_from_slice(&digits[at..]);
        self.text.push(b' ');
    }
}

impl TreeVisitor for Way {
    type Piece = Walked;

    fn facts(&self) -> FileFacts {
        match self {
            Self::Sum | Self::Long => FileFacts::Status,
            Self::Names | Self::List => FileFacts::Kind,
        }
    }

    fn order(&self) -> TreeOrder {
        match self {
            Self::Sum | Self::Names => TreeOrder::Contents,
            Self::List | Self::Long => TreeOrder::Listings,
        }
    }

    fn visit(&self, piece: &mut Walked, file: &VisitedFile<'_>) -> bool {
        piece.files += 1;
        let found = match file.found {
            Some(Ok(found)) => Some(found),
            Some(Err(errno)) => {
                piece.errors.push(format!("{}: {errno}", file.name.display()));
                return false;
            }
            None => None,
        };
        match (self, found) {
            (Self::Sum, Some(found)) => piece.bytes += found.size,
            (Self::Names, _) => {
                file.put_path(&mut piece.text);
                piece.text.push(b'\n');
            }
            (Self::List | Self::Long, _) if file.depth == 0 => {}
            (Self::Long, Some(found)) => {
                piece.number(found.ino);
                piece.number(found.raw_mode().into());
                for number in [found.nlink, found.uid, found.gid] {
                    piece.number(number.into());
                }
                piece.number(found.size);
                piece.number(found.mtime.seconds.cast_unsigned());
            }
            _ => {}
        }
        if matches!(self, Self::List | Self::Long) && file.depth > 0 {
            piece.text.extend_from_slice(file.name.as_bytes());
            piece.text.push(b'\n');
        }
        file.kind == FileKind::Directory
    }

    fn failed(&self, piece: &mut Walked, directory: &WalkedDirectory, errno: Errno) {
        piece.errors.push(format!("{}: {errno}", String::from_utf8_lossy(directory.path())));
    }

    fn bytes(&self, piece: &Walked) -> usize {
        piece.text.capacity()
    }
}

fn main() -> std::io::Result<()> {
    let words: Vec<_> = std::env::args_os().collect();
    let way = match words.get(1).and_then(|word| word.to_str()) {
        Some("sum") => Way::Sum,
        Some("names") => Way::Names,
        Some("list") => Way::List,
        Some("long") => Way::Long,
        _ => panic!("say sum, names, list or long, and a path"),
    };
    let start = words.get(2).expect("say a path");
    let number = |at: usize| words.get(at).map(|word| word.to_str().unwrap().parse().unwrap());
    let mut options = TreeWalkOptions::default();
    options.workers = number(3).unwrap_or(options.workers);
    options.workers_max = number(4).unwrap_or(options.workers_max);

    let mut out = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let (mut files, mut bytes, mut is_first) = (0, 0, true);
    for step in VisitWalk::new("walk", start.as_ref(), way, options) {
        match step {
            TreeStep::Piece(piece) => {
                files += piece.files;
                bytes += piece.bytes;
                out.write_all(&piece.text)?;
                piece.errors.iter().for_each(|error| eprintln!("walk: {error}"));
            }
            TreeStep::Enter(directory) if matches!(way, Way::List | Way::Long) => {
                out.write_all(if std::mem::take(&mut is_first) { b"" } else { b"\n" })?;
                out.write_all(directory.path())?;
                out.write_all(b":\n")?;
            }
            _ => {}
        }
    }
    if way == Way::Sum {
        writeln!(out, "{files} {bytes}")?;
    }
    out.flush()?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    eprintln!("{files} files, {peak}");
    Ok(())
}
