//! `sheaf grep`, run.
use super::GrepArgs;
use anyhow::Result;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::{Color, GlobalArgs};
use sheaf_cli::output::Output;
use sheaf_cli::session::{self, Ended, Opening};
use sheaf_core::{Errno, RangeSet};
use sheaf_records::{Costs, Note};
use sheaf_session::Session;
use sheaf_tools::ArgumentOrder;
use sheaf_tools::entry::{ANSWER_BYTES_MAX, Merged, MergedEntry};
use sheaf_tools::grep::print::{GrepPrinter, stats_record, strided};
use sheaf_tools::grep::{self, GrepOptions};
use std::io::{self, BufWriter, Write};
use std::time::Instant;

/// What is said when more was found than is held back.
const IN_PARTS: &str =
    "the answer was printed in parts: equal lines may have been printed more than once";

/// Searches and prints. Exit codes are grep's where all hosts answer; where some fail, a match does
/// not make the answer whole, nor is its absence certain.
pub fn run(args: &GrepArgs, global: &GlobalArgs) -> Result<Exit> {
    let options = args.options()?;
    let engine = options.compile().map_err(|error| sheaf_cli::addresses::pattern_error(&error))?;
    let begun = Instant::now();
    let opening = Opening::new(global)?;
    let meant_hosts = args.meant_hosts();
    let targets =
        args.addresses()?.resolve(opening.config()).map_err(|error| match meant_hosts {
            Some(hint) => Stop::usage(format!("{error:#}; {hint}")).into(),
            None => error,
        })?;
    opening.run(async |session, config, output| {
        let layout = args.layout(output);
        let hosts = config.hosts()?;
        let fold = |leaves: &RangeSet| {
            if args.index && !output.json { strided(leaves) } else { hosts.fold(leaves) }
        };
        let printer = GrepPrinter {
            layout,
            prefix: !args.no_filename,
            color: global.color == Color::Always || output.stdout != Default::default(),
            escapes: output.stdout_is_terminal,
            engine: Some(&engine),
            hosts: &fold,
        };
        let mut out = BufWriter::with_capacity(1 << 16, sheaf_cli::output::stdout());
        let started = begun.elapsed();
        let search = Instant::now();
        let (mut stats, order) = (None, ArgumentOrder::new(&targets));
        let mut print = |merged: &Merged| {
            if let Some(more) = merged.stats().filter(|_| options.stats) {
                stats.get_or_insert(sheaf_tools::entry::EntryStats::default()).add(more, 1);
            }
            if !options.is_silent() {
                let mut entries = merged.sorted();
                order.sort(&mut entries);
                print_entries(&printer, &entries, output, &mut out)?;
            }
            out.flush()
        };
        let found = grep::grep(session.client(), &targets, &options, &mut print)
            .await
            .map_err(sheaf_cli::addresses::stop)?;
        if let Some(stats) = stats {
            if output.json {
                output.records.write(&mut out, &stats_record(stats))?;
            } else {
                printer.print_stats(&mut sheaf_cli::output::stderr().lock(), stats)?;
            }
            print_costs(session, started, search.elapsed(), output, &mut out)?;
        }
        if found.partial_folds {
            note_parts(output, &mut out)?;
        }
        out.flush()?;
        drop(out);
        if !found.matched && !args.no_output && found.outcome.is_ok() {
            output.note(basic_operators(&options).as_deref())?;
        }
        let mut outcome = found.outcome;
        let extra = sheaf_cli::addresses::reasons(&mut outcome, |errno| reason(errno, args));
        let hints: Vec<_> = meant_hosts.map(|hint| (Errno::NOENT, hint)).into_iter().collect();
        let ended = Ended {
            unmatched: !found.matched,
            hushed: args.no_messages,
            extra: &extra,
            hints: &hints,
            ..Ended::new(&targets, &outcome)
        };
        session::finish(session, config, output, &ended)
    })
}

fn print_entries(
    printer: &GrepPrinter<'_>,
    entries: &[MergedEntry<'_>],
    output: &Output,
    out: &mut impl Write,
) -> io::Result<()> {
    if !output.json {
        return printer.print(out, entries);
    }
    for entry in entries {
        if let Some(record) = printer.record(entry)? {
            output.records.write(out, &record)?;
        }
    }
    Ok(())
}

/// Notes that entries of one line were printed in parts.
fn note_parts(output: &Output, out: &mut impl Write) -> Result<()> {
    if output.json {
        output.records.write(out, &Note { note: IN_PARTS.to_owned() })?;
    } else if !output.quiet {
        sheaf_cli::output::tell(format_args!("sheaf: {IN_PARTS}"));
    }
    Ok(())
}

/// What to say where nothing matched, and a pattern may have been meant as one of grep's basic
/// ones.
fn basic_operators(options: &GrepOptions) -> Option<String> {
    if options.fixed || options.invert {
        return None;
    }
    let has = |operator: char| options.patterns.iter().any(|pattern| escapes(pattern, operator));
    let meant: Vec<String> =
        ['|', '(', '{'].into_iter().filter(|&c| has(c)).map(|c| format!("{c} for \\{c}")).collect();
    let hint =
        || format!("nothing matched; patterns are those of grep -E: write {}", meant.join(", "));
    (!meant.is_empty()).then(hint)
}

/// Whether `character` stands in a pattern behind a backslash that is not escaped itself.
fn escapes(pattern: &str, character: char) -> bool {
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        if c == '\\' && rest.next() == Some(character) {
            return true;
        }
    }
    false
}

/// What more there is to say of failures.
fn reason(errno: Errno, args: &GrepArgs) -> Option<String> {
    if errno == Errno::ISDIR {
        return Some("-r searches directories".to_owned());
    }
    if errno == Errno::OPNOTSUPP && args.search_zip {
        let text = "not searched: it is compressed, but not by gzip, zstd, xz or bzip2";
        return Some(text.to_owned());
    }
    let max = args.max_line;
    let (lines, lower) = if args.before_context.max(args.after_context).max(args.context) > Some(0)
    {
        ("lines with their context need", ", and less context lowers it")
    } else {
        ("a line needs", "")
    };
    (errno == Errno::MSGSIZE).then(|| {
        format!(
            "{lines} more than the {max} bytes of --max-line, or the {ANSWER_BYTES_MAX} of an \
             answer{lower}"
        )
    })
}

/// What the search cost, beside what it found: seconds before the first request and for the
/// answers, and what the root received.
fn print_costs(
    session: &Session,
    init: std::time::Duration,
    read: std::time::Duration,
    output: &Output,
    out: &mut dyn Write,
) -> Result<()> {
    let counters = session.client().network().counters();
    let (init_s, read_s, root_bytes) = (init.as_secs_f64(), read.as_secs_f64(), counters.bytes_in);
    if output.json {
        output.records.write(out, &Costs { init_s, read_s, root_bytes })?;
    } else {
        sheaf_cli::output::tell(format_args!(
            "{init_s:.4} s to start, {read_s:.4} s to search, {root_bytes} bytes received at the \
             root"
        ));
    }
    Ok(())
}
