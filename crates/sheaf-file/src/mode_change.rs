//! Changes of permissions, as `chmod(1)` reads them.

use crate::Result;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;

/// The most clauses of one change, as `u+x,g-w` has two.
const CLAUSES_MAX: usize = 64;

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const STICKY: u32 = 0o1000;

/// A change of permissions: an octal number, which `+`, `-` or `=` may precede, or clauses such as
/// `u+rwx,go=rX` or `g=u`. Each file's
/// new permissions depend on its old ones, so a change is applied where the file is.
///
/// ```
/// use sheaf_file::ModeChange;
/// let change = ModeChange::parse("u+x,go-w", 0o022).unwrap();
/// assert_eq!(change.apply(0o664, false), 0o744);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeChange(Change);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Change {
    Octal {
        mode: u32,
        /// Five digits or more speak of the set-id bits of directories, too.
        sets_dir_ids: bool,
    },
    Clauses(Vec<Clause>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Clause {
    /// The bits of those it is about: `u`, `g` and `o` with their set-id bits.
    who: u32,
    /// Bits it must not touch because nobody was named and the umask has them.
    masked: u32,
    action: Action,
    what: ModeBits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Action {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum ModeBits {
    Bits {
        /// Bits for everybody.
        bits: u32,
        /// `X`: execution for directories and for files somebody may execute.
        search: bool,
    },
    /// All permissions, as a number: set-id bits of directories too.
    Octal(u32),
    /// What user (6), group (3) or others (0) have: how far their bits are shifted.
    CopyOf(u32),
}

impl ModeChange {
    /// Reads a change. `umask` limits clauses that name nobody, as `+w`.
    ///
    /// # Errors
    /// `EINVAL` for anything else.
    pub fn parse(text: &str, umask: u32) -> Result<Self> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let sets_dir_ids = text.len() > 4;
            return Ok(Self(Change::Octal { mode: octal(text)?, sets_dir_ids }));
        }
        let mut clauses = Vec::new();
        for text in text.split(',') {
            read_clauses(text.as_bytes(), umask, &mut clauses)?;
        }
        Ok(Self(Change::Clauses(clauses)))
    }

    /// The new permission bits of a file that has these, `0o7777` both.
    #[must_use]
    pub fn apply(&self, mode: u32, is_dir: bool) -> u32 {
        match &self.0 {
            Change::Octal { mode: new, sets_dir_ids } => {
                // A directory's set-id bits decide about its new entries and are not lost by
                // chance.
                let kept = if is_dir && !sets_dir_ids { mode & (SET_UID | SET_GID) } else { 0 };
                new | kept
            }
            Change::Clauses(clauses) => {
                clauses.iter().fold(mode & 0o7777, |mode, clause| clause.apply(mode, is_dir))
            }
        }
    }

    /// The permission bits of a directory that is made with this change, as `mkdir -m` of GNU has them. `inherited` are
    /// the set-id bits that it has got from the directory above, and `left` what the default access list of that
    /// one has left of the permissions; all (`0o777`) without a list.
    #[must_use]
    pub fn apply_to_new_dir(&self, inherited: u32, left: u32) -> u32 {
        const OTHERS_WRITE: u32 = 0o022;
        let (mut mode, mut named) = (0o777, 0);
        match &self.0 {
            Change::Octal { mode: new, sets_dir_ids } => {
                mode = *new;
                named = if *sets_dir_ids { 0o7777 } else { new | 0o1777 };
            }
            Change::Clauses(clauses) => {
                for clause in clauses {
                    named |= clause.named(mode, true);
                    mode = clause.apply(mode, true);
                }
            }
        }
        let inherited = inherited & (SET_UID | SET_GID);
        let is_plain = named & (SET_UID | SET_GID) == 0 && mode & STICKY == 0;
        // What is said of set-id bits alone opens a directory to nobody.
        let first = if is_plain { left } else { STICKY | left & !OTHERS_WRITE };
        let made = mode & first | inherited;
        if (made ^ mode) & named != 0 { mode | made & !named } else { made }
    }
}

impl Clause {
    fn bits(&self, mode: u32, is_dir: bool) -> u32 {
        match self.what {
            ModeBits::Bits { bits, search } if search && (is_dir || mode & 0o111 != 0) => {
                bits | 0o111
            }
            ModeBits::Bits { bits, .. } | ModeBits::Octal(bits) => bits,
            ModeBits::CopyOf(shift) => (mode >> shift & 0o7) * 0o111,
        }
    }

    /// The bits that `=` keeps of a directory, unless it names them.
    fn kept(&self, bits: u32, is_dir: bool) -> u32 {
        let names_ids = bits & (SET_UID | SET_GID) != 0 || matches!(self.what, ModeBits::Octal(_));
        if is_dir && !names_ids { SET_UID | SET_GID } else { 0 }
    }

    /// The bits that it speaks of, whatever it says.
    fn named(&self, mode: u32, is_dir: bool) -> u32 {
        match self.action {
            Action::Set => self.who & !self.kept(self.bits(mode, is_dir), is_dir),
            Action::Add | Action::Remove => self.bits(mode, is_dir) & self.who & !self.masked,
        }
    }

    fn apply(&self, mode: u32, is_dir: bool) -> u32 {
        let bits = self.bits(mode, is_dir);
        let value = bits & self.who & !self.masked;
        match self.action {
            Action::Add => mode | value,
            Action::Remove => mode & !value,
            Action::Set => mode & !(self.who & !self.kept(bits, is_dir)) | value,
        }
    }
}

/// The permissions that this process gives no new file. Only Linux says it without changing it; where that is not to
/// be had, all that are not the owner's.
#[must_use]
pub fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let said = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    said.and_then(|umask| octal(umask.trim()).ok()).unwrap_or(0o077)
}

fn octal(text: &str) -> Result<u32> {
    let is_octal = text.bytes().all(|digit| (b'0'..b'8').contains(&digit));
    let mode = u32::from_str_radix(text, 8).ok().filter(|&mode| is_octal && mode <= 0o7777);
    mode.ok_or(Errno::INVAL)
}

/// Reads one text between commas: who, then one action after the other, as in `u+x-w`.
fn read_clauses(text: &[u8], umask: u32, clauses: &mut Vec<Clause>) -> Result<()> {
    let actions = text.iter().position(|&byte| b"+-=".contains(&byte)).ok_or(Errno::INVAL)?;
    let (names, mut rest) = text.split_at(actions);
    let mut who = 0;
    for name in names {
        who |= match name {
            b'u' => SET_UID | 0o700,
            b'g' => SET_GID | 0o070,
            b'o' => STICKY | 0o007,
            b'a' => 0o7777,
            _ => return Err(Errno::INVAL),
        };
    }
    let all_masked = if names.is_empty() { umask & 0o777 } else { 0 };
    let is_number = |letters: &[u8]| letters.first().is_some_and(u8::is_ascii_digit);
    let who = if names.is_empty() { 0o7777 } else { who };
    while let Some((action, after)) = rest.split_first() {
        let action = match action {
            b'+' => Action::Add,
            b'-' => Action::Remove,
            _ => Action::Set,
        };
        let end = after.iter().position(|&byte| b"+-=".contains(&byte)).unwrap_or(after.len());
        let (letters, next) = after.split_at(end);
        let what = read_what(letters)?;
        // A number stands alone, as in `=755`, and means everybody, whatever the umask.
        if is_number(letters) && !(names.is_empty() && next.is_empty()) {
            return Err(Errno::INVAL);
        }
        let masked = if is_number(letters) { 0 } else { all_masked };
        if clauses.len() == CLAUSES_MAX {
            return Err(Errno::INVAL);
        }
        clauses.push(Clause { who, masked, action, what });
        rest = next;
    }
    Ok(())
}

fn read_what(letters: &[u8]) -> Result<ModeBits> {
    if letters.first().is_some_and(u8::is_ascii_digit) {
        let digits = std::str::from_utf8(letters).map_err(|_| Errno::INVAL)?;
        return Ok(ModeBits::Octal(octal(digits)?));
    }
    let (mut bits, mut search) = (0, false);
    for letter in letters {
        match letter {
            b'r' => bits |= 0o444,
            b'w' => bits |= 0o222,
            b'x' => bits |= 0o111,
            b'X' => search = true,
            b's' => bits |= SET_UID | SET_GID,
            b't' => bits |= STICKY,
            b'u' | b'g' | b'o' if letters.len() == 1 => {
                return Ok(ModeBits::CopyOf(match letter {
                    b'u' => 6,
                    b'g' => 3,
                    _ => 0,
                }));
            }
            _ => return Err(Errno::INVAL),
        }
    }
    Ok(ModeBits::Bits { bits, search })
}
