//! What a group read gave, printed.
use sheaf_cli::output::{Layout, Line, Printer, printable};
use sheaf_core::RangeSet;
use sheaf_group::aggregate::{LabelAt, Number, NumberAt};
use sheaf_records::{Entry, ExactNumber, Numbers, Place};
use sheaf_tools::entry::{EntryKind, Merged, MergedEntry};
use sheaf_tools::read::{Combined, Content, Readout};
use std::io;

/// Lines about members without a number at some places; the rest is one line more.
const GAP_LINES_MAX: usize = 10;

/// Prints one combined answer.
pub fn readout(printer: &mut Printer<'_>, readout: &Readout) -> io::Result<()> {
    if printer.layout() == Layout::Json {
        return print_json(printer, readout);
    }
    match &readout.data {
        // The errors say why nobody has anything; a number would pass for data.
        Combined::None if readout.outcome.status.count == 0 => Ok(()),
        Combined::None => printer.raw(format!("{}\n", readout.status).as_bytes()),
        Combined::Bytes(bytes) => printer.raw(bytes),
        Combined::Count(count) => printer.raw(format!("{count}\n").as_bytes()),
        // Nobody had any, and the errors say why.
        Combined::Numbers(numbers) if numbers.is_empty() => Ok(()),
        Combined::Numbers(numbers) => {
            numbers_by_line(numbers, &readout.labels).iter().try_for_each(|line| printer.raw(line))
        }
        Combined::Packed(items) => {
            for (leaf, path, bytes) in items {
                let leaves = std::iter::once(*leaf).collect();
                printer.content_heading(&leaves, path.as_bytes())?;
                printer.raw(bytes)?;
            }
            Ok(())
        }
        Combined::Classes(classes) => classes.iter().try_for_each(|class| content(printer, class)),
        Combined::Lines(merged) => {
            let entries = lines(merged);
            let line = |entry: &MergedEntry<'_>| entry.entry.text.to_vec();
            let lines = entries.iter().map(|entry| Line {
                path: entry.path,
                leaves: entry.leaves,
                text: line(entry),
            });
            printer.sections(lines.collect())
        }
    }
}

/// The lines, without what is said of their files.
fn lines(merged: &Merged) -> Vec<MergedEntry<'_>> {
    let mut entries = merged.sorted();
    entries.retain(|entry| entry.entry.kind == EntryKind::Line);
    entries
}

/// The numbers of each line of the files, with the text that stands beside them in all.
fn numbers_by_line(numbers: &[NumberAt], labels: &[LabelAt]) -> Vec<Vec<u8>> {
    let line = |numbers: &[NumberAt]| {
        let at = |number: &NumberAt| (number.column, number.number.to_string().into_bytes());
        let mut fields: Vec<(u32, Vec<u8>)> = numbers.iter().map(at).collect();
        let beside = labels_of(numbers[0].line, labels);
        if !beside.is_empty() {
            fields.extend(beside.iter().map(|label| (label.column, label.text.clone())));
            fields.sort_by_key(|(column, _)| *column);
        }
        let mut line = fields.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(&b' ');
        line.push(b'\n');
        line
    };
    numbers.chunk_by(|a, b| a.line == b.line).map(line).collect()
}

/// The labels of a line.
fn labels_of(line: u32, labels: &[LabelAt]) -> &[LabelAt] {
    let begin = labels.partition_point(|label| label.line < line);
    let end = labels.partition_point(|label| label.line <= line);
    &labels[begin..end.max(begin)]
}

/// Files of which lines do not show that their contents differ, a line for each set of hosts.
pub fn hidden(printer: &mut Printer<'_>, readout: &Readout) -> Vec<String> {
    let mut line = |(path, leaves): &(String, RangeSet)| {
        format!(
            "{}:{}: contents differ in the order or repetition of equal lines, or in the last \
             newline; sheaf read -a classes shows them",
            printer.fold(leaves),
            printable(path)
        )
    };
    let more = readout.hidden.len().saturating_sub(GAP_LINES_MAX);
    let mut lines: Vec<String> = readout.hidden.iter().take(GAP_LINES_MAX).map(&mut line).collect();
    if more > 0 {
        lines.push(format!("… and {more} more files of which lines hide that contents differ"));
    }
    lines
}

fn content(printer: &mut Printer<'_>, class: &Content) -> io::Result<()> {
    let digest = hex(&class.digest);
    for (at, (path, leaves)) in class.files.iter().enumerate() {
        match &class.body {
            Some(_) if at > 0 => printer.further_heading(leaves, path.as_bytes())?,
            Some(_) => printer.content_heading(leaves, path.as_bytes())?,
            None => printer.behind(digest.as_bytes(), b"  ", leaves, path.as_bytes())?,
        }
    }
    class.body.iter().try_for_each(|body| printer.raw(body))
}

fn print_json(printer: &mut Printer<'_>, readout: &Readout) -> io::Result<()> {
    let path = readout.paths.join(" ");
    let (all, path) = (&readout.contributors, path.as_bytes());
    match &readout.data {
        Combined::None if readout.outcome.status.count == 0 => Ok(()),
        Combined::None => {
            let status = Some(readout.status);
            printer.json(all, path, Entry { status, ..Entry::default() })
        }
        Combined::Bytes(bytes) => printer.json(all, path, text(bytes)),
        Combined::Count(count) => {
            let members = Some(*count);
            printer.json(all, path, Entry { members, ..Entry::default() })
        }
        Combined::Numbers(numbers) if numbers.is_empty() => Ok(()),
        Combined::Numbers(numbers) => print_numbers(printer, readout, numbers),
        Combined::Packed(items) => items.iter().try_for_each(|(leaf, path, bytes)| {
            printer.json(&std::iter::once(*leaf).collect(), path.as_bytes(), text(bytes))
        }),
        Combined::Classes(classes) => classes.iter().try_for_each(|class| {
            let record = Entry {
                digest: Some(hex(&class.digest)),
                size: Some(class.len),
                ..class.body.as_ref().map(|body| text(body)).unwrap_or_default()
            };
            let mut files = class.files.iter();
            files.try_for_each(|(path, leaves)| {
                printer.json(leaves, path.as_bytes(), record.clone())
            })
        }),
        Combined::Lines(merged) => lines(merged)
            .iter()
            .try_for_each(|entry| printer.json(entry.leaves, entry.path, text(entry.entry.text))),
    }
}

fn text(bytes: &[u8]) -> Entry {
    let (text, base64) = sheaf_records::text(bytes);
    Entry { text, base64, ..Entry::default() }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A number of a record; JSON has none beyond the greatest float.
fn exact(number: Number) -> ExactNumber {
    match number {
        Number::Integer(value) => ExactNumber::Integer(value),
        Number::Float(value) if value.is_finite() => ExactNumber::Float(value),
        _ => ExactNumber::NotFinite(number.to_string()),
    }
}

/// The text of a line that all files share, without its numbers.
fn text_beside(line: u32, labels: &[LabelAt]) -> Option<String> {
    let texts = labels_of(line, labels).iter().map(|label| String::from_utf8_lossy(&label.text));
    let texts: Vec<_> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(" "))
}

/// Numbers as JSON, with their places and who has none there.
fn print_numbers(
    printer: &mut Printer<'_>,
    readout: &Readout,
    numbers: &[NumberAt],
) -> io::Result<()> {
    let place = |at: &NumberAt| {
        let is_missing = at.without > 0;
        Place {
            line: u64::from(at.line),
            column: u64::from(at.column),
            number: exact(at.number),
            text: text_beside(at.line, &readout.labels),
            members: at.count,
            without: is_missing.then_some(at.without),
            without_hosts: is_missing.then(|| printer.fold(&at.without_members.leaves())),
        }
    };
    let places = numbers.iter().map(place).collect();
    let numbers = numbers.iter().map(|at| exact(at.number)).collect();
    let record = Entry { numbers: Some(Numbers { numbers, places }), ..Entry::default() };
    printer.json(&readout.contributors, readout.paths.join(" ").as_bytes(), record)
}

/// Who has numbers but none at some places, a line for each set of hosts.
pub fn gaps(printer: &mut Printer<'_>, readout: &Readout) -> Vec<String> {
    let Combined::Numbers(numbers) = &readout.data else { return Vec::new() };
    let mut gaps: Vec<(&NumberAt, usize)> = Vec::new();
    for at in numbers.iter().filter(|at| at.without > 0) {
        match gaps.iter_mut().find(|(first, _)| first.without_members == at.without_members) {
            Some((_, places)) => *places += 1,
            None => gaps.push((at, 1)),
        }
    }
    let more = gaps.len().saturating_sub(GAP_LINES_MAX);
    let mut lines: Vec<String> = Vec::new();
    for (at, places) in &gaps[..gaps.len() - more] {
        let hosts = printer.fold(&at.without_members.leaves());
        let who = if hosts.is_empty() { String::new() } else { format!("{hosts}:") };
        let place = format!("column {} of line {}", at.column, at.line);
        let others = match places - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (without, all) = (at.without, at.without + at.count);
        let paths = readout.paths.join(" ");
        lines.push(format!(
            "{who}{paths}: no number in {place}{others}, {without} of {all} members"
        ));
    }
    if more > 0 {
        lines.push(format!("… and {more} more sets of members without a number somewhere"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{exact, numbers_by_line};
    use sheaf_core::MemberSet;
    use sheaf_group::aggregate::{LabelAt, Number, NumberAt};
    use sheaf_records::ExactNumber;

    #[test]
    fn labels_stand_where_they_are_in_the_line() {
        let number = |line, column, value| NumberAt {
            line,
            column,
            number: Number::Integer(value),
            count: 1,
            without: 0,
            without_members: MemberSet::default(),
        };
        let label = |line, column, text: &str| LabelAt { line, column, text: text.into() };
        let numbers = [number(1, 2, 7), number(3, 1, 8), number(3, 3, 9), number(4, 2, 1)];
        let labels = [label(1, 1, "MemTotal:"), label(1, 3, "kB"), label(3, 2, "of")];
        let lines: Vec<_> = numbers_by_line(&numbers, &labels)
            .into_iter()
            .map(|line| String::from_utf8(line).unwrap())
            .collect();
        assert_eq!(lines, ["MemTotal: 7 kB\n", "8 of 9\n", "1\n"]);
        // Columns stand in the order in which they are wanted.
        let wanted = [number(1, 3, 5), number(1, 1, 6)];
        assert_eq!(numbers_by_line(&wanted, &[]), [b"5 6\n"]);
    }

    #[test]
    fn infinite_numbers_are_text_in_records() {
        assert_eq!(exact(Number::Integer(i128::MAX)), ExactNumber::Integer(i128::MAX));
        assert_eq!(exact(Number::Float(1e300)), ExactNumber::Float(1e300));
        let infinite = exact(Number::Float(f64::INFINITY));
        assert_eq!(infinite, ExactNumber::NotFinite("inf".to_owned()));
    }
}
