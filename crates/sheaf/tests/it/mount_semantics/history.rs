//! Whether what threads of several hosts have done and seen at the same time could have been done one after the
//! other: each operation at one moment between its beginning and its end (linearisability, which holds of all files
//! together if it holds of each).
use super::hosts::{POINT, ViewHosts};
use rustix::io::Errno;
use sheaf_testing::sessions::turn;
use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::Hash;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Threads on each host.
const THREADS: usize = 3;
const HOSTS: usize = 3;
/// Operations of each thread.
const OPERATIONS: usize = 200;
/// Files with records.
const LOGS: usize = 3;
/// Names that all threads change; each has one of its own beside these.
const NAMES: usize = 3;
/// How often a link is tried again that the kernel has refused by mistake.
const LINKS_AGAIN_MAX: usize = 3;
/// The most bytes of a file with records that are read.
const READ_BYTES: usize = 8 * 64;

/// How many moments before an operation that cannot be are shown with it.
const BEFORE: u64 = 400;

/// What a thing is and how operations change it, done one after the other.
trait Sequential {
    type State: Clone + Eq + Hash;
    /// An operation and what came of it.
    type Act: std::fmt::Debug;

    /// The state after an operation; none if that could not come of it.
    fn after(state: &Self::State, act: &Self::Act) -> Option<Self::State>;
}

/// What one thread has done, between two moments.
#[derive(Debug)]
struct Done<A> {
    thread: usize,
    begun: u64,
    ended: u64,
    act: A,
}

/// Whether there is an order; if not, which operation has none.
///
/// The search of Wing and Gong, breadth first: as operations end, all that may have been until then is known, as a
/// state with those operations under way that it has in it. What was met before is not looked at again.
fn check<S: Sequential>(first: S::State, history: &[Done<S::Act>]) -> Result<(), String> {
    let mut moments: Vec<(u64, bool, &Done<S::Act>)> = Vec::new();
    for done in history {
        assert!(done.begun < done.ended && done.thread < 64);
        moments.push((done.begun, true, done));
        moments.push((done.ended, false, done));
    }
    moments.sort_by_key(|(at, ..)| *at);
    let mut under_way: Vec<&Done<S::Act>> = Vec::new();
    let mut possible: HashSet<(u64, S::State)> = HashSet::from([(0, first)]);
    for (_, begins, done) in moments {
        if begins {
            under_way.push(done);
            continue;
        }
        let own = 1 << done.thread;
        let (mut next, mut met) = (HashSet::new(), HashSet::new());
        let mut left: Vec<_> = possible.drain().collect();
        while let Some((has, state)) = left.pop() {
            if has & own != 0 {
                next.insert((has & !own, state));
                continue;
            }
            if !met.insert((has, state.clone())) {
                continue;
            }
            for other in under_way.iter().filter(|other| has & (1 << other.thread) == 0) {
                let after = S::after(&state, &other.act);
                left.extend(after.map(|after| (has | 1 << other.thread, after)));
            }
        }
        under_way.retain(|other| other.thread != done.thread);
        if next.is_empty() {
            let is_near = |other: &&Done<S::Act>| {
                other.begun <= done.ended && other.ended + BEFORE >= done.begun
            };
            let near: Vec<String> =
                history.iter().filter(is_near).map(|other| format!("{other:?}")).collect();
            return Err(format!("{done:?} cannot be; until then:\n{}", near.join("\n")));
        }
        possible = next;
    }
    Ok(())
}

/// A file of records of eight bytes.
struct Records;

#[derive(Debug)]
enum RecordAct {
    Read(Vec<u64>),
    /// The first is overwritten, or written.
    Put(u64),
    Append(u64),
    /// All is cut off.
    Cut,
}

impl Sequential for Records {
    type State = Vec<u64>;
    type Act = RecordAct;

    fn after(state: &Vec<u64>, act: &RecordAct) -> Option<Vec<u64>> {
        let mut after = state.clone();
        match act {
            RecordAct::Read(read) => {
                let seen = &state[..state.len().min(READ_BYTES / 8)];
                return (seen == read).then_some(after);
            }
            RecordAct::Put(number) if after.is_empty() => after.push(*number),
            RecordAct::Put(number) => after[0] = *number,
            RecordAct::Append(number) => after.push(*number),
            RecordAct::Cut => after.clear(),
        }
        Some(after)
    }
}

/// The names of a directory, and the files that they are of.
struct Directory;

#[derive(Debug)]
enum NameAct {
    /// Nothing if the name was there.
    Create(usize, Option<u64>),
    /// Whether it was there.
    Remove(usize, bool),
    Rename(usize, usize, bool),
    /// Whether it is there now, where it was not.
    Link(usize, usize, Result<(), Errno>),
    Look(usize, Option<u64>),
}

impl Sequential for Directory {
    type State = Vec<Option<u64>>;
    type Act = NameAct;

    fn after(state: &Self::State, act: &NameAct) -> Option<Self::State> {
        let mut after = state.clone();
        let is = match *act {
            NameAct::Create(name, Some(file)) => after[name].replace(file).is_none(),
            NameAct::Create(name, None) => after[name].is_some(),
            NameAct::Remove(name, was) => after[name].take().is_some() == was,
            NameAct::Rename(from, _, false) => after[from].is_none(),
            NameAct::Rename(from, to, true) => {
                // Two names of one file stay what they are.
                if after[from] != after[to] {
                    after[to] = after[from].take();
                }
                state[from].is_some()
            }
            NameAct::Link(from, to, Ok(())) => {
                after[to] = after[from];
                state[from].is_some() && state[to].is_none()
            }
            NameAct::Link(from, _, Err(Errno::NOENT)) => after[from].is_none(),
            NameAct::Link(_, to, Err(errno)) => errno == Errno::EXIST && after[to].is_some(),
            NameAct::Look(name, file) => after[name] == file,
        };
        is.then_some(after)
    }
}

fn done<A>(thread: usize, (begun, ended): (u64, u64), act: A) -> Done<A> {
    Done { thread, begun, ended, act }
}

#[test]
fn history_without_an_order_is_found_out() {
    use RecordAct::{Append, Cut, Put, Read};
    let is = |history: &[Done<RecordAct>]| check::<Records>(Vec::new(), history).is_ok();
    assert!(is(&[done(0, (1, 2), Put(7)), done(1, (3, 4), Read(vec![7]))]));
    // Read too late, lost, and made up.
    assert!(!is(&[done(0, (1, 2), Put(7)), done(1, (3, 4), Read(vec![]))]));
    assert!(!is(&[done(0, (1, 2), Put(7)), done(1, (3, 4), Read(vec![8]))]));
    let two =
        |read| [done(0, (1, 2), Append(1)), done(1, (3, 4), Append(2)), done(0, (5, 6), read)];
    assert!(is(&two(Read(vec![1, 2]))));
    assert!(!is(&two(Read(vec![2, 1]))) && !is(&two(Read(vec![2]))));
    // At the same time either may be first, and who has read the later one does not read the earlier one again.
    for (one, two, can) in [(1, 1, true), (1, 2, true), (2, 1, true), (2, 2, true)] {
        let writes = [done(0, (1, 10), Put(1)), done(1, (2, 11), Put(2))];
        let reads = [done(2, (3, 4), Read(vec![one])), done(2, (5, 6), Read(vec![two]))];
        assert_eq!(is(&writes.into_iter().chain(reads).collect::<Vec<_>>()), can, "{one} {two}");
    }
    let history = |last| {
        [
            done(0, (1, 20), Put(1)),
            done(1, (2, 21), Put(2)),
            done(2, (3, 4), Read(vec![1])),
            done(2, (5, 6), Read(vec![2])),
            done(3, (7, 8), Read(vec![last])),
        ]
    };
    assert!(is(&history(2)) && !is(&history(1)));
    // The first of these two records was never beside the second.
    let torn = |read| {
        [
            done(0, (1, 2), Put(1)),
            done(3, (3, 12), Read(read)),
            done(0, (4, 5), Put(2)),
            done(0, (6, 7), Append(3)),
            done(0, (8, 9), Cut),
        ]
    };
    for read in [vec![1], vec![2], vec![2, 3], vec![]] {
        assert!(is(&torn(read.clone())), "{read:?}");
    }
    assert!(!is(&torn(vec![1, 3])));

    use NameAct::{Create, Link, Look, Remove, Rename};
    let is = |history: &[Done<NameAct>]| check::<Directory>(vec![None; 3], history).is_ok();
    let made = || done(0, (1, 2), Create(0, Some(5)));
    assert!(is(&[made(), done(1, (3, 4), Look(0, Some(5))), done(1, (5, 6), Create(0, None))]));
    assert!(!is(&[made(), done(1, (3, 4), Look(0, None))]));
    // Two winners.
    assert!(!is(&[made(), done(1, (1, 3), Create(0, Some(6)))]));
    assert!(!is(&[made(), done(1, (3, 9), Remove(0, true)), done(2, (4, 8), Remove(0, true))]));
    let renames =
        |one, two| [made(), done(1, (3, 9), Rename(0, 1, one)), done(2, (4, 8), Rename(0, 2, two))];
    assert!(is(&renames(true, false)) && is(&renames(false, true)));
    assert!(!is(&renames(true, true)) && !is(&renames(false, false)));
    // It is in both places, or in none.
    let seen = |one, two| {
        [
            made(),
            done(1, (3, 4), Rename(0, 1, true)),
            done(2, (5, 6), Look(0, one)),
            done(2, (7, 8), Look(1, two)),
        ]
    };
    assert!(is(&seen(None, Some(5))) && !is(&seen(Some(5), Some(5))) && !is(&seen(None, None)));
    let linked =
        |result| [made(), done(1, (3, 4), Link(0, 1, result)), done(1, (5, 6), Look(1, Some(5)))];
    assert!(is(&linked(Ok(()))) && !is(&linked(Err(Errno::EXIST))));
}

/// A long history in which one answer is changed has no order any more.
#[test]
fn one_wrong_answer_in_a_long_history_is_found_out() {
    let mut random = fastrand::Rng::with_seed(3);
    for wrong in [false, true] {
        let (mut state, mut history) = (Vec::new(), Vec::new());
        for number in 0..2000u64 {
            let act = match random.u8(..4) {
                0 => RecordAct::Put(number),
                1 if state.len() < 5 => RecordAct::Append(number),
                2 => RecordAct::Cut,
                _ => RecordAct::Read(state.clone()),
            };
            state = Records::after(&state, &act).unwrap();
            // At its moment, within a while that others share.
            let moment = 100 * number + 50;
            let (before, after) = (random.u64(1..300), random.u64(1..300));
            let thread = (number % 9) as usize;
            history.push(done(thread, (moment.saturating_sub(before), moment + after), act));
        }
        if wrong {
            let mut reads = history.iter_mut().filter_map(|done| match &mut done.act {
                RecordAct::Read(read) if !read.is_empty() => Some(read),
                _ => None,
            });
            *reads.nth(100).unwrap() = vec![123_456];
        }
        assert_eq!(check::<Records>(Vec::new(), &history).is_err(), wrong);
    }
}

/// What a thread does.
struct Doer<'a> {
    hosts: &'a ViewHosts,
    owner: usize,
    thread: usize,
    random: fastrand::Rng,
    clock: &'a AtomicU64,
    logs: &'a [Mutex<Vec<Done<RecordAct>>>],
    names: &'a Mutex<Vec<Done<NameAct>>>,
    /// Files keep their numbers as long as they are open.
    kept: &'a Mutex<Vec<File>>,
    open: Vec<File>,
    /// Files are open for writing only while they are written, so that what is read can be lent.
    lets_lend: bool,
}

impl Doer<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.hosts.at(1 + self.thread % HOSTS, self.owner, name)
    }

    fn log(&self, number: usize, append: bool) -> io::Result<File> {
        let path = self.path(&format!("log{number}"));
        File::options().read(true).write(true).append(append).open(path)
    }

    /// One that is open from the beginning to the end.
    fn kept_log(&self, number: usize) -> io::Result<File> {
        match self.lets_lend {
            true => File::open(self.path(&format!("log{number}"))),
            false => self.log(number, false),
        }
    }

    fn run(&mut self) {
        self.open = (0..LOGS).map(|number| self.kept_log(number).unwrap()).collect();
        for _ in 0..OPERATIONS {
            if self.random.bool() { self.record() } else { self.name() }
        }
    }

    fn record(&mut self) {
        let at = self.random.usize(..LOGS);
        // One that is opened anew, or one that was open before.
        let is_new = self.random.u8(..4) == 0;
        let (thread, kind) = (self.thread, self.random.u8(..8));
        let appends = matches!(kind, 0 | 1).then(|| self.log(at, true).unwrap());
        let changes = matches!(kind, 2..=4);
        let number = self.random.u64(..);
        let begun = self.clock.fetch_add(1, Ordering::SeqCst);
        let new = match self.lets_lend && !changes {
            true => is_new.then(|| self.kept_log(at).unwrap()),
            false => (is_new || self.lets_lend).then(|| self.log(at, false).unwrap()),
        };
        let file = new.as_ref().unwrap_or(&self.open[at]);
        let bytes = number.to_ne_bytes();
        let act = match (kind, &appends) {
            (_, Some(log)) => {
                assert_eq!(io::Write::write(&mut &*log, &bytes).unwrap(), 8);
                RecordAct::Append(number)
            }
            (2, _) => {
                file.set_len(0).unwrap();
                RecordAct::Cut
            }
            (3 | 4, _) => {
                assert_eq!(file.write_at(&bytes, 0).unwrap(), 8);
                RecordAct::Put(number)
            }
            _ => {
                let mut read = [0; READ_BYTES];
                let length = file.read_at(&mut read, 0).unwrap();
                assert_eq!(length % 8, 0);
                let records = read[..length].chunks_exact(8);
                RecordAct::Read(
                    records.map(|one| u64::from_ne_bytes(one.try_into().unwrap())).collect(),
                )
            }
        };
        let ended = self.clock.fetch_add(1, Ordering::SeqCst);
        self.logs[at].lock().unwrap().push(done(thread, (begun, ended), act));
    }

    fn name(&mut self) {
        let own = NAMES + self.thread;
        let shared = self.random.usize(..NAMES);
        let name = |number: usize| format!("d/{number}");
        let (one, other) = (self.path(&name(own)), self.path(&name(shared)));
        let there = |result: io::Result<()>| match result.map_err(|error| error.raw_os_error()) {
            Ok(()) => true,
            Err(Some(error)) if error == Errno::NOENT.raw_os_error() => false,
            Err(error) => panic!("{error:?}"),
        };
        let kind = self.random.u8(..8);
        let begun = self.clock.fetch_add(1, Ordering::SeqCst);
        let act = match kind {
            0 => match File::create_new(&other) {
                Ok(file) => {
                    let number = file.metadata().unwrap().ino();
                    self.kept.lock().unwrap().push(file);
                    NameAct::Create(shared, Some(number))
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    NameAct::Create(shared, None)
                }
                Err(error) => panic!("{error}"),
            },
            1 => NameAct::Remove(shared, there(fs::remove_file(&other))),
            // Where the two names of a rename are everybody's its kernel looks them up one after the other, and
            // a file that it meets under both is left as it is: so one name is always the thread's own.
            2 => NameAct::Rename(shared, own, there(fs::rename(&other, &one))),
            3 => NameAct::Rename(own, shared, there(fs::rename(&one, &other))),
            4 => {
                let link = || {
                    let linked = fs::hard_link(&one, &other);
                    linked.map_err(|error| Errno::from_io_error(&error).unwrap())
                };
                let mut linked = link();
                // A kernel that is told that a file has one name left, and then that a name of it that was
                // removed here is gone, counts none for a moment. The name is the thread's own: it is there.
                for _ in 0..LINKS_AGAIN_MAX {
                    if linked == Err(Errno::NOENT) && fs::symlink_metadata(&one).is_ok() {
                        linked = link();
                    }
                }
                NameAct::Link(own, shared, linked)
            }
            _ => {
                let found = match kind {
                    5 => fs::metadata(&other),
                    _ => File::open(&other).and_then(|file| file.metadata()),
                };
                let found = found.map(|found| found.ino());
                let error = found.as_ref().err().filter(|e| e.kind() != io::ErrorKind::NotFound);
                assert!(error.is_none(), "{other:?}: {error:?}");
                NameAct::Look(shared, found.ok())
            }
        };
        let ended = self.clock.fetch_add(1, Ordering::SeqCst);
        self.names.lock().unwrap().push(done(self.thread, (begun, ended), act));
    }
}

#[test]
fn concurrent_operations_on_many_hosts_are_linearizable() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(HOSTS) else { return };
    let seeds = std::env::var("SHEAF_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let seeds = seeds.unwrap_or(4u64);
    for seed in 0..2 * seeds {
        // Half of them with files that cannot be lent, a quarter with such as can, and a quarter with such as
        // could if these mounts had not said no.
        let lets_lend = seed >= seeds;
        if seed == seeds + seeds / 2 {
            mount_again(&hosts, &["--no-lease"]);
        }
        // One that all reach by FUSE but its owner.
        let owner = 1 + seed as usize % HOSTS;
        one_race(&hosts, owner, lets_lend, seed);
    }
}

/// What views keep of names and attributes is recalled before another view changes it. Programs of the owner do nothing.
#[test]
fn kept_names_do_not_outlast_changes_by_other_views() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(HOSTS + 1) else { return };
    let seeds = std::env::var("SHEAF_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    mount_again(&hosts, &["--attribute-cache", "3600"]);
    for seed in 0..seeds.unwrap_or(4u64) {
        one_race(&hosts, HOSTS + 1, seed % 2 == 1, 7000 + seed);
        // Nor does anything that was known of these files outlast their removal at the owner.
        mount_again(&hosts, &["--attribute-cache", "3600"]);
    }
}

/// Mounts the view of each host again, with these options.
pub fn mount_again(hosts: &ViewHosts, options: &[&str]) {
    for host in hosts.all() {
        let gone = hosts.sheaf(host, &["umount", POINT]);
        assert_eq!(gone.code, Some(0), "{gone:?}");
        let words = [&["--quiet", "mount"], options, &[POINT]].concat();
        let run = hosts.sheaf(host, &words);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "h{host}");
    }
}

/// One race for the files of an owner.
fn one_race(hosts: &ViewHosts, owner: usize, lets_lend: bool, seed: u64) {
    for entry in fs::read_dir(hosts.disk(owner, "")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }
    fs::create_dir(hosts.disk(owner, "d")).unwrap();
    let (clock, mut logs) = (AtomicU64::new(0), Vec::new());
    for number in 0..LOGS {
        File::create(hosts.disk(owner, &format!("log{number}"))).unwrap();
        logs.push(Mutex::new(Vec::new()));
    }
    let (names, kept) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for thread in 0..HOSTS * THREADS {
            let random = fastrand::Rng::with_seed(1000 * seed + thread as u64);
            let (clock, logs) = (&clock, &logs[..]);
            let (names, kept, open) = (&names, &kept, Vec::new());
            let mut doer =
                Doer { hosts, owner, thread, random, clock, logs, names, kept, open, lets_lend };
            scope.spawn(move || doer.run());
        }
    });
    for (number, log) in logs.into_iter().enumerate() {
        let history = log.into_inner().unwrap();
        assert!(history.len() > OPERATIONS);
        let order = check::<Records>(Vec::new(), &history);
        assert!(order.is_ok(), "seed {seed}, log{number}: {}", order.unwrap_err());
    }
    let history = names.into_inner().unwrap();
    let made = history.iter().filter_map(|done| match done.act {
        NameAct::Create(_, file) => file,
        _ => None,
    });
    let made: HashSet<u64> = made.collect();
    let seen = history.iter().filter_map(|done| match done.act {
        NameAct::Look(_, file) => file,
        _ => None,
    });
    let (seen, unknown): (Vec<u64>, Vec<u64>) = seen.partition(|file| made.contains(file));
    assert!(unknown.is_empty(), "seed {seed}: nobody was told to have made {unknown:?}");
    assert!(seen.len() > 20, "{}", seen.len());
    let first = vec![None; NAMES + HOSTS * THREADS];
    let order = check::<Directory>(first, &history);
    assert!(order.is_ok(), "seed {seed}, names: {}", order.unwrap_err());
}
