//! What a group read gave, printed.
use serde_json::{Map, Value};
use sheaf_cli::output::json::put_text;
use sheaf_cli::output::{Layout, Line, Printer};
use sheaf_group::aggregate::{Number, NumberAt};
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
            let numbers: Vec<String> = numbers.iter().map(|at| at.number.to_string()).collect();
            printer.raw(format!("{}\n", numbers.join(" ")).as_bytes())
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
            let entries = merged.sorted();
            let line = |entry: &sheaf_tools::entry::MergedEntry<'_>| entry.entry.text.to_vec();
            let lines = entries.iter().map(|entry| Line {
                path: entry.path,
                leaves: entry.leaves,
                text: line(entry),
            });
            printer.sections(lines.collect())
        }
    }
}

fn content(printer: &mut Printer<'_>, class: &Content) -> io::Result<()> {
    let digest = hex(&class.digest);
    for (path, leaves) in &class.files {
        match &class.body {
            Some(_) => printer.content_heading(leaves, path.as_bytes())?,
            None => printer.behind(digest.as_bytes(), b"  ", leaves, path.as_bytes())?,
        }
    }
    class.body.iter().try_for_each(|body| printer.raw(body))
}

fn print_json(printer: &mut Printer<'_>, readout: &Readout) -> io::Result<()> {
    let value = |key: &str, value: Value| Map::from_iter([(key.to_owned(), value)]);
    let path = readout.paths.join(" ");
    let (all, path) = (&readout.contributors, path.as_bytes());
    match &readout.data {
        Combined::None if readout.outcome.status.count == 0 => Ok(()),
        Combined::None => printer.json(all, path, value("status", readout.status.into())),
        Combined::Bytes(bytes) => printer.json(all, path, text(bytes)),
        Combined::Count(count) => printer.json(all, path, value("members", (*count).into())),
        Combined::Numbers(numbers) if numbers.is_empty() => Ok(()),
        Combined::Numbers(numbers) => print_numbers(printer, readout, numbers),
        Combined::Packed(items) => items.iter().try_for_each(|(leaf, path, bytes)| {
            printer.json(&std::iter::once(*leaf).collect(), path.as_bytes(), text(bytes))
        }),
        Combined::Classes(classes) => classes.iter().try_for_each(|class| {
            let mut object = class.body.as_ref().map(|body| text(body)).unwrap_or_default();
            object.insert("digest".to_owned(), hex(&class.digest).into());
            object.insert("size".to_owned(), class.len.into());
            let mut files = class.files.iter();
            files.try_for_each(|(path, leaves)| {
                printer.json(leaves, path.as_bytes(), object.clone())
            })
        }),
        Combined::Lines(merged) => merged
            .sorted()
            .iter()
            .try_for_each(|entry| printer.json(entry.leaves, entry.path, text(entry.entry.text))),
    }
}

fn text(bytes: &[u8]) -> Map<String, Value> {
    let mut object = Map::new();
    put_text(&mut object, "text", bytes);
    object
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A number as JSON has it; there is none beyond the greatest float.
fn number_json(number: Number) -> String {
    match number {
        Number::Float(float) if !float.is_finite() => format!("\"{number}\""),
        _ => number.to_string(),
    }
}

/// Numbers as JSON, with their places and who has none there.
fn print_numbers(
    printer: &mut Printer<'_>,
    readout: &Readout,
    numbers: &[NumberAt],
) -> io::Result<()> {
    let places: Vec<String> = numbers
        .iter()
        .map(|at| {
            let (line, column, number) = (at.line, at.column, number_json(at.number));
            let without = match at.without {
                0 => String::new(),
                without => {
                    let hosts = Value::from(printer.fold(&at.without_members.leaves()));
                    format!(r#","without":{without},"without_hosts":{hosts}"#)
                }
            };
            let members = at.count;
            format!(r#"{{"line":{line},"column":{column},"number":{number},"members":{members}{without}}}"#)
        })
        .collect();
    let texts: Vec<String> = numbers.iter().map(|at| number_json(at.number)).collect();
    let raw = [
        ("numbers", format!("[{}]", texts.join(","))),
        ("places", format!("[{}]", places.join(","))),
    ];
    printer.json_raw(&readout.contributors, readout.paths.join(" ").as_bytes(), &raw)
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
    use super::number_json;
    use sheaf_group::aggregate::Number;

    #[test]
    fn numbers_are_tokens_of_json_with_every_digit() {
        let cases = [
            (Number::Integer(123_456_789_012_345), "123456789012345"),
            (Number::Integer(i128::MAX), "170141183460469231731687303715884105727"),
            (Number::Float(0.1 + 0.2), "0.30000000000000004"),
            (Number::Float(1e300), "1e300"),
            (Number::Float(-0.5), "-0.5"),
            (Number::Float(f64::INFINITY), "\"inf\""),
        ];
        for (number, text) in cases {
            assert_eq!(number_json(number), text);
            assert!(serde_json::from_str::<serde_json::Value>(text).is_ok());
        }
    }
}
