//! `sheaf archive find`: archived files that pass tests.
mod words;

pub use words::{SystemNames, SystemWords};

use super::hosts;
use super::local::{self, find::LocalFind};
use super::ls::record_of;
use super::place::{self, ArchivedName, NamedPlace};
use super::version::AtArgs;
use anyhow::Result;
use clap::Args;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, ArchiveWalk, ArchivedFile, FindAsks, FindError,
    FindExpression, FindFile, FindOutcome, FindPlace, FindSettings, MemberKind,
};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_core::files::Timestamp;
use sheaf_records::text;
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// Find archived files, or files of this machine or of hosts
///
/// Tests are those of find: -name -iname -path -ipath PATTERN, -regex -iregex
/// EXPRESSION, -type LETTERS, -size N[cwbkMG], -mtime DAYS, -mmin MINUTES,
/// -newer FILE, -newermt TIME, -uid N, -gid N, -user NAME, -group NAME, -perm MODE
/// (as 644, -u+x or /u=w,g=w), -empty, -true, -false; of this machine and of hosts
/// alone -ctime -atime DAYS, -cmin -amin MINUTES, -newerXY with a or c, -links N,
/// -inum N. `!` before a test, -a, -o and , between two, and ( ) around some.
///
/// What is done with a file: -print, -print0, -printf FORMAT (%p %P %f %h %H %s %m
/// %M %u %U %g %G %y %d %l %t %Tk; where they are known %Y %a %c %Ak %Ck %i %n %b
/// %k %D), -prune, -quit; of this machine and hosts -ls, of this machine -delete.
/// Nothing is run: -print0 | xargs -0 does.
///
/// How to search: -maxdepth N, -mindepth N, -depth, -xdev, -regextype TYPE before
/// -regex. Expressions are POSIX's extended ones (posix-extended), unless
/// posix-basic is said; those of emacs, which are find's own, are not known.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(override_usage = "sheaf archive find [OPTIONS] <STORE::PATH|PATH>... [TEST]...")]
#[command(after_help = "\
Options stand before the first name.

Examples:
  sheaf archive find /backup::/home -name '*.tex' -mtime -7
  sheaf archive find /backup::/ -type f -size +1G -o -empty
  sheaf archive find /home -user ada -mtime +365
  sheaf archive find /srv -name .git -prune -o -type f -printf '%s %p\\n'")]
pub struct FindArgs {
    #[command(flatten)]
    pub version: AtArgs,

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
    let output = Output::new(global);
    let expression = expression(&tests, &names, output)?;
    let mut finder = Finder {
        expression: Arc::new(expression),
        is_local: args.local,
        out: output::stdout_in_blocks(),
        output,
        has_failed: false,
        name: Vec::new(),
        outcome: FindOutcome::default(),
    };
    for (said, name) in said.iter().zip(names) {
        let has_quit = match name {
            NamedPlace::Archived(name) => finder.archived(said, &name)?,
            NamedPlace::Local(path) => finder.local(&path)?,
        };
        if has_quit {
            break;
        }
    }
    finder.out.flush()?;
    Ok(if finder.has_failed { Exit::Partial } else { Exit::Success })
}

/// Reads the tests, and says what of them cannot be done where the names are.
fn expression(tests: &[String], names: &[NamedPlace], output: Output) -> Result<FindExpression> {
    let wrong = |error: FindError| Stop::usage(printable(&error.to_string()));
    let words = Arc::new(SystemWords::new(output.stdout_is_terminal));
    let settings = FindSettings { names: &SystemNames, words, now: now() };
    let expression = FindExpression::new(tests, &settings).map_err(wrong)?;
    if names.iter().any(|name| matches!(name, NamedPlace::Archived(_))) {
        expression.check_archived().map_err(wrong)?;
    }
    check_records(&expression, output.json)?;
    Ok(expression)
}

/// What is formatted is no record.
pub fn check_records(expression: &FindExpression, json: bool) -> Result<()> {
    match expression.formats() {
        Some(word) if json => {
            Err(Stop::usage(format!("{word}: prints no records: not with --json")).into())
        }
        _ => Ok(()),
    }
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
    /// Paths are of this machine where that is said.
    is_local: bool,
    out: BufWriter<output::Stdout>,
    output: Output,
    has_failed: bool,
    /// Room for a name.
    name: Vec<u8>,
    /// Room for what comes of it.
    outcome: FindOutcome,
}

/// Where in an archive a search began.
struct SearchedPlace<'a> {
    archive: &'a Archive,
    /// The store as it was written, with the `::` behind it.
    store: &'a [u8],
    /// The store itself.
    opened: &'a [u8],
    start: &'a ArchivePath,
    /// As it is written.
    written: Vec<u8>,
}

impl Finder {
    /// Finds files of this machine. Says whether there is to be nothing more.
    fn local(&mut self, start: &Path) -> Result<bool> {
        if self.expression.deletes() && !self.is_local && local::change::is_store(start) {
            self.has_failed = true;
            local::change::failed(start.as_os_str().as_bytes(), &local::change::STORE);
            return Ok(false);
        }
        let told = start.as_os_str().as_bytes();
        let find = LocalFind::new(self.expression.clone(), self.output, None, told);
        let found = local::find::print(find, start, &mut self.out)?;
        self.has_failed |= !found.is_whole;
        Ok(found.has_quit)
    }

    /// Finds archived files. Says whether there is to be nothing more.
    fn archived(&mut self, said: &OsStr, name: &ArchivedName) -> Result<bool> {
        let archive = place::open_to_read(&name.store)?;
        for start in name.paths(&archive)? {
            let (store, written) = (store_of(said), start.as_bytes());
            let place = SearchedPlace {
                archive: &archive,
                store,
                opened: name.store.as_os_str().as_bytes(),
                start: &start,
                written,
            };
            self.find(&place)?;
            if self.outcome.quits {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn find(&mut self, place: &SearchedPlace<'_>) -> Result<()> {
        let SearchedPlace { archive, start, .. } = place;
        self.outcome.clear();
        // Who does not go to the end of it reads nothing ahead.
        let found = if self.expression.takes_all() {
            archive.walk_ahead(start, |walk| self.walk(place, walk))
        } else {
            archive.walk(start).map(|mut walk| self.walk(place, &mut walk))
        };
        found.unwrap_or_else(|error| self.failed(error))
    }

    fn walk(&mut self, place: &SearchedPlace<'_>, walk: &mut ArchiveWalk<'_>) -> Result<()> {
        let contents_first = self.expression.contents_first();
        // Those that are told behind what is in them.
        let mut within: Vec<(ArchivePath, ArchivedFile)> = Vec::new();
        while let Some(found) = walk.next() {
            let (path, file) = match found {
                Ok(found) => found,
                Err(error) => {
                    self.failed(error)?;
                    continue;
                }
            };
            while let Some((above, of)) = within.pop_if(|(above, _)| !path.is_within(above)) {
                self.file(place, &above, &of)?;
                if self.outcome.quits {
                    return Ok(());
                }
            }
            let is_directory = matches!(file, ArchivedFile::Directory(_));
            let depth = path.depth() - place.start.depth();
            let is_left = is_directory && depth >= self.expression.depth_max();
            if is_directory && contents_first {
                within.push((path, file));
            } else {
                self.file(place, &path, &file)?;
                if self.outcome.quits {
                    return Ok(());
                }
            }
            if is_left || (is_directory && !contents_first && self.outcome.is_pruned) {
                walk.skip_directory();
            }
        }
        while let Some((above, of)) = within.pop() {
            self.file(place, &above, &of)?;
            if self.outcome.quits {
                break;
            }
        }
        Ok(())
    }

    /// Tests a file, and tells of it.
    fn file(
        &mut self,
        place: &SearchedPlace<'_>,
        path: &ArchivePath,
        file: &ArchivedFile,
    ) -> Result<()> {
        let SearchedPlace { archive, store, opened, start, written } = place;
        self.name.clear();
        path.put(&mut self.name);
        self.outcome.clear();
        let depth = path.depth() - start.depth();
        let found = FindPlace { before: store, start: written, path: &self.name, depth };
        let found = FindFile::archived(found, file);
        let mut asks = ArchivedAsks { archive, path, file };
        let tested = self.expression.test(&found, &mut asks, &mut self.outcome);
        for print in self.outcome.each() {
            let end = match print {
                Ok(end) => end,
                Err(text) => {
                    self.out.write_all(text)?;
                    continue;
                }
            };
            if self.output.json {
                let mut record = record_of(path, file);
                let store = store.strip_suffix(b"::").filter(|store| !store.is_empty());
                (record.store, record.store_base64) = text(store.unwrap_or(opened));
                self.output.records.write(&mut self.out, &record)?;
                continue;
            }
            for text in [*store, &self.name] {
                if self.output.stdout_is_terminal && end == b'\n' {
                    write!(self.out, "{}", printable(&String::from_utf8_lossy(text)))?;
                } else {
                    self.out.write_all(text)?;
                }
            }
            self.out.write_all(&[end])?;
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

/// What is asked of an archived file.
struct ArchivedAsks<'a> {
    archive: &'a Archive,
    path: &'a ArchivePath,
    file: &'a ArchivedFile,
}

impl FindAsks<ArchiveError> for ArchivedAsks<'_> {
    fn is_empty(&mut self) -> Result<bool, ArchiveError> {
        Ok(self.archive.list(self.path)?.next().is_none())
    }

    fn link(&mut self) -> Result<Vec<u8>, ArchiveError> {
        let attributes = match self.file {
            ArchivedFile::Directory(_) => return Ok(Vec::new()),
            ArchivedFile::Member { member, .. } => &member.attributes,
            ArchivedFile::Object(object) => &object.attributes,
        };
        Ok(match &attributes.kind {
            MemberKind::Symlink { target } => target.to_vec(),
            _ => Vec::new(),
        })
    }

    /// Is not archived, as `check_archived` says.
    fn target(&mut self) -> char {
        '?'
    }

    /// Is refused by `check_archived`.
    fn remove(&mut self) -> bool {
        false
    }
}
