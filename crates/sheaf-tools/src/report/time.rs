//! Times as they are shown.
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// How `ls -l` writes a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeStyle {
    /// `2026-01-31 18:04:05.000000000 +0000`
    FullIso,
    /// `2026-01-31 18:04`
    #[default]
    LongIso,
    /// `01-31 18:04`, or the date when it is more than half a year ago, or to come.
    Iso,
    /// `Jan 31 18:04`, or the year then.
    Locale,
}

/// Where and when times are read.
#[derive(Clone, Debug)]
pub struct Clock {
    /// The reader's zone.
    pub zone: TimeZone,
    /// The present.
    pub now: Timestamp,
}

/// A time with its nanoseconds, as `stat` writes it.
#[must_use]
pub fn full(seconds: i64, nanoseconds: u32, zone: &TimeZone) -> String {
    match zoned(seconds, nanoseconds, zone) {
        Some(time) => time.strftime("%Y-%m-%d %H:%M:%S.%9f %z").to_string(),
        None => format!("{seconds}.{nanoseconds:09}"),
    }
}

impl TimeStyle {
    /// Writes a time.
    #[must_use]
    pub fn format(self, seconds: i64, nanoseconds: u32, clock: &Clock) -> String {
        /// Half of a year of 365.2425 days.
        const RECENT_SECONDS: i64 = 31_556_952 / 2;
        let Some(time) = zoned(seconds, nanoseconds, &clock.zone) else {
            return seconds.to_string();
        };
        let age = clock.now.as_second().saturating_sub(seconds);
        let recent = (0..RECENT_SECONDS).contains(&age);
        let format = match (self, recent) {
            (Self::FullIso, _) => return full(seconds, nanoseconds, &clock.zone),
            (Self::LongIso, _) => "%Y-%m-%d %H:%M",
            (Self::Iso, true) => "%m-%d %H:%M",
            (Self::Iso, false) => "%Y-%m-%d ",
            (Self::Locale, true) => "%b %e %H:%M",
            (Self::Locale, false) => "%b %e  %Y",
        };
        time.strftime(format).to_string()
    }
}

fn zoned(seconds: i64, nanoseconds: u32, zone: &TimeZone) -> Option<Zoned> {
    let time = Timestamp::new(seconds, i32::try_from(nanoseconds).ok()?).ok()?;
    Some(time.to_zoned(zone.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_are_those_of_ls() {
        let clock =
            Clock { zone: TimeZone::UTC, now: Timestamp::from_second(1_800_000_000).unwrap() };
        let text = |style: TimeStyle, seconds| style.format(seconds, 5_000_000, &clock);
        assert_eq!(text(TimeStyle::FullIso, 1_769_882_645), "2026-01-31 18:04:05.005000000 +0000");
        assert_eq!(text(TimeStyle::LongIso, 1_769_882_645), "2026-01-31 18:04");
        assert_eq!(text(TimeStyle::Iso, 1_769_882_645), "2026-01-31 ");
        assert_eq!(text(TimeStyle::Locale, 1_769_882_645), "Jan 31  2026");
        assert_eq!(text(TimeStyle::Iso, 1_799_000_000), "01-03 18:13");
        assert_eq!(text(TimeStyle::Locale, 1_799_000_000), "Jan  3 18:13");
        assert_eq!(text(TimeStyle::LongIso, i64::MAX), i64::MAX.to_string());
    }
}
