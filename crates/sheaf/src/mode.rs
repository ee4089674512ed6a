//! File modes as chmod takes them: octal, or symbolic changes of what is there.
use std::fmt;

const SETID: u32 = 0o6000;
const STICKY: u32 = 0o1000;
const MODE_MAX: u32 = 0o7777;

/// What to make of a file's mode.
///
/// A symbolic change depends on each file's own mode, so it is applied per file (or per set of
/// files whose modes are equal).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModeChange {
    /// Octal. A directory's set-id bits stay unless the number has digits enough to name them.
    Absolute { mode: u32, keep_directory_setid: bool },
    /// Symbolic clauses, applied one after the other.
    Symbolic(Vec<Clause>),
}

/// One action of a symbolic change, such as the `u+x` of `u+x,go-w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clause {
    /// Bits of those the clause speaks of.
    who: u32,
    /// Nobody was named: all, less what the umask takes away.
    masked: bool,
    operator: Operator,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// These bits of everybody, and `X`: execute if a directory or if anybody has it already.
    Bits { bits: u32, execute_if_any: bool },
    /// What the user, group or others have now, by how far their bits are shifted.
    CopyOf(u32),
}

/// Why a mode is not one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadMode(&'static str);

impl fmt::Display for BadMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadMode {}

/// Parses an octal mode alone, for files that are being created.
pub fn octal(text: &str) -> Result<u32, BadMode> {
    let digits = !text.is_empty() && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = if digits { u32::from_str_radix(text, 8).ok() } else { None };
    mode.filter(|mode| *mode <= MODE_MAX).ok_or(BadMode("not an octal mode from 0 to 7777"))
}

impl ModeChange {
    /// Parses `0644` or `u=rw,go-w`.
    pub fn parse(text: &str) -> Result<Self, BadMode> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            return Ok(Self::Absolute { mode: octal(text)?, keep_directory_setid: text.len() <= 4 });
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            parse_clauses(part, &mut clauses)?;
        }
        Ok(Self::Symbolic(clauses))
    }

    /// The mode that a file of mode `old` gets.
    pub fn apply(&self, old: u32, is_directory: bool, umask: u32) -> u32 {
        match self {
            Self::Absolute { mode, keep_directory_setid } => {
                let kept = if is_directory && *keep_directory_setid { old & SETID } else { 0 };
                mode | kept
            }
            Self::Symbolic(clauses) => {
                clauses.iter().fold(old & MODE_MAX, |mode, clause| clause.apply(mode, is_directory, umask))
            }
        }
    }
}

/// Parses one part between commas: whom, then one or more actions (`u+r-w`).
fn parse_clauses(part: &str, clauses: &mut Vec<Clause>) -> Result<(), BadMode> {
    let actions = part.trim_start_matches(['u', 'g', 'o', 'a']);
    let named = &part[..part.len() - actions.len()];
    let who = named.chars().fold(0, |who, name| {
        who | match name {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            _ => MODE_MAX,
        }
    });
    let who = if named.is_empty() { MODE_MAX } else { who };
    let mut rest = actions;
    loop {
        let operator = match rest.chars().next() {
            Some('+') => Operator::Add,
            Some('-') => Operator::Remove,
            Some('=') => Operator::Set,
            _ => return Err(BadMode("expected + - or = after whom it is for")),
        };
        let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
        let what = parse_what(&rest[1..end])?;
        clauses.push(Clause { who, masked: named.is_empty(), operator, what });
        rest = &rest[end..];
        if rest.is_empty() {
            return Ok(());
        }
    }
}

fn parse_what(text: &str) -> Result<What, BadMode> {
    match text {
        "u" => return Ok(What::CopyOf(6)),
        "g" => return Ok(What::CopyOf(3)),
        "o" => return Ok(What::CopyOf(0)),
        _ => {}
    }
    let (mut bits, mut execute_if_any) = (0, false);
    for letter in text.chars() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            'X' => execute_if_any = true,
            's' => bits |= SETID,
            't' => bits |= STICKY,
            _ => return Err(BadMode("permissions are r w x X s t, or one of u g o")),
        }
    }
    Ok(What::Bits { bits, execute_if_any })
}

impl Clause {
    fn apply(&self, mode: u32, is_directory: bool, umask: u32) -> u32 {
        let wanted = match self.what {
            What::Bits { bits, execute_if_any } => {
                let execute = execute_if_any && (is_directory || mode & 0o111 != 0);
                bits | if execute { 0o111 } else { 0 }
            }
            What::CopyOf(shift) => (mode >> shift & 0o7) * 0o111,
        };
        let allowed = if self.masked { self.who & !umask } else { self.who };
        let bits = wanted & allowed;
        match self.operator {
            Operator::Add => mode | bits,
            Operator::Remove => mode & !bits,
            // Set-id bits of a directory only go when the clause names them.
            Operator::Set if is_directory => mode & !(self.who & !SETID) | bits,
            Operator::Set => mode & !self.who | bits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, old: u32) -> u32 {
        ModeChange::parse(text).unwrap().apply(old, false, 0o022)
    }

    #[test]
    fn octal_replaces_but_keeps_set_id_of_directories() {
        assert_eq!(changed("0644", 0o4755), 0o644);
        let change = ModeChange::parse("755").unwrap();
        assert_eq!(change.apply(0o2700, true, 0), 0o2755);
        assert_eq!(ModeChange::parse("00755").unwrap().apply(0o2700, true, 0), 0o755);
    }

    #[test]
    fn symbolic_changes_are_those_of_chmod() {
        assert_eq!(changed("u+x,go-w", 0o666), 0o744);
        assert_eq!(changed("+w", 0o444), 0o644, "nobody named: the umask holds");
        assert_eq!(changed("a+w", 0o444), 0o666);
        assert_eq!(changed("a+X", 0o644), 0o644);
        assert_eq!(changed("a+X", 0o744), 0o755);
        assert_eq!(changed("g=u,o=", 0o640), 0o660);
        assert_eq!(changed("u+s,g+s,o+t", 0o755), 0o7755);
        assert_eq!(changed("u=rw+x", 0o000), 0o700);
        assert_eq!(ModeChange::parse("u=rwX").unwrap().apply(0o2000, true, 0), 0o2700);
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for text in ["", "8", "77777", "u", "u+q", "x+r", "u+r,", "u+gr", "+é"] {
            assert!(ModeChange::parse(text).is_err(), "{text}");
        }
    }

    /// The host's own chmod is the oracle.
    #[test]
    fn agrees_with_chmod() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        for text in ["u+x", "go=", "a=rX", "u=g", "g=o,o=u", "+x", "-w", "=r", "u-s+t", "o+t", "ug=rw,o-x"] {
            for old in [0o000, 0o644, 0o751, 0o4755, 0o1234, 0o6070] {
                std::fs::set_permissions(&file, PermissionsExt::from_mode(old)).unwrap();
                let script = format!("umask 022; chmod -- '{text}' {}", file.display());
                let done = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
                // chmod warns, with status 1, when the umask changed the meaning; the mode is set all the same.
                assert!(done.status.code().is_some());
                let mode = std::fs::metadata(&file).unwrap().permissions().mode() & MODE_MAX;
                assert_eq!(changed(text, old), mode, "{text} on {old:o}");
            }
        }
    }
}
