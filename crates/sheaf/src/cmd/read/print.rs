//! What a group read gave, printed.
use crate::output::{Layout, Line, Printer};
use serde_json::{Map, Value, json};
use sheaf_tools::read::{Combined, Content, Readout};
use std::io;

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
            let numbers: Vec<String> = numbers.iter().map(|number| number_text(*number)).collect();
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
            None => printer.behind(digest.as_bytes(), b"  ", leaves, path.as_bytes(), "digest")?,
        }
    }
    class.body.iter().try_for_each(|body| printer.raw(body))
}

fn print_json(printer: &mut Printer<'_>, readout: &Readout) -> io::Result<()> {
    let value = |key: &str, value: Value| Map::from_iter([(key.to_owned(), value)]);
    let path = readout.paths.join(" ");
    let (all, path) = (&readout.members, path.as_bytes());
    match &readout.data {
        Combined::None if readout.outcome.status.count == 0 => Ok(()),
        Combined::None => printer.json(all, path, value("status", readout.status.into())),
        Combined::Bytes(bytes) => printer.json(all, path, text(bytes)),
        Combined::Count(count) => printer.json(all, path, value("members", (*count).into())),
        Combined::Numbers(numbers) => printer.json(all, path, value("numbers", json!(numbers))),
        Combined::Packed(items) => items.iter().try_for_each(|(leaf, path, bytes)| {
            printer.json(&std::iter::once(*leaf).collect(), path.as_bytes(), text(bytes))
        }),
        Combined::Classes(classes) => classes.iter().try_for_each(|class| {
            let mut object = class.body.as_ref().map(|body| text(body)).unwrap_or_default();
            object.insert("digest".to_owned(), hex(&class.digest).into());
            object.insert("size".to_owned(), class.len.into());
            let mut files = class.files.iter();
            files.try_for_each(|(path, leaves)| printer.json(leaves, path.as_bytes(), object.clone()))
        }),
        Combined::Lines(merged) => merged
            .sorted()
            .iter()
            .try_for_each(|entry| printer.json(entry.leaves, entry.path, text(entry.entry.text))),
    }
}

fn text(bytes: &[u8]) -> Map<String, Value> {
    use base64::Engine;
    let (key, value) = match std::str::from_utf8(bytes) {
        Ok(text) => ("text", text.to_owned()),
        Err(_) => ("base64", base64::engine::general_purpose::STANDARD.encode(bytes)),
    };
    Map::from_iter([(key.to_owned(), value.into())])
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A number to 14 significant digits: those that only binary fractions, or the order in which a
/// tree adds, put there are left out.
fn number_text(number: f64) -> String {
    let rounded: f64 = format!("{number:.13e}").parse().unwrap_or(number);
    format!("{rounded}")
}

#[cfg(test)]
mod tests {
    use super::number_text;

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        let cases = [
            (0.199_999_999_999_999_98, "0.2"),
            (12.0, "12"),
            (-0.375, "-0.375"),
            (1.0 / 3.0, "0.33333333333333"),
            (0.000_000_123_456_7, "0.0000001234567"),
        ];
        for (number, text) in cases {
            assert_eq!(number_text(number), text);
        }
        assert_eq!(number_text(1e-20), "0.00000000000000000001");
    }
}
