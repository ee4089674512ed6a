//! From events of the kernel to rows: which call a thread is in, what processes there are, and what
//! their descriptors are.
use super::calls::{CallEffect, CallOn, CallPlace, CallSpec, OpenPlace, call_specs};
use super::files::{DescriptorOf, OpenFiles, OpenId};
use super::rings::{KernelEvent, KernelWhat};
use sheaf_log::{TraceNames, TraceRow};
use sheaf_recorder::{IoOp, is_lock};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What the kernel calls an error: the numbers above this, as they are below 0.
const ERRORS_FROM: i64 = -4095;
/// Errors that only the kernel itself sees: a signal came between, and the call is done again or
/// has failed with `EINTR`.
const RESTARTS: std::ops::RangeInclusive<i32> = 512..=530;
const EINTR: i32 = 4;
const EBADF: i32 = 9;

/// Asks for names outside: `/proc`, or what a test has instead.
pub trait KernelNames {
    /// The file that a descriptor is.
    fn file(&mut self, descriptor: DescriptorOf) -> Option<Vec<u8>>;
    /// The words of a process's command.
    fn command(&mut self, pid: i32) -> Option<Vec<u8>>;
}

/// A program that a process is.
#[derive(Debug, Default)]
struct WatchedProgram {
    /// What the kernel calls it.
    name: Option<u32>,
    /// The words of its command, which process was asked for them, and when: believed if that was
    /// this program then.
    command: Option<(Option<u32>, i32, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct WatchedProcess {
    program: usize,
    threads: u64,
    /// It has done something as this program.
    is_seen: bool,
}

#[derive(Debug)]
struct PendingCall {
    time: u64,
    cpu: usize,
    number: i64,
    arguments: [u64; 6],
    file: Option<OpenId>,
    /// How much was lost of its processor and of all when it began.
    losses: (u64, u64),
    /// It moves its file's place.
    is_in_turn: bool,
}

/// A row that waits until names are certain.
#[derive(Debug)]
struct WaitingRow {
    row: TraceRow,
    file: Option<OpenId>,
    program: usize,
    /// Its file should have a name.
    is_named: bool,
    /// Certain once all is known that happened until then.
    from: u64,
}

/// What came of events.
#[derive(Debug, Default)]
pub struct WatchedRows {
    pub rows: Vec<TraceRow>,
    /// Operations whose files are not known.
    pub unnamed: u64,
}

/// Follows processes by what the kernel tells of them.
#[derive(Debug)]
pub struct KernelWatch {
    specs: HashMap<i64, CallSpec>,
    /// By operations, and the layer, the host and no name.
    ops: HashMap<u16, u32>,
    layer: u32,
    host: u32,
    unnamed: u32,
    pending: HashMap<i32, PendingCall>,
    processes: HashMap<i32, WatchedProcess>,
    programs: Vec<WatchedProgram>,
    files: OpenFiles,
    waiting: VecDeque<WaitingRow>,
    /// By processor, and in all.
    losses: (HashMap<usize, u64>, u64),
    /// Calls whose end came.
    pub ended: u64,
    /// Of these, those whose beginning did not.
    pub unbegun: u64,
    /// Calls that are no operations.
    pub skipped: u64,
    /// Programs.
    pub seen: u64,
    /// Programs that had the kernel do things without calls, how, and a process of each.
    pub unseen: BTreeMap<(usize, &'static str), i32>,
}

impl KernelWatch {
    pub fn new(host: &str, names: &mut TraceNames) -> Self {
        Self {
            specs: call_specs(),
            ops: HashMap::new(),
            layer: names.number(sheaf_recorder::IoLayer::Kernel.word().as_bytes()),
            host: names.number(host.as_bytes()),
            unnamed: names.number(b""),
            pending: HashMap::new(),
            processes: HashMap::new(),
            programs: Vec::new(),
            files: OpenFiles::default(),
            waiting: VecDeque::new(),
            losses: (HashMap::new(), 0),
            ended: 0,
            unbegun: 0,
            skipped: 0,
            seen: 0,
            unseen: BTreeMap::new(),
        }
    }

    /// The number of the host's name.
    pub fn host(&self) -> u32 {
        self.host
    }

    /// Processes that are not known to have ended.
    pub fn processes(&self) -> impl Iterator<Item = i32> + '_ {
        self.processes.keys().copied()
    }

    /// Takes in an event; all that were before are in.
    pub fn event(&mut self, event: &KernelEvent, names: &mut TraceNames) {
        let KernelEvent { pid, thread, time, .. } = *event;
        match &event.what {
            KernelWhat::Enter { number, arguments } => {
                self.process(pid);
                self.enter(event, *number, *arguments);
            }
            KernelWhat::Exit { number, result } => {
                self.process(pid);
                self.ended += 1;
                match self.begun(event, *number) {
                    Some(call) => self.exit(event, &call, *result, names),
                    None => self.unbegun += 1,
                }
            }
            KernelWhat::Fork { parent } if *parent == pid => {
                self.process(pid).threads += 1;
            }
            KernelWhat::Fork { parent } => {
                let process =
                    // The child is its parent's program until it executes another.
                    WatchedProcess { threads: 1, is_seen: false, ..*self.process(*parent) };
                // The number may be that of an earlier process whose end was lost.
                self.files.end(pid, time);
                self.files.fork(*parent, pid);
                self.processes.insert(pid, process);
            }
            KernelWhat::Exec { name } => {
                // Descriptors with close-on-exec are closed now, and which ones have it is not
                // recorded.
                self.files.end(pid, time);
                if let Some(process) = self.processes.get(&pid) {
                    let command = &mut self.programs[process.program].command;
                    // It may have been this program's already.
                    *command = command.filter(|(_, asked, at)| *asked != pid || *at < time);
                }
                let name = names.number(name);
                self.begin_program(pid, Some(name));
            }
            KernelWhat::Ends => {
                if let Some(call) = self.pending.remove(&thread) {
                    self.give_up(&call);
                }
                let process = self.process(pid);
                process.threads = process.threads.saturating_sub(1);
                if process.threads == 0 {
                    self.processes.remove(&pid);
                    self.files.end(pid, time);
                }
            }
            KernelWhat::Lost => {
                *self.losses.0.entry(event.cpu).or_default() += 1;
                self.losses.1 += 1;
            }
        }
    }

    /// Something is missing among what was told: nothing is certain but what is by now.
    pub fn forget(&mut self) {
        self.files.forget();
    }

    /// Asks for what is not known yet; `now` is the time.
    pub fn ask(&mut self, now: u64, from: &mut dyn KernelNames, names: &mut TraceNames) {
        self.files.ask(now, |descriptor| from.file(descriptor).map(|name| names.number(&name)));
        for (pid, process) in &self.processes {
            let program = &mut self.programs[process.program];
            if program.command.is_none() {
                let command = from.command(*pid).filter(|command| !command.is_empty());
                program.command = Some((command.map(|words| names.number(&words)), *pid, now));
            }
        }
        // Rows that came since the last question wait until all events up to this one are known.
        let fresh = self.waiting.iter_mut().rev().take_while(|row| row.from == u64::MAX);
        fresh.for_each(|row| row.from = now);
    }

    /// Rows whose names are certain, all being known that happened until `until`.
    pub fn take(&mut self, until: u64, into: &mut WatchedRows) {
        while self.waiting.front().is_some_and(|row| row.from <= until) {
            let Some(mut waiting) = self.waiting.pop_front() else { return };
            let name = waiting.file.and_then(|file| self.files.name(file, until));
            waiting.row.path = name.unwrap_or(self.unnamed);
            waiting.row.command = self.command(waiting.program).unwrap_or(self.unnamed);
            into.unnamed += u64::from(waiting.is_named && name.is_none());
            into.rows.push(waiting.row);
        }
    }

    fn process(&mut self, pid: i32) -> &mut WatchedProcess {
        if !self.processes.contains_key(&pid) {
            self.begin_program(pid, None);
        }
        self.processes.get_mut(&pid).expect("it was just put there")
    }

    fn begin_program(&mut self, pid: i32, name: Option<u32>) {
        let program = self.programs.len();
        self.programs.push(WatchedProgram { name, command: None });
        self.processes.insert(pid, WatchedProcess { program, threads: 1, is_seen: false });
    }

    fn losses(&self, cpu: usize) -> (u64, u64) {
        (self.losses.0.get(&cpu).copied().unwrap_or(0), self.losses.1)
    }

    fn enter(&mut self, event: &KernelEvent, number: i64, arguments: [u64; 6]) {
        let Some(spec) = self.specs.get(&number).copied() else { return };
        let fd = |at: usize| arguments[at] as i32;
        let file = match spec.on {
            CallOn::Descriptor(at) if spec.effect == CallEffect::Closes => {
                // What it was is not found out any more.
                self.files.known(event.pid, fd(at))
            }
            CallOn::Descriptor(at) if fd(at) >= 0 => Some(self.files.of(event.pid, fd(at))),
            CallOn::PathAt(flags)
                if arguments[1] == 0 || is_empty_path(flags.map(|at| arguments[at])) =>
            {
                (fd(0) >= 0).then(|| self.files.of(event.pid, fd(0)))
            }
            _ => None,
        };
        match spec.effect {
            // A descriptor's number may be another file's before the call has ended.
            CallEffect::Closes => {
                file.into_iter().for_each(|id| self.files.wait(id));
                self.files.close(event.pid, fd(0), event.time);
            }
            CallEffect::ClosesRange if arguments[2] & CLOSE_RANGE_CLOEXEC == 0 => {
                let last = arguments[1] & u64::from(u32::MAX);
                self.files.close_range(event.pid, arguments[0], last, event.time);
            }
            CallEffect::Dups(Some(at)) => self.files.close(event.pid, fd(at), event.time),
            _ => {}
        }
        if spec.effect != CallEffect::Closes {
            file.into_iter().for_each(|id| self.files.wait(id));
        }
        let is_in_turn = match spec.place {
            CallPlace::Turn => true,
            CallPlace::AtOrTurn(at) => arguments[at] as i64 == -1,
            CallPlace::TurnIfNull(at) => arguments[at] == 0,
            CallPlace::None | CallPlace::At(_) => false,
        };
        if let Some(file) = file.filter(|_| is_in_turn) {
            self.files.begin_turn(file);
        }
        let losses = self.losses(event.cpu);
        let (time, cpu) = (event.time, event.cpu);
        let call = PendingCall { time, cpu, number, arguments, file, losses, is_in_turn };
        // A thread has one call at a time, so the end of the earlier one was not seen.
        if let Some(before) = self.pending.insert(event.thread, call) {
            self.give_up(&before);
        }
    }

    /// The call that ends so, if its beginning was seen.
    fn begun(&mut self, event: &KernelEvent, number: i64) -> Option<PendingCall> {
        let call = self.pending.remove(&event.thread)?;
        let (of_cpu, of_all) = self.losses(event.cpu);
        // On one processor only its own losses matter. A thread that has moved may have lost
        // records on any.
        let is_whole =
            if call.cpu == event.cpu { call.losses.0 == of_cpu } else { call.losses.1 == of_all };
        if call.number == number && is_whole {
            return Some(call);
        }
        self.give_up(&call);
        None
    }

    /// Nothing will be known of how it ended.
    fn give_up(&mut self, call: &PendingCall) {
        let Some(file) = call.file else { return };
        if call.is_in_turn {
            // How far it moved the place is unknown.
            self.files.end_turn(file, 0);
            self.files.set_place(file, None);
        }
        // Only ends the wait: at time 0 no name becomes certain.
        self.files.name(file, 0);
    }

    fn exit(
        &mut self,
        event: &KernelEvent,
        call: &PendingCall,
        result: i64,
        names: &mut TraceNames,
    ) {
        let Some(spec) = self.specs.get(&call.number).copied() else { return };
        let process = self.process(event.pid);
        let (program, is_seen) = (process.program, process.is_seen);
        if let CallEffect::Unseen(how) = spec.effect {
            self.skipped += 1;
            if result >= 0 {
                self.unseen.entry((program, how)).or_insert(event.pid);
            }
            return;
        }
        let (errno, result) = match result {
            ERRORS_FROM..=-1 => (-result as i32, 0),
            result => (0, result),
        };
        let errno = if RESTARTS.contains(&errno) { EINTR } else { errno };
        let moved = if spec.moves { result } else { 0 };
        // Before the effect, which may set another place.
        let offset = self.offset(&spec, call, moved);
        let mut file = call.file;
        if errno == 0 {
            file = self.effect(event, &spec, call, result).or(file);
        }
        if !is_seen {
            self.process(event.pid).is_seen = true;
            self.seen += 1;
        }
        let is_lock = spec.effect == CallEffect::Fcntl && is_lock(call.arguments[1] as i32);
        let op = if is_lock { IoOp::Lock } else { spec.op };
        let number = || names.number(op.word().as_bytes());
        let op = *self.ops.entry(op as u16).or_insert_with(number);
        let row = TraceRow {
            time_ns: call.time as i64,
            duration_ns: event.time.saturating_sub(call.time) as i64,
            op,
            layer: self.layer,
            host: self.host,
            offset,
            asked: spec.asked.map_or(moved, |at| amount(call.arguments[at])),
            bytes: moved,
            errno,
            pid: event.pid,
            thread: event.thread,
            ..TraceRow::default()
        };
        // A descriptor that is not open has no name.
        let is_named = spec.on != CallOn::Nothing && errno != EBADF;
        self.waiting.push_back(WaitingRow { row, file, program, is_named, from: u64::MAX });
    }

    fn offset(&mut self, spec: &CallSpec, call: &PendingCall, moved: i64) -> Option<i64> {
        if call.is_in_turn {
            let place = self.files.end_turn(call.file?, moved as u64)?;
            return i64::try_from(place).ok();
        }
        match spec.place {
            CallPlace::At(at) | CallPlace::AtOrTurn(at) => Some(call.arguments[at] as i64),
            _ => None,
        }
    }

    /// What a call that has not failed does to descriptors; the open file that it gave, which is
    /// waited for.
    fn effect(
        &mut self,
        event: &KernelEvent,
        spec: &CallSpec,
        call: &PendingCall,
        result: i64,
    ) -> Option<OpenId> {
        let (pid, files) = (event.pid, &mut self.files);
        let arguments = &call.arguments;
        match spec.effect {
            CallEffect::Opens(place) => {
                let place = match place {
                    OpenPlace::Begins => Some(0),
                    // With O_APPEND each write goes to the end, and the length of the file is not
                    // known here.
                    OpenPlace::Flags(at) if arguments[at] & O_APPEND == 0 => Some(0),
                    OpenPlace::Flags(_) | OpenPlace::Unknown => None,
                };
                let id = files.open(pid, result as i32, place);
                files.wait(id);
                return Some(id);
            }
            CallEffect::Dups(_) => {
                // A `dup2` of a descriptor onto itself changes nothing.
                if let Some(id) = call.file.filter(|_| result as i32 != arguments[0] as i32) {
                    files.hold(pid, result as i32, id, event.time);
                }
            }
            CallEffect::Fcntl
                if matches!(arguments[1] as i32, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) =>
            {
                call.file.into_iter().for_each(|id| files.hold(pid, result as i32, id, event.time));
            }
            // It may write at the end from here on.
            CallEffect::Fcntl if arguments[1] as i32 == libc::F_SETFL => {
                call.file.into_iter().for_each(|id| files.set_place(id, None));
            }
            CallEffect::Seeks => {
                call.file
                    .into_iter()
                    .for_each(|id| files.set_place(id, u64::try_from(result).ok()));
            }
            CallEffect::Moves(to, pointer) if pointer.is_none_or(|at| arguments[at] == 0) => {
                if let Some(id) = files.known(pid, arguments[to] as i32) {
                    files.begin_turn(id);
                    files.end_turn(id, result as u64);
                }
            }
            _ => {}
        }
        None
    }

    /// What is known of a program: the words of its command, or its name.
    pub fn command(&self, program: usize) -> Option<u32> {
        let program = self.programs.get(program)?;
        program.command.and_then(|(command, ..)| command).or(program.name)
    }
}

const O_APPEND: u64 = libc::O_APPEND as u64;
const CLOSE_RANGE_CLOEXEC: u64 = 4;

/// Whether the path may be empty, and then is.
fn is_empty_path(flags: Option<u64>) -> bool {
    flags.is_some_and(|flags| flags & libc::AT_EMPTY_PATH as u64 != 0)
}

fn amount(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
