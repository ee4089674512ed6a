//! What `-printf` and `-ls` print of a file.
use super::{FindAsks, FindError, FindFile, FindTime, FindWords};
use crate::walk::FileFacts;
use sheaf_core::files::{FileKind, Metadata};
use std::sync::Arc;

/// The widest that something is written, in bytes.
const WIDTH_MAX: usize = 4096;
/// Letters behind `%t` and its like.
const TIME_LETTERS: &[u8] = b"@+aAbBcdDeFgGhHIjklmMpPrRsSTuUVwWxXyYzZ";

/// What is printed of each file.
pub(super) struct FindFormat {
    parts: Vec<FindPart>,
    words: Arc<dyn FindWords>,
}

#[derive(Debug)]
enum FindPart {
    Text(Vec<u8>),
    Field(FindField),
}

/// What stands behind a `%`.
#[derive(Clone, Copy, Debug)]
struct FindField {
    what: FieldFact,
    /// Behind what is shorter than its width stand spaces, and not before it.
    left: bool,
    zeros: bool,
    /// A zero stands before octal digits.
    alternate: bool,
    /// What stands before a number that is not negative.
    sign: Option<u8>,
    width: usize,
    precision: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum FieldFact {
    Path,
    Base,
    Above,
    Below,
    Start,
    Size,
    Mode,
    Rights,
    User,
    Uid,
    Group,
    Gid,
    Kind,
    Target,
    Depth,
    Link,
    Time(FindTime, char),
    Inode,
    Links,
    Blocks,
    Kilobytes,
    Device,
    /// The size of `-ls`, which of a device is its number.
    ListSize,
    /// The time of `-ls`.
    ListTime,
    /// The name of `-ls`, and what a link says.
    ListName,
}

impl FieldFact {
    fn facts(self) -> FileFacts {
        match self {
            Self::Path
            | Self::Base
            | Self::Above
            | Self::Below
            | Self::Start
            | Self::Kind
            | Self::Target
            | Self::Depth
            | Self::Link
            | Self::ListName => FileFacts::Kind,
            _ => FileFacts::Status,
        }
    }

    fn is_archived(self) -> bool {
        !matches!(
            self,
            Self::Target
                | Self::Time(FindTime::Accessed | FindTime::Changed, _)
                | Self::Inode
                | Self::Links
                | Self::Blocks
                | Self::Kilobytes
                | Self::Device
                | Self::ListSize
        )
    }
}

impl std::fmt::Debug for FindFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FindFormat").field(&self.parts).finish()
    }
}

impl FindFormat {
    /// Reads a format. With it, what it has of which nothing is archived.
    ///
    /// # Errors
    /// What is wrong in it, in words.
    pub fn new(text: &str, words: Arc<dyn FindWords>) -> Result<(Self, Option<String>), FindError> {
        let mut reader =
            FormatReader { text: text.as_bytes(), at: 0, parts: Vec::new(), unarchived: None };
        reader.read()?;
        Ok((Self { parts: reader.parts, words }, reader.unarchived))
    }

    /// The format of `-ls`.
    pub fn list(words: Arc<dyn FindWords>) -> Self {
        let columns = [
            (FieldFact::Inode, 9, false),
            (FieldFact::Kilobytes, 6, false),
            (FieldFact::Rights, 0, false),
            (FieldFact::Links, 3, false),
            (FieldFact::User, 8, true),
            (FieldFact::Group, 8, true),
            (FieldFact::ListSize, 8, false),
            (FieldFact::ListTime, 0, false),
            (FieldFact::ListName, 0, false),
        ];
        let mut parts = Vec::new();
        for (what, width, left) in columns {
            parts.push(FindPart::Field(FindField { width, left, ..FindField::of(what) }));
            parts.push(FindPart::Text(b" ".to_vec()));
        }
        parts.pop();
        parts.push(FindPart::Text(b"\n".to_vec()));
        Self { parts, words }
    }

    /// What it has to know of files.
    pub fn facts(&self) -> FileFacts {
        let facts = self.parts.iter().map(|part| match part {
            FindPart::Text(_) => FileFacts::Kind,
            FindPart::Field(field) => field.what.facts(),
        });
        facts.max().unwrap_or(FileFacts::Kind)
    }

    /// Puts what is printed of a file behind what is there.
    pub fn put<E>(
        &self,
        file: &FindFile<'_>,
        asks: &mut dyn FindAsks<E>,
        out: &mut Vec<u8>,
    ) -> Result<(), E> {
        for part in &self.parts {
            match part {
                FindPart::Text(text) => out.extend_from_slice(text),
                FindPart::Field(field) => {
                    let from = out.len();
                    self.fact(field, file, asks, out)?;
                    field.fit(from, out);
                }
            }
        }
        Ok(())
    }

    fn fact<E>(
        &self,
        field: &FindField,
        file: &FindFile<'_>,
        asks: &mut dyn FindAsks<E>,
        out: &mut Vec<u8>,
    ) -> Result<(), E> {
        let words = &*self.words;
        let place = &file.place;
        let text = match field.what {
            FieldFact::Path | FieldFact::Above | FieldFact::Start => {
                out.extend_from_slice(place.before);
                let name = match field.what {
                    FieldFact::Path => place.path,
                    FieldFact::Above => file.above(),
                    _ => place.start,
                };
                words.put_name(name, out);
                return Ok(());
            }
            FieldFact::Base | FieldFact::Below => {
                let is_base = matches!(field.what, FieldFact::Base);
                words.put_name(if is_base { file.base() } else { file.below() }, out);
                return Ok(());
            }
            FieldFact::Link | FieldFact::ListName => {
                return self.link(field.what, file, asks, out);
            }
            FieldFact::Target if file.kind == FileKind::Symlink => asks.target().to_string(),
            FieldFact::Kind | FieldFact::Target => FindFile::letter(file.kind).to_string(),
            FieldFact::Size => file.size.to_string(),
            FieldFact::ListSize => match file.kind {
                FileKind::BlockDevice | FileKind::CharDevice => {
                    let device = file.fact(|status| status.rdev);
                    format!("{:3}, {:3}", rustix::fs::major(device), rustix::fs::minor(device))
                }
                _ => file.size.to_string(),
            },
            FieldFact::Mode if field.alternate && file.mode != 0 => format!("0{:o}", file.mode),
            FieldFact::Mode => format!("{:o}", file.mode),
            FieldFact::Rights => rights(file.kind, file.mode),
            FieldFact::User => words.user(file.uid),
            FieldFact::Group => words.group(file.gid),
            FieldFact::Uid => file.uid.to_string(),
            FieldFact::Gid => file.gid.to_string(),
            FieldFact::Depth => {
                out.extend(field.sign);
                file.depth.to_string()
            }
            FieldFact::Time(which, letter) => words.time(file.time(which), letter),
            FieldFact::ListTime => words.list_time(file.mtime),
            FieldFact::Inode => number(file, |status| status.ino),
            FieldFact::Links => number(file, |status| status.nlink.into()),
            FieldFact::Blocks => number(file, |status| status.blocks),
            FieldFact::Kilobytes => number(file, |status| status.blocks.div_ceil(2)),
            FieldFact::Device => number(file, |status| status.dev),
        };
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// What a link says, or a name as `-ls` has it.
    fn link<E>(
        &self,
        what: FieldFact,
        file: &FindFile<'_>,
        asks: &mut dyn FindAsks<E>,
        out: &mut Vec<u8>,
    ) -> Result<(), E> {
        let lists = matches!(what, FieldFact::ListName);
        if lists {
            put_quoted(file.place.before, out);
            put_quoted(file.place.path, out);
        }
        if file.kind == FileKind::Symlink {
            let link = asks.link()?;
            if lists {
                out.extend_from_slice(b" -> ");
                put_quoted(&link, out);
            } else {
                self.words.put_name(&link, out);
            }
        }
        Ok(())
    }
}

fn number(file: &FindFile<'_>, of: impl Fn(&Metadata) -> u64) -> String {
    file.fact(of).to_string()
}

impl FindField {
    fn of(what: FieldFact) -> Self {
        let (left, zeros, alternate, sign) = (false, false, false, None);
        Self { what, left, zeros, alternate, sign, width: 0, precision: None }
    }

    /// Makes what was put there as wide as it is to be.
    fn fit(&self, from: usize, out: &mut Vec<u8>) {
        let is_number = matches!(self.what, FieldFact::Mode | FieldFact::Depth);
        // Digits stand behind a sign.
        let digits =
            from + usize::from(self.sign.is_some() && matches!(self.what, FieldFact::Depth));
        match self.precision {
            Some(precision) if is_number => {
                let zeros = precision.saturating_sub(out.len() - digits);
                out.splice(digits..digits, std::iter::repeat_n(b'0', zeros));
            }
            Some(precision) => out.truncate(out.len().min(from + precision)),
            None => {}
        }
        let missing = self.width.saturating_sub(out.len() - from);
        if missing == 0 {
            return;
        }
        if self.left {
            out.resize(out.len() + missing, b' ');
        } else if self.zeros && is_number && self.precision.is_none() {
            out.splice(digits..digits, std::iter::repeat_n(b'0', missing));
        } else {
            out.splice(from..from, std::iter::repeat_n(b' ', missing));
        }
    }
}

/// Reads a format from the left to the right.
struct FormatReader<'a> {
    text: &'a [u8],
    at: usize,
    parts: Vec<FindPart>,
    unarchived: Option<String>,
}

impl FormatReader<'_> {
    fn read(&mut self) -> Result<(), FindError> {
        let mut plain = Vec::new();
        while let Some(byte) = self.next() {
            match byte {
                b'\\' => match self.escape()? {
                    Some(byte) => plain.push(byte),
                    // Nothing behind it is printed.
                    None => break,
                },
                b'%' if self.peek() == Some(b'%') => {
                    self.at += 1;
                    plain.push(b'%');
                }
                b'%' => {
                    if !plain.is_empty() {
                        self.parts.push(FindPart::Text(std::mem::take(&mut plain)));
                    }
                    let field = self.field()?;
                    self.parts.push(FindPart::Field(field));
                }
                byte => plain.push(byte),
            }
        }
        if !plain.is_empty() {
            self.parts.push(FindPart::Text(plain));
        }
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// What is written from a place on to here, with the rest of a character.
    fn written(&self, from: usize) -> String {
        let mut to = self.at;
        while self.text.get(to).is_some_and(|byte| byte & 0xc0 == 0x80) {
            to += 1;
        }
        String::from_utf8_lossy(&self.text[from..to]).into_owned()
    }

    /// What stands behind a backslash; nothing for the end.
    fn escape(&mut self) -> Result<Option<u8>, FindError> {
        let from = self.at - 1;
        Ok(Some(match self.next() {
            Some(b'a') => 7,
            Some(b'b') => 8,
            Some(b'c') => return Ok(None),
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'v') => 11,
            Some(b'\\') => b'\\',
            Some(digit @ b'0'..=b'7') => {
                let mut number = u32::from(digit - b'0');
                for _ in 0..2 {
                    let Some(digit @ b'0'..=b'7') = self.peek() else { break };
                    number = number * 8 + u32::from(digit - b'0');
                    self.at += 1;
                }
                // Of three digits the highest bit has no place.
                (number & 0xff) as u8
            }
            _ => {
                let text = format!("-printf: {} is no escape that is known", self.written(from));
                return Err(FindError(text));
            }
        }))
    }

    fn field(&mut self) -> Result<FindField, FindError> {
        let from = self.at - 1;
        // What it is follows.
        let mut field = FindField::of(FieldFact::Path);
        while let Some(flag) = self.peek() {
            match flag {
                b'-' => field.left = true,
                b'0' => field.zeros = true,
                b'#' => field.alternate = true,
                b'+' => field.sign = Some(b'+'),
                b' ' => field.sign = field.sign.or(Some(b' ')),
                _ => break,
            }
            self.at += 1;
        }
        field.width = self.number(from)?;
        if self.peek() == Some(b'.') {
            self.at += 1;
            field.precision = Some(self.number(from)?);
        }
        let wrong = |reader: &Self| {
            FindError(format!("-printf: {} is no directive that is known", reader.written(from)))
        };
        let Some(byte) = self.next() else {
            return Err(FindError("-printf: a % stands at the end".to_owned()));
        };
        field.what = match byte {
            b'a' => FieldFact::Time(FindTime::Accessed, 'c'),
            b'c' => FieldFact::Time(FindTime::Changed, 'c'),
            b't' => FieldFact::Time(FindTime::Modified, 'c'),
            b'A' | b'C' | b'T' => {
                let which = match byte {
                    b'A' => FindTime::Accessed,
                    b'C' => FindTime::Changed,
                    _ => FindTime::Modified,
                };
                let letter = self.next().filter(|letter| TIME_LETTERS.contains(letter));
                // That of `c` has no parts of seconds.
                match letter.ok_or_else(|| wrong(self))? {
                    b'c' => FieldFact::Time(which, 'C'),
                    letter => FieldFact::Time(which, letter.into()),
                }
            }
            byte => fact(byte).ok_or_else(|| wrong(self))?,
        };
        if !field.what.is_archived() && self.unarchived.is_none() {
            self.unarchived = Some(self.written(from));
        }
        Ok(field)
    }

    /// A width or precision; 0 where there is none.
    fn number(&mut self, from: usize) -> Result<usize, FindError> {
        let mut number = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            self.at += 1;
            number = number * 10 + usize::from(digit - b'0');
            if number > WIDTH_MAX {
                let text = format!("-printf: {} is wider than {WIDTH_MAX}", self.written(from));
                return Err(FindError(text));
            }
        }
        Ok(number)
    }
}

fn fact(byte: u8) -> Option<FieldFact> {
    Some(match byte {
        b'p' => FieldFact::Path,
        b'f' => FieldFact::Base,
        b'h' => FieldFact::Above,
        b'P' => FieldFact::Below,
        b'H' => FieldFact::Start,
        b's' => FieldFact::Size,
        b'm' => FieldFact::Mode,
        b'M' => FieldFact::Rights,
        b'u' => FieldFact::User,
        b'U' => FieldFact::Uid,
        b'g' => FieldFact::Group,
        b'G' => FieldFact::Gid,
        b'y' => FieldFact::Kind,
        b'Y' => FieldFact::Target,
        b'd' => FieldFact::Depth,
        b'l' => FieldFact::Link,
        b'i' => FieldFact::Inode,
        b'n' => FieldFact::Links,
        b'b' => FieldFact::Blocks,
        b'k' => FieldFact::Kilobytes,
        b'D' => FieldFact::Device,
        _ => return None,
    })
}

/// As `ls -l` has it: `drwxr-xr-x`.
fn rights(kind: FileKind, mode: u32) -> String {
    let mut text = String::with_capacity(10);
    text.push(match kind {
        FileKind::File => '-',
        FileKind::Unknown => '?',
        kind => FindFile::letter(kind),
    });
    for (shift, special, set) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => set,
            (true, false) => set.to_ascii_uppercase(),
        });
    }
    text
}

/// A name in one line, with backslashes before what is no plain character.
fn put_quoted(name: &[u8], out: &mut Vec<u8>) {
    for chunk in name.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                ' ' | '"' | '\\' => out.extend_from_slice(&[b'\\', char as u8]),
                '\n' => out.extend_from_slice(b"\\n"),
                '\t' => out.extend_from_slice(b"\\t"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\x07' => out.extend_from_slice(b"\\a"),
                '\x08' => out.extend_from_slice(b"\\b"),
                '\x0b' => out.extend_from_slice(b"\\v"),
                '\x0c' => out.extend_from_slice(b"\\f"),
                char if char.is_control() => {
                    let mut bytes = [0; 4];
                    put_octal(char.encode_utf8(&mut bytes).as_bytes(), out);
                }
                char => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        put_octal(chunk.invalid(), out);
    }
}

fn put_octal(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.extend_from_slice(format!("\\{byte:03o}").as_bytes());
    }
}
