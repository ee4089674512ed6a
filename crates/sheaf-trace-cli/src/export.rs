//! `sheaf trace export`: a trace for other programs.
use super::whole;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, printable};
use sheaf_trace::export::{ChromeExport, CsvExport, DarshanExport};
use sheaf_trace::{StoreReader, TraceError, TraceInfo, TraceNames, TraceRow};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Write a trace in the form of another program
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf trace export --to perfetto -o tar.json tar.trace
  sheaf trace export --to csv tar.trace | head
  sheaf trace export --to darshan tar.trace")]
pub struct ExportArgs {
    /// The directory of a trace, or one of its files
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// In which form
    #[arg(long, value_name = "FORM", ignore_case = true)]
    pub to: ExportForm,

    /// Where to, in place of standard output: a file that is not there yet
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportForm {
    /// Trace events in JSON, for ui.perfetto.dev and chrome://tracing
    #[value(alias = "chrome")]
    Perfetto,
    /// A line for each operation
    Csv,
    /// Counters by process and file, as darshan-parser prints them
    Darshan,
}

/// Writes it.
pub fn run(args: &ExportArgs, _: &GlobalArgs) -> Result<Exit> {
    let trace = super::directory(&args.trace);
    let info = if trace.is_dir() { TraceInfo::read(trace)? } else { None };
    let mut damaged = Vec::from_iter(whole(trace, info.as_ref())?);
    let reader = super::open(trace, info.as_ref())?;
    let written = match &args.output {
        Some(path) => {
            let file = File::options().write(true).create_new(true).open(path);
            let file = file.with_context(|| printable(&path.display().to_string()))?;
            let name = path.display().to_string();
            write(args, reader.as_ref(), BufWriter::new(file), &name)?
        }
        None => write(args, reader.as_ref(), output::stdout(), "standard output")?,
    };
    damaged.extend(written);
    for text in &damaged {
        output::tell(format_args!("sheaf: {}", printable(text)));
    }
    Ok(if damaged.is_empty() { Exit::Success } else { Exit::Partial })
}

/// Writes all that can be read; gives what cannot.
fn write(
    args: &ExportArgs,
    reader: Option<&StoreReader>,
    out: impl Write,
    name: &str,
) -> Result<Vec<String>> {
    let failed = |error: io::Error| TraceError::Io { path: PathBuf::from(name), source: error };
    let each = |row: &mut dyn FnMut(&TraceRow, &TraceNames) -> io::Result<()>| {
        let mut names = TraceNames::default();
        let read = reader.map_or(Ok(Vec::new()), |reader| {
            reader.read(&mut names, |one, names| row(one, names).map_err(failed))
        })?;
        Ok::<_, TraceError>(read.iter().map(ToString::to_string).collect())
    };
    let (unread, mut out): (Vec<String>, Box<dyn Write + '_>) = match args.to {
        ExportForm::Perfetto => {
            let mut export = ChromeExport::new(out).map_err(failed)?;
            (
                each(&mut |row, names| export.row(row, names))?,
                Box::new(export.finish().map_err(failed)?),
            )
        }
        ExportForm::Csv => {
            let mut export = CsvExport::new(out).map_err(failed)?;
            (
                each(&mut |row, names| export.row(row, names))?,
                Box::new(export.finish().map_err(failed)?),
            )
        }
        ExportForm::Darshan => {
            let mut export = DarshanExport::new(out);
            (
                each(&mut |row, names| export.row(row, names))?,
                Box::new(export.finish().map_err(failed)?),
            )
        }
    };
    out.flush().map_err(failed)?;
    Ok(unread)
}
