//! `sheaf archive forget`: versions that are kept no longer.
use super::counted;
use super::log::{line, record};
use super::place::{self, ArchivedName};
use super::version::{find, short_id, time_of_version};
use anyhow::Result;
use clap::Args;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};
use sheaf_archive::{ArchivePath, FoundVersion, forget_versions, versions};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;

/// Forget versions of an archive
///
/// With --keep-… all are forgotten that none of these rules keeps; else those that
/// are named. What is archived now stays in any case. The room that only forgotten
/// versions took comes back with repack and repair.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Examples:
  sheaf archive forget --dry-run --keep-daily 7 --keep-weekly 4 /backup::
  sheaf archive forget --keep-last 10 --keep-tag release /backup::
  sheaf archive forget /backup:: 5cd57ad9")]
pub struct ForgetArgs {
    /// The store: with the path / or without
    #[arg(value_name = "STORE::")]
    pub name: OsString,

    /// Versions to be forgotten: identities or names, as archive log says them
    #[arg(value_name = "VERSION", conflicts_with = "rules")]
    pub versions: Vec<String>,

    #[command(flatten)]
    pub keep: KeepArgs,

    /// Forget nothing, but list what would be forgotten
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// Which versions are kept.
#[derive(Args, Clone, Debug, Default)]
#[group(id = "rules", multiple = true)]
pub struct KeepArgs {
    /// Keep the N newest versions
    #[arg(short = 'l', long, value_name = "N")]
    pub keep_last: Option<u32>,

    /// Keep the newest version of each of the last N hours that have one
    #[arg(short = 'H', long, value_name = "N")]
    pub keep_hourly: Option<u32>,

    /// Keep the newest version of each of the last N days that have one
    #[arg(short = 'd', long, value_name = "N")]
    pub keep_daily: Option<u32>,

    /// Keep the newest version of each of the last N weeks that have one
    #[arg(short = 'w', long, value_name = "N")]
    pub keep_weekly: Option<u32>,

    /// Keep the newest version of each of the last N months that have one
    #[arg(short = 'm', long, value_name = "N")]
    pub keep_monthly: Option<u32>,

    /// Keep the newest version of each of the last N years that have one
    #[arg(short = 'y', long, value_name = "N")]
    pub keep_yearly: Option<u32>,

    /// Keep versions that are at most so much older than the newest: 2y5m7d3h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub keep_within: Option<Span>,

    /// Keep versions of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub keep_tag: Vec<String>,
}

/// Forgets versions.
pub fn run(args: &ForgetArgs, global: &GlobalArgs) -> Result<Exit> {
    let name = ArchivedName::parse_literal(&args.name)?;
    if name.path != ArchivePath::ROOT {
        let text = "a version is of all that is archived: say STORE:: without a path";
        return Err(Stop::usage(text).into());
    }
    if args.versions.is_empty() && args.keep.is_empty() {
        let text =
            "say which versions to keep (--keep-last N, --keep-daily N, …), or name versions";
        return Err(Stop::usage(text).into());
    }
    let archive = place::open(&name.store, false)?;
    let (all, zone) = (versions(&archive)?, TimeZone::system());
    let forgotten: Vec<&FoundVersion> = if args.versions.is_empty() {
        let kept = args.keep.kept(&all, &zone);
        all.iter().enumerate().filter(|(at, _)| !kept.contains(at)).map(|(_, one)| one).collect()
    } else {
        let mut named = Vec::new();
        for text in &args.versions {
            named.push(find_named(&all, text, &zone)?);
        }
        named
    };
    if !args.dry_run {
        let ids: Vec<_> = forgotten.iter().map(|found| found.id).collect();
        forget_versions(&archive, &ids)?;
    }
    let mut out = output::stdout();
    for found in &forgotten {
        if global.json {
            Output::new(global).records.write(&mut out, &record(found, !args.dry_run))?;
        } else if args.dry_run || global.verbose > 0 {
            writeln!(out, "{}", line(found).unwrap_or_else(|| short_id(found)))?;
        }
    }
    if !global.quiet && !global.json {
        output::tell(format_args!(
            "sheaf: {} {}, {} kept",
            if args.dry_run { "would forget" } else { "forgot" },
            counted(forgotten.len() as u64, "version", "versions"),
            all.len() - forgotten.len(),
        ));
    }
    Ok(Exit::Success)
}

/// The version of this identity or name. A time names none that is to be forgotten.
fn find_named<'a>(
    all: &'a [FoundVersion],
    text: &str,
    zone: &TimeZone,
) -> Result<&'a FoundVersion> {
    let found = find(all, text, zone)?;
    let name = found.version.as_ref().ok().and_then(|version| version.name.as_deref());
    if found.id.to_string().starts_with(text) || name == Some(text) || text == "latest" {
        return Ok(found);
    }
    Err(Stop::usage(format!("{text}: name a version by its identity or name")).into())
}

impl KeepArgs {
    fn is_empty(&self) -> bool {
        self.numbers().iter().all(Option::is_none)
            && self.keep_within.is_none()
            && self.keep_tag.is_empty()
    }

    fn numbers(&self) -> [Option<u32>; 6] {
        let Self {
            keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly, keep_yearly, ..
        } = self;
        [*keep_last, *keep_hourly, *keep_daily, *keep_weekly, *keep_monthly, *keep_yearly]
    }

    /// The places of the versions that are kept, of all, which are in their order. One that is damaged is kept.
    fn kept(&self, all: &[FoundVersion], zone: &TimeZone) -> HashSet<usize> {
        let mut kept: HashSet<usize> = HashSet::new();
        let mut known: Vec<(usize, Zoned)> = Vec::new();
        for (at, found) in all.iter().enumerate() {
            let version = found.version.as_ref().ok();
            let made = version.and_then(time_of_version);
            let (Some(version), Some(made)) = (version, made) else {
                kept.insert(at);
                continue;
            };
            if version.name.as_ref().is_some_and(|name| self.keep_tag.contains(name)) {
                kept.insert(at);
            }
            known.push((at, made.to_zoned(zone.clone())));
        }
        known.sort_by_key(|(at, made)| std::cmp::Reverse((made.timestamp(), *at)));
        let periods: [fn(&Zoned, usize) -> (i64, i64); 6] = [
            |_, at| (at as i64, 0),
            |made, _| (day(made), i64::from(made.hour())),
            |made, _| (day(made), 0),
            |made, _| {
                let week = made.date().iso_week_date();
                (i64::from(week.year()), i64::from(week.week()))
            },
            |made, _| (i64::from(made.year()), i64::from(made.month())),
            |made, _| (i64::from(made.year()), 0),
        ];
        for (number, period) in self.numbers().into_iter().zip(periods) {
            let mut seen = HashSet::new();
            for (at, made) in &known {
                if seen.len() >= number.unwrap_or(0) as usize {
                    break;
                }
                if seen.insert(period(made, *at)) {
                    kept.insert(*at);
                }
            }
        }
        if let (Some(within), Some((_, newest))) = (&self.keep_within, known.first()) {
            let since = newest.checked_sub(*within).map_or(Timestamp::MIN, |at| at.timestamp());
            kept.extend(
                known.iter().filter(|(_, made)| made.timestamp() >= since).map(|(at, _)| at),
            );
        }
        kept
    }
}

/// Years and days in one number.
fn day(of: &Zoned) -> i64 {
    i64::from(of.year()) * 1000 + i64::from(of.day_of_year())
}

/// Years, months, days and hours as restic has them: `2y5m7d3h`.
fn duration(text: &str) -> Result<Span, String> {
    let wrong = || "a duration is years, months, days and hours: 2y5m7d3h".to_owned();
    let (mut span, mut rest) = (Span::new(), text);
    if text.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let at = rest.find(|sign: char| !sign.is_ascii_digit()).ok_or_else(wrong)?;
        let count: i64 = rest[..at].parse().map_err(|_| wrong())?;
        span = match &rest[at..=at] {
            "y" => span.try_years(count),
            "m" => span.try_months(count),
            "d" => span.try_days(count),
            "h" => span.try_hours(count),
            _ => return Err(wrong()),
        }
        .map_err(|_| wrong())?;
        rest = &rest[at + 1..];
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_archive::{PackId, Version};

    fn version(number: u64, time: &str, name: Option<&str>) -> FoundVersion {
        let seconds = time.parse::<Timestamp>().unwrap().as_second();
        let name = name.map(str::to_owned);
        let version = Version { seconds, name, host: "n7".to_owned(), ..Version::default() };
        FoundVersion { id: PackId([number as u8; 16]), number, version: Ok(version) }
    }

    fn all() -> Vec<FoundVersion> {
        vec![
            version(1, "2025-12-30T10:00:00Z", Some("release")),
            version(2, "2026-01-05T10:00:00Z", None),
            version(3, "2026-01-05T10:30:00Z", None),
            version(4, "2026-01-06T09:00:00Z", Some("a")),
            version(5, "2026-02-01T09:00:00Z", Some("a")),
        ]
    }

    #[test]
    fn rules_keep_the_newest_of_each_period() {
        let kept = |keep: KeepArgs| {
            let kept = keep.kept(&all(), &TimeZone::UTC);
            let mut kept: Vec<_> = kept.into_iter().map(|at| at + 1).collect();
            kept.sort_unstable();
            kept
        };
        let none = KeepArgs::default;
        assert_eq!(kept(KeepArgs { keep_last: Some(2), ..none() }), [4, 5]);
        assert_eq!(kept(KeepArgs { keep_last: Some(0), ..none() }), [0; 0]);
        assert_eq!(kept(KeepArgs { keep_hourly: Some(3), ..none() }), [3, 4, 5]);
        assert_eq!(kept(KeepArgs { keep_daily: Some(3), ..none() }), [3, 4, 5]);
        // The 5th and 6th of January are of one week, and the year's first week begins in December.
        assert_eq!(kept(KeepArgs { keep_weekly: Some(9), ..none() }), [1, 4, 5]);
        assert_eq!(kept(KeepArgs { keep_monthly: Some(2), ..none() }), [4, 5]);
        assert_eq!(kept(KeepArgs { keep_yearly: Some(9), ..none() }), [1, 5]);
        assert_eq!(kept(KeepArgs { keep_tag: vec!["release".into()], ..none() }), [1]);
        let within = Some(duration("1m").unwrap());
        assert_eq!(kept(KeepArgs { keep_within: within, ..none() }), [2, 3, 4, 5]);
        let both = KeepArgs { keep_last: Some(1), keep_tag: vec!["release".into()], ..none() };
        assert_eq!(kept(both), [1, 5]);
    }

    #[test]
    fn durations_are_those_of_restic() {
        assert_eq!(
            duration("2y5m7d3h").unwrap().fieldwise(),
            Span::new().years(2).months(5).days(7).hours(3).fieldwise()
        );
        for text in ["", "7", "d", "7x", "-1d", "99999999999999999999y"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn versions_are_found_by_name_identity_and_time() {
        let all = all();
        let found = |text: &str| find(&all, text, &TimeZone::UTC).map(|found| found.number).ok();
        for (text, number) in [
            ("latest", Some(5)),
            ("a", Some(5)),
            ("release", Some(1)),
            ("0202", Some(2)),
            ("02", None),
            ("2026-01-05", Some(3)),
            ("2026-01-05T10:00", Some(2)),
            ("2026-01-05T10:00:00Z", Some(2)),
            ("2025-12-30", Some(1)),
            ("2025-12-29", None),
            ("@0", None),
            ("@99999999999", Some(5)),
            ("none", None),
        ] {
            assert_eq!(found(text), number, "{text}");
        }
    }
}
