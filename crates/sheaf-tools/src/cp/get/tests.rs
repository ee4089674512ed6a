use super::super::PIECE_BYTES;
use super::super::message::Attrs;
use super::*;
use manifest::{ManifestItem, put};
use pieces::CopyPiece;
use sheaf_core::varint;
use sheaf_file::{Owner, Timestamp, Xattr};
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
            put(ManifestItem::Root { of: 0, path: b"/file".to_vec() });
        }
        for _ in 0..16 {
            self.items += 1;
            let path = format!("{}{}", "y/".repeat(15_000), self.items).into_bytes();
            put(ManifestItem::Dir { path, attrs: Default::default() });
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
        let outcome =
            list_within(&client, &cluster.everyone(), (&paths, &[]), &options, within).await;
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

/// The host that lies, among two or three.
const LIAR: u32 = 0;

/// What it says that it has.
struct LyingManifest(Vec<ManifestItem>);

/// What it says when it is asked for a content.
#[derive(Clone, Copy)]
enum LyingPieces {
    /// Other bytes.
    Garbage,
    /// That it is the file that is to be written.
    Same,
    /// More and more.
    Endless,
    /// At once more than was asked for.
    Huge,
}

impl Tool for LyingManifest {
    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        if host.leaf != LIAR {
            return ManifestTool.start(params, host);
        }
        let mut said = Vec::new();
        self.0.iter().for_each(|item| put(&mut said, item));
        Ok(Box::new(Lie { said, then: Step::Done }))
    }
}

impl Tool for LyingPieces {
    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        if host.leaf != LIAR {
            return PiecesTool.start(params, host);
        }
        let asked: Vec<CopyPiece> = postcard::from_bytes(params).unwrap();
        let (mut said, mut then) = (Vec::new(), Step::Done);
        match self {
            Self::Endless => (said, then) = (vec![0; 64 << 10], Step::Pause),
            Self::Huge => said = vec![0; 60 << 20],
            Self::Garbage | Self::Same => {
                for piece in asked.iter().filter(|piece| piece.leaf == LIAR) {
                    if matches!(self, Self::Same) {
                        varint::put(&mut said, u64::from(Errno::SAMEFILE.0.unsigned_abs()));
                    } else {
                        varint::put(&mut said, 0);
                        varint::put_bytes(&mut said, &vec![b'x'; piece.len as usize]);
                    }
                }
            }
        }
        Ok(Box::new(Lie { said, then }))
    }
}

/// Says the same in each step.
struct Lie {
    said: Vec<u8>,
    then: Step,
}

impl Running for Lie {
    fn step(&mut self, answer: &mut Reply, _: &Host) -> Step {
        answer.bytes().extend_from_slice(&self.said);
        self.then
    }
}

/// Copies `path` of all hosts to `here`, of which one lies.
fn get_from_a_liar(
    cluster: &TestCluster,
    hosts: u32,
    path: &str,
    here: &Path,
    options: &CopyOptions,
    (items, pieces): (Vec<ManifestItem>, LyingPieces),
) -> Got {
    let mut tools = Tools::default();
    tools.register(manifest::TOOL, LyingManifest(items));
    tools.register(pieces::TOOL, pieces);
    run(async {
        let client = cluster.session_with("flat", tools);
        let target = Target { members: RangeSet::full(hosts), path: path.to_owned() };
        get(&client, &[target], here, options, &mut |_| {}).await.unwrap()
    })
}

fn root(path: &str) -> ManifestItem {
    ManifestItem::Root { of: 0, path: path.into() }
}

fn dir(path: &str) -> ManifestItem {
    ManifestItem::Dir { path: path.into(), attrs: Attrs { mode: 0o755, ..Attrs::default() } }
}

fn inline(path: &str, content: &str, attrs: Attrs) -> ManifestItem {
    ManifestItem::Inline { path: path.into(), attrs, content: content.into() }
}

fn recursive() -> CopyOptions {
    CopyOptions { recursive: true, sync: false, ..CopyOptions::default() }
}

/// With the name given, what the host has goes into a directory beside the user's own files.
#[test]
fn link_beside_a_file_of_its_name_leads_nowhere() {
    let cluster = TestCluster::new(1);
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("own"), "own").unwrap();
    let options = CopyOptions { exact_name: true, ..recursive() };
    let attrs = Attrs { mode: 0o644, ..Attrs::default() };
    let link = ManifestItem::Symlink {
        path: b"l".to_vec(),
        target: b"../own".to_vec(),
        attrs: attrs.clone(),
    };
    let name = |path: &str, target: &str| ManifestItem::Hardlink {
        path: path.into(),
        target: target.into(),
        root: None,
    };
    let up = ManifestItem::Symlink {
        path: b"up".to_vec(),
        target: b"..".to_vec(),
        attrs: attrs.clone(),
    };
    let told = |got: &Got| {
        let there = got.outcome.errors.iter().map(|error| error.errno);
        there.chain(got.errors.iter().map(|error| error.errno)).collect::<Vec<_>>()
    };
    for (in_place, to) in [(false, "dest"), (true, "dest"), (false, "name"), (true, "name")] {
        let options = CopyOptions { in_place, hard_links: true, ..options.clone() };
        let to = here.path().join(to);
        let copy = |items: Vec<ManifestItem>| {
            let items = [vec![root("/t")], items].concat();
            let lies = (items, LyingPieces::Garbage);
            get_from_a_liar(&cluster, 1, "/t", &to, &options, lies)
        };
        if to.ends_with("name") {
            // The name itself is the link, in this copy or in one before.
            let link = ManifestItem::Symlink {
                path: b"".to_vec(),
                target: b"own".to_vec(),
                attrs: attrs.clone(),
            };
            let file = inline("", "evil", attrs.clone());
            assert_eq!(told(&copy(vec![link, file.clone()])), [Errno::EXIST]);
            assert_eq!(told(&copy(vec![file])), [Errno::ACCES]);
            continue;
        }
        let file = inline("l", "evil", attrs.clone());
        assert_eq!(told(&copy(vec![dir(""), link.clone(), file.clone()])), [Errno::EXIST]);
        let plain = CopyOptions { hard_links: false, ..options.clone() };
        let lies = (vec![root("/t"), dir(""), file.clone()], LyingPieces::Garbage);
        let got = get_from_a_liar(&cluster, 1, "/t", &to, &plain, lies);
        assert_eq!(told(&got), [Errno::ACCES]);
        // With -a it takes the place of the link.
        assert_eq!(told(&copy(vec![dir(""), file])), []);
        assert_eq!(std::fs::read_to_string(to.join("l")).unwrap(), "evil");
        // Nor does a further name of what is not in its manifest.
        let got = copy(vec![dir(""), up.clone(), name("x", "up/own"), name("y", "l")]);
        assert_eq!(told(&got), [Errno::NOENT, Errno::NOENT]);
        assert!(!to.join("x").exists() && !to.join("y").exists());
    }
    assert_eq!(std::fs::read_to_string(here.path().join("own")).unwrap(), "own");
}

#[test]
fn attributes_that_are_not_kept_are_not_taken() {
    let cluster = TestCluster::new(1);
    let here = tempfile::tempdir().unwrap();
    let old = Some(Timestamp { seconds: 1, nanoseconds: 0 });
    let attrs = Attrs {
        mode: 0o6755,
        owner: Owner { uid: Some(u32::MAX), gid: Some(4242) },
        atime: old,
        mtime: old,
        xattrs: vec![Xattr { name: b"user.evil".to_vec(), value: b"1".to_vec() }],
    };
    let items = vec![root("/t"), dir(""), inline("f", "x", attrs)];
    let lies = (items.clone(), LyingPieces::Garbage);
    let got = get_from_a_liar(&cluster, 1, "/t", here.path(), &recursive(), lies);
    assert!(got.outcome.is_ok() && got.errors.is_empty(), "{got:?}");
    let file = here.path().join("n1/t/f");
    let made = std::os::unix::fs::MetadataExt::mtime(&file.metadata().unwrap());
    assert!(made > 1);
    let export = Export::open(here.path()).unwrap();
    let path = Path::new("n1/t/f");
    let metadata = export.stat(path).unwrap();
    assert_eq!((metadata.mode & 0o7000, metadata.gid == 4242), (0, false));
    assert_eq!(sheaf_file::xattrs_of(export.find(path, false).unwrap()).unwrap(), []);
    // Where they are kept, a number that is none is none.
    let options = CopyOptions { sync: false, ..CopyOptions::archive() };
    let got =
        get_from_a_liar(&cluster, 1, "/t", here.path(), &options, (items, LyingPieces::Garbage));
    assert!(got.outcome.is_ok(), "{got:?}");
}

#[test]
fn kinds_that_are_not_asked_for_are_no_answer() {
    let cluster = TestCluster::new(2);
    cluster.write(1, "t", "content");
    let attrs = Attrs::default();
    let link = |path: &str| ManifestItem::Symlink {
        path: path.into(),
        target: b"/root/.ssh/id".to_vec(),
        attrs: attrs.clone(),
    };
    let name = ManifestItem::Hardlink { path: b"h".to_vec(), target: b"".to_vec(), root: None };
    let plain = CopyOptions { sync: false, ..CopyOptions::default() };
    let followed = CopyOptions { dereference: true, ..recursive() };
    for (items, options) in [
        (vec![link("")], &plain),
        (vec![dir("")], &plain),
        (vec![inline("f", "x", attrs.clone())], &plain),
        (vec![link("")], &followed),
        (vec![dir(""), link("l")], &followed),
        (vec![dir(""), name], &recursive()),
    ] {
        let here = tempfile::tempdir().unwrap();
        let items = [vec![root("/t")], items].concat();
        let lies = (items, LyingPieces::Garbage);
        let got = get_from_a_liar(&cluster, 2, "/t", here.path(), options, lies);
        assert_eq!(got.outcome.failed, [(Errno::PROTO, RangeSet::single(LIAR))], "{got:?}");
        assert!(!here.path().join("n1").exists());
        assert_eq!(std::fs::read(here.path().join("n2/t")).unwrap(), b"content");
    }
}

/// A host that says it has a content of another one, under many names that cannot be written here, too.
#[test]
fn content_comes_from_the_hosts_that_have_it() {
    let large = vec![7; PIECE_BYTES as usize + 1];
    for content in [&b"content"[..], &large] {
        let cluster = TestCluster::new(3);
        (1..3).for_each(|leaf| cluster.write(leaf, "t/f", content));
        let claim = |path: String| ManifestItem::File {
            path: path.into_bytes(),
            attrs: Attrs { mode: 0o644, ..Attrs::default() },
            size: content.len() as u64,
            digest: *blake3::hash(content).as_bytes(),
            has_holes: false,
        };
        let names = (0..20).map(|n| claim(format!("{n}")));
        let long = (0..20).map(|n| claim(format!("{}{n}", "x".repeat(300))));
        let items: Vec<_> = [root("/t"), dir("")].into_iter().chain(long).chain(names).collect();
        for pieces in
            [LyingPieces::Garbage, LyingPieces::Same, LyingPieces::Endless, LyingPieces::Huge]
        {
            let here = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(here.path().join("n3/t")).unwrap();
            std::fs::write(here.path().join("n3/t/f"), "old").unwrap();
            let options = CopyOptions { in_place: true, ..recursive() };
            let lies = (items.clone(), pieces);
            let got = get_from_a_liar(&cluster, 3, "/t", here.path(), &options, lies);
            for host in ["n2", "n3"] {
                let copy = std::fs::read(here.path().join(host).join("t/f")).unwrap();
                assert!(copy == content, "{host} {:?} {:?}", got.outcome, got.errors);
            }
            let of_others =
                got.errors.iter().filter(|error| !error.path.starts_with(here.path().join("n1")));
            assert_eq!(of_others.count(), 0, "{:?}", got.errors);
        }
    }
}

/// Many items of little length are held in much more.
#[test]
fn manifest_that_is_held_in_too_much_fails_its_own_host_alone() {
    let long = format!("/t/{}", "x/".repeat(1000));
    let tiny = std::iter::repeat_n(dir(""), 100_000);
    let deep = (0..500).map(|n| root(&format!("/t/{n}/{}x", "x/".repeat(2000))));
    let outside = std::iter::repeat_n(root(&format!("/t/{}", "x".repeat(5000))), 1);
    let attrs = Attrs {
        xattrs: vec![Xattr { name: Vec::new(), value: Vec::new() }; 300_000],
        ..Attrs::default()
    };
    for (items, errno) in [
        ([root(&long)].into_iter().chain(tiny).collect::<Vec<_>>(), Errno::MSGSIZE),
        (deep.collect(), Errno::MSGSIZE),
        (vec![root("/t/x"), inline("", "", attrs)], Errno::MSGSIZE),
        (outside.collect(), Errno::PROTO),
    ] {
        let cluster = TestCluster::new(2);
        cluster.write(1, "t/f", "content");
        let mut tools = Tools::default();
        tools.register(manifest::TOOL, LyingManifest(items));
        run(async {
            let client = cluster.session_with("flat", tools);
            let (paths, options) = (["/t/**".to_owned()], CopyOptions::archive());
            let mut plan = CopyPlan::new(None, &options);
            let within = (&mut plan, 4 << 20);
            let outcome =
                list_within(&client, &cluster.everyone(), (&paths, &[]), &options, within).await;
            let outcome = outcome.unwrap();
            assert_eq!(outcome.failed, [(errno, RangeSet::single(LIAR))], "{outcome:?}");
            assert_eq!(plan.contents.len(), 1);
        });
    }
}

/// One host claims a content with attributes for which there is no room here.
#[test]
fn full_places_of_one_host_keep_nothing_from_others() {
    let content = vec![7; PIECE_BYTES as usize + 1];
    let cluster = TestCluster::new(2);
    cluster.write(1, "t/f", &content);
    let attrs = Attrs {
        mode: 0o644,
        // ext4 has a block for all of them.
        xattrs: vec![Xattr { name: b"user.x".to_vec(), value: vec![7; 60_000] }],
        ..Attrs::default()
    };
    let claim = |name: u32| ManifestItem::File {
        path: name.to_string().into_bytes(),
        attrs: attrs.clone(),
        size: content.len() as u64,
        digest: *blake3::hash(&content).as_bytes(),
        has_holes: false,
    };
    let items = [root("/t"), dir("")].into_iter().chain((0..10).map(claim)).collect();
    let here = tempfile::tempdir().unwrap();
    let options = CopyOptions { xattrs: true, ..recursive() };
    let lies = (items, LyingPieces::Garbage);
    let got = get_from_a_liar(&cluster, 2, "/t", here.path(), &options, lies);
    let copy = std::fs::read(here.path().join("n2/t/f")).unwrap();
    assert!(copy == content, "{:?} {:?}", got.outcome, got.errors);
}

/// What a pattern stands for is the word of a host: it may be the pattern itself, or one name written in many ways.
#[test]
fn names_that_one_host_gives_twice_cost_the_others_nothing() {
    let cluster = TestCluster::new(2);
    cluster.write(1, "a/f", "content");
    let targets = |paths: &[&str]| {
        let target = |path: &&str| Target { members: RangeSet::full(2), path: (*path).to_owned() };
        paths.iter().map(target).collect::<Vec<_>>()
    };
    let file = || inline("", "x", Attrs::default());
    let of = |of, path: String| ManifestItem::Root { of, path: path.into_bytes() };
    let same = vec![of(0, "/a/*".into()), file(), of(1, "/b/*".into()), file()];
    let slashes = |n: usize| "/".repeat(n % 142 + 1);
    let path = |n: usize| format!("{}a{}f", slashes(n), slashes(n / 142));
    let spelled = |n: usize| [of(0, path(n)), file()];
    // 20,000 are compared with each other in minutes.
    let spelled = (0..20_000).flat_map(spelled).collect::<Vec<_>>();
    for (items, paths) in [(same, &["/a/*", "/b/*"][..]), (spelled, &["/a/*"])] {
        let here = tempfile::tempdir().unwrap();
        let mut tools = Tools::default();
        tools.register(manifest::TOOL, LyingManifest(items));
        tools.register(pieces::TOOL, PiecesTool);
        let got = run(async {
            let client = cluster.session_with("flat", tools);
            get(&client, &targets(paths), here.path(), &recursive(), &mut |_| {}).await.unwrap()
        });
        assert!(got.outcome.errors.iter().any(|error| error.errno == Errno::EXIST), "{got:?}");
        assert_eq!(std::fs::read(here.path().join("n2/f")).unwrap(), b"content");
    }
}

/// Of a file that is written in place it is said how much came, and none where another host gave the rest.
#[test]
fn file_that_is_cut_in_place_is_told() {
    for size in [5, PIECE_BYTES + 1] {
        let cluster = TestCluster::new(1);
        let file = ManifestItem::File {
            path: b"".to_vec(),
            attrs: Attrs { mode: 0o644, ..Attrs::default() },
            size,
            digest: [0; 32],
            has_holes: false,
        };
        for in_place in [true, false] {
            let here = tempfile::tempdir().unwrap();
            let own = here.path().join("own");
            std::fs::write(&own, "old").unwrap();
            let options = CopyOptions { exact_name: true, in_place, ..recursive() };
            let lies = (vec![root("/t"), file.clone()], LyingPieces::Garbage);
            let got = get_from_a_liar(&cluster, 1, "/t", &own, &options, lies);
            assert!(!got.outcome.is_ok(), "{got:?}");
            let length = own.metadata().unwrap().len();
            let cut: Vec<_> = got.cut.iter().map(|cut| (cut.path.clone(), cut.bytes)).collect();
            // What comes at once is looked at before it is written.
            if in_place && size > PIECE_BYTES {
                assert_eq!(cut, [(own.display().to_string(), length)]);
                assert!(length > 3);
            } else {
                assert!(cut.is_empty() && length == 3);
            }
        }
    }
}
