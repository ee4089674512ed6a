//! Records what Sheaf itself does in this process, and reports on it; or reports on a trace that
//! `sheaf trace record` has made.
//!
//!     cargo run --example trace_report              a group read on 8 servers, recorded
//!     cargo run --example trace_report -- TRACE
use sheaf::group::message::DataAggregation;
use sheaf::trace::{
    Recording, RecordingOptions, ReportOptions, StoreReader, TraceNames, TraceReport, record_own,
};
use sheaf::{Environment, Session};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long the recording waits for programs that still run.
const PATIENCE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let shown = match std::env::args().nth(1) {
        Some(trace) => report(Path::new(&trace)),
        None => record(),
    };
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trace_report: {}", sheaf::one_line(&*error));
            sheaf::exit_code(&*error)
        }
    }
}

/// Programs write into segments, which are shared memory; the recording takes what is there into a
/// trace.
fn record() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let (segments, trace) = (place.path().join("segments"), place.path().join("trace"));
    std::fs::create_dir(&segments)?;
    std::fs::create_dir(&trace)?;
    record_own(&segments)?;
    let recording = Recording::begin(&segments, &trace, "here", &RecordingOptions::default())?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(read())?;
    let totals = recording.finish_within(PATIENCE);
    if let Some(error) = totals.error {
        return Err(error.into());
    }
    println!("recorded {} operations, lost {}", totals.rows, totals.lost);
    report(&trace)
}

async fn read() -> Result<(), Box<dyn Error>> {
    let session = Session::builder(&Environment::of_this_process()).embedded(8).start().await?;
    let target = session.address("n[1-8]:/proc/loadavg")?;
    let group = session.client().gopenat(&target.members, &target.path, 0, 0).await?;
    let average =
        DataAggregation::by_name("average", &[1], 1 << 20, 0).ok_or("no such aggregation")?;
    group.read(64, average).await?;
    group.close().await?;
    session.end().await;
    Ok(())
}

fn report(trace: &Path) -> Result<(), Box<dyn Error>> {
    let mut names = TraceNames::default();
    let mut report = TraceReport::new(ReportOptions::default());
    let damaged = StoreReader::open(trace)?.read(&mut names, |row, names| {
        report.add(row, names);
        Ok(())
    })?;
    print!("{}", report.finish(&names).to_text(80));
    // The rest of a trace is read although a part of it is damaged.
    match damaged.first() {
        Some(error) => Err(format!("the trace is not whole: {error}").into()),
        None => Ok(()),
    }
}
