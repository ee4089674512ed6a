//! Versions of an archive, as the command line names them.
use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use sheaf_archive::{
    Archive, FoundVersion, SaveReport, Version, VersionSums, mark_version, versions,
};
use sheaf_cli::exit::Stop;
use sheaf_cli::output::printable;
use std::time::SystemTime;

/// Digits of a version's identity that are shown.
const ID_DIGITS: usize = 8;

/// Which version is read.
#[derive(Args, Debug, Default)]
pub struct AtArgs {
    /// Read what the archive was at a version: its identity or name as archive log says
    /// them, latest, or a time, of which it is the last one until then
    #[arg(long, value_name = "VERSION")]
    pub at: Option<String>,
}

/// The identity of a version, for people.
pub fn short_id(found: &FoundVersion) -> String {
    let mut id = found.id.to_string();
    id.truncate(ID_DIGITS);
    id
}

/// The archive as it was at a version.
pub fn archive_at(archive: &Archive, at: &str) -> Result<Archive> {
    let all = versions(archive)?;
    let found = find(&all, at, &TimeZone::system())?;
    Ok(archive.at(found)?)
}

/// The version that a text means: a name, `latest`, the beginning of an identity, or a time.
pub fn find<'a>(all: &'a [FoundVersion], text: &str, zone: &TimeZone) -> Result<&'a FoundVersion> {
    let readable = || all.iter().filter_map(|found| Some((found, found.version.as_ref().ok()?)));
    let refused = |why: &str| Stop::usage(printable(&format!("{text}: {why}")));
    // The newest of several that have one name.
    let named = readable().rfind(|(_, version)| version.name.as_deref() == Some(text));
    if let Some((found, _)) = named {
        return Ok(found);
    }
    if text == "latest" {
        let last = all.last().ok_or_else(|| refused("the archive has no versions yet"))?;
        return Ok(last);
    }
    let is_digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() >= 4 && is_digits {
        let mut of = all.iter().filter(|found| found.id.to_string().starts_with(text));
        match (of.next(), of.next()) {
            (Some(found), None) => return Ok(found),
            (Some(_), Some(_)) => return Err(refused("several versions begin so").into()),
            _ => {}
        }
    }
    let Some(time) = time_of(text, zone) else {
        return Err(refused("no version has this identity or name (archive log lists them)").into());
    };
    let until = |version: &Version| time_of_version(version).is_some_and(|made| made <= time);
    let last = readable().rfind(|(_, version)| until(version));
    let (found, _) = last.ok_or_else(|| refused("no version is as old as that"))?;
    Ok(found)
}

/// When a version was made.
pub fn time_of_version(version: &Version) -> Option<Timestamp> {
    Timestamp::new(version.seconds, i32::try_from(version.nanoseconds).ok()?).ok()
}

/// The time that a text is: `@SECONDS`, a time with its zone, or one of this machine's zone. A day is meant
/// to its end, and so is a second: times of versions are shown without the rest.
fn time_of(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let time = exact_time_of(text, zone)?;
    if time.subsec_nanosecond() != 0 || text.contains('.') {
        return Some(time);
    }
    Timestamp::new(time.as_second(), if time.as_second() < 0 { 0 } else { 999_999_999 }).ok()
}

fn exact_time_of(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    if let Some(seconds) = text.strip_prefix('@') {
        return Timestamp::from_second(seconds.parse().ok()?).ok();
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let local = match text.parse::<jiff::civil::Date>() {
        Ok(day) if !text.contains(':') => day.at(23, 59, 59, 999_999_999),
        _ => text.parse::<DateTime>().ok()?,
    };
    zone.to_ambiguous_timestamp(local).later().ok()
}

/// Makes what is archived now a version, after a command that has stored files.
pub fn mark(archive: &Archive, name: Option<&str>, report: &SaveReport) -> Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let version = Version {
        name: name.map(str::to_owned),
        seconds: i64::try_from(now.as_secs())?,
        nanoseconds: now.subsec_nanos(),
        host: if host.is_empty() { "localhost".to_owned() } else { host },
        sums: VersionSums {
            stored: report.stored,
            stored_bytes: report.stored_bytes,
            unchanged: report.unchanged,
            failed: report.failed,
        },
        ..Version::default()
    };
    mark_version(archive, version)?;
    Ok(())
}

/// The name of a version.
pub fn name(text: &str) -> Result<String, String> {
    let is_one = !text.is_empty() && text.len() <= 200 && !text.contains(char::is_control);
    if !is_one {
        return Err("a name has 1 to 200 bytes, and no control characters".to_owned());
    }
    if text == "latest" {
        return Err("latest is the newest version, whatever its name is".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_meant_to_the_end_of_what_it_says() {
        let at = |text: &str| time_of(text, &TimeZone::UTC).map(|time| time.to_string());
        for (text, expected) in [
            ("@5", "1970-01-01T00:00:05.999999999Z"),
            ("2026-11-29 11:04:11", "2026-11-29T11:04:11.999999999Z"),
            ("2026-11-29T11:04:11+01:00", "2026-11-29T10:04:11.999999999Z"),
            ("2026-11-29T11:04:11.5Z", "2026-11-29T11:04:11.5Z"),
            ("2026-11-29", "2026-11-29T23:59:59.999999999Z"),
        ] {
            assert_eq!(at(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(at("yesterday"), None);
    }
}
