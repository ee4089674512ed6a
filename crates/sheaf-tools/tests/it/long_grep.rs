//! Searches whose answers, or files, are long.
use crate::cp::cluster::{Cluster, run};
use sheaf_core::{Errno, RangeSet};
use sheaf_tools::entry::Merged;
use sheaf_tools::grep::{GrepOptions, GrepOutput, HELD_BYTES, grep};
use std::fmt::Write;

fn options(pattern: &str) -> GrepOptions {
    GrepOptions { patterns: vec![pattern.to_owned()], ..GrepOptions::default() }
}

#[test]
fn answer_may_be_longer_than_what_is_held_of_it() {
    const LINES: usize = 75_000;
    let cluster = Cluster::new(2);
    let mut text = String::new();
    (0..LINES).for_each(|n| writeln!(text, "{n:>1000}").unwrap());
    (0..2).for_each(|leaf| cluster.write(leaf, "f", &text));
    cluster.write(1, "g", "last 1\n");
    run(async {
        let client = cluster.client("flat");
        let (mut seen, mut last, mut held) = (0, Vec::new(), 0);
        let both = RangeSet::full(2);
        let mut sink = |merged: &Merged| {
            let found = merged.sorted();
            seen += found
                .iter()
                .filter(|found| *found.leaves == both && found.entry.text.len() == 1000)
                .count();
            last = found.last().map(|found| found.entry.text.to_vec()).unwrap_or_default();
            held = held.max(merged.bytes());
            Ok(())
        };
        let found =
            grep(&client, &[cluster.target("/[fg]")], &options("1|2|3|4|5|6|7|8|9|0"), &mut sink)
                .await;
        let found = found.unwrap();
        assert!(found.matched && found.partial_folds && found.outcome.is_ok(), "{found:?}");
        assert_eq!((seen, last.as_slice()), (LINES, &b"last 1"[..]));
        // No more is held than what was allowed and what came with the last trip.
        assert!((HELD_BYTES..HELD_BYTES + (16 << 20)).contains(&held), "{held}");
        // What is said of a long file is said at its end.
        let count = GrepOptions { output: GrepOutput::Count, ..options("1$") };
        let mut counts = Vec::new();
        let mut sink = |merged: &Merged| {
            let found = merged.sorted();
            counts.extend(
                found.iter().map(|found| (found.leaves.clone(), found.entry.text.to_vec())),
            );
            Ok(())
        };
        grep(&client, &[cluster.target("/f")], &count, &mut sink).await.unwrap();
        assert_eq!(counts, [(both.clone(), b"7500".to_vec())]);
    });
}

#[test]
fn length_of_lines_is_bounded_as_one_says() {
    let cluster = Cluster::new(1);
    cluster.write(0, "f", format!("{}x\n", " ".repeat(3 << 20)));
    run(async {
        let client = cluster.client("flat");
        let search = async |options: &GrepOptions| {
            let found =
                grep(&client, &[cluster.target("/f")], options, &mut |_| Ok(())).await.unwrap();
            (
                found.matched,
                found.outcome.errors.first().map(|error| (error.errno, error.path.clone())),
            )
        };
        assert_eq!(search(&options("x")).await, (true, None));
        let narrow = GrepOptions { line_bytes_max: Some(1 << 20), ..options("x") };
        assert_eq!(search(&narrow).await, (false, Some((Errno::MSGSIZE, "/f".to_owned()))));
    });
}

#[test]
fn pipes_and_compressed_files_are_searched_aside() {
    use std::io::Write;
    let cluster = Cluster::new(1);
    let pipe = cluster.path(0, "pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    zip.write_all(format!("{}found\n", "nothing\n".repeat(5_000)).as_bytes()).unwrap();
    cluster.write(0, "zip", zip.finish().unwrap());
    run(async {
        let client = cluster.client("flat");
        let options = GrepOptions { decompress: true, ..options("found") };
        let mut lines = Vec::new();
        let mut sink = |merged: &Merged| {
            lines.extend(
                merged
                    .sorted()
                    .iter()
                    .map(|found| (found.path.to_vec(), found.entry.text.to_vec())),
            );
            Ok(())
        };
        let found =
            grep(&client, &[cluster.target("/{pipe,zip}")], &options, &mut sink).await.unwrap();
        // A pipe in which there is nothing is no empty file.
        let errors: Vec<_> =
            found.outcome.errors.iter().map(|error| (error.errno, &*error.path)).collect();
        assert_eq!((errors, found.outcome.status.count), (vec![(Errno::AGAIN, "/pipe")], 1));
        assert_eq!(lines, [(b"/zip".to_vec(), b"found".to_vec())]);
    });
}
