//! `sheaf archive grep`: lines of archived files, and of those of this machine.
use super::find::store_of;
use super::hosts;
use super::place::{self, NamedPlace};
use super::version::AtArgs;
use anyhow::Result;
use clap::Args;
use sheaf_archive::{
    Archive, ArchiveError, ArchiveGrep, ArchiveGrepOptions, ArchiveGrepOutput, ArchivePath,
    ArchivedFile, GrepBinary, GrepEvent, GrepPlace, GrepSyntax,
};
use sheaf_cli::arguments::read_patterns;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Search archived files, or those of this machine or of hosts, for lines that match
///
/// Options and patterns are GNU grep's. A directory is searched with all that is
/// below it, in the order of its names. No symbolic link below is followed.
#[derive(Args, Debug, Default)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Patterns may not look back (\\1), nor around with -P. Text is UTF-8 where LC_ALL,
LC_CTYPE or LANG says so, and bytes where not.

Exit status: 0 a line is selected; 1 none is; 2 something could not be searched,
unless a line is selected and -q is given; 4 a host is lost.

Examples:
  sheaf archive grep -n 'out of memory' /backup::/var/log
  sheaf archive grep -lE 'TODO|FIXME' '/backup::/home/*/src' --include '*.rs'
  sheaf archive grep -rn 'out of memory' /var/log")]
pub struct ArchiveGrepArgs {
    #[command(flatten)]
    pub version: AtArgs,

    /// What to look for; with -e or -f this is the first name
    #[arg(value_name = "PATTERN", required = true)]
    pub first: Option<OsString>,

    /// Archived files and directories, paths of this machine, or HOSTSET:PATH
    #[arg(value_name = "STORE::PATH|PATH")]
    pub rest: Vec<OsString>,

    /// Take each name for a path of this machine, even with `:` or `::` in it
    #[arg(long, help_heading = "Files")]
    pub local: bool,

    /// Look for this pattern; given several times, for each of them
    #[arg(short = 'e', long = "regexp", value_name = "PATTERN", allow_hyphen_values = true)]
    #[arg(help_heading = "Matching")]
    pub patterns: Vec<OsString>,

    /// Look for the patterns in this file, one on each line (- is standard input)
    #[arg(short = 'f', long = "file", value_name = "FILE", help_heading = "Matching")]
    pub files: Vec<PathBuf>,

    /// Patterns are basic regular expressions; this is the default
    #[arg(short = 'G', long, help_heading = "Matching")]
    #[arg(overrides_with_all = ["extended_regexp", "fixed_strings", "perl_regexp"])]
    pub basic_regexp: bool,

    /// Patterns are extended regular expressions
    #[arg(short = 'E', long, help_heading = "Matching")]
    #[arg(overrides_with_all = ["basic_regexp", "fixed_strings", "perl_regexp"])]
    pub extended_regexp: bool,

    /// Patterns are plain text
    #[arg(short = 'F', long, help_heading = "Matching")]
    #[arg(overrides_with_all = ["basic_regexp", "extended_regexp", "perl_regexp"])]
    pub fixed_strings: bool,

    /// Patterns are Perl's regular expressions
    #[arg(short = 'P', long, help_heading = "Matching")]
    #[arg(overrides_with_all = ["basic_regexp", "extended_regexp", "fixed_strings"])]
    pub perl_regexp: bool,

    /// Upper and lower case are the same
    #[arg(short, long, help_heading = "Matching")]
    pub ignore_case: bool,

    /// Only whole words match
    #[arg(short, long, help_heading = "Matching")]
    pub word_regexp: bool,

    /// Only whole lines match
    #[arg(short = 'x', long, help_heading = "Matching")]
    pub line_regexp: bool,

    /// Select the lines that do not match
    #[arg(short = 'v', long, help_heading = "Matching")]
    pub invert_match: bool,

    /// Directories are searched with all that is below them, as always
    #[arg(short, long, visible_short_alias = 'R', help_heading = "Files")]
    pub recursive: bool,

    /// Only files whose name fits this glob; may be repeated
    #[arg(long, value_name = "GLOB", help_heading = "Files")]
    pub include: Vec<String>,

    /// No files whose name fits this glob, included or not; may be repeated
    #[arg(long, value_name = "GLOB", help_heading = "Files")]
    pub exclude: Vec<String>,

    /// Do not go into directories whose name fits this glob; may be repeated
    #[arg(long, value_name = "GLOB", help_heading = "Files")]
    pub exclude_dir: Vec<String>,

    /// Show lines of binary files as if they were text
    #[arg(short = 'a', long, overrides_with = "without_binary", help_heading = "Files")]
    pub text: bool,

    /// Leave out binary files
    #[arg(short = 'I', overrides_with = "text", help_heading = "Files")]
    pub without_binary: bool,

    /// Leave a file after this many selected lines
    #[arg(short, long, value_name = "N", help_heading = "Files")]
    pub max_count: Option<u64>,

    /// Say how many lines are selected in each file
    #[arg(short, long, help_heading = "Output")]
    pub count: bool,

    /// Show only the names of files with selected lines
    #[arg(short = 'l', long, overrides_with = "files_without_match", help_heading = "Output")]
    pub files_with_matches: bool,

    /// Show only the names of files without selected lines
    #[arg(short = 'L', long, overrides_with = "files_with_matches", help_heading = "Output")]
    pub files_without_match: bool,

    /// Show only the parts of lines that match
    #[arg(short, long, help_heading = "Output")]
    pub only_matching: bool,

    /// Show nothing, and end at the first selected line; the exit status says whether there is one
    #[arg(short = 'q', long = "silent", help_heading = "Output")]
    pub no_output: bool,

    /// Say nothing about files that are not there or cannot be read
    #[arg(short = 's', long, help_heading = "Output")]
    pub no_messages: bool,

    /// Show line numbers
    #[arg(short = 'n', long, help_heading = "Output")]
    pub line_number: bool,

    /// Show names with lines; the default for directories and for several files
    #[arg(short = 'H', long, overrides_with = "no_filename", help_heading = "Output")]
    pub with_filename: bool,

    /// Show lines without names
    #[arg(short = 'h', long, overrides_with = "with_filename", help_heading = "Output")]
    pub no_filename: bool,

    /// End names with a NUL
    #[arg(short = 'Z', long, help_heading = "Output")]
    pub null: bool,

    /// Show this many lines behind each selected line
    #[arg(short = 'A', long, value_name = "N", help_heading = "Output")]
    pub after_context: Option<u32>,

    /// Show this many lines before each selected line
    #[arg(short = 'B', long, value_name = "N", help_heading = "Output")]
    pub before_context: Option<u32>,

    /// Show this many lines before and behind each selected line
    #[arg(short = 'C', long, value_name = "N", help_heading = "Output")]
    pub context: Option<u32>,
}

/// Searches what is named. Exit codes are GNU grep's.
pub fn run(args: &ArchiveGrepArgs, global: &GlobalArgs) -> Result<Exit> {
    let output = Output::new(global);
    if output.json {
        return Err(Stop::usage("archive grep shows lines as grep does, and has no --json").into());
    }
    let has_patterns = !args.patterns.is_empty() || !args.files.is_empty();
    let first = args.first.iter().filter(|_| has_patterns);
    let names: Vec<OsString> = first.chain(&args.rest).cloned().collect();
    if names.is_empty() {
        return Err(Stop::usage("archive grep needs a name: STORE::PATH or PATH").into());
    }
    if args.max_count == Some(0) && !args.files_without_match {
        return Ok(Exit::Unmatched);
    }
    if hosts::are_on_hosts(&names, args.local)? {
        let mut options = args.options()?;
        options.names = !args.no_filename;
        options.color = output.stdout != output::Palette::default();
        options.escape_names = output.stdout_is_terminal;
        ArchiveGrep::new(options.clone())
            .map_err(|error| Stop::usage(printable(&error.to_string())))?;
        return hosts::ask::grep(&names, options, args.no_messages, global);
    }
    let said = names;
    let names = NamedPlace::parse_all(&said, args.local)?;
    let mut search = ArchiveSearch { args, out: output::stdout_in_blocks(), has_failed: false };
    let found = search.places(&said, names)?;
    let places: Vec<GrepPlace<'_>> = found.iter().flat_map(GreppedPlace::places).collect();
    let mut options = args.options()?;
    options.color = output.stdout != output::Palette::default();
    options.escape_names = output.stdout_is_terminal;
    options.names = args.with_filename || (!args.no_filename && has_names(&places)?);
    options.output_file = output_file();
    let grep = ArchiveGrep::new(options);
    let grep = grep.map_err(|error| Stop::usage(printable(&error.to_string())))?;
    let selected = grep.search(&places, &mut |event| search.tell(event))?;
    if selected && args.no_output {
        return Ok(Exit::Success);
    }
    search.out.flush()?;
    Ok(match (search.has_failed, selected) {
        (true, _) => Exit::Usage,
        (false, true) => Exit::Success,
        (false, false) => Exit::Unmatched,
    })
}

/// Whether lines are of several files, as far as that is known before they are searched.
fn has_names(places: &[GrepPlace<'_>]) -> Result<bool> {
    if places.len() > 1 {
        return Ok(true);
    }
    for place in places {
        let is_directory = match place {
            GrepPlace::Archived(archive, path) | GrepPlace::ArchivedAs(archive, path, _) => {
                matches!(archive.look_up(path)?, Some(ArchivedFile::Directory(_)))
            }
            GrepPlace::Local(path) | GrepPlace::LocalAs(path, _) => path.is_dir(),
        };
        if is_directory {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Device and inode of a file that standard output is.
fn output_file() -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let out = std::fs::File::from(std::io::stdout().as_fd().try_clone_to_owned().ok()?);
    let found = out.metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some((found.dev(), found.ino()))
}

/// What a name of the command line stands for.
enum GreppedPlace {
    /// Its store is shown as it was written.
    Archived(Box<Archive>, Vec<ArchivePath>, Vec<u8>),
    Local(PathBuf),
}

impl GreppedPlace {
    fn places(&self) -> Vec<GrepPlace<'_>> {
        match self {
            Self::Archived(archive, paths, store) => {
                let place = |path: &ArchivePath| {
                    GrepPlace::ArchivedAs(archive, path.clone(), store.clone())
                };
                paths.iter().map(place).collect()
            }
            Self::Local(path) => vec![GrepPlace::Local(path.clone())],
        }
    }
}

struct ArchiveSearch<'a> {
    args: &'a ArchiveGrepArgs,
    out: BufWriter<output::Stdout>,
    has_failed: bool,
}

impl ArchiveSearch<'_> {
    /// What is to be searched.
    fn places(&mut self, said: &[OsString], names: Vec<NamedPlace>) -> Result<Vec<GreppedPlace>> {
        let mut places = Vec::new();
        for (said, name) in said.iter().zip(names) {
            let name = match name {
                NamedPlace::Archived(name) => name,
                NamedPlace::Local(path) => {
                    places.push(GreppedPlace::Local(path));
                    continue;
                }
            };
            let archive = Box::new(place::open_to_read(&name.store)?);
            match name.paths(&archive) {
                Ok(paths) => {
                    let store = store_of(said).to_vec();
                    places.push(GreppedPlace::Archived(archive, paths, store));
                }
                Err(error) if matches!(error.downcast_ref(), Some(Stop::Unmatched(_))) => {
                    self.failed(&error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(places)
    }

    fn failed(&mut self, text: &str) {
        self.has_failed = true;
        if !self.args.no_messages {
            output::tell(format_args!("sheaf: {}", printable(text)));
        }
    }

    fn tell(&mut self, event: GrepEvent<'_>) -> Result<()> {
        match event {
            GrepEvent::Output(bytes) => self.out.write_all(bytes)?,
            GrepEvent::Binary(path) => {
                self.out.flush()?;
                let path = String::from_utf8_lossy(path);
                output::tell(format_args!("sheaf: {}: binary file matches", printable(&path)));
            }
            GrepEvent::Failed(ArchiveError::Catalog(error)) => {
                return Err(ArchiveError::from(error).into());
            }
            GrepEvent::Failed(error) => self.failed(&error.to_string()),
            _ => {}
        }
        Ok(())
    }
}

impl ArchiveGrepArgs {
    /// Whether the files are on hosts.
    pub fn is_on_hosts(&self) -> bool {
        let has_patterns = !self.patterns.is_empty() || !self.files.is_empty();
        let mut names = self.first.iter().filter(|_| has_patterns).chain(&self.rest);
        !self.local && names.next().is_some_and(|name| hosts::is_on_hosts(name))
    }

    fn options(&self) -> Result<ArchiveGrepOptions> {
        Ok(ArchiveGrepOptions {
            patterns: self.all_patterns()?,
            syntax: match self {
                Self { extended_regexp: true, .. } => GrepSyntax::Extended,
                Self { fixed_strings: true, .. } => GrepSyntax::Fixed,
                Self { perl_regexp: true, .. } => GrepSyntax::Perl,
                _ => GrepSyntax::Basic,
            },
            ignore_case: self.ignore_case,
            word: self.word_regexp,
            line: self.line_regexp,
            invert: self.invert_match,
            output: match self {
                Self { no_output: true, .. } => ArchiveGrepOutput::Quiet,
                Self { files_with_matches: true, .. } => ArchiveGrepOutput::PathsWith,
                Self { files_without_match: true, .. } => ArchiveGrepOutput::PathsWithout,
                Self { count: true, .. } => ArchiveGrepOutput::Count,
                Self { only_matching: true, .. } => ArchiveGrepOutput::Parts,
                _ => ArchiveGrepOutput::Lines,
            },
            lines_max: self.max_count,
            number: self.line_number,
            before: self.before_context.or(self.context),
            after: self.after_context.or(self.context),
            binary: match self {
                Self { text: true, .. } => GrepBinary::Text,
                Self { without_binary: true, .. } => GrepBinary::Without,
                _ => GrepBinary::Said,
            },
            nul: self.null,
            is_utf8: is_utf8(),
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            exclude_directories: self.exclude_dir.clone(),
            ..ArchiveGrepOptions::default()
        })
    }

    fn all_patterns(&self) -> Result<Vec<Vec<u8>>> {
        if self.patterns.is_empty() && self.files.is_empty() {
            return Ok(self.first.iter().map(|pattern| pattern.as_bytes().to_vec()).collect());
        }
        let mut patterns: Vec<Vec<u8>> =
            self.patterns.iter().map(|pattern| pattern.clone().into_vec()).collect();
        for file in &self.files {
            patterns.extend(read_patterns(file)?.lines().map(|line| line.as_bytes().to_vec()));
        }
        Ok(patterns)
    }
}

/// Whether the locale's characters are UTF-8.
fn is_utf8() -> bool {
    let said = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = said("LC_ALL").or_else(|| said("LC_CTYPE")).or_else(|| said("LANG"));
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}
