//! `sheaf grep`: lines of many hosts, each distinct line once.
mod run;

pub use run::run;

use anyhow::Result;
use clap::Args;
use sheaf_cli::addresses::Addresses;
use sheaf_cli::arguments::read_patterns;
use sheaf_cli::exit::Stop;
use sheaf_cli::output;
use sheaf_cli::size;
use sheaf_core::hostset::HostSet;
use sheaf_tools::grep::print::GrepLayout;
use sheaf_tools::grep::{GrepOptions, GrepOutput};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Search files for lines that match, each distinct line once
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "\
Patterns are regular expressions as Rust's regex crate and ripgrep know them:
| ( ) + ? mean something by themselves, while \\| and \\(, operators of grep's
basic regular expressions, are literal characters.

Exit status: 0 a line is selected; 1 none is, and every member was searched;
4 some members failed or were silent, whatever the others have: so with -q, too,
where grep itself would say 0 at the first match.

Examples:
  sheaf grep udp /etc/services
  sheaf grep -c '^processor' /proc/cpuinfo
  sheaf grep --template -i 'out of memory' 'n[1-64]:/var/log/{messages,syslog}'
  sheaf grep -rz --include '*.gz' panic /var/log")]
pub struct GrepArgs {
    /// What to look for; with -e or -f this is the first address
    #[arg(value_name = "PATTERN", required = true)]
    pub first: Option<OsString>,

    /// Files: HOSTSET:PATH, or PATH alone for every host
    #[arg(value_name = "ADDR")]
    pub rest: Vec<OsString>,

    /// Look for this pattern; given several times, for each of them
    #[arg(short = 'e', long = "regexp", value_name = "PATTERN", allow_hyphen_values = true)]
    #[arg(help_heading = "Matching")]
    pub patterns: Vec<OsString>,

    /// Look for the patterns in this file of this machine, one on each line (- is standard input)
    #[arg(short = 'f', long = "file", value_name = "FILE", help_heading = "Matching")]
    pub files: Vec<PathBuf>,

    /// Patterns are plain text
    #[arg(short = 'F', long, overrides_with = "extended_regexp", help_heading = "Matching")]
    pub fixed_strings: bool,

    /// Patterns are regular expressions; this is the default
    #[arg(short = 'E', long, overrides_with = "fixed_strings", help_heading = "Matching")]
    pub extended_regexp: bool,

    /// Upper and lower case are the same
    #[arg(short, long, overrides_with = "smart_case", help_heading = "Matching")]
    pub ignore_case: bool,

    /// Upper and lower case are the same unless a pattern has upper case
    #[arg(short = 'S', long, overrides_with = "ignore_case", help_heading = "Matching")]
    pub smart_case: bool,

    /// Only whole words match
    #[arg(short, long, help_heading = "Matching")]
    pub word_regexp: bool,

    /// Only whole lines match
    #[arg(short = 'x', long, help_heading = "Matching")]
    pub line_regexp: bool,

    /// Select the lines that do not match
    #[arg(short = 'v', long, help_heading = "Matching")]
    pub invert_match: bool,

    /// Descend into directories
    #[arg(short, long, help_heading = "Files")]
    pub recursive: bool,

    /// Descend into directories, and follow the symbolic links in them
    #[arg(short = 'R', long, help_heading = "Files")]
    pub dereference_recursive: bool,

    /// With -r or -R, only files whose name fits this glob; may be repeated
    #[arg(long, value_name = "GLOB", help_heading = "Files")]
    pub include: Vec<String>,

    /// With -r or -R, no files or directories whose name fits this glob; may be repeated
    #[arg(long, value_name = "GLOB", help_heading = "Files")]
    pub exclude: Vec<String>,

    /// Look into gzip, zstd, xz and bzip2 files; those of other compressors and zip, 7z and rar fail
    #[arg(short = 'z', long, help_heading = "Files")]
    pub search_zip: bool,

    /// Show lines of binary files as if they were text
    #[arg(short = 'a', long, help_heading = "Files")]
    pub text: bool,

    /// Leave a file after this many selected lines
    #[arg(short, long, value_name = "N", help_heading = "Files")]
    pub max_count: Option<u64>,

    /// The longest line, with its context, that is searched (K, M, G understood)
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = size::bytes, help_heading = "Files")]
    pub max_line: u64,

    /// Say how many lines are selected in each file
    #[arg(short, long, help_heading = "Output")]
    pub count: bool,

    /// Show only the paths of files with selected lines
    #[arg(short = 'l', long, overrides_with = "files_without_match", help_heading = "Output")]
    pub files_with_matches: bool,

    /// Show only the paths of files without selected lines
    #[arg(short = 'L', long, overrides_with = "files_with_matches", help_heading = "Output")]
    pub files_without_match: bool,

    /// Show only the parts of lines that match
    #[arg(short, long, help_heading = "Output")]
    pub only_matching: bool,

    /// Show nothing; the exit status says whether any line is selected
    #[arg(short = 'q', long = "silent", help_heading = "Output")]
    pub no_output: bool,

    /// Say nothing about files that cannot be read
    #[arg(short = 's', long, help_heading = "Output")]
    pub no_messages: bool,

    /// Show line numbers; equal lines are then folded only where their numbers are equal
    #[arg(short = 'n', long, help_heading = "Output")]
    pub line_number: bool,

    /// Show host set and path with each line; this is the default
    #[arg(short = 'H', long, overrides_with = "no_filename", help_heading = "Output")]
    pub with_filename: bool,

    /// Show lines without host set and path
    #[arg(short = 'h', long, overrides_with = "with_filename", help_heading = "Output")]
    pub no_filename: bool,

    /// Show this many lines behind each selected line
    #[arg(short = 'A', long, value_name = "N", help_heading = "Output")]
    pub after_context: Option<u32>,

    /// Show this many lines before each selected line
    #[arg(short = 'B', long, value_name = "N", help_heading = "Output")]
    pub before_context: Option<u32>,

    /// Show this many lines before and behind each selected line
    #[arg(short = 'C', long, value_name = "N", help_heading = "Output")]
    pub context: Option<u32>,

    /// Fold lines that differ only in host name, time, address, process or other numbers
    #[arg(long, help_heading = "Folding")]
    pub template: bool,

    /// Fold nothing: one line for each host, as often as the file has it
    #[arg(long, conflicts_with_all = ["heading", "index"], help_heading = "Folding")]
    pub each: bool,

    /// Name hosts by strided ranges of their index, start:stride:count
    #[arg(long, help_heading = "Folding")]
    pub index: bool,

    /// Show host set and path once, above their lines; the default on a terminal
    #[arg(long, overrides_with = "no_heading", help_heading = "Folding")]
    pub heading: bool,

    /// Show host set and path on each line
    #[arg(long, overrides_with = "heading", help_heading = "Folding")]
    pub no_heading: bool,

    /// Also say how many files, lines and bytes were searched
    #[arg(long, help_heading = "Output")]
    pub stats: bool,
}

impl GrepArgs {
    /// The files to search.
    pub fn addresses(&self) -> Result<Addresses> {
        let pattern_is_named = !self.patterns.is_empty() || !self.files.is_empty();
        let first = self.first.iter().filter(|_| pattern_is_named);
        let addrs: Vec<OsString> = first.chain(&self.rest).cloned().collect();
        if addrs.is_empty() {
            return Err(
                Stop::usage("grep needs the address of a file, HOSTSET:PATH or PATH").into()
            );
        }
        Ok(Addresses { addrs })
    }

    /// What to say where hosts may have been given to `-w`, which is grep's own here.
    pub fn meant_hosts(&self) -> Option<&'static str> {
        let is_pattern = self.word_regexp && self.patterns.is_empty() && self.files.is_empty();
        let pattern = self.first.as_ref().filter(|_| is_pattern)?.to_str()?;
        let names = HostSet::parse(pattern).is_ok_and(|hosts| !hosts.is_empty());
        let is_no_file = |word: &OsString| {
            !word.to_string_lossy().contains(['/', ':']) && !Path::new(word).exists()
        };
        let shifted = self.rest.len() > 1 && self.rest.first().is_some_and(is_no_file);
        (names && (pattern.contains('[') || shifted))
            .then_some("hosts are said with --hosts, or with -w before grep")
    }

    /// What the hosts are asked for. Reads the files of `-f`.
    pub fn options(&self) -> Result<GrepOptions> {
        let both = self.context.unwrap_or(0);
        let options = GrepOptions {
            patterns: self.all_patterns()?,
            fixed: self.fixed_strings,
            word: self.word_regexp,
            line: self.line_regexp,
            ignore_case: self.ignore_case,
            smart_case: self.smart_case,
            invert: self.invert_match,
            output: self.output(),
            lines_max: self.max_count,
            line_bytes_max: Some(self.max_line),
            number: self.line_number,
            before: self.before_context.unwrap_or(both),
            after: self.after_context.unwrap_or(both),
            text: self.text,
            decompress: self.search_zip,
            recursive: self.recursive || self.dereference_recursive,
            follow: self.dereference_recursive,
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            template: self.template,
            each: self.each,
            stats: self.stats,
        };
        Ok(options)
    }

    /// The form of the output.
    pub fn layout(&self, output: &output::Output) -> GrepLayout {
        if self.each {
            GrepLayout::Each
        } else if self.heading
            || (output.stdout_is_terminal && !self.no_heading && !self.no_filename)
        {
            GrepLayout::Heading
        } else {
            GrepLayout::Flat
        }
    }

    fn output(&self) -> GrepOutput {
        match self {
            Self { no_output: true, .. } => GrepOutput::Quiet,
            Self { files_with_matches: true, .. } => GrepOutput::PathsWith,
            Self { files_without_match: true, .. } => GrepOutput::PathsWithout,
            Self { count: true, .. } => GrepOutput::Count,
            Self { only_matching: true, .. } => GrepOutput::Parts,
            _ => GrepOutput::Lines,
        }
    }

    fn all_patterns(&self) -> Result<Vec<String>> {
        if self.patterns.is_empty() && self.files.is_empty() {
            return self.first.iter().map(|pattern| text_of(pattern)).collect();
        }
        let mut patterns: Vec<String> =
            self.patterns.iter().map(|pattern| text_of(pattern)).collect::<Result<_>>()?;
        for file in &self.files {
            patterns.extend(read_patterns(file)?.lines().map(str::to_owned));
        }
        Ok(patterns)
    }
}

fn text_of(pattern: &OsStr) -> Result<String> {
    let text = pattern.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        Stop::usage(format!("the pattern {} is not UTF-8", pattern.display())).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    fn parse(words: &[&str]) -> Result<GrepArgs, clap::Error> {
        let command = GrepArgs::augment_args(Command::new("grep").disable_help_flag(true));
        let matches = command.no_binary_name(true).try_get_matches_from(words)?;
        GrepArgs::from_arg_matches(&matches)
    }

    fn addrs(args: &GrepArgs) -> Vec<OsString> {
        args.addresses().unwrap().addrs
    }

    #[test]
    fn first_word_is_the_pattern_unless_one_is_named() {
        let args = parse(&["udp", "/etc/services"]).unwrap();
        assert_eq!(args.options().unwrap().patterns, ["udp"]);
        assert_eq!(addrs(&args), ["/etc/services"]);
        let args = parse(&["-e", "-v", "-e", "b", "/a", "/b"]).unwrap();
        assert_eq!(args.options().unwrap().patterns, ["-v", "b"]);
        assert_eq!(addrs(&args), ["/a", "/b"]);
        assert!(parse(&["udp"]).unwrap().addresses().is_err());
        assert!(parse(&[]).is_err());
    }

    #[test]
    fn stronger_output_wins_and_context_is_for_both_sides() {
        let args = parse(&["-co", "-l", "-L", "-C2", "-A5", "x", "/a"]).unwrap();
        let options = args.options().unwrap();
        assert_eq!(
            (options.output, options.before, options.after),
            (GrepOutput::PathsWithout, 2, 5)
        );
    }

    #[test]
    fn patterns_come_from_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("patterns");
        std::fs::write(&path, "a\n\nb\n").unwrap();
        let args = parse(&["-f", path.to_str().unwrap(), "-e", "c", "/a"]).unwrap();
        assert_eq!(args.options().unwrap().patterns, ["c", "a", "", "b"]);
        std::fs::write(&path, "").unwrap();
        let args = parse(&["-f", path.to_str().unwrap(), "/a"]).unwrap();
        assert!(args.options().unwrap().patterns.is_empty());
    }
}
