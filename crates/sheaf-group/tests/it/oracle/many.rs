//! The loop against many tasks on one group, with futures that are dropped.
//!
//! `SHEAF_GROUP_OPERATIONS` says how many operations there are in all, and `SHEAF_GROUP_SEED` which
//! case alone is run; a case that fails says its seed.
use super::{Files, Loop, Outcome, check_result, check_statuses, files, operation, populate};
use crate::cluster::{Cluster, SHAPES, run};
use crate::concurrent::polled;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sheaf_core::Errno;
use sheaf_group::flags::{O_BESTEFFORT, O_PARTIAL};
use sheaf_group::message::{Operation, Whence};
use sheaf_group::{Group, GroupError, Reading};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

/// What CI runs; all that was run once are 50,000.
const OPERATIONS: u64 = 2_000;
const OPERATIONS_PER_CASE: usize = 200;
const TASKS_MAX: usize = 24;

/// The same for the same seed.
struct Source {
    runner: TestRunner,
    rng: fastrand::Rng,
}

impl Source {
    fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        Self {
            runner: TestRunner::new_with_rng(Config::default(), rng),
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    fn draw<T: std::fmt::Debug>(&mut self, strategy: &impl Strategy<Value = T>) -> T {
        strategy.new_tree(&mut self.runner).unwrap().current()
    }

    fn step(&mut self) -> Step {
        let (operation, input) = (self.draw(&operation()), self.draw(&"[a-c1 \n]{0,6}"));
        Step { operation, input: input.into_bytes(), polls: usize::MAX }
    }
}

#[derive(Clone)]
struct Step {
    operation: Operation,
    input: Vec<u8>,
    /// After so many polls its future is dropped.
    polls: usize,
}

impl Step {
    /// Whether nothing shows that it was done.
    fn leaves_no_trace(&self) -> bool {
        matches!(self.operation, Operation::Pread { .. } | Operation::Fsync | Operation::Fdatasync)
    }

    async fn perform(&self, group: &Group) -> Option<Result<Reading, GroupError>> {
        polled(group.operate(self.operation.clone(), &self.input), self.polls).await
    }
}

/// A group and the loop beside it.
struct Case {
    group: Arc<Group>,
    program: Loop,
    operations: u64,
}

impl Case {
    /// Some tasks do a step each, all at once; the loop does the same in the order in which they
    /// were begun. Those that leave no trace may be dropped.
    async fn together(&mut self, source: &mut Source) {
        let mut steps: Vec<Step> =
            (0..source.rng.usize(1..=TASKS_MAX)).map(|_| source.step()).collect();
        for step in steps.iter_mut().filter(|step| step.leaves_no_trace()) {
            if source.rng.u8(0..3) == 0 {
                step.polls = source.rng.usize(0..6);
            }
        }
        let begun = Arc::new(Mutex::new(Vec::new()));
        let tasks = steps.iter().cloned().enumerate().map(|(at, step)| {
            let (group, begun) = (Arc::clone(&self.group), Arc::clone(&begun));
            tokio::spawn(async move {
                begun.lock().unwrap().push(at);
                step.perform(&group).await
            })
        });
        let tasks: Vec<_> = tasks.collect();
        let mut results = Vec::new();
        for task in tasks {
            results.push(task.await.unwrap());
        }
        let mut last: Option<Vec<Outcome>> = None;
        for at in std::mem::take(&mut *begun.lock().unwrap()) {
            let step = &steps[at];
            last = None;
            // What was dropped left no trace on the members, but may be the last that they did.
            if let Some(result) = results[at].take() {
                let done = self.program.all(&step.operation, &step.input);
                check_result(&self.group, &self.program, &step.operation, &done, result);
                last = Some(done);
            }
        }
        self.operations += steps.len() as u64;
        if let Some(done) = last {
            check_statuses(&self.group, &done).await;
        }
    }

    /// One step whose future is dropped: all members have done it, or none.
    async fn dropped(&mut self, source: &mut Source) {
        // It fails everywhere, changes nothing, and shows that nothing came after it.
        let mark = Operation::Lseek { offset: -1, whence: Whence::Start };
        let done = self.program.all(&mark, b"");
        let marked = self.group.operate(mark.clone(), b"").await;
        check_result(&self.group, &self.program, &mark, &done, marked);
        let step = Step { polls: source.rng.usize(0..6), ..source.step() };
        let result = step.perform(&self.group).await;
        self.operations += 2;
        let statuses = self.group.statuses().await.unwrap();
        let is_marked = statuses.iter().all(|status| *status == Errno::INVAL.status());
        if result.is_none() && is_marked {
            return;
        }
        let done = self.program.all(&step.operation, &step.input);
        check_statuses(&self.group, &done).await;
        if let Some(result) = result {
            check_result(&self.group, &self.program, &step.operation, &done, result);
        }
    }
}

/// Gives how many operations there were.
fn case(seed: u64) -> u64 {
    let mut source = Source::new(seed);
    let files: Files = source.draw(&files());
    let shape = *source.rng.choice(SHAPES).unwrap();
    let (cluster, copy) = (populate(&files), populate(&files));
    run(async {
        let client = cluster.client(shape);
        let program = Loop::open(&copy);
        let flags = super::O_RDWR | O_BESTEFFORT | O_PARTIAL;
        let group = match client.gopen(&cluster.everyone(), "/d", flags, 0).await {
            Ok(group) => Arc::new(group),
            Err(GroupError::Members(_)) if program.members.is_empty() => return 1,
            Err(error) => panic!("{error}"),
        };
        let mut case = Case { group, program, operations: 2 };
        while case.operations < OPERATIONS_PER_CASE as u64 {
            if source.rng.bool() {
                case.together(&mut source).await;
            } else {
                case.dropped(&mut source).await;
            }
        }
        let Case { group, program, operations } = case;
        assert_eq!(Arc::into_inner(group).unwrap().close().await.unwrap().status, 0);
        check_files(&program, &cluster, &copy);
        operations
    })
}

fn check_files(program: &Loop, cluster: &Cluster, copy: &Cluster) {
    for (leaf, path, _) in &program.members {
        let content = |cluster: &Cluster| std::fs::read(cluster.path(*leaf, path)).unwrap();
        assert_eq!(content(cluster), content(copy), "{leaf}:{path}");
    }
}

#[test]
fn many_tasks_and_dropped_futures_do_what_the_loop_does() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    if let Some(seed) = number("SHEAF_GROUP_SEED") {
        case(seed);
        return;
    }
    let wanted = number("SHEAF_GROUP_OPERATIONS").unwrap_or(OPERATIONS);
    let (mut seed, mut operations) = (0, 0);
    while operations < wanted {
        match catch_unwind(AssertUnwindSafe(|| case(seed))) {
            Ok(more) => operations += more,
            Err(cause) => {
                eprintln!(
                    "to replay: SHEAF_GROUP_SEED={seed} cargo test -p sheaf-group --test it many_tasks"
                );
                resume_unwind(cause);
            }
        }
        seed += 1;
    }
    println!("{operations} operations in {seed} cases");
}
