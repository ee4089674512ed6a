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
use sheaf_cli::output::{self, Output, printable};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;

/// Forget versions of an archive
///
/// With --keep-… all are forgotten that none of these rules keeps; else those that
/// are named. N is a number or unlimited; where there are fewer periods, the oldest
/// version is kept, too. What is archived now stays in any case. The room that only
/// forgotten versions took comes back with repack and repair.
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
    #[arg(short = 'l', long, value_name = "N", value_parser = count)]
    pub keep_last: Option<u32>,

    /// Keep the newest version of each of the last N hours that have one
    #[arg(short = 'H', long, value_name = "N", value_parser = count)]
    pub keep_hourly: Option<u32>,

    /// Keep the newest version of each of the last N days that have one
    #[arg(short = 'd', long, value_name = "N", value_parser = count)]
    pub keep_daily: Option<u32>,

    /// Keep the newest version of each of the last N weeks that have one
    #[arg(short = 'w', long, value_name = "N", value_parser = count)]
    pub keep_weekly: Option<u32>,

    /// Keep the newest version of each of the last N months that have one
    #[arg(short = 'm', long, value_name = "N", value_parser = count)]
    pub keep_monthly: Option<u32>,

    /// Keep the newest version of each of the last N years that have one
    #[arg(short = 'y', long, value_name = "N", value_parser = count)]
    pub keep_yearly: Option<u32>,

    /// Keep versions that are at most so much older than the newest: 2y5m7d3h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub keep_within: Option<Span>,

    /// Keep versions of this name; may be repeated
    #[arg(long, visible_alias = "keep-name", value_name = "NAME")]
    pub keep_tag: Vec<String>,
}

/// In which period a time is, of the version at this place.
type Period = fn(&Zoned, usize) -> (i64, i64);

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
    let mut chosen: Vec<&FoundVersion> = if args.versions.is_empty() {
        let kept = args.keep.kept(&all, &zone, Timestamp::now());
        if kept.is_empty() && !all.is_empty() && args.keep.keep_last != Some(0) {
            let all = counted(all.len() as u64, "version", "versions");
            let text = format!("this would keep none of {all}: say --keep-last 0 to forget all");
            return Err(Stop::usage(text).into());
        }
        all.iter().enumerate().filter(|(at, _)| !kept.contains(at)).map(|(_, one)| one).collect()
    } else {
        let mut named = Vec::new();
        for text in &args.versions {
            named.push(find_named(&all, text, &zone)?);
        }
        named
    };
    let mut seen = HashSet::new();
    chosen.retain(|found| seen.insert(found.id));
    let (mut gone, mut failed, mut ended) = (HashSet::new(), Vec::new(), Ok(()));
    if !args.dry_run {
        let ids: Vec<_> = chosen.iter().map(|found| found.id).collect();
        ended = forget_versions(&archive, &ids, &mut |id, done| match done {
            Ok(()) => _ = gone.insert(id),
            Err(error) => failed.push(error),
        });
        chosen.retain(|found| gone.contains(&found.id));
    }
    let mut out = output::stdout();
    for found in &chosen {
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
            counted(chosen.len() as u64, "version", "versions"),
            all.len() - chosen.len(),
        ));
    }
    match ended {
        // What was forgotten stays so: the same command does the rest.
        Err(error) if !failed.is_empty() || !chosen.is_empty() => failed.push(error),
        ended => ended?,
    }
    for error in &failed {
        output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
    }
    Ok(if failed.is_empty() { Exit::Success } else { Exit::Partial })
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

    /// The places of the versions that are kept, of all, which are in the order of the log: clocks may be
    /// wrong. One that is damaged is kept.
    fn kept(&self, all: &[FoundVersion], zone: &TimeZone, now: Timestamp) -> HashSet<usize> {
        let mut kept: HashSet<usize> = HashSet::new();
        let mut known: Vec<(usize, Zoned)> = Vec::new();
        for (at, found) in all.iter().enumerate().rev() {
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
        let periods: [Period; 6] = [
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
            let (mut seen, mut left) = (HashSet::new(), number.unwrap_or(0));
            for (at, made) in known.iter().take_while(|_| number.is_some()) {
                // With periods to spare the oldest is kept, too, as far back as it is.
                let is_oldest = known.last().is_some_and(|(oldest, _)| oldest == at);
                let is_new = seen.insert(period(made, *at));
                if left > 0 && (is_new || is_oldest) {
                    kept.insert(*at);
                    left -= 1;
                }
            }
        }
        // One of the future has a wrong time, and would have all others be old.
        let newest = known.iter().find(|(_, made)| made.timestamp() <= now).or(known.first());
        if let (Some(within), Some((_, newest))) = (&self.keep_within, newest) {
            let since = newest.checked_sub(*within).map_or(Timestamp::MIN, |at| at.timestamp());
            kept.extend(
                known.iter().filter(|(_, made)| made.timestamp() >= since).map(|(at, _)| at),
            );
        }
        kept
    }
}

/// How many are kept.
fn count(text: &str) -> Result<u32, String> {
    match text {
        "unlimited" => Ok(u32::MAX),
        _ => text.parse().map_err(|_| "say a number, or unlimited".to_owned()),
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
    use std::collections::BTreeMap;

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
            let kept = keep.kept(&all(), &TimeZone::UTC, Timestamp::MAX);
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
        assert_eq!(kept(KeepArgs { keep_weekly: Some(2), ..none() }), [4, 5]);
        assert_eq!(kept(KeepArgs { keep_monthly: Some(2), ..none() }), [4, 5]);
        assert_eq!(kept(KeepArgs { keep_last: Some(u32::MAX), ..none() }), [1, 2, 3, 4, 5]);
        assert_eq!(kept(KeepArgs { keep_yearly: Some(9), ..none() }), [1, 5]);
        assert_eq!(kept(KeepArgs { keep_tag: vec!["release".into()], ..none() }), [1]);
        let within = Some(duration("1m").unwrap());
        assert_eq!(kept(KeepArgs { keep_within: within, ..none() }), [2, 3, 4, 5]);
        let both = KeepArgs { keep_last: Some(1), keep_tag: vec!["release".into()], ..none() };
        assert_eq!(kept(both), [1, 5]);
    }

    /// The rules as the documentation of restic says them: for each of the last n periods that have one the
    /// newest, and the oldest of all where there are not so many.
    fn as_documented(keep: &KeepArgs, all: &[FoundVersion]) -> HashSet<usize> {
        let time = |at: usize| time_of_version(all[at].version.as_ref().unwrap()).unwrap();
        let formats = ["%s", "%F %H", "%F", "%G %V", "%Y %m", "%Y"];
        let mut kept = HashSet::new();
        for (place, (number, format)) in keep.numbers().into_iter().zip(formats).enumerate() {
            let Some(number) = number else { continue };
            let mut newest: BTreeMap<(String, usize), usize> = BTreeMap::new();
            for at in 0..all.len() {
                let period = time(at).to_zoned(TimeZone::UTC).strftime(format).to_string();
                // Of the last n versions each is one, also of one second.
                newest.insert((period, if place == 0 { at } else { 0 }), at);
            }
            let mut newest: Vec<usize> = newest.into_values().collect();
            newest.sort_unstable();
            if newest.len() < number as usize && !all.is_empty() {
                kept.insert(0);
            }
            kept.extend(newest.into_iter().rev().take(number as usize));
        }
        for (at, found) in all.iter().enumerate() {
            let name = found.version.as_ref().unwrap().name.clone();
            let is_tagged = name.is_some_and(|name| keep.keep_tag.contains(&name));
            let is_within = keep.keep_within.is_some_and(|within| {
                let last = time(all.len() - 1).to_zoned(TimeZone::UTC);
                time(at) >= (&last - within).timestamp()
            });
            if is_tagged || is_within {
                kept.insert(at);
            }
        }
        kept
    }

    #[test]
    fn rules_are_those_that_restic_documents() {
        let mut state = 7_u64;
        let mut random = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (state >> 33) % end
        };
        for round in 0..3000 {
            let mut seconds = 1_700_000_000;
            let step = [1, 3000, 90_000, 2_000_000, 40_000_000][random(5) as usize];
            let all: Vec<FoundVersion> = (0..random(40))
                .map(|number| {
                    seconds += random(step) as i64;
                    let name = ["a", "b", "c"].get(random(12) as usize);
                    let name = name.map(|name| (*name).to_owned());
                    let host = "n7".to_owned();
                    let version = Version { seconds, name, host, ..Version::default() };
                    FoundVersion { id: PackId([number as u8; 16]), number, version: Ok(version) }
                })
                .collect();
            let mut some = || (random(3) == 0).then(|| random(9) as u32);
            let mut keep = KeepArgs {
                keep_last: some(),
                keep_hourly: some(),
                keep_daily: some(),
                keep_weekly: some(),
                keep_monthly: some(),
                keep_yearly: some(),
                ..KeepArgs::default()
            };
            if random(4) == 0 {
                let text = format!("{}m{}d{}h", random(4), random(40), random(30));
                keep.keep_within = Some(duration(&text).unwrap());
            }
            if random(4) == 0 {
                keep.keep_tag = vec!["a".to_owned(), "none".to_owned()];
            }
            let (is, said) =
                (keep.kept(&all, &TimeZone::UTC, Timestamp::MAX), as_documented(&keep, &all));
            assert_eq!(is, said, "{round}: {keep:?}");
        }
    }

    /// What restic 0.14.0 kept of 45 snapshots by random rules, in UTC: the times and tags of all, the oldest
    /// first; then in each line the rules, and the places of those that stay.
    #[test]
    fn rules_keep_what_restic_keeps() {
        let mut lines = include_str!("forget/restic.txt").lines();
        let all: Vec<FoundVersion> = lines
            .next()
            .unwrap()
            .split(' ')
            .enumerate()
            .map(|(at, one)| {
                let (seconds, tag) = one.split_once(':').unwrap();
                let (seconds, host) = (seconds.parse().unwrap(), "n7".to_owned());
                let name = (tag != "-").then(|| tag.to_owned());
                let version = Version { seconds, name, host, ..Version::default() };
                FoundVersion { id: PackId([at as u8; 16]), number: 1, version: Ok(version) }
            })
            .collect();
        // Some of them are of a later time.
        let now = "2026-11-28T21:29:00Z".parse().unwrap();
        let mut count = 0;
        for line in lines {
            let (rules, places) = line.split_once(" | ").unwrap();
            let rules: Vec<_> =
                rules.split(' ').map(|word| Some(word).filter(|word| *word != "-")).collect();
            let number = |at: usize| rules[at].map(|word| word.parse().unwrap());
            let keep = KeepArgs {
                keep_last: number(0),
                keep_hourly: number(1),
                keep_daily: number(2),
                keep_weekly: number(3),
                keep_monthly: number(4),
                keep_yearly: number(5),
                keep_tag: rules[6].iter().map(|tag| (*tag).to_owned()).collect(),
                keep_within: rules[7].map(|text| duration(text).unwrap()),
            };
            let mut kept = Vec::from_iter(keep.kept(&all, &TimeZone::UTC, now));
            kept.sort_unstable();
            let places: Vec<usize> =
                places.split(' ').map(|place| place.parse().unwrap()).collect();
            // Later versions of restic keep the oldest where there are fewer periods.
            if !places.contains(&0) && kept[0] == 0 {
                kept.remove(0);
            }
            assert_eq!(kept, places, "{keep:?}");
            count += 1;
        }
        assert!(count > 50);
    }

    /// A clock that was years ahead for a while costs the versions that were made since nothing.
    #[test]
    fn wrong_clocks_cost_no_version_that_is_newer() {
        let times = ["2026-01-01", "2099-01-01", "2026-01-02", "2026-01-03"];
        let made =
            |(at, day): (usize, &&str)| version(at as u64, &format!("{day}T10:00:00Z"), None);
        let all: Vec<_> = times.iter().enumerate().map(made).collect();
        let now = "2026-01-04T00:00:00Z".parse().unwrap();
        let kept = |keep: KeepArgs| {
            let mut kept = Vec::from_iter(keep.kept(&all, &TimeZone::UTC, now));
            kept.sort_unstable();
            kept
        };
        assert_eq!(kept(KeepArgs { keep_last: Some(2), ..KeepArgs::default() }), [2, 3]);
        assert_eq!(kept(KeepArgs { keep_daily: Some(2), ..KeepArgs::default() }), [2, 3]);
        let within = Some(duration("1d").unwrap());
        assert_eq!(kept(KeepArgs { keep_within: within, ..KeepArgs::default() }), [1, 2, 3]);
        // Also where it is the newest that has the wrong time.
        let mut all = all;
        all.swap(1, 3);
        let within = Some(duration("12h").unwrap());
        let mut kept = Vec::from_iter(
            KeepArgs { keep_within: within, ..KeepArgs::default() }.kept(&all, &TimeZone::UTC, now),
        );
        kept.sort_unstable();
        assert_eq!(kept, [1, 2, 3]);
        let damaged = FoundVersion {
            id: PackId([9; 16]),
            number: 9,
            version: Err(sheaf_archive::VersionError::Name),
        };
        let keep = KeepArgs { keep_last: Some(0), ..KeepArgs::default() };
        assert_eq!(Vec::from_iter(keep.kept(&[damaged], &TimeZone::UTC, Timestamp::MAX)), [0]);
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
            ("2026-01-05T10:00Z", Some(2)),
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
