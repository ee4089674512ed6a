//! `sheaf archive get --to-tar`: what is archived as one tar.
use super::{GetArgs, check_one_of_contents, is_of_contents, tell_report};
use crate::place::{self, ArchivedName};
use crate::{local, tell};
use anyhow::{Context, Result};
use sheaf_archive::{ArchiveError, ContentError, FetchOptions, FetchReport, FetchTar};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, printable};
use sheaf_cli::session::end_at_signal;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::Path;

const WRITE_BYTES: usize = 1 << 20;

/// Writes the tar. A new file of this name is there when the tar is whole.
pub fn run(args: &GetArgs, to: &Path, global: &GlobalArgs) -> Result<Exit> {
    let named =
        args.names.iter().map(|name| Ok((ArchivedName::parse(name)?, is_of_contents(name))));
    let sources = named.collect::<Result<Vec<_>>>()?;
    check_one_of_contents(&sources)?;
    if to.as_os_str() == "-" {
        if io::stdout().is_terminal() {
            return Err(Stop::usage("a tar is nothing for a terminal: say --to-tar FILE").into());
        }
        if global.json {
            let text = "--json and the tar would both go to standard output: say --to-tar FILE";
            return Err(Stop::usage(text).into());
        }
        end_at_signal("interrupted: the tar is not whole");
        return match write(args, sources, WholeOutput(output::stdout())) {
            // Each command prints other errors of standard output at its end.
            Err(_) if output::is_over() && output::stdout_error().is_none() => {
                let text = "sheaf: standard output: who reads it has gone: the tar is not whole";
                output::tell(format_args!("{text}"));
                Ok(Exit::Partial)
            }
            Err(_) if output::is_over() => Ok(Exit::Partial),
            written => ended(&written?.0, global),
        };
    }
    local::change::refuse_in_store(to)?;
    let named = || printable(&to.display().to_string());
    end_at_signal("interrupted: the tar is not written");
    let is_special = std::fs::metadata(to).is_ok_and(|found| !found.is_file());
    if is_special {
        // A pipe or a tape drive.
        let out = File::options().write(true).open(to).with_context(named)?;
        let (report, _) = write(args, sources, out)?;
        return ended(&report, global);
    }
    let above = to.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    let part = tempfile::Builder::new()
        .prefix(".sheaf-tar-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .tempfile_in(above)
        .with_context(named)?;
    let (report, part) = write(args, sources, part)?;
    if report.fetched + report.directories == 0 && report.failed > 0 {
        // An older file of this name stays.
        output::tell(format_args!("sheaf: {}: is not written: nothing was got", named()));
        return Ok(Exit::Partial);
    }
    part.as_file().sync_all().with_context(named)?;
    part.persist(to).map_err(|error| error.error).with_context(named)?;
    ended(&report, global)
}

/// Standard output that has to take all: of a tar, a part is worth nothing.
struct WholeOutput(output::Stdout);

impl Write for WholeOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.0.write(bytes)?;
        if output::is_over() { Err(ErrorKind::BrokenPipe.into()) } else { Ok(written) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()?;
        if output::is_over() { Err(ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }
}

fn ended(report: &FetchReport, global: &GlobalArgs) -> Result<Exit> {
    tell_report(report, false, global)?;
    Ok(if report.failed > 0 { Exit::Partial } else { Exit::Success })
}

fn write<W: Write>(
    args: &GetArgs,
    sources: Vec<(ArchivedName, bool)>,
    out: W,
) -> Result<(FetchReport, W)> {
    let mut out = BufWriter::with_capacity(WRITE_BYTES, out);
    let limits = args.schedule.limited(FetchOptions::default().limits);
    let told = |event| tell(&event);
    let mut tar = FetchTar::new(&mut out, args.fetched()?, &limits, &told);
    let (mut names, mut failed) = (HashSet::new(), 0);
    for (source, is_of_contents) in sources {
        let archive = place::open_to_read(&source.store)?;
        for path in source.paths(&archive)? {
            let name = path.split().filter(|_| !is_of_contents).map(|(_, name)| name.to_vec());
            if name.is_some_and(|name| !names.insert(name)) {
                let text = format!("{path}: another of this name is in the tar: get it alone");
                output::tell(format_args!("sheaf: {}", printable(&text)));
                failed += 1;
                continue;
            }
            match tar.add(&archive, &path, is_of_contents) {
                Ok(()) => {}
                Err(ContentError::Archive(error @ ArchiveError::NotArchived { .. })) => {
                    output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
                    failed += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    let mut report = tar.finish()?;
    report.failed += failed;
    out.flush()?;
    let out = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok((report, out))
}
