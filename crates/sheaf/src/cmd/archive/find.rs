//! `sheaf archive find`: archived files that pass tests.
use super::hosts;
use super::local;
use super::ls::record_of;
use super::place::{self, NamedPlace};
use crate::cli::GlobalArgs;
use crate::exit::{Exit, Stop};
use crate::output::json::put_text;
use crate::output::{self, Output, printable};
use anyhow::Result;
use clap::Args;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, ArchiveWalk, ArchivedFile, FindExpression, FindFile,
    FindNames,
};
use sheaf_core::files::Timestamp;
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// Find archived files, or files of this machine or of hosts
///
/// Tests are those of find: -name -iname -path -ipath PATTERN, -type LETTERS,
/// -size N[cwbkMG], -mtime DAYS, -mmin MINUTES, -newer FILE, -newermt TIME,
/// -uid N, -gid N, -user NAME, -group NAME, -perm MODE, -empty, -true, -false,
/// -maxdepth N, -mindepth N, -print, -print0; `!` before a test, -a and -o between
/// two, and ( ) around some.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(override_usage = "sheaf archive find [OPTIONS] <STORE::PATH|PATH>... [TEST]...")]
#[command(after_help = "\
Options stand before the first name.

Examples:
  sheaf archive find /backup::/home -name '*.tex' -mtime -7
  sheaf archive find /backup::/ -type f -size +1G -o -empty
  sheaf archive find /home -user ada -mtime +365")]
pub struct FindArgs {
    /// Take each name for a path of this machine, even with `:` or `::` in it
    #[arg(long)]
    pub local: bool,

    /// Archived files and directories, or paths of this machine, and the tests behind
    /// them
    #[arg(
        value_name = "STORE::PATH|PATH",
        required = true,
        num_args = 1..,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<OsString>,
}

/// Finds the files.
pub fn run(args: &FindArgs, global: &GlobalArgs) -> Result<Exit> {
    let is_test = |word: &OsString| {
        let word = word.as_bytes();
        word.starts_with(b"-") || matches!(word, b"!" | b"(")
    };
    let names = args.words.iter().position(is_test).unwrap_or(args.words.len());
    let (names, tests) = args.words.split_at(names);
    if names.is_empty() {
        return Err(
            Stop::usage("say where to find: STORE::PATH or PATH before the first test").into()
        );
    }
    let tests: Option<Vec<_>> = tests.iter().map(|word| word.to_str().map(String::from)).collect();
    let tests = tests.ok_or_else(|| Stop::usage("a test is no text"))?;
    if hosts::are_on_hosts(names, args.local)? {
        return hosts::ask::find(names, tests, global);
    }
    let said = names;
    let names = NamedPlace::parse_all(said, args.local)?;
    let expression = FindExpression::new(&tests, &SystemNames);
    let expression = expression.map_err(|error| Stop::usage(printable(&error.to_string())))?;
    let now = now();
    let mut finder = Finder {
        expression: Arc::new(expression),
        now,
        out: output::stdout_in_blocks(),
        output: Output::new(global),
        has_failed: false,
        name: Vec::new(),
        ends: Vec::new(),
    };
    for (said, name) in said.iter().zip(names) {
        let name = match name {
            NamedPlace::Archived(name) => name,
            NamedPlace::Local(path) => {
                finder.local(&path)?;
                continue;
            }
        };
        let archive = place::open_to_read(&name.store)?;
        for path in name.paths(&archive)? {
            finder.find(&archive, store_of(said), &path)?;
        }
    }
    finder.out.flush()?;
    Ok(if finder.has_failed { Exit::Partial } else { Exit::Success })
}

/// The store of an archived name with the `::` behind it, as it was written.
pub fn store_of(said: &OsStr) -> &[u8] {
    let said = said.as_bytes();
    let end = said.windows(2).position(|two| two == b"::").map_or(0, |at| at + 2);
    &said[..end]
}

/// The time that ages are reckoned from.
pub fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: now.as_secs().cast_signed(), nanoseconds: now.subsec_nanos() }
}

impl FindArgs {
    /// Whether the files are on hosts.
    pub fn is_on_hosts(&self) -> bool {
        !self.local && self.words.first().is_some_and(|word| hosts::is_on_hosts(word))
    }
}

struct Finder {
    expression: Arc<FindExpression>,
    now: Timestamp,
    out: BufWriter<output::Stdout>,
    output: Output,
    has_failed: bool,
    /// Room for a name.
    name: Vec<u8>,
    /// Room for what ends it.
    ends: Vec<u8>,
}

impl Finder {
    fn local(&mut self, start: &Path) -> Result<()> {
        let (expression, output) = (self.expression.clone(), self.output);
        let find = local::find::LocalFind { expression, now: self.now, output, host: None };
        let is_whole = local::print(find, start, &mut self.out)?;
        self.has_failed |= !is_whole;
        Ok(())
    }

    fn find(&mut self, archive: &Archive, store: &[u8], start: &ArchivePath) -> Result<()> {
        // Who does not go to the end of it reads nothing ahead.
        let found = if self.expression.depth_max == usize::MAX {
            archive.walk_ahead(start, |walk| self.walk(archive, store, start, walk))
        } else {
            archive.walk(start).map(|mut walk| self.walk(archive, store, start, &mut walk))
        };
        found.unwrap_or_else(|error| self.failed(error))
    }

    fn walk(
        &mut self,
        archive: &Archive,
        store: &[u8],
        start: &ArchivePath,
        walk: &mut ArchiveWalk<'_>,
    ) -> Result<()> {
        while let Some(found) = walk.next() {
            let (path, file) = match found {
                Ok(found) => found,
                Err(error) => {
                    self.failed(error)?;
                    continue;
                }
            };
            let depth = path.depth() - start.depth();
            if depth >= self.expression.depth_max && matches!(file, ArchivedFile::Directory(_)) {
                walk.skip_directory();
            }
            self.file(archive, store, (&path, &file), depth)?;
        }
        Ok(())
    }

    /// Tests a file, and tells of it.
    fn file(
        &mut self,
        archive: &Archive,
        store: &[u8],
        (path, file): (&ArchivePath, &ArchivedFile),
        depth: usize,
    ) -> Result<()> {
        self.name.clear();
        path.put(&mut self.name);
        self.ends.clear();
        let found = FindFile::archived(Path::new(OsStr::from_bytes(&self.name)), depth, file);
        let mut is_empty =
            || -> Result<bool, ArchiveError> { Ok(archive.list(path)?.next().is_none()) };
        let tested = self.expression.test(&found, self.now, &mut is_empty, &mut self.ends);
        for end in &self.ends {
            if self.output.json {
                let mut record = record_of(path, file);
                if let Some(record) = record.as_object_mut() {
                    put_text(record, "store", store.strip_suffix(b"::").unwrap_or(store));
                }
                self.output.records.write(&mut self.out, record)?;
                continue;
            }
            for text in [store, &self.name] {
                if self.output.stdout_is_terminal && *end == b'\n' {
                    write!(self.out, "{}", printable(&String::from_utf8_lossy(text)))?;
                } else {
                    self.out.write_all(text)?;
                }
            }
            self.out.write_all(&[*end])?;
        }
        tested.or_else(|error| self.failed(error))
    }

    /// Tells what went wrong, and goes on; what concerns the catalog is the end.
    fn failed(&mut self, error: ArchiveError) -> Result<()> {
        if matches!(error, ArchiveError::Catalog(_)) {
            return Err(error.into());
        }
        self.has_failed = true;
        output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
        Ok(())
    }
}

/// Owners and times as this machine knows them.
pub struct SystemNames;

impl FindNames for SystemNames {
    fn uid(&self, name: &str) -> Option<u32> {
        sheaf_file::Owner::resolve(name).ok()?.uid
    }

    fn gid(&self, name: &str) -> Option<u32> {
        sheaf_file::Owner::resolve(&format!(":{name}")).ok()?.gid
    }

    fn time(&self, text: &str) -> Option<Timestamp> {
        let text = text.trim();
        if let Ok(time) = text.parse::<jiff::Timestamp>() {
            return timestamp(time);
        }
        let local: jiff::civil::DateTime = text.parse().ok().or_else(|| {
            let date: jiff::civil::Date = text.parse().ok()?;
            Some(date.at(0, 0, 0, 0))
        })?;
        timestamp(local.to_zoned(jiff::tz::TimeZone::system()).ok()?.timestamp())
    }

    fn mtime(&self, path: &str) -> Option<Timestamp> {
        let found = std::fs::metadata(path).ok()?;
        let (seconds, nanoseconds) = (
            std::os::unix::fs::MetadataExt::mtime(&found),
            std::os::unix::fs::MetadataExt::mtime_nsec(&found),
        );
        Some(Timestamp { seconds, nanoseconds: u32::try_from(nanoseconds).ok()? })
    }
}

fn timestamp(time: jiff::Timestamp) -> Option<Timestamp> {
    // Before 1970 both parts count down.
    let nanoseconds = time.as_nanosecond();
    let seconds = i64::try_from(nanoseconds.div_euclid(1_000_000_000)).ok()?;
    let nanoseconds = u32::try_from(nanoseconds.rem_euclid(1_000_000_000)).ok()?;
    Some(Timestamp { seconds, nanoseconds })
}
