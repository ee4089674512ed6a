//! How far storing or getting is, and what it was done with.
use super::counted;
use anyhow::Result;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget};
use sheaf_archive::{HostNumbers, Phase, Resource, ScheduleLimits, ScheduleStats};
use sheaf_cli::exit::Stop;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_core::lock;
use sheaf_group::Client;
use sheaf_records::ArchiveStats;
use sheaf_tools::report::human;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What may be used for storing and getting, and whether that is told.
#[derive(Args, Debug)]
pub struct ScheduleArgs {
    /// Use no more than AMOUNT of a resource each second, or at once: memory, cpu,
    /// disk, disk-operations, network, connections, devices
    #[arg(long, value_name = "RESOURCE=AMOUNT", value_parser = limit)]
    limit: Vec<(Resource, u64)>,

    /// End with numbers of what was done with which resources
    #[arg(long)]
    pub stats: bool,
}

impl ScheduleArgs {
    /// Limits, and those that were said in their place.
    pub fn limited(&self, limits: ScheduleLimits) -> ScheduleLimits {
        if self.limit.iter().any(|(resource, _)| *resource == Resource::Memory) {
            share_memory();
        }
        self.limit.iter().fold(limits, |limits, (resource, amount)| limits.with(*resource, *amount))
    }
}

/// Has all threads take memory from one place, where glibc has one for each thread, of which much is unused
/// (mallopt(3)): 20 MiB of 60 where a directory has 200,000 files.
fn share_memory() {
    #[cfg(target_env = "gnu")]
    {
        const ARENA_MAX: i32 = -8;
        #[expect(unsafe_code, reason = "the C library's own")]
        unsafe extern "C" {
            fn mallopt(option: i32, value: i32) -> i32;
        }
        #[expect(unsafe_code, reason = "no crate that is used here has it")]
        // SAFETY: it takes numbers, and may be called at any time.
        let _ = unsafe { mallopt(ARENA_MAX, 1) };
    }
}

/// By fewer bytes it is not reckoned how long the rest takes.
const FEW_BYTES: u64 = 1 << 20;
/// Rates are those of so long.
const RATE_TIME: Duration = Duration::from_secs(2);

/// Shows on standard error how far it is, where that is a terminal, and keeps the last numbers.
pub struct ArchiveProgress {
    bar: Option<ProgressBar>,
    known: Mutex<ProgressKnown>,
    start: Instant,
}

struct ProgressKnown {
    stats: ScheduleStats,
    /// When rates were taken, and what was done then.
    since: Instant,
    done: (u64, u64),
    rates: (f64, f64),
}

impl ProgressKnown {
    /// How fast it goes, by what is done now.
    fn rates(&mut self, (files, bytes): (u64, u64)) -> (f64, f64) {
        let passed = self.since.elapsed();
        if passed >= RATE_TIME || self.rates == (0.0, 0.0) {
            let seconds = passed.as_secs_f64().max(0.001);
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
            self.rates = (rate(files, self.done.0), rate(bytes, self.done.1));
            (self.since, self.done) = (Instant::now(), (files, bytes));
        }
        self.rates
    }
}

impl ArchiveProgress {
    pub fn new(global: &GlobalArgs) -> Self {
        let output = Output::new(global);
        let is_seen = output.stderr_is_terminal && !output.json && !global.quiet;
        let bar = is_seen.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(
                indicatif::ProgressStyle::with_template("{msg}")
                    .unwrap_or_else(|_| indicatif::ProgressStyle::default_bar()),
            );
            bar
        });
        let start = Instant::now();
        let (stats, done) = (ScheduleStats::default(), (0, 0));
        let known = Mutex::new(ProgressKnown { stats, since: start, done, rates: (0.0, 0.0) });
        Self { bar, known, start }
    }

    /// Takes how many files and bytes are done by now.
    pub fn show(&self, files: u64, bytes: u64, stats: &ScheduleStats) {
        let mut known = lock(&self.known);
        known.stats = stats.clone();
        let Some(bar) = &self.bar else { return };
        let bytes = bytes.max(stats.moved_bytes);
        let rates = known.rates((files, bytes));
        bar.set_message(line((files, bytes), stats, rates, self.start.elapsed()));
    }

    /// The same of hosts, of which so many of all are done: what they wait for each knows by itself.
    pub fn show_hosts(&self, (files, bytes): (u64, u64), (done, all): (usize, usize)) {
        let Some(bar) = &self.bar else { return };
        let mut known = lock(&self.known);
        let (files_rate, bytes_rate) = known.rates((files, bytes));
        drop(known);
        bar.set_message(format!(
            "{}, {}; {files_rate:.0} files/s, {}/s; {done} of {} done",
            counted(files, "file", "files"),
            human::size(bytes),
            human::size(bytes_rate as u64),
            counted(all as u64, "host", "hosts"),
        ));
    }

    /// Tells something without a line of its own in the way.
    pub fn suspend(&self, tell: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(tell),
            None => tell(),
        }
    }

    /// Ends it; what the numbers were.
    pub fn end(self) -> (ScheduleStats, Duration) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let known = self.known.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        (known.stats, self.start.elapsed())
    }
}

/// One line: what was done, how fast, how long it takes, and what it is that it waits for.
fn line(
    (done, done_bytes): (u64, u64),
    stats: &ScheduleStats,
    (files, bytes): (f64, f64),
    elapsed: Duration,
) -> String {
    let left = match left(stats, elapsed) {
        Some(left) => format!("{} left", human_time(left)),
        None => "still looking".to_owned(),
    };
    format!(
        "{}, {}; {files:.0} files/s, {}/s; {left}; limited by {}",
        counted(done, "file", "files"),
        human::size(done_bytes),
        human::size(bytes as u64),
        stats.limiting.name(),
    )
}

/// How long it takes from now on, as far as that is known: all directories have been looked through.
fn left(stats: &ScheduleStats, elapsed: Duration) -> Option<Duration> {
    let phase = |phase: Phase| stats.phases.iter().find(|of| of.phase == phase);
    for before in [Phase::Walk, Phase::Directory] {
        let of = phase(before)?;
        if of.waiting + of.running > 0 {
            return None;
        }
    }
    let transfer = phase(Phase::Transfer)?;
    let to_do = (transfer.waiting + transfer.running) as f64;
    let by_tasks = to_do / (transfer.done as f64).max(1.0);
    // Few of the tasks may have most of the bytes.
    let bytes = stats.found_bytes.saturating_sub(stats.moved_bytes) as f64;
    let by_bytes = bytes / (stats.moved_bytes as f64).max(1.0);
    let times = if stats.moved_bytes < FEW_BYTES { by_tasks } else { by_tasks.max(by_bytes) };
    Some(elapsed.mul_f64(times.min(1e6)))
}

fn human_time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Says what it was done with: one line a phase and a kind of task, or all numbers as a record.
pub fn tell_stats(stats: &ScheduleStats, took: Duration, global: &GlobalArgs) -> Result<()> {
    if global.json {
        let record = ArchiveStats {
            host: None,
            seconds: took.as_secs_f64(),
            limiting: stats.limiting.name().to_owned(),
            counters: stats.counters().into_iter().collect(),
        };
        return Ok(Output::new(global).records.write(&mut output::stdout(), &record)?);
    }
    output::tell(format_args!(
        "sheaf: took {:.2} s, limited by {}, {} tasks at once at the end",
        took.as_secs_f64(),
        stats.limiting.name(),
        stats.width,
    ));
    let kinds = stats.kinds.iter().filter(|kind| kind.done > 0);
    kinds.for_each(|kind| tell_kind(kind.name, kind.done, kind.ran_us, kind.used.cpu_us));
    for host in &stats.hosts {
        for resource in Resource::ALL {
            tell_waits(resource.name(), host.refused.of(resource));
        }
    }
    Ok(())
}

fn tell_kind(name: &str, done: u64, ran_us: u64, cpu_us: u64) {
    output::tell(format_args!(
        "sheaf: {:<15} {done:>9} tasks  {:>9.2} s of which {:.2} computed",
        printable(&name.replace('_', " ")),
        ran_us as f64 / 1e6,
        cpu_us as f64 / 1e6,
    ));
}

fn tell_waits(resource: &str, count: u64) {
    if count > 0 {
        output::tell(format_args!("sheaf: {count} times tasks waited for {}", printable(resource)));
    }
}

/// The same of hosts, by their leaves: lines for all of them together, or a record for each.
pub fn tell_hosts_stats(
    of_hosts: &[(u32, HostNumbers)],
    client: &Client,
    took: Duration,
    global: &GlobalArgs,
) -> Result<()> {
    if global.json {
        let records = Output::new(global).records;
        for (leaf, of) in of_hosts {
            let record = ArchiveStats {
                host: Some(client.host(*leaf).unwrap_or_default()),
                seconds: took.as_secs_f64(),
                limiting: of.limiting.clone(),
                counters: of.counters.iter().cloned().collect(),
            };
            records.write(&mut output::stdout(), &record)?;
        }
        return Ok(());
    }
    let mut limited: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    let mut kinds: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    let mut waits: BTreeMap<&str, u64> = BTreeMap::new();
    for (leaf, of) in of_hosts {
        limited.entry(&of.limiting).or_default().push(*leaf);
        for (name, done, ran_us, cpu_us) in &of.kinds {
            let all = kinds.entry(name).or_default();
            all.0 = all.0.saturating_add(*done);
            all.1 = all.1.saturating_add(*ran_us);
            all.2 = all.2.saturating_add(*cpu_us);
        }
        for (resource, count) in &of.waits {
            let all = waits.entry(resource).or_default();
            *all = all.saturating_add(*count);
        }
    }
    let hosts = counted(of_hosts.len() as u64, "host", "hosts");
    output::tell(format_args!("sheaf: took {:.2} s on {hosts}", took.as_secs_f64()));
    for (limiting, leaves) in limited {
        let hosts = client.fold(&leaves.into_iter().collect());
        output::tell(format_args!("sheaf: limited by {}: {hosts}", printable(limiting)));
    }
    kinds.into_iter().for_each(|(name, (done, ran, cpu))| tell_kind(name, done, ran, cpu));
    waits.into_iter().for_each(|(resource, count)| tell_waits(resource, count));
    Ok(())
}

/// Refuses options that are not for files of hosts.
pub fn refused_on_hosts(options: &[(bool, &str)]) -> Result<()> {
    match options.iter().find(|(is_said, _)| *is_said) {
        None => Ok(()),
        Some((_, option)) => {
            let text = format!("{option} is for files of this machine, and not of HOSTSET:PATH");
            Err(Stop::usage(text).into())
        }
    }
}

/// A resource and how much of it may be used.
fn limit(text: &str) -> Result<(Resource, u64), String> {
    let names = || Resource::ALL.map(Resource::name).join(", ");
    let Some((name, amount)) = text.split_once('=') else {
        return Err(format!("write RESOURCE=AMOUNT, as disk=100M: there are {}", names()));
    };
    let resource = Resource::ALL.into_iter().find(|resource| resource.name() == name);
    let resource = resource.ok_or_else(|| format!("no resource {name}: there are {}", names()))?;
    let amount = match resource {
        // Processors, of which each second has as many microseconds.
        Resource::Cpu => amount
            .parse::<f64>()
            .ok()
            .filter(|cpus| *cpus > 0.0 && *cpus < 1e6)
            .map(|cpus| (cpus * 1e6) as u64)
            .ok_or_else(|| "not a number of processors".to_owned())?,
        _ => sheaf_cli::size::bytes(amount)?,
    };
    if amount == 0 {
        Err("with 0 nothing would be done".to_owned())
    } else {
        Ok((resource, amount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_amounts_of_resources() {
        assert_eq!(limit("disk=100M"), Ok((Resource::DiskBytes, 100 << 20)));
        assert_eq!(limit("cpu=1.5"), Ok((Resource::Cpu, 1_500_000)));
        assert_eq!(limit("connections=4"), Ok((Resource::StoreConnections, 4)));
        for text in ["disk", "disks=3", "cpu=-1", "cpu=x", "memory=0", "disk=1Q"] {
            assert!(limit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn remaining_time_is_estimated_once_the_walk_ends() {
        let phase = |phase, waiting, done| sheaf_archive::PhaseStats {
            phase,
            waiting,
            waiting_bytes: 0,
            running: 0,
            done,
            by_floor: 0,
            width: 8,
            stopped: 0,
        };
        let second = Duration::from_secs(1);
        let mut stats = ScheduleStats {
            phases: vec![
                phase(Phase::Walk, 1, 4),
                phase(Phase::Directory, 0, 4),
                phase(Phase::Transfer, 30, 10),
            ],
            ..ScheduleStats::default()
        };
        assert_eq!(left(&stats, second), None);
        stats.phases[0].waiting = 0;
        assert_eq!(left(&stats, second), Some(Duration::from_secs(3)));
        assert_eq!(human_time(Duration::from_secs(3700)), "1 h 1 min");
    }
}
