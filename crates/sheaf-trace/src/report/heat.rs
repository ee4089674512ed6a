//! Bytes over time, in bins that grow with the trace.
use crate::report::data::HeatRow;
use std::collections::BTreeMap;

/// How long a bin is at first, in ns: about a microsecond.
const BIN_NS_MIN: u64 = 1 << 10;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct HeatBin {
    read: u128,
    written: u128,
}

/// As many bins as are allowed, of a width that doubles when the trace grows out of them: bin n
/// begins at n times the width since 1970.
#[derive(Debug)]
pub(crate) struct HeatMap {
    bins_max: usize,
    rows_max: usize,
    /// A power of two.
    bin_ns: u64,
    /// The numbers of the first and the last bin in use.
    used: Option<(i64, i64)>,
    /// By a number of the caller's; those beyond `rows_max` are `None`.
    rows: BTreeMap<Option<u32>, Vec<HeatBin>>,
}

impl HeatMap {
    pub fn new(bins_max: usize, rows_max: usize) -> Self {
        let bins_max = bins_max.max(2);
        Self { bins_max, rows_max, bin_ns: BIN_NS_MIN, used: None, rows: BTreeMap::new() }
    }

    /// Rows beyond the limit are in one.
    pub fn is_beyond(&self) -> bool {
        self.rows.contains_key(&None)
    }

    /// Spreads bytes evenly over a time.
    pub fn add(&mut self, row: u32, is_write: bool, bytes: u64, begin_ns: i64, length_ns: u64) {
        let end_ns = begin_ns.saturating_add(i64::try_from(length_ns).unwrap_or(i64::MAX));
        self.make_room(begin_ns, end_ns);
        let (first, _) = self.used.expect("room was made");
        let key = if self.rows.contains_key(&Some(row)) || self.rows.len() < self.rows_max {
            Some(row)
        } else {
            None
        };
        let bins = self.rows.entry(key).or_insert_with(|| vec![HeatBin::default(); self.bins_max]);
        // A shift rounds down also before 1970, where a division would round towards zero.
        let bin_of = |at: i64| at >> self.bin_ns.trailing_zeros();
        // The end itself is not part of the time, unless that has no length.
        let last_bin = bin_of(end_ns.saturating_sub(1).max(begin_ns));
        let mut give = |bin: i64, share: u128| {
            let bin = &mut bins[bin.abs_diff(first) as usize];
            *if is_write { &mut bin.written } else { &mut bin.read } += share;
        };
        if bin_of(begin_ns) == last_bin {
            return give(last_bin, bytes.into());
        }
        let total = u128::from(end_ns.abs_diff(begin_ns));
        let mut given = 0;
        for bin in bin_of(begin_ns)..=last_bin {
            let bin_end = (i128::from(bin) + 1) * i128::from(self.bin_ns);
            let passed = bin_end.min(i128::from(end_ns)) - i128::from(begin_ns);
            // The difference of two rounded sums, so that no byte is lost by rounding.
            let share = (u128::from(bytes) * passed as u128 / total) - given;
            given += share;
            give(bin, share);
        }
    }

    /// Bins for a time: they grow until there are enough.
    fn make_room(&mut self, begin_ns: i64, end_ns: i64) {
        loop {
            let bin_of = |at: i64| at >> self.bin_ns.trailing_zeros();
            let (begin, end) = (bin_of(begin_ns), bin_of(end_ns));
            let (first, last) = self.used.unwrap_or((begin, end));
            let (new_first, new_last) = (first.min(begin), last.max(end));
            if new_last.abs_diff(new_first) < self.bins_max as u64 {
                let shift = first.abs_diff(new_first) as usize;
                if shift > 0 {
                    // No more than `bins_max` bins are in use, so those that come to the front are
                    // empty.
                    self.rows.values_mut().for_each(|bins| bins.rotate_right(shift));
                }
                self.used = Some((new_first, new_last));
                return;
            }
            self.double();
        }
    }

    fn double(&mut self) {
        self.bin_ns *= 2;
        let Some((first, last)) = self.used else { return };
        let new_first = first.div_euclid(2);
        for bins in self.rows.values_mut() {
            let mut halved = vec![HeatBin::default(); bins.len()];
            for (at, bin) in bins.iter().enumerate() {
                if *bin != HeatBin::default() {
                    let at = ((first + at as i64).div_euclid(2) - new_first) as usize;
                    halved[at].read += bin.read;
                    halved[at].written += bin.written;
                }
            }
            *bins = halved;
        }
        self.used = Some((new_first, last.div_euclid(2)));
    }

    /// When the first bin begins, how long each is, and what they have.
    pub fn finish(self, label: impl Fn(Option<u32>) -> String) -> (i64, u64, Vec<HeatRow>) {
        let Some((first, last)) = self.used else { return (0, self.bin_ns, Vec::new()) };
        let count = last.abs_diff(first) as usize + 1;
        let rows = self.rows.into_iter().map(|(row, bins)| HeatRow {
            label: label(row),
            read_bytes: bins[..count].iter().map(|bin| bin.read).collect(),
            written_bytes: bins[..count].iter().map(|bin| bin.written).collect(),
        });
        let first_ns = i128::from(first) * i128::from(self.bin_ns);
        let first_ns = i64::try_from(first_ns).unwrap_or(i64::MIN);
        (first_ns, self.bin_ns, rows.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_double_and_lose_nothing() {
        let mut heat = HeatMap::new(4, 2);
        heat.add(7, false, 1000, 0, 1024);
        heat.add(7, true, 10, 2048, 2048);
        assert_eq!(heat.bin_ns, 2048, "the end of the second one lies behind four bins of 1024");
        heat.add(8, true, 5, -1_000_000, 0);
        heat.add(9, true, 3, 5, 0);
        assert!(heat.is_beyond());
        let (first, bin_ns, rows) =
            heat.finish(|row| row.map_or_else(|| "rest".into(), |row| row.to_string()));
        assert_eq!((first, bin_ns), (-1 << 20, 1 << 19));
        let labels: Vec<_> = rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["rest", "7", "8"]);
        assert_eq!(rows[0].written_bytes, [0, 0, 3]);
        assert_eq!(
            (&rows[1].read_bytes[..], &rows[1].written_bytes[..]),
            (&[0, 0, 1000][..], &[0, 0, 10][..])
        );
        assert_eq!(rows[2].written_bytes, [5, 0, 0]);
    }

    #[test]
    fn bytes_are_spread_evenly() {
        let mut heat = HeatMap::new(8, 1);
        heat.add(0, false, 101, 512, 2048);
        let (first, _, rows) = heat.finish(|_| String::new());
        assert_eq!(first, 0);
        assert_eq!(rows[0].read_bytes, [25, 50, 26]);
    }

    #[test]
    fn ends_of_time_are_no_trouble() {
        let mut heat = HeatMap::new(2, 1);
        heat.add(0, false, u64::MAX, i64::MIN, u64::MAX);
        heat.add(0, false, 1, i64::MAX, u64::MAX);
        let (_, _, rows) = heat.finish(|_| String::new());
        assert_eq!(rows[0].read_bytes.iter().sum::<u128>(), u128::from(u64::MAX) + 1);
    }
}
