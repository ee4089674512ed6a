//! To hosts.
use super::cluster::{Cluster, SHAPES, run};
use sheaf_core::{Errno, RangeSet};
use sheaf_tools::cp::{CopyOptions, Put, Source, put};
use sheaf_tools::Target;

async fn copy(cluster: &Cluster, shape: &str, sources: Vec<Source>, target: &Target, options: &CopyOptions) -> Put {
    put(&cluster.session(shape), sources, target, options, &mut |_| {}).await.unwrap()
}

#[test]
fn one_file_comes_to_every_host() {
    run(async {
        let here = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(here.path().join("file"), &content).unwrap();
        for shape in SHAPES {
            let cluster = Cluster::new(7);
            let source = vec![Source::Path(here.path().join("file"))];
            let done = copy(&cluster, shape, source, &cluster.target("/copy"), &CopyOptions::default()).await;
            assert!(done.outcome.is_ok() && done.errors.is_empty(), "{done:?}");
            assert_eq!(done.outcome.status.count, 7);
            assert_eq!((done.sent.files, done.sent.bytes), (1, 3_000_000));
            (0..7).for_each(|leaf| assert!(cluster.read(leaf, "copy") == content));
        }
    });
}

#[test]
fn hosts_that_cannot_write_keep_what_they_have() {
    run(async {
        let here = tempfile::tempdir().unwrap();
        std::fs::write(here.path().join("file"), "new").unwrap();
        let cluster = Cluster::new(6);
        for leaf in 0..6 {
            cluster.write(leaf, "etc/file", "old");
        }
        std::fs::remove_file(cluster.path(1, "etc/file")).unwrap();
        std::fs::create_dir(cluster.path(1, "etc/file")).unwrap();
        std::fs::remove_dir_all(cluster.path(3, "etc")).unwrap();
        let source = vec![Source::Path(here.path().join("file"))];
        let options = CopyOptions { exact_name: true, ..CopyOptions::default() };
        let done = copy(&cluster, "1x2x3", source, &cluster.target("/etc/file"), &options).await;
        let mut errors: Vec<_> =
            done.outcome.errors.iter().map(|error| (error.errno, error.path.as_str(), error.members.leaves())).collect();
        errors.sort();
        let expected = [(Errno::NOENT, "/etc/file", RangeSet::single(3)), (Errno::ISDIR, "/etc/file", RangeSet::single(1))];
        assert_eq!(errors, expected);
        assert_eq!(done.outcome.status.count, 4);
        for leaf in [0, 2, 4, 5] {
            assert_eq!(cluster.read(leaf, "etc/file"), b"new");
        }
    });
}
