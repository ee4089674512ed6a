//! `sheaf archive get` to hosts.
use super::drive;
use super::serve::FETCH;
use crate::get::{GetArgs, is_of_contents, tell_report};
use crate::place::{self, ArchivedName};
use crate::progress::tell_hosts_stats;
use anyhow::Result;
use sheaf_archive::{Archive, ArchivePath, FetchOptions, FetchReport, FetchRoot, FetchRootOptions};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, printable};
use sheaf_cli::session::Opening;
use sheaf_core::RangeSet;
use sheaf_session::address::Purpose;
use sheaf_session::{Config, Session};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::Instant;

/// A source, opened.
struct GetSource<'a> {
    name: &'a OsStr,
    archive: Arc<Archive>,
    options: FetchRootOptions,
}

/// Gets the files.
pub fn run(
    args: &GetArgs,
    sources: &[OsString],
    to: &OsString,
    global: &GlobalArgs,
) -> Result<Exit> {
    let mut opening = Opening::to_change(global)?;
    opening.lift_deadline();
    let purpose = Purpose::Change("archive get");
    let (members, to) = super::places(std::slice::from_ref(to), opening.config(), purpose)?;
    let to = super::one_path(to.first().map_or("/", String::as_str))?;
    let names = args.fetched()?;
    // Archives are let go outside of the runtime, which a catalog in a database may not be within.
    let mut opened = Vec::new();
    for name in sources {
        let store = ArchivedName::parse(name)?.store;
        opened.push(GetSource {
            name,
            archive: Arc::new(place::open_to_read(&store)?),
            options: FetchRootOptions {
                store: place::name_for_hosts(&store)?,
                to: to.clone(),
                overwrite: args.overwrite,
                contents: is_of_contents(name),
                names: names.clone(),
                limits: args.schedule.limited(FetchOptions::default().limits),
                numbers: args.schedule.stats,
            },
        });
    }
    opening.run(async |session, config, _| {
        let (mut all, mut done, mut missing) = (FetchReport::default(), 0, 0);
        for source in &opened {
            let paths = paths(source, session, &members)?;
            missing += paths.iter().filter(|paths| paths.is_empty()).count() as u64;
            for round in 0..paths.iter().map(Vec::len).max().unwrap_or(0) {
                let of_hosts = paths.iter().map(|paths| paths.get(round).cloned()).collect();
                let (report, answered) =
                    get(source, of_hosts, session, config, &members, global).await?;
                all += report;
                done += answered;
            }
        }
        all.failed = all.failed.saturating_add(missing);
        tell_report(&all, false, global)?;
        Ok(match () {
            () if session.client().is_interrupted() => Exit::Interrupted,
            () if done == 0 && all.directories.max(all.fetched).max(all.unchanged) > 0 => {
                Exit::Partial
            }
            () if done == 0 && missing == 0 => Exit::Unreachable,
            () if all.failed > 0 => Exit::Partial,
            () => Exit::Success,
        })
    })
}

/// What each host gets of a source.
fn paths(
    source: &GetSource<'_>,
    session: &Session,
    members: &RangeSet,
) -> Result<Vec<Vec<ArchivePath>>> {
    let bytes = source.name.as_bytes();
    if !bytes.windows(2).any(|two| two == b"%h") {
        let paths = ArchivedName::parse(source.name)?.paths(&source.archive)?;
        return Ok(vec![paths; members.len() as usize]);
    }
    let mut all = Vec::new();
    for leaf in members.iter() {
        let host = session.client().host(leaf).unwrap_or_default();
        let name = own_name(bytes, host.as_bytes());
        let found = ArchivedName::parse(&name)?.paths(&source.archive);
        all.push(match found {
            Err(error) if matches!(error.downcast_ref(), Some(Stop::Unmatched(_))) => {
                output::tell(format_args!("sheaf: {}", printable(&format!("{host}: {error}"))));
                Vec::new()
            }
            found => found?,
        });
    }
    Ok(all)
}

/// The host's name for each `%h`.
fn own_name(mut name: &[u8], host: &[u8]) -> OsString {
    let mut own = Vec::new();
    while let Some((&first, rest)) = name.split_first() {
        if let Some(rest) = name.strip_prefix(b"%h") {
            own.extend_from_slice(host);
            name = rest;
        } else {
            own.push(first);
            name = rest;
        }
    }
    OsString::from_vec(own)
}

/// Has hosts get one path each; what they did, and how many have answered to the end.
async fn get(
    source: &GetSource<'_>,
    paths: Vec<Option<ArchivePath>>,
    session: &Session,
    config: &Config,
    members: &RangeSet,
    global: &GlobalArgs,
) -> Result<(FetchReport, usize)> {
    let (archive, options) = (source.archive.clone(), source.options.clone());
    let (begun, has_numbers) = (Instant::now(), options.numbers);
    let root = move || FetchRoot::new(archive, options, paths);
    let root = Arc::new(tokio::task::spawn_blocking(root).await??);
    let driven = drive::drive(session, config, members, FETCH, &root, global).await?;
    if has_numbers {
        let of_hosts = super::of_leaves(members, root.numbers());
        tell_hosts_stats(&of_hosts, session.client(), begun.elapsed(), global)?;
    }
    Ok((root.report(), driven.done))
}
