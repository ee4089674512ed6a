//! What programs do just now, as lines for a terminal.
use super::live::{LiveAnswer, LiveBy, LiveSums};
use crate::units::{count, escaped, size};
use std::fmt::Write;
use std::time::Duration;

/// How wide numbers are, with the blanks before them.
const COLUMN: usize = 10;
const COLUMNS: [&str; 6] = ["ops/s", "read/s", "write/s", "busy", "meta", "failed"];

impl LiveAnswer {
    /// A head and so many lines at most, none longer than `columns`: those with the most time first.
    /// It is of the last `span`. Busy is the time that operations took, of all threads together,
    /// as threads: 2.0 are two threads that do nothing else.
    #[must_use]
    pub fn to_text(&self, by: LiveBy, span: Duration, columns: usize, lines: usize) -> String {
        let total = self.total();
        let mut out = String::new();
        let seconds = span.as_secs_f64().max(0.001);
        let programs = if self.programs == 1 { "program" } else { "programs" };
        writeln!(
            out,
            "{} {programs}, last {seconds} s: {}/s operations, {}/s read, {}/s written",
            count(self.programs),
            count(rate(total.operations.into(), seconds)),
            size(rate(total.bytes_read, seconds)),
            size(rate(total.bytes_written, seconds)),
        )
        .expect("a string takes all");
        if total.lost > 0 {
            writeln!(
                out,
                "{} operations were lost, of which nothing else is known",
                count(total.lost)
            )
            .expect("a string takes all");
        }
        for head in COLUMNS {
            write!(out, "{head:>COLUMN$}").expect("a string takes all");
        }
        let what = match by {
            LiveBy::File => "file",
            LiveBy::Program => "program",
            LiveBy::Operation => "operation",
            LiveBy::Host => "host",
        };
        writeln!(out, "  {what}").expect("a string takes all");
        let head = out.lines().count();
        let shown = self.sums.len().min(lines.saturating_sub(head + 1));
        let mut others = self.others;
        self.sums[shown..].iter().for_each(|(_, sums)| others.add(sums));
        for (name, sums) in &self.sums[..shown] {
            let name = if name.is_empty() { "(none)".to_owned() } else { escaped(name) };
            line(&mut out, sums, seconds, &name, columns);
        }
        if others.operations > 0 {
            line(&mut out, &others, seconds, "(all others)", columns);
        }
        out
    }
}

fn rate(number: u128, seconds: f64) -> u64 {
    (number as f64 / seconds).round() as u64
}

fn line(out: &mut String, sums: &LiveSums, seconds: f64, name: &str, columns: usize) {
    let threads = |ns: u128| format!("{:.2}", ns as f64 / 1e9 / seconds);
    let cells = [
        count(rate(sums.operations.into(), seconds)),
        size(rate(sums.bytes_read, seconds)),
        size(rate(sums.bytes_written, seconds)),
        threads(sums.time_ns),
        threads(sums.metadata_ns),
        count(sums.failed),
    ];
    for cell in cells {
        write!(out, "{cell:>COLUMN$}").expect("a string takes all");
    }
    // The end of a path tells more than where it begins.
    let room = columns.saturating_sub(COLUMN * COLUMNS.len() + 2).max(8);
    let length = name.chars().count();
    let (dots, skipped) = if length > room { ("…", length - room + 1) } else { ("", 0) };
    let end: String = name.chars().skip(skipped).collect();
    writeln!(out, "  {dots}{end}").expect("a string takes all");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_add_up() {
        let sums = |operations, time_ns| LiveSums {
            operations,
            time_ns,
            bytes_read: 4096,
            ..LiveSums::default()
        };
        let answer = LiveAnswer {
            sums: vec![
                (b"/a/very/long/path/to/a/file/at/its/end".to_vec(), sums(4000, 1_000_000_000)),
                (b"".to_vec(), sums(2, 10)),
                (b"/third".to_vec(), sums(2, 5)),
            ],
            others: LiveSums { lost: 3, ..sums(6, 1) },
            programs: 1,
            span_ms: 2000,
        };
        let text = answer.to_text(LiveBy::File, Duration::from_secs(2), 80, 6);
        assert_eq!(
            text,
            "1 program, last 2 s: 2,005/s operations, 8 KiB/s read, 0 B/s written\n\
             3 operations were lost, of which nothing else is known\n\
            \x20    ops/s    read/s   write/s      busy      meta    failed  file\n\
            \x20    2,000     2 KiB       0 B      0.50      0.00         0  …a/file/at/its/end\n\
            \x20        1     2 KiB       0 B      0.00      0.00         0  (none)\n\
            \x20        4     4 KiB       0 B      0.00      0.00         0  (all others)\n"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }
}
