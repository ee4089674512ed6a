//! Formats of `stat -c`.
use crate::report::human;
use serde::{Deserialize, Serialize};
use sheaf_file::Metadata;
use std::iter::Peekable;
use std::str::Chars;

/// The widest field; a wider one is a mistake.
const WIDTH_MAX: u32 = 1000;

/// A piece of a format.
#[derive(Debug)]
pub enum FormatPart {
    Literal(String),
    Directive(Directive, Pad),
}

/// What a letter stands for.
#[derive(Debug, Clone, Copy)]
pub enum Directive {
    Path,
    PathWithTarget,
    QuotedName,
    Mode,
    ModeText,
    RawMode,
    Kind,
    User,
    Group,
    Number(NumberFormat),
    Hex(NumberFormat),
    AccessTime,
    ModifyTime,
    ChangeTime,
    BirthTime,
    /// Seconds with so many digits after the point.
    AccessSeconds(u32),
    ModifySeconds(u32),
    ChangeSeconds(u32),
    BirthSeconds(u32),
    MountPoint,
    OfFileSystem(FileSystemPart),
}

/// What is shown of a file system.
#[derive(Debug, Clone, Copy)]
pub enum FileSystemPart {
    Path,
    Id,
    NameBytesMax,
    Magic,
    Kind,
    BlockSize,
    FragmentSize,
    Blocks,
    Free,
    Available,
    Inodes,
    FreeInodes,
}

impl FormatPart {
    pub fn is_mount_point(&self) -> bool {
        matches!(self, Self::Directive(Directive::MountPoint, _))
    }
}

/// A number of the inode.
#[derive(Debug, Clone, Copy)]
pub enum NumberFormat {
    Blocks,
    BlockUnit,
    Device,
    DeviceMajor,
    DeviceMinor,
    Gid,
    Links,
    Inode,
    IoBlock,
    Size,
    Rdev,
    RdevMajor,
    RdevMinor,
    Uid,
}

impl NumberFormat {
    pub fn of(self, metadata: &Metadata) -> u64 {
        match self {
            Self::Blocks => metadata.blocks,
            Self::BlockUnit => 512,
            Self::Device => metadata.dev,
            Self::DeviceMajor => human::device(metadata.dev).0.into(),
            Self::DeviceMinor => human::device(metadata.dev).1.into(),
            Self::Gid => metadata.gid.into(),
            Self::Links => metadata.nlink.into(),
            Self::Inode => metadata.ino,
            Self::IoBlock => metadata.block_size.into(),
            Self::Size => metadata.size,
            Self::Rdev => metadata.rdev,
            Self::RdevMajor => human::device(metadata.rdev).0.into(),
            Self::RdevMinor => human::device(metadata.rdev).1.into(),
            Self::Uid => metadata.uid.into(),
        }
    }
}

/// How a value is put into its field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pad {
    width: u32,
    left: bool,
    zeros: bool,
    /// Before a number that may be negative: a blank, or a plus.
    sign: Option<char>,
    /// `#`: with the prefix of its base.
    prefix: bool,
    octal: bool,
    /// At most so many characters of a text; at least so many digits of a number.
    precision: Option<u32>,
    number: bool,
}

impl Pad {
    /// Appends `value` in its field.
    pub fn put(self, value: &[u8], out: &mut Vec<u8>) {
        let mut text = Vec::new();
        let sign = self.sign.map(|sign| sign as u8);
        if self.prefix {
            text.extend_from_slice(if self.octal { b"0" } else { b"0x" });
        }
        match self.precision.map(|precision| precision.min(WIDTH_MAX) as usize) {
            Some(digits) if self.number => {
                text.extend(std::iter::repeat_n(b'0', digits.saturating_sub(value.len())));
                text.extend_from_slice(value);
            }
            Some(bytes) => text.extend_from_slice(&value[..bytes.min(value.len())]),
            None => text.extend_from_slice(value),
        }
        let length = String::from_utf8_lossy(&text).chars().count() + sign.iter().count();
        // What hosts send has not been through the parser.
        let fill = (self.width.min(WIDTH_MAX) as usize).saturating_sub(length);
        match (self.left, self.zeros) {
            (true, _) => out.extend(sign),
            (false, true) => out.extend(sign.into_iter().chain(std::iter::repeat_n(b'0', fill))),
            (false, false) => out.extend(std::iter::repeat_n(b' ', fill).chain(sign)),
        }
        out.extend_from_slice(&text);
        if self.left {
            out.extend(std::iter::repeat_n(b' ', fill));
        }
    }
}

/// Reads digits, which may be none.
fn number(chars: &mut Peekable<Chars<'_>>) -> Result<Option<u32>, String> {
    let mut number = None;
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        let next = number.unwrap_or(0) * 10 + digit.to_digit(10).unwrap_or(0);
        if next > WIDTH_MAX {
            return Err(format!("a field is wider than {WIDTH_MAX}"));
        }
        number = Some(next);
    }
    Ok(number)
}

/// Reads a format: of files, or of file systems.
pub fn parse(format: &str, file_system: bool) -> Result<Vec<FormatPart>, String> {
    let (mut parts, mut literal) = (Vec::new(), String::new());
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            literal.push(c);
            continue;
        }
        if chars.peek() == Some(&'%') {
            chars.next();
            literal.push('%');
            continue;
        }
        let mut pad = Pad::default();
        while let Some(flag) = chars.next_if(|c| "-0#+ '".contains(*c)) {
            match flag {
                '-' => pad.left = true,
                '0' => pad.zeros = true,
                '#' => pad.prefix = true,
                '+' => pad.sign = Some('+'),
                ' ' => pad.sign = pad.sign.or(Some(' ')),
                _ => {}
            }
        }
        pad.width = number(&mut chars)?.unwrap_or(0);
        let precision = match chars.next_if_eq(&'.') {
            Some(_) => Some(number(&mut chars)?),
            None => None,
        };
        let half = chars.next_if(|c| "HL".contains(*c));
        let letter = chars.next().ok_or("a % in the end stands for nothing; write %%")?;
        // A point without a number is the whole precision of a time.
        let digits = precision.map_or(0, |digits| digits.unwrap_or(9));
        let found = match file_system {
            true if half.is_none() => part_of_file_system(letter).map(Directive::OfFileSystem),
            true => None,
            false => directive(half, letter, digits),
        };
        let directive = found.ok_or_else(|| {
            format!("%{}{letter} stands for nothing", half.map(String::from).unwrap_or_default())
        })?;
        pad.precision = precision.map(|digits| digits.unwrap_or(0));
        if directive.is_seconds() {
            pad.precision = None;
        }
        pad.number = directive.is_number();
        pad.octal = matches!(directive, Directive::Mode);
        pad.prefix &= matches!(directive, Directive::Mode | Directive::RawMode | Directive::Hex(_));
        pad.zeros &= !pad.left;
        // As in GNU stat, where of all numbers the size alone is signed.
        pad.sign = pad.sign.filter(|_| matches!(directive, Directive::Number(NumberFormat::Size)));
        if !literal.is_empty() {
            parts.push(FormatPart::Literal(std::mem::take(&mut literal)));
        }
        parts.push(FormatPart::Directive(directive, pad));
    }
    if !literal.is_empty() {
        parts.push(FormatPart::Literal(literal));
    }
    Ok(parts)
}

impl Directive {
    fn is_seconds(self) -> bool {
        matches!(
            self,
            Self::AccessSeconds(_)
                | Self::ModifySeconds(_)
                | Self::ChangeSeconds(_)
                | Self::BirthSeconds(_)
        )
    }

    fn is_number(self) -> bool {
        match self {
            Self::Number(_) | Self::Hex(_) | Self::Mode | Self::RawMode => true,
            Self::OfFileSystem(part) => {
                !matches!(part, FileSystemPart::Path | FileSystemPart::Kind)
            }
            _ => false,
        }
    }
}

fn part_of_file_system(letter: char) -> Option<FileSystemPart> {
    use FileSystemPart as P;
    Some(match letter {
        'n' => P::Path,
        'i' => P::Id,
        'l' => P::NameBytesMax,
        't' => P::Magic,
        'T' => P::Kind,
        's' => P::BlockSize,
        'S' => P::FragmentSize,
        'b' => P::Blocks,
        'f' => P::Free,
        'a' => P::Available,
        'c' => P::Inodes,
        'd' => P::FreeInodes,
        _ => return None,
    })
}

fn directive(half: Option<char>, letter: char, digits: u32) -> Option<Directive> {
    use Directive as D;
    Some(match (half, letter) {
        (Some('H'), 'd') => D::Number(NumberFormat::DeviceMajor),
        (Some('L'), 'd') => D::Number(NumberFormat::DeviceMinor),
        (Some('H'), 'r') => D::Number(NumberFormat::RdevMajor),
        (Some('L'), 'r') => D::Number(NumberFormat::RdevMinor),
        (Some(_), _) => return None,
        (None, letter) => match letter {
            'a' => D::Mode,
            'A' => D::ModeText,
            'b' => D::Number(NumberFormat::Blocks),
            'B' => D::Number(NumberFormat::BlockUnit),
            'd' => D::Number(NumberFormat::Device),
            'D' => D::Hex(NumberFormat::Device),
            'f' => D::RawMode,
            'F' => D::Kind,
            'g' => D::Number(NumberFormat::Gid),
            'G' => D::Group,
            'h' => D::Number(NumberFormat::Links),
            'i' => D::Number(NumberFormat::Inode),
            'm' => D::MountPoint,
            'n' => D::Path,
            'N' => D::QuotedName,
            'o' => D::Number(NumberFormat::IoBlock),
            // Ours: the name as it is, and where a link leads.
            'P' => D::PathWithTarget,
            'r' => D::Number(NumberFormat::Rdev),
            'R' => D::Hex(NumberFormat::Rdev),
            's' => D::Number(NumberFormat::Size),
            't' => D::Hex(NumberFormat::RdevMajor),
            'T' => D::Hex(NumberFormat::RdevMinor),
            'u' => D::Number(NumberFormat::Uid),
            'U' => D::User,
            'w' => D::BirthTime,
            'W' => D::BirthSeconds(digits),
            'x' => D::AccessTime,
            'X' => D::AccessSeconds(digits),
            'y' => D::ModifyTime,
            'Y' => D::ModifySeconds(digits),
            'z' => D::ChangeTime,
            'Z' => D::ChangeSeconds(digits),
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mistakes_are_named() {
        assert!(parse("100%", false).unwrap_err().contains("%%"));
        assert!(parse("%q", false).unwrap_err().contains("%q"));
        assert!(parse("%99999s", false).is_err());
        assert!(parse("%.99999X", false).is_err());
        assert!(parse("%Hs", false).is_err());
        assert!(parse("%%%-10s%#a%.3X%.Y%m", false).is_ok());
        assert!(parse("%u", true).unwrap_err().contains("%u"));
        assert!(parse("%n %-8i %l %t %T %s %S %b %f %a %c %d", true).is_ok());
    }

    #[test]
    fn sign_of_a_size_stands_in_its_field() {
        for (format, shown) in [
            ("% s", " 11"),
            ("%+s", "+11"),
            ("%+ s", "+11"),
            ("%+6s", "   +11"),
            ("%+06s", "+00011"),
            ("%-+6s|", "+11   |"),
        ] {
            let mut out = Vec::new();
            for part in parse(format, false).unwrap() {
                match part {
                    FormatPart::Literal(text) => out.extend(text.bytes()),
                    FormatPart::Directive(_, pad) => pad.put(b"11", &mut out),
                }
            }
            assert_eq!(String::from_utf8(out).unwrap(), shown, "{format}");
        }
        let FormatPart::Directive(_, pad) = parse("% u", false).unwrap().remove(0) else {
            panic!()
        };
        assert_eq!(pad.sign, None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(format in "\\PC{0,20}", tail in "[%0-9HLa-z#-]{0,9}") {
            let _ = parse(&(format.clone() + &tail), false);
            let _ = parse(&(format + &tail), true);
        }
    }
}
