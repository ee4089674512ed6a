//! Answers on standard output, with the hosts that gave them.
use super::{HostNames, Output, Palette, Records, Stdout, printable, stdout};
use clap::Args;
use sheaf_core::RangeSet;
use sheaf_file::is_pattern;
use sheaf_records::{Entry, text};
use sheaf_tools::Target;
use std::io::{self, BufWriter, Write};

/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 1 << 16;

/// Characters of a line where the terminal does not say how wide it is.
const WIDTH_DEFAULT: usize = 80;

/// How answers are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Hosts and path in front of each line.
    Flat,
    /// Hosts and path once, above their lines.
    Heading,
    /// Hosts in front of each line, as `HOSTS: text`.
    Label,
    /// Neither hosts nor path.
    Bare,
    /// One object on each line.
    Json,
}

/// Where the hosts of an answer are said.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Heads {
    /// Print the hosts above what they have, also when not on a terminal
    #[arg(long, overrides_with_all = ["no_heading", "label"])]
    pub heading: bool,

    /// Print answers without their hosts
    #[arg(long, overrides_with_all = ["heading", "label"])]
    pub no_heading: bool,

    /// Print the hosts in front of each line: "n[1-4]: text"
    #[arg(long, overrides_with_all = ["heading", "no_heading"])]
    pub label: bool,
}

impl Heads {
    /// The layout that was asked for.
    fn layout(self) -> Option<Layout> {
        match self {
            Self { heading: true, .. } => Some(Layout::Heading),
            Self { no_heading: true, .. } => Some(Layout::Bare),
            Self { label: true, .. } => Some(Layout::Label),
            _ => None,
        }
    }
}

/// A line and who said it.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    pub path: &'a [u8],
    pub leaves: &'a RangeSet,
    pub text: Vec<u8>,
}

/// Prints answers to standard output.
pub struct Printer<'a> {
    hosts: &'a dyn HostNames,
    layout: Layout,
    records: Records,
    palette: Palette,
    is_terminal: bool,
    out: BufWriter<Stdout>,
    labels_paths: bool,
    /// The set that was folded last: neighbours mostly have the same.
    folded: Option<(RangeSet, String)>,
    /// Something was printed, and whether it ended its line.
    begun: bool,
    within_line: bool,
}

impl<'a> Printer<'a> {
    pub fn new(output: &Output, hosts: &'a dyn HostNames) -> Self {
        Self::with_heads(output, hosts, Heads::default())
    }

    /// One that says hosts where `heads` wants them.
    pub fn with_heads(output: &Output, hosts: &'a dyn HostNames, heads: Heads) -> Self {
        let layout = match (output.json, heads.layout(), output.stdout_is_terminal) {
            (true, ..) => Layout::Json,
            (false, Some(layout), _) => layout,
            (false, None, true) => Layout::Heading,
            (false, None, false) => Layout::Flat,
        };
        Self {
            hosts,
            layout,
            records: output.records,
            palette: output.stdout,
            is_terminal: output.stdout_is_terminal,
            out: BufWriter::with_capacity(BUFFER_BYTES, stdout()),
            labels_paths: true,
            folded: None,
            begun: false,
            within_line: false,
        }
    }

    /// Labels are the hosts alone where all is of one path.
    pub fn label_paths(&mut self, targets: &[Target]) {
        let first = targets.first().map(|target| &target.path);
        let is_one =
            targets.iter().all(|target| Some(&target.path) == first && !is_pattern(&target.path));
        self.labels_paths = !is_one;
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(last) = bytes.last() {
            (self.begun, self.within_line) = (true, *last != b'\n');
        }
        self.out.write_all(bytes)
    }

    /// `HOSTS:PATH:text`.
    pub fn flat(&mut self, line: &Line<'_>) -> io::Result<()> {
        if self.layout == Layout::Json {
            let (text, base64) = text(&line.text);
            return self.json(line.leaves, line.path, Entry { text, base64, ..Entry::default() });
        }
        match self.layout {
            Layout::Bare => {}
            Layout::Label => self.label(line.leaves, line.path)?,
            _ => {
                self.name(line.leaves, line.path)?;
                if !line.path.is_empty() {
                    self.out.write_all(b":")?;
                }
            }
        }
        self.text_line(&line.text)
    }

    /// `HOSTS: `, or `HOSTS:PATH: ` where there may be several paths.
    fn label(&mut self, leaves: &RangeSet, path: &[u8]) -> io::Result<()> {
        if self.labels_paths && !path.is_empty() {
            self.name(leaves, path)?;
        } else {
            let folded = self.fold(leaves);
            let hosts = self.palette.hosts;
            write!(self.out, "{hosts}{folded}{hosts:#}")?;
        }
        self.out.write_all(b": ")
    }

    /// Part of a content whose lines have labels; it may begin and end within a line.
    pub fn labelled(
        &mut self,
        bytes: &[u8],
        leaves: &RangeSet,
        path: &[u8],
        is_start: bool,
    ) -> io::Result<()> {
        if is_start && std::mem::take(&mut self.within_line) {
            self.out.write_all(b"\n")?;
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.within_line {
                self.label(leaves, path)?;
            }
            self.raw(line)?;
        }
        Ok(())
    }

    /// `value`, then `HOSTS:PATH` as the name of a file.
    pub fn behind(
        &mut self,
        value: &[u8],
        between: &[u8],
        leaves: &RangeSet,
        path: &[u8],
    ) -> io::Result<()> {
        self.between(&[value, between].concat(), leaves, path, b"")
    }

    /// `HOSTS:PATH` as the name of a file, between `head` and `tail`.
    pub fn between(
        &mut self,
        head: &[u8],
        leaves: &RangeSet,
        path: &[u8],
        tail: &[u8],
    ) -> io::Result<()> {
        if self.layout == Layout::Label {
            self.label(leaves, b"")?;
        }
        self.out.write_all(head)?;
        match self.layout {
            Layout::Bare | Layout::Label => self.text(path)?,
            _ => self.name(leaves, path)?,
        }
        self.out.write_all(tail)?;
        self.out.write_all(b"\n")
    }

    /// `HOSTS:PATH: text`, as programs that check files say it, with `mark` in front.
    pub fn verdict(
        &mut self,
        mark: &str,
        leaves: &RangeSet,
        path: &[u8],
        text: &str,
    ) -> io::Result<()> {
        if self.layout == Layout::Label {
            self.label(leaves, b"")?;
        }
        self.out.write_all(mark.as_bytes())?;
        match self.layout {
            Layout::Bare | Layout::Label => self.text(path)?,
            _ => self.name(leaves, path)?,
        }
        self.out.write_all(b": ")?;
        self.text_line(text.as_bytes())
    }

    /// Lines of one or more paths. Below each other under headings, those of the same hosts are
    /// together.
    pub fn sections(&mut self, lines: Vec<Line<'_>>) -> io::Result<()> {
        if self.layout != Layout::Heading {
            return lines.iter().try_for_each(|line| self.flat(line));
        }
        for (path, leaves, texts) in sections(lines) {
            self.heading(leaves, path)?;
            for text in texts {
                self.text_line(&text)?;
            }
        }
        Ok(())
    }

    /// Names in directories, as addresses: `HOSTS:DIR/NAME`.
    pub fn names(&mut self, lines: Vec<Line<'_>>) -> io::Result<()> {
        for line in lines {
            let mut path = line.path.to_vec();
            if !path.is_empty() && !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(&line.text);
            self.name(line.leaves, &path)?;
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Names under headings, side by side as far as the terminal is wide.
    pub fn columns(&mut self, lines: Vec<Line<'_>>) -> io::Result<()> {
        let width = std::env::var("COLUMNS")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(WIDTH_DEFAULT);
        for (path, leaves, texts) in sections(lines) {
            self.heading(leaves, path)?;
            let names: Vec<String> =
                texts.iter().map(|text| printable(&String::from_utf8_lossy(text))).collect();
            for line in side_by_side(&names, width) {
                writeln!(self.out, "{line}")?;
            }
        }
        Ok(())
    }

    /// `HOSTS:PATH`, set off from what is above.
    pub fn heading(&mut self, leaves: &RangeSet, path: &[u8]) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            self.out.write_all(b"\n")?;
        }
        self.name(leaves, path)?;
        // Of files that were named themselves the hosts are all there is to say, and end with a
        // colon.
        self.out.write_all(if path.is_empty() { b"\n" } else { b":\n" })
    }

    /// `==> HOSTS:PATH <==`, as tail has it above the contents of files.
    pub fn content_heading(&mut self, leaves: &RangeSet, path: &[u8]) -> io::Result<()> {
        if std::mem::take(&mut self.within_line) {
            self.out.write_all(b"\n")?;
        }
        if std::mem::replace(&mut self.begun, true) {
            self.out.write_all(b"\n")?;
        }
        self.further_heading(leaves, path)
    }

    /// Another heading of the same content.
    pub fn further_heading(&mut self, leaves: &RangeSet, path: &[u8]) -> io::Result<()> {
        self.out.write_all(b"==> ")?;
        self.name(leaves, path)?;
        self.out.write_all(b" <==\n")
    }

    /// One record, with hosts and path.
    pub fn json(&mut self, leaves: &RangeSet, path: &[u8], entry: Entry) -> io::Result<()> {
        let (path, path_base64) = if path.is_empty() { (None, None) } else { text(path) };
        let (hosts, count) = (self.fold(leaves), leaves.len());
        let mut entry = Entry { hosts, count, path, path_base64, ..entry };
        let numbers = entry.numbers.take();
        let object = self.records.value(&entry)?.to_string();
        let Some(numbers) = numbers else { return writeln!(self.out, "{object}") };
        let numbers = numbers.to_json()?;
        let object = object.strip_suffix('}').unwrap_or(&object);
        writeln!(self.out, "{object},{}", numbers.strip_prefix('{').unwrap_or(&numbers))
    }

    /// The folded host set of these leaves.
    pub fn fold(&mut self, leaves: &RangeSet) -> String {
        match &self.folded {
            Some((set, text)) if set == leaves => text.clone(),
            _ => {
                let text = self.hosts.fold(leaves);
                self.folded = Some((leaves.clone(), text.clone()));
                text
            }
        }
    }

    fn name(&mut self, leaves: &RangeSet, path: &[u8]) -> io::Result<()> {
        let folded = self.fold(leaves);
        let Palette { hosts, path: style, .. } = self.palette;
        write!(self.out, "{hosts}{folded}{hosts:#}:{style}")?;
        self.text(path)?;
        write!(self.out, "{style:#}")
    }

    /// A terminal gets nothing that it takes for a command.
    fn text(&mut self, text: &[u8]) -> io::Result<()> {
        if self.is_terminal {
            // Tabs are how some texts are laid out.
            let mut pieces = text.split(|byte| *byte == b'\t').map(String::from_utf8_lossy);
            if let Some(first) = pieces.next() {
                write!(self.out, "{}", printable(&first))?;
            }
            return pieces.try_for_each(|piece| write!(self.out, "\t{}", printable(&piece)));
        }
        self.out.write_all(text)
    }

    fn text_line(&mut self, text: &[u8]) -> io::Result<()> {
        self.begun = true;
        self.text(text)?;
        self.out.write_all(b"\n")
    }
}

type PrintedSection<'a> = (&'a [u8], &'a RangeSet, Vec<Vec<u8>>);

/// Lines with the same path and hosts together, in the order in which their first ones come.
fn sections(lines: Vec<Line<'_>>) -> Vec<PrintedSection<'_>> {
    let mut sections: Vec<PrintedSection<'_>> = Vec::new();
    for line in lines {
        let of_path = sections.iter_mut().rev().take_while(|(path, ..)| *path == line.path);
        match of_path.into_iter().find(|(_, leaves, _)| **leaves == *line.leaves) {
            Some((.., texts)) => texts.push(line.text),
            None => sections.push((line.path, line.leaves, vec![line.text])),
        }
    }
    sections
}

/// Names in columns, down before across, with two spaces between.
fn side_by_side(names: &[String], width: usize) -> Vec<String> {
    let lengths: Vec<usize> = names.iter().map(|name| name.chars().count()).collect();
    let widths = |rows: usize| {
        lengths.chunks(rows).map(|column| column.iter().max().copied().unwrap_or(0) + 2)
    };
    let fits = |rows: &usize| widths(*rows).sum::<usize>() <= width + 2;
    let rows = (1..=names.len()).find(fits).unwrap_or(names.len().max(1));
    let widths: Vec<usize> = widths(rows).collect();
    let line = |row: usize| {
        let cells = names.iter().skip(row).step_by(rows).zip(&widths);
        let line: String = cells.map(|(name, width)| format!("{name:<width$}")).collect();
        line.trim_end().to_owned()
    };
    (0..rows.min(names.len())).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_side_by_side_as_far_as_there_is_room() {
        let names: Vec<String> = ["a", "bbb", "cc", "d", "eeeee"].map(str::to_owned).into();
        assert_eq!(side_by_side(&names, 80), ["a  bbb  cc  d  eeeee"]);
        assert_eq!(side_by_side(&names, 12), ["a    d", "bbb  eeeee", "cc"]);
        assert_eq!(side_by_side(&names, 1), ["a", "bbb", "cc", "d", "eeeee"]);
        assert!(side_by_side(&[], 80).is_empty());
    }

    #[test]
    fn lines_of_the_same_hosts_are_together() {
        let (all, one) = (RangeSet::full(3), RangeSet::single(1));
        let line = |leaves, text: &str| Line { path: b"/d", leaves, text: text.into() };
        let sections = sections(vec![line(&all, "a"), line(&one, "b"), line(&all, "c")]);
        let texts: Vec<usize> = sections.iter().map(|(.., texts)| texts.len()).collect();
        assert_eq!(texts, [2, 1]);
    }
}
