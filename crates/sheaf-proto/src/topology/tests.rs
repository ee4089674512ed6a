use super::*;
use proptest::prelude::*;

fn hosts(count: u32) -> Names {
    (1..=count).map(|n| format!("n{n}")).collect()
}

fn build(spec: &str, leaves: u32) -> Topology {
    Topology::build(&Spec::parse(spec).unwrap(), "login", hosts(leaves), Placement::LeafHosts)
        .unwrap()
}

/// What must hold of every tree and subtree.
fn check(tree: &Topology) {
    let mut next_leaf = tree.root().leaves().start;
    let mut stack = vec![tree.root()];
    while let Some(node) = stack.pop() {
        let covered: Vec<_> = node.children().map(|child| child.leaves()).collect();
        if let (Some(first), Some(last)) = (covered.first(), covered.last()) {
            assert_eq!(node.leaves(), first.start..last.end);
            assert!(covered.windows(2).all(|pair| pair[0].end == pair[1].start));
        } else if node.role() == Role::Leaf {
            assert_eq!(node.leaves(), next_leaf..next_leaf + 1);
            assert_eq!(node.leaf_index(), Some(next_leaf));
            assert_eq!(tree.leaf(next_leaf).unwrap().rank(), node.rank());
            assert_eq!(
                tree.leaf_hosts().get(next_leaf - tree.root().leaves().start),
                Some(node.host())
            );
            next_leaf += 1;
        }
        for child in node.children() {
            assert_eq!(child.parent().unwrap().rank(), node.rank());
            assert_eq!(child.depth(), node.depth() + 1);
        }
        assert_eq!(tree.node(node.rank()).unwrap().leaves(), node.leaves());
        stack.extend(node.children().rev());
    }
    assert_eq!(next_leaf, tree.root().leaves().end);
    let ranks: Vec<u32> = tree.nodes().map(NodeRef::rank).collect();
    assert!(ranks.windows(2).all(|pair| pair[0] < pair[1]));
}

fn text(tree: &Topology) -> String {
    fn node(at: NodeRef<'_>, out: &mut String) {
        out.push_str(&format!("{at:?}("));
        at.children().for_each(|child| node(child, out));
        out.push(')');
    }
    let mut out = String::new();
    node(tree.root(), &mut out);
    out
}

fn any_spec() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("auto".to_owned()),
        Just("flat".to_owned()),
        (2u32..6).prop_map(|k| format!("k-ary:{k}")),
        (2u32..6).prop_map(|k| format!("k-nomial:{k}")),
        (1u32..9, 1u32..4, 400u32..500).prop_map(|(a, b, c)| format!("1x{a}x{b}x{c}")),
    ]
}

proptest! {
    #[test]
    fn every_tree_is_a_tree(spec in any_spec(), leaves in 1u32..400) {
        let tree = build(&spec, leaves);
        check(&tree);
        prop_assert_eq!(tree.leaves_len(), leaves);
        let stats = tree.stats();
        prop_assert_eq!(stats.nodes, 1 + stats.inner + stats.leaves);
        if spec == "auto" || spec.starts_with("k-ary:5") {
            prop_assert!(stats.fanout_max <= AUTO_FANOUT);
        }
        for page in [Page::default(), Page { columns: 40, rows: 8 }] {
            let drawing = tree.draw(page);
            prop_assert!(drawing.lines().count() <= page.rows, "{}", drawing);
            prop_assert!(drawing.lines().all(|line| line.chars().count() <= page.columns));
        }
    }

    #[test]
    fn subtrees_round_trip_and_nest(spec in any_spec(), leaves in 1u32..200, pick: prop::sample::Index) {
        let tree = build(&spec, leaves);
        let rank = pick.index(tree.nodes_len() as usize) as u32;
        let below = tree.subtree(rank).unwrap();
        check(&below);
        prop_assert_eq!(below.root().leaves(), tree.node(rank).unwrap().leaves());
        prop_assert_eq!(below.root().role(), tree.node(rank).unwrap().role());
        let mut wire = Vec::new();
        below.encode(&mut wire);
        let mut input = &wire[..];
        let there = Topology::decode(&mut input).unwrap();
        prop_assert!(input.is_empty());
        prop_assert_eq!(text(&there), text(&below));
        for child in tree.node(rank).unwrap().children() {
            prop_assert_eq!(text(&there.subtree(child.rank()).unwrap()), text(&tree.subtree(child.rank()).unwrap()));
        }
        prop_assert!(tree.subtree(tree.nodes_len()).is_none());
    }

    #[test]
    fn files_round_trip(spec in any_spec(), leaves in 1u32..200) {
        let tree = build(&spec, leaves);
        let file = tree.to_file();
        let read = Topology::from_file(&file).unwrap();
        prop_assert_eq!(text(&read), text(&tree));
        prop_assert_eq!(read.to_file(), file);
    }

    #[test]
    fn reading_any_text_never_panics(text in "((a|b|c|login)?:?[0-3]| |=>|;|#|\n|é|=){0,24}") {
        if let Ok(tree) = Topology::from_file(&text) {
            check(&tree);
            prop_assert_eq!(Topology::from_file(&tree.to_file()).unwrap().to_file(), tree.to_file());
        }
    }

    #[test]
    fn decoding_garbage_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 1..64), spec in any_spec(), at: prop::sample::Index, value: u8) {
        bytes[0] = 1;
        let _ = Topology::decode(&mut &bytes[..]);
        // One changed byte of a good one is read, or refused, and then consistent.
        let mut wire = Vec::new();
        build(&spec, 20).subtree(1).unwrap().encode(&mut wire);
        let at = at.index(wire.len());
        wire[at] = value;
        if let Ok(tree) = Topology::decode(&mut &wire[..])
            && tree.nodes_len() < 1000
        {
            check(&tree);
        }
    }
}

#[test]
fn auto_is_shallow_and_narrow() {
    let shape = |leaves| {
        let stats = build("auto", leaves).stats();
        (stats.depth, stats.fanout_max, stats.inner)
    };
    assert_eq!(shape(1), (1, 1, 0));
    assert_eq!(shape(32), (1, 32, 0));
    assert_eq!(shape(33), (2, 6, 6));
    assert_eq!(shape(64), (2, 8, 8));
    assert_eq!(shape(1024), (2, 32, 32));
    assert_eq!(shape(1025), (3, 11, 9 + 94));
}

#[test]
fn million_leaves_are_small() {
    let tree = build("k-ary:32", 1 << 20);
    assert_eq!((tree.depth(), tree.nodes_len()), (4, 1 + 32 + 1024 + 32768 + (1 << 20)));
    assert_eq!(size_of::<TopologyNode>(), 24);
    assert_eq!(tree.leaf(777_777).unwrap().host(), "n777778");
    let mut wire = Vec::new();
    tree.subtree(1).unwrap().encode(&mut wire);
    // Hosts that count up cost next to nothing, so the message of a launch stays small.
    assert!(wire.len() < 4096, "{}", wire.len());
}

#[test]
fn levels_fit_exactly_or_are_pruned_evenly() {
    let spec = Spec::parse("1x8x8").unwrap();
    let error = Topology::build(&spec, "login", hosts(65), Placement::LeafHosts).unwrap_err();
    assert_eq!(error.to_string(), "the tree 1x8x8 has 64 leaves, but there are 65 hosts");
    let children = |leaves| -> Vec<usize> {
        build("1x8x8", leaves).root().children().map(|child| child.children().len()).collect()
    };
    assert_eq!(children(64), [8; 8]);
    assert_eq!(children(20), [2, 3, 2, 3, 2, 3, 2, 3]);
    assert_eq!(children(3), [1, 1, 1]);
}

#[test]
fn mrnets_generators() {
    let leaves = |spec: &str, hosts: u32| {
        let tree = build(spec, hosts);
        check(&tree);
        tree.stats()
    };
    assert_eq!(leaves("k:2@128", 64).inner, 63);
    assert_eq!(leaves("k:3@27", 18).inner, 8);
    assert_eq!(leaves("k:2@128", 64).depth, 7);
    assert_eq!(leaves("g:2:8,4", 12).inner, 2);
    assert_eq!(leaves("g:2:2x6", 12).fanout_max, 6);
    assert_eq!(leaves("g:3:2", 4).inner, 1);
    assert_eq!(leaves("b:16^3", 4096).inner, 272);
    assert_eq!(leaves("b:2x4x8", 64).depth, 3);
    let error = |spec: &str, leaves| {
        Topology::build(&Spec::parse(spec).unwrap(), "", hosts(leaves), Placement::LeafHosts)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(error("g:2:8,4", 13), "the tree g:2:8,4 has 12 leaves, but there are 13 hosts");
    assert_eq!(
        error("g:2:8,4,4", 1),
        "\"g:2:8,4,4\" is no tree: its level 2 names 3 nodes, but there are 2"
    );
    assert_eq!(error("auto", 0), "there are no hosts to build a tree of");
    assert_eq!(error("1x2097152x1x1x1", 2_000_000), "a tree has at most 4194304 nodes");
}

#[test]
fn binomial_tree_has_inner_nodes_on_hosts_of_their_first_leaves() {
    let tree = build("k-nomial:2", 8);
    assert_eq!(tree.stats().inner, 3);
    let children: Vec<_> = tree.root().children().map(|child| child.leaves()).collect();
    assert_eq!(children, [0..1, 1..2, 2..4, 4..8]);
}

#[test]
fn inner_nodes_spread_over_hosts() {
    for spec in ["k-ary:4", "k-ary:2", "k-nomial:2", "k-nomial:3", "auto"] {
        let tree = build(spec, 256);
        let mut on_host = std::collections::HashMap::<String, u32>::new();
        for node in tree.nodes().filter(|node| node.role() == Role::Inner) {
            *on_host.entry(node.host()).or_default() += 1;
            assert!(node.leaves().any(|leaf| tree.leaf(leaf).unwrap().host() == node.host()));
        }
        assert!(on_host.values().all(|&count| count == 1), "{spec}");
    }

    let inner: Names = ["s1", "s2", "s3"].iter().collect();
    let spec = Spec::parse("1x8x8").unwrap();
    let tree = Topology::build(&spec, "login", hosts(64), Placement::InnerHosts(&inner)).unwrap();
    let placed: Vec<_> = tree.root().children().map(NodeRef::host).collect();
    assert_eq!(placed, ["s1", "s2", "s3", "s1", "s2", "s3", "s1", "s2"]);
    assert_eq!(tree.root().host(), "login");
}

#[test]
fn files_say_where_they_are_wrong() {
    let message = |text: &str| Topology::from_file(text).unwrap_err().to_string();
    assert_eq!(message(""), "line 1:1: the file names no node");
    assert_eq!(message("a:0 => b:0"), "line 1:11: the file ends before the \";\" of a statement");
    assert_eq!(message("a:0 => b ;"), "line 1:8: expected host:n, not \"b\"");
    assert_eq!(message("a:0 b:0 ;"), "line 1:5: expected \"=>\" or \";\", not \"b:0\"");
    assert_eq!(message("# é\n  => b:0 ;"), "line 2:3: a statement starts with host:n, not \"=>\"");
    assert_eq!(message("a:0 => ;"), "line 1:8: no child follows the \"=>\"");
    assert_eq!(
        message("a:0 => b:0 => c:0 ;"),
        "line 1:12: a second \"=>\"; is a \";\" missing before it?"
    );
    assert_eq!(
        message("a:0 => b:0 c:0 ;\nc:0 => b:0 ;"),
        "line 2:8: b:0 already has a parent, on line 1"
    );
    assert_eq!(
        message("a:0 => b:0 ;\na:0 => c:0 ;"),
        "line 2:1: a:0 already has a statement, on line 1"
    );
    assert_eq!(message("a:0 => b:0 ;\nc:0 => d:0 ;"), "line 2:1: c:0 is not connected to a:0");
    assert_eq!(message("a:0 => a:0 ;"), "line 1:1: every node has a parent: there is no root");
    assert_eq!(
        message("r:0 => s:0 ; a:0 => b:0 ; b:0 => a:0 ;"),
        "line 1:14: a:0 is its own ancestor"
    );
}

#[test]
fn files_may_be_written_in_any_order() {
    let tree =
        Topology::from_file("n2:0=>n3:0 n4:1; # inner\nlogin:0 =>\n\tn1:0\n\tn2:0 ;\nn1:0 ;")
            .unwrap();
    check(&tree);
    assert_eq!(tree.to_file(), "login:0 => n1:0 n2:0 ;\nn2:0 => n3:0 n4:0 ;\n");
    let lone = Topology::from_file("here:0 ;").unwrap();
    assert_eq!(
        (lone.root().role(), lone.leaves_len(), lone.to_file().as_str()),
        (Role::Root, 0, "here:0 ;\n")
    );
    let _ = (lone.draw(Page::default()), lone.to_svg(), lone.to_dot());
}

#[test]
fn drawings() {
    insta::assert_snapshot!("draw_1x32x32", build("1x32x32", 1024).draw(Page::default()));
    insta::assert_snapshot!("draw_auto_100000", build("auto", 100_000).draw(Page::default()));
    insta::assert_snapshot!("draw_k_nomial_2_of_16", build("k-nomial:2", 16).draw(Page::default()));
    insta::assert_snapshot!("draw_flat_64", build("flat", 64).draw(Page::default()));
    insta::assert_snapshot!("draw_1x2x2x2", build("1x2x2x2", 8).draw(Page::default()));
    insta::assert_snapshot!("dot", build("1x2x2", 4).to_dot());
    insta::assert_snapshot!("svg", build("1x32x2", 64).to_svg());
    insta::assert_snapshot!("file_1x2x20", build("1x2x20", 40).to_file());
}

/// Whoever stays keeps his place between the others; nodes without leaves go.
#[test]
fn leaves_are_left_out_with_the_nodes_that_have_no_others() {
    let tree = Topology::from_file(
        "login:0 => a:0 b:0 n1:0 ; a:0 => n5:0 n2:0 ; b:0 => c:0 d:0 ; c:0 => n3:0 ; d:0 => n4:0 n6:0 ;",
    )
    .unwrap();
    let without = |hosts: &[&str]| tree.without(&|host| hosts.contains(&host));
    let left = |hosts: &[&str]| {
        let left = without(hosts).unwrap();
        check(&left);
        left.to_file().replace('\n', "").replace(":0", "")
    };
    assert_eq!(left(&[]), "login => a b n1 ;a => n5 n2 ;b => c d ;c => n3 ;d => n4 n6 ;");
    assert_eq!(left(&["n3"]), "login => a b n1 ;a => n5 n2 ;b => d ;d => n4 n6 ;");
    assert_eq!(left(&["n3", "n4", "n6", "n5"]), "login => a n1 ;a => n2 ;");
    assert_eq!(left(&["n3", "c"]), "login => a b n1 ;a => n5 n2 ;b => d ;d => n4 n6 ;");
    assert_eq!(left(&["n2", "n3", "n4", "n5", "n6"]), "login => n1 ;");
    let told = |hosts: &[&str]| without(hosts).unwrap_err().to_string();
    assert_eq!(told(&["b", "n4"]), "b is left out, but it is the inner node above n[3,6]");
    assert_eq!(
        told(&["n1", "n2", "n3", "n4", "n5", "n6"]),
        "there are no hosts to build a tree of"
    );
}
