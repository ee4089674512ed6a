use super::*;
use crate::message::NodeEntry;
use sheaf_core::files::FileKind;

const TIME: Duration = Duration::from_secs(60);
const ROOT: u64 = 1;
const USER: (u32, u32) = (7, 7);

fn found(node: u64) -> NodeAttributes {
    let found = crate::own::attributes(node, 0o100_644, 1, crate::own::now());
    NodeAttributes { is_lent: true, ..found }
}

fn look_up(node: u64) -> NodeOp {
    NodeOp::Lookup(NodeName { parent: ROOT, name: node.to_string().into() })
}

/// As long as the kernel or the cache has a node the owner has it, and no longer.
#[test]
fn owner_keeps_a_node_as_long_as_kernel_or_cache_has_it() {
    let mut random = fastrand::Rng::with_seed(5);
    let (names, mut hits) = (KeptNames::new(TIME), 0);
    let (mut owner, mut kernel) = ([0u64; 8], [0u64; 8]);
    for _ in 0..20_000 {
        let node = random.usize(2..8);
        let number = node as u64;
        let forgotten = match random.u8(..20) {
            0 => names.lost(),
            1..=3 => {
                let asked = names.asking(None, USER);
                let entry = NodeEntry {
                    name: number.to_string().into(),
                    ino: number,
                    kind: FileKind::File,
                    next: 0,
                    attributes: Some(found(number)),
                };
                owner[node] += 1;
                names.answered(&asked, ROOT, &FileAnswer::Entries(vec![entry]), true)
            }
            4..=7 => {
                let times = random.u64(..=kernel[node]);
                kernel[node] -= times;
                names.forget(if times > 0 { vec![(number, times)] } else { Vec::new() })
            }
            _ => match names.known(&look_up(number), USER, Instant::now()) {
                Known::Attributes(_) => {
                    (kernel[node], hits) = (kernel[node] + 1, hits + 1);
                    Vec::new()
                }
                _ => {
                    let op = look_up(number);
                    let asked = names.begin(&op, (ROOT, 1), USER).unwrap();
                    (owner[node], kernel[node]) = (owner[node] + 1, kernel[node] + 1);
                    let answer = FileAnswer::Node(found(number));
                    names.answered(&asked, ROOT, &answer, false)
                }
            },
        };
        for (number, times) in forgotten {
            owner[number as usize] -= times;
        }
        for node in 2..8 {
            let is_kept = names.state().nodes.contains_key(&(node as u64));
            assert_eq!(owner[node] > 0, kernel[node] > 0 || is_kept, "{node}");
        }
    }
    assert!(hits > 1000, "{hits}");
}

#[test]
fn answers_from_before_a_change_are_not_kept() {
    let now = Instant::now();
    let node = |number| FileAnswer::Node(found(number));
    let is_known =
        |names: &KeptNames| matches!(names.known(&look_up(2), USER, now), Known::Attributes(_));
    let at = NodeName { parent: ROOT, name: b"2".to_vec() };
    let remove = NodeOp::Remove { at, is_directory: false };
    let news = |of| [FileNews { number: 1, of: NewsOf::Names(of) }];
    let names = KeptNames::new(TIME);
    let ask = || names.begin(&look_up(2), (ROOT, 1), USER).unwrap();
    let keep = |asked: &NamesAsked| drop(names.answered(asked, ROOT, &node(2), false));
    keep(&ask());
    assert!(is_known(&names));
    assert_eq!(names.known(&look_up(2), (8, 7), now), Known::Nothing);
    assert_eq!(names.known(&look_up(2), USER, now + TIME), Known::Nothing);
    // Another client changes the file, or the directory.
    for of in [2, ROOT] {
        let asked = ask();
        names.heed(1, now, &news(of));
        assert!(!is_known(&names));
        keep(&asked);
        assert!(!is_known(&names));
        keep(&ask());
        assert!(is_known(&names));
    }
    // This one changes it: from the beginning to the end nothing is known, and then what was asked for after that.
    let before = ask();
    let removes = names.begin(&remove, (ROOT, 1), USER).unwrap();
    let meanwhile = ask();
    keep(&before);
    assert!(!is_known(&names));
    names.answered(&removes, ROOT, &FileAnswer::Done, false);
    keep(&meanwhile);
    assert!(!is_known(&names));
    keep(&ask());
    assert!(is_known(&names));
    // What has become of a change is not known.
    names.unsettled(names.begin(&remove, (ROOT, 1), USER).unwrap());
    keep(&ask());
    assert!(!is_known(&names));
}

/// The kernel looks a name up again when a file is not opened under it. What leads there by then is opened, also if others
/// find that by what is kept.
#[test]
fn file_that_was_looked_up_again_is_not_refused_again() {
    let names = KeptNames::new(TIME);
    let now = Instant::now();
    let open = |node| NodeOp::Open { node, flags: 0 };
    let find = |node| {
        let asked = names.begin(&look_up(node), (ROOT, 0), USER).unwrap();
        names.answered(&asked, ROOT, &FileAnswer::Node(found(node)), false);
    };
    let find_here = |node| assert_ne!(names.known(&look_up(node), USER, now), Known::Nothing);
    for thread in [0, 8] {
        (2..4).for_each(find);
        find_here(2);
        let asked = names.begin(&open(2), (2, thread), USER);
        names.refused(&asked.unwrap(), (2, thread), Errno::STALE);
        assert_eq!(names.looks_again(thread, Instant::now()), thread == 0);
        assert!(!names.looks_again(thread, Instant::now() + REFUSED_TERM));
        assert!(!names.looks_again(9, Instant::now()));
        find(3);
        if thread != 0 {
            find_here(3);
        }
        assert!(names.begin(&open(3), (3, thread), USER).is_none());
    }
}
