use super::*;
use sheaf_core::varint;
use sheaf_group::tool::{Host, Reply, Running, Step, Tool};
use sheaf_testing::cluster::{TestCluster, run};

/// The host that lists directories without an end.
const ENDLESS: u32 = 1;

struct Lister;

struct Listing {
    items: u64,
}

impl Tool for Lister {
    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        match host.leaf {
            ENDLESS => Ok(Box::new(Listing { items: 0 })),
            _ => ManifestTool.start(params, host),
        }
    }
}

impl Running for Listing {
    fn step(&mut self, answer: &mut Reply, _: &Host) -> Step {
        let mut put = |item| {
            let item = postcard::to_stdvec(&item).unwrap();
            varint::put_bytes(answer.bytes(), &item);
        };
        if self.items == 0 {
            put(manifest::ManifestItem::Root { of: 0, path: b"/file".to_vec() });
        }
        for _ in 0..16 {
            self.items += 1;
            let path = format!("{}{}", "y/".repeat(15_000), self.items).into_bytes();
            put(manifest::ManifestItem::Dir { path, attrs: Default::default() });
        }
        Step::More
    }
}

#[test]
fn manifest_without_end_fails_its_own_host_alone() {
    let cluster = TestCluster::new(3);
    cluster.write_all("file", "content\n");
    let mut tools = Tools::default();
    tools.register(manifest::TOOL, Lister);
    run(async {
        let client = cluster.session_with("flat", tools);
        let (paths, options) = (["/file".to_owned()], CopyOptions::archive());
        let mut plan = CopyPlan::new(None, &options);
        let within = (&mut plan, 16 << 20);
        let outcome = list_within(&client, &cluster.everyone(), &paths, &options, within).await;
        let outcome = outcome.unwrap();
        assert_eq!(outcome.failed, [(Errno::MSGSIZE, RangeSet::single(ENDLESS))]);
        assert!(outcome.silent.is_empty() && outcome.errors.is_empty(), "{outcome:?}");
        assert!(plan.dirs.is_empty());
        // The times of their files may differ, so they may be several copies.
        let mut leaves = RangeSet::new();
        let copies = plan.contents.iter().flat_map(|content| &content.copies);
        copies.for_each(|copy| leaves.union_with(&copy.leaves));
        assert_eq!(leaves.to_string(), "0,2");
    });
}

#[test]
fn longest_manifest_is_that_of_the_host_that_lists_most() {
    let mut lengths = ManifestLengths::default();
    lengths.add(&RangeSet::full(10), 100);
    lengths.add(&RangeSet::single(3), 50);
    lengths.add(&RangeSet::from_range(5, 7), 60);
    assert_eq!((lengths.total, lengths.longest()), (210, Some((RangeSet::from_range(5, 7), 160))));
    lengths.forget(&RangeSet::from_range(5, 7));
    assert_eq!((lengths.total, lengths.longest()), (150, Some((RangeSet::single(3), 150))));
    lengths.forget(&RangeSet::full(10));
    assert_eq!((lengths.total, lengths.longest()), (0, None));
}
