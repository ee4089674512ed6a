//! Lines of lists, as `sha256sum` and the programs like it print them.
use sheaf_file::Algorithm;

/// What a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckLine {
    /// A file, and the digits of its digest.
    File { digest: Vec<u8>, name: Vec<u8> },
    /// Empty, or a remark.
    Nothing,
    /// Anything else.
    Malformed,
}

/// The form of a list's lines.
#[derive(Debug)]
pub struct Form {
    tag: &'static [u8],
    digits: usize,
    /// Whether there is one blank alone between digest and name, as some BSDs have it. A list is
    /// one or the other: where it is not known, a name could begin with a blank or not.
    one_blank: Option<bool>,
}

impl Form {
    /// That of lists of such digests.
    pub fn new(algorithm: Algorithm) -> Self {
        let (tag, digits): (&[u8], _) = match algorithm {
            Algorithm::Sha256 => (b"SHA256", 64),
            Algorithm::Sha512 => (b"SHA512", 128),
            Algorithm::Blake3 => (b"BLAKE3", 64),
        };
        Self { tag, digits, one_blank: None }
    }

    /// Reads a line, given without its newline.
    pub fn read(&mut self, line: &[u8]) -> CheckLine {
        let line = match line.strip_suffix(b"\r") {
            _ if line.first() == Some(&b'#') => return CheckLine::Nothing,
            Some(line) => line,
            None => line,
        };
        if line.is_empty() {
            return CheckLine::Nothing;
        }
        let file = self.file(line).filter(|(_, name)| !name.is_empty() && !name.contains(&0));
        file.map_or(CheckLine::Malformed, |(digest, name)| CheckLine::File { digest, name })
    }

    fn file(&mut self, line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let line = after_blanks(line);
        let (is_escaped, line) =
            line.strip_prefix(b"\\").map_or((false, line), |line| (true, line));
        let (digest, name) = match line.strip_prefix(self.tag) {
            Some(rest) => self.tagged(rest)?,
            None => self.plain(line)?,
        };
        let name = if is_escaped { unescaped(name)? } else { name.to_vec() };
        Some((digest.to_vec(), name))
    }

    /// `SHA256 (NAME) = DIGEST`, from behind the first word.
    fn tagged<'a>(&self, rest: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"(")?;
        let end = rest.iter().rposition(|&byte| byte == b')')?;
        let digest = after_blanks(after_blanks(&rest[end + 1..]).strip_prefix(b"=")?);
        self.is_digest(digest).then_some((digest, &rest[..end]))
    }

    /// `DIGEST  NAME`, `DIGEST *NAME`, or `DIGEST NAME`.
    fn plain<'a>(&mut self, line: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let (digest, rest) = line.split_at_checked(self.digits)?;
        let rest = rest.strip_prefix(b" ").or_else(|| rest.strip_prefix(b"\t"))?;
        if rest.is_empty() || !self.is_digest(digest) {
            return None;
        }
        // A byte that stands alone is a name.
        let name = rest.strip_prefix(b" ").or_else(|| rest.strip_prefix(b"*"));
        match name.filter(|name| !name.is_empty()) {
            None if self.one_blank == Some(false) => None,
            None => {
                self.one_blank = Some(true);
                Some((digest, rest))
            }
            Some(_) if self.one_blank == Some(true) => Some((digest, rest)),
            Some(name) => {
                self.one_blank = Some(false);
                Some((digest, name))
            }
        }
    }

    fn is_digest(&self, digits: &[u8]) -> bool {
        digits.len() == self.digits && digits.iter().all(u8::is_ascii_hexdigit)
    }
}

fn after_blanks(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &text[blanks..]
}

/// A name in which newlines, returns and backslashes are written out.
fn unescaped(name: &[u8]) -> Option<Vec<u8>> {
    let (mut plain, mut bytes) = (Vec::new(), name.iter());
    while let Some(&byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            },
            byte => byte,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in such lines; `-` where the line is malformed, nothing where there is none.
    fn names(lines: &[&str]) -> Vec<String> {
        let mut form = Form::new(Algorithm::Sha256);
        let digest = "0123456789abcdefABCDEF0123456789".repeat(2);
        let read = |line: &&str| match form.read(line.replace('D', &digest).as_bytes()) {
            CheckLine::File { digest: found, name } => {
                assert_eq!(found, digest.as_bytes());
                String::from_utf8(name).unwrap()
            }
            CheckLine::Nothing => String::new(),
            CheckLine::Malformed => "-".to_owned(),
        };
        lines.iter().map(read).collect()
    }

    #[test]
    fn lines_are_read_in_every_form() {
        let lines = [
            "D  a",
            "D *b",
            " \tD  a b\r",
            "\\D  x\\ny\\\\z",
            "SHA256 (a) b) = D",
            "\\SHA256(a\\n)=D",
        ];
        assert_eq!(names(&lines), ["a", "b", "a b", "x\ny\\z", "a) b", "a\n"]);
        assert_eq!(names(&["", "# D  a", "\r"]), ["", "", ""]);
        let bad = [
            "D",
            "D ",
            "D",
            "Dx a",
            "xD  a",
            "\\D  a\\",
            "\\D  a\\x",
            "SHA512 (a) = D",
            "SHA256 () = D",
        ];
        assert_eq!(names(&bad), ["-"; 9]);
        assert_eq!(
            names(&["SHA256 (a) = D ", "SHA256 (a) D", "SHA256 a = D", "D  a\0b"]),
            ["-"; 4]
        );
    }

    #[test]
    fn one_blank_and_two_do_not_mix() {
        assert_eq!(names(&["D ab", "D  cd", "D *e"]), ["ab", " cd", "*e"]);
        assert_eq!(names(&["D  ab", "D cd", "D *e"]), ["ab", "-", "e"]);
    }
}
