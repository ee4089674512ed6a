//! `sheaf tree simulate`: the node code under a simulated network and clock.
use anyhow::Result;
use clap::Args;
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::Output;
use sheaf_records::{Figure, Simulation};
use sheaf_tree::filter::Registry;
use sheaf_tree::sim::{self, Physics, Shape, SimOperation, SimReport};
use std::collections::BTreeMap;
use std::io::Write;

mod faults;

/// Run the real node code under a simulated network and clock
///
/// One wave of sums and one of equivalence classes. With --faults,
/// nodes and links fail at random while waves of sums run: what was struck, what
/// every wave covered, and how long it took until all leaves that live answered.
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  sheaf tree simulate --leaves 32768 --fan-out 32
  sheaf tree simulate --leaves 32768 --faults 100 --seed 7"
)]
pub struct SimulateArgs {
    /// Number of leaves
    #[arg(long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub leaves: u32,

    /// Most children of a node
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=65_536))]
    pub fan_out: u32,

    /// Most waves to send while nodes and links fail
    #[arg(long, value_name = "N", default_value_t = 10, requires = "faults")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub waves: u32,

    /// Where random delays and faults start from; the same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// Faults on the way: nodes killed or stopped, links cut, reset or slowed
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub faults: u32,
}

/// Simulates and prints.
pub fn run(args: &SimulateArgs, global: &GlobalArgs) -> Result<Exit> {
    let output = Output::new(global);
    let shape = Shape::with_fanout(args.leaves, args.fan_out);
    if args.faults > 0 {
        return faults::run(args, &shape, &output);
    }
    for (name, operation) in
        [("sum", SimOperation::sum()), ("equivalence", SimOperation::equivalence())]
    {
        let report = sim::simulate(
            &shape,
            &operation,
            &Registry::with_builtins(),
            Physics::default(),
            args.seed,
        )?;
        print(name, &report, &output)?;
    }
    Ok(Exit::Success)
}

fn print(name: &str, report: &SimReport, output: &Output) -> Result<()> {
    let mut out = sheaf_cli::output::stdout();
    if output.json {
        let mut figures: BTreeMap<String, Figure> =
            serde_json::from_value(serde_json::to_value(report)?)?;
        figures.remove("leaves");
        figures.insert("rss_peak_bytes".to_owned(), Figure::Number(rss_peak_bytes().into()));
        let operation = Some(name.to_owned());
        let record = Simulation { leaves: u64::from(report.leaves), operation, figures };
        return Ok(output.records.write(&mut out, &record)?);
    }
    let ms = |ns: u64| ns as f64 / 1e6;
    writeln!(
        out,
        "{name}: {} leaves, {} inner nodes ({:.1} %), depth {}",
        report.leaves,
        report.inner_nodes,
        report.inner_share * 100.0,
        report.depth
    )?;
    writeln!(
        out,
        "  virtual time  {:>10.3} ms to start, {:.3} ms for the wave",
        ms(report.ready_ns),
        ms(report.wave_ns)
    )?;
    writeln!(
        out,
        "  real time     {:>10} ms to start, {} ms for the wave",
        report.real_start_ms, report.real_wave_ms
    )?;
    writeln!(out, "  whole tree    {:>10} messages, {} bytes", report.messages, report.bytes)?;
    writeln!(
        out,
        "  at the root   {:>10} frames in, {} bytes in, result {} bytes",
        report.root_frames_in, report.root_bytes_in, report.result_bytes
    )?;
    writeln!(
        out,
        "  memory        {:>10.0} MiB at the most",
        rss_peak_bytes() as f64 / f64::from(1 << 20)
    )?;
    Ok(())
}

/// The most memory this process has had, as the kernel says.
fn rss_peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}
