//! What an observer is told of groups and tools. The observer is one for all tests of the process,
//! so each operation here has a name or a number of bytes that no other test has.
use crate::cluster::{Cluster, run};
use crate::concurrent::polled;
use sheaf_core::Errno;
use sheaf_core::observer::{self, Begun, Ending, Observer};
use sheaf_group::message::{DataAggregation, OpenMessage, Operation};
use sheaf_group::tool::{Host, Reply, Running, Step, Tool, Tools};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What begins with this, or is about at least so many bytes, is of these tests.
const NAME: &str = "/observed";
const ASKED_MIN: u64 = 4711;

/// Name, members, offset and bytes asked for.
type Told = (&'static str, String, u64, Option<u64>, u64);

/// What has begun since the last look, by its mark, which no other has.
#[derive(Default)]
struct Seen {
    marks: AtomicU64,
    begun: Mutex<BTreeMap<u64, (Told, Option<Ending>)>>,
}

impl Observer for Seen {
    fn begins(&self, begun: &Begun<'_>) -> u64 {
        let name = String::from_utf8_lossy(begun.name).into_owned();
        if !name.starts_with(NAME) && begun.asked < ASKED_MIN || begun.asked > ASKED_MIN + 100 {
            return u64::MAX;
        }
        let mark = self.marks.fetch_add(1, Ordering::Relaxed);
        let told = (begun.kind, name, begun.members, begun.offset, begun.asked);
        self.begun.lock().unwrap().insert(mark, (told, None));
        mark
    }

    fn ends(&self, mark: u64, ending: Ending) {
        // What was looked at before it ended is not there any more.
        if let Some((_, before)) = self.begun.lock().unwrap().get_mut(&mark) {
            assert_eq!(before.replace(ending), None, "it ends once");
        }
    }
}

impl Seen {
    /// What was seen since the last look, sorted.
    fn look(&self) -> Vec<(Told, Option<Ending>)> {
        let begun = std::mem::take(&mut *self.begun.lock().unwrap());
        let mut seen: Vec<_> = begun.into_values().collect();
        seen.sort_by(|a, b| a.0.cmp(&b.0));
        seen
    }

    /// What was seen of groups, and how often each operation on a file.
    fn check(&self, groups: &[(Told, Ending)], files: &[(Told, Ending)]) {
        let mut expected: Vec<_> =
            groups.iter().map(|(told, ending)| (told.clone(), Some(*ending))).collect();
        for (told, ending) in files {
            expected.extend((0..HOSTS).map(|_| (told.clone(), Some(*ending))));
        }
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(self.look(), expected);
    }
}

const HOSTS: u64 = 3;

fn told(kind: &'static str, name: &str, members: u64, offset: Option<u64>, asked: u64) -> Told {
    (kind, name.to_owned(), members, offset, asked)
}

/// Says `ten bytes!`.
struct Ten;

impl Tool for Ten {
    fn start(&self, _: &[u8], _: &Host) -> Result<Box<dyn Running>, Errno> {
        Ok(Box::new(Self))
    }
}

impl Running for Ten {
    fn step(&mut self, answer: &mut Reply, _: &Host) -> Step {
        answer.bytes().extend_from_slice(b"ten bytes!");
        Step::Done
    }
}

#[test]
fn observer_sees_groups_files_and_tools() {
    let cluster = Cluster::new(HOSTS as u32);
    cluster.write_all("observed", "ten bytes!");
    let seen = Arc::new(Seen::default());
    observer::set(seen.clone());
    run(async {
        let mut tools = Tools::default();
        tools.register("/observed tool", Ten);
        let (client, everyone) = (cluster.session_with("k-ary:2", tools), cluster.everyone());

        let group = client.gopenat(&everyone, NAME, 0, 0).await.unwrap();
        let done = Ending::done(0);
        seen.check(
            &[(told("group.open", NAME, HOSTS, None, 0), done)],
            &[(told("file.open", NAME, 1, None, 0), done)],
        );

        group.read(4711, DataAggregation::Zero).await.unwrap();
        seen.check(
            &[(told("group.read", "", HOSTS, None, 4711), Ending::done(30))],
            &[(told("file.read", NAME, 1, None, 4711), Ending::done(10))],
        );

        group.pwrite(&[0; 4712], 7).await.unwrap_err();
        let refused = Ending::failed(Errno::BADF);
        seen.check(
            &[(told("group.pwrite", "", HOSTS, Some(7), 4712), refused)],
            &[(told("file.pwrite", NAME, 1, Some(7), 4712), refused)],
        );

        // It may be done at the first look.
        let mut tries = 0;
        while polled(group.read(4713, DataAggregation::Zero), 1).await.is_some() {
            tries += 1;
            assert!(tries < 1000, "it is never dropped midway");
            seen.look();
        }
        let begun = seen.look().into_iter().find(|(told, _)| told.0 == "group.read");
        assert_eq!(begun, Some((told("group.read", "", HOSTS, None, 4713), Some(Ending::Dropped))));
        group.close().await.unwrap();
        seen.look();

        client.gopenat(&everyone, "/observed/not", 0, 0).await.unwrap_err();
        let missing = Ending::failed(Errno::NOTDIR);
        seen.check(
            &[(told("group.open", "/observed/not", HOSTS, None, 0), missing)],
            &[(told("file.open", "/observed/not", 1, None, 0), missing)],
        );

        let operation = Operation::Pread { count: 4714, offset: 4, data: DataAggregation::Zero };
        client
            .once(&everyone, OpenMessage::new(vec![NAME.into()], 0, 0), operation, b"")
            .await
            .unwrap();
        seen.check(
            &[(told("group.pread", NAME, HOSTS, Some(4), 4714), Ending::done(18))],
            &[
                (told("file.open", NAME, 1, None, 0), done),
                (told("file.pread", NAME, 1, Some(4), 4714), Ending::done(6)),
            ],
        );

        let mut call = client.call(&everyone, "/observed tool", b"").unwrap();
        call.next_bodies().await.unwrap();
        drop(call.finish());
        drop(client.call(&everyone, "/observed tool", b"").unwrap());
        let call = told("tool.call", "/observed tool", HOSTS, None, 0);
        seen.check(&[(call.clone(), Ending::done(30)), (call, Ending::Dropped)], &[]);
    });
    observer::take();
}
