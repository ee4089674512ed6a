//! The text that a host answers with, on its way to standard output. A host speaks for itself alone, and whatever it
//! says to the terminal is text.
use super::work::HostWork;
use sheaf_archive::ArchiveGrepOutput;
use sheaf_core::Errno;
use std::collections::HashSet;
use std::sync::Arc;

/// A line that has no end yet is kept so long at most.
const LINE_BYTES_MAX: usize = 1 << 20;

/// What the lines of a host begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineRule {
    /// Its name and a colon, but for what is a line of a name that has several.
    Named,
    /// They are records, which name it.
    Records,
    /// What was asked for.
    Free,
}

/// How the text of hosts is written.
#[derive(Clone, Debug)]
pub struct TextRules {
    hosts: Arc<HashSet<String>>,
    rule: LineRule,
    to_terminal: bool,
}

/// The text of one host.
#[derive(Clone, Debug)]
pub struct HostText {
    host: String,
    rules: TextRules,
    /// The beginning of a line.
    begun: Vec<u8>,
    /// What is left of a line that was too long to be kept.
    continues: bool,
}

impl TextRules {
    /// Those of what these hosts do.
    pub fn new(work: &HostWork, hosts: &[String], to_terminal: bool) -> Self {
        let rule = match work {
            HostWork::Find { json: true, .. } => LineRule::Records,
            HostWork::Find { tests, .. } => {
                let is_free = |test: &String| test.starts_with("-print") && test != "-print";
                let is_free = tests.iter().any(|test| is_free(test) || test == "-ls");
                if is_free { LineRule::Free } else { LineRule::Named }
            }
            HostWork::Grep { options, .. } => {
                let has_names = options.names
                    || matches!(
                        options.output,
                        ArchiveGrepOutput::PathsWith | ArchiveGrepOutput::PathsWithout
                    );
                if has_names && !options.nul { LineRule::Named } else { LineRule::Free }
            }
            HostWork::Copy { .. } => LineRule::Named,
        };
        Self { hosts: Arc::new(hosts.iter().cloned().collect()), rule, to_terminal }
    }

    /// Of this host, nothing has come yet.
    pub fn of(&self, host: &str) -> HostText {
        let rules = self.clone();
        HostText { host: host.to_owned(), rules, begun: Vec::new(), continues: false }
    }
}

impl HostText {
    /// What is to be written now that this has come; lines are written when they are whole.
    ///
    /// # Errors
    /// `EPROTO` for what another host would have to say.
    pub fn take(&mut self, text: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut out = Vec::new();
        for part in text.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(part);
            if part.ends_with(b"\n") || self.begun.len() > LINE_BYTES_MAX {
                self.write(&mut out)?;
            }
        }
        Ok(out)
    }

    /// There is no more: what is left is written.
    ///
    /// # Errors
    /// As above.
    pub fn end(&mut self) -> Result<Vec<u8>, Errno> {
        let mut out = Vec::new();
        if !self.begun.is_empty() {
            self.write(&mut out)?;
            if self.rules.rule != LineRule::Free {
                out.push(b'\n');
            }
        }
        Ok(out)
    }

    fn write(&mut self, out: &mut Vec<u8>) -> Result<(), Errno> {
        let line = std::mem::take(&mut self.begun);
        let is_begin = !std::mem::replace(&mut self.continues, !line.ends_with(b"\n"));
        if is_begin && !self.may_say(&line) {
            return Err(Errno::PROTO);
        }
        if self.rules.to_terminal {
            put_plain(&line, out);
        } else {
            out.extend_from_slice(&line);
        }
        Ok(())
    }

    /// Whether a line may be its own.
    fn may_say(&self, line: &[u8]) -> bool {
        let is_of = |host: &str, text: &[u8]| {
            text.strip_prefix(host.as_bytes()).is_some_and(|rest| rest.starts_with(b":"))
        };
        match self.rules.rule {
            LineRule::Free => true,
            LineRule::Records => {
                let record: Option<serde_json::Value> = serde_json::from_slice(line).ok();
                record.is_some_and(|record| record["host"] == self.host)
            }
            LineRule::Named => {
                let text = without_colours(line);
                let name = text.split(|byte| *byte == b':').next().unwrap_or_default();
                let name = String::from_utf8_lossy(name);
                is_of(&self.host, &text)
                    || !is_of(&name, &text)
                    || !self.rules.hosts.contains(&*name)
            }
        }
    }
}

/// The length of a sequence at the beginning that sets colours or ends a line in them, as GNU grep writes them.
fn colour_len(text: &[u8]) -> Option<usize> {
    let rest = text.strip_prefix(b"\x1b[")?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b';')?;
    matches!(rest[end], b'm' | b'K').then_some(2 + end + 1)
}

fn without_colours(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let [first, behind @ ..] = rest {
        match colour_len(rest) {
            Some(len) => rest = &rest[len..],
            None => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    out
}

/// A line for a terminal: what that would take for a command, but colours, is escaped.
fn put_plain(line: &[u8], out: &mut Vec<u8>) {
    let mut rest = line;
    while !rest.is_empty() {
        if let Some(len) = colour_len(rest) {
            out.extend_from_slice(&rest[..len]);
            rest = &rest[len..];
            continue;
        }
        let end =
            rest[1..].iter().position(|byte| *byte == b'\x1b').map_or(rest.len(), |at| at + 1);
        for char in String::from_utf8_lossy(&rest[..end]).chars() {
            match char {
                '\n' | '\t' => out.push(char as u8),
                char if char.is_control() => {
                    out.extend(char.escape_default().map(|char| char as u8));
                }
                char => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        rest = &rest[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_core::files::Timestamp;

    fn text(tests: &[&str], json: bool, to_terminal: bool) -> HostText {
        let tests = tests.iter().map(|test| (*test).to_owned()).collect();
        let (paths, now) = (Vec::new(), Timestamp::default());
        let work = HostWork::Find { paths, tests, now, json, is_terminal: to_terminal };
        let hosts = ["n1", "n2", "n3"].map(str::to_owned);
        TextRules::new(&work, &hosts, to_terminal).of("n2")
    }

    #[test]
    fn host_speaks_for_itself_alone() {
        let (plain, record) = (&[][..], b"{\"host\":\"n2\"}\n");
        for (tests, json, said, is_own) in [
            (plain, false, &b"n2:/b/x\n"[..], true),
            (plain, false, b"n2:/b/x\ny\nn9:/z\n", true),
            (plain, false, b"n2:/b/x\nn1:/b/x\n", false),
            (plain, false, b"\x1b[31mn1:/b/x\n", false),
            (&["-printf", "%p"], false, b"n1:/b/x", true),
            (plain, true, record, true),
            (plain, true, b"{\"host\":\"n1\"}\n", false),
            (plain, true, b"text\n", false),
        ] {
            let mut text = text(tests, json, false);
            let taken = text.take(said).and_then(|taken| Ok([taken, text.end()?].concat()));
            assert_eq!(taken, if is_own { Ok(said.to_vec()) } else { Err(Errno::PROTO) });
        }
    }

    #[test]
    fn lines_are_whole_and_terminals_get_no_commands() {
        let mut open = text(&[], false, false);
        assert_eq!(open.take(b"n2:/a\nn2:/"), Ok(b"n2:/a\n".to_vec()));
        assert_eq!(open.take(b"b"), Ok(Vec::new()));
        assert_eq!(open.end(), Ok(b"n2:/b\n".to_vec()));
        let mut shown = text(&[], false, true);
        let said = b"n2:\x1b[35m\x1b[K/a\x1b]0;title\x07\t\xff\n";
        let expected = "n2:\x1b[35m\x1b[K/a\\u{1b}]0;title\\u{7}\t\u{fffd}\n";
        assert_eq!(shown.take(said).map(String::from_utf8), Ok(Ok(expected.to_owned())));
    }
}
