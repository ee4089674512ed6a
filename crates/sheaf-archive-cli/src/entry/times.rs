//! How the times of files are shown, and which.
use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use sheaf_tools::report::time::{Clock, TimeStyle};

/// Half of a year of 365.2425 days: before that, a time is not recent.
const RECENT_SECONDS: i64 = 31_556_952 / 2;

/// Which time is shown, and is what is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShownTime {
    /// Of the last change of the content.
    #[default]
    Content,
    /// Of the last change of the inode.
    Inode,
    /// Of the last access.
    Access,
}

/// How a time is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeFormat {
    Style(TimeStyle),
    /// As `date` takes it: of times that are not recent, and of those that are.
    Given {
        old: String,
        recent: String,
    },
}

impl TimeFormat {
    /// Reads what stands behind `--time-style`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(format) = text.strip_prefix('+') {
            let (old, recent) = format.split_once('\n').unwrap_or((format, format));
            let any = Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
            for format in [old, recent] {
                strtime::format(format, &any).map_err(|error| error.to_string())?;
            }
            return Ok(Self::Given { old: old.to_owned(), recent: recent.to_owned() });
        }
        Ok(Self::Style(match text {
            "full-iso" => TimeStyle::FullIso,
            "long-iso" => TimeStyle::LongIso,
            "iso" => TimeStyle::Iso,
            "locale" => TimeStyle::Locale,
            _ => return Err("there are full-iso, long-iso, iso, locale and +FORMAT".to_owned()),
        }))
    }

    /// Whether times of one minute are written alike.
    pub fn is_of_minutes(&self) -> bool {
        *self == Self::Style(TimeStyle::LongIso)
    }

    /// Writes a time.
    pub fn format(&self, (seconds, nanoseconds): (i64, u32), clock: &Clock) -> String {
        let (old, recent) = match self {
            Self::Style(style) => return style.format(seconds, nanoseconds, clock),
            Self::Given { old, recent } => (old, recent),
        };
        let age = clock.now.as_second().saturating_sub(seconds);
        let format = if (0..RECENT_SECONDS).contains(&age) { recent } else { old };
        let time = i32::try_from(nanoseconds).ok();
        let time = time.and_then(|nanoseconds| Timestamp::new(seconds, nanoseconds).ok());
        let time = time.map(|time| time.to_zoned(clock.zone.clone()));
        let text = time.and_then(|time| strtime::format(format, &time).ok());
        // A time that no calendar has is written as a number.
        text.unwrap_or_else(|| seconds.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_it_is_said() {
        let clock = Clock { zone: TimeZone::UTC, now: Timestamp::from_second(50_000_000).unwrap() };
        for (style, seconds, text) in [
            ("+%s.%N", 5, "5.000000007"),
            ("+old %Y\nrecent %m", 5, "old 1970"),
            ("+old %Y\nrecent %m", 49_999_999, "recent 08"),
            ("full-iso", 5, "1970-01-01 00:00:05.000000007 +0000"),
            ("+%Y", i64::MAX, "9223372036854775807"),
        ] {
            let format = TimeFormat::parse(style).unwrap();
            assert_eq!(format.format((seconds, 7), &clock), text, "{style}");
        }
        for wrong in ["", "odd", "+%", "+%Y\n%"] {
            assert!(TimeFormat::parse(wrong).is_err(), "{wrong}");
        }
    }
}
