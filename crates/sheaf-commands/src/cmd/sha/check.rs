//! `sheaf sha -c`: files checked against lists of digests.
use super::ShaArgs;
use crate::cmd::per_path::{explained, said};
use anyhow::Result;
use serde_json::{Map, json};
use sheaf_cli::addresses::stop;
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Layout, Output, Printer, printable};
use sheaf_cli::session::{self, Ended, Opening};
use sheaf_core::{Errno, RangeSet};
use sheaf_file::Algorithm;
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
}

/// Checks the lists.
pub fn run(
    args: &ShaArgs,
    (algorithm, name): (Algorithm, &str),
    global: &GlobalArgs,
) -> Result<Exit> {
    let opening = Opening::new(global)?;
    let targets = args.files.resolve(opening.config())?;
    let what = ReportChoice::Check(CheckOptions { algorithm, ignore_missing: args.ignore_missing });
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
    algorithm: &str,
    leaves: &RangeSet,
    verdict: CheckVerdict,
    path: &[u8],
) -> io::Result<()> {
    if printer.layout() != Layout::Json {
        return printer.verdict(leaves, path, verdict.text());
    }
    if let CheckVerdict::Unread(_) = verdict {
        return Ok(());
    }
    let check = verdict == CheckVerdict::Same;
    let object = Map::from_iter([
        ("algorithm".to_owned(), algorithm.into()),
        ("check".to_owned(), check.into()),
    ]);
    printer.json(leaves, path, object)
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
        for MalformedList { list, leaves, lines } in &self.malformed {
            let list = printable(&String::from_utf8_lossy(list));
            let are = if *lines == 1 { "line is" } else { "lines are" };
            let text =
                format!("{}:{list}: {lines} {are} improperly formatted", printer.fold(leaves));
            if output.json {
                output.records.write(
                    &mut sheaf_cli::output::stdout(),
                    json!({ "type": "note", "note": text }),
                )?;
            } else if !output.quiet {
                sheaf_cli::output::tell(format_args!("sheaf: warning: {text}"));
            }
        }
        Ok(())
    }
}
