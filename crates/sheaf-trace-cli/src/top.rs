//! `sheaf trace top`: what programs do just now.
use super::serve::rounds::cause;
use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Records, printable};
use sheaf_cli::session::Opening;
use sheaf_core::{Errno, RangeSet};
use sheaf_group::Client;
use sheaf_records::{TraceSums, TraceTop};
use sheaf_trace::served::{
    LIVE, LIVE_SECONDS_MAX, LiveAnswer, LiveBy, LiveRequest, LiveSums, TRACE_LIVE, TRACE_SERVICE,
};
use sheaf_tree::{Coverage, Sync};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A host that does not answer within this is missing in one round.
const ANSWER_MAX: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);
/// Where standard output is no terminal.
const SIZE: (usize, usize) = (80, 24);

/// Show what the programs do that are being recorded
///
/// The I/O of the last seconds by file, program, operation or host, of all programs of the hosts
/// that sheaf trace record --served runs. Where no sheaf trace serve stores it, what is shown is not
/// kept.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf trace top -w n[1-16]
  sheaf trace top -w n[1-16] --by program --count 1")]
pub struct TraceTopArgs {
    /// What a line is of
    #[arg(long, value_enum, default_value_t = TopBy::File)]
    pub by: TopBy,

    /// Show the last so many seconds, as often
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(LIVE_SECONDS_MAX)))]
    pub interval: u32,

    /// End after so many times
    #[arg(short = 'n', long, value_name = "N")]
    pub count: Option<u64>,

    /// Show the programs that this user has recorded, by name or number: only root may name another
    #[arg(long, value_name = "USER")]
    pub of_user: Option<String>,

    /// Where programs of the hosts record (record --buffers); %h is the host's name
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub buffers: String,
}

/// What a line is of.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TopBy {
    File,
    Program,
    Operation,
    Host,
}

impl From<TopBy> for LiveBy {
    fn from(by: TopBy) -> Self {
        match by {
            TopBy::File => Self::File,
            TopBy::Program => Self::Program,
            TopBy::Operation => Self::Operation,
            TopBy::Host => Self::Host,
        }
    }
}

/// Shows it until it is to end.
pub fn run(args: &TraceTopArgs, global: &GlobalArgs) -> Result<Exit> {
    let mut opening = Opening::new(global)?;
    opening.lift_deadline();
    opening.run(async |session, config, _| {
        let (client, members) = (session.client(), config.everyone()?.clone());
        let network = client.network();
        let stream =
            network.open(TRACE_SERVICE, members.clone(), TRACE_LIVE, b"", Sync::WaitForAll);
        let span = Duration::from_secs(args.interval.into());
        let (buffers, user, last_ms) =
            (args.buffers.clone(), args.of_user.clone(), args.interval * 1000);
        let asked = LiveRequest { buffers, user, by: args.by.into(), last_ms }.encode();
        let mut exit = Exit::Success;
        // Whoever has not been asked before knows of nothing yet.
        stream.send(LIVE, &asked[..], Some(ANSWER_MAX)).await;
        stream.recv().await;
        for _ in 0..args.count.unwrap_or(u64::MAX) {
            let until = Instant::now() + span;
            while Instant::now() < until && !client.is_interrupted() {
                tokio::time::sleep(LOOK).await;
            }
            if client.is_interrupted() {
                break;
            }
            stream.send(LIVE, &asked[..], Some(ANSWER_MAX)).await;
            let answer = stream.recv().await;
            let missing = missing(&answer.coverage, client);
            exit = if missing.is_empty() { Exit::Success } else { Exit::Partial };
            let payload = answer.payload.as_deref();
            let answer = payload.map_or(Some(LiveAnswer::default()), LiveAnswer::decode);
            let answer = answer.ok_or_else(|| anyhow!("what hosts said came damaged"))?;
            show(&answer, &missing, args, global)?;
            // A pipe without an end would be read for ever, and nothing would come.
            let is_watched = args.count.is_some() || std::io::stdout().is_terminal();
            if !is_watched && answer.programs == 0 && missing.is_empty() {
                let text = "no program records there: sheaf trace record --served runs one; \
                            --count N waits for it N times";
                return Err(Stop::Unmatched(text.to_owned()).into());
            }
        }
        Ok(exit)
    })
}

/// Who has not said anything, and why.
fn missing(coverage: &Coverage, client: &Client) -> Vec<String> {
    let all = coverage.failed.iter().chain(&coverage.silent);
    let told = |(errno, leaves): &(Errno, RangeSet)| {
        format!("{}: nothing is known of it: {}", client.fold(leaves), cause(*errno))
    };
    all.map(told).collect()
}

fn show(
    answer: &LiveAnswer,
    missing: &[String],
    args: &TraceTopArgs,
    global: &GlobalArgs,
) -> Result<()> {
    let mut out = output::stdout();
    if global.json {
        Records::new(global).write(&mut out, &record(answer, missing, args))?;
        return Ok(out.flush()?);
    }
    let terminal = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(&terminal).ok().filter(|_| terminal.is_terminal());
    let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    if size.is_some() {
        // From the first line on, over what was there.
        write!(out, "\x1b[H\x1b[J")?;
    }
    let (columns, lines) =
        size.map_or(SIZE, |size| (usize::from(size.ws_col), usize::from(size.ws_row)));
    let lines = lines.saturating_sub(1 + missing.len());
    let span = Duration::from_secs(args.interval.into());
    write!(out, "{}", answer.to_text(args.by.into(), span, columns, lines))?;
    out.flush()?;
    for text in missing {
        output::tell(format_args!("sheaf: {}", printable(text)));
    }
    Ok(())
}

fn record(answer: &LiveAnswer, missing: &[String], args: &TraceTopArgs) -> TraceTop {
    let of = |name: Option<&[u8]>, sums: &LiveSums| TraceSums {
        name: name.map(|name| String::from_utf8_lossy(name).into_owned()),
        operations: sums.operations,
        failed: sums.failed,
        lost: sums.lost,
        bytes_read: sums.bytes_read,
        bytes_written: sums.bytes_written,
        time_ns: sums.time_ns,
        metadata_ns: sums.metadata_ns,
        longest_ns: sums.longest_ns,
    };
    TraceTop {
        by: match args.by {
            TopBy::File => sheaf_records::TopBy::File,
            TopBy::Program => sheaf_records::TopBy::Program,
            TopBy::Operation => sheaf_records::TopBy::Operation,
            TopBy::Host => sheaf_records::TopBy::Host,
        },
        last_ms: u64::from(args.interval) * 1000,
        programs: answer.programs,
        total: of(None, &answer.total()),
        others: of(None, &answer.others),
        sums: answer.sums.iter().map(|(name, sums)| of(Some(name), sums)).collect(),
        missing: missing.to_vec(),
    }
}
