//! Processes that take long to start, as all do when thousands start at once: they are waited for
//! while they live. Who is stopped is noticed.
use crate::recovery::quick;
use crate::tree::{DEADLINE, Tree, ask, next_sum, runtime};
use sheaf_core::RangeSet;
use sheaf_testing::sessions::turn;
use sheaf_tree::Notice;
use sheaf_tree::launch::Carrier;
use std::os::unix::fs::PermissionsExt;

const LEAVES: u32 = 4;

/// A tree whose nodes run this script, in which `$d` is a directory and `$sheaf` the real program.
async fn tree_of(script: &str, carrier: Carrier) -> Tree {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sheaf");
    let head = format!("#!/bin/sh\nd={:?} sheaf={:?}\n", dir.path(), env!("CARGO_BIN_EXE_sheaf"));
    std::fs::write(&path, head + script + "\nexec \"$sheaf\" \"$@\"\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Tree::begin("flat", LEAVES, carrier, quick(), dir).await
}

#[test]
fn process_that_starts_late_is_waited_for_while_it_lives() {
    let _turn = turn();
    runtime().block_on(async {
        let tree = tree_of("while [ ! -e \"$d/go\" ]; do sleep 0.05; done", Carrier::Unix).await;
        // Whoever has spoken before would be given up by then.
        let early = tree.network.ready(quick().heartbeat_timeout * 3).await;
        assert_eq!(early, None, "{:?}", tree.network.notices());
        std::fs::write(tree.dir.path().join("go"), "").unwrap();
        let ready = tree.network.ready(DEADLINE).await;
        assert_eq!(ready, Some(RangeSet::from_range(0, LEAVES)), "{:?}", tree.network.notices());
        let stream = tree.sums();
        ask(&stream).await;
        assert_eq!(next_sum(&stream).await, u64::from(LEAVES));
        tree.end().await;
    });
}

#[test]
fn process_that_is_stopped_before_it_has_spoken_is_noticed() {
    let _turn = turn();
    runtime().block_on(async {
        for carrier in [Carrier::Unix, Carrier::Tcp] {
            stopped_before_it_has_spoken(carrier).await;
        }
    });
}

async fn stopped_before_it_has_spoken(carrier: Carrier) {
    let tree = tree_of("mkdir \"$d/first\" 2>/dev/null && kill -STOP $$", carrier).await;
    let ready = tree.network.ready(DEADLINE).await.expect("the others start");
    assert_eq!(ready.len(), u64::from(LEAVES) - 1);
    let lost = tree.network.notices().into_iter().find_map(|notice| match notice {
        Notice::Lost { cause, .. } => Some(cause),
        _ => None,
    });
    let lost = lost.expect("a notice of the loss");
    let said = match carrier {
        Carrier::Unix => {
            lost.strip_prefix("no sign of life for ").and_then(|rest| rest.strip_suffix(" s"))
        }
        _ => lost
            .strip_prefix("its process is stopped, for ")
            .and_then(|rest| rest.strip_suffix(" s by now")),
    };
    let silent: u64 = said.and_then(|seconds| seconds.parse().ok()).expect(&lost);
    // Whoever is vouched for has ten times as long.
    assert!(silent < (quick().heartbeat_timeout * 10).as_secs(), "{lost}");
    tree.end().await;
}
