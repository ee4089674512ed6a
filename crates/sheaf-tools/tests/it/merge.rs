//! Merging against a loop over the hosts, in trees of any shape.
use proptest::prelude::*;
use sheaf_core::{Errno, RangeSet};
use sheaf_tools::entry::{
    Answer, AnswerForm, Entry, EntryKind, EntryStats, MergeError, Merged, Sink,
};
use std::collections::{BTreeMap, BTreeSet};

/// What one host says: per path, lines with an optional number.
type Host = Vec<(u8, Vec<(Option<u64>, u8)>)>;

fn hosts() -> impl Strategy<Value = Vec<Host>> {
    let line = (proptest::option::weighted(0.3, 0u64..4), 0u8..6);
    let section = (0u8..3, proptest::collection::vec(line, 0..6));
    proptest::collection::vec(proptest::collection::vec(section, 0..4), 1..40)
}

fn text(letter: u8) -> Vec<u8> {
    vec![b'a' + letter; usize::from(letter)]
}

fn answer(host: &Host, form: AnswerForm) -> Vec<u8> {
    let mut answer = Answer::new(form);
    for (path, lines) in host {
        let path = format!("/p{path}");
        answer.path(path.as_bytes());
        for &(number, letter) in lines {
            let text = text(letter);
            assert!(
                answer.entry(Entry { kind: EntryKind::Line, number, text: &text }).is_continue()
            );
        }
        if lines.len() == 5 {
            answer.error(path.as_bytes(), Errno::ACCES);
        }
        answer.stats(EntryStats {
            members: 1,
            files: 1,
            files_matched: 1,
            lines: lines.len() as u64,
            bytes: 7,
        });
    }
    answer.into_bytes()
}

/// Folds the hosts of `leaves` in a tree whose shape follows from `seed`.
fn folded(answers: &[Vec<u8>], leaves: &[u32], seed: u64, merged: &mut Merged) {
    if leaves.len() <= 1 + (seed % 3) as usize {
        for &leaf in leaves {
            merged.fold_raw(leaf, &answers[leaf as usize]).unwrap();
        }
        return;
    }
    let mut children: Vec<&[u32]> = leaves.chunks(1 + (seed / 3 % 5) as usize).collect();
    if children.len() == leaves.len() {
        children = leaves.chunks(leaves.len().div_ceil(2)).collect();
    }
    if seed.is_multiple_of(2) {
        children.reverse();
    }
    for (at, child) in (0u64..).zip(children) {
        let mut below = Merged::new();
        folded(answers, child, seed.wrapping_mul(6364136223846793005).wrapping_add(at), &mut below);
        let mut partial = Vec::new();
        below.encode_partial(&mut partial);
        merged.fold_partial(&partial).unwrap();
    }
}

fn partial_of(merged: &Merged) -> Vec<u8> {
    let mut out = Vec::new();
    merged.encode_partial(&mut out);
    out
}

proptest! {
    #[test]
    fn sets_are_those_of_a_loop_over_the_hosts(hosts in hosts()) {
        let mut expected: BTreeMap<(String, Option<u64>, Vec<u8>), BTreeSet<u32>> = BTreeMap::new();
        let mut failed: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        let mut merged = Merged::new();
        let mut lines_total = 0;
        for (leaf, host) in (0u32..).zip(&hosts) {
            for (path, lines) in host {
                let path = format!("/p{path}");
                for &(number, letter) in lines {
                    expected.entry((path.clone(), number, text(letter))).or_default().insert(leaf);
                }
                if lines.len() == 5 {
                    failed.entry(path).or_default().insert(leaf);
                }
                lines_total += lines.len() as u64;
            }
            merged.fold_raw(leaf, &answer(host, AnswerForm { ordered: false, stats: true })).unwrap();
        }
        let got: BTreeMap<_, BTreeSet<u32>> = merged.sorted().iter().map(|found| {
            let path = String::from_utf8(found.path.to_vec()).unwrap();
            ((path, found.entry.number, found.entry.text.to_vec()), found.leaves.iter().collect())
        }).collect();
        prop_assert_eq!(merged.sorted().len(), got.len());
        prop_assert_eq!(got, expected);
        let got: BTreeMap<String, BTreeSet<u32>> = merged.errors().iter().map(|error| {
            assert_eq!(error.errno, Errno::ACCES);
            (String::from_utf8(error.path.to_vec()).unwrap(), error.leaves.iter().collect())
        }).collect();
        prop_assert_eq!(got, failed);
        prop_assert_eq!(merged.stats().unwrap().lines, lines_total);
    }

    #[test]
    fn any_tree_gives_the_same_bytes(
        hosts in hosts(),
        seeds in proptest::collection::vec(any::<u64>(), 3),
        ordered in any::<bool>(),
    ) {
        let answers: Vec<_> = hosts.iter().map(|host| answer(host, AnswerForm { ordered, stats: ordered })).collect();
        let mut leaves: Vec<u32> = (0..hosts.len() as u32).collect();
        let mut flat = Merged::new();
        folded(&answers, &leaves, 5, &mut flat);
        for seed in seeds {
            let mut merged = Merged::new();
            folded(&answers, &leaves, seed, &mut merged);
            prop_assert_eq!(partial_of(&merged), partial_of(&flat));
            leaves.rotate_left((seed % hosts.len() as u64) as usize);
        }
    }

    #[test]
    fn classes_give_what_single_leaves_give(host in hosts(), leaves in proptest::collection::btree_set(0u32..300, 0..50)) {
        let answer = answer(&host[0], AnswerForm { ordered: false, stats: true });
        let (mut one_by_one, mut at_once) = (Merged::new(), Merged::new());
        for &leaf in &leaves {
            one_by_one.fold_raw(leaf, &answer).unwrap();
        }
        at_once.fold_raw_set(&leaves.iter().copied().collect::<RangeSet>(), &answer).unwrap();
        prop_assert_eq!(partial_of(&one_by_one), partial_of(&at_once));
    }

    #[test]
    fn garbage_never_panics_and_changes_nothing(
        hosts in hosts(),
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        at in any::<proptest::sample::Index>(),
    ) {
        let good = answer(&hosts[0], AnswerForm::default());
        let mut merged = Merged::new();
        merged.fold_raw(0, &good).unwrap();
        let before = partial_of(&merged);
        // Bytes of an answer or a partial, damaged in the middle, are nearer to the truth than
        // noise.
        for valid in [&good, &before] {
            let cut = at.index(valid.len());
            for damaged in [bytes.clone(), [&valid[..cut], &bytes].concat(), valid[..cut].to_vec()] {
                let mut victim = Merged::new();
                victim.fold_raw(0, &good).unwrap();
                if victim.fold_raw(1, &damaged).is_err() && victim.fold_partial(&damaged).is_err() {
                    prop_assert_eq!(partial_of(&victim), before.clone());
                }
            }
        }
    }

    #[test]
    fn limit_is_kept_and_a_refusal_changes_nothing(hosts in hosts(), bytes_max in 0usize..4000) {
        let (mut bounded, mut free) = (Merged::with_limit(bytes_max), Merged::new());
        for (leaf, host) in (0u32..).zip(&hosts) {
            let answer = answer(host, AnswerForm::default());
            let before = partial_of(&bounded);
            match bounded.fold_raw(leaf, &answer) {
                Ok(()) => free.fold_raw(leaf, &answer).unwrap(),
                Err(error) => prop_assert_eq!(error, MergeError::TooLarge { bytes_max }),
            }
            if bounded.len() == free.len() && before == partial_of(&bounded) {
                continue;
            }
            prop_assert_eq!(partial_of(&bounded), partial_of(&free));
        }
    }
}

#[test]
fn equal_answers_of_everybody_cost_a_few_bytes() {
    let mut answer = Answer::new(AnswerForm::default());
    answer.path(b"/etc/services");
    for port in 0..1000 {
        let line = format!("service-{port} {port}/udp");
        assert!(answer.entry(Entry::new(EntryKind::Line, line.as_bytes())).is_continue());
    }
    let answer = answer.into_bytes();
    let partial = |leaves: u32| {
        let mut merged = Merged::new();
        merged.fold_raw_set(&RangeSet::full(leaves), &answer).unwrap();
        partial_of(&merged).len()
    };
    assert!(partial(1 << 20) < answer.len() + 1000 * 3 + 16);
    assert!(partial(1 << 20) <= partial(64) + 4);
}

#[test]
fn forms_do_not_mix() {
    let host = vec![(0, vec![(None, 1)])];
    let mut merged = Merged::new();
    merged.fold_raw(0, &answer(&host, AnswerForm::default())).unwrap();
    let other = answer(&host, AnswerForm { ordered: true, stats: false });
    assert_eq!(merged.fold_raw(1, &other), Err(MergeError::Mixed));
}
