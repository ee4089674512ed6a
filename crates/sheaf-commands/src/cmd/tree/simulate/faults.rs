//! Sums while nodes and links fail: nobody is counted twice, nothing hangs, and whoever lives is
//! back in the end.
use super::{SimulateArgs, rss_peak_bytes};
use anyhow::{Result, bail};
use serde_json::json;
use sheaf_cli::exit::Exit;
use sheaf_cli::output::{Output, Records};
use sheaf_core::RangeSet;
use sheaf_records::{Fault, Record, Simulation, Wave};
use sheaf_tree::Sync;
use sheaf_tree::filter::Registry;
use sheaf_tree::packet::{put_scalar, scalar};
use sheaf_tree::proto::{Node, Packet, Time};
use sheaf_tree::sim::{Leaves, Shape, Sim, SimConfig, fault};
use std::io::Write;
use std::time::{Duration, Instant};

const WAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Nodes fail within this time; what is healed may be so somewhat later.
const SPAN: Duration = Duration::from_secs(20);
/// After the last fault, every leaf that lives answers within this time.
const RECOVERY_MAX: Duration = Duration::from_secs(120);

struct FaultRun<L> {
    sim: Sim<L>,
    stream: u32,
    seed: u64,
    waves: u32,
    longest: Duration,
    records: Option<Records>,
    out: sheaf_cli::output::Stdout,
}

/// Simulates and prints.
pub(super) fn run(args: &SimulateArgs, shape: &Shape, output: &Output) -> Result<Exit> {
    let begun = Instant::now();
    let one = |_: u32, packet: &Packet, node: &mut Node| {
        let mut one = Vec::new();
        put_scalar(1i64, &mut one);
        node.reply(packet.stream, packet.wave, packet.tag, &one);
    };
    let mut sim =
        Sim::new(shape.clone(), Registry::with_builtins(), one, SimConfig::seeded(args.seed));
    let faults = fault::random_inner(shape, &mut fault::rng(args.seed), args.faults, SPAN);
    let last = faults.iter().map(|(at, _)| *at).max().unwrap_or_default();
    let stream = sim.open(shape.everyone(), "sum", b"%ld", Sync::WaitForAll);
    let out = sheaf_cli::output::stdout();
    let longest = Duration::ZERO;
    let mut run = FaultRun {
        sim,
        stream,
        seed: args.seed,
        waves: 0,
        longest,
        records: output.json.then_some(output.records),
        out,
    };
    run.schedule(faults)?;
    while run.waves < args.waves && run.sim.now() < last {
        run.wave()?;
        run.sim.run_for(SPAN / args.waves);
    }
    run.sim.run_for(last - run.sim.now());
    let back = run.recover()?;
    let recovery = run.sim.now() - last;
    let (waves, longest) = (run.waves, run.longest);
    let (real, rss) = (begun.elapsed(), rss_peak_bytes());
    let text = format!(
        "exactly once  in each of {waves} waves every leaf is counted once, or named as missing\n\
         recovery      {:.3} ms of virtual time after the last fault: all {back} leaves that live answer\n\
         longest wave  {:.3} ms of virtual time\n\
         real time     {} ms\n\
         memory        {:.0} MiB at the most",
        ms(recovery),
        ms(longest),
        real.as_millis(),
        rss as f64 / f64::from(1 << 20)
    );
    let figures = json!({
        "faults": args.faults, "waves": waves, "exactly_once": true, "living": back,
        "recovery_ns": recovery.as_nanos() as u64, "longest_wave_ns": longest.as_nanos() as u64,
        "real_ms": real.as_millis() as u64, "rss_peak_bytes": rss,
    });
    let (leaves, figures) = (u64::from(shape.leaves()), serde_json::from_value(figures)?);
    run.say(&text, &Simulation { leaves, operation: None, figures })?;
    Ok(Exit::Success)
}

impl<L: Leaves> FaultRun<L> {
    fn say(&mut self, text: &str, record: &impl Record) -> Result<()> {
        match self.records {
            Some(records) => records.write(&mut self.out, record)?,
            None => writeln!(self.out, "{text}")?,
        }
        Ok(())
    }

    /// Lets all faults happen in their time, and says which.
    fn schedule(&mut self, mut faults: Vec<(Time, fault::Fault)>) -> Result<()> {
        faults.sort_by_key(|(at, _)| *at);
        for (at, fault) in faults {
            let at_ms = ms(at - Time(0));
            self.say(
                &format!("fault      at {at_ms:>10.3} ms  {fault}"),
                &Fault { fault: fault.to_string(), virtual_ms: at_ms },
            )?;
            self.sim.schedule(at - self.sim.now(), fault);
        }
        Ok(())
    }

    /// One wave, which must be right; whether every leaf that lives was in it.
    fn wave(&mut self) -> Result<bool> {
        let (wave, begun) = (self.waves, self.sim.now());
        let seed = self.seed;
        self.sim.send(self.stream, 0, b"", Some(WAVE_TIMEOUT));
        let Some(result) = self.sim.wait(self.stream) else {
            bail!("wave {wave} never ended; seed {seed}")
        };
        let took = self.sim.now() - begun;
        self.waves += 1;
        self.longest = self.longest.max(took);
        let everyone = self.sim.shape().everyone();
        let (ok, missing) = (&result.coverage.ok, result.coverage.missing());
        let sum = result.payload.as_deref().and_then(scalar::<i64>).unwrap_or(0);
        let once =
            ok.is_disjoint(&missing) && everyone.difference(ok).difference(&missing).is_empty();
        if i64::try_from(ok.len())? != sum || !once || !result.complete {
            bail!("wave {wave} counts {sum}, of {} leaves that answered; seed {seed}", ok.len());
        }
        let all = self.living().is_subset(ok);
        let (ok, missing, at_ms, took_ms) =
            (ok.len(), missing.len(), ms(begun - Time(0)), ms(took));
        self.say(
            &format!("wave {wave:>5} at {at_ms:>10.3} ms  took {took_ms:>10.3} ms  {ok} leaves answered, {missing} did not"),
            &Wave { wave: wave.into(), sum, ok, missing, virtual_ms: at_ms, took_ms },
        )?;
        Ok(all)
    }

    /// Sends waves until every leaf that lives is in one; how many these are.
    fn recover(&mut self) -> Result<u64> {
        let end = self.sim.now() + RECOVERY_MAX;
        while !self.wave()? {
            if self.sim.now() >= end {
                bail!(
                    "after {RECOVERY_MAX:?} some leaves live and are in no wave; seed {}",
                    self.seed
                );
            }
            self.sim.run_for(Duration::from_millis(10));
        }
        Ok(self.living().len())
    }

    /// Leaves that run. (Whoever finds no way to the root ends.)
    fn living(&self) -> RangeSet {
        let shape = self.sim.shape();
        let running = (1..shape.nodes()).filter(|&rank| self.sim.is_running(rank));
        running.filter_map(|rank| shape.leaf(rank)).collect()
    }
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
