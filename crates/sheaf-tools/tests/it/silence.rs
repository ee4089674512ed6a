//! Work that takes longer than a host may be silent.
use crate::cp::cluster::{Cluster, run};
use sheaf_core::{Errno, RangeSet};
use sheaf_file::Algorithm;
use sheaf_group::Limits;
use sheaf_tools::Target;
use sheaf_tools::cp::{CopyOptions, get};
use sheaf_tools::grep::{GrepOptions, grep};
use sheaf_tools::report::{ReportChoice, cat, report};
use std::time::{Duration, Instant};

const SILENCE: Duration = Duration::from_millis(500);

/// A cluster whose first host has a large file (with nothing in it but holes), and the limits.
fn cluster(bytes: u64) -> (Cluster, Limits) {
    let cluster = Cluster::new(2);
    cluster.write(0, "big", "");
    cluster.write(1, "big", "needle\n");
    let big = std::fs::OpenOptions::new().write(true).open(cluster.path(0, "big")).unwrap();
    big.set_len(bytes).unwrap();
    (cluster, Limits::default().with_timeout(SILENCE))
}

fn target(cluster: &Cluster, path: &str) -> Target {
    Target { members: RangeSet::full(cluster.hosts), path: path.to_owned() }
}

#[test]
fn digests_of_large_files_are_waited_for() {
    // SHA-256 of this takes longer everywhere.
    let (cluster, limits) = cluster(2 << 30);
    run(async {
        let client = cluster.client("flat").with_limits(limits);
        let begun = Instant::now();
        let mut said = Vec::new();
        let what = ReportChoice::Digest(Algorithm::Sha256);
        let outcome = report(&client, &[target(&cluster, "/big")], &what, &mut |merged| {
            said.extend(merged.sorted().iter().map(|entry| entry.entry.text.to_vec()));
            Ok(())
        })
        .await
        .unwrap();
        assert!(begun.elapsed() > SILENCE, "the file is too small for this test");
        assert!(outcome.is_ok(), "{outcome:?}");
        assert_eq!(said.len(), 2);
        // What sha256sum says of two gibibytes of zeros.
        let holes = b"a7c744c13cc101ed66c29f672f92455547889cc586ce6d44fe76ae824958ea51".to_vec();
        assert!(said.contains(&holes), "{said:?}");
    });
}

#[test]
fn searches_of_large_files_are_waited_for() {
    let (cluster, limits) = cluster(192 << 20);
    run(async {
        let client = cluster.client("k-ary:2").with_limits(limits);
        let begun = Instant::now();
        let options = GrepOptions { patterns: vec!["needle".to_owned()], ..GrepOptions::default() };
        let found =
            grep(&client, &[target(&cluster, "/big")], &options, &mut |_| Ok(())).await.unwrap();
        assert!(begun.elapsed() > SILENCE, "the file is too small for this test");
        assert!(found.matched && found.outcome.is_ok(), "{:?}", found.outcome);
    });
}

/// Many ways lead down a long chain of directories, and a pattern with several `**` goes them all.
#[test]
fn patterns_that_have_much_to_look_at_are_waited_for() {
    const DEEP: usize = 80;
    let cluster = Cluster::new(2);
    cluster.write(0, &format!("{}needle", "d/".repeat(DEEP)), "text");
    cluster.write(1, "d/d/needle", "text");
    run(async {
        let client = cluster.client("flat").with_limits(Limits::default().with_timeout(SILENCE));
        let begun = Instant::now();
        let target = target(&cluster, "/**/d/**/d/**/needle");
        let what = ReportChoice::Digest(Algorithm::Sha256);
        let outcome = report(&client, &[target], &what, &mut |_| Ok(())).await.unwrap();
        assert!(begun.elapsed() > SILENCE, "the pattern is too quick for this test");
        assert!(outcome.is_ok() && outcome.status.count == 2, "{outcome:?}");
    });
}

/// A copy from hosts that digest their files when the time is over has come to nothing, and says so
/// of each.
#[test]
fn deadline_ends_a_copy_from_hosts_that_are_at_work() {
    let (cluster, limits) = cluster(64 << 30);
    run(async {
        let deadline = Some(Instant::now() + Duration::from_secs(1));
        let client = cluster.client("flat").with_limits(limits.with_deadline(deadline));
        let into = tempfile::tempdir().unwrap();
        let options = CopyOptions::default();
        let got = get(&client, &[target(&cluster, "/big")], into.path(), &options, &mut |_| ())
            .await
            .unwrap();
        assert_eq!((got.files, got.outcome.status.count), (0, 0), "{:?}", got.outcome);
        assert_eq!(got.outcome.silent, [(Errno::TIMEDOUT, RangeSet::full(2))], "{:?}", got.outcome);
        assert!(
            got.outcome.errors.is_empty() && got.outcome.failed.is_empty(),
            "{:?}",
            got.outcome
        );
    });
}

#[test]
fn checksum_that_the_deadline_ends_is_missed_once() {
    let (cluster, limits) = cluster(64 << 30);
    run(async {
        let deadline = Some(Instant::now() + Duration::from_secs(1));
        let client = cluster.client("flat").with_limits(limits.with_deadline(deadline));
        let what = ReportChoice::Digest(Algorithm::Sha256);
        let outcome =
            report(&client, &[target(&cluster, "/big")], &what, &mut |_| Ok(())).await.unwrap();
        assert_eq!(outcome.member_count(), 2, "{outcome:?}");
        assert!(outcome.failed_count() >= 1, "{outcome:?}");
    });
}

#[test]
fn deadline_ends_a_large_cat() {
    let (cluster, limits) = cluster(64 << 30);
    run(async {
        let begun = Instant::now();
        let deadline = Some(begun + Duration::from_secs(1));
        let client = cluster.client("flat").with_limits(limits.with_deadline(deadline));
        let outcome =
            cat(&client, &[target(&cluster, "/big")], false, &mut |_| Ok(())).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        // The host says itself that it was too late, or is silent: once it is named either way.
        let mut named = outcome.missing_hosts();
        outcome.errors.iter().for_each(|error| named.union_with(&error.members.leaves()));
        assert_eq!((named.to_string().as_str(), outcome.failed_count()), ("0", 1), "{outcome:?}");
        assert!(outcome.errnos().all(|errno| errno == Errno::TIMEDOUT));
    });
}
