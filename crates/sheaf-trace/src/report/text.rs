//! A report for a terminal.
use crate::report::data::{IoSums, ReportData, SlowOperation, TracedRun};
use crate::report::units::{count, day, percent, shortened, shown, size, time};
use std::fmt::Write;

/// Rows of each table.
const ROWS_MAX: usize = 8;
/// Shorter waits for others are not listed here.
const STREAM_NS_MIN: u64 = 1_000_000;
/// How much of a command line is told.
const COMMAND_CHARS_MAX: usize = 200;
/// Columns that a terminal has at least.
const WIDTH_MIN: usize = 40;

impl ReportData {
    /// A summary for a terminal of so many columns: findings first, then small tables. No text of
    /// the trace controls the terminal.
    #[must_use]
    pub fn to_text(&self, width: usize) -> String {
        let mut text = ReportText::new(width);
        text.head(self);
        text.findings(self);
        text.processes(self);
        text.layers(self);
        text.operations(self);
        text.files(self);
        text.failures(self);
        text.slowest("Slowest operations", &self.slowest);
        let streams = self.slowest_streams.iter().filter(|slow| slow.duration_ns >= STREAM_NS_MIN);
        let streams: Vec<SlowOperation> = streams.cloned().collect();
        text.slowest("Longest waits for pipes, sockets and terminals", &streams);
        if !self.notes.is_empty() {
            text.title("Not in this report");
            self.notes.iter().for_each(|note| text.paragraph("- ", &shown(note)));
        }
        text.out
    }
}

pub(super) struct ReportText {
    out: String,
    width: usize,
}

impl ReportText {
    pub fn new(width: usize) -> Self {
        Self { out: String::new(), width: width.max(WIDTH_MIN) }
    }

    pub fn finish(self) -> String {
        self.out
    }

    pub fn line(&mut self, line: &str) {
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    pub fn title(&mut self, title: &str) {
        self.line("");
        self.line(title);
    }

    /// Broken between words, all lines but the first one as far in as the mark is long.
    pub fn paragraph(&mut self, mark: &str, text: &str) {
        let indent = mark.chars().count();
        let room = self.width.saturating_sub(indent).max(1);
        let (mut line, mut is_first) = (String::new(), true);
        let mut flush = |line: &mut String, this: &mut Self| {
            let begin = if is_first { mark.to_owned() } else { " ".repeat(indent) };
            is_first = false;
            this.line(&format!("{begin}{line}"));
            line.clear();
        };
        for word in text.split_whitespace() {
            let word = shortened(word, room);
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
                flush(&mut line, self);
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&word);
        }
        flush(&mut line, self);
    }

    /// Columns of numbers to the right, and a last one of text, which is shortened.
    pub fn table(&mut self, heads: &[&str], rows: Vec<Vec<String>>) {
        let numbers = heads.len() - 1;
        let widths: Vec<usize> = (0..numbers)
            .map(|at| {
                let cells = rows.iter().map(|row| row[at].chars().count());
                cells.chain([heads[at].chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let used: usize = widths.iter().map(|width| width + 2).sum();
        let room = self.width.saturating_sub(used).max(8);
        let heads = heads.iter().map(|head| (*head).to_owned()).collect();
        for row in std::iter::once(heads).chain(rows) {
            let mut line = String::new();
            for (cell, &width) in row.iter().zip(&widths) {
                let gap = width.saturating_sub(cell.chars().count());
                write!(line, "{}{cell}  ", " ".repeat(gap)).expect("a string takes all");
            }
            line.push_str(&shortened(&row[numbers], room));
            self.line(&line);
        }
    }

    fn more(&mut self, all: u64, what: &str) {
        if all > ROWS_MAX as u64 {
            self.line(&format!("and {} more {what}", count(all - ROWS_MAX as u64)));
        }
    }

    fn head(&mut self, data: &ReportData) {
        let totals = &data.totals;
        let span = data.span.map_or(0, |span| span.length_ns());
        self.paragraph(
            "",
            &format!(
                "{} operations ({} nested) in {} by {}{} on {}; {} lost{}",
                count(data.rows),
                count(data.nested_rows),
                time(span),
                plural(data.processes_total, "process", "processes"),
                match data.programs_total {
                    more if more > data.processes_total => format!(" ({} programs)", count(more)),
                    _ => String::new(),
                },
                plural(data.hosts.len() as u64, "host", "hosts"),
                count(data.lost.count),
                match data.unwritten {
                    0 => String::new(),
                    unwritten => format!(", {} not stored", count(unwritten)),
                }
            ),
        );
        if let Some(run) = &data.run {
            self.paragraph("", &run.sentence());
        }
        if let Some(share) = data.share_of_run() {
            self.paragraph("", &share);
        }
        if data.removed.parts > 0 {
            self.paragraph("", &data.removed.sentence());
        }
        if let Some(filter) = &data.filter {
            let text = format!("kept alone: {}", shown(filter));
            self.paragraph("", &text);
        }
        let kinds = totals.kinds();
        let rows = kinds.iter().filter(|(_, sums)| sums.count > 0).map(|(kind, sums)| {
            let share = share_of(data, kind, sums);
            let moved = size(sums.bytes);
            vec![count(sums.count), moved, time(sums.time_ns), share, (*kind).to_owned()]
        });
        let rows = rows.collect();
        self.line("");
        self.table(&["count", "bytes", "time", "share", "kind"], rows);
        self.line("(times are of all threads together)");
    }

    fn findings(&mut self, data: &ReportData) {
        self.title("Findings");
        if data.findings.is_empty() {
            self.line(data.without_findings());
        }
        for finding in &data.findings {
            let mark = format!("{:>7}  ", finding.severity.word());
            self.paragraph(&mark, &shown(&finding.sentence));
            if let Some(cost) = data.cost_of(finding) {
                self.paragraph("         ", &cost);
            }
            self.paragraph("         ", &shown(&finding.advice));
        }
    }

    fn processes(&mut self, data: &ReportData) {
        if data.processes.len() < 2 {
            return;
        }
        self.title("Processes with the most time");
        let rows = data.processes.iter().take(ROWS_MAX).map(|process| {
            vec![
                time(process.time_ns()),
                time(process.streams.time_ns),
                size(process.reads.bytes),
                size(process.writes.bytes),
                shortened(&format!("{} {}", shown(&process.host), process.pid), 20),
                shown(&process.command),
            ]
        });
        let rows = rows.collect();
        self.table(&["time", "streams", "read", "written", "process", "command"], rows);
        self.more(data.programs_total, "programs");
    }

    fn layers(&mut self, data: &ReportData) {
        if data.layers.len() < 2 {
            return;
        }
        self.title("Layers (read and written with what is nested)");
        let rows = data.layers.iter().map(|layer| {
            vec![
                count(layer.outermost.count),
                count(layer.nested.count),
                size(layer.read_bytes),
                size(layer.written_bytes),
                time(layer.outermost.time_ns),
                shown(&layer.layer),
            ]
        });
        let rows = rows.collect();
        self.table(&["outermost", "nested", "read", "written", "time", "layer"], rows);
    }

    fn operations(&mut self, data: &ReportData) {
        self.title("Operations");
        let rows = data.operations.iter().take(ROWS_MAX).map(|op| {
            vec![
                count(op.sums.count),
                count(op.sums.failed),
                size(op.sums.bytes),
                time(op.sums.time_ns),
                op.within(50).map_or(String::new(), time),
                op.within(99).map_or(String::new(), time),
                time(op.sums.longest_ns),
                format!("{} {}", shown(&op.layer), shown(&op.op)),
            ]
        });
        let rows = rows.collect();
        let heads =
            ["count", "failed", "bytes", "time", "50 % in", "99 % in", "longest", "operation"];
        self.table(&heads, rows);
        self.more(data.operations.len() as u64, "kinds of operations");
    }

    fn files(&mut self, data: &ReportData) {
        if data.files.is_empty() {
            return;
        }
        self.title("Files with the most time");
        let rows = data.files.iter().take(ROWS_MAX).map(|file| {
            vec![
                time(file.time_ns()),
                size(file.reads.bytes),
                size(file.writes.bytes),
                count(file.operations()),
                shown(&file.path),
            ]
        });
        let rows = rows.collect();
        self.table(&["time", "read", "written", "count", "file"], rows);
        self.more(data.files_total, "files");
    }

    fn failures(&mut self, data: &ReportData) {
        if data.failures.is_empty() {
            return;
        }
        self.title("Failures");
        let rows = data.failures.iter().take(ROWS_MAX).map(|failure| {
            let example = failure.examples.first().map_or(String::new(), |path| shown(path));
            let what = format!("{} {}", shown(&failure.op), shown(&failure.name));
            vec![count(failure.count), time(failure.time_ns), what, example]
        });
        let rows = rows.collect();
        self.table(&["count", "time", "what", "for example"], rows);
        self.more(data.failures.len() as u64, "kinds of failures");
    }

    fn slowest(&mut self, title: &str, slowest: &[SlowOperation]) {
        if slowest.is_empty() {
            return;
        }
        self.title(title);
        let rows = slowest.iter().take(ROWS_MAX).map(|slow| {
            vec![
                time(slow.duration_ns),
                size(slow.bytes),
                shown(&slow.op),
                shortened(&format!("{} {}", shown(&slow.host), slow.pid), 20),
                shown(&slow.path),
            ]
        });
        let rows = rows.collect();
        self.table(&["time", "bytes", "what", "process", "file"], rows);
    }
}

impl TracedRun {
    /// What was run, when, and how it ended.
    pub(crate) fn sentence(&self) -> String {
        let ended = match (self.signal, self.exit_code) {
            (Some(signal), _) => format!(", ended by signal {signal}"),
            (None, Some(code)) => format!(", exit code {code}"),
            (None, None) => String::new(),
        };
        let took = match self.ended_ns {
            0 => ", and how it ended is not known".to_owned(),
            end => format!(" for {}", time(end.abs_diff(self.begun_ns))),
        };
        let command = shortened(&shown(&self.command), COMMAND_CHARS_MAX);
        format!("{command}: from {}{took}{ended}", day(self.begun_ns))
    }
}

/// The share of the time of all that is done to files.
pub(crate) fn share_of(data: &ReportData, kind: &str, sums: &IoSums) -> String {
    match kind {
        "process" | "stream" => "-".to_owned(),
        _ => percent(sums.time_ns, data.io_time_ns()),
    }
}

fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}
