//! Programs that go on while servers are killed and stopped, views are killed, and cables are pulled:
//! `SHEAF_CHAOS_ROUNDS` says how often, `SHEAF_CHAOS_SEED` which are the first.
use super::hosts::{Over, POINT, QUICK, ViewHosts};
use rustix::process::Signal;
use sheaf_testing::sessions::{turn, wait_until};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: u64 = 8;
const HOSTS: usize = 3;
/// How long a mount waits for a host, in seconds, and what no call takes, with room for a machine that is busy.
const PATIENCE: &str = "3";
const CALL_MAX: Duration = Duration::from_secs(20);

/// What one thread has appended to the file of one host, as far as it was told so.
#[derive(Default)]
struct Appended {
    last: u64,
    told: Vec<u64>,
}

/// A thread on a host, and what it is at.
struct Goer {
    host: usize,
    /// When its call has begun, in milliseconds since the beginning; nothing when it is in none.
    since: AtomicU64,
    calls: AtomicU64,
    done: AtomicU64,
    appended: Mutex<[Appended; HOSTS]>,
}

impl Goer {
    /// Goes on until it is over; whatever a call comes to.
    fn run(&self, hosts: &ViewHosts, begun: Instant, is_over: &AtomicBool, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed + self.host as u64);
        while !is_over.load(Ordering::Relaxed) {
            let owner = random.usize(1..=HOSTS);
            let at = |name: &str| hosts.at(self.host, owner, name);
            let now = u64::try_from(begun.elapsed().as_millis()).unwrap();
            self.since.store(now + 1, Ordering::Relaxed);
            let result = match random.u8(..8) {
                0 => fs::read_to_string(at("f"))
                    .map(|content| assert_eq!(content, format!("h{owner}"))),
                1 => fs::metadata(at("f")).map(drop),
                2 => fs::read_dir(at(""))
                    .and_then(|mut names| names.try_for_each(|name| name.map(drop))),
                3 => fs::write(at(&format!("new{}", self.host)), vec![7; random.usize(..100_000)]),
                4 => {
                    fs::rename(at(&format!("new{}", self.host)), at(&format!("other{}", self.host)))
                }
                _ => self.append(owner, &at("log")),
            };
            self.since.store(0, Ordering::Relaxed);
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.done.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
        }
    }

    fn append(&self, owner: usize, log: &Path) -> io::Result<()> {
        let mut all = self.appended.lock().unwrap();
        let own = &mut all[owner - 1];
        own.last += 1;
        let line = format!("{} {}\n", self.host, own.last);
        // Where the view was taken away no file is made.
        let mut log = File::options().append(true).open(log)?;
        log.write_all(line.as_bytes())?;
        own.told.push(own.last);
        Ok(())
    }
}

/// Mounts the view of a host again, whatever became of it.
fn mount_again(hosts: &ViewHosts, host: usize) {
    // A view that its session had given up is mounted again by its own process, perhaps between the two.
    wait_until("it is mounted", || {
        let run = hosts.sheaf(host, &["umount", POINT]);
        let is_away = run.code == Some(0) || run.stderr.contains("no view is mounted there");
        is_away && hosts.mount(host, PATIENCE).code == Some(0)
    });
}

/// One fault and its end.
fn fault(hosts: &ViewHosts, random: &mut fastrand::Rng) -> String {
    let (host, pause) = (random.usize(1..=HOSTS), Duration::from_millis(random.u64(100..3500)));
    let kind = random.u8(..4);
    match kind {
        0 => hosts.server(host).signal(Signal::KILL),
        1 => {
            let server = hosts.server(host);
            server.signal(Signal::STOP);
            std::thread::sleep(pause);
            server.signal(Signal::CONT);
        }
        2 => {
            hosts.machines.cut(host);
            std::thread::sleep(pause);
            hosts.machines.mend(host);
        }
        _ => hosts.mounter(host).signal(Signal::KILL),
    }
    // Whose server was lost, or whose view, mounts it again.
    mount_again(hosts, host);
    format!("{} h{host}, {pause:?}", ["killed", "stopped", "cut off", "view killed"][kind as usize])
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn mount_calls_never_hang_and_acknowledged_appends_survive() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::with(HOSTS, QUICK, PATIENCE) else { return };
    let number = |name| std::env::var(name).ok().and_then(|said: String| said.parse().ok());
    let (rounds, seed) =
        (number("SHEAF_CHAOS_ROUNDS").unwrap_or(ROUNDS), number("SHEAF_CHAOS_SEED").unwrap_or(0));
    for host in hosts.all() {
        fs::write(hosts.disk(host, "f"), format!("h{host}")).unwrap();
        File::create(hosts.disk(host, "log")).unwrap();
    }
    let (begun, is_over) = (Instant::now(), AtomicBool::new(false));
    let goers: Vec<Goer> = hosts
        .all()
        .map(|host| Goer {
            host,
            since: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            done: AtomicU64::new(0),
            appended: Mutex::default(),
        })
        .collect();
    let hanging = || {
        let now = u64::try_from(begun.elapsed().as_millis()).unwrap();
        let most = u64::try_from(CALL_MAX.as_millis()).unwrap();
        let hangs = |goer: &&Goer| {
            let since = goer.since.load(Ordering::Relaxed);
            since > 0 && now.saturating_sub(since) > most
        };
        goers.iter().find(hangs).map(|goer| goer.host)
    };
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        for goer in &goers {
            let (hosts, is_over) = (&hosts, &is_over);
            scope.spawn(move || goer.run(hosts, begun, is_over, seed));
        }
        let is_hanging = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if let Some(host) = hanging() {
                    // It would be waited for: what it waits for goes.
                    hosts.mounter(host).signal(Signal::KILL);
                    return Some(host);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            None
        });
        for round in seed..seed + rounds {
            let mut random = fastrand::Rng::with_seed(round);
            let what = fault(&hosts, &mut random);
            for host in hosts.all() {
                for owner in hosts.all() {
                    wait_until(&format!("{round}: {what}: h{owner} is back on h{host}"), || {
                        fs::read_to_string(hosts.at(host, owner, "f")).is_ok()
                    });
                }
            }
        }
        drop(over);
        assert_eq!(is_hanging.join().unwrap(), None, "a call of this host hangs");
    });
    for goer in &goers {
        let (calls, done) = (&goer.calls, &goer.done);
        assert!(done.load(Ordering::Relaxed) > 100, "h{}: {done:?} of {calls:?}", goer.host);
        for (owner, appended) in hosts.all().zip(&*goer.appended.lock().unwrap()) {
            let log = fs::read_to_string(hosts.disk(owner, "log")).unwrap();
            let own = format!("{} ", goer.host);
            let there: Vec<u64> =
                log.lines().filter_map(|line| line.strip_prefix(&own)?.parse().ok()).collect();
            // In order, each once; what was not told may be there.
            assert!(there.is_sorted_by(|one, next| one < next), "h{} on h{owner}", goer.host);
            for number in &appended.told {
                assert!(
                    there.binary_search(number).is_ok(),
                    "h{} on h{owner}: {number}",
                    goer.host
                );
            }
        }
    }
}
