//! Two reports beside each other: what takes longer in the second, and what less.
use crate::report::data::{IoSums, ReportData};
use crate::report::text::ReportText;
use crate::report::units::{count, shown, size, time};
use serde::Serialize;
use std::collections::BTreeMap;

/// Lines of each table.
const ROWS_MAX: usize = 20;

/// What two traces have of the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DiffRow {
    /// What it is: a kind of I/O, a layer and an operation, or a file.
    pub name: String,
    /// In the first trace; nothing of it is there where all are 0.
    pub before: DiffSums,
    /// In the second.
    pub after: DiffSums,
}

/// Of an operation or a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DiffSums {
    /// How many operations.
    pub count: u64,
    /// How many bytes they moved.
    pub bytes: u128,
    /// The time they took, of all threads together, in ns.
    pub time_ns: u128,
}

/// How two traces differ; in each part what differs by the most time comes first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReportDiff {
    /// Reads, writes, names and so on.
    pub kinds: Vec<DiffRow>,
    /// By layer and operation.
    pub operations: Vec<DiffRow>,
    /// By file, as far as the reports list them.
    pub files: Vec<DiffRow>,
}

impl DiffRow {
    fn change_ns(&self) -> u128 {
        self.after.time_ns.abs_diff(self.before.time_ns)
    }
}

impl From<&IoSums> for DiffSums {
    fn from(sums: &IoSums) -> Self {
        Self { count: sums.count, bytes: sums.bytes, time_ns: sums.time_ns }
    }
}

impl ReportDiff {
    /// What a trace and a later one have.
    #[must_use]
    pub fn of(before: &ReportData, after: &ReportData) -> Self {
        let kinds = |data: &ReportData| -> Vec<(String, DiffSums)> {
            let of = data.totals.kinds().into_iter().filter(|(_, sums)| sums.count > 0);
            of.map(|(kind, sums)| (kind.to_owned(), DiffSums::from(sums))).collect()
        };
        let operations = |data: &ReportData| -> Vec<(String, DiffSums)> {
            let of = data.operations.iter();
            of.map(|op| (format!("{} {}", op.layer, op.op), DiffSums::from(&op.sums))).collect()
        };
        let files = |data: &ReportData| -> Vec<(String, DiffSums)> {
            let sums = data.files.iter().map(|file| {
                let bytes = file.reads.bytes + file.writes.bytes;
                let sums = DiffSums { count: file.operations(), bytes, time_ns: file.time_ns() };
                (file.path.clone(), sums)
            });
            sums.collect()
        };
        Self {
            kinds: rows(kinds(before), kinds(after)),
            operations: rows(operations(before), operations(after)),
            files: rows(files(before), files(after)),
        }
    }

    /// As tables of so many columns.
    #[must_use]
    pub fn to_text(&self, before: &ReportData, after: &ReportData, width: usize) -> String {
        let mut text = ReportText::new(width);
        for (mark, data) in [("before: ", before), ("after:  ", after)] {
            let run = data.run.as_ref().map(|run| format!("{}; ", run.sentence()));
            let share = data.share_of_run().unwrap_or_else(|| "no I/O on files.".to_owned());
            text.paragraph(mark, &format!("{}{share}", run.unwrap_or_default()));
            if data.lost.count > 0 {
                let lost = count(data.lost.count);
                text.paragraph("        ", &format!("{lost} operations are not in it"));
            }
        }
        for (title, heading, rows) in [
            ("Kinds", "kind", &self.kinds),
            ("Operations", "operation", &self.operations),
            ("Files", "file", &self.files),
        ] {
            if rows.is_empty() {
                continue;
            }
            text.title(title);
            let heads = ["before", "after", "change", "count", "after", "bytes", "after", heading];
            let lines = rows.iter().take(ROWS_MAX).map(|row| {
                vec![
                    time(row.before.time_ns),
                    time(row.after.time_ns),
                    change(row),
                    count(row.before.count),
                    count(row.after.count),
                    size(row.before.bytes),
                    size(row.after.bytes),
                    shown(&row.name),
                ]
            });
            text.table(&heads, lines.collect());
            if let Some(more) = rows.len().checked_sub(ROWS_MAX).filter(|more| *more > 0) {
                text.line(&format!("and {} more, which differ by less time", count(more as u64)));
            }
        }
        text.finish()
    }
}

/// `+1.5 ms`.
fn change(row: &DiffRow) -> String {
    let sign = match row.after.time_ns.cmp(&row.before.time_ns) {
        std::cmp::Ordering::Less => "-",
        std::cmp::Ordering::Equal => "",
        std::cmp::Ordering::Greater => "+",
    };
    format!("{sign}{}", time(row.change_ns()))
}

/// Those of the same name in one row; the greatest change of time first.
fn rows(before: Vec<(String, DiffSums)>, after: Vec<(String, DiffSums)>) -> Vec<DiffRow> {
    let mut by_name: BTreeMap<String, DiffRow> = BTreeMap::new();
    let mut row = |name: String, set: &dyn Fn(&mut DiffRow)| {
        let row = by_name.entry(name.clone()).or_insert(DiffRow { name, ..DiffRow::default() });
        set(row);
    };
    for (name, sums) in before {
        row(name, &|row| row.before = sums);
    }
    for (name, sums) in after {
        row(name, &|row| row.after = sums);
    }
    let mut rows: Vec<DiffRow> = by_name.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.change_ns()));
    rows
}
