//! `sheaf sha -c`: files checked against lists of digests.
use super::{ShaArgs, written_out};
use crate::cmd::per_path::{explained, said};
use anyhow::Result;
use sheaf_cli::addresses::stop;
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Layout, Output, Printer, printable};
use sheaf_cli::session::{self, Ended, Opening};
use sheaf_core::{Errno, RangeSet};
use sheaf_file::Algorithm;
use sheaf_records::{Entry, Note};
use sheaf_tools::ArgumentOrder;
use sheaf_tools::entry::Merged;
use sheaf_tools::report::check::{CheckOptions, CheckVerdict, Checked, NO_FILE, NO_LINE};
use sheaf_tools::report::{ReportChoice, report};
use std::io;

/// What there is to say of lists that could not be checked.
const EXPLAINED: &[(Errno, &str)] =
    &[(NO_LINE, "no properly formatted line was found"), (NO_FILE, "no file was verified")];

/// Prints what became of a file on some hosts.
type Print<'a> = dyn FnMut(&RangeSet, CheckVerdict, &[u8]) -> io::Result<()> + 'a;

/// Lines that are improperly formatted.
struct MalformedList {
    list: Vec<u8>,
    leaves: RangeSet,
    lines: u64,
}

/// What a check comes to, beside failures.
#[derive(Default)]
struct FoundDigest {
    differs: bool,
    malformed: Vec<MalformedList>,
    /// Of each such line its number, with --warn.
    malformed_lines: Vec<MalformedList>,
}

/// Checks the lists.
pub fn run(
    args: &ShaArgs,
    (algorithm, name): (Algorithm, sheaf_records::Algorithm),
    global: &GlobalArgs,
) -> Result<Exit> {
    let opening = Opening::new(global)?;
    let targets = args.files.resolve(opening.config())?;
    let (ignore_missing, warn) = (args.ignore_missing, args.warn);
    let what = ReportChoice::Check(CheckOptions { algorithm, ignore_missing, warn });
    opening.run(async |session, config, output| {
        let mut printer = Printer::with_heads(output, config.hosts()?, args.heads);
        let order = ArgumentOrder::new(&targets);
        let mut found = FoundDigest::default();
        let mut sink = |merged: &Merged| {
            found.add(merged, &order, &mut |leaves, verdict, path| {
                if args.status { Ok(()) } else { print(&mut printer, name, leaves, verdict, path) }
            })?;
            printer.flush()
        };
        let outcome = report(session.client(), &targets, &what, &mut sink).await;
        let mut outcome = outcome.map_err(stop)?;
        found.warn(&mut printer, output)?;
        let unmatched = found.differs || (args.strict && !found.malformed.is_empty());
        let extra = explained(&mut outcome, EXPLAINED);
        let ended = Ended { unmatched, extra: &extra, ..Ended::new(&targets, &outcome) };
        session::finish(session, config, output, &ended)
    })
}

/// Prints what became of a file. As JSON, what could not be read is told in the summary.
fn print(
    printer: &mut Printer<'_>,
    algorithm: sheaf_records::Algorithm,
    leaves: &RangeSet,
    verdict: CheckVerdict,
    path: &[u8],
) -> io::Result<()> {
    if printer.layout() != Layout::Json {
        let (mark, path) = written_out(path, b"\n\r");
        return printer.verdict(mark, leaves, &path, verdict.text());
    }
    if let CheckVerdict::Unread(_) = verdict {
        return Ok(());
    }
    let check = Some(verdict == CheckVerdict::Same);
    let record = Entry { algorithm: Some(algorithm), check, ..Entry::default() };
    printer.json(leaves, path, record)
}

impl FoundDigest {
    fn add(
        &mut self,
        merged: &Merged,
        order: &ArgumentOrder,
        print: &mut Print<'_>,
    ) -> io::Result<()> {
        for entry in said(merged, order) {
            match Checked::read(&entry.entry) {
                Some(Checked::File(verdict, path)) => {
                    self.differs |= verdict == CheckVerdict::Differs;
                    print(entry.leaves, verdict, path)?;
                }
                Some(Checked::MalformedLine(number)) => {
                    let (list, leaves) = (entry.path.to_vec(), entry.leaves.clone());
                    self.malformed_lines.push(MalformedList { list, leaves, lines: number });
                }
                Some(Checked::Malformed(lines)) => {
                    let (list, leaves) = (entry.path.to_vec(), entry.leaves.clone());
                    self.malformed.push(MalformedList { list, leaves, lines });
                }
                None => {
                    return Err(io::Error::other(
                        "a host answered with something that is no answer",
                    ));
                }
            }
        }
        Ok(())
    }

    fn warn(&self, printer: &mut Printer<'_>, output: &Output) -> io::Result<()> {
        let lines = self.malformed_lines.iter().map(|line| (line, true));
        for (malformed, is_line) in lines.chain(self.malformed.iter().map(|list| (list, false))) {
            let MalformedList { list, leaves, lines } = malformed;
            let list = printable(&String::from_utf8_lossy(list));
            let what = match (is_line, lines) {
                (true, number) => format!("line {number} is"),
                (false, 1) => "1 line is".to_owned(),
                (false, count) => format!("{count} lines are"),
            };
            let text = format!("{}:{list}: {what} improperly formatted", printer.fold(leaves));
            if output.json {
                let mut out = sheaf_cli::output::stdout();
                output.records.write(&mut out, &Note { note: text })?;
            } else if !output.quiet {
                sheaf_cli::output::tell(format_args!("sheaf: warning: {text}"));
            }
        }
        Ok(())
    }
}
