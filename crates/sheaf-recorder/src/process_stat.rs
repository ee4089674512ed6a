//! Parser for the line in `/proc/PID/stat`.

/// A line of `/proc/PID/stat`, as proc(5) describes it.
///
/// The second field is the name of the program in parentheses, and it may contain spaces and
/// parentheses. The other fields are found after the last closing parenthesis. A method returns
/// `None` if the line ends before its field or the field is not a number of its type.
///
/// ```
/// use sheaf_recorder::ProcessStat;
///
/// let stat = ProcessStat::parse(b"7 (a) b) S 1 7 5 34816 7 4194304").unwrap();
/// assert_eq!((stat.state(), stat.session()), (Some(b'S'), Some(5)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat<'a> {
    /// The fields from the third on.
    fields: &'a [u8],
}

impl<'a> ProcessStat<'a> {
    /// Finds the fields of a line; `None` if it has no closing parenthesis.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let end = line.iter().rposition(|&byte| byte == b')')?;
        Some(Self { fields: &line[end + 1..] })
    }

    /// The state as a letter: `R`, `S`, `D`, `T`, `Z` and others.
    #[must_use]
    pub fn state(self) -> Option<u8> {
        self.field(3)?.first().copied()
    }

    /// The process group.
    #[must_use]
    pub fn process_group(self) -> Option<i32> {
        self.number(5)
    }

    /// The session; 0 if its leader is outside of the PID namespace.
    #[must_use]
    pub fn session(self) -> Option<u32> {
        self.number(6)
    }

    /// The device number of the controlling terminal; 0 if there is no terminal.
    #[must_use]
    pub fn terminal(self) -> Option<i32> {
        self.number(7)
    }

    /// The process group in the foreground of the controlling terminal; -1 if there is no terminal.
    #[must_use]
    pub fn foreground_group(self) -> Option<i32> {
        self.number(8)
    }

    /// The processor time in user mode and in the kernel, in clock ticks.
    #[must_use]
    pub fn processor_ticks(self) -> Option<u64> {
        self.number::<u64>(14)?.checked_add(self.number(15)?)
    }

    /// The time at which the process started, in clock ticks since the machine booted.
    #[must_use]
    pub fn start_ticks(self) -> Option<u64> {
        self.number(22)
    }

    fn number<T: std::str::FromStr>(self, field: usize) -> Option<T> {
        std::str::from_utf8(self.field(field)?).ok()?.parse().ok()
    }

    /// A field by its number in proc(5), from 3 on.
    fn field(self, number: usize) -> Option<&'a [u8]> {
        let fields = self.fields.split(u8::is_ascii_whitespace);
        fields.filter(|field| !field.is_empty()).nth(number - 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &str =
        "S 1 70 50 34816 -1 4194304 109 0 2 0 31 11 0 0 20 0 1 0 987654321 6000000";

    #[test]
    fn strange_program_names_do_not_move_fields() {
        for name in ["sh", "", "a b", ") R 2 3 4", "((", "))", "a) b", "\n) Z 0", "(deleted) "] {
            let line = format!("7 ({name}) {FIELDS}\n");
            let stat = ProcessStat::parse(line.as_bytes()).unwrap();
            assert_eq!(stat.state(), Some(b'S'), "{name:?}");
            assert_eq!((stat.process_group(), stat.session()), (Some(70), Some(50)), "{name:?}");
            assert_eq!(stat.terminal(), Some(34816), "{name:?}");
            assert_eq!(stat.foreground_group(), Some(-1), "{name:?}");
            assert_eq!(stat.processor_ticks(), Some(42), "{name:?}");
            assert_eq!(stat.start_ticks(), Some(987_654_321), "{name:?}");
        }
        let line = [b"7 (\xff\0)) ".as_slice(), FIELDS.as_bytes()].concat();
        assert_eq!(ProcessStat::parse(&line).unwrap().start_ticks(), Some(987_654_321));
    }

    #[test]
    fn short_lines_lack_fields_and_nothing_panics() {
        assert_eq!(ProcessStat::parse(b""), None);
        assert_eq!(ProcessStat::parse(b"7 (sh"), None);
        let line = format!("7 (sh) {FIELDS}");
        for end in 0..line.len() {
            let Some(stat) = ProcessStat::parse(&line.as_bytes()[..end]) else { continue };
            let _ = (stat.session(), stat.processor_ticks(), stat.start_ticks());
        }
        let stat = ProcessStat::parse(b"7 (sh)").unwrap();
        assert_eq!((stat.state(), stat.start_ticks()), (None, None));
        let stat = ProcessStat::parse(b"7 (sh) S 1 - -2 99999999999").unwrap();
        assert_eq!((stat.process_group(), stat.session(), stat.terminal()), (None, None, None));
    }
}
