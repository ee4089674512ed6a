//! Thousands of trees of tasks, made up by a seed and run without threads or clocks: what is promised
//! holds after every call.
use super::*;
use std::collections::BTreeMap;

/// Numbers that follow from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

const MS: u64 = 1_000_000;
const RAN_MS_MAX: u64 = 50;

/// A task that runs in the simulation.
struct Simulated {
    ends: Duration,
    host: HostId,
    phase: Phase,
    depth: u32,
    place: TaskPlace,
    needs: Needs,
    makes_bytes: u64,
}

struct Simulation {
    dice: Dice,
    now: Duration,
    limits: Vec<ScheduleLimits>,
    queue_bytes_max: u64,
    schedule: Schedule<(u32, TaskPlace, Needs, u64)>,
    running: BTreeMap<u64, (GrantId, Simulated)>,
    made: u64,
    ended: u64,
    /// Since when a phase has had work and room, and nothing of it ran.
    starved: [Option<Duration>; 3],
    /// What was granted of rates.
    granted: Vec<Needs>,
    order: BTreeMap<Phase, Vec<TaskPlace>>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let mut limits = Vec::new();
        for _ in 0..=dice.below(3) {
            let mut of = ScheduleLimits::default();
            for resource in Resource::ALL {
                if dice.is(60) {
                    let limit = if resource.is_rate() { 1 << 20 } else { 1 + dice.below(40) };
                    of = of.with(resource, limit);
                }
            }
            limits.push(of);
        }
        let width = AdaptiveWidth::new(1 + dice.below(4) as usize, 1 + dice.below(32) as usize);
        let widths = Phase::ALL.map(|_| 1 + dice.below(8) as usize);
        let queue_bytes_max = 1 + dice.below(200);
        let settings = ScheduleSettings { hosts: limits.clone(), widths, width, queue_bytes_max };
        let granted = vec![Needs::default(); limits.len()];
        let mut simulation = Self {
            dice,
            now: Duration::ZERO,
            limits,
            queue_bytes_max,
            schedule: Schedule::new(settings),
            running: BTreeMap::new(),
            made: 0,
            ended: 0,
            starved: [None; 3],
            granted,
            order: BTreeMap::new(),
        };
        for root in 0..=simulation.dice.below(3) {
            simulation.make(None, Phase::Walk, 0, &[root as u32], 0);
        }
        simulation
    }

    fn make(&mut self, by: Option<GrantId>, phase: Phase, depth: u32, place: &[u32], bytes: u64) {
        let mut needs = Needs::default();
        for resource in Resource::ALL {
            if self.dice.is(40) {
                let most = if resource.is_rate() { 1 << 18 } else { 20 };
                *needs.of_mut(resource) = self.dice.below(most);
            }
        }
        let host =
            (self.dice.is(50)).then(|| HostId(self.dice.below(self.limits.len() as u64) as usize));
        let makes_bytes = if phase == Phase::Transfer { 0 } else { self.dice.below(60) };
        let place: TaskPlace = place.into();
        self.made += 1;
        self.schedule.push(
            by,
            Task {
                phase,
                kind: TaskKind::ALL[self.dice.below(4) as usize],
                host,
                place: place.clone(),
                lane: (phase == Phase::Directory).then_some(u64::from(place[0])),
                needs,
                queue_bytes: bytes,
                makes_bytes,
                work: (depth, place, needs, makes_bytes),
            },
        );
    }

    /// Begins all that can be begun, and goes on to when something ends.
    fn step(&mut self) -> bool {
        loop {
            let blocked = Phase::ALL.map(|phase| self.is_blocked(phase));
            let idle = Phase::ALL.map(|phase| self.schedule.phases[phase as usize].running == 0);
            match self.schedule.next(self.now) {
                Next::Run(id, host, (depth, place, needs, makes_bytes)) => {
                    let phase = self.schedule.running[&id].phase;
                    for later in Phase::ALL.into_iter().filter(|later| *later > phase) {
                        assert!(idle[phase as usize] || blocked[later as usize], "priority");
                    }
                    self.order.entry(phase).or_default().push(place.clone());
                    let ran = Duration::from_nanos(self.dice.below(RAN_MS_MAX * MS));
                    let granted = self.schedule.running[&id].granted;
                    for resource in Resource::ALL {
                        *self.granted[host.0].of_mut(resource) += granted.of(resource);
                    }
                    let ends = self.now + ran;
                    let task = Simulated { ends, host, phase, depth, place, needs, makes_bytes };
                    self.running.insert(self.schedule.begun, (id, task));
                    self.check();
                }
                Next::Wait(until) => {
                    let first = self.running.values().map(|(_, task)| task.ends).min();
                    let next = first.into_iter().chain(until).min();
                    self.now = self.now.max(next.expect("nothing runs, and nothing will"));
                    break;
                }
                Next::Over => return false,
            }
        }
        let over: Vec<_> = (self.running.iter())
            .filter(|(_, (_, task))| task.ends <= self.now)
            .map(|(at, _)| *at)
            .collect();
        for at in over {
            let (id, task) = self.running.remove(&at).unwrap();
            self.end(id, &task);
        }
        true
    }

    /// Whether nothing of a phase can be begun by its turn: its first task lacks something, or may be
    /// refused what is kept for a task that comes before it.
    fn is_blocked(&mut self, phase: Phase) -> bool {
        for host in &mut self.schedule.hosts {
            host.refill(self.now);
        }
        let schedule = &self.schedule;
        let state = &schedule.phases[phase as usize];
        let mut claims = vec![ResourceClaims::default(); self.limits.len()];
        for before in Phase::ALL {
            let other = &schedule.phases[before as usize];
            if before > phase || other.running == 0 {
                other.queue.heads().for_each(|head| self.claim_lacking(head, &mut claims));
            }
        }
        let fits = |task: &Task<_>| {
            let needs = schedule.costs.corrected(task.kind, &task.needs);
            let room = phase.next().is_none_or(|next| schedule.has_room(next, task.makes_bytes));
            room && schedule.hosts.iter().zip(&claims).enumerate().any(
                |(number, (host, claims))| {
                    task.host.is_none_or(|on| on.0 == number)
                        && host.lacks(&needs, claims).is_none()
                },
            )
        };
        state.queue.heads().next().is_none_or(|head| !fits(head))
            || state.running >= schedule.settings.widths[phase as usize]
            || schedule.running.len() >= schedule.settings.width.now()
    }

    /// All that a task lacks, on each host.
    fn claim_lacking<T>(&self, task: &Task<T>, claims: &mut [ResourceClaims]) {
        let needs = self.schedule.costs.corrected(task.kind, &task.needs);
        for (host, claims) in self.schedule.hosts.iter().zip(claims) {
            for resource in Resource::ALL {
                let mut alone = Needs::default();
                *alone.of_mut(resource) = needs.of(resource);
                if host.lacks(&alone, &ResourceClaims::default()).is_some() {
                    claims.claim(resource);
                }
            }
        }
    }

    fn end(&mut self, id: GrantId, task: &Simulated) {
        let mut left = task.makes_bytes;
        for number in 0..self.dice.below(4) as u32 {
            let place: Vec<u32> = task.place.iter().copied().chain([number]).collect();
            if task.phase == Phase::Walk && task.depth < 5 && self.dice.is(60) {
                self.make(Some(id), Phase::Walk, task.depth + 1, &place, 1);
            }
            let bytes = self.dice.below(left + 1);
            if let Some(next) = task.phase.next() {
                left -= bytes;
                self.make(Some(id), next, task.depth, &place, bytes);
            }
        }
        let mut used = task.needs;
        for resource in Resource::ALL {
            let used = used.of_mut(resource);
            *used = *used * (50 + self.dice.below(100)) / 100;
        }
        let granted = self.schedule.running[&id].granted;
        self.schedule.ended(self.now, id, &used);
        for resource in Resource::ALL {
            let sum = self.granted[task.host.0].of_mut(resource);
            *sum = *sum + used.of(resource) - granted.of(resource);
        }
        self.ended += 1;
        self.check();
    }

    fn check(&mut self) {
        self.schedule.check().unwrap();
        for (number, limits) in self.limits.iter().enumerate() {
            for resource in Resource::ALL {
                let Some(limit) = limits.of(resource) else { continue };
                let tasks = self.running.values().filter(|(_, task)| task.host.0 == number);
                let needs = tasks.map(|(id, _)| self.schedule.running[id].granted.of(resource));
                let held: Vec<u64> = needs.filter(|need| *need > 0).collect();
                if !resource.is_rate() {
                    assert!(held.len() < 2 || held.iter().sum::<u64>() <= limit, "{resource:?}");
                    continue;
                }
                // A second's worth for each second, a burst, and what the last one took beyond that and
                // those that run took beyond what they had declared.
                let most = limit as f64 * (self.now.as_secs_f64() + 0.25);
                let beyond = (1u64 << 18) as f64 * 4.0 * (held.len() as f64 + 2.0);
                assert!(self.granted[number].of(resource) as f64 <= most + beyond, "{resource:?}");
            }
        }
        for phase in Phase::ALL {
            let state = &self.schedule.phases[phase as usize];
            let filled = state.queue.bytes() + state.reserved;
            assert!(phase == Phase::Walk || filled <= self.queue_bytes_max.max(60), "{phase:?}");
            let head = state.queue.heads().next();
            let has_room = head.is_some_and(|head| {
                phase.next().is_none_or(|next| self.schedule.has_room(next, head.makes_bytes))
            });
            let starves = state.running == 0 && has_room;
            let since = self.starved[phase as usize].get_or_insert(self.now);
            if !starves {
                self.starved[phase as usize] = None;
                continue;
            }
            // Everything that it can wait for ends, one after the other, and rates fill in four seconds.
            let most = Duration::from_millis(RAN_MS_MAX * 40) + Duration::from_secs(12);
            assert!(self.now - *since <= most, "{phase:?} starves");
        }
    }
}

#[test]
fn schedule_invariants_hold_in_a_thousand_task_trees() {
    let (mut most, mut all) = (0, 0);
    for seed in 0..1000 {
        let mut simulation = Simulation::new(seed);
        let mut steps = 0;
        while simulation.step() {
            steps += 1;
            assert!(steps < 100_000, "seed {seed} does not end");
        }
        assert_eq!(simulation.made, simulation.ended, "seed {seed}");
        most = most.max(simulation.made);
        all += simulation.made;
        let stats = simulation.schedule.stats();
        assert_eq!(stats.phases.iter().map(|of| of.done).sum::<u64>(), simulation.ended);
        assert!(stats.phases.iter().all(|of| (of.waiting, of.running) == (0, 0)));
    }
    assert!(most > 300 && all > 20_000, "{most} {all}");
}

#[test]
fn one_worker_goes_in_serial_order() {
    let settings = ScheduleSettings {
        hosts: vec![ScheduleLimits::default()],
        widths: [1; 3],
        width: AdaptiveWidth::new(1, 1),
        queue_bytes_max: 10,
    };
    let mut schedule = Schedule::new(settings);
    let task = |place: &[u32]| Task {
        phase: Phase::Walk,
        kind: TaskKind::List,
        host: None,
        place: place.into(),
        lane: None,
        needs: Needs::default(),
        queue_bytes: 1,
        makes_bytes: 0,
        work: TaskPlace::from(place),
    };
    for place in [&[1][..], &[0, 2], &[0], &[0, 2, 7], &[2]] {
        schedule.push(None, task(place));
    }
    let mut order = Vec::new();
    while let Next::Run(id, _, place) = schedule.next(Duration::ZERO) {
        schedule.ended(Duration::ZERO, id, &Needs::default());
        order.push(place.to_vec());
    }
    assert_eq!(order, [&[0][..], &[0, 2], &[0, 2, 7], &[1], &[2]]);
}

#[test]
fn rate_limited_task_waits_and_the_limit_is_reported() {
    let limits = ScheduleLimits::default().with(Resource::NetworkBytes, 1_000_000);
    let settings = ScheduleSettings {
        hosts: vec![limits],
        widths: [4; 3],
        width: AdaptiveWidth::new(4, 4),
        queue_bytes_max: 10,
    };
    let mut schedule = Schedule::new(settings);
    for number in 0..8 {
        schedule.push(
            None,
            Task {
                phase: Phase::Transfer,
                kind: TaskKind::Transfer,
                host: None,
                place: [number].into(),
                lane: None,
                needs: Needs { network_bytes: 250_000, ..Needs::default() },
                queue_bytes: 1,
                makes_bytes: 0,
                work: (),
            },
        );
    }
    // A burst is a quarter of a second's; then one comes each quarter of a second.
    let used = Needs { network_bytes: 250_000, ..Needs::default() };
    let mut now = Duration::ZERO;
    for number in 0..8 {
        if number > 0 {
            let Next::Wait(Some(until)) = schedule.next(now) else { panic!("{number}") };
            assert!((249..=251).contains(&(until - now).as_millis()), "{number}");
            assert_eq!(schedule.stats().hosts[0].refused.network_bytes, u64::from(number as u32));
            now = until;
        }
        let Next::Run(id, _, ()) = schedule.next(now) else { panic!("{number}") };
        schedule.ended(now, id, &used);
    }
    assert!(matches!(schedule.next(now), Next::Over));
    assert_eq!(schedule.stats().limiting, Limiting::Resource(0, Resource::NetworkBytes));
}

#[test]
fn host_with_fewer_tasks_gets_the_next() {
    let one = ScheduleLimits::default().with(Resource::StoreConnections, 2);
    let settings = ScheduleSettings {
        hosts: vec![one, one, ScheduleLimits::default().with(Resource::StoreConnections, 1)],
        widths: [9; 3],
        width: AdaptiveWidth::new(9, 9),
        queue_bytes_max: 10,
    };
    let mut schedule = Schedule::new(settings);
    for number in 0..6 {
        schedule.push(
            None,
            Task {
                phase: Phase::Transfer,
                kind: TaskKind::Transfer,
                host: None,
                place: [number].into(),
                lane: None,
                needs: Needs { store_connections: 1, ..Needs::default() },
                queue_bytes: 1,
                makes_bytes: 0,
                work: (),
            },
        );
    }
    let mut hosts = Vec::new();
    while let Next::Run(_, host, ()) = schedule.next(Duration::ZERO) {
        hosts.push(host.0);
    }
    assert_eq!(hosts, [0, 1, 2, 0, 1]);
}
