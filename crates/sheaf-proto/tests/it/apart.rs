//! Faults one after another at known times: what random ones found, with nothing else around it.
use crate::oracle::{Crowd, Nature, Outcome, registry};
use rustc_hash::FxHashMap;
use sheaf_core::RangeSet;
use sheaf_proto::Sync;
use sheaf_proto::sim::{Fault, Shape, Sim, SimConfig};
use std::time::Duration;

const SETTLED: Duration = Duration::from_secs(40);

/// A tree with a stream on which the root asks, and one on which every leaf posts a packet for each
/// request.
struct Scene {
    sim: Sim<Crowd>,
    nature: Nature,
    asked: u32,
    waves: u64,
    /// Of the waves of posts, whose packets they held.
    posts: FxHashMap<u64, RangeSet>,
}

impl Scene {
    fn new(counts: &[u32], seed: u64) -> Self {
        let nature =
            Nature { seed, odd: 0, silence: false, long: 0, think: Duration::ZERO, posts: 2 };
        let shape = Shape::balanced(counts);
        let everyone = shape.everyone();
        let mut sim = Sim::new(shape, registry(), Crowd::new(nature), SimConfig::seeded(seed));
        let asked = sim.open(everyone.clone(), "bag", b"", Sync::WaitForAll);
        assert_eq!(sim.open(everyone, "bag", b"", Sync::WaitForAll), nature.posts);
        Self { sim, nature, asked, waves: 0, posts: FxHashMap::default() }
    }

    fn at_ms(&mut self, ms: u64, fault: Fault) -> &mut Self {
        self.sim.schedule(Duration::from_millis(ms), fault);
        self
    }

    fn run_ms(&mut self, ms: u64) -> &mut Self {
        self.sim.run_for(Duration::from_millis(ms));
        self
    }

    fn ask(&mut self, expect: Duration) -> &mut Self {
        let request = self.nature.request(self.asked, self.waves);
        assert_eq!(self.sim.send(self.asked, 7, &request, Some(expect)), self.waves);
        self.waves += 1;
        self
    }

    /// Everybody answers a last wave, and posts its packet; every wave is over, and has everyone in
    /// it.
    fn ends_well(&mut self, what: &str) {
        self.sim.run_for(SETTLED);
        self.ask(Duration::from_secs(30));
        self.sim.run_for(SETTLED);
        let everyone = self.sim.shape().everyone();
        let mut last = Outcome::default();
        while let Some(result) = self.sim.take(self.asked) {
            last = Outcome::default();
            last.take(&self.nature, self.asked, &result, false);
            last.check(&self.nature, self.asked, result.wave, &everyone, false);
        }
        let missed = everyone.difference(&last.ok);
        assert!(
            missed.is_empty(),
            "{what}: {missed} are not in the last wave: {:?}",
            self.sim.notices()
        );
        while let Some(result) = self.sim.take(self.nature.posts) {
            let mut outcome = Outcome::default();
            outcome.take(&self.nature, self.nature.posts, &result, false);
            outcome.check(&self.nature, self.nature.posts, result.wave, &everyone, false);
            self.posts.insert(result.wave, outcome.ok);
        }
        let waves = 0..self.posts.len() as u64;
        let over: Vec<u64> = waves.clone().filter(|wave| self.posts.contains_key(wave)).collect();
        assert!(
            over.iter().copied().eq(waves),
            "{what}: of the waves of posts only {over:?} are over"
        );
        assert_eq!(self.sim.traffic().violations, 0, "{what}: a node accuses another");
    }
}

/// A node is lost and comes back without its leaves, which follow it, while what its parent says of
/// that goes to a grandparent that nobody knows to be dead. Who finds another parent then still has
/// to be told.
#[test]
fn node_returning_below_a_dead_link_is_not_forgotten() {
    for counts in [&[1, 1, 4][..], &[1, 1, 1, 4]] {
        let below = counts.len() as u32 - 1;
        for above in [Fault::Cut { rank: 1 }, Fault::Stop { rank: 1 }, Fault::Isolate { rank: 1 }] {
            for turn in 0..12u64 {
                let mut scene = Scene::new(counts, turn);
                let (lost, back) = (300 + turn * 90, 2_000 + turn * 400);
                scene.ask(Duration::from_secs(20)).run_ms(100);
                scene.at_ms(turn % 3 * 700, above.clone());
                scene.at_ms(lost, Fault::PowerOff { rank: below });
                scene.at_ms(back, Fault::Restart { rank: below });
                scene.ends_well(&format!(
                    "{counts:?}, {above}, lost at {lost} ms, back at {back} ms"
                ));
            }
        }
    }
}

/// A node gives one leaf up and lets the others go to where they are: then nobody is left there on
/// a stream of which one leaf is still its own. Its parent has to know, or does not open the stream
/// for that leaf when it comes back.
#[test]
fn node_that_lets_the_last_go_says_that_nobody_is_left() {
    for turn in 0..6 {
        let mut scene = Scene::new(&[1, 3], turn);
        scene.ask(Duration::from_secs(20)).run_ms(50);
        scene.at_ms(50, Fault::Stop { rank: 2 });
        scene.at_ms(4_000 + turn * 100, Fault::Cut { rank: 3 });
        scene.at_ms(4_300, Fault::Cut { rank: 4 });
        scene.at_ms(12_500 + turn * 200, Fault::Continue { rank: 2 });
        scene.ends_well(&format!("turn {turn}"));
    }
}
