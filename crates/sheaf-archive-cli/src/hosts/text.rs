//! The text that a host answers with, on its way to standard output. A host speaks for itself alone, and whatever it
//! says to the terminal is text.
use super::work::HostWork;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use sheaf_archive::ArchiveGrepOutput;
use sheaf_core::{Errno, is_unprintable};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// The longest line, which is kept until it is whole.
const LINE_BYTES_MAX: usize = 16 << 20;

/// What the lines of a host are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineRule {
    /// They begin with its name and a colon, but for what is a line of a name that has several.
    Named,
    /// Its name and a colon stand before the path, behind other columns.
    Listed,
    /// They are records, which name it.
    Records,
    /// What was asked for, in which hosts have no names.
    Free,
}

/// How the text of hosts is written.
#[derive(Clone, Debug)]
pub struct TextRules {
    hosts: Arc<HashSet<String>>,
    rule: LineRule,
    /// What ends a line.
    end: u8,
    to_terminal: bool,
}

/// The text of one host.
#[derive(Clone, Debug)]
pub struct HostText {
    host: String,
    rules: TextRules,
    /// The beginning of a line.
    begun: Vec<u8>,
}

impl TextRules {
    /// Those of what these hosts do.
    pub fn new(work: &HostWork, hosts: &[String], to_terminal: bool) -> Self {
        let (rule, ends_with_zero) = match work {
            HostWork::Find { json: true, .. } => (LineRule::Records, false),
            HostWork::Find { tests, .. } => {
                let has = |word: &str| tests.iter().any(|test| test == word);
                let prints = [has("-print"), has("-print0"), has("-ls"), has("-printf")];
                match prints {
                    [_, false, false, false] => (LineRule::Named, false),
                    [false, true, false, false] => (LineRule::Named, true),
                    [false, false, true, false] => (LineRule::Listed, false),
                    _ => (LineRule::Free, false),
                }
            }
            HostWork::Grep { options, .. } => {
                use ArchiveGrepOutput::{PathsWith, PathsWithout};
                let has_paths = matches!(options.output, PathsWith | PathsWithout);
                let rule =
                    if options.names || has_paths { LineRule::Named } else { LineRule::Free };
                (rule, has_paths && options.nul)
            }
            HostWork::Copy { .. } => (LineRule::Named, false),
        };
        let end = if ends_with_zero { 0 } else { b'\n' };
        Self { hosts: Arc::new(hosts.iter().cloned().collect()), rule, end, to_terminal }
    }

    /// Of this host, nothing has come yet.
    pub fn of(&self, host: &str) -> HostText {
        HostText { host: host.to_owned(), rules: self.clone(), begun: Vec::new() }
    }
}

impl HostText {
    /// What is to be written now that this has come; lines are written when they are whole.
    ///
    /// # Errors
    /// `EPROTO` for what another host would have to say; `EMSGSIZE` for a line without an end.
    pub fn take(&mut self, text: &[u8]) -> Result<Vec<u8>, Errno> {
        let (end, mut out) = (self.rules.end, Vec::new());
        for part in text.split_inclusive(|byte| *byte == end) {
            if self.begun.len() + part.len() > LINE_BYTES_MAX {
                return Err(Errno::MSGSIZE);
            }
            self.begun.extend_from_slice(part);
            if part.ends_with(&[end]) {
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
            if self.rules.rule != LineRule::Free {
                self.begun.push(self.rules.end);
            }
            self.write(&mut out)?;
        }
        Ok(out)
    }

    fn write(&mut self, out: &mut Vec<u8>) -> Result<(), Errno> {
        let line = std::mem::take(&mut self.begun);
        if !self.may_say(&line) {
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
        match self.rules.rule {
            LineRule::Free => true,
            LineRule::Records => {
                let record: Option<HostsNamed> = serde_json::from_slice(line).ok();
                record.is_some_and(|HostsNamed(hosts)| hosts == [self.host.as_str()])
            }
            LineRule::Named => {
                let text = without_sequences(line);
                self.named(&text).is_none_or(|host| host == self.host)
            }
            LineRule::Listed => {
                let mut words = line.split(|byte| *byte == b' ');
                let first = words.find_map(|word| self.named(word));
                first.is_none_or(|host| host == self.host)
            }
        }
    }

    /// The host with whose name and a colon a text begins.
    fn named(&self, text: &[u8]) -> Option<String> {
        let colon = text.iter().position(|byte| *byte == b':')?;
        let name = String::from_utf8_lossy(&text[..colon]);
        // What is not seen does not tell names apart.
        let name: String = name.chars().filter(|char| !is_unprintable(*char)).collect();
        self.rules.hosts.contains(&name).then_some(name)
    }
}

/// The hosts that a record names, by each member of that name.
struct HostsNamed(Vec<String>);

impl<'de> Deserialize<'de> for HostsNamed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = HostsNamed;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a record")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HostsNamed, A::Error> {
                let mut hosts = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "host" {
                        hosts.push(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(HostsNamed(hosts))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// What GNU grep writes around names, numbers and matches, and behind them.
const COLOURS: [&[u8]; 6] =
    [b"\x1b[35m", b"\x1b[32m", b"\x1b[36m", b"\x1b[01;31m", b"\x1b[m", b"\x1b[K"];

/// The end of all colours.
const NO_COLOUR: &[u8] = b"\x1b[m\x1b[K";

/// The length of one of these at the beginning.
fn colour_len(text: &[u8]) -> Option<usize> {
    COLOURS.iter().find(|colour| text.starts_with(colour)).map(|colour| colour.len())
}

/// A text as it is read where a terminal follows its sequences.
fn without_sequences(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let [first, behind @ ..] = rest {
        rest = behind;
        match rest.strip_prefix(b"[") {
            Some(sequence) if *first == b'\x1b' => {
                let end = sequence.iter().position(|byte| (0x40..0x7f).contains(byte));
                rest = end.map_or(&[][..], |end| &sequence[end + 1..]);
            }
            _ => out.push(*first),
        }
    }
    out
}

/// A line for a terminal: what that would take for a command, or does not show, is escaped. Colours end with it.
fn put_plain(line: &[u8], out: &mut Vec<u8>) {
    let (mut rest, mut is_coloured) = (line, false);
    while !rest.is_empty() {
        if let Some(len) = colour_len(rest) {
            is_coloured = true;
            out.extend_from_slice(&rest[..len]);
            rest = &rest[len..];
            continue;
        }
        let end =
            rest[1..].iter().position(|byte| *byte == b'\x1b').map_or(rest.len(), |at| at + 1);
        for char in String::from_utf8_lossy(&rest[..end]).chars() {
            match char {
                '\n' => {
                    if std::mem::take(&mut is_coloured) {
                        out.extend_from_slice(NO_COLOUR);
                    }
                    out.push(b'\n');
                }
                '\t' | '\0' => out.push(char as u8),
                char if is_unprintable(char) => {
                    out.extend(char.escape_default().map(|char| char as u8));
                }
                char => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        rest = &rest[end..];
    }
    if is_coloured {
        out.extend_from_slice(NO_COLOUR);
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
            (plain, false, b"n\xe2\x80\x8b1:/b/x\n", false),
            (&["-printf", "%p"], false, b"n1:/b/x", true),
            (&["-print0"], false, b"n2:/b/x\nn1:/y\0", true),
            (&["-print0"], false, b"n2:/b/x\0n1:/y\0", false),
            (&["-ls"], false, b"1 4 -rw- n2:/b/x n1:/y\n", true),
            (&["-ls"], false, b"1 4 -rw- n1:/b/x n2:/y\n", false),
            (plain, true, b"{\"host\":\"n1\",\"host\":\"n2\"}\n", false),
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
        let said = b"n2:\x1b[35m\x1b[K/a\x1b]0;title\x07\t\xff\n\x1b[8m\xe2\x80\xae\n";
        let expected =
            "n2:\x1b[35m\x1b[K/a\\u{1b}]0;title\\u{7}\t\u{fffd}\x1b[m\x1b[K\n\\u{1b}[8m\\u{202e}\n";
        assert_eq!(shown.take(said).map(String::from_utf8), Ok(Ok(expected.to_owned())));
    }
}
