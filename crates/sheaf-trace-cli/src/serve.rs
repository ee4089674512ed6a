//! `sheaf trace serve`: one trace of what programs of many hosts do.
mod meanwhile;
pub mod rounds;

use super::filter::FilterArgs;
use super::record::parts::PartArgs;
use super::{record, times};
use anyhow::Result;
use clap::Args;
use meanwhile::{CommandState, Meanwhile};
use rounds::{RoundNews, Rounds};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, printable};
use sheaf_cli::session::Opening;
use sheaf_group::Client;
use sheaf_trace::served::{KeptRows, RowFilter, ServedStore};
use sheaf_trace::{KeepLimits, TraceInfo};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often it is looked whether to end.
const LOOK: Duration = Duration::from_millis(50);
/// How long hosts have, once it is to end, to give what they have taken.
const END_MAX: Duration = Duration::from_secs(30);

/// Take one trace from the programs of many hosts
///
/// Programs that sheaf trace record --served runs on the hosts are recorded into memory
/// there; the servers of the hosts take that, and this stores it as one trace, in the order of time
/// by this machine's clock. It ends when COMMAND has ended, after --for, or with Ctrl-C; a
/// host keeps what is not stored yet for whoever goes on with the same --output.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf trace serve -w n[1-16] -o job.trace -- srun -w n[1-16] sheaf trace record --served ./solver
  sheaf trace serve -w n[1-16] -o slow.trace --for 60 --path '/scratch/**' --min-us 1000
  sheaf trace serve -w n[1-16] -o days.trace --part-minutes 10 --keep 20G --keep-hours 72
  sheaf trace report job.trace")]
pub struct TraceServeArgs {
    /// Where the trace goes: a directory that is not there yet, is empty, or has a trace of this
    /// kind, with which it goes on
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,

    /// End after so many seconds
    #[arg(long = "for", value_name = "SECONDS", allow_negative_numbers = true)]
    #[arg(value_parser = times::seconds)]
    pub time: Option<Duration>,

    /// Ask the hosts so often
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub period: u64,

    #[command(flatten)]
    pub filter: FilterArgs,

    /// Take from the programs that this user has recorded, by name or number: only root may name
    /// another
    #[arg(long, value_name = "USER")]
    pub of_user: Option<String>,

    /// Where programs of the hosts record (record --buffers); %h is the host's name
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub buffers: String,

    /// The most MiB that a host keeps of what is not stored yet
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub spool_mib: u64,

    #[command(flatten)]
    pub parts: PartArgs,

    /// Keep finished parts of so many bytes at most, as 20G: the oldest are removed, and counted
    /// [default: all stay]
    #[arg(long, value_name = "SIZE", value_parser = keep_bytes)]
    pub keep: Option<u64>,

    /// Keep finished parts for so many hours: those are removed, and counted, whose last operation
    /// is longer ago [default: all stay]
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_hours: Option<u32>,

    /// What to run meanwhile, on this machine
    #[arg(value_name = "COMMAND", last = true)]
    pub command: Vec<OsString>,
}

/// Parses how many bytes of parts are kept: none is smaller than the least of them.
fn keep_bytes(text: &str) -> Result<u64, String> {
    const BYTES_MIN: u64 = 4096;
    let bytes = sheaf_cli::size::bytes(text)?;
    if bytes < BYTES_MIN {
        let unit = if text.bytes().all(|byte| byte.is_ascii_digit()) && bytes > 0 {
            format!("; did you mean {text}G?")
        } else {
            String::new()
        };
        return Err(format!("it has to be 4K at least, as no part is smaller than that{unit}"));
    }
    Ok(bytes)
}

impl TraceServeArgs {
    fn keep(&self) -> KeepLimits {
        let hours = |hours: u32| Duration::from_secs(u64::from(hours) * 3600);
        KeepLimits { bytes_max: self.keep, time_max: self.keep_hours.map(hours) }
    }
}

/// Serves until it is to end.
pub fn run(args: &TraceServeArgs, global: &GlobalArgs) -> Result<Exit> {
    let filter = args.filter.filter()?;
    let mut meanwhile = match Meanwhile::find(&args.command) {
        Ok(meanwhile) => meanwhile,
        Err((code, text)) => {
            output::tell(format_args!("sheaf: {}", printable(&text)));
            std::process::exit(code);
        }
    };
    let mut opening = Opening::new(global)?;
    opening.lift_deadline();
    let hosts = opening.config().everyone_folded()?;
    let is_new = !args.output.exists();
    let (store, mut info, is_begun) = open_store(args, hosts, &filter)?;
    info.command = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    info.missing.clear();
    info.write(&args.output)?;
    opening.run(async |session, config, _| {
        let members = config.everyone()?.clone();
        let mut rounds =
            Rounds::begin(session.client(), &members, args, filter, (store, info.collector));
        let news = rounds.measure_clocks().await?;
        if is_begun && let Some(why) = rounds.refusal(&session.gone()) {
            rounds.discard()?;
            if is_new {
                std::fs::remove_dir(&args.output)?;
            }
            let unrun = if meanwhile.is_any() { ": COMMAND was not run" } else { "" };
            return Err(Stop::unreachable(printable(&format!("{why}{unrun}"))).into());
        }
        tell_news(&news, global);
        if let Some(code) = meanwhile.start()? {
            return finish(rounds, info, args, global, Some(code));
        }
        let code = take(&mut rounds, &mut meanwhile, session.client(), args, global).await?;
        finish(rounds, info, args, global, code)
    })
}

/// Takes what hosts have until it is to end; the exit code of what ran meanwhile.
async fn take(
    rounds: &mut Rounds<'_>,
    meanwhile: &mut Meanwhile,
    client: &Client,
    args: &TraceServeArgs,
    global: &GlobalArgs,
) -> Result<Option<i32>> {
    let period = Duration::from_millis(args.period);
    let deadline = args.time.map(|time| Instant::now() + time);
    let mut ended: ToEnd = None;
    loop {
        let begun = Instant::now();
        let news = match rounds.next().await {
            Ok(news) => news,
            Err(error) => {
                rounds.stop(&error);
                return outlast(meanwhile, client, &error).await;
            }
        };
        tell_news(&news, global);
        if ended.is_none() {
            ended = wait(meanwhile, client, begun, period, deadline, &news).await?;
        } else if !news.more {
            break;
        }
        if ended.is_some_and(|(since, _)| since.elapsed() >= END_MAX) {
            rounds.break_off();
            break;
        }
    }
    rounds.take_leave().await;
    Ok(ended.and_then(|(_, code)| code))
}

/// The directory of the trace: one that is begun, or one that was served into before.
fn open_store(
    args: &TraceServeArgs,
    hosts: String,
    keeps: &RowFilter,
) -> Result<(ServedStore, TraceInfo, bool)> {
    let filter = (!keeps.is_open()).then(|| keeps.to_string());
    let path = args.output.as_path();
    let before = if path.is_dir() { TraceInfo::read(path)? } else { None };
    let mut info = before.filter(|info| info.is_served).unwrap_or_default();
    if info.is_served && info.user != args.of_user {
        // How far hosts are is known of one user's directories.
        let text = format!("{} is of another user's programs (--of-user)", path.display());
        return Err(Stop::usage(printable(&text)).into());
    }
    if info.is_served && info.filter != filter {
        let was = info.filter.as_deref().unwrap_or("none");
        let text = format!(
            "{} has another filter ({was}): go on with that one, or in another directory",
            path.display()
        );
        return Err(Stop::usage(printable(&text)).into());
    }
    let is_begun = !info.is_served;
    if is_begun {
        record::places::make_store(Some(path), OsStr::new("trace"), "trace")?;
        let (begun_ns, collector) = (record::now_ns(), fastrand::u64(1..));
        let user = args.of_user.clone();
        info = TraceInfo { begun_ns, is_served: true, collector, user, filter, ..info };
        // Whoever goes on with it knows it by that.
        info.write(path)?;
    }
    (info.host, info.ended_ns, info.exit_code) = (hosts, 0, None);
    // Hosts have picked some at random; of these all are kept.
    let kept =
        KeptRows { begun_ns: info.begun_ns, filter: RowFilter { sample: 0, ..keeps.clone() } };
    let store = ServedStore::open(path, args.parts.limits(), args.keep())?;
    Ok((store.keeping(kept), info, is_begun))
}

/// When it was to end, and with which exit code.
type ToEnd = Option<(Instant, Option<i32>)>;

/// Waits for the next round, or until it is to end.
async fn wait(
    meanwhile: &mut Meanwhile,
    client: &Client,
    begun: Instant,
    period: Duration,
    deadline: Option<Instant>,
    news: &RoundNews,
) -> io::Result<ToEnd> {
    loop {
        if let CommandState::Ended(code) = meanwhile.look(client)? {
            return Ok(Some((Instant::now(), code)));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(Some((Instant::now(), None)));
        }
        let left = period.saturating_sub(begun.elapsed());
        if news.more || left.is_zero() {
            return Ok(None);
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

/// Nothing can be stored any more: what runs meanwhile goes on to its end, and gives its exit code.
async fn outlast(
    meanwhile: &mut Meanwhile,
    client: &Client,
    error: &anyhow::Error,
) -> Result<Option<i32>> {
    if !meanwhile.is_any() {
        return Ok(None);
    }
    let why = printable(&format!("{error:#}"));
    output::tell(format_args!("sheaf: {why}: nothing more is stored; COMMAND goes on"));
    loop {
        if let CommandState::Ended(code) = meanwhile.look(client)? {
            return Ok(code);
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn tell_news(news: &RoundNews, global: &GlobalArgs) {
    for text in news.told.iter().filter(|_| !global.quiet) {
        output::tell(format_args!("sheaf: {}", printable(text)));
    }
}

/// Ends the trace, and says what it came to.
fn finish(
    rounds: Rounds<'_>,
    mut info: TraceInfo,
    args: &TraceServeArgs,
    global: &GlobalArgs,
    code: Option<i32>,
) -> Result<Exit> {
    let known: u64 = info.served.iter().map(|host| host.before).sum();
    let had = info.operations;
    let (served, missing, told) = rounds.finish();
    info.ended_ns = record::now_ns();
    info.exit_code = code;
    info.missing = missing;
    let before = served.hosts.iter().map(|host| host.before).sum::<u64>().saturating_sub(known);
    (info.served, info.removed) = (served.hosts, served.removed);
    record::note_totals(&mut info, &served.totals);
    info.write(&args.output)?;
    if !global.quiet {
        if before > 0 {
            output::tell(format_args!(
                "sheaf: {before} operations were done before the trace began, and are not in it"
            ));
        }
        let missing = info.missing.iter().filter(|missing| !told.contains(*missing));
        let untold = TraceInfo { missing: missing.cloned().collect(), ..info.clone() };
        record::tell(&untold, &args.output);
        // Programs of others may be there that have recorded nothing meanwhile, either.
        let is_none_stored = info.operations == had && info.lost == 0 && before == 0;
        if is_none_stored && info.filter.is_none() && !args.command.is_empty() {
            output::tell(format_args!(
                "sheaf: COMMAND has recorded nothing on these hosts: what is taken is what sheaf trace \
                 record --served runs (with the same --buffers), as in -- sheaf trace record --served ./solver"
            ));
        }
    }
    if let Some(code) = code.filter(|code| *code != 0) {
        // The command's own exit code is this one's.
        std::process::exit(code);
    }
    Ok(if info.missing.is_empty() { Exit::Success } else { Exit::Partial })
}
