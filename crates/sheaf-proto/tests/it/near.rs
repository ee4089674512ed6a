//! Links between processes of one machine: they are asked for few signs of life, and who is stopped
//! is noticed all the same.
use crate::oracle::{Crowd, Nature, Outcome, for_seeds, registry};
use sheaf_core::{Errno, RangeSet};
use sheaf_proto::sim::{Fault, Shape, Sim, SimConfig};
use sheaf_proto::{Child, Event, LinkId, Node, NodeConfig, NodeRole, Notice, Sync, Time, Tuning};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(20);

fn tree(shape: &Shape, seed: u64, near: bool) -> (Sim<Crowd>, Nature) {
    let nature = Nature { seed, odd: 0, silence: false, long: 0, think: Duration::ZERO, posts: 0 };
    let config = SimConfig { near, ..SimConfig::seeded(seed) };
    (Sim::new(shape.clone(), registry(), Crowd::new(nature), config), nature)
}

/// What is sent in a minute in which nothing happens.
fn idle_messages(near: bool) -> u64 {
    let (mut sim, _) = tree(&Shape::balanced(&[4, 4]), 1, near);
    sim.run_for(Duration::from_secs(5));
    let before = sim.traffic().messages;
    sim.run_for(Duration::from_secs(60));
    sim.traffic().messages - before
}

#[test]
fn near_peers_are_asked_seldom() {
    // Each asks and answers once in two seconds, and not once a second each way.
    let (near, far) = (idle_messages(true), idle_messages(false));
    assert!(near * 3 <= far * 2, "{near} messages, {far} to other machines");
    let links = 4 + 16;
    assert!(near <= 2 * links * 31 + 4 * 31, "{near}");
}

/// How long it takes until the root is told that the leaf `leaf` is lost.
fn noticed(leaf: u32, near: bool, at: Duration) -> Duration {
    let shape = Shape::balanced(&[4, 4]);
    let (mut sim, _) = tree(&shape, 1, near);
    sim.run_for(at);
    sim.schedule(Duration::ZERO, Fault::Stop { rank: shape.rank_of_leaf(leaf) });
    let since = sim.now();
    let is_lost =
        |notice: &Notice| matches!(notice, Notice::Lost { leaves, .. } if leaves.contains(leaf));
    while !sim.notices().iter().any(is_lost) {
        assert!(
            sim.now() - since < Duration::from_secs(30),
            "leaf {leaf}, near: {near}, stopped at {at:?}"
        );
        sim.run_for(STEP);
    }
    sim.now() - since
}

#[test]
fn near_leaf_that_is_stopped_is_noticed_as_soon_as_a_far_one() {
    let Tuning { heartbeat_timeout, heartbeat_interval, adoption_grace, .. } = Tuning::default();
    for at in (10_000..12_000).step_by(130).map(Duration::from_millis) {
        let took = noticed(6, true, at);
        assert!(
            took <= heartbeat_timeout + heartbeat_interval + adoption_grace,
            "stopped at {at:?}: {took:?}"
        );
        let far = noticed(6, false, at);
        assert!(took <= far + STEP * 2, "stopped at {at:?}: {took:?}, a far one {far:?}");
    }
}

/// Processes of one machine are killed, stopped and continued, and links reset.
fn strike(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let shapes = [&[8][..], &[4, 4], &[1, 1, 4], &[2, 2, 4], &[8, 8]];
    let shape = Shape::balanced(rng.choice(shapes).unwrap());
    let (mut sim, nature) = tree(&shape, seed, true);
    let stream = sim.open(shape.everyone(), "bag", b"", Sync::WaitForAll);
    let mut living = shape.everyone();
    for _ in 0..rng.u32(1..4) {
        let rank = rng.u32(1..shape.nodes());
        let at = Duration::from_millis(rng.u64(0..8_000));
        match rng.u8(0..4) {
            0 | 1 => {
                sim.schedule(at, Fault::Stop { rank });
                if let Some(leaf) = shape.leaf(rank) {
                    living = living.difference(&RangeSet::single(leaf));
                }
                if rng.bool() {
                    sim.schedule(
                        at + Duration::from_millis(rng.u64(100..12_000)),
                        Fault::Continue { rank },
                    );
                }
            }
            2 => {
                sim.schedule(at, Fault::Kill { rank });
                if let Some(leaf) = shape.leaf(rank) {
                    living = living.difference(&RangeSet::single(leaf));
                }
            }
            _ => sim.schedule(at, Fault::Reset { rank }),
        }
    }
    for wave in 0..3 {
        sim.send(stream, 7, nature.request(stream, wave), Some(Duration::from_secs(30)));
        let result = sim.wait(stream).expect("a wave ends");
        let mut outcome = Outcome::default();
        outcome.take(&nature, stream, &result, false);
        outcome.check(&nature, stream, wave, &shape.everyone(), false);
        assert!(
            wave < 2 || living.is_subset(&outcome.ok),
            "{living:?} {outcome:?} {:?}",
            sim.notices()
        );
        sim.run_for(Duration::from_secs(40));
    }
    assert_eq!(sim.traffic().violations, 0, "a node accuses another, and all are honest");
}

#[test]
fn leaves_on_one_machine_are_counted_once() {
    for_seeds(200, strike);
}

/// A root with one child, which is attached and says nothing.
fn quiet_child() -> (Node, Time) {
    let start = Time(1_000_000_000);
    let config = NodeConfig {
        rank: 0,
        role: NodeRole::Root,
        depth: 0,
        leaves: RangeSet::single(0),
        children: vec![Child { rank: 1, leaves: RangeSet::single(0) }],
        stream_base: 0,
        place: Default::default(),
        tuning: Tuning::default(),
    };
    let mut root = Node::new(config, registry(), start);
    root.attach_near(start, LinkId::new(0));
    (root, start)
}

/// Lets time pass until the child is given up; how long that took. Somebody vouches for it for so
/// long.
fn given_up_after(vouched_for: Duration) -> Duration {
    let (mut root, start) = quiet_child();
    loop {
        let now = root.next_timeout().unwrap();
        for link in root.overdue(now) {
            if now - start < vouched_for {
                root.vouch(now, link);
            }
        }
        root.tick(now);
        while root.next_dirty().is_some() {}
        if !root.is_alive(LinkId::new(0)) {
            return now - start;
        }
    }
}

/// The root may be stopped for as long as somebody likes; when it ends, its children look for it no
/// more than others.
#[test]
fn root_of_this_machine_is_not_given_up_for_its_silence() {
    for (holds, lives_on) in [(true, true), (false, false)] {
        let start = Time(1_000_000_000);
        let config = NodeConfig {
            rank: 1,
            role: NodeRole::Leaf,
            depth: 1,
            leaves: RangeSet::single(0),
            children: Vec::new(),
            stream_base: 0,
            place: Default::default(),
            tuning: Tuning::default(),
        };
        let mut leaf = Node::new(config, registry(), start);
        let root = leaf.add_parent(start);
        leaf.attach_near(start, root);
        if holds {
            leaf.hold_to(root);
        }
        let mut now = start;
        while now - start < Duration::from_secs(3600) {
            now = leaf.next_timeout().unwrap().max(now + Duration::from_millis(100));
            leaf.tick(now);
            while leaf.next_dirty().is_some() {
                leaf.output(root).take();
            }
            if !leaf.is_alive(root) {
                break;
            }
        }
        assert_eq!(leaf.is_alive(root), lives_on);
        leaf.link_lost(now, root, Errno::CONNRESET, "its process has ended");
        assert!(!leaf.is_alive(root));
        let orphaned =
            std::iter::from_fn(|| leaf.poll_event()).any(|event| event == Event::Orphaned);
        assert!(orphaned, "then it looks for another one");
        // Another link to the same node is watched like any, until somebody says what is at its
        // end.
        let again = leaf.resume_parent(now);
        leaf.attach_near(now, again);
        assert!(leaf.overdue(now + Duration::from_secs(3600)).contains(&again));
    }
}

#[test]
fn liveness_evidence_extends_the_timeout_up_to_a_limit() {
    let timeout = Tuning::default().heartbeat_timeout;
    assert_eq!(given_up_after(Duration::ZERO), timeout);
    assert_eq!(given_up_after(timeout * 5 / 2), timeout * 3);
    assert_eq!(given_up_after(Duration::MAX), timeout * 10);
}
