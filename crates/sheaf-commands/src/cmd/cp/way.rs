//! From where to where `sheaf cp` copies, and what it refuses before any host is asked.
use super::CpArgs;
use anyhow::Result;
use sheaf_cli::exit::Stop;
use sheaf_cli::stdio;
use sheaf_file::{Export, Pattern};
use sheaf_session::Config;
use sheaf_session::address::{Address, Purpose, Side, rooted};
use sheaf_tools::Target;
use sheaf_tools::cp::{CopyOptions, Source};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// From where to where.
pub(super) enum CopyWay {
    Put(Vec<Source>, Target),
    /// To each host its own: `%h` stands for it in the sources.
    PutEach(Vec<PathBuf>, Target),
    Get(Vec<Target>, PathBuf),
}

/// The way that the places say.
pub(super) fn way(args: &CpArgs, config: &Config) -> Result<CopyWay> {
    let Some((destination, sources)) =
        args.places.split_last().filter(|(_, sources)| !sources.is_empty())
    else {
        return Err(Stop::usage("say where to copy it: sheaf cp SRC... DEST").into());
    };
    let sources =
        sources.iter().map(|source| Address::parse_place(source)).collect::<Result<Vec<_>, _>>()?;
    let on_hosts = |place: &Side| matches!(place, Side::Hosts(_));
    match Address::parse_place(destination)? {
        Side::Hosts(address) if !sources.iter().any(on_hosts) => {
            let dashes = sources.iter().filter(|place| is_stdin(place)).count();
            if dashes > 1 || (dashes == 1 && sources.len() > 1) {
                return Err(Stop::usage("standard input is a source only by itself").into());
            }
            let address = Address { path: one_path(&address.path)?, ..address };
            let target = address.resolve(config, Purpose::Name("cp"))?;
            let here: Vec<PathBuf> =
                sources.iter().map(|place| place_here(place).clone()).collect();
            if here.iter().any(|path| names_host(path)) {
                check_each(&here, &target.path)?;
                return Ok(CopyWay::PutEach(here, target));
            }
            let source = |place: Side| match place {
                Side::Here(path) => source(Side::Here(own_sources(&[path], "").remove(0))),
                other => source(other),
            };
            Ok(CopyWay::Put(sources.into_iter().map(source).collect::<Result<_>>()?, target))
        }
        Side::Here(destination) if sources.iter().all(on_hosts) => {
            check_here(&destination)?;
            let mut targets = Vec::new();
            for place in &sources {
                if let Side::Hosts(address) = place {
                    targets.push(address.resolve(config, Purpose::Read)?);
                }
            }
            Ok(CopyWay::Get(targets, destination))
        }
        destination => {
            let from_hosts = sources.iter().any(on_hosts);
            Err(Stop::usage(one_way(&destination, from_hosts, config)).into())
        }
    }
}

/// What to write where neither only the sources nor only the destination are on hosts.
fn one_way(destination: &Side, from_hosts: bool, config: &Config) -> String {
    let rest = match destination {
        Side::Hosts(_) => "for host to host copy it here first".to_owned(),
        Side::Here(_) if from_hosts => "all sources have to be on the same side".to_owned(),
        Side::Here(_) if config.is_this_machine() => {
            "name hosts with -w HOSTS, and one side with HOSTSET:PATH; on this machine alone cp(1) copies"
                .to_owned()
        }
        Side::Here(path) => {
            let path = rooted(path);
            format!("write @all:{path} for every host, or HOSTSET:{path}")
        }
    };
    format!("cp copies from here to hosts, or from hosts to here: {rest}")
}

/// The destination on hosts, without the backslashes of what would else be a pattern.
fn one_path(path: &Path) -> Result<PathBuf, Stop> {
    let special = |byte: &u8| b"*?[]{}\\".contains(byte);
    let Some(text) = path.to_str().filter(|text| text.as_bytes().iter().any(special)) else {
        return Ok(path.to_owned());
    };
    Pattern::new(text).ok().and_then(|pattern| pattern.literal()).ok_or_else(|| {
        Stop::usage(format!(
            "{text}: cp has one destination: patterns are not expanded in it; \\ takes * ? [ {{ \
             as they are"
        ))
    })
}

/// Refuses destinations on this machine that would become directories of an odd name.
fn check_here(destination: &Path) -> Result<(), Stop> {
    let text = destination.as_os_str().as_bytes();
    if text == b"-" {
        return Err(Stop::usage(
            "write to standard output with: sheaf cat (./- is a directory of that name)",
        ));
    }
    if names_host(destination) {
        return Err(Stop::usage(format!(
            "{}: %h in DEST is not replaced: each host gets DEST/HOST/… by itself",
            destination.display()
        )));
    }
    Ok(())
}

/// Whether `%h` is in a path, in whose place the name of each host comes. `%%h` is that itself.
fn names_host(path: &Path) -> bool {
    let mut rest = path.as_os_str().as_bytes();
    while let Some(behind) = rest.get(1..) {
        match rest {
            [b'%', b'%', b'h', ..] => rest = &rest[3..],
            [b'%', b'h', ..] => return true,
            _ => rest = behind,
        }
    }
    false
}

/// What the sources are for a host of this name.
pub(super) fn own_sources(sources: &[PathBuf], host: &str) -> Vec<PathBuf> {
    let own = |path: &PathBuf| {
        let (mut rest, mut own) = (path.as_os_str().as_bytes(), Vec::new());
        while let Some((&first, behind)) = rest.split_first() {
            if let Some(behind) = rest.strip_prefix(b"%%h") {
                own.extend_from_slice(b"%h");
                rest = behind;
            } else if let Some(behind) = rest.strip_prefix(b"%h") {
                own.extend_from_slice(host.as_bytes());
                rest = behind;
            } else {
                own.push(first);
                rest = behind;
            }
        }
        PathBuf::from(OsString::from_vec(own))
    };
    sources.iter().map(own).collect()
}

/// Why an own source with `%h` is not sent to its host, which may have laid what is there. A link on the way leads
/// out of the directory that `%h` names, or is in; or it is no file or directory.
pub(super) fn not_its_own(
    source: &Path,
    own: &Path,
    options: &CopyOptions,
) -> Option<&'static str> {
    let named = source.components().position(|part| names_host(part.as_ref()))?;
    if !options.recursive
        && std::fs::metadata(own).is_ok_and(|there| !there.is_file() && !there.is_dir())
    {
        return Some("the host may have laid this pipe or device");
    }
    if options.dereference {
        return None;
    }
    let bytes = own.as_os_str().as_bytes();
    let is_entered = bytes.ends_with(b"/") || bytes.ends_with(b"/.");
    // The last name may be copied as the link that it is.
    let is_followed = is_entered || !(options.recursive || options.no_dereference);
    let leads_out = |from: usize, to: usize| {
        let mut base: PathBuf = own.components().take(from).collect();
        if base.as_os_str().is_empty() {
            base.push(".");
        }
        let rest: PathBuf = own.components().take(to).skip(from).collect();
        !rest.as_os_str().is_empty() && Export::open(&base).is_ok_and(|base| base.leads_out(&rest))
    };
    let all = own.components().count();
    let end = if is_followed { all } else { all - 1 };
    // The name itself in its directory, and what is beneath it in that.
    let is_out = leads_out(named, end.min(named + 1)) || leads_out(named + 1, end);
    is_out.then_some(LEADS_OUT)
}

/// Of a source with `%h`, whose links that host may have laid.
const LEADS_OUT: &str = "a link on this path leads out of that host's directory here, and the host may have \
                         laid it; -L follows it";

/// Refuses what would give a host what is others'.
fn check_each(sources: &[PathBuf], destination: &str) -> Result<(), Stop> {
    if names_host(Path::new(destination)) {
        return Err(Stop::usage(format!(
            "{destination}: %h in DEST is not replaced: it is one path, on every host"
        )));
    }
    let leaves = |path: &&PathBuf| {
        let mut parts = path.components().skip_while(|part| !names_host(part.as_ref()));
        parts.any(|part| part == Component::ParentDir)
    };
    match sources.iter().find(leaves) {
        Some(path) => Err(Stop::usage(format!(
            "{}: .. behind %h leads to what is of other hosts",
            path.display()
        ))),
        None => Ok(()),
    }
}

fn place_here(place: &Side) -> &PathBuf {
    match place {
        Side::Here(path) | Side::Hosts(Address { path, .. }) => path,
    }
}

fn is_stdin(place: &Side) -> bool {
    matches!(place, Side::Here(path) if path.as_os_str() == "-")
}

fn source(place: Side) -> Result<Source> {
    Ok(match place {
        Side::Here(path) if path.as_os_str() == "-" => Source::Open(stdio::input()?),
        Side::Here(path) | Side::Hosts(Address { path, .. }) => Source::Path(path),
    })
}
