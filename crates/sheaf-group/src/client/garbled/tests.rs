//! Hosts that answer for others, with another kind of data, with nothing, or otherwise than they
//! announced.
use crate::aggregate::{
    Data, ERROR_CLASSES_MAX, ErrorClass, FILTER, NumberChoice, Numbers, Packed, Partial, register,
};
use crate::client::{Client, Limits};
use crate::entry::{Answer, AnswerForm, Entry, EntryKind, Merged, Sink};
use crate::message::Request;
use crate::server::{TOOLS, body, body_lines, said};
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_tree::filter::Registry;
use sheaf_tree::service::{Leaf, LeafHandle, Provider, Service, ServiceError, Services, Site};
use sheaf_tree::topology::{Names, Placement, Spec, Topology};
use sheaf_tree::{Packet, launch};
use std::sync::Arc;

const HOSTS: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// Its answer is everybody's.
    ForAll,
    /// Everybody has failed.
    AllFailed,
    /// Everybody has more to say.
    AllHaveMore,
    /// Numbers, where answers are contents.
    Numbers,
    /// Nothing at all.
    Nothing,
    /// Many contents at a time.
    Many,
    /// Other lines than it has announced, when it is asked for them.
    OtherLines,
    /// Bytes that do not decode, when it is asked for lines.
    Garbage,
    /// The digest of the others, with another length.
    OtherLength,
    /// That its bodies are more than everybody may send, when it is asked for them.
    TooMuch,
    /// More failed members than can be added up.
    Countless,
    /// More errors than a node keeps.
    ManyErrors,
    /// More members that succeeded than a host can have.
    ManyMembers,
}

/// A server of one tool, whose answer is long enough to be fetched.
struct Teller {
    leaf: u32,
    lie: Option<Lie>,
    answer: Arc<[u8]>,
}

fn answer(text: &str) -> Vec<u8> {
    let mut answer = Answer::new(AnswerForm::default());
    answer.path(b"/file");
    for number in 0..400 {
        let text = format!("{text} {number}");
        assert!(answer.entry(Entry::new(EntryKind::Line, text.as_bytes())).is_continue());
    }
    answer.into_bytes()
}

impl Teller {
    fn lied(&self, lie: Lie, eager: u32) -> Partial {
        let all = RangeSet::full(HOSTS);
        let mut partial = said(self.leaf, true, &self.answer, eager);
        let class = |local, members: RangeSet, text: &[u8]| {
            let digest = *blake3::hash(text).as_bytes();
            let members = MemberSet::of_leaves(local, members);
            Data::class(digest, text.len() as u64, members, Some(text.to_vec()))
        };
        match lie {
            Lie::ForAll => partial.data = class(0, all, &answer("a lie")),
            Lie::AllFailed => {
                partial.add_error(ErrorClass::new(
                    Errno::NOENT,
                    "/f",
                    MemberSet::of_leaves(0, all),
                ));
            }
            Lie::AllHaveMore => partial.more = all,
            Lie::Numbers => {
                let numbers = Numbers::of(self.leaf, 0, b"1 2", &NumberChoice::default());
                partial.data = Data::Numbers(numbers.unwrap());
            }
            Lie::Nothing => partial = Partial::default(),
            Lie::ManyMembers => partial.status.count = 1 << 60,
            Lie::Many => {
                for local in 1..300 {
                    let own = RangeSet::single(self.leaf);
                    let text = format!("lie {local}");
                    partial.data.merge(class(local, own, text.as_bytes())).unwrap();
                }
            }
            Lie::OtherLength => {
                let digest = *blake3::hash(&self.answer).as_bytes();
                let own = MemberSet::of_leaves(0, RangeSet::single(self.leaf));
                partial.data = Data::class(digest, self.answer.len() as u64 + 1, own, None);
            }
            Lie::Countless | Lie::ManyErrors => {
                let count = if lie == Lie::Countless { 1 } else { 3 * ERROR_CLASSES_MAX };
                let error = |number| ErrorClass {
                    more: if lie == Lie::Countless { u64::MAX } else { 0 },
                    ..ErrorClass::new(
                        Errno::NOENT,
                        format!("/{number}"),
                        MemberSet::of_leaves(number as u32, RangeSet::single(self.leaf)),
                    )
                };
                partial.errors = (0..count).map(error).collect();
            }
            Lie::OtherLines | Lie::Garbage | Lie::TooMuch => {}
        }
        partial
    }
}

impl Service for Teller {
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        leaf.consumed(packet.stream, packet.frame_bytes);
        if packet.expect.is_none() {
            return;
        }
        let (request, _) = Request::decode(&packet.payload).unwrap();
        let mut bytes = Vec::new();
        match request {
            Request::Call { answer, .. } => match self.lie {
                Some(lie) => self.lied(lie, answer.eager),
                None => said(self.leaf, true, &self.answer, answer.eager),
            },
            Request::Fetch { leaves, .. } if !leaves.contains(self.leaf) => Partial::default(),
            Request::Fetch { .. } if self.lie == Some(Lie::Garbage) => {
                bytes.push(0xff);
                Partial::default()
            }
            Request::Fetch { lines: false, .. } if self.lie == Some(Lie::TooMuch) => {
                let data = Packed { items: Vec::new(), bytes_max: 0, exceeded: Some(1 << 60) };
                Partial { data: Data::Packed(data), ..Partial::default() }
            }
            Request::Fetch { lines, bytes_max, .. } => {
                let other = answer("a lie");
                let is_lie = self.lie == Some(Lie::OtherLines);
                let text = if is_lie { &other[..] } else { &self.answer };
                if lines {
                    body_lines(self.leaf, text).unwrap()
                } else {
                    body(self.leaf, 0, text, bytes_max)
                }
            }
            _ => Partial::default(),
        }
        .encode(&mut bytes);
        leaf.reply(packet.stream, packet.wave, packet.tag, &bytes);
    }
}

struct Tellers {
    liar: u32,
    lie: Lie,
}

impl Provider for Tellers {
    fn start(&self, site: &Site<'_>, _: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        // The first host has another answer, so that it is not the one of the others that comes at
        // once.
        let leaf = site.leaf.unwrap();
        let answer = answer(if leaf == 0 { "first" } else { "true" }).into();
        let lie = (leaf == self.liar).then_some(self.lie);
        Ok(Box::new(Teller { leaf, lie, answer }))
    }
}

fn client(shape: &str, liar: u32, lie: Lie) -> Client {
    let names: Names = (1..=HOSTS).map(|number| format!("n{number}")).collect();
    let spec = Spec::parse(shape).unwrap();
    let tree = Topology::build(&spec, "root", names.clone(), Placement::LeafHosts).unwrap();
    let mut registry = Registry::with_builtins();
    register(&mut registry);
    assert!(registry.names().contains(&FILTER));
    let services = Services::new(registry).with(TOOLS, Tellers { liar, lie });
    let network = launch::embedded(&tree, &services, &launch::Options::default());
    Client::new(network, names, Limits::default()).unwrap()
}

async fn ask(client: &Client) -> (Vec<(String, String)>, Vec<(Errno, String)>) {
    let mut call = client.call(&RangeSet::full(HOSTS), "tell", b"").unwrap();
    let mut merged = Merged::new();
    while call.next_entries(&mut merged).await.unwrap() {}
    let outcome = call.finish();
    assert!(outcome.silent.is_empty() && outcome.errors.is_empty(), "{outcome:?}");
    let mut lines: Vec<(String, String)> = Vec::new();
    for line in merged.sorted() {
        let text = String::from_utf8_lossy(line.entry.text);
        let (text, _) = text.rsplit_once(' ').unwrap();
        let line = (text.to_owned(), line.leaves.to_string());
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.sort();
    let failed = outcome.failed.iter().map(|(errno, leaves)| (*errno, leaves.to_string()));
    (lines, failed.collect())
}

/// The contents by host, and who failed.
async fn ask_bodies(client: &Client) -> (Vec<(String, bool)>, Vec<(Errno, String)>) {
    let mut call = client.call(&RangeSet::full(HOSTS), "tell", b"").unwrap();
    let mut bodies = Vec::new();
    while call.has_more() {
        for class in call.next_bodies().await.unwrap() {
            let body = class.body;
            let is_honest = body.is_some_and(|body| {
                body.len() as u64 == class.len && blake3::hash(&body).as_bytes() == &class.digest
            });
            bodies.push((class.members.leaves().to_string(), is_honest));
        }
    }
    let outcome = call.finish();
    let failed = outcome.failed.iter().chain(&outcome.silent);
    (bodies, failed.map(|(errno, leaves)| (*errno, leaves.to_string())).collect())
}

/// A host that spoils what it is asked for spoils it for itself: the others' contents come, whoever
/// of them is asked, and no honest host is counted as one that lied.
#[test]
fn host_that_lies_of_lengths_fails_alone() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for lie in [Lie::OtherLength, Lie::TooMuch] {
        for shape in ["flat", "1x1x5", "k-ary:2"] {
            for liar in [1, 4] {
                let (bodies, failed) = runtime.block_on(async {
                    let client = client(shape, liar, lie);
                    // The second time finds all honest hosts there.
                    ask_bodies(&client).await;
                    ask_bodies(&client).await
                });
                let honest = if liar == 1 { "2-4" } else { "1-3" };
                let of = |hosts: &str| (hosts.to_owned(), true);
                let mut got: Vec<_> = bodies.into_iter().filter(|(_, honest)| *honest).collect();
                got.retain(|(hosts, _)| *hosts != liar.to_string());
                let whole = [of("0"), of("1-4")];
                let all = [of("0"), of(honest)];
                assert!(got == all || got == whole, "{lie:?} {shape} {liar}: {got:?}");
                let is_alone = failed.iter().all(|(_, hosts)| *hosts == liar.to_string());
                assert!(is_alone, "{lie:?} {shape} {liar}: {failed:?}");
            }
        }
    }
}

/// What a host has changed is not known if its answer does not decode.
#[test]
fn change_with_a_garbled_answer_is_not_known() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for lie in [Lie::ForAll, Lie::Nothing, Lie::Numbers] {
        let (outcome, unfinished) = runtime.block_on(async {
            let client = client("flat", 2, lie);
            let call = client.call(&RangeSet::full(HOSTS), "tell", b"").unwrap();
            let (mut call, mut merged) = (call.that_changes().await, Merged::new());
            while call.next_entries(&mut merged).await.unwrap() {}
            call.conclude(&mut merged).await.unwrap()
        });
        assert_eq!(outcome.failed, [(Errno::PROTO, RangeSet::single(2))], "{lie:?}");
        assert_eq!(unfinished.unknown, RangeSet::single(2), "{lie:?}");
    }
}

/// What is right of the others stays right, whoever lies, wherever it is, and in whatever form.
#[test]
fn host_that_lies_of_others_fails_alone() {
    use Lie::{
        AllFailed, AllHaveMore, Countless, ForAll, Garbage, Many, ManyErrors, ManyMembers, Nothing,
        Numbers, OtherLines, TooMuch,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lies = [
        ForAll,
        AllFailed,
        AllHaveMore,
        Numbers,
        Nothing,
        Many,
        OtherLines,
        Garbage,
        TooMuch,
        Countless,
        ManyErrors,
        ManyMembers,
    ];
    for lie in lies {
        for shape in ["flat", "1x1x5", "k-ary:2"] {
            for liar in [1, 4] {
                let told = runtime.block_on(async {
                    let client = client(shape, liar, lie);
                    tokio::time::timeout(std::time::Duration::from_secs(60), ask(&client)).await
                });
                let (lines, failed) = told.unwrap_or_else(|_| panic!("{lie:?} {shape} {liar}"));
                // Whether the one that speaks for the others is asked depends on the place.
                let is_asked = liar == 1 || !matches!(lie, OtherLines | Garbage | TooMuch);
                let honest = if liar == 1 { "2-4" } else { "1-3" };
                let all_of_class = ["1-4", honest];
                let mut lines = lines.iter().map(|(text, hosts)| (text.as_str(), hosts.as_str()));
                assert_eq!(lines.next(), Some(("first", "0")), "{lie:?} {shape} {liar}");
                let (text, hosts) = lines.next().unwrap();
                assert!(text == "true" && all_of_class.contains(&hosts), "{lie:?} {text} {hosts}");
                assert_eq!(lines.next(), None, "{lie:?} {shape} {liar}");
                let expected = [(Errno::PROTO, liar.to_string())];
                let expected = if is_asked { &expected[..] } else { &[] };
                assert_eq!(failed, expected, "{lie:?} {shape} {liar}");
            }
        }
    }
}
