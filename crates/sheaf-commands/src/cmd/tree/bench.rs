//! `sheaf tree bench`: round trips, waves, broadcast and start of a tree, from its root.
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::Output;
use sheaf_cli::session::Opening;
use sheaf_core::RangeSet;
use sheaf_records::{Bench as BenchRecord, Measure};
use sheaf_session::Session;
use sheaf_tree::probe::{
    ECHO, PEER_BULK, PEER_TRIPS, POST, POST_EACH, PROBE, SINK, full_sum, take_sums,
};
use sheaf_tree::{Stream, Sync, WaveResult};
use std::io::Write;
use std::time::{Duration, Instant};

/// Measure the tree: start, round trips, waves, broadcast
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf --processes 64 --tree 1x8x8 tree bench
  sheaf --processes 256 tree bench start rtt --json")]
pub struct BenchArgs {
    /// What to measure: start, rtt, waves, bcast (all, without any), peer
    #[arg(value_name = "WHAT", hide_possible_values = true)]
    pub what: Vec<What>,

    /// Round trips to measure
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rounds: u32,

    /// Waves that every leaf sends one behind the other
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub waves: u32,

    /// Post and take the waves packet by packet, from threads of the programs' own
    #[arg(long)]
    pub each: bool,

    /// Runs of waves and bcast each; the median is told
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub runs: u32,

    /// Bytes to broadcast (K, M, G understood)
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = sheaf_cli::size::bytes)]
    pub bytes: u64,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    Start,
    Rtt,
    Waves,
    Bcast,
    /// Exchanges between two hosts over a link of their own; only if asked for
    Peer,
}

impl What {
    fn measure(self) -> Measure {
        match self {
            Self::Start => Measure::Start,
            Self::Rtt => Measure::Rtt,
            Self::Waves => Measure::Waves,
            Self::Bcast => Measure::Bcast,
            Self::Peer => Measure::Peer,
        }
    }
}

/// The longest a measurement waits for one answer.
const DEADLINE: Duration = Duration::from_secs(120);
/// The most bytes of one broadcast: it is one packet.
const BYTES_MAX: u64 = 1 << 30;

/// Measures and prints.
pub fn run(args: &BenchArgs, global: &GlobalArgs) -> Result<Exit> {
    if args.bytes == 0 || args.bytes > BYTES_MAX {
        return Err(Stop::usage(format!("--bytes has to be between 1 and {BYTES_MAX}")).into());
    }
    let all = [What::Start, What::Rtt, What::Waves, What::Bcast];
    let what = if args.what.is_empty() { &all[..] } else { &args.what };
    let opening = Opening::new(global)?;
    let begun = Instant::now();
    opening.run(async |session, config, output| {
        // Of a running session, some hosts may be meant.
        let bench = Bench { session, members: config.everyone()?, args };
        let all = bench.members.len();
        let ready = session.client().network().ready(DEADLINE).await;
        let start = begun.elapsed();
        let ready = ready.map_or(0, |leaves| leaves.intersection(bench.members).len());
        if ready != all {
            bail!("{ready} of {all} leaves started");
        }
        for what in what {
            let mut figures = match what {
                What::Start => json!({ "n": 1, "start_s": start.as_secs_f64() }),
                What::Rtt => bench.round_trips().await?,
                What::Waves => bench.waves().await?,
                What::Bcast => bench.broadcast().await?,
                What::Peer => bench.peer().await?,
            };
            figures["leaves"] = json!(all);
            print(what.measure(), figures, output)?;
        }
        Ok(Exit::Success)
    })
}

fn print(measure: Measure, mut figures: Value, output: &Output) -> Result<()> {
    let mut out = sheaf_cli::output::stdout();
    if output.json {
        let mut taken = |name: &str| figures.as_object_mut().and_then(|all| all.remove(name));
        let mut count = |name: &str| taken(name).and_then(|count| count.as_u64()).unwrap_or(0);
        let (leaves, n) = (count("leaves"), count("n"));
        let record = BenchRecord { measure, leaves, n, figures: serde_json::from_value(figures)? };
        return Ok(output.records.write(&mut out, &record)?);
    }
    let number = |name: &str| figures[name].as_f64().unwrap_or(0.0);
    let leaves = &figures["leaves"];
    match measure {
        Measure::Start => writeln!(
            out,
            "start       {:>12.1} ms   until {leaves} leaves have reported",
            number("start_s") * 1e3
        ),
        Measure::Rtt => writeln!(
            out,
            "round trip  {:>12.1} µs   median of {} broadcasts + sums (p10 {:.1}, p90 {:.1})",
            number("median_us"),
            figures["rounds"],
            number("p10_us"),
            number("p90_us")
        ),
        Measure::Waves => writeln!(
            out,
            "waves       {:>12.0} /s   sums over {leaves} leaves, {} in all",
            number("median_waves_per_s"),
            figures["waves"]
        ),
        Measure::Peer => writeln!(
            out,
            "peer link   {:>12.1} µs   median of {} exchanges of {PEER_BYTES} bytes between two hosts; {:.1} MB/s\n\
             through     {:>12.1} µs   the same through the tree; {:.1} MB/s",
            number("median_us"),
            figures["rounds"],
            number("bytes") / number("bulk_s") / 1e6,
            number("tree_median_us"),
            number("bytes") / number("tree_bulk_s") / 1e6
        ),
        Measure::Bcast => writeln!(
            out,
            "broadcast   {:>12.1} MB/s to each of {leaves} leaves, {} bytes in {:.3} s",
            number("bytes") / number("median_s") / 1e6,
            figures["bytes"],
            number("median_s")
        ),
    }?;
    Ok(())
}

/// What is measured, and on which leaves.
struct Bench<'a> {
    session: &'a Session,
    members: &'a RangeSet,
    args: &'a BenchArgs,
}

impl Bench<'_> {
    /// How many leaves are measured.
    fn leaves(&self) -> i64 {
        i64::try_from(self.members.len()).unwrap_or(i64::MAX)
    }

    fn open(&self) -> Stream {
        let network = self.session.client().network();
        network.open(PROBE, self.members.clone(), "sum", b"%ld", Sync::WaitForAll)
    }

    async fn round_trips(&self) -> Result<Value> {
        const WARM_UP: u32 = 20;
        let rounds = self.args.rounds;
        let stream = self.open();
        let leaves = self.leaves();
        let mut took = Vec::with_capacity(rounds as usize);
        for round in 0..rounds + WARM_UP {
            let begun = Instant::now();
            stream.send(ECHO, b"", Some(DEADLINE)).await;
            if sum(&next(&stream).await?)? != leaves {
                bail!("a sum is wrong");
            }
            if round >= WARM_UP {
                took.push(begun.elapsed().as_secs_f64() * 1e6);
            }
        }
        let at = quantiles(took);
        Ok(
            json!({ "n": rounds, "rounds": rounds, "median_us": at(0.5), "p10_us": at(0.1), "p90_us": at(0.9) }),
        )
    }

    /// The first host exchanges packets with the second, and sends it many, over a link of their own.
    async fn peer(&self) -> Result<Value> {
        let (session, args) = (self.session, self.args);
        let network = session.client().network().clone();
        let topology = session.topology().clone();
        let mut hosts = self.members.iter();
        let (Some(first), Some(second)) = (hosts.next(), hosts.next()) else {
            return Err(Stop::usage("a peer link takes two hosts").into());
        };
        // That of a running session does so itself.
        let introduce =
            sheaf_tree::task::spawn(async move { network.keep_introductions(&topology).await });
        let measured = async {
            let ask = async |tag: i32, words: &[u32]| {
                let network = session.client().network();
                let stream =
                    network.open(PROBE, RangeSet::single(first), "sum", b"%ld", Sync::WaitForAll);
                let packet: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                stream.send(tag, &packet, Some(DEADLINE)).await;
                sum(&next(&stream).await?)
            };
            let mib = u32::try_from(args.bytes >> 20).unwrap_or(u32::MAX).max(1);
            let trip = ask(PEER_TRIPS, &[second, args.rounds, PEER_BYTES, 0]).await?;
            let bulk = ask(PEER_BULK, &[second, mib, args.runs, 0]).await?;
            let tree_trip = ask(PEER_TRIPS, &[second, args.rounds, PEER_BYTES, 1]).await?;
            let tree_bulk = ask(PEER_BULK, &[second, mib, args.runs, 1]).await?;
            Ok(json!({
                "n": args.rounds, "rounds": args.rounds, "bytes": u64::from(mib) << 20,
                "median_us": trip as f64 / 1e3, "bulk_s": bulk as f64 / 1e9,
                "tree_median_us": tree_trip as f64 / 1e3, "tree_bulk_s": tree_bulk as f64 / 1e9,
            }))
        }
        .await;
        introduce.abort();
        measured
    }

    async fn waves(&self) -> Result<Value> {
        let (waves, runs) = (self.args.waves, self.args.runs);
        let mut rates = Vec::new();
        for _ in 0..runs {
            let run = if self.args.each {
                self.each_run(waves).await?
            } else {
                self.wave_run(waves).await?
            };
            rates.push(f64::from(waves) / run);
        }
        let at = quantiles(rates);
        let median = at(0.5);
        Ok(json!({
            "n": runs, "waves": waves, "seconds": f64::from(waves) / median, "median_waves_per_s": median,
            "least_waves_per_s": at(0.0), "most_waves_per_s": at(1.0),
        }))
    }

    /// Seconds that `waves` waves take.
    async fn wave_run(&self, waves: u32) -> Result<f64> {
        let stream = self.open();
        let leaves = self.leaves();
        let begun = Instant::now();
        stream.send(POST, &u64::from(waves).to_le_bytes(), None).await;
        match take_sums(&stream, waves, leaves, DEADLINE).await {
            Ok(()) => {}
            Err(None) => bail!("no wave within {} s", DEADLINE.as_secs()),
            Err(Some(wave)) => {
                sum(&wave)?;
                bail!("a sum is wrong");
            }
        }
        Ok(begun.elapsed().as_secs_f64())
    }

    /// The same, packet by packet.
    async fn each_run(&self, waves: u32) -> Result<f64> {
        let stream = self.open();
        let leaves = self.leaves();
        let begun = Instant::now();
        stream.send(POST_EACH, &u64::from(waves).to_le_bytes(), None).await;
        let all = async {
            for _ in 0..waves {
                if sum(&stream.recv().await)? != leaves {
                    bail!("a sum is wrong");
                }
            }
            Ok(())
        };
        let late = |_| anyhow::anyhow!("no {waves} waves within {} s", DEADLINE.as_secs());
        tokio::time::timeout(DEADLINE, all).await.map_err(late)??;
        Ok(begun.elapsed().as_secs_f64())
    }

    async fn broadcast(&self) -> Result<Value> {
        let (bytes, runs) = (self.args.bytes, self.args.runs);
        let mut took = Vec::new();
        for _ in 0..runs {
            took.push(self.broadcast_run(bytes).await?);
        }
        let at = quantiles(took);
        Ok(
            json!({ "n": runs, "bytes": bytes, "median_s": at(0.5), "least_s": at(0.0), "most_s": at(1.0) }),
        )
    }

    /// Seconds that a broadcast takes, until every leaf has said that it has all.
    async fn broadcast_run(&self, bytes: u64) -> Result<f64> {
        let stream = self.open();
        let leaves = self.leaves();
        let content = vec![0x5a; bytes as usize];
        let begun = Instant::now();
        stream.send(SINK, content, Some(DEADLINE)).await;
        let total = sum(&next(&stream).await?)?;
        if total != i64::try_from(bytes)? * leaves {
            bail!("{total} bytes arrived in all, not {bytes} at each of {leaves} leaves");
        }
        Ok(begun.elapsed().as_secs_f64())
    }
}

/// The sum in a wave that everybody has to be in.
fn sum(wave: &WaveResult) -> Result<i64> {
    full_sum(wave).ok_or_else(|| {
        let missing = wave.coverage.missing().len();
        let mut errors = wave.coverage.failed.iter().chain(&wave.coverage.silent);
        let why = errors.next().map(|(errno, _)| format!(": {errno}")).unwrap_or_default();
        let hosts =
            if missing == 1 { "1 host is".to_owned() } else { format!("{missing} hosts are") };
        anyhow::anyhow!("{hosts} missing from what is measured{why}")
    })
}

async fn next(stream: &Stream) -> Result<WaveResult> {
    Ok(stream.recv_until(Instant::now() + DEADLINE).await?)
}

/// The bytes of an exchange between two hosts, there and back.
const PEER_BYTES: u32 = 4096;

/// The quantiles of some figures, of which there is at least one.
fn quantiles(mut figures: Vec<f64>) -> impl Fn(f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    move |share| figures[((figures.len() - 1) as f64 * share) as usize]
}
