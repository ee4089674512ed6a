//! `sheaf cp`, run.
use super::CpArgs;
use super::progress::Display;
use super::way::{CopyWay, not_its_own, own_sources, way};
use crate::cmd::per_path::{in_part, told_cuts};
use anyhow::{Result, anyhow};
use sheaf_cli::addresses::stop;
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Changes, Failure, Output, printable};
use sheaf_cli::session::{self, Ended, Intent, Opening};
use sheaf_core::{Errno, RangeSet};
use sheaf_file::PathError;
use sheaf_group::Unfinished;
use sheaf_records::{CommandError, Copied, Fetched, Plan, Sent};
use sheaf_session::Config;
use sheaf_session::Session;
use sheaf_tools::cp::{self, CopyOptions, Got, HostShare, Made, Put, ShareError, Totals};
use sheaf_tools::edit::Cut;
use sheaf_tools::entry::EntryKind;
use sheaf_tools::{Target, ToolError};
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// What can be done about failures of copies to hosts, where only what is in the way can be a
/// directory.
const PUT_HINTS: &[(Errno, &str)] = &[
    (Errno::ISDIR, "a directory is in the file's place"),
    (Errno::NOENT, "there is no such directory"),
    (Errno::BUSY, "it is a mount point, which cannot be replaced: --no-atomic writes into it"),
    (
        Errno::SAMEFILE,
        "this machine is the host, and the source is the file that would be replaced, or leads to it",
    ),
    (Errno::INTOSELF, "this machine is the host, and the destination is in the source"),
];
/// What can be done about sources that fail, on hosts or here.
const SOURCE_HINTS: &[(Errno, &str)] = &[(Errno::ISDIR, "-r copies directories")];

/// Copies, in the direction that the places say.
pub fn run(args: &CpArgs, global: &GlobalArgs) -> Result<Exit> {
    let opening = Opening::begin(global)?;
    let way = way(args, opening.config())?;
    opening.begin_to(match way {
        CopyWay::Put(..) | CopyWay::PutEach(..) => Intent::Change,
        CopyWay::Get(..) => Intent::Read,
    })?;
    let options = args.options();
    opening.run(async |session, config, output| {
        let mut display = Display::new(output, args.progress);
        let told = ToldCopy { session, config, output };
        let mut show = |progress| display.show(progress);
        match way {
            CopyWay::Put(sources, target) => {
                let put = cp::put(session.client(), sources, &target, &options, &mut show).await;
                display.end();
                told.put(&[target], put.map_err(stop)?, &options, Vec::new())
            }
            CopyWay::PutEach(sources, target) => {
                let (shares, lacking) = shares(&sources, &target, config, &options)?;
                let client = session.client();
                let each = cp::put_each(client, shares, &target.path, &options, &mut show).await;
                display.end();
                let each = each.map_err(stop)?;
                let mut failed = not_put(each.failed, &sources, config)?;
                failed.extend(lacking);
                told.put(&[target], each.put, &options, failed)
            }
            CopyWay::Get(targets, destination) => {
                let got =
                    cp::get(session.client(), &targets, &destination, &options, &mut show).await;
                display.end();
                told.got(&targets, got.map_err(nowhere)?, &options)
            }
        }
    })
}

/// What each host gets, and who gets nothing because a file of theirs is not here.
fn shares(
    sources: &[PathBuf],
    target: &Target,
    config: &Config,
    options: &CopyOptions,
) -> Result<(Vec<HostShare>, Vec<Failure>)> {
    let hosts = config.hosts()?;
    let (mut shares, mut lacking): (Vec<_>, BTreeMap<_, RangeSet>) = Default::default();
    for leaf in target.members.iter() {
        let host = hosts.names().get(leaf as usize).map_or("", String::as_str);
        let own = own_sources(sources, host);
        let missing = sources.iter().zip(&own).find_map(|(source, own)| {
            let here = "this source is on this machine";
            let (errno, why) = match std::fs::symlink_metadata(own) {
                Err(error) => (Errno::from(error), here),
                Ok(_) => (Errno::ACCES, not_its_own(source, own, options)?),
            };
            Some((source.display().to_string(), errno, why))
        });
        match missing {
            Some(missing) => lacking.entry(missing).or_default().insert(leaf),
            None => shares.push(HostShare { leaf, sources: own }),
        }
    }
    let failure = |((path, errno, why), leaves): ((String, Errno, &str), RangeSet)| {
        Failure::new(leaves, path, errno, Some(why.to_owned()))
    };
    Ok((shares, lacking.into_iter().map(failure).collect()))
}

/// Failures of hosts of their own, folded where they are the same with `%h` in place of the host.
fn not_put(
    failed: Vec<(u32, ShareError)>,
    sources: &[PathBuf],
    config: &Config,
) -> Result<Vec<Failure>> {
    let hosts = config.hosts()?;
    let mut alike: BTreeMap<_, RangeSet> = BTreeMap::new();
    for (leaf, error) in failed {
        let host = hosts.names().get(leaf as usize).map_or("", String::as_str);
        let of = |path: &Path| {
            // The source that it is of, or is in.
            let own = own_sources(sources, host);
            let mut both = sources.iter().zip(&own);
            let found = both.find_map(|(source, own)| Some((source, path.strip_prefix(own).ok()?)));
            found.map_or_else(
                || path.display().to_string(),
                |(source, rest)| {
                    let whole =
                        if rest.as_os_str().is_empty() { source } else { &source.join(rest) };
                    whole.display().to_string()
                },
            )
        };
        let (path, errno, why) = match error {
            ShareError::Source(error) => (of(&error.path), error.errno, String::new()),
            ShareError::Copy(ToolError::Local { path, errno }) => (path, errno, String::new()),
            ShareError::Copy(error) => {
                (of(&own_sources(sources, host)[0]), Errno::CANCELED, error.to_string())
            }
        };
        alike.entry((path, errno, why)).or_default().insert(leaf);
    }
    let failure = |((path, errno, why), leaves): ((String, Errno, String), RangeSet)| {
        let hint = SOURCE_HINTS.iter().find(|(known, _)| *known == errno).map(|(_, hint)| *hint);
        let why = match (why.is_empty(), hint) {
            (false, _) => why,
            (true, Some(hint)) => format!("this source is on this machine; {hint}"),
            (true, None) => "this source is on this machine".to_owned(),
        };
        Failure::new(leaves, path, errno, Some(why))
    };
    Ok(alike.into_iter().map(failure).collect())
}

/// The error of a copy to here: a directory that is missing above the destination is named.
fn nowhere(error: ToolError) -> anyhow::Error {
    let above = match &error {
        ToolError::Local { path, errno: Errno::NOENT } => Path::new(path).parent(),
        _ => None,
    };
    let is_missing = |above: &&Path| !above.as_os_str().is_empty() && !above.exists();
    match above.filter(is_missing) {
        Some(above) => anyhow!("{error}: make {} first", above.display()),
        None => stop(error),
    }
}

/// What is printed in the end.
struct ToldCopy<'a> {
    session: &'a Session,
    config: &'a Config,
    output: &'a Output,
}

impl ToldCopy<'_> {
    /// `lacking`: hosts for which there was nothing to copy.
    fn put(
        &self,
        targets: &[Target],
        mut put: Put,
        options: &CopyOptions,
        lacking: Vec<Failure>,
    ) -> Result<Exit> {
        let hosts = self.config.hosts()?;
        let mut out = BufWriter::new(sheaf_cli::output::stdout());
        for line in put.lines.sorted().iter().filter(|line| line.entry.kind == EntryKind::Line) {
            let path = String::from_utf8_lossy(line.path);
            let action = String::from_utf8_lossy(line.entry.text);
            self.plan(&mut out, &hosts.fold(line.leaves), &path, &action)?;
        }
        if self.output.json {
            for (totals, leaves) in &put.totals {
                let copied = Copied {
                    hosts: Some(hosts.fold(leaves)),
                    files: totals.files,
                    bytes: totals.bytes,
                    directories: Some(totals.dirs),
                    links: Some(totals.links),
                    failed: Some(totals.failed),
                };
                self.output.records.write(&mut out, &copied)?;
            }
            let sent = Sent { files: put.sent.files, bytes: put.sent.bytes };
            self.output.records.write(&mut out, &sent)?;
        }
        out.flush()?;
        drop(out);
        let failed_here = self.local(&put.errors, put.errors_more, SOURCE_HINTS)?;
        let made = |(totals, leaves): &(Totals, RangeSet)| Made {
            files: totals.files.saturating_add(totals.links).saturating_mul(leaves.len()),
            dirs: totals.dirs.saturating_mul(leaves.len()),
            leaves: leaves.clone(),
        };
        let changes = Changes {
            in_part: in_part(&put.cut),
            unfinished: put.unfinished,
            ..changes("to", put.totals.iter().map(made), options)
        };
        let mut extra = told_cuts(&mut put.outcome, &put.cut, written_in_place);
        extra.extend(lacking);
        let ended = Ended::new(targets, &put.outcome);
        let changes = Some(changes);
        self.finish(&Ended { extra: &extra, failed_here, hints: PUT_HINTS, changes, ..ended })
    }

    fn got(&self, targets: &[Target], mut got: Got, options: &CopyOptions) -> Result<Exit> {
        let hosts = self.config.hosts()?;
        let mut out = BufWriter::new(sheaf_cli::output::stdout());
        for planned in &got.planned {
            let dir = if options.exact_name { "" } else { "%h/" };
            let to = format!("copy to {}", printable(&format!("{dir}{}", planned.local.display())));
            self.plan(
                &mut out,
                &hosts.fold(&planned.leaves),
                &String::from_utf8_lossy(&planned.remote),
                &to,
            )?;
        }
        if self.output.json && !options.dry_run {
            let fetched = Fetched { files: got.fetched.files, bytes: got.fetched.bytes };
            self.output.records.write(&mut out, &fetched)?;
            let copied = Copied { files: got.files, bytes: got.bytes, ..Copied::default() };
            self.output.records.write(&mut out, &copied)?;
        }
        out.flush()?;
        drop(out);
        let failed_here = self.local(&got.errors, got.errors_more, &[])?;
        self.cut(&got.cut)?;
        let (changed, errors): (Vec<_>, Vec<_>) =
            got.outcome.errors.into_iter().partition(|error| error.errno == Errno::BADMSG);
        got.outcome.errors = errors;
        let told = |error| Failure::of(error, Some("it changed while it was copied".to_owned()));
        let extra: Vec<Failure> = changed.iter().map(told).collect();
        self.finish(&Ended {
            extra: &extra,
            failed_here,
            lost_here: got.lost_here,
            hints: SOURCE_HINTS,
            changes: Some(Changes {
                in_part: in_part(&got.cut),
                ..changes("from", std::iter::once(got.made), options)
            }),
            ..Ended::new(targets, &got.outcome)
        })
    }

    /// One line of a dry run.
    fn plan(&self, out: &mut dyn Write, hosts: &str, path: &str, action: &str) -> Result<()> {
        if self.output.json {
            let [hosts, path, action] = [hosts, path, action].map(str::to_owned);
            self.output.records.write(out, &Plan { hosts, path, action })?;
        } else {
            writeln!(out, "{hosts}:{}: {action}", printable(path))?;
        }
        Ok(())
    }

    /// Names files of this machine that failed; returns how many there are.
    fn local(&self, errors: &[PathError], more: u64, hints: &[(Errno, &str)]) -> Result<u64> {
        let mut out = sheaf_cli::output::stdout();
        for PathError { path, errno } in errors {
            let path = path.display().to_string();
            let text = match *errno {
                Errno::BADMSG => "it changed while it was copied".to_owned(),
                errno => match hints.iter().find(|(of, _)| *of == errno) {
                    Some((_, hint)) => format!("{errno}: {hint}"),
                    None => errno.to_string(),
                },
            };
            if self.output.json {
                let record = CommandError { error: text, path: Some(path), exit: None };
                self.output.records.write(&mut out, &record)?;
            } else if !self.output.quiet {
                sheaf_cli::output::tell(format_args!("sheaf: {}: {text}", printable(&path)));
            }
        }
        if more > 0 && !self.output.quiet && !self.output.json {
            sheaf_cli::output::tell(format_args!("sheaf: … and {more} more files of this machine"));
        }
        Ok(errors.len() as u64 + more)
    }

    /// Names files of this machine that are written in place and did not get all.
    fn cut(&self, cuts: &[Cut]) -> Result<()> {
        let mut out = sheaf_cli::output::stdout();
        for Cut { path, bytes, .. } in cuts {
            let text = written_in_place(*bytes);
            if self.output.json {
                let record = CommandError { error: text, path: Some(path.clone()), exit: None };
                self.output.records.write(&mut out, &record)?;
            } else if !self.output.quiet {
                sheaf_cli::output::tell(format_args!("sheaf: {}: {text}", printable(path)));
            }
        }
        Ok(())
    }

    fn finish(&self, ended: &Ended<'_>) -> Result<Exit> {
        session::finish(self.session, self.config, self.output, ended)
    }
}

fn written_in_place(bytes: u64) -> String {
    format!("{bytes} bytes were written in place")
}

/// What was copied, `to` hosts or `from` them: files, or where there were none, directories.
fn changes(way: &'static str, made: impl Iterator<Item = Made>, options: &CopyOptions) -> Changes {
    let made: Vec<Made> = made.collect();
    // Hosts have said these numbers.
    let sum = |numbers: Vec<u64>| numbers.into_iter().fold(0, u64::saturating_add);
    let (files, nouns) = match sum(made.iter().map(|made| made.files).collect()) {
        0 => (sum(made.iter().map(|made| made.dirs).collect()), ("directory", "directories")),
        files => (files, ("file", "files")),
    };
    let mut leaves = RangeSet::new();
    made.iter()
        .filter(|made| made.files > 0 || made.dirs > 0)
        .for_each(|made| leaves.union_with(&made.leaves));
    let (in_part, unfinished, is_dry) =
        ((0, RangeSet::new()), Unfinished::default(), options.dry_run);
    Changes { done: "copied", way, nouns, files, leaves, in_part, unfinished, is_dry }
}
